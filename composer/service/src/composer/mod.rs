//! The facade: everything that anybody asks of Poolwright, be it at the CLI or through a service.
//!
//! * [`accepting`]: what vanished all at once.
//! * [`adopting`]: what was there before us.
//! * [`drifting`]: what is recorded against what was found.
//! * [`lending`]: what was lent is called back, rung by rung.
//! * [`looking`]: the hardware as seen last, with what we know of it.
//! * [`endpoints`]: whom to ask.
//! * [`enrolling`]: agents on hosts. [`renewing`]: their certificates.
//! * [`retiring`]: hosts out of service for good.
//! * [`wanting`]: demands and schedules.
//! * [`silence`]: what does not answer.
//! * [`simulating`]: what other policies would make of recorded jobs.
//! * [`sizing`]: how large a job is.
//! * [`staleness`]: what is too old to rest a change on.
//! * [`suspending`]: which demands the clock has put aside.
//! * [`keeping`]: which demands are kept, when operations decide it.
//! * [`owing`]: what is lent is given to nobody else past its return.
//! * [`planning`]: from what is wanted to a plan. [`avoiding`]: without what is better left.
//! * [`closing`]: hosts that are given nothing for a while.
//! * [`uplinks`]: uplink capacities.
//! * [`changing`]: compose, release, attach, detach.
//! * [`giving_up`]: ending the claim on what is gone.
//! * [`undoing`]: the contrary of what was done.
//! * [`repairing`]: binding again what a fabric lost.
//! * [`reserving`]: what is kept for a client for a while.
//! * [`requests`]: from a plan to an operation; once a key.
//! * [`credentials`]: the passwords of endpoints. [`rotating`]: other ones.
//! * [`charge`]: one of several managers.
//! * [`damage`]: documents that are not as they were written.
//! * [`forecasting`]: how many GPUs will be wanted.
//! * [`kept`]: what stays attached, or is attached ahead, because of that.
//! * [`following`]: what is done once an operation is over.
//! * [`automatic`]: what ran by itself of late.
//! * [`failing`]: what failed again and again.
//! * [`limiting`]: not too much of what runs by itself.
//! * [`marking`]: whose an endpoint is.
//! * [`hearing`]: what endpoints tell brings looks forward.
//! * [`pinning`]: the certificates that endpoints are believed by.
//! * [`polling`]: looking by the clock. [`measuring`]: what agents measure. [`rounds`]: all agents at a set rate.
//! * [`notices`]: jobs are told before they are stopped.
//! * [`pausing`]: stopping it all, or some of it.
//! * [`pruning`]: what is forgotten of the past.
//! * [`recording`]: what was asked of the pool.
//! * [`queueing`]: jobs that begin, are stopped, and are over.
//! * [`queued`]: how a job comes into the queue, and what is told of those that wait.
//! * [`tenants`]: what tenants are promised.
//! * [`turns`]: what takes long is worked out a few at a time.
//! * [`subscribing`]: who is sent what happens.
//! * [`telling`]: what happened, for whoever listens.
//! * [`readiness`]: whether it may be asked at all.
//! * [`asking`]: operations, compositions, and why things are as they are.
//!
//! Invariant: every change of hardware goes through a plan and the executor.

mod accepting;
mod adopting;
mod ahead;
mod asking;
mod attaching_early;
mod auditing;
mod automatic;
mod avoiding;
mod beginning;
mod changing;
mod charge;
mod closing;
mod credentials;
mod damage;
mod declaring;
pub mod documents;
mod drifting;
mod endpoints;
mod enrolling;
mod expiring;
mod failing;
mod following;
mod forecasting;
mod giving_up;
mod hearing;
mod judging;
mod keeping;
mod kept;
mod known_jobs;
mod latecoming;
mod lending;
mod limiting;
mod locating;
mod looking;
mod marking;
mod measuring;
mod orphaned_compositions;
mod owing;
mod pausing;
mod pinning;
mod planning;
mod polling;
mod posing;
mod pruning;
mod quarantining;
mod queue_told;
mod queued;
mod queueing;
mod readiness;
mod recording;
mod relocating;
mod renewing;
mod repairing;
mod requests;
mod reserving;
mod retiring;
mod returning;
mod rotating;
mod rounds;
mod scheduling;
mod silence;
mod simulating;
mod sizing;
mod staleness;
#[cfg(test)]
mod stand_ins;
mod starting;
mod stopping;
mod subscribing;
mod suspending;
mod telling;
mod tenants;
mod tending;
mod turns;
mod underway;
mod undoing;
mod uplinks;
mod wanting;

pub use accepting::{Accepting, Lost};
pub use adopting::Adopting;
pub use ahead::{Ahead, HeldAhead, MOST_HOURS, Moment, UnservedAhead};
pub use asking::{Check, CheckResult, OperationAlarm, Resolution, Status, Why};
pub use changing::Release;
pub use credentials::Credentials;
pub(crate) use credentials::{Unopened, unsealed};
pub use declaring::{
    Declaration, Declared, DeclaredEntry, DeclaredKind, Difference, DoesNotFit, schedule_of,
};
pub use endpoints::EndpointTest;
pub use enrolling::Admitted;
pub(crate) use following::Tell;
pub use forecasting::{Kinds, MOST_AHEAD_H, NO_FORECAST_YET, TenantForecast};
pub use hearing::LETTERBOXES;
pub use limiting::{LimitsStatus, MovedMost};
pub use looking::LastLook;
pub use pinning::PinChange;
pub(crate) use planning::Scheduled;
pub use planning::{How, Seen};
pub use posing::ProblemAhead;
pub use queued::{Queue, QueuedJob, RunningJob};
pub use recording::Asked;
pub use requests::{Change, SkippedStep};
pub use reserving::{MOST_PARTS, Part, Place, RESERVED, Reservation, Wish, Wished};
pub use rotating::Rotated;
pub(crate) use rotating::may_log_in;
pub use scheduling::{DueOpening, MOST_OPENINGS, openings_of};
pub use silence::Silent;
pub use sizing::{most_slots, pool_kinds};
pub use staleness::Observed;
pub(crate) use telling::tell;
pub use telling::{Became, Entry as LoggedEvent, Happened, Happening, TestEvent, Thing, Turn, What};
pub use wanting::ScheduleStatus;

use self::readiness::Stage;
use self::turns::Turns;
use crate::accounts::failures::Failures;
use crate::accounts::{Accounts, Grants};
use crate::audit::Audit;
use crate::books::Books;
use crate::clock::Clock;
use crate::connections::Connections;
use crate::endpoint::Connector;
use crate::error::ServiceError;
use crate::hooks::{Hooks, NoHooks};
use crate::ids::Ids;
use crate::keep::Keep;
use crate::leases::{Leases, Sharing};
use crate::run_times::RunTimes;
use crate::runner::Trouble;
use crate::sealed::Keys;
use crate::sessions::Sessions;
use crate::suspicion::USUAL_THRESHOLD;
use jiff::Timestamp;
use poolwright_collector::CollectOptions;
use poolwright_executor::{Alone, Charge, Executor};
use poolwright_model::id::{ControlEndpointId, DemandId, OperationId};
use poolwright_sizing::Calibration;
use poolwright_store::{Remembering, Store, Watched};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How a composer behaves.
#[derive(Debug, Clone)]
pub struct Options {
    pub collect: CollectOptions,
    pub execute: poolwright_executor::Options,
    /// How often it is read who is bound where at an endpoint, in real time: longer where the endpoint is slow.
    /// `None`: only when asked.
    pub poll: Option<Duration>,
    /// Interval at which each agent is polled for GPU telemetry. `None`: never.
    pub telemetry: Option<Duration>,
    /// More correctable errors than these on its link within an hour make a GPU suspect. `None`: none is.
    pub suspect_above: Option<u32>,
    /// How often all that an endpoint has is looked at, while it is polled: longer where that takes long.
    pub walk: Duration,
    /// Where several managers have one store; `None` for the only one.
    pub sharing: Option<Sharing>,
    /// With what the passwords of endpoints are sealed and opened.
    pub keys: Keys,
    /// Constants of sizing as measured peaks corrected them; whatever they change says so.
    pub calibration: Calibration,
    /// What schedules may have run.
    pub hooks: Arc<dyn Hooks>,
    /// What is done with GPUs that will be wanted soon; `None`: nothing.
    pub keep: Option<Keep>,
    /// Where endpoints that only push events reach this manager, and no other: `https://HOST:PORT`. `None`: they are
    /// polled.
    pub pushed_to: Option<String>,
    /// For simulation: with a seed, the same calls give new things the same ids.
    pub seed: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            collect: CollectOptions::default(),
            execute: poolwright_executor::Options::default(),
            poll: Some(Duration::from_secs(30)),
            telemetry: Some(Duration::from_secs(30)),
            suspect_above: Some(USUAL_THRESHOLD),
            walk: Duration::from_secs(300),
            sharing: None,
            keys: Keys::default(),
            calibration: Calibration::default(),
            hooks: Arc::new(NoHooks),
            keep: None,
            pushed_to: None,
            seed: None,
        }
    }
}

/// How long what was sent may take to be answered when the manager stops.
const SHUTDOWN: Duration = Duration::from_secs(8);
/// For writing down what was seen, then.
const KEEP: Duration = Duration::from_secs(2);

/// The facade. Cheap to clone; all clones are one. When the last is dropped everything stops where it is, as a
/// crash would; see [`Composer::close`].
#[derive(Clone)]
pub struct Composer {
    parts: Arc<Parts>,
    /// `None` within what goes on by itself, which ends with the last of those outside.
    #[expect(dead_code, reason = "it is there to be dropped")]
    outside: Option<Arc<DropGuard>>,
    /// Whose requests these are, where that account may not do everything everywhere; see [`Composer::asked_by`].
    asker: Option<Arc<Grants>>,
}

/// What a composer is made of.
pub struct Parts {
    store: Arc<dyn Store>,
    connector: Arc<dyn Connector>,
    connections: Arc<Connections>,
    executor: Arc<Executor>,
    /// What is written down, in memory.
    books: Arc<Books>,
    leases: Option<Arc<Leases>>,
    clock: Arc<dyn Clock>,
    audit: Arc<Audit>,
    ids: Ids,
    options: Options,
    stage: Mutex<Stage>,
    seen: Mutex<looking::Seen>,
    /// Held while what was seen is written down: many who want that at once wait without a copy of all of it each, and
    /// find little left.
    keeping: tokio::sync::Mutex<()>,
    /// Held while a plan is made and submitted: each sees what the one before has taken. Operations run side
    /// by side all the same.
    turn: tokio::sync::Mutex<()>,
    /// Operations whose first commit is on its way.
    beginning: beginning::Beginning,
    damage: damage::Damage,
    /// Endpoints of which was told that they give no answer.
    lost: Mutex<BTreeSet<ControlEndpointId>>,
    /// Held while one of them is told.
    telling_silence: tokio::sync::Mutex<()>,
    /// What agents have measured.
    measured: Mutex<measuring::Measured>,
    /// Where endpoints push what happens.
    letterboxes: hearing::Letterboxes,
    /// Endpoints that operations left to be looked at.
    left: Mutex<BTreeSet<ControlEndpointId>>,
    looking: Mutex<following::Looking>,
    /// Held while pauses are changed: what the executor is told last is what stands. Why the store is a restored one, as
    /// it was told last.
    pausing: tokio::sync::Mutex<Option<String>>,
    sizing: Turns,
    simulating: Turns,
    /// Of those who ask when the queue's jobs will begin.
    foreseeing: Turns,
    /// Of those who ask what will be by the calendar.
    planning_ahead: Turns,
    /// Cached attach durations of the latest operations.
    took: Mutex<attaching_early::TookAt>,
    /// Held while the light of a GPU is switched.
    lights: tokio::sync::Mutex<()>,
    /// Held while a password is changed.
    rotating: tokio::sync::Mutex<()>,
    /// Of which endpoint: it does not change hands meanwhile.
    rotating_at: Mutex<Option<ControlEndpointId>>,
    enrolling: enrolling::Enrolling,
    /// When the certificate ends that clients are shown.
    certificate_end: Mutex<Option<Timestamp>>,
    /// Told when what is wanted, or what there is to serve it, may have changed.
    pub(crate) calendar_changed: Notify,
    /// Told when something may be due of what is lent.
    pub(crate) lends_changed: Notify,
    /// Told when a job came, or something that jobs wait for may have changed.
    pub(crate) queue_changed: Notify,
    /// Why jobs could not be begun when they were tried last, beside what the queue says.
    held_up: Mutex<BTreeMap<DemandId, String>>,
    /// Run times of finished jobs, and when they were read.
    learned: tokio::sync::Mutex<Option<(Timestamp, Arc<RunTimes>)>>,
    /// What keeps the pool from following the calendar just now.
    trouble: Mutex<Option<Trouble>>,
    /// Since when it is known of a request that may come late, by its id.
    late_since: Mutex<BTreeMap<String, Instant>>,
    /// What was turned away and is not written down yet.
    turned_away: Mutex<BTreeMap<String, recording::TurnedAway>>,
    /// The last of those outside was dropped.
    ended: CancellationToken,
    /// What goes on by itself; it ends with the composer.
    tasks: Mutex<JoinSet<()>>,
}

impl Deref for Composer {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl Composer {
    /// A composer that has done nothing yet: neither the store nor any endpoint is asked before
    /// [`Composer::start`].
    pub fn new(
        store: Arc<dyn Store>,
        connector: Arc<dyn Connector>,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Self {
        let books = Arc::new(Books::new(options.sharing.is_some()));
        let store: Arc<dyn Store> = Arc::new(Watched::new(store, books.clone()));
        let leases = options.sharing.clone();
        let leases = leases.map(|sharing| Arc::new(Leases::new(store.clone(), sharing)));
        let charge: Arc<dyn Charge> = match &leases {
            Some(leases) => leases.clone(),
            None => Arc::new(Alone),
        };
        // What is shown may be old, and is marked then. The executor knows the store itself, or nothing.
        let shown: Arc<dyn Store> = match store.is_remote() {
            true => Arc::new(Remembering::new(store.clone())),
            false => store.clone(),
        };
        let connections = Arc::new(Connections::new(
            shown.clone(),
            connector.clone(),
            options.sharing.is_some(),
            options.keys.clone(),
            clock.clone(),
        ));
        let (now, execute, drivers) = (clock.clone(), options.execute.clone(), connections.clone());
        let executor = Executor::with_charge(store, drivers, charge, now, execute, Arc::new(()));
        let failures = Failures::new(shown.clone(), clock.clone());
        let ended = CancellationToken::new();
        let outside = Some(Arc::new(ended.clone().drop_guard()));
        let parts = Arc::new(Parts {
            ended,
            audit: Arc::new(Audit::new(shown.clone(), clock.clone())),
            store: shown,
            connector,
            connections,
            executor: Arc::new(executor),
            books,
            leases,
            clock,
            ids: Ids::new(options.seed),
            options,
            stage: Mutex::default(),
            seen: Mutex::default(),
            keeping: tokio::sync::Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            beginning: beginning::Beginning::default(),
            damage: damage::Damage::default(),
            lost: Mutex::default(),
            telling_silence: tokio::sync::Mutex::default(),
            measured: Mutex::default(),
            letterboxes: hearing::Letterboxes::default(),
            left: Mutex::default(),
            looking: Mutex::default(),
            pausing: tokio::sync::Mutex::default(),
            sizing: Turns::of("sizes").or_by("poolwright size"),
            simulating: Turns::of("simulations").or_by("poolwright simulate"),
            foreseeing: Turns::of("looks at the queue"),
            planning_ahead: Turns::of("plans ahead"),
            took: Mutex::default(),
            lights: tokio::sync::Mutex::default(),
            rotating: tokio::sync::Mutex::default(),
            rotating_at: Mutex::default(),
            enrolling: enrolling::Enrolling::new(failures),
            certificate_end: Mutex::default(),
            calendar_changed: Notify::new(),
            lends_changed: Notify::new(),
            queue_changed: Notify::new(),
            held_up: Mutex::default(),
            learned: tokio::sync::Mutex::default(),
            trouble: Mutex::default(),
            late_since: Mutex::default(),
            turned_away: Mutex::default(),
            tasks: Mutex::default(),
        });
        Self {
            parts,
            outside,
            asker: None,
        }
    }

    /// Goes on by itself until it is over, or the last of those outside is dropped.
    fn go_on(&self, task: impl Future<Output = ()> + Send + 'static) {
        let ended = self.ended.clone();
        let task = async move {
            tokio::select! {
                biased;
                () = ended.cancelled() => {}
                () = task => {}
            }
        };
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// To look in from what goes on by itself.
    fn within(parts: &Weak<Parts>) -> Option<Self> {
        let parts = parts.upgrade()?;
        Some(Self {
            parts,
            outside: None,
            asker: None,
        })
    }

    /// A composer that has started. Where it can't, its sessions at endpoints are ended.
    #[crate::boxed]
    pub async fn open(
        store: Arc<dyn Store>,
        connector: Arc<dyn Connector>,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Result<Self, ServiceError> {
        let composer = Self::new(store, connector, clock, options);
        if let Err(error) = composer.start().await {
            composer.close().await;
            return Err(error);
        }
        Ok(composer)
    }

    /// Recalls what endpoints showed, looks at those that can't wait, and adopts the operations that an earlier run
    /// left open. Whoever calls it closes the composer, also where it fails or is cut off.
    #[crate::boxed]
    pub async fn start(&self) -> Result<(), ServiceError> {
        self.take_up().await?;
        self.open_up();
        Ok(())
    }

    /// All of a start but its end: nobody may ask it before [`Composer::open_up`].
    #[crate::boxed]
    pub async fn take_up(&self) -> Result<(), ServiceError> {
        self.despite_damage(self.recall_ids().await)?;
        self.despite_damage(self.connections.agents.recall().await.map_err(Into::into))?;
        self.despite_damage(self.recall_pauses().await)?;
        self.despite_damage(self.recall_silence().await)?;
        self.despite_damage(self.share_secrets().await)?;
        self.despite_damage(self.settle_demands().await)?;
        self.despite_damage(self.look_first().await)?;
        self.despite_damage(self.begin_charge().await)?;
        self.despite_damage(self.executor.reopen().await.map_err(Into::into))?;
        self.despite_damage(self.take_up_operations().await)
    }

    /// Adopts the operations that nobody works at and that are for this manager.
    async fn take_up_operations(&self) -> Result<(), ServiceError> {
        for adopted in self.executor.recover().await?.adopted {
            self.follow(adopted, Tell::HoweverItEnds);
        }
        Ok(())
    }

    /// From now on it may be asked.
    pub fn open_up(&self) {
        self.enter(Stage::Started);
    }

    pub fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }

    /// An id that nothing had before.
    pub(crate) fn new_id(&self) -> String {
        self.ids.next(self.clock.now())
    }

    fn new_operation(&self) -> OperationId {
        OperationId::from_lossy(&format!("op-{}", self.new_id()))
    }

    /// Those of the API's clients.
    pub fn sessions(&self) -> Sessions {
        Sessions::new(self.store.clone(), self.clock.clone())
    }

    /// The accounts of the API's clients; see [`Accounts::open`].
    pub async fn accounts(
        &self,
        tell: impl FnOnce(&str) -> Result<(), ServiceError>,
        take_back: impl FnOnce() -> Result<(), ServiceError>,
    ) -> Result<Accounts, ServiceError> {
        Accounts::open(self.store.clone(), self.clock.clone(), tell, take_back).await
    }

    /// Who asked for what.
    pub fn audit(&self) -> &Arc<Audit> {
        &self.audit
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Parks running operations where they can be carried on, and ends the sessions at the endpoints. None is
    /// begun any more.
    #[crate::boxed]
    pub async fn close(&self) {
        self.enter(Stage::Closed);
        let nothing_on_its_way = self.executor.shutdown(SHUTDOWN).await;
        // What was seen last is what the next start shows.
        let written = async {
            self.write_turned_away().await;
            self.audit.write_denials().await;
            self.joined().await;
        };
        if tokio::time::timeout(KEEP, written).await.is_err() {
            tracing::warn!("what was seen last is not written down: the store did not answer in time");
        }
        self.connections.close().await;
        self.give_back(nothing_on_its_way).await;
    }
}
