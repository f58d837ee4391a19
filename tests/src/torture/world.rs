//! The rack, the store, and a manager that can be killed.

use super::clients::Told;
use super::clock::JumpingClock;
use super::gate::{Disk, Gate, GatedStore, gated};
use super::invariants::Invariant;
use super::line::{Line, spec_of};
use super::plants::{self, Plant};
use super::trace::Trace;
use super::witness::Witness;
use fastrand::Rng;
use jiff::Timestamp;
use poolwright_emulator::clock::Clock as RackClock;
use poolwright_emulator::rack::{GpuIx, PortIx};
use poolwright_emulator::{Emulation, Rack, in_process};
use poolwright_executor::Operation;
use poolwright_model::id::{DemandId, GpuId, HostId, OperationId, ScheduleId, UnitId};
use poolwright_service::demand::DemandSpec;
use poolwright_service::endpoint::Standing;
use poolwright_service::{Composer, Options, ServiceError, Snapshot, runner};
use poolwright_store::{SqliteStore, Store, read};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

/// Nobody waits longer for an answer.
const PATIENCE: Duration = Duration::from_secs(3600);
/// The manager's own looks at everything.
const POLL: Duration = Duration::from_secs(120);

/// One episode's world. What clients and the rack know outlives the manager.
pub struct World {
    pub rng: Rng,
    pub emulation: Arc<Emulation>,
    /// The store as it is, past all faults: to look at.
    pub store: Arc<SqliteStore>,
    /// Compositions were damaged: their GPUs are adopted again.
    pub is_damaged: bool,
    pub disk: Arc<Disk>,
    pub clock: Arc<JumpingClock>,
    pub witness: Arc<Witness>,
    /// The store with its bug, if it has one.
    planted: Arc<dyn Store>,
    plant: Option<Plant>,
    running: Option<Running>,
    pub clients: JoinSet<Told>,
    /// Operations that a client was told of: none may be forgotten.
    pub acknowledged: BTreeSet<OperationId>,
    /// What a key stood for.
    pub keys: BTreeMap<String, OperationId>,
    /// Demands that clients asked for, with the operation that composes each.
    pub demands: BTreeMap<DemandId, Option<OperationId>>,
    /// Demands that somebody asked to be let go of, in whichever way.
    pub let_go: BTreeSet<DemandId>,
    pub schedules: BTreeSet<ScheduleId>,
    /// Jobs of the queue that may be there.
    pub jobs: BTreeSet<DemandId>,
    pub next_name: u32,
    /// What others bound: nobody but they may unbind it.
    pub foreign: BTreeMap<GpuIx, PortIx>,
    /// What others had bound where an endpoint was adopted since: whether it was taken over is for the manager to say.
    pub perhaps_adopted: BTreeMap<GpuIx, PortIx>,
    pub vanished: BTreeSet<GpuIx>,
    /// What was pulled from under somebody: recorded, perhaps, and not bound.
    pub pulled: BTreeSet<GpuIx>,
    /// What others have had, and did not reset.
    pub meddled: BTreeSet<GpuIx>,
    /// GPUs that others pulled while a job ran on them.
    pub pulled_by_others: u64,
    /// Requests that carried a key, to be sent again some time, and whether a part was enough.
    pub sent: Vec<(String, DemandSpec, bool)>,
    /// The manager's names for the GPUs of the rack.
    pub names: BTreeMap<GpuId, GpuIx>,
    pub units: BTreeMap<GpuIx, UnitId>,
    pub crashes: u64,
    pub faults: u64,
    pub checked: BTreeMap<Invariant, u64>,
    pub violations: Vec<(Invariant, String)>,
    pub trace: Trace,
    pub events: u64,
}

/// A manager that runs.
struct Running {
    manager: Composer,
    gate: Arc<Gate>,
    runner: JoinHandle<()>,
}

impl World {
    pub async fn new(seed: u64, rack: &str, plant: Option<Plant>, loud: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut rack =
            Rack::builtin(rack).unwrap_or_else(|error| panic!("the built-in rack {rack}: {error}"));
        // Seldom so slow that nobody waits for it.
        let slow = match rng.u32(0..20) {
            0 => 65_000,
            1..4 => 5_000,
            4..10 => 300,
            _ => 20,
        };
        rack.latency.bind = Duration::from_millis(slow);
        rack.latency.unbind = Duration::from_millis(slow / 2);
        rack.latency.reset = Duration::from_millis(slow);
        let clock = RackClock::Real {
            start: Timestamp::UNIX_EPOCH,
            since: tokio::time::Instant::now(),
        };
        let foreign: BTreeMap<_, _> = rack.prebound.iter().copied().collect();
        let store = match SqliteStore::in_memory() {
            Ok(store) => Arc::new(store),
            Err(error) => panic!("a store in memory: {error}"),
        };
        let emulation = Emulation::new(rack, clock);
        let mut world = Self {
            rng,
            witness: Witness::new(store.clone(), emulation.clone()),
            emulation,
            planted: plants::store(plant, store.clone()),
            store,
            is_damaged: false,
            disk: Arc::default(),
            clock: Arc::default(),
            plant,
            running: None,
            clients: JoinSet::new(),
            acknowledged: BTreeSet::new(),
            keys: BTreeMap::new(),
            demands: BTreeMap::new(),
            let_go: BTreeSet::new(),
            schedules: BTreeSet::new(),
            jobs: BTreeSet::new(),
            next_name: 0,
            meddled: foreign.keys().copied().collect(),
            foreign,
            perhaps_adopted: BTreeMap::new(),
            vanished: BTreeSet::new(),
            pulled: BTreeSet::new(),
            pulled_by_others: 0,
            sent: Vec::new(),
            names: BTreeMap::new(),
            units: BTreeMap::new(),
            crashes: 0,
            faults: 0,
            checked: BTreeMap::new(),
            violations: Vec::new(),
            trace: Trace::new(loud),
            events: 0,
        };
        world.trace.add(&format_args!("seed {seed}"));
        world.start(None).await;
        for endpoint in in_process(&world.emulation).endpoints {
            let spec = spec_of(endpoint.endpoint().as_str());
            let added =
                world.ask(move |manager| async move { manager.add_endpoint(spec, Standing::Adopted).await });
            if let Some(Err(error)) = added.await {
                panic!("an endpoint can't be added: {error}");
            }
        }
        world.learn_names().await;
        world
    }

    /// The manager, unless it is down.
    pub fn manager(&self) -> Option<&Composer> {
        self.running.as_ref().map(|running| &running.manager)
    }

    pub fn gate(&self) -> Option<&Gate> {
        self.running.as_ref().map(|running| &*running.gate)
    }

    /// Starts the manager; it dies when it has come to the gate so many times.
    pub async fn start(&mut self, dies_in: Option<u32>) {
        let gate = Gate::new(self.rng.u64(..), dies_in);
        let drivers = plants::drivers(self.plant, in_process(&self.emulation));
        let line = Line {
            drivers: gated(drivers, &gate, &self.witness),
        };
        let store = GatedStore {
            gate: gate.clone(),
            disk: self.disk.clone(),
            store: self.planted.clone(),
        };
        let options = Options {
            poll: Some(POLL),
            seed: Some(self.rng.u64(..)),
            ..Options::default()
        };
        let opening = Composer::open(Arc::new(store), Arc::new(line), self.clock.clone(), options);
        let opened = tokio::select! {
            biased;
            () = gate.died() => None,
            opened = tokio::time::timeout(PATIENCE, opening) => opened.ok(),
        };
        match opened {
            Some(Ok(manager)) => {
                let runner = tokio::spawn(runner::run(manager.clone(), CancellationToken::new()));
                self.running = Some(Running {
                    manager,
                    gate,
                    runner,
                });
                self.trace.add(&"the manager has started");
            }
            Some(Err(error)) => {
                gate.die();
                self.trace
                    .add(&format_args!("the manager does not start: {error}"));
            }
            None => {
                gate.die();
                self.crashes += 1;
                self.trace.add(&"the manager died while it started");
            }
        }
    }

    /// The manager is gone from one moment to the next, and with it every answer that it owes.
    pub async fn kill(&mut self) {
        let Some(running) = self.running.take() else {
            return;
        };
        running.gate.die();
        running.runner.abort();
        self.clients.abort_all();
        while let Some(told) = self.clients.join_next().await {
            // Some got their answers just before.
            if let Ok(told) = told {
                super::clients::hear(self, told);
            }
        }
        drop(running);
        self.crashes += 1;
        self.trace.add(&"the manager is dead");
        // What is left of its tasks ends.
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
    }

    /// Asks the manager, for as long as it lives and anybody waits.
    pub async fn ask<T, F>(&self, question: impl FnOnce(Composer) -> F) -> Option<Result<T, ServiceError>>
    where
        F: Future<Output = Result<T, ServiceError>>,
    {
        let running = self.running.as_ref()?;
        let answer = question(running.manager.clone());
        tokio::select! {
            biased;
            () = running.gate.died() => None,
            answer = tokio::time::timeout(PATIENCE, answer) => answer.ok(),
        }
    }

    pub fn checks(&mut self, invariant: Invariant, wrong: Option<String>) {
        self.checks_often(invariant, 1, wrong);
    }

    pub fn checks_often(&mut self, invariant: Invariant, times: u64, wrong: Option<String>) {
        *self.checked.entry(invariant).or_default() += times;
        if let Some(wrong) = wrong {
            self.trace.add(&format_args!("VIOLATED {invariant}: {wrong}"));
            self.violations.push((invariant, wrong));
        }
    }

    pub async fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.ask(|manager| async move { manager.snapshot().await })
            .await?
            .ok()
    }

    /// Learns what the manager calls the GPUs; the names stay.
    pub async fn learn_names(&mut self) {
        let Some(snapshot) = self.snapshot().await else {
            return;
        };
        let rack = self.emulation.rack();
        for gpu in &snapshot.topology.gpus {
            let at = rack
                .gpus
                .iter()
                .position(|own| gpu.serial.as_ref() == Some(&own.serial));
            if let Some(at) = at.map(GpuIx) {
                self.names.insert(gpu.id.clone(), at);
                self.units.insert(at, gpu.unit.clone());
            }
        }
    }

    /// GPUs that can be moved at all.
    pub fn pooled(&self) -> Vec<GpuIx> {
        let rack = self.emulation.rack();
        let all = (0..rack.gpus.len()).map(GpuIx);
        all.filter(|gpu| rack.box_of(*gpu).is_some()).collect()
    }

    pub fn some_gpu(&mut self) -> GpuIx {
        let pooled = self.pooled();
        pooled[self.rng.usize(0..pooled.len())]
    }

    pub fn tell(&mut self, line: String) {
        self.trace.add(&line);
    }

    /// A host in the words of the manager.
    pub async fn some_host(&mut self) -> Option<HostId> {
        let snapshot = self.snapshot().await?;
        let hosts = &snapshot.topology.hosts;
        if hosts.is_empty() {
            return None;
        }
        Some(hosts[self.rng.usize(0..hosts.len())].id.clone())
    }

    /// A GPU in the words of the rack and of the manager.
    pub fn name(&self, gpu: GpuIx) -> String {
        let unit = self.units.get(&gpu).map_or("?", UnitId::as_str);
        format!("{} ({unit})", self.emulation.rack().gpu_name(gpu))
    }

    /// An operation as the store has it.
    pub async fn stored(&self, id: &OperationId) -> Option<Operation> {
        let found = read::<Operation>(&*self.store, id.as_str()).await.ok()?;
        found.map(|found| found.value)
    }

    /// How the operations that clients were told of ended.
    pub async fn ended(&self) -> BTreeMap<String, u64> {
        let mut ended = BTreeMap::new();
        for id in &self.acknowledged {
            let state = self
                .stored(id)
                .await
                .map(|operation| match operation.is_partial() {
                    true => "completed in part".to_owned(),
                    false => operation.state.to_string(),
                });
            *ended
                .entry(state.unwrap_or_else(|| "forgotten".to_owned()))
                .or_default() += 1;
        }
        ended
    }
}
