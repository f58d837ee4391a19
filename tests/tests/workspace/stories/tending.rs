//! What hosts' agents tell of GPUs that fail, and of those that are gone, takes them out of use without anybody.

use crate::stories::calendar::Clockwork;
use crate::stories::kit::{Pool, gpus};
use crate::stories::polling::POLL;
use async_trait::async_trait;
use jiff::SignedDuration;
use poolwright_driver::{
    Ailment, Confirmation, DriverError, Failing, Holder, HostSide, HostTarget, Learned, Reading, Room,
};
use poolwright_executor::{Clock, GpuRecord};
use poolwright_model::id::{ControlEndpointId, GpuId, HostId};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::Gpu;
use poolwright_service::agent::{Agent, AgentSpec, Authority, ConnectedAgent, Identity, Renewal, Signed};
use poolwright_service::drift::DriftKind;
use poolwright_service::endpoint::{Connected, Connector, EndpointSpec};
use poolwright_service::quarantine::Cause;
use poolwright_service::{Composer, How, Options, ServiceError};
use poolwright_store::{Batch, read};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::sleep;

/// What the agents of all hosts tell.
#[derive(Default)]
pub struct Telling {
    ailments: Vec<Ailment>,
    /// GPUs that no host sees any more, by their names.
    gone: Vec<String>,
    /// The same, for one look.
    gone_once: Vec<String>,
    /// A GPU that its host can't put back as it was, and how.
    left: Option<(GpuId, String)>,
    pub silent: bool,
    /// The telemetry of their GPUs.
    pub readings: Vec<Reading>,
    /// How often they were asked for that.
    pub measured: u32,
    /// Where the manager says that the GPUs were seen which it expects.
    seen_at: Vec<String>,
    /// Of all agents only this one has something to tell.
    alone: Option<ControlEndpointId>,
    asked: u32,
    /// One that takes all the time that it is given, and says nothing.
    pub hangs: Option<ControlEndpointId>,
    /// The number of requests to each for failures, and for telemetry.
    pub questions: BTreeMap<ControlEndpointId, [u32; 2]>,
}

pub type Told = Arc<Mutex<Telling>>;

struct WithAgents(Arc<dyn Connector>, Told);

struct Side(ControlEndpointId, Told);

#[async_trait]
impl Connector for WithAgents {
    async fn connect(&self, spec: &EndpointSpec) -> Result<Connected, DriverError> {
        self.0.connect(spec).await
    }

    async fn connect_agent(&self, spec: &AgentSpec) -> Result<ConnectedAgent, DriverError> {
        Ok(ConnectedAgent {
            host_side: Arc::new(Side(spec.endpoint.clone(), self.1.clone())),
            renewal: Arc::new(NeverRenewed),
        })
    }
}

impl Side {
    /// Notes a question. One that hangs is given up.
    async fn is_asked(&self, what: usize, deadline: Duration) -> Result<(), DriverError> {
        let hangs = {
            let mut told = self.1.lock().unwrap();
            told.questions.entry(self.0.clone()).or_default()[what] += 1;
            told.hangs.as_ref() == Some(&self.0)
        };
        if hangs {
            sleep(deadline).await;
            return Err(DriverError::no_effect("it hangs"));
        }
        Ok(())
    }
}

#[async_trait]
impl HostSide for Side {
    fn endpoint(&self) -> &ControlEndpointId {
        &self.0
    }
    async fn preflight(&self, _: &HostTarget, _: Duration) -> Result<Room, DriverError> {
        Ok(Room::Enough)
    }
    async fn verify(&self, _: &HostTarget, _: Duration) -> Result<Confirmation, DriverError> {
        Ok(Confirmation::Seen {
            evidence: self.0.to_string(),
            learned: Vec::new(),
        })
    }
    async fn holders(&self, _: &HostTarget, _: Duration) -> Result<Vec<Holder>, DriverError> {
        Ok(Vec::new())
    }
    async fn ailing(&self, expected: &[HostTarget], deadline: Duration) -> Result<Vec<Ailment>, DriverError> {
        self.is_asked(0, deadline).await?;
        let mut told = self.1.lock().unwrap();
        told.asked += 1;
        if !expected.is_empty() {
            let seen_at = expected.iter().flat_map(|target| target.seen_at.clone());
            told.seen_at = seen_at.collect();
        }
        if told.silent {
            return Err(DriverError::no_effect("nobody answers"));
        }
        if told.alone.as_ref().is_some_and(|alone| *alone != self.0) {
            return Ok(Vec::new());
        }
        let names: Vec<&String> = expected.iter().flat_map(|target| &target.known_as).collect();
        let is_gone = |name: &&&String| told.gone.contains(name) || told.gone_once.contains(name);
        let gone = names.iter().filter(is_gone);
        let gone: Vec<Ailment> = gone
            .map(|name| ailment(name, Failing::Gone, "boot-1/gone"))
            .collect();
        told.gone_once.retain(|name| !names.contains(&name));
        Ok(told.ailments.iter().cloned().chain(gone).collect())
    }
    async fn readings(&self, deadline: Duration) -> Result<Vec<Reading>, DriverError> {
        self.is_asked(1, deadline).await?;
        let mut told = self.1.lock().unwrap();
        told.measured += 1;
        match told.silent {
            true => Err(DriverError::no_effect("nobody answers")),
            false => Ok(told.readings.clone()),
        }
    }
    async fn drain(&self, _: &HostTarget, _: Duration) -> Result<(), DriverError> {
        Ok(())
    }
    async fn left(&self, target: &HostTarget, _: Duration) -> Result<Vec<String>, DriverError> {
        let told = self.1.lock().unwrap();
        let left = told.left.iter().filter(|(gpu, _)| target.gpus.contains(gpu));
        Ok(left.map(|(_, what)| what.clone()).collect())
    }
    async fn undrain(&self, _: &HostTarget, _: Duration) -> Result<(), DriverError> {
        Ok(())
    }
}

fn ailment(name: &str, failing: Failing, event: &str) -> Ailment {
    Ailment {
        address: "0000:41:00.0".to_owned(),
        slot: None,
        known_as: vec![name.to_owned()],
        failing,
        event: event.to_owned(),
        says: "it fell off the bus".to_owned(),
    }
}

struct NeverRenewed;

#[async_trait]
impl Renewal for NeverRenewed {
    async fn request(&self, _: Duration) -> Result<String, DriverError> {
        Err(DriverError::cannot_tell("its certificate is new"))
    }
    async fn give(&self, _: &str, _: Duration) -> Result<(), DriverError> {
        Err(DriverError::cannot_tell("its certificate is new"))
    }
}

/// Of agents that are connected already.
struct Signs;

impl Authority for Signs {
    fn certificate(&self) -> String {
        String::new()
    }
    fn sign_agent(&self, _: &str, _: &[String], _: jiff::Timestamp) -> Result<Signed, ServiceError> {
        Err(ServiceError::bad_request("nobody asks for it"))
    }
    fn identity(&self, _: jiff::Timestamp) -> Result<Identity, ServiceError> {
        Ok(Identity {
            certificate: String::new(),
            key: String::new(),
        })
    }
}

/// A polled pool with an agent on each host, where a demand holds three GPUs: these.
pub async fn pool() -> (Pool, Told, Clockwork, Vec<Gpu>) {
    pool_with(|_| {}).await
}

/// The same, with other options.
pub async fn pool_with(set: impl FnOnce(&mut Options)) -> (Pool, Told, Clockwork, Vec<Gpu>) {
    let mut pool = Pool::of("demo").await;
    let now = pool.clock.now();
    let mut batch = Batch::new();
    for host in &pool.snapshot().await.topology.hosts {
        let agent = Agent {
            host: host.id.clone(),
            uuid: "4c4c4544-0042-3510-8052-b4c04f4d3732".to_owned(),
            address: "127.0.0.1:1".to_owned(),
            enrolment: "one".to_owned(),
            key: String::new(),
            enrolled: now,
            by: "me".to_owned(),
            ends: now + SignedDuration::from_hours(30 * 24),
            renewed: None,
            revoked: None,
        };
        batch.put(&agent).unwrap();
    }
    pool.store.commit(batch).await.unwrap();
    pool.crash().await;
    pool.options.poll = Some(POLL);
    set(&mut pool.options);
    let told = Told::default();
    let line = Arc::new(WithAgents(pool.line(), told.clone()));
    let composer = Composer::open(
        pool.store.clone(),
        line,
        pool.managers_clock.clone(),
        pool.options.clone(),
    );
    let composer = composer.await.unwrap();
    composer.signs_for_agents(Arc::new(Signs));
    pool.take_over(composer);
    pool.composed(gpus("three", "h100-pcie-80gb", 3)).await;
    let mut held = Vec::new();
    for name in pool.truth().into_keys() {
        held.push(pool.gpu(&name).await);
    }
    let clockwork = Clockwork::of(&pool);
    sleep(POLL * 3).await;
    assert!(told.lock().unwrap().asked > 0, "they are asked");
    assert!(pool.out_of_use().await.is_empty(), "and all is well");
    (pool, told, clockwork, held)
}

impl Pool {
    pub async fn out_of_use(&self) -> Vec<(GpuId, Cause)> {
        let all = self.composer().quarantined().await.unwrap();
        all.into_iter().map(|one| (one.gpu, one.cause)).collect()
    }

    async fn strikes(&self, gpu: &GpuId) -> usize {
        self.composer().gpu_history(gpu).await.unwrap().of.strikes.len()
    }
}

pub fn name_of(gpu: &Gpu) -> String {
    gpu.uuid.clone().or(gpu.serial.clone()).unwrap()
}

/// Fault 45: by itself, and counted once however often it is told.
#[tokio::test(start_paused = true)]
async fn what_the_driver_logged_takes_a_gpu_out_of_use_once() {
    let (pool, told, clockwork, held) = pool().await;
    let tell = |event: &str| {
        // Its driver and Redfish write a UUID differently.
        let name = name_of(&held[0]);
        let name = name
            .strip_prefix("GPU-")
            .map_or(format!("GPU-{name}"), str::to_uppercase);
        told.lock()
            .unwrap()
            .ailments
            .push(ailment(&name, Failing::Xid(79), event));
    };
    tell("boot-1/kmsg/8");
    told.lock()
        .unwrap()
        .ailments
        .push(ailment("nobody's", Failing::FatalAer, "boot-1/aer/1"));
    sleep(POLL * 10).await;
    assert_eq!(pool.out_of_use().await, [(held[0].id.clone(), Cause::Xid(79))]);
    assert_eq!(pool.strikes(&held[0].id).await, 1);
    assert_eq!(pool.truth().len(), 3, "nothing is pulled");
    tell("boot-1/kmsg/9");
    sleep(POLL * 3).await;
    assert_eq!(pool.strikes(&held[0].id).await, 2, "another one");
    clockwork.stop().await;
}

/// Fault 45: a log that is full of one error is one failure a look, and told again it is none.
#[tokio::test(start_paused = true)]
async fn a_log_full_of_one_error_is_counted_once_a_look() {
    let (pool, told, clockwork, held) = pool().await;
    let tell = |errors: std::ops::Range<u32>| {
        let of = |n| ailment(&name_of(&held[0]), Failing::Xid(79), &format!("boot-1/kmsg/{n}"));
        told.lock().unwrap().ailments.extend(errors.map(of));
    };
    tell(0..250);
    sleep(POLL * 10).await;
    assert_eq!(pool.out_of_use().await, [(held[0].id.clone(), Cause::Xid(79))]);
    assert_eq!(pool.strikes(&held[0].id).await, 1);
    tell(250..400);
    sleep(POLL * 10).await;
    assert_eq!(pool.strikes(&held[0].id).await, 2);
    clockwork.stop().await;
}

/// One that is dead says no name any more: its host is told where it was seen.
#[tokio::test(start_paused = true)]
async fn a_host_is_told_where_it_saw_what_it_should_have() {
    let (pool, told, clockwork, held) = pool().await;
    assert_eq!(
        told.lock().unwrap().seen_at,
        Vec::<String>::new(),
        "none has said"
    );
    was_told(&pool, &held[1], &name_of(&held[1])).await;
    sleep(POLL * 3).await;
    assert_eq!(told.lock().unwrap().seen_at, ["0000:41:00.0"]);
    clockwork.stop().await;
}

/// Fault 52: it alone; the others of its demand, on the same host, stay in use.
#[tokio::test(start_paused = true)]
async fn a_fatal_error_on_its_link_takes_a_gpu_out_of_use_and_none_beside_it() {
    let (pool, told, clockwork, held) = pool().await;
    let fails = ailment(&name_of(&held[1]), Failing::FatalAer, "boot-1/0000:41:00.0/aer/1");
    told.lock().unwrap().ailments.push(fails);
    sleep(POLL * 10).await;
    assert_eq!(pool.out_of_use().await, [(held[1].id.clone(), Cause::FatalAer)]);
    assert_eq!(pool.strikes(&held[1].id).await, 1);
    assert_eq!(pool.truth().len(), 3, "nothing is pulled");
    clockwork.stop().await;
}

/// An agent that hangs delays no other: each poll covers the others, and their telemetry keeps its interval.
#[tokio::test(start_paused = true)]
async fn an_agent_that_hangs_holds_up_no_other() {
    const ROUNDS: u32 = 24;
    const RATE: Duration = Duration::from_secs(5);
    let (pool, told, clockwork, held) = pool_with(|options| {
        options.poll = Some(RATE);
        options.telemetry = Some(RATE);
    })
    .await;
    let host = held[0].host.as_ref().unwrap();
    let hung = ControlEndpointId::from_lossy(&format!("agent-{host}"));
    {
        let mut told = told.lock().unwrap();
        told.hangs = Some(hung.clone());
        told.questions.clear();
    }
    sleep(RATE * ROUNDS).await;
    let questions = told.lock().unwrap().questions.clone();
    assert_eq!(questions.len(), pool.snapshot().await.topology.hosts.len());
    for (agent, asked) in questions {
        let expected = match agent == hung {
            // Given up after four rounds.
            true => 2..ROUNDS / 4 + 2,
            false => ROUNDS - 1..ROUNDS + 2,
        };
        assert!(
            asked.iter().all(|times| expected.contains(times)),
            "{agent}: {asked:?}"
        );
    }
    clockwork.stop().await;
}

/// A host speaks of its own GPUs: what it says of another's takes none out of use.
#[tokio::test(start_paused = true)]
async fn a_host_is_not_heard_about_gpus_of_another() {
    let (pool, told, clockwork, held) = pool().await;
    let own = held[0].host.clone().unwrap();
    let hosts = &pool.snapshot().await.topology.hosts;
    let other = hosts.iter().find(|host| host.id != own).unwrap();
    let agent = |host: &HostId| Some(ControlEndpointId::from_lossy(&format!("agent-{host}")));
    {
        let mut told = told.lock().unwrap();
        let fails = ailment(&name_of(&held[0]), Failing::Xid(79), "boot-1/kmsg/8");
        told.ailments.push(fails);
        told.alone = agent(&other.id);
    }
    sleep(POLL * 5).await;
    assert_eq!(pool.out_of_use().await, []);
    told.lock().unwrap().alone = agent(&own);
    sleep(POLL * 5).await;
    assert_eq!(pool.out_of_use().await, [(held[0].id.clone(), Cause::Xid(79))]);
    clockwork.stop().await;
}

/// Fault 44: the fabric says bound, and the host sees nothing.
#[tokio::test(start_paused = true)]
async fn one_that_went_without_a_word_is_taken_out_of_use() {
    let (pool, told, clockwork, held) = pool().await;
    told.lock().unwrap().gone.push(name_of(&held[1]));
    sleep(POLL * 10).await;
    assert_eq!(pool.out_of_use().await, [(held[1].id.clone(), Cause::Gone)]);
    assert_eq!(pool.strikes(&held[1].id).await, 1);
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_is_back_with_the_next_look_is_left_alone() {
    let (pool, told, clockwork, held) = pool().await;
    for _ in 0..3 {
        told.lock().unwrap().gone_once.push(name_of(&held[1]));
        sleep(POLL * 4).await;
        assert!(told.lock().unwrap().gone_once.is_empty(), "it was told");
        assert_eq!(pool.out_of_use().await, []);
    }
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_was_not_put_back_as_it_was_is_taken_out_of_use() {
    let (pool, told, clockwork, held) = pool().await;
    let what = "0000:41:00.0 could not be set back to MIG off: it hangs";
    told.lock().unwrap().left = Some((held[0].id.clone(), what.to_owned()));
    pool.released("three").await;
    sleep(POLL * 3).await;
    let out = pool.composer().quarantined().await.unwrap();
    let [unclean] = &out[..] else { panic!("{out:?}") };
    assert_eq!((&unclean.gpu, unclean.cause), (&held[0].id, Cause::Unclean));
    assert_eq!(unclean.evidence.says, what);
    let snapshot = pool.snapshot().await;
    let gpu = snapshot.topology.gpu(&held[0].id).unwrap();
    assert_eq!(
        (gpu.state, gpu.composability.is_composable()),
        (GpuState::Dirty, false)
    );
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_sees_none_of_its_gpus_is_not_believed_and_a_silent_one_blames_none() {
    let (pool, told, clockwork, held) = pool().await;
    told.lock().unwrap().gone.extend(held.iter().map(name_of));
    sleep(POLL * 5).await;
    assert_eq!(pool.out_of_use().await, []);
    told.lock().unwrap().silent = true;
    sleep(POLL * 5).await;
    assert_eq!(pool.out_of_use().await, []);
    clockwork.stop().await;
}

/// As if its host had told so when it was attached.
pub async fn was_told(pool: &Pool, gpu: &Gpu, uuid: &str) {
    let found = read::<GpuRecord>(pool.store.as_ref(), gpu.id.as_str()).await;
    let mut record = found.unwrap().unwrap().value;
    record.learned = Some(Learned {
        gpu: gpu.id.clone(),
        address: "0000:41:00.0".to_owned(),
        slot: None,
        pcie_serial: None,
        board_serial: None,
        uuid: Some(uuid.to_owned()),
        link: None,
        best_link: None,
        largest_bar: None,
        firmware: None,
    });
    let mut batch = Batch::new();
    batch.put(&record).unwrap();
    pool.store.commit(batch).await.unwrap();
}

/// Fault 41: what the fabric tells apart, hosts called by one name.
#[tokio::test(start_paused = true)]
async fn two_gpus_that_hosts_saw_with_one_uuid_are_given_to_nobody_and_are_among_the_drift() {
    let (pool, _, clockwork, held) = pool().await;
    let one = "GPU-0e2b7f0c-9a51-4c1e-8f7a-4d2f9c1b7a01";
    was_told(&pool, &held[0], one).await;
    was_told(&pool, &held[1], &one.to_lowercase()).await;
    was_told(&pool, &held[2], "GPU-0e2b7f0c-9a51-4c1e-8f7a-4d2f9c1b7a02").await;
    sleep(POLL * 3).await;
    let mut both = [held[0].id.clone(), held[1].id.clone()];
    both.sort();
    let expected: Vec<_> = both.iter().map(|gpu| (gpu.clone(), Cause::Identity)).collect();
    assert_eq!(pool.out_of_use().await, expected);
    let drift = pool.composer().drift().await.unwrap();
    let told: Vec<_> = drift
        .iter()
        .map(|drift| (drift.gpu.clone(), drift.kind))
        .collect();
    assert_eq!(told, both.map(|gpu| (gpu, DriftKind::Conflict)));
    sleep(POLL * 5).await;
    assert_eq!(pool.strikes(&held[0].id).await, 1, "told once");
    assert_eq!(pool.truth().len(), 3, "nothing is pulled");
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_gpu_is_attached_by_the_name_that_hosts_have_for_it() {
    let (pool, _, clockwork, held) = pool().await;
    let snapshot = pool.snapshot().await;
    let mut gpus = snapshot.topology.gpus.iter();
    let free = gpus.find(|gpu| gpu.state == GpuState::Free && gpu.composability.is_composable());
    let free = free.unwrap();
    let host = held[0].host.clone().unwrap();
    let how = How {
        dry_run: true,
        ..How::default()
    };
    let name = GpuId::from_lossy(&name_of(free).to_lowercase());
    let change = pool.composer().attach(&[name], &host, "me", &how).await.unwrap();
    let attached: Vec<_> = change.plan.composes.iter().flat_map(|one| one.gpus()).collect();
    assert_eq!(attached, [&free.id]);
    clockwork.stop().await;
}
