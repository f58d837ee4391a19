//! The check before GPUs are detached: how many, from which hosts and demands, and whether agents check their use. Every
//! command that detaches GPUs shows that, asks for confirmation and obeys `--max-detach`.

use crate::api_client::Api;
use crate::confirm::ConfirmArgs;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::human::counted;
use crate::output::say;
use poolwright_executor::{Operation, StepRecord, StepState};
use poolwright_model::id::{CompositionId, DemandId, HostId, UnitId};
use poolwright_model::step::Verb;
use poolwright_planner::{Composition, Plan};
use poolwright_service::agent::Agent;
use std::collections::{BTreeMap, BTreeSet};

/// A line lists no more hosts.
const HOSTS_SHOWN: usize = 6;

/// Options of commands that detach GPUs.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct ConfirmDetachArgs {
    #[command(flatten)]
    pub confirm: ConfirmArgs,
    /// Refuse to detach more GPUs than these, with exit code 5; for scripts
    #[arg(long, value_name = "N")]
    pub max_detach: Option<u32>,
}

/// When a command asks for confirmation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    Always,
    /// Only where GPUs are detached.
    IfDetached,
}

/// GPUs that lose their hosts: how many of each host and of which holder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Detached(BTreeMap<HostId, BTreeMap<String, u32>>);

impl Detached {
    /// The GPUs that a plan unbinds.
    pub fn by_plan(plan: &Plan) -> Self {
        let releases = plan.releases.iter();
        let holders: BTreeMap<&CompositionId, String> = releases.map(|c| (&c.id, holder(c))).collect();
        let mut detached = Self::default();
        for step in plan.steps.iter().filter(|step| step.verb == Verb::Unbind) {
            let known = step.composition.as_ref().and_then(|id| holders.get(id));
            let holder = known.cloned().unwrap_or_else(|| BY_NAME.to_owned());
            detached.add(&step.target.host, holder, step.target.gpus.len());
        }
        detached
    }

    /// The GPUs of compositions.
    fn of<'a>(compositions: impl IntoIterator<Item = &'a Composition>) -> Self {
        let mut detached = Self::default();
        for composition in compositions {
            let gpus = composition.gpus().count();
            detached.add(&composition.host, holder(composition), gpus);
        }
        detached
    }

    /// The GPUs that these demands hold now, without those of compositions that an operation has in hand.
    pub async fn by_demands(
        api: &Api,
        demands: &BTreeSet<DemandId>,
        in_hand: &BTreeSet<CompositionId>,
    ) -> Result<Self, Failure> {
        if demands.is_empty() {
            return Ok(Self::default());
        }
        let compositions: Vec<Composition> = api.get(&["compositions"]).await?;
        let of_them = |c: &&Composition| {
            c.demand.as_ref().is_some_and(|id| demands.contains(id)) && !in_hand.contains(&c.id)
        };
        Ok(Self::of(compositions.iter().filter(of_them)))
    }

    /// The GPUs that an operation has bound or is binding: its undo unbinds them.
    pub fn by_cancelling(operation: &Operation) -> Self {
        let mut detached = Self::default();
        let steps = operation.steps.iter();
        let bound = steps.filter(|record| {
            record.step.verb == Verb::Bind
                && matches!(
                    record.state,
                    StepState::Running
                        | StepState::Done
                        | StepState::Indeterminate
                        | StepState::Undoing
                        | StepState::Stuck
                )
        });
        for record in bound {
            detached.add_step(operation, record);
        }
        detached
    }

    /// The GPUs that an open operation unbinds as it goes on: by its remaining steps, or by an undo.
    pub fn by_going_on(operation: &Operation) -> Self {
        if operation.stop.is_some() {
            return Self::by_cancelling(operation);
        }
        let mut detached = Self::default();
        let steps = operation.steps.iter();
        let to_unbind = steps.filter(|record| match record.step.verb {
            Verb::Unbind => matches!(
                record.state,
                StepState::Pending | StepState::Running | StepState::Indeterminate
            ),
            // Of GPUs that are left out of it.
            Verb::Bind => matches!(record.state, StepState::Undoing | StepState::Stuck),
            _ => false,
        });
        for record in to_unbind {
            detached.add_step(operation, record);
        }
        detached
    }

    /// The GPUs of an operation; `open`: only those of steps whose outcome is unknown.
    pub fn in_doubt(operation: &Operation, open: bool) -> Self {
        let is_open = |record: &&StepRecord| {
            matches!(
                record.state,
                StepState::Running | StepState::Indeterminate | StepState::Undoing | StepState::Stuck
            )
        };
        let steps = operation.steps.iter();
        let steps = steps.filter(|record| !open || is_open(record));
        // A unit has several steps.
        let units: BTreeMap<&UnitId, &StepRecord> =
            steps.map(|record| (&record.step.target.unit, record)).collect();
        let mut detached = Self::default();
        for record in units.into_values() {
            detached.add_step(operation, record);
        }
        detached
    }

    /// Those of both.
    pub fn and(mut self, other: Self) -> Self {
        for (host, holders) in other.0 {
            for (holder, gpus) in holders {
                *self.0.entry(host.clone()).or_default().entry(holder).or_default() += gpus;
            }
        }
        self
    }

    fn add_step(&mut self, operation: &Operation, record: &StepRecord) {
        let target = &record.step.target;
        self.add(
            &target.host,
            format!("operation {}", operation.id),
            target.gpus.len(),
        );
    }

    fn add(&mut self, host: &HostId, holder: String, gpus: usize) {
        let of_host = self.0.entry(host.clone()).or_default();
        *of_host.entry(holder).or_default() += u32::try_from(gpus).unwrap_or(u32::MAX);
    }

    pub fn count(&self) -> u32 {
        self.0.values().flat_map(BTreeMap::values).sum()
    }

    /// Such as `8 GPUs to detach: 4 from host-1 (demand chat), 4 from host-2 (demand chat)`, and whether agents check their
    /// use. `agents` are the hosts with an agent; `None` if they could not be listed.
    fn lines(&self, agents: Option<&BTreeSet<HostId>>) -> Vec<String> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let part = |(host, holders): (&HostId, &BTreeMap<String, u32>)| {
            let count: u32 = holders.values().sum();
            let holders: Vec<&str> = holders.keys().map(String::as_str).collect();
            format!("{count} from {host} ({})", holders.join(", "))
        };
        let parts = self.0.iter().map(part);
        let gpus = counted(usize::try_from(self.count()).unwrap_or(usize::MAX), "GPU");
        let mut lines = vec![format!("{gpus} to detach: {}", listed(parts))];
        let Some(agents) = agents else {
            lines.push("use perhaps NOT checked: the agents could not be listed".to_owned());
            return lines;
        };
        let (checked, unchecked): (Vec<&HostId>, Vec<&HostId>) =
            self.0.keys().partition(|host| agents.contains(*host));
        let names = |hosts: Vec<&HostId>| listed(hosts.into_iter().map(HostId::to_string));
        if !checked.is_empty() {
            let hosts = names(checked);
            lines.push(format!("use checked before each is detached: agent on {hosts}"));
        }
        if !unchecked.is_empty() {
            lines.push(format!("use NOT checked: no agent on {}", names(unchecked)));
        }
        lines
    }
}

const BY_NAME: &str = "attached by name";

fn holder(composition: &Composition) -> String {
    match (&composition.demand, &composition.tenant, &composition.kept) {
        (Some(demand), ..) => format!("demand {demand}"),
        (None, Some(tenant), Some(_)) => format!("retained for tenant {tenant}"),
        (None, Some(tenant), None) => format!("tenant {tenant}"),
        (None, None, _) => BY_NAME.to_owned(),
    }
}

fn listed(parts: impl ExactSizeIterator<Item = String>) -> String {
    let more = parts.len().saturating_sub(HOSTS_SHOWN);
    let mut shown: Vec<String> = parts.take(HOSTS_SHOWN).collect();
    if more > 0 {
        shown.push(format!("and {}", counted(more, "more host")));
    }
    shown.join(", ")
}

/// The hosts whose agents check the use of GPUs; `None` if the agents could not be listed.
async fn hosts_with_agents(api: &Api) -> Option<BTreeSet<HostId>> {
    match api.get::<Vec<Agent>>(&["agents"]).await {
        Ok(agents) => {
            let speaking = agents.into_iter().filter(Agent::speaks);
            Some(speaking.map(|agent| agent.host).collect())
        }
        Err(failure) => {
            tracing::debug!("the agents could not be listed: {failure}");
            None
        }
    }
}

/// Shows on stderr which GPUs are detached.
pub async fn tell(api: &Api, detached: &Detached) {
    if detached.count() > 0 {
        let agents = hosts_with_agents(api).await;
        detached.lines(agents.as_ref()).iter().for_each(|line| say(line));
    }
}

impl ConfirmDetachArgs {
    /// Refuses more than `--max-detach` allows.
    pub fn allow(self, detached: &Detached) -> Result<(), Failure> {
        let count = detached.count();
        match self.max_detach {
            Some(max) if count > max => {
                let message = format!("{count} GPUs would be detached, and --max-detach allows {max}");
                Err(Failure::new(ExitCode::Conflict, message)
                    .with_hint("nothing was changed; allow more with --max-detach if that is what you want"))
            }
            _ => Ok(()),
        }
    }

    /// Shows which GPUs are detached, refuses more than `--max-detach` allows, and asks whether to go on with `what`.
    pub async fn check(self, api: &Api, detached: &Detached, what: &str, ask: Ask) -> Result<(), Failure> {
        tell(api, detached).await;
        self.allow(detached)?;
        match ask {
            Ask::IfDetached if detached.count() == 0 => Ok(()),
            Ask::IfDetached | Ask::Always => self.confirm.confirm(what),
        }
    }

    /// The same for the GPUs that these demands hold.
    pub async fn check_demands(
        self,
        api: &Api,
        demands: &BTreeSet<DemandId>,
        what: &str,
        ask: Ask,
    ) -> Result<(), Failure> {
        let detached = Detached::by_demands(api, demands, &BTreeSet::new()).await?;
        self.check(api, &detached, what, ask).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolwright_planner::Held;
    use serde_json::json;

    fn composition(host: &str, demand: Option<&str>, gpus: &[&str]) -> Composition {
        let point = |address: &str| json!({"endpoint": "box-1", "style": "zones", "address": address});
        let held: Vec<Held> = gpus
            .iter()
            .map(|gpu| {
                serde_json::from_value(json!({
                    "unit": gpu, "gpus": [gpu], "host_port": format!("{host}/p0"),
                    "unit_at": point(gpu), "port_at": point(host),
                }))
                .unwrap()
            })
            .collect();
        Composition {
            id: format!("{host}-1").parse().unwrap(),
            demand: demand.map(|demand| demand.parse().unwrap()),
            tenant: None,
            host: host.parse().unwrap(),
            held,
            part: 1,
            parts: 1,
            label: String::new(),
            kept: None,
        }
    }

    #[test]
    fn detached_gpus_are_counted_by_host_and_demand_and_their_use_is_checked_or_not() {
        let all = [
            composition("host-1", Some("chat"), &["gpu-1", "gpu-2"]),
            composition("host-1", None, &["gpu-3"]),
            composition("host-2", Some("chat"), &["gpu-4"]),
        ];
        let detached = Detached::of(&all);
        assert_eq!(detached.count(), 4);
        let agents = BTreeSet::from(["host-2".parse().unwrap()]);
        assert_eq!(
            detached.lines(Some(&agents)),
            [
                "4 GPUs to detach: 3 from host-1 (attached by name, demand chat), 1 from host-2 (demand chat)",
                "use checked before each is detached: agent on host-2",
                "use NOT checked: no agent on host-1",
            ]
        );
        let unknown = detached.lines(None);
        assert!(unknown[1].contains("NOT checked"), "{unknown:?}");
        assert_eq!(Detached::default().lines(None), Vec::<String>::new());
    }

    #[test]
    fn more_gpus_than_max_detach_allows_are_a_conflict() {
        let all = [composition("host-1", Some("chat"), &["gpu-1", "gpu-2"])];
        let detached = Detached::of(&all);
        let allowing = |max| ConfirmDetachArgs {
            max_detach: max,
            ..ConfirmDetachArgs::default()
        };
        assert_eq!(allowing(None).allow(&detached), Ok(()));
        assert_eq!(allowing(Some(2)).allow(&detached), Ok(()));
        let refused = allowing(Some(1)).allow(&detached).unwrap_err();
        assert_eq!(refused.code, ExitCode::Conflict);
        assert!(refused.message.contains("2 GPUs would be detached"), "{refused}");
    }
}
