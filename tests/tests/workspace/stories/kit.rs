//! A manager and its emulated rack, and what a story asks of both.

use jiff::Timestamp;
use poolwright_emulator::clock::Clock as RackClock;
use poolwright_emulator::fault::{Fault, FaultKind};
use poolwright_emulator::rack::GpuIx;
use poolwright_emulator::{Emulation, Rack, in_process};
use poolwright_model::id::{DemandId, GpuId, HostId};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::Gpu;
use poolwright_service::clock::{Clock, FastClock};
use poolwright_service::demand::DemandSpec;
use poolwright_service::endpoint::{Connector, Standing};
use poolwright_service::{
    Change, Composer, How, Operation, OperationKind, OperationState, Options, Plan, Release, ServiceError,
    Snapshot,
};
use poolwright_store::{SqliteStore, Store};
use poolwright_tests::torture::line::{Line, spec_of};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Longer than anything here may take, in the rack's time.
pub const FOREVER: Duration = Duration::from_secs(24 * 3600);
pub const ME: &str = "tester";

/// What is bound to what: names of GPUs and host ports, as the rack calls them.
pub type Bindings = BTreeMap<String, String>;

pub struct Pool {
    pub emulation: Arc<Emulation>,
    pub store: Arc<dyn Store>,
    pub clock: Arc<FastClock>,
    /// What the manager takes for the time; as a rule it is right.
    pub managers_clock: Arc<dyn Clock>,
    pub options: Options,
    composer: Option<Composer>,
}

pub fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

impl Pool {
    /// A manager that knows all endpoints of a built-in rack.
    pub async fn of(rack: &str) -> Self {
        Self::with(Rack::builtin(rack).unwrap()).await
    }

    pub async fn with(rack: Rack) -> Self {
        let mut pool = Self::bare(rack, Arc::new(SqliteStore::in_memory().unwrap()));
        pool.open().await;
        pool.add_all_endpoints().await;
        pool
    }

    /// Nothing runs yet. It is noon.
    pub fn bare(rack: Rack, store: Arc<dyn Store>) -> Self {
        let noon = at("2026-03-02T12:00:00Z");
        let clock = RackClock::Real {
            start: noon,
            since: tokio::time::Instant::now(),
        };
        let managers_clock = Arc::new(FastClock::starting_at(noon, 1.0));
        Self {
            emulation: Emulation::new(rack, clock),
            store,
            clock: managers_clock.clone(),
            managers_clock,
            options: Options {
                poll: None,
                ..Options::default()
            },
            composer: None,
        }
    }

    /// The way to the rack, straight through.
    pub fn line(&self) -> Arc<dyn Connector> {
        Arc::new(Line {
            drivers: in_process(&self.emulation),
        })
    }

    pub async fn open(&mut self) {
        let line = self.line();
        let composer = Composer::open(
            self.store.clone(),
            line,
            self.managers_clock.clone(),
            self.options.clone(),
        );
        self.composer = Some(composer.await.unwrap());
    }

    /// Somebody else opened the manager.
    pub fn take_over(&mut self, composer: Composer) {
        self.composer = Some(composer);
    }

    /// The manager is gone from one moment to the next.
    pub async fn crash(&mut self) {
        let before = Arc::strong_count(&self.store);
        self.composer = None;
        // What it had begun is cut off; nothing of it goes on once nobody of it holds the store.
        for _ in 0..10_000 {
            if Arc::strong_count(&self.store) < before {
                break;
            }
            tokio::task::yield_now().await;
        }
    }

    pub async fn restart(&mut self) {
        self.crash().await;
        self.open().await;
    }

    pub fn composer(&self) -> &Composer {
        self.composer.as_ref().unwrap()
    }

    pub async fn add_all_endpoints(&self) {
        for endpoint in in_process(&self.emulation).endpoints {
            self.add_endpoint(endpoint.endpoint().as_str()).await;
        }
    }

    pub async fn add_endpoint(&self, name: &str) {
        self.add_endpoint_as(name, Standing::Adopted).await;
    }

    pub async fn add_endpoint_as(&self, name: &str, standing: Standing) {
        self.composer()
            .add_endpoint(spec_of(name), standing)
            .await
            .unwrap();
    }

    pub async fn compose(&self, demand: Value) -> Result<Change, ServiceError> {
        self.composer().compose(spec(demand), ME, &How::default()).await
    }

    pub async fn release(&self, demand: &str) -> Result<Change, ServiceError> {
        let what = Release::Demand(demand_id(demand));
        self.composer().release(what, ME, &How::default()).await
    }

    /// Composes, and waits until it is done.
    pub async fn composed(&self, demand: Value) -> Operation {
        let change = self.compose(demand).await.unwrap();
        self.done(&change).await
    }

    /// Applies a plan, and waits until it is done.
    pub async fn applied(&self, plan: Plan) -> Operation {
        let change = self
            .composer()
            .apply(plan, OperationKind::Apply, ME, &How::default())
            .await
            .unwrap();
        self.done(&change).await
    }

    pub async fn released(&self, demand: &str) -> Operation {
        let change = self.release(demand).await.unwrap();
        self.done(&change).await
    }

    /// Waits until the operation of a change has succeeded.
    pub async fn done(&self, change: &Change) -> Operation {
        let ended = self.ended(change).await;
        assert_eq!(ended.state, OperationState::Completed, "{:?}", ended.error());
        ended
    }

    pub async fn ended(&self, change: &Change) -> Operation {
        let id = &change.operation.as_ref().unwrap().id;
        self.composer().wait(id, FOREVER).await.unwrap()
    }

    /// Waits until something is so, looking again as time goes on.
    pub async fn until(&self, what: &str, is_so: impl AsyncFn() -> bool) {
        for _ in 0..20_000 {
            if is_so().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        panic!("it never came: {what}");
    }

    /// Waits until no operation goes on.
    pub async fn quiet(&self) {
        self.until("nothing goes on", async || {
            self.store.open_operations().await.unwrap().is_empty()
        })
        .await;
    }

    pub fn fault(&self, fault: Fault) {
        self.emulation.add_fault(fault).unwrap();
    }

    /// Refuses one bind or unbind, after `moves` successful ones.
    pub fn refuse_a_move_after(&self, moves: u32) {
        let refused = Fault::new(FaultKind::Status {
            code: 503,
            retry_after: None,
        });
        let refused = refused.on("PATCH", "/redfish/v1/Fabrics/*/Zones/*");
        self.fault(refused.after(moves).times(1));
    }

    /// An endpoint that gives no answers.
    pub fn silence(&self, endpoint: &str) {
        self.fault(Fault::new(FaultKind::TimeOutBefore).at(endpoint));
    }

    pub async fn snapshot(&self) -> Arc<Snapshot> {
        self.composer().snapshot().await.unwrap()
    }

    pub fn gpu_ix(&self, name: &str) -> GpuIx {
        self.emulation.rack().gpu_named(name).unwrap()
    }

    /// A GPU as the manager shows it, by the rack's name for it.
    pub async fn gpu(&self, name: &str) -> Gpu {
        let serial = &self.emulation.rack()[self.gpu_ix(name)].serial;
        let snapshot = self.snapshot().await;
        let gpus = &snapshot.topology.gpus;
        let found = gpus.iter().find(|gpu| gpu.serial.as_ref() == Some(serial));
        found.unwrap_or_else(|| panic!("{name} is not seen")).clone()
    }

    pub async fn gpu_ids(&self, names: &[&str]) -> Vec<GpuId> {
        let mut ids = Vec::new();
        for name in names {
            ids.push(self.gpu(name).await.id);
        }
        ids
    }

    pub async fn host_id(&self, name: &str) -> HostId {
        let hosts = &self.snapshot().await.topology.hosts;
        hosts.iter().find(|host| host.name == name).unwrap().id.clone()
    }

    /// Somebody else binds a GPU.
    pub fn bind_by_others(&self, gpu: &str, port: &str) {
        let (gpu, port) = (self.gpu_ix(gpu), self.emulation.rack().port_named(port).unwrap());
        self.emulation
            .with(|state, now| state.bind_by_others(gpu, port, now))
            .unwrap();
    }

    pub fn unbind_by_others(&self, gpu: &str) {
        let gpu = self.gpu_ix(gpu);
        self.emulation.with(|state, now| state.unbind_by_others(gpu, now));
    }

    /// What is bound, as the rack knows it.
    pub fn truth(&self) -> Bindings {
        let rack = self.emulation.rack();
        self.emulation.with(|state, _| {
            state.check().unwrap();
            let bound = state.bindings();
            bound
                .map(|(gpu, binding)| (rack.gpu_name(gpu), rack.port_name(binding.port)))
                .collect()
        })
    }

    /// What is bound, as the manager's last look shows it with what it knows.
    pub async fn shown(&self) -> Bindings {
        let names = Names::of(self, &*self.snapshot().await);
        names.shown
    }

    /// What is bound, as the compositions have it.
    pub async fn recorded(&self) -> Bindings {
        let names = Names::of(self, &*self.snapshot().await);
        let mut recorded = Bindings::new();
        for composition in self.composer().compositions().await.unwrap() {
            for held in &composition.held {
                for gpu in &held.gpus {
                    let gpu = names.gpus.get(gpu.as_str()).cloned();
                    let gpu = gpu.unwrap_or_else(|| format!("unseen {}", held.unit));
                    let port = names.ports[held.host_port.as_str()].clone();
                    let twice = recorded.insert(gpu, port);
                    assert!(twice.is_none(), "{} is in two compositions", held.unit);
                }
            }
        }
        recorded
    }

    /// Demands that hold something, with how many GPUs.
    pub async fn holders(&self) -> BTreeMap<String, u32> {
        let mut holders = BTreeMap::new();
        for composition in self.composer().compositions().await.unwrap() {
            let holder = composition
                .demand
                .as_ref()
                .map_or("nobody", |demand| demand.as_str());
            *holders.entry(holder.to_owned()).or_default() += composition.gpu_count();
        }
        holders
    }

    /// Names of the demands that are kept.
    pub async fn demands(&self) -> Vec<String> {
        let demands = self.composer().demands().await.unwrap();
        demands.iter().map(|record| record.spec.id.to_string()).collect()
    }

    /// Why a demand stands as it does.
    pub async fn because(&self, demand: &str) -> String {
        self.composer()
            .why(&demand_id(demand))
            .await
            .unwrap()
            .because
            .join("\n")
    }

    /// What must hold whenever nothing goes on: the rack, what the manager shows, and its compositions say the
    /// same; nothing is held by nobody, nothing by two.
    pub async fn all_is_well(&self) {
        assert!(
            self.store.open_operations().await.unwrap().is_empty(),
            "an operation is open"
        );
        let truth = self.truth();
        assert_eq!(self.shown().await, truth, "shown (left) and truth (right) differ");
        let snapshot = self.snapshot().await;
        let names = Names::of(self, &snapshot);
        let recorded = self.recorded().await;
        let foreign = snapshot.topology.gpus.iter();
        let foreign: BTreeSet<&String> = foreign
            .filter(|gpu| gpu.state == GpuState::Foreign)
            .filter_map(|gpu| names.gpus.get(gpu.id.as_str()))
            .collect();
        let ours: Bindings = truth
            .into_iter()
            .filter(|(gpu, _)| !foreign.contains(gpu))
            .collect();
        assert_eq!(ours, recorded, "bound (left) and recorded (right) differ");
        for gpu in &snapshot.topology.gpus {
            let settled = matches!(
                gpu.state,
                GpuState::Free | GpuState::Dirty | GpuState::Bound | GpuState::Attached | GpuState::Foreign
            ) || gpu.state == GpuState::Missing;
            assert!(settled, "{} is {} while nothing goes on", gpu.id, gpu.state);
        }
    }

    /// All GPUs of the boxes are free and clean.
    pub async fn all_is_free(&self) {
        self.all_is_well().await;
        let snapshot = self.snapshot().await;
        let gpus = snapshot.topology.gpus.iter();
        for gpu in gpus.filter(|gpu| gpu.composability.is_composable()) {
            assert_eq!(gpu.state, GpuState::Free, "{}", gpu.id);
        }
    }
}

/// From the manager's ids to the rack's names.
struct Names {
    gpus: BTreeMap<String, String>,
    ports: BTreeMap<String, String>,
    shown: Bindings,
}

impl Names {
    fn of(pool: &Pool, snapshot: &Snapshot) -> Self {
        let rack = pool.emulation.rack();
        let serials: BTreeMap<&str, GpuIx> = (0..rack.gpus.len())
            .map(|at| (rack.gpus[at].serial.as_str(), GpuIx(at)))
            .collect();
        let mut names = Self {
            gpus: BTreeMap::new(),
            ports: BTreeMap::new(),
            shown: Bindings::new(),
        };
        for port in snapshot.topology.hosts.iter().flat_map(|host| &host.ports) {
            let uuid = port.uuid.as_deref().unwrap();
            let of_rack = rack.host_ixs().flat_map(|host| rack.ports_of_host(host));
            let found = of_rack.into_iter().find(|at| rack[*at].uuid.to_string() == uuid);
            names
                .ports
                .insert(port.id.to_string(), rack.port_name(found.unwrap()));
        }
        for gpu in &snapshot.topology.gpus {
            let name = rack.gpu_name(serials[gpu.serial.as_deref().unwrap()]);
            if let Some(port) = &gpu.host_port {
                names
                    .shown
                    .insert(name.clone(), names.ports[port.as_str()].clone());
            }
            names.gpus.insert(gpu.id.to_string(), name);
        }
        names
    }
}

pub fn spec(demand: Value) -> DemandSpec {
    serde_json::from_value(demand).unwrap()
}

/// So many GPUs of a kind.
pub fn gpus(id: &str, kind: &str, count: u32) -> Value {
    json!({"id": id, "kind": kind, "gpus": count})
}

pub fn demand_id(id: &str) -> DemandId {
    DemandId::new(id).unwrap()
}
