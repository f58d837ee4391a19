//! One or several managers on one store and one rack, that can be killed at any await.

use super::Ground;
use crate::torture::clock::JumpingClock;
use crate::torture::gate::{Gate, GatedStore, gated, unpoisoned};
use crate::torture::incidents;
use crate::torture::line::{Line, spec_of};
use crate::torture::witness::Witness;
use fastrand::Rng;
use jiff::Timestamp;
use poolwright_emulator::clock::Clock as RackClock;
use poolwright_emulator::{Emulation, Rack, in_process};
use poolwright_executor::{self as executor, Noted, Operation, StepRecord};
use poolwright_service::endpoint::Standing;
use poolwright_service::leases::{Sharing, TokioClock};
use poolwright_service::{Composer, Options, ServiceError};
use poolwright_store::{PostgresOptions, PostgresStore, SqliteStore, Store, read_all};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

/// How long things take with managers.
struct Times {
    term: Duration,
    /// All requests of a manager are over so long after they were sent.
    write: Duration,
    /// The longest that one that dies is away, where it is the only one, and where there are others.
    absence: (Duration, Duration),
    /// And that it is left in peace afterwards.
    peace: Duration,
    execute: executor::Options,
}

impl Times {
    fn on(ground: &Ground) -> Self {
        let seconds = Duration::from_secs;
        match ground {
            Ground::Memory => Self {
                term: seconds(9),
                write: seconds(80),
                absence: (seconds(5), seconds(150)),
                peace: seconds(30),
                execute: executor::Options::default(),
            },
            Ground::Postgres(_) => Self {
                term: seconds(3),
                write: seconds(5),
                absence: (seconds(1), seconds(15)),
                peace: seconds(5),
                execute: executor::Options {
                    act_deadline: seconds(4),
                    host_deadline: seconds(4),
                    late: seconds(4),
                    ..executor::Options::default()
                },
            },
        }
    }
}

/// Where managers find their store.
enum Stores {
    Memory(Arc<dyn Store>),
    /// Each with connections of its own, and a folder.
    Postgres {
        url: String,
        folders: TempDir,
    },
}

impl Stores {
    fn on(ground: &Ground) -> Self {
        match ground {
            Ground::Memory => match SqliteStore::in_memory() {
                Ok(store) => Self::Memory(Arc::new(store)),
                Err(error) => panic!("a store in memory: {error}"),
            },
            Ground::Postgres(url) => match tempfile::tempdir() {
                Ok(folders) => Self::Postgres {
                    url: url.clone(),
                    folders,
                },
                Err(error) => panic!("a folder: {error}"),
            },
        }
    }

    /// For whoever is called so.
    async fn of(&self, name: &str) -> Arc<dyn Store> {
        match self {
            Self::Memory(store) => store.clone(),
            Self::Postgres { url, folders } => {
                let options = PostgresOptions {
                    url: url.clone(),
                    password: None,
                    ca: None,
                };
                match PostgresStore::open(&folders.path().join(name), options).await {
                    Ok(store) => Arc::new(store),
                    Err(error) => panic!("a store in PostgreSQL: {error}"),
                }
            }
        }
    }
}

/// Nobody waits longer for one answer.
const PATIENCE: Duration = Duration::from_secs(300);
/// Calls after which a manager that is to die has died, if it is asked at all.
const CALLS: u32 = 100;

/// A manager that runs.
pub struct Manager {
    pub composer: Composer,
    gate: Arc<Gate>,
}

impl Manager {
    /// An answer of it; `None` where it died first, or took longer than anybody waits.
    pub async fn answers<T>(
        &self,
        question: impl Future<Output = Result<T, ServiceError>>,
    ) -> Option<Result<T, ServiceError>> {
        tokio::select! {
            biased;
            () = self.gate.died() => None,
            answer = tokio::time::timeout(PATIENCE, question) => answer.ok(),
        }
    }
}

/// All managers, each in its place while it lives.
pub struct Managers {
    emulation: Arc<Emulation>,
    stores: Stores,
    /// For whoever looks on.
    store: Arc<dyn Store>,
    times: Times,
    witness: Arc<Witness>,
    clock: Arc<JumpingClock>,
    places: Mutex<Vec<Option<Arc<Manager>>>>,
    /// The instances that each place had.
    instances: Mutex<BTreeMap<usize, BTreeSet<String>>>,
    seed: AtomicU64,
}

impl Managers {
    pub async fn start(seed: u64, count: usize, ground: &Ground) -> Self {
        let rack = Rack::builtin("demo").unwrap_or_else(|error| panic!("the built-in rack: {error}"));
        let clock = RackClock::Real {
            start: Timestamp::UNIX_EPOCH,
            since: tokio::time::Instant::now(),
        };
        let stores = Stores::on(ground);
        let store = stores.of("who looks on").await;
        let emulation = Emulation::new(rack, clock);
        let managers = Self {
            witness: Witness::new(store.clone(), emulation.clone()),
            emulation,
            store,
            stores,
            times: Times::on(ground),
            clock: Arc::default(),
            places: Mutex::new((0..count).map(|_| None).collect()),
            instances: Mutex::default(),
            seed: AtomicU64::new(seed),
        };
        managers.add_endpoints().await;
        for place in 0..count {
            managers.fill(place).await;
        }
        managers
    }

    /// Any that lives.
    pub fn any(&self, rng: &mut Rng) -> Option<Arc<Manager>> {
        let living: Vec<_> = unpoisoned(&self.places).iter().flatten().cloned().collect();
        (!living.is_empty()).then(|| living[rng.usize(0..living.len())].clone())
    }

    /// One is killed at one of its next calls. The only one starts again after a moment; of several, another one
    /// joins after some time, in which the others adopt what it was at.
    pub async fn one_dies(&self, rng: &mut Rng) {
        let (place, dying) = {
            let places = unpoisoned(&self.places);
            let place = rng.usize(0..places.len());
            (place, places[place].clone())
        };
        let Some(dying) = dying else { return };
        dying.gate.dies_in(Some(rng.u32(0..CALLS)));
        // An idle one does not come there by itself.
        let _ = tokio::time::timeout(Duration::from_secs(20), dying.gate.died()).await;
        dying.gate.die();
        let alone = {
            let mut places = unpoisoned(&self.places);
            places[place] = None;
            places.len() == 1
        };
        drop(dying);
        let (short, long) = self.times.absence;
        let longest = if alone { short } else { long };
        let absence = rng.u64(0..longest.as_millis() as u64);
        tokio::time::sleep(Duration::from_millis(absence)).await;
        self.fill(place).await;
        tokio::time::sleep(Duration::from_secs(rng.u64(1..self.times.peace.as_secs()))).await;
    }

    /// Some of the next requests to the rack come too late, come true without an answer, or fail otherwise; or the
    /// management service of a box restarts.
    pub fn rack_goes_wrong(&self, rng: &mut Rng) {
        let rack = self.emulation.rack();
        let boxes: Vec<_> = rack.box_ixs().map(|at| rack[at].name.clone()).collect();
        let faults = [
            incidents::some_fault(rng),
            match rng.u32(0..3) {
                0 => incidents::restart_of(&boxes[rng.usize(0..boxes.len())], rng.u32(5..40)),
                _ => incidents::some_fault(rng),
            },
        ];
        for fault in faults {
            if let Err(error) = self.emulation.add_fault(fault) {
                panic!("a fault that the rack does not know: {error}");
            }
        }
    }

    /// Nothing goes wrong any more, and tasks that hung are over.
    pub fn rack_is_mended(&self) {
        self.emulation.clear_faults();
        for of_box in self.emulation.rack().box_ixs() {
            self.emulation
                .with(|state, now| state.restart_manager(of_box, now));
        }
    }

    /// How many requests to the metal were made again, or are not known to have had an effect: what the rack's faults
    /// came to.
    pub async fn disturbed(&self) -> usize {
        let operations = read_all::<Operation>(&*self.store).await.unwrap_or_default();
        let steps = operations.iter().flat_map(|operation| &operation.value.steps);
        let is_disturbed = |step: &&StepRecord| step.attempts > 1 || step.error.is_some() || step.unsure;
        steps.filter(is_disturbed).count()
    }

    /// How many operations a manager carried on that another had begun.
    pub async fn adopted(&self) -> usize {
        let operations = read_all::<Operation>(&*self.store).await.unwrap_or_default();
        let mut adopted = 0;
        for operation in operations {
            let lines = self
                .store
                .journal(&operation.value.id, 0)
                .await
                .unwrap_or_default();
            let lines = lines
                .iter()
                .map(|line| serde_json::from_str::<Noted>(line.json.get()));
            adopted += usize::from(lines.flatten().any(|noted| noted.line == executor::Line::Adopted));
        }
        adopted
    }

    /// What has not ended, each with how far it is and what it waits for.
    pub async fn open(&self) -> Vec<String> {
        let operations = read_all::<Operation>(&*self.store).await.unwrap_or_default();
        let operations = operations.into_iter().map(|found| found.value);
        let open = operations.filter(|operation| !operation.state.has_ended());
        open.map(|operation| format!("{} is {}: {:?}", operation.id, operation.state, operation.waits()))
            .collect()
    }

    async fn fill(&self, place: usize) {
        let manager = self.manager(place).await;
        unpoisoned(&self.places)[place] = Some(Arc::new(manager));
    }

    async fn manager(&self, place: usize) -> Manager {
        let seed = self.seed.fetch_add(1, Ordering::Relaxed);
        let gate = Gate::new(seed, None);
        let store = GatedStore {
            gate: gate.clone(),
            disk: Arc::default(),
            store: self.stores.of(&format!("manager-{seed}")).await,
        };
        let line = Line {
            drivers: gated(in_process(&self.emulation), &gate, &self.witness),
        };
        let several = unpoisoned(&self.places).len() > 1;
        let id = format!("manager-{seed}");
        let earlier = {
            let mut instances = unpoisoned(&self.instances);
            let of_place = instances.entry(place).or_default();
            let earlier = of_place.clone();
            of_place.insert(id.clone());
            earlier
        };
        let sharing = several.then(|| Sharing {
            id,
            home: format!("home-{place}"),
            earlier,
            name: format!("manager {place}"),
            term: self.times.term,
            write_deadline: self.times.write,
            clock: Arc::new(TokioClock::default()),
        });
        let composer = self.composer(Arc::new(store), line, seed, sharing).await;
        Manager { composer, gate }
    }

    /// All endpoints of the rack are kept in the store, before anybody shares it.
    async fn add_endpoints(&self) {
        let line = Line {
            drivers: in_process(&self.emulation),
        };
        let seed = self.seed.fetch_add(1, Ordering::Relaxed);
        let composer = self.composer(self.store.clone(), line, seed, None).await;
        for endpoint in in_process(&self.emulation).endpoints {
            if let Err(error) = composer
                .add_endpoint(spec_of(endpoint.endpoint().as_str()), Standing::Adopted)
                .await
            {
                panic!("an endpoint can't be added: {error}");
            }
        }
        composer.close().await;
    }

    async fn composer(
        &self,
        store: Arc<dyn Store>,
        line: Line,
        seed: u64,
        sharing: Option<Sharing>,
    ) -> Composer {
        let options = Options {
            poll: None,
            seed: Some(seed),
            sharing,
            execute: self.times.execute.clone(),
            ..Options::default()
        };
        let opened = Composer::open(store, Arc::new(line), self.clock.clone(), options).await;
        opened.unwrap_or_else(|error| panic!("a manager does not start: {error}"))
    }
}
