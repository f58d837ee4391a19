//! Who is bound where is read apart from everything else, as often as each endpoint's own speed allows.

use crate::stories::calendar::Clockwork;
use crate::stories::kit::{ME, Pool, gpus};
use async_trait::async_trait;
use poolwright_driver::{
    Bound, ControlPoint, DriverError, Fabric, GpuIdentity, Listened, Observation, Progress, PushTo, ResetSeen,
};
use poolwright_emulator::fault::{Fault, FaultKind};
use poolwright_emulator::{Rack, in_process};
use poolwright_executor::Clock as _;
use poolwright_model::id::ControlEndpointId;
use poolwright_service::endpoint::{Connected, Connector, EndpointSpec, Standing};
use poolwright_service::{Composer, DriftKind, ErrorCode, How, LETTERBOXES, Release};
use poolwright_store::SqliteStore;
use poolwright_tests::torture::line::spec_of;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const POLL: Duration = Duration::from_secs(30);
pub const WALK: Duration = Duration::from_secs(300);
/// As slow as the BMCs that were recorded.
const ANSWER: Duration = Duration::from_millis(500);

/// What was asked of an endpoint.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked {
    pub walks: u32,
    pub units: u32,
    in_flight: u32,
    most_in_flight: u32,
}

/// Units that are bound where no host is.
type Ghosts = Arc<Mutex<BTreeSet<ControlPoint>>>;

const NOWHERE: &str = "/redfish/v1/Fabrics/PCIe/Zones/a-host-that-was";

type Tally = Arc<Mutex<BTreeMap<ControlEndpointId, Asked>>>;

/// Where endpoints are to push what happens.
type Addresses = Arc<Mutex<BTreeMap<ControlEndpointId, String>>>;

/// The way to the rack, with a count of what is asked.
struct Counted(Arc<dyn Connector>, Tally, Ghosts, Addresses);

struct CountedFabric(Arc<dyn Fabric>, Tally, Ghosts, Addresses);

impl CountedFabric {
    fn note(&self, note: impl FnOnce(&mut Asked)) {
        note(
            self.1
                .lock()
                .unwrap()
                .entry(self.0.endpoint().clone())
                .or_default(),
        );
    }
}

#[async_trait]
impl Connector for Counted {
    async fn connect(&self, spec: &EndpointSpec) -> Result<Connected, DriverError> {
        let connected = self.0.connect(spec).await?;
        Ok(Connected {
            fabric: Arc::new(CountedFabric(
                connected.fabric,
                self.1.clone(),
                self.2.clone(),
                self.3.clone(),
            )),
            ..connected
        })
    }
}

#[async_trait]
impl Fabric for CountedFabric {
    fn endpoint(&self) -> &ControlEndpointId {
        self.0.endpoint()
    }
    async fn observe(&self, progress: &dyn Progress) -> Result<Observation, DriverError> {
        self.note(|asked| asked.walks += 1);
        self.0.observe(progress).await
    }
    async fn bind(&self, unit: &ControlPoint, port: &ControlPoint, d: Duration) -> Result<(), DriverError> {
        self.0.bind(unit, port, d).await
    }
    async fn unbind(&self, unit: &ControlPoint, port: &ControlPoint, d: Duration) -> Result<(), DriverError> {
        self.0.unbind(unit, port, d).await
    }
    async fn identify(&self, unit: &ControlPoint, d: Duration) -> Result<Vec<GpuIdentity>, DriverError> {
        self.0.identify(unit, d).await
    }
    async fn bound(&self, unit: &ControlPoint, d: Duration) -> Result<Bound, DriverError> {
        self.note(|asked| {
            asked.units += 1;
            asked.in_flight += 1;
            asked.most_in_flight = asked.most_in_flight.max(asked.in_flight);
        });
        let bound = self.0.bound(unit, d).await;
        self.note(|asked| asked.in_flight -= 1);
        match self.2.lock().unwrap().contains(unit) {
            true => Ok(Bound::To {
                port_address: NOWHERE.to_owned(),
            }),
            false => bound,
        }
    }
    async fn reset(&self, unit: &ControlPoint, d: Duration) -> Result<ResetSeen, DriverError> {
        self.0.reset(unit, d).await
    }
    async fn listen(
        &self,
        push_to: Option<&PushTo>,
        hint: &(dyn Fn() + Send + Sync),
    ) -> Result<Listened, DriverError> {
        let Some(push_to) = push_to else {
            return self.0.listen(None, hint).await;
        };
        let address = push_to.address.clone();
        self.3.lock().unwrap().insert(self.endpoint().clone(), address);
        std::future::pending().await
    }
}

/// A pool of slow endpoints, and what is asked of them. It is polled once its clockwork runs.
pub struct Slow {
    pub pool: Pool,
    composer: Composer,
    tally: Tally,
    ghosts: Ghosts,
    addresses: Addresses,
}

impl Slow {
    async fn new() -> Self {
        Self::of(Rack::builtin("demo").unwrap()).await
    }

    pub async fn of(rack: Rack) -> Self {
        Self::at(rack, None).await
    }

    /// One of a manager that endpoints push to.
    pub async fn pushed_to(rack: Rack) -> Self {
        Self::at(rack, Some("https://pool.example".to_owned())).await
    }

    async fn at(mut rack: Rack, pushed_to: Option<String>) -> Self {
        rack.latency.request = ANSWER;
        let mut pool = Pool::bare(rack, Arc::new(SqliteStore::in_memory().unwrap()));
        (pool.options.poll, pool.options.walk) = (Some(POLL), WALK);
        pool.options.pushed_to = pushed_to;
        let (tally, ghosts, addresses) = (Tally::default(), Ghosts::default(), Addresses::default());
        let line = Counted(pool.line(), tally.clone(), ghosts.clone(), addresses.clone());
        let line = Arc::new(line);
        let (store, clock) = (pool.store.clone(), pool.managers_clock.clone());
        let composer = Composer::open(store, line, clock, pool.options.clone())
            .await
            .unwrap();
        for name in in_process(&pool.emulation).endpoints {
            let name = name.endpoint().as_str();
            composer
                .add_endpoint(spec_of(name), Standing::Adopted)
                .await
                .unwrap();
        }
        pool.take_over(composer.clone());
        tally.lock().unwrap().clear();
        Self {
            pool,
            composer,
            tally,
            ghosts,
            addresses,
        }
    }

    /// The endpoint pushes something; `false` where nobody has subscribed, or nobody takes it.
    pub fn push(&self, endpoint: &str) -> bool {
        let endpoint: ControlEndpointId = endpoint.parse().unwrap();
        let address = self.addresses.lock().unwrap().get(&endpoint).cloned();
        let secret = address.and_then(|address| Some(address.rsplit_once(LETTERBOXES)?.1.to_owned()));
        secret.is_some_and(|secret| self.composer.pushed(&secret))
    }

    pub fn asked(&self, endpoint: &str) -> Asked {
        let endpoint: ControlEndpointId = endpoint.parse().unwrap();
        let tally = self.tally.lock().unwrap();
        tally.get(&endpoint).copied().unwrap_or_default()
    }

    pub async fn drifts(&self) -> Vec<(DriftKind, String)> {
        let drifts = self.composer.drift().await.unwrap();
        drifts
            .iter()
            .map(|drift| (drift.kind, drift.gpu.to_string()))
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_endpoint_is_asked_for_who_is_bound_where_and_seldom_for_the_rest() {
    let slow = Slow::new().await;
    let units = slow
        .pool
        .emulation
        .rack()
        .gpus_of_box(poolwright_emulator::rack::BoxIx(0))
        .count();
    let units = u32::try_from(units).unwrap();
    let clockwork = Clockwork::of(&slow.pool);
    tokio::time::sleep(Duration::from_secs(3600) + POLL).await;
    let asked = slow.asked("box-1");
    // Two an answer apart could come in between.
    assert_eq!(asked.units, units * 120, "each unit once a poll");
    assert_eq!(asked.most_in_flight, 4);
    assert_eq!(asked.walks, 12, "all else every five minutes");
    assert_eq!(slow.asked("host-1-bmc").units, 0, "it binds nothing");
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_look_that_finds_nothing_new_moves_the_age_of_what_is_shown_and_nothing_else() {
    let slow = Slow::new().await;
    let pool = &slow.pool;
    let clockwork = Clockwork::of(pool);
    let age = async || {
        let last = pool.composer().last_look().await.unwrap();
        Duration::try_from(pool.clock.now().duration_since(last.taken_at)).unwrap()
    };
    tokio::time::sleep(WALK * 2).await;
    let before = pool.snapshot().await;
    tokio::time::sleep(WALK * 10).await;
    assert!(age().await <= WALK + POLL, "{:?}", age().await);
    assert!(
        Arc::ptr_eq(&before, &pool.snapshot().await),
        "what rests on it is not made anew"
    );
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_is_given_the_time_that_it_needs_and_keeps_nobody_waiting() {
    let slow = Slow::new().await;
    let units = slow
        .pool
        .emulation
        .rack()
        .gpus_of_box(poolwright_emulator::rack::BoxIx(0))
        .count();
    slow.pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
    let clockwork = Clockwork::of(&slow.pool);
    // 16 units, 4 at a time, 20.5 s each: 82 s for all of them.
    let by = Duration::from_secs(20);
    slow.pool.fault(Fault::new(FaultKind::Slow { by }).at("box-2"));
    let one_poll = (by + ANSWER) * u32::try_from(units.div_ceil(4)).unwrap();
    tokio::time::sleep(POLL + one_poll * 4).await;
    let before = slow.asked("box-2");
    tokio::time::sleep(one_poll * 4 * 10).await;
    let polls = (slow.asked("box-2").units - before.units) / u32::try_from(units).unwrap();
    assert!(
        (9..=11).contains(&polls),
        "{polls} in ten times what it may be asked for"
    );

    let truth = slow.pool.truth();
    let of = |name: &str| truth.keys().find(|gpu| gpu.starts_with(name)).unwrap().clone();
    let (fast, slower) = (of("box-1/"), of("box-2/"));
    let ids = slow.pool.gpu_ids(&[&fast, &slower]).await;
    slow.pool.unbind_by_others(&fast);
    slow.pool.unbind_by_others(&slower);
    tokio::time::sleep(POLL + ANSWER * 16).await;
    assert!(
        slow.drifts()
            .await
            .contains(&(DriftKind::Unbound, ids[0].to_string()))
    );
    let both = async || slow.drifts().await.len() == 2;
    tokio::time::sleep(one_poll * 5).await;
    assert!(both().await, "{:?}", slow.drifts().await);
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_otherwise_is_looked_at_whole_without_waiting_for_the_next_walk() {
    let slow = Slow::new().await;
    let clockwork = Clockwork::of(&slow.pool);
    tokio::time::sleep(POLL * 2).await;
    assert_eq!(slow.asked("box-1").walks, 0);
    let gpu = slow.pool.snapshot().await.topology.gpus[0].clone();
    let serial = gpu.serial.unwrap();
    let rack = slow.pool.emulation.rack().clone();
    let at = rack.gpus.iter().position(|gpu| gpu.serial == serial).unwrap();
    let at = poolwright_emulator::rack::GpuIx(at);
    slow.pool.emulation.with(|state, now| state.vanish(at, now));
    tokio::time::sleep(POLL + Duration::from_secs(5)).await;
    let box_of = rack.gpu_name(at);
    let (home, _) = box_of.split_once('/').unwrap();
    assert_eq!(slow.asked(home).walks, 1);
    let shown = slow.pool.snapshot().await;
    assert_eq!(
        shown.topology.gpu(&gpu.id).unwrap().state,
        poolwright_model::lifecycle::GpuState::Missing
    );
    tokio::time::sleep(POLL * 3).await;
    assert_eq!(slow.asked(home).walks, 1, "once");
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_bound_to_a_host_that_nobody_shows_is_found_and_told() {
    let slow = Slow::new().await;
    slow.pool.composed(gpus("chat", "h100-pcie-80gb", 2)).await;
    let clockwork = Clockwork::of(&slow.pool);
    let snapshot = slow.pool.snapshot().await;
    let gpus = &snapshot.topology.gpus;
    let free = gpus
        .iter()
        .find(|gpu| gpu.host.is_none() && !gpu.control.is_empty())
        .unwrap();
    let held = gpus.iter().find(|gpu| gpu.host.is_some()).unwrap();
    for gpu in [free, held] {
        slow.ghosts.lock().unwrap().insert(gpu.control[0].clone());
    }
    // Also once everything was walked through, which shows no host there either.
    tokio::time::sleep(WALK * 2).await;
    let drifts = slow.composer.drift().await.unwrap();
    let of = |gpu: &poolwright_model::topology::Gpu| drifts.iter().find(|drift| drift.gpu == gpu.id).unwrap();
    assert_eq!(
        (drifts.len(), of(free).kind, of(held).kind),
        (2, DriftKind::HostGone, DriftKind::HostGone)
    );
    let told = of(free).detail.as_ref().unwrap();
    assert!(
        told.contains("a-host-that-was") && told.contains("unbind it"),
        "{told}"
    );
    let told = of(held).detail.as_ref().unwrap();
    assert!(
        told.contains("release composition/") && told.contains("--force"),
        "{told}"
    );

    // Nobody is given it, and ours is given up by force alone.
    let host = slow.pool.host_id("host-1").await;
    let how = How::default();
    let attach = slow
        .composer
        .attach(std::slice::from_ref(&free.id), &host, ME, &how);
    assert_eq!(attach.await.unwrap_err().code, ErrorCode::Conflict);
    let chat = || Release::Demand("chat".parse().unwrap());
    let refused = slow
        .composer
        .release(chat(), ME, &How::default())
        .await
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict, "{refused}");
    let force = How {
        force: Some("its host was scrapped".to_owned()),
        ..How::default()
    };
    let change = slow.composer.release(chat(), ME, &force).await.unwrap();
    assert_eq!(change.given_up, std::slice::from_ref(&held.id));
    slow.pool.quiet().await;

    // Once its fabric lets go of it, it is as good as any.
    slow.ghosts.lock().unwrap().clear();
    tokio::time::sleep(POLL * 2).await;
    assert!(
        slow.pool
            .snapshot()
            .await
            .topology
            .gpu(&free.id)
            .unwrap()
            .composability
            .is_composable()
    );
    clockwork.stop().await;
}
