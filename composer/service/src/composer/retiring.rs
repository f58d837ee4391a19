//! Hosts are taken out of service for good, or replaced, and may come back.
//!
//! Invariants: a host is closed first, and looked at then: what nobody gives it any more can't have come meanwhile, and
//! where it has something all the same it is opened again. What a retired host's agent says is believed no more.

use super::Composer;
use crate::agent::Agent;
use crate::error::{ErrorCode, ServiceError};
use crate::host::{
    HostEvent, HostEvidence, HostHistory, HostLife, HostTurn, Relocation, RetiredHosts, Retirement,
};
use poolwright_executor::Claim;
use poolwright_model::id::{GpuId, HostId, HostPortId, UnitId};
use poolwright_model::topology::Host;
use poolwright_planner::direct::Refusal;
use poolwright_planner::{Composition, Plan};
use poolwright_store::{Batch, StoreError, Stored, Versioned, read};
use std::collections::BTreeSet;

/// What is told of why a host is retired, at most.
const MOST_WORDS: usize = 500;
/// GPUs that a refusal names.
const NAMED: usize = 4;

impl Composer {
    /// Those that are out of service, by their names.
    #[crate::boxed]
    pub async fn retired(&self) -> Result<Vec<Retirement>, ServiceError> {
        let (retired, _) = self.retired_hosts().await?;
        Ok(retired.into_all())
    }

    /// All that are out of service, and the revision of their document.
    pub(super) async fn retired_hosts(&self) -> Result<(RetiredHosts, Option<u64>), ServiceError> {
        let found = read::<RetiredHosts>(self.store.as_ref(), RetiredHosts::default().id()).await?;
        Ok(match found {
            Some(Versioned { value, revision }) => (value, Some(revision)),
            None => (RetiredHosts::default(), None),
        })
    }

    /// What a host has gone through, seen or not.
    #[crate::boxed]
    pub async fn host_life(&self, id: &HostId) -> Result<HostLife, ServiceError> {
        let (of, kept) = self.host_history_of(id).await?;
        let agent = read::<Agent>(self.store.as_ref(), id.as_str()).await?;
        if kept.is_none() && agent.is_none() && self.seen_host(id).await?.is_none() {
            return Err(ServiceError::not_found("host", id.as_str()));
        }
        let (retired, _) = self.retired_hosts().await?;
        let relocation = read::<Relocation>(self.store.as_ref(), id.as_str()).await?;
        Ok(HostLife {
            of,
            relocation: relocation.map(|found| found.value),
            retired: retired.of(id).cloned(),
            agent: agent.map(|found| found.value),
        })
    }

    /// Takes a host out of service for good: it is given nothing any more, and its agent is asked no more. It must be empty,
    /// and nothing may be on its way to it. Asked again, what is left to be done of it is done.
    #[crate::boxed]
    pub async fn retire_host(&self, id: &HostId, why: &str, by: &str) -> Result<HostLife, ServiceError> {
        let _turn = self.turn.lock().await;
        let known = self.host_life(id).await?;
        if let Some(under_way) = &known.relocation {
            return Err(under_way.refusal());
        }
        self.close_for_good(id, why, by).await?;
        if known.retired.is_none() {
            tracing::warn!(host = %id, %by, "retired");
        }
        self.note_retired(id, Vec::new()).await
    }

    /// Another host came in the place of one: that one is retired, and each history names the other.
    #[crate::boxed]
    pub async fn replace_host(&self, old: &HostId, new: &HostId, by: &str) -> Result<HostLife, ServiceError> {
        if old == new {
            return Err(ServiceError::bad_request(format!(
                "host {old} can't replace itself"
            )));
        }
        // Read within the turn: of two that ask at once, the second sees what the first has written.
        let _turn = self.turn.lock().await;
        let before = self.host_life(old).await?;
        let after = self.host_life(new).await?;
        if self.seen_host(new).await?.is_none() {
            return Err(ServiceError::not_found("host", new.as_str()));
        }
        if let Some(retired) = &after.retired {
            return Err(retired.refusal());
        }
        if let Some(under_way) = before.relocation.as_ref().or(after.relocation.as_ref()) {
            return Err(under_way.refusal());
        }
        for (known, other) in [(before.of.replaced_by(), new), (after.of.replaces(), old)] {
            if let Some(known) = known.filter(|known| *known != other) {
                let message = format!("host {old} or {new} was replaced before: {known}");
                return Err(ServiceError::new(ErrorCode::Conflict, message)
                    .with_hint(format!("see both: poolwright host history {old}")));
            }
        }
        self.close_for_good(old, &format!("replaced by {new}"), by)
            .await?;
        let mut events = Vec::new();
        if before.of.replaced_by().is_none() {
            let (to, from) = (new.clone(), old.clone());
            events.push((old.clone(), by.to_owned(), HostTurn::ReplacedBy { host: to }));
            events.push((new.clone(), by.to_owned(), HostTurn::Replaces { host: from }));
        }
        self.note_retired(old, events).await?;
        self.host_life(new).await
    }

    /// Takes a retired host back into service. An agent of it has to be enrolled anew.
    #[crate::boxed]
    pub async fn reinstate_host(&self, id: &HostId, by: &str) -> Result<HostLife, ServiceError> {
        let (mut retired, revision) = self.retired_hosts().await?;
        if retired.remove(id).is_none() {
            self.host_life(id).await?;
            let message = format!("host {id} is not retired");
            return Err(ServiceError::new(ErrorCode::Conflict, message)
                .with_hint("poolwright host retired shows which are"));
        }
        let mut batch = Batch::new();
        batch
            .expect(RetiredHosts::KIND, retired.id(), revision)
            .put(&retired)?;
        let event = (id.clone(), by.to_owned(), HostTurn::Reinstated);
        self.add_events(vec![event], &mut batch).await?;
        self.commit_of_hosts(batch).await?;
        self.calendar_changed.notify_one();
        self.queue_changed.notify_one();
        self.host_life(id).await
    }

    /// Closes a host, unless it has something or is given something just now.
    async fn close_for_good(&self, id: &HostId, why: &str, by: &str) -> Result<(), ServiceError> {
        self.is_empty(id, "retired").await?;
        let (mut retired, revision) = self.retired_hosts().await?;
        if retired.of(id).is_some() {
            return Ok(());
        }
        let why = why.chars().filter(|c| !c.is_control()).take(MOST_WORDS);
        retired.add(Retirement {
            host: id.clone(),
            since: self.clock.now(),
            by: by.to_owned(),
            why: why.collect(),
        });
        let mut batch = Batch::new();
        batch
            .expect(RetiredHosts::KIND, retired.id(), revision)
            .put(&retired)?;
        self.commit_of_hosts(batch).await?;
        // Whoever began before this was committed is seen now; whoever begins after it is refused.
        match self.is_empty(id, "retired").await {
            Ok(()) => Ok(()),
            Err(refused) => {
                let (mut retired, revision) = self.retired_hosts().await?;
                retired.remove(id);
                let mut batch = Batch::new();
                batch
                    .expect(RetiredHosts::KIND, retired.id(), revision)
                    .put(&retired)?;
                self.commit_of_hosts(batch).await?;
                Err(refused)
            }
        }
    }

    /// Writes down that a host which is closed is retired, with what came of that, and that its agent speaks no more.
    async fn note_retired(
        &self,
        id: &HostId,
        mut events: Vec<(HostId, String, HostTurn)>,
    ) -> Result<HostLife, ServiceError> {
        let life = self.host_life(id).await?;
        let told = life.of.events.iter().rev().find_map(|event| match event.turn {
            HostTurn::Retired { .. } => Some(true),
            HostTurn::Reinstated => Some(false),
            _ => None,
        });
        if let Some(retired) = life.retired.filter(|_| told != Some(true)) {
            let turn = HostTurn::Retired { why: retired.why };
            events.insert(0, (id.clone(), retired.by, turn));
        }
        let mut batch = Batch::new();
        self.add_events(events, &mut batch).await?;
        let agent = read::<Agent>(self.store.as_ref(), id.as_str()).await?;
        let revoked = agent.filter(|found| found.value.speaks()).map(|found| {
            let revoked = Some(self.clock.now());
            let agent = Agent {
                revoked,
                ..found.value
            };
            (agent, found.revision)
        });
        if let Some((agent, revision)) = &revoked {
            batch
                .expect(Agent::KIND, id.as_str(), Some(*revision))
                .put(agent)?;
        }
        self.commit_of_hosts(batch).await?;
        if let Some((agent, _)) = revoked {
            self.connections.agents.note(agent);
        }
        self.host_life(id).await
    }

    pub(super) async fn add_events(
        &self,
        events: Vec<(HostId, String, HostTurn)>,
        batch: &mut Batch,
    ) -> Result<(), ServiceError> {
        let hosts: BTreeSet<HostId> = events.iter().map(|(host, ..)| host.clone()).collect();
        for host in hosts {
            let (mut history, revision) = self.host_history_of(&host).await?;
            let seen = self.seen_host(&host).await?;
            for (_, by, turn) in events.iter().filter(|(of, ..)| *of == host) {
                history.add(HostEvent {
                    at: self.clock.now(),
                    by: by.clone(),
                    turn: turn.clone(),
                    evidence: seen.as_ref().map(HostEvidence::of),
                });
            }
            batch
                .expect(HostHistory::KIND, host.as_str(), revision)
                .put(&history)?;
        }
        Ok(())
    }

    pub(super) async fn commit_of_hosts(&self, batch: Batch) -> Result<(), ServiceError> {
        match self.store.commit(batch).await {
            Ok(_) => Ok(()),
            Err(StoreError::Conflict { .. }) => {
                let message =
                    "somebody else changed something of this host, or of another one, at this very moment";
                Err(ServiceError::new(ErrorCode::Conflict, message)
                    .with_hint("look at it (poolwright host history HOST), and ask again"))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// That nothing is at a host that is to be retired or moved, nor on its way to it or from it.
    pub(super) async fn is_empty(&self, id: &HostId, what: &str) -> Result<(), ServiceError> {
        // In this order: what ends while we read has been written down then.
        let claims = self.claims().await?;
        let held = self.held().await?;
        let here: Vec<&Composition> = held
            .iter()
            .filter(|c| c.host == *id && !c.held.is_empty())
            .collect();
        if let Some(claim) = in_hand(&claims, &here, &self.ports_of(id).await?) {
            let Claim { operation, by, .. } = claim;
            let message =
                format!("host {id} can't be {what}: operation {operation} of {by} is at work there");
            return Err(ServiceError::new(ErrorCode::Conflict, message)
                .with_hint(format!("wait until it is over: poolwright ops wait {operation}")));
        }
        if let Some(first) = here.first() {
            let gpus: Vec<&GpuId> = here.iter().flat_map(|c| c.gpus()).collect();
            let message = format!("host {id} can't be {what}: it holds {}", named(&gpus));
            let free = match &first.demand {
                Some(demand) => format!("poolwright release {demand}"),
                None => format!("poolwright detach {}", named(&gpus[..1])),
            };
            return Err(ServiceError::new(ErrorCode::Conflict, message).with_hint(format!(
                "let go of them, or move them to another host, first: {free}"
            )));
        }
        let snapshot = self.snapshot().await?;
        let bound = snapshot
            .topology
            .gpus
            .iter()
            .filter(|gpu| gpu.host.as_ref() == Some(id));
        let bound: Vec<&GpuId> = bound.map(|gpu| &gpu.id).collect();
        if bound.is_empty() {
            return Ok(());
        }
        let message = format!(
            "host {id} can't be {what}: {} is bound to it, and in no composition",
            named(&bound)
        );
        Err(ServiceError::new(ErrorCode::Conflict, message).with_hint(
            "have whoever bound it unbind it, or adopt it and detach it: poolwright diff says more",
        ))
    }

    async fn ports_of(&self, id: &HostId) -> Result<BTreeSet<HostPortId>, ServiceError> {
        let seen = self.seen_host(id).await?;
        let ports = seen.into_iter().flat_map(|host| host.ports);
        Ok(ports.map(|port| port.id).collect())
    }

    pub(super) async fn seen_host(&self, id: &HostId) -> Result<Option<Host>, ServiceError> {
        let snapshot = self.snapshot().await?;
        let mut hosts = snapshot.topology.hosts.iter();
        Ok(hosts.find(|host| host.id == *id).cloned())
    }

    async fn host_history_of(&self, id: &HostId) -> Result<(HostHistory, Option<u64>), ServiceError> {
        let found = read::<HostHistory>(self.store.as_ref(), id.as_str()).await?;
        Ok(match found {
            Some(Versioned { value, revision }) => (value, Some(revision)),
            None => (HostHistory::of(id), None),
        })
    }

    /// That a plan brings nothing to a retired host; where managers share a store, also when it is committed.
    pub(super) async fn spares_retired_hosts(
        &self,
        plan: &Plan,
        with: &mut Batch,
    ) -> Result<(), ServiceError> {
        let (retired, revision) = self.retired_hosts().await?;
        let mut to = plan.composes.iter().map(|composed| &composed.host);
        if let Some(retired) = to.find_map(|host| retired.of(host)) {
            return Err(retired.refusal());
        }
        if self.options.sharing.is_some() && !plan.composes.is_empty() {
            with.expect(RetiredHosts::KIND, retired.id(), revision);
        }
        Ok(())
    }

    /// The refusal, or that the host is retired, where that is why.
    pub(super) async fn or_retired(&self, refused: Refusal) -> ServiceError {
        if let Refusal::HostClosed { host, .. } = &refused
            && let Ok((retired, _)) = self.retired_hosts().await
            && let Some(retired) = retired.of(host)
        {
            return retired.refusal();
        }
        refused.into()
    }
}

/// The claim of an operation that brings something to these ports, or has in hand what these compositions hold.
fn in_hand<'c>(
    claims: &'c [Claim],
    here: &[&Composition],
    ports: &BTreeSet<HostPortId>,
) -> Option<&'c Claim> {
    let held: BTreeSet<&UnitId> = here.iter().flat_map(|c| &c.held).map(|held| &held.unit).collect();
    claims.iter().find(|claim| {
        let comes = claim.host_port.as_ref().is_some_and(|port| ports.contains(port));
        comes || held.contains(&claim.unit)
    })
}

/// The first of them, and how many more.
fn named(gpus: &[&GpuId]) -> String {
    let names: Vec<&str> = gpus.iter().take(NAMED).map(|gpu| gpu.as_str()).collect();
    match gpus.len().saturating_sub(NAMED) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}
