//! Every registered kind of operation, as the planner makes it on the fake rack: what stands before it, and
//! its plan. The sweeps go through all of them, and through all forms in which each may be asked for.

use crate::kit::{Kit, run_as, submission_of};
use crate::plans::{point, port};
use crate::runs::Way;
use jiff::Timestamp;
use poolwright_executor::{GpuRecord, OperationKind, OperationState, Submission};
use poolwright_inventory::Snapshot;
use poolwright_model::composable::Composability;
use poolwright_model::id::{FabricId, GpuId};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::step::Verb;
use poolwright_model::topology::{FabricPort, Gpu, Health, Host, HostPort, PowerState, Topology};
use poolwright_model::units::{Bytes, LinkWidth};
use poolwright_planner::{
    Composition, Cordoned, Demand, Plan, PlanInput, Promises, Uplinks, World, check, direct, undo,
};
use poolwright_sizing::need::{GpuSet, Need};
use poolwright_store::read;
use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::Duration;

const UNITS: [&str; 2] = ["u1", "u2"];
const HOSTS: [&str; 2] = ["h1", "h2"];
static NOTHING: LazyLock<Cordoned> = LazyLock::new(Cordoned::default);
static NO_PROMISES: LazyLock<Promises> = LazyLock::new(Promises::default);
static ANY_UPLINKS: LazyLock<Uplinks> = LazyLock::new(Uplinks::default);

/// A kind of operation: all of it or nothing, or going on without what fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    pub kind: OperationKind,
    pub partial_ok: bool,
    pub managers: Managers,
}

/// Who works at it, and who carries it on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Managers {
    /// One; after a crash it starts again.
    Alone,
    /// Several, which share the store: where one stops, another takes over.
    Several,
}

impl Form {
    pub const fn whole(kind: OperationKind) -> Self {
        Self {
            kind,
            partial_ok: false,
            managers: Managers::Alone,
        }
    }

    /// Turned back as a whole, both forms are the same.
    pub fn ways(self) -> &'static [Way] {
        match self.partial_ok {
            true => &[Way::Do],
            false => &[Way::Do, Way::Undo],
        }
    }

    pub fn submission(self, plan: Plan) -> Submission {
        Submission {
            partial_ok: self.partial_ok,
            ..submission_of(self.kind, plan)
        }
    }
}

/// What is swept.
pub fn swept(managers: Managers) -> impl Iterator<Item = Form> {
    OperationKind::ALL.into_iter().flat_map(move |kind| {
        let whole = Form {
            managers,
            ..Form::whole(kind)
        };
        let part = Form {
            partial_ok: true,
            ..whole
        };
        std::iter::once(whole).chain(kind.may_be_partial().then_some(part))
    })
}

/// The steps that an operation of this kind may consist of. A kind that is added compiles only once it is told
/// here of it, and in [`prepared`] how it comes about.
pub fn verbs(kind: OperationKind) -> &'static [Verb] {
    match kind {
        OperationKind::Compose | OperationKind::Attach | OperationKind::Keep => {
            &[Verb::Preflight, Verb::Bind, Verb::Verify, Verb::Ready]
        }
        OperationKind::Release | OperationKind::Detach | OperationKind::Late => {
            &[Verb::Drain, Verb::Unbind, Verb::Reset]
        }
        OperationKind::Apply
        | OperationKind::Move
        | OperationKind::Queue
        | OperationKind::Repair
        | OperationKind::Schedule
        | OperationKind::Undo => &Verb::ALL,
        OperationKind::Adopt => &[Verb::Bind, Verb::Verify],
        // It is never begun.
        OperationKind::Unreadable => &[],
    }
}

/// A rack on which an operation of this kind can begin, and its plan.
pub async fn prepared(form: Form) -> (Kit, Plan) {
    let mut kit = Kit::new();
    // Time for one call that hangs, and for another look.
    kit.options.verify_deadline = Duration::from_secs(60);
    if form.managers == Managers::Several {
        kit.share().await;
    }
    let plan = prepare(&kit, form).await;
    (kit, plan)
}

/// Brings about on an empty rack what stands before an operation of this kind.
pub async fn prepare(kit: &Kit, form: Form) -> Plan {
    let before = "before";
    match form.kind {
        OperationKind::Compose => wanted(kit, "compose", &[("red", 2)]).await,
        OperationKind::Attach => attach(kit, "attach", &["u1"]).await,
        OperationKind::Release => {
            kit.given(wanted(kit, before, &[("red", 2)]).await).await;
            release(kit, "release", "u1").await
        }
        OperationKind::Detach => {
            kit.given(attach(kit, before, &["u1", "u2"]).await).await;
            detach(kit, "detach").await
        }
        OperationKind::Move => {
            kit.given(attach(kit, before, &["u1", "u2"]).await).await;
            let seen = Seen::now(kit, &[]).await;
            // Two, where one may stay behind.
            let moved = &UNITS[..if form.partial_ok { 2 } else { 1 }];
            let gpus: Vec<GpuId> = moved.iter().map(|gpu| gpu.parse().unwrap()).collect();
            let host = HOSTS[1].parse().unwrap();
            seen.plan("move", |input| direct::move_to(&gpus, &host, input).unwrap())
        }
        // It reads back what others bound, and asks for nothing.
        OperationKind::Adopt => {
            for unit in UNITS {
                kit.rack.bind_by_others(unit, &port(HOSTS[0]));
            }
            adopt(kit, "adopt").await
        }
        // It is back by the time that it is to be bound again, so that every step has something to do.
        OperationKind::Repair => {
            kit.given(attach(kit, before, &["u1", "u2"]).await).await;
            let seen = Seen::now(kit, &[]).await;
            let lost = BTreeSet::from([UNITS[0].parse().unwrap()]);
            seen.make("repair", |input| direct::repair(&lost, input).unwrap())
        }
        // One goes, one stays, and one comes that can't do without what the first had.
        OperationKind::Apply => {
            kit.given(wanted(kit, before, &[("red", 1), ("blue", 1)]).await)
                .await;
            wanted(kit, "apply", &[("blue", 1), ("green", 1)]).await
        }
        // From the day's demands to the night's, through one GPU that has a tenant after the other.
        OperationKind::Schedule => {
            kit.given(wanted(kit, before, &[("day", 2)]).await).await;
            wanted(kit, "schedule", &[("night", 1)]).await
        }
        // A job gets what the one before it let go of.
        OperationKind::Queue => {
            kit.given(wanted(kit, before, &[("first", 2)]).await).await;
            wanted(kit, "queue", &[("next", 2)]).await
        }
        // It is attached for nobody yet, and lets go of nothing.
        OperationKind::Keep => attach(kit, "keep", &["u1", "u2"]).await,
        // It was adopted before.
        OperationKind::Late => {
            kit.given(attach(kit, before, &["u1"]).await).await;
            detach(kit, "late").await
        }
        OperationKind::Undo => {
            kit.given(wanted(kit, before, &[("red", 1), ("blue", 1)]).await)
                .await;
            let done = wanted(kit, "done", &[("blue", 1), ("green", 1)]).await;
            kit.given(done.clone()).await;
            let seen = Seen::now(kit, &[("red", 1), ("blue", 1)]).await;
            seen.plan("undo", |input| undo::undo(&done, input).unwrap())
        }
        OperationKind::Unreadable => panic!("it is what is shown of others, and is never begun"),
    }
}

/// Does something for each form of each registered kind, side by side; each with a clock of its own.
pub fn each_form<T: Send>(managers: Managers, work: impl AsyncFn(Form) -> T + Sync) -> Vec<(Form, T)> {
    let alone = |form| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        (form, runtime.block_on(work(form)))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = swept(managers)
            .map(|form| scope.spawn(move || alone(form)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Whatever became of an operation: the next one on the first of its units is done, be it a release or an attach.
pub async fn still_usable(kit: &Kit, plan: &Plan) {
    let unit = plan.steps[0].target.unit.as_str();
    let compositions = kit.compositions().await;
    let mut held = compositions.values().flat_map(|record| &record.composition.held);
    let is_foreign = kit.rack.is_of_others(unit) && held.all(|held| held.unit.as_str() != unit);
    let (kind, plan) = match kit.rack.ports_of(unit).is_empty() {
        _ if is_foreign => (OperationKind::Adopt, adopt(kit, "next").await),
        false => (OperationKind::Release, release(kit, "next", unit).await),
        true => (OperationKind::Attach, attach(kit, "next", &[unit]).await),
    };
    let done = run_as(kind, &kit.executor(), plan).await;
    assert_eq!(done.state, OperationState::Completed, "{:?}", done.error());
    kit.all_is_well().await;
}

/// The plan that gives these demands, and no others, so many GPUs each.
async fn wanted(kit: &Kit, id: &str, demands: &[(&str, u32)]) -> Plan {
    let seen = Seen::now(kit, demands).await;
    let plan = seen.plan(id, poolwright_planner::plan);
    assert!(plan.unplaced.is_empty() && plan.deferred.is_empty(), "{plan:#?}");
    plan
}

async fn attach(kit: &Kit, id: &str, gpus: &[&str]) -> Plan {
    let gpus: Vec<GpuId> = gpus.iter().map(|gpu| gpu.parse().unwrap()).collect();
    let host = HOSTS[0].parse().unwrap();
    let seen = Seen::now(kit, &[]).await;
    seen.plan(id, |input| direct::attach(&gpus, &host, input).unwrap())
}

/// Takes over all that others have bound.
async fn adopt(kit: &Kit, id: &str) -> Plan {
    let seen = Seen::now(kit, &[]).await;
    let endpoint = point("").endpoint;
    let plan = seen.make(id, |input| poolwright_planner::adopt(&endpoint, input).plan);
    assert!(!plan.steps.is_empty(), "{plan:#?}");
    plan
}

async fn detach(kit: &Kit, id: &str) -> Plan {
    let seen = Seen::now(kit, &[]).await;
    let gpu = [UNITS[0].parse().unwrap()];
    seen.plan(id, |input| direct::detach(&gpu, input).unwrap())
}

/// Lets go of the composition that holds this unit, with all others of its demand.
async fn release(kit: &Kit, id: &str, unit: &str) -> Plan {
    let seen = Seen::now(kit, &[]).await;
    let mut held = seen.held.iter();
    let holder = held.find(|c| c.held.iter().any(|held| held.unit.as_str() == unit));
    let holder = holder.unwrap().id.clone();
    seen.plan(id, |input| direct::release(&holder, input).unwrap())
}

/// What the planner is shown.
struct Seen {
    snapshot: Snapshot,
    held: Vec<Composition>,
    demands: Vec<Demand>,
}

impl Seen {
    async fn now(kit: &Kit, demands: &[(&str, u32)]) -> Self {
        let mut gpus = Vec::new();
        for unit in UNITS {
            let known = read::<GpuRecord>(&*kit.store, unit).await.unwrap();
            let mut gpu = gpu(unit, known.map(|known| known.value));
            let is_ours = !matches!(gpu.state, GpuState::Free | GpuState::Foreign);
            if let Some(port) = kit.rack.ports_of(unit).first().filter(|_| !is_ours) {
                let (host, _) = port.split_once('/').unwrap();
                gpu.state = GpuState::Foreign;
                gpu.host = Some(host.parse().unwrap());
                gpu.host_port = Some(port.parse().unwrap());
            }
            gpus.push(gpu);
        }
        let topology = Topology {
            gpus,
            hosts: HOSTS.map(host).into(),
            ..Topology::default()
        };
        let snapshot = Snapshot {
            taken_at: Timestamp::UNIX_EPOCH,
            topology,
            endpoints: vec![],
            faults: vec![],
            requests: 0,
            elapsed_ms: 0,
            contested: false,
        };
        let compositions = kit.compositions().await.into_values();
        Self {
            snapshot,
            held: compositions.map(|record| record.composition).collect(),
            demands: demands.iter().map(|(id, gpus)| demand(id, *gpus)).collect(),
        }
    }

    fn world(&self) -> World<'_> {
        World {
            snapshot: &self.snapshot,
            held: &self.held,
            reserved: &[],
            demands: &self.demands,
            cordoned: &NOTHING,
            promises: &NO_PROMISES,
            uplinks: &ANY_UPLINKS,
        }
    }

    fn make(&self, id: &str, make: impl FnOnce(&PlanInput<'_>) -> Plan) -> Plan {
        make(&PlanInput {
            id: id.parse().unwrap(),
            parent: None,
            now: Timestamp::UNIX_EPOCH,
            seed: 0,
            world: self.world(),
        })
    }

    /// A plan, with the planner's own second opinion.
    fn plan(&self, id: &str, make: impl FnOnce(&PlanInput<'_>) -> Plan) -> Plan {
        let plan = self.make(id, make);
        assert_eq!(check(&plan, &self.world()), vec![], "{plan:#?}");
        plan
    }
}

fn fabric() -> FabricId {
    "fabric-1".parse().unwrap()
}

fn gpu(unit: &str, known: Option<GpuRecord>) -> Gpu {
    let state = known.as_ref().map_or(GpuState::Free, |record| record.state);
    let (host, host_port) = known.map_or((None, None), |record| (record.host, record.host_port));
    Gpu {
        id: unit.parse().unwrap(),
        vendor: None,
        model: None,
        memory_bytes: Some(Bytes::from_gib(80.0)),
        uuid: None,
        serial: Some(format!("serial-{unit}")),
        pcie_serial: None,
        pci_ids: None,
        profile: Some("a100-pcie-80gb".to_owned()),
        chassis: None,
        slot: None,
        functions: vec![],
        partitions: vec![],
        ports: vec![FabricPort {
            fabric: fabric(),
            switch: None,
            port: None,
        }],
        unit: unit.parse().unwrap(),
        composability: Composability::YES,
        host,
        host_port,
        state,
        health: Health::Ok,
        firmware: None,
        locator: None,
        link: LinkWidth::default(),
        control: vec![point(unit)],
        seen_by: BTreeSet::new(),
    }
}

fn host(name: &str) -> Host {
    Host {
        id: name.parse().unwrap(),
        name: name.to_owned(),
        power_state: PowerState::On,
        power_restore_policy: None,
        ports: vec![HostPort {
            id: port(name).parse().unwrap(),
            fabric: fabric(),
            switch: None,
            port: None,
            uuid: None,
            slot: None,
            slots: 4,
            slots_known: true,
            free_window_bytes: None,
            free_buses: None,
            link: LinkWidth::default(),
            control: Some(point(&port(name))),
        }],
        uuid: None,
        serial: None,
        model: None,
        bmc: None,
        seen_by: BTreeSet::new(),
    }
}

/// A demand of the tenant of its name.
fn demand(id: &str, gpus: u32) -> Demand {
    Demand {
        id: id.parse().unwrap(),
        tenant: id.parse().unwrap(),
        priority: 0,
        need: Need {
            advice: Vec::new(),
            label: format!("{gpus} GPUs"),
            task: None,
            alternatives: vec![GpuSet {
                kind: None,
                count: gpus,
                min_memory_per_gpu: Bytes::from_gib(1.0),
                group: 1,
            }],
            spannable: false,
            elastic: false,
            explanation: vec![],
        },
        created: Timestamp::UNIX_EPOCH,
    }
}
