//! Fault 8 at its worst, over real HTTPS: a manager is stopped exactly between its last look at its lease and the request,
//! another one takes over and goes on, and ten terms later the first sends what it had begun. Where the endpoint has
//! sessions it is refused; where it has none it comes true, is seen, and is undone.
//!
//! Terms pass by a clock of the test, so a busy machine costs no manager its lease.

use async_trait::async_trait;
use poolwright_driver::DriverError;
use poolwright_emulator::{Rack, Running, ServeOptions, serve};
use poolwright_executor::OperationKind;
use poolwright_model::id::{ControlEndpointId, DemandId};
use poolwright_redfish::client::{Auth, Endpoint, Secret, Tls};
use poolwright_redfish::southbound::RedfishDriver;
use poolwright_service::clock::WallClock;
use poolwright_service::endpoint::{Connected, Connector, EndpointSpec, Standing};
use poolwright_service::leases::{BootClock, ManagerRecord, Sharing};
use poolwright_service::runner::run;
use poolwright_service::{Change, Composer, How, Operation, OperationState, Options, Release};
use poolwright_store::{SqliteStore, Store, read};
use poolwright_tests::stopped::{Gate, StoppableLine, StoppableStore};
use poolwright_tests::torture::line::spec_of;
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const TERM: Duration = Duration::from_millis(1_500);
/// The second waits for so long for what the first may have sent, at the endpoint and for each step. The first sends
/// nothing meanwhile, so this may be short.
const HOLD: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(60);
const ME: &str = "tester";

/// One GPU and one host: what is bound late is the same binding.
fn rack(sessions: bool) -> Rack {
    let most = if sessions { 16 } else { 0 };
    let text = format!(
        r#"
        name = "one"
        style = "zones"
        options.max_sessions = {most}
        latency.reset = "100ms"
        [[box]]
        gpus = [{{ kind = "h100-pcie-80gb", count = 1 }}]
        [[host]]
        slots = 2
        "#
    );
    Rack::from_toml("one.toml", &text).unwrap()
}

/// The way to the rack over HTTPS, with a session of its own where there are sessions.
struct Https(Arc<Running>);

#[async_trait]
impl Connector for Https {
    async fn connect(&self, spec: &EndpointSpec) -> Result<Connected, DriverError> {
        let mut endpoints = self.0.endpoints().iter();
        let at = endpoints
            .find(|at| ControlEndpointId::from_lossy(&at.name) == spec.id)
            .unwrap();
        let endpoint = Endpoint::new(&at.url)
            .unwrap()
            .auth(Auth::session(self.0.username(), Secret::new(self.0.password())))
            .tls(Tls::Ca(self.0.ca_pem().as_bytes().to_vec()));
        let driver = Arc::new(RedfishDriver::connect(spec.id.clone(), endpoint).await?);
        Ok(Connected {
            fabric: driver.clone(),
            host_side: driver,
        })
    }
}

/// The clock of leases: it stands still until the test sets it forward.
#[derive(Default)]
struct SetClock(Mutex<Duration>);

impl SetClock {
    fn forward(&self, by: Duration) {
        *self.0.lock().unwrap() += by;
    }
}

impl BootClock for SetClock {
    fn now(&self) -> Duration {
        *self.0.lock().unwrap()
    }
}

struct Manager {
    /// In the store.
    id: String,
    composer: Composer,
    gate: Gate,
    stop: CancellationToken,
}

struct Scene {
    rack: Arc<Running>,
    store: Arc<dyn Store>,
    clock: Arc<SetClock>,
    first: Manager,
    second: Manager,
}

/// `deadline`: the longest that one of its requests may take.
async fn manager(
    (store, rack, clock): (&Arc<dyn Store>, &Arc<Running>, &Arc<SetClock>),
    name: &str,
    deadline: Duration,
) -> Manager {
    let gate = Gate::open();
    let mut options = Options {
        poll: Some(Duration::from_millis(300)),
        ..Options::default()
    };
    let execute = &mut options.execute;
    (execute.act_deadline, execute.host_deadline) = (deadline, PATIENCE);
    (execute.late, execute.settle) = (Duration::from_secs(1), Duration::from_millis(300));
    execute.first_pause = Duration::from_millis(100);
    let sharing = Sharing {
        term: TERM,
        clock: clock.clone(),
        ..Sharing::new(format!("home-of-{name}"), name.to_owned(), HOLD)
    };
    let id = sharing.id.clone();
    options.sharing = Some(sharing);
    let line = StoppableLine(Arc::new(Https(rack.clone())), gate.clone());
    let store = StoppableStore(store.clone(), gate.clone());
    let composer = Composer::open(Arc::new(store), Arc::new(line), Arc::new(WallClock), options);
    let (composer, stop) = (composer.await.unwrap(), CancellationToken::new());
    tokio::spawn(run(composer.clone(), stop.clone()));
    Manager {
        id,
        composer,
        gate,
        stop,
    }
}

impl Scene {
    /// The first manager is in charge of all there is.
    async fn set(sessions: bool) -> Self {
        let rack = Arc::new(serve(rack(sessions), ServeOptions::default()).await.unwrap());
        let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().unwrap());
        let clock = Arc::new(SetClock::default());
        let shared = (&store, &rack, &clock);
        let first = manager(shared, "first", PATIENCE).await;
        for at in rack.endpoints() {
            let added = first.composer.add_endpoint(spec_of(&at.name), Standing::Adopted);
            added.await.unwrap();
        }
        // It is in charge of what it was given by the next beat.
        first.done(first.compose("before").await).await;
        first.done(first.release("before").await).await;
        Self {
            // What it takes over it holds for as long as a request of its own may take.
            second: manager(shared, "second", HOLD).await,
            first,
            rack,
            store,
            clock,
        }
    }

    fn bound(&self) -> usize {
        self.rack.emulation().with(|state, _| {
            state.check().unwrap();
            state.bindings().count()
        })
    }

    async fn until(&self, what: &str, is_so: impl AsyncFn() -> bool) {
        let looking = async {
            while !is_so().await {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let came = tokio::time::timeout(PATIENCE, looking).await;
        assert!(came.is_ok(), "it never came: {what}");
    }

    /// The first is asked for something, and stopped before it sends such a request: it gives no answer.
    async fn stops_before(&self, request: &'static str, asked: impl AsyncFn(&Manager) -> Change) {
        let first = &self.first;
        first.gate.stop_before(request);
        let stopped = async {
            tokio::select! {
                _ = asked(first) => first.gate.is_stopped().await,
                () = first.gate.is_stopped() => {}
            }
        };
        let stopped = tokio::time::timeout(PATIENCE, stopped).await;
        assert!(stopped.is_ok(), "it sent no {request}");
    }

    /// The second takes the first for dead, and finishes the one operation that it was at.
    async fn is_taken_over(&self) {
        let all = self.second.composer.operations().await.unwrap();
        let open: Vec<&Operation> = all.iter().filter(|operation| !operation.is_settled()).collect();
        assert_eq!(open.len(), 1);
        self.until("the first is taken for dead", async || {
            self.clock.forward(TERM / 10);
            let known = read::<ManagerRecord>(&*self.store, &self.first.id).await;
            known.unwrap().is_none()
        })
        .await;
        self.second.completes(open[0]).await;
    }

    /// The first goes on after ten terms, and so its request arrives.
    async fn goes_on_late(&self) -> Result<(), DriverError> {
        self.clock.forward(TERM * 10);
        self.first.gate.go_on();
        tokio::time::timeout(PATIENCE, self.first.gate.came_late())
            .await
            .unwrap()
    }

    /// Nothing goes on, and both tell the truth.
    async fn ends_well(&self, bound: usize) {
        for manager in [&self.first, &self.second] {
            self.until("both tell the truth", async || {
                let snapshot = manager.composer.snapshot().await.unwrap();
                let seen = snapshot
                    .topology
                    .gpus
                    .iter()
                    .filter(|gpu| gpu.host.is_some())
                    .count();
                let held = manager.composer.compositions().await.unwrap();
                let held: usize = held.iter().map(|c| c.held.len()).sum();
                let open = manager.composer.operations().await.unwrap();
                let quiet = open.iter().all(Operation::is_settled);
                quiet && seen == bound && held == bound && manager.composer.drift().await.unwrap().is_empty()
            })
            .await;
        }
        assert_eq!(self.bound(), bound);
        for manager in [&self.first, &self.second] {
            manager.stop.cancel();
            manager.composer.close().await;
        }
    }
}

impl Manager {
    async fn compose(&self, name: &str) -> Change {
        let demand = json!({"id": name, "kind": "h100-pcie-80gb", "gpus": 1});
        let demand = serde_json::from_value(demand).unwrap();
        self.composer.compose(demand, ME, &How::default()).await.unwrap()
    }

    async fn release(&self, name: &str) -> Change {
        let what = Release::Demand(DemandId::new(name).unwrap());
        self.composer.release(what, ME, &How::default()).await.unwrap()
    }

    async fn done(&self, change: Change) {
        self.completes(&change.operation.unwrap()).await;
    }

    async fn completes(&self, operation: &Operation) {
        let ended = self.composer.wait(&operation.id, PATIENCE).await.unwrap();
        assert_eq!(ended.state, OperationState::Completed, "{:?}", ended.error());
    }

    /// How many operations of a kind it has brought to a good end.
    async fn completed(&self, kind: OperationKind) -> usize {
        let all = self.composer.operations().await.unwrap();
        let done =
            |operation: &&Operation| operation.kind == kind && operation.state == OperationState::Completed;
        all.iter().filter(done).count()
    }
}

/// The first is stopped before it binds; the second binds instead, and lets go again.
async fn a_late_bind(sessions: bool) -> Scene {
    let scene = Scene::set(sessions).await;
    scene
        .stops_before("bind", async |first| first.compose("chat").await)
        .await;
    assert_eq!(scene.bound(), 0, "it was not sent");
    scene.is_taken_over().await;
    assert_eq!(scene.bound(), 1);
    scene.second.done(scene.second.release("chat").await).await;
    assert_eq!(scene.bound(), 0);
    scene
}

/// The first is stopped before it unbinds; the second unbinds instead, and gives the GPU to somebody else.
async fn a_late_unbind(sessions: bool) -> Scene {
    let scene = Scene::set(sessions).await;
    scene.first.done(scene.first.compose("chat").await).await;
    scene
        .stops_before("unbind", async |first| first.release("chat").await)
        .await;
    assert_eq!(scene.bound(), 1, "it was not sent");
    scene.is_taken_over().await;
    assert_eq!(scene.bound(), 0);
    scene.second.done(scene.second.compose("search").await).await;
    assert_eq!(scene.bound(), 1);
    scene
}

/// Fault 8: with sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bind_that_comes_late_is_refused_where_its_session_was_ended() {
    let scene = a_late_bind(true).await;
    let refused = scene.goes_on_late().await.unwrap_err();
    assert!(refused.message.contains("session"), "{refused:?}");
    scene.ends_well(0).await;
}

/// Fault 8: with sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unbind_that_comes_late_is_refused_where_its_session_was_ended() {
    let scene = a_late_unbind(true).await;
    let refused = scene.goes_on_late().await.unwrap_err();
    assert!(refused.message.contains("session"), "{refused:?}");
    assert_eq!(scene.second.completed(OperationKind::Repair).await, 0);
    scene.ends_well(1).await;
}

/// Fault 8: without.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bind_that_comes_late_where_there_are_no_sessions_is_seen_and_undone() {
    let scene = a_late_bind(false).await;
    let released = scene.second.completed(OperationKind::Late).await;
    scene.goes_on_late().await.unwrap();
    scene
        .until("it is let go of", async || {
            scene.second.completed(OperationKind::Late).await > released
        })
        .await;
    assert_eq!(scene.second.completed(OperationKind::Adopt).await, 1);
    scene.ends_well(0).await;
}

/// Fault 8: without.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unbind_that_comes_late_where_there_are_no_sessions_is_seen_and_undone() {
    let scene = a_late_unbind(false).await;
    scene.goes_on_late().await.unwrap();
    scene
        .until("it is bound again", async || {
            scene.second.completed(OperationKind::Repair).await > 0
        })
        .await;
    scene.ends_well(1).await;
}
