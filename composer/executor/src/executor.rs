//! The executor: many operations at once, each a task of its own.

use crate::alarm::Alarm;
use crate::charge::{Alone, Charge};
use crate::clock::Clock;
use crate::context::Context;
use crate::drivers::Drivers;
use crate::hooks::{Hooks, Moment};
use crate::ledger::{Begins, Entry, Halt};
use crate::line::Line;
use crate::live::Live;
use crate::load::{load, missing};
use crate::operation::{Operation, Stop};
use crate::options::Options;
use crate::order::{Watch, Wish};
use crate::pause::Pause;
use crate::record::Claim;
use crate::resolve::{self, Resolution, Resolve, ResolveError};
use crate::retention::{self, Pruned};
use crate::run::run;
use crate::state::OperationState;
use crate::submit::{self, Submission, SubmitError, Submitted};
use crate::unreadable;
use futures_util::FutureExt;
use jiff::Timestamp;
use poolwright_model::id::{ControlEndpointId, OperationId};
use poolwright_model::step::Target;
use poolwright_planner::Plan;
use poolwright_store::{Order, Store, StoreError, Stored, Versioned, read_all};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tracing::Instrument as _;

mod apart;
mod recover;
mod unread;

use apart::Apart;
pub use recover::Recovered;

/// Runs plans. Dropped, it stops where it is, as a crash would; see [`Executor::shutdown`].
pub struct Executor {
    inner: Arc<Inner>,
}

struct Inner {
    cx: Context,
    /// Operations that this process works at, or holds for an operator.
    live: Mutex<BTreeMap<OperationId, Worker>>,
    /// Open operations that are in nobody's hands here. What is known of them never changes.
    elsewhere: Mutex<BTreeMap<OperationId, Apart>>,
    /// Open operations that can't be read, with the reason: left alone.
    unreadable: Mutex<BTreeMap<OperationId, String>>,
    /// Operations that are begun or taken up just now: their workers are there in a moment.
    taking: Mutex<BTreeSet<OperationId>>,
    /// What was seen of what others ask.
    orders: Watch,
    closing: AtomicBool,
}

struct Worker {
    live: Arc<Live>,
    task: Option<JoinHandle<()>>,
    /// It pauses for good, so that whoever waits for its endpoints gets them.
    gives_way: bool,
}

/// Why an operation was not cancelled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CancelError {
    #[error("there is no operation {0}")]
    NotFound(OperationId),
    #[error("operation {operation} is {state} already")]
    TooLate {
        operation: OperationId,
        state: OperationState,
    },
    #[error("{0}")]
    Halted(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Executor {
    pub fn new(
        store: Arc<dyn Store>,
        drivers: Arc<dyn Drivers>,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Self {
        Self::with_hooks(store, drivers, clock, options, Arc::new(()))
    }

    /// With something that is told of each moment at which a crash would matter: for tests.
    pub fn with_hooks(
        store: Arc<dyn Store>,
        drivers: Arc<dyn Drivers>,
        clock: Arc<dyn Clock>,
        options: Options,
        hooks: Arc<dyn Hooks>,
    ) -> Self {
        Self::with_charge(store, drivers, Arc::new(Alone), clock, options, hooks)
    }

    /// One of several managers that share the store: it works at what it is in charge of.
    pub fn with_charge(
        store: Arc<dyn Store>,
        drivers: Arc<dyn Drivers>,
        charge: Arc<dyn Charge>,
        clock: Arc<dyn Clock>,
        options: Options,
        hooks: Arc<dyn Hooks>,
    ) -> Self {
        let inner = Inner {
            cx: Context::new(store, drivers, charge, clock, options, hooks),
            live: Mutex::default(),
            elsewhere: Mutex::default(),
            unreadable: Mutex::default(),
            taking: Mutex::default(),
            orders: Watch::default(),
            closing: AtomicBool::new(false),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// What is paused from now on, and nothing else. When this returns nothing is sent any more where it holds,
    /// but for what is on its way; see [`Pause`]. Not kept: the caller sets it again before
    /// [`Executor::recover`].
    pub fn set_pauses(&self, pauses: Vec<Pause>) {
        self.inner.cx.gate.set(pauses);
    }

    /// Begins an operation. When this returns it is in the journal, and goes on after any crash. The same
    /// key again gives the same operation.
    pub async fn submit(&self, submission: Submission) -> Result<OperationId, SubmitError> {
        let inner = Arc::clone(&self.inner);
        detached(async move {
            if inner.closing.load(Ordering::SeqCst) {
                return Err(SubmitError::Closing);
            }
            // What is committed is anybody's to take up: not by us, too, before its worker is there.
            let taking = Inner::takes(&inner, &submission.id);
            match submit::submit(&inner.cx, submission).await {
                Err(SubmitError::Unknown { operation, error }) => {
                    drop(taking);
                    Inner::find_out(&inner, operation, error).await
                }
                Err(refused) => Err(refused),
                Ok(Submitted::Known(id)) => Ok(id),
                Ok(Submitted::New(live)) => {
                    let live = Arc::new(*live);
                    inner.cx.at(&live, None, false, Moment::AfterIntent).await;
                    let id = live.id.clone();
                    match inner.may_work_at(&live.ask(Operation::endpoints)) {
                        true => Inner::work(&inner, live),
                        false => inner.leave(&live),
                    }
                    Ok(id)
                }
            }
        })
        .await
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.inner.cx.store
    }

    pub(crate) fn orders(&self) -> &Watch {
        &self.inner.orders
    }

    /// Whether this process works at the operation, or holds it for an operator.
    pub(crate) fn works_at(&self, id: &OperationId) -> bool {
        self.inner.find(id).is_some()
    }

    /// The endpoints at which this process works.
    pub fn busy_at(&self) -> BTreeSet<ControlEndpointId> {
        let workers = self.inner.workers();
        let lives = workers.values().map(|worker| &worker.live);
        let busy = lives.filter(|live| !live.ask(Operation::is_settled));
        busy.flat_map(|live| live.ask(Operation::endpoints)).collect()
    }

    /// Leaves the operations that only wait for an operator to whoever is in charge of the endpoint next.
    pub fn let_go_of(&self, endpoint: &ControlEndpointId) {
        let held = |worker: &Worker| {
            worker
                .live
                .ask(|operation| operation.is_settled() && operation.endpoints().contains(endpoint))
        };
        self.inner.workers().retain(|_, worker| !held(worker));
    }

    /// An operation as it is just now; `None` where there is none. An open one that can't be read is shown as
    /// quarantined, with what there is to do.
    pub async fn get(&self, id: &OperationId) -> Result<Option<Operation>, StoreError> {
        let inner = &self.inner;
        if let Some(live) = inner.find(id) {
            return Ok(Some(live.operation()));
        }
        let mut operation = match load(&*inner.cx.store, id).await {
            Err(error) if error.is_unreadable() => return inner.stand_in(id, error).await.map(Some),
            Ok(None) if inner.is_open(id).await? => {
                return inner.stand_in(id, missing("operation", id)).await.map(Some);
            }
            loaded => loaded?,
        };
        if let Some(operation) = operation.as_mut().filter(|found| !found.state.has_ended()) {
            if let Some(why) = inner.unreadable().get(id) {
                // It is what belongs to it that can't be read.
                return Ok(Some(unreadable::quarantined(operation.clone(), why)));
            }
            operation.waiting_for = inner.waits_for_charge(&operation.endpoints());
        }
        Ok(operation)
    }

    /// The plan of an operation that this process works at.
    pub fn plan(&self, id: &OperationId) -> Option<Arc<Plan>> {
        self.inner.find(id).map(|live| Arc::clone(&live.plan))
    }

    /// The operations that ended last, at most so many, and all that are unfinished; the newest first.
    pub async fn list(&self, most: u32) -> Result<Vec<Operation>, StoreError> {
        let mut operations = self.unfinished().await?;
        let found = self
            .inner
            .cx
            .store
            .written(Operation::KIND, Order::LatestFirst, most);
        let found = found.await?;
        // What can't be read is open, and told as such; or it has ended, and what became of it is not known here.
        let ended = found
            .iter()
            .filter_map(|found| Versioned::<Operation>::parse(found).ok());
        let ended = ended.map(|found| found.value);
        // One that has ended since we looked is told as it was then.
        let known: BTreeSet<OperationId> = operations.iter().map(|known| known.id.clone()).collect();
        operations.extend(ended.filter(|ended| ended.state.has_ended() && !known.contains(&ended.id)));
        newest_first(&mut operations);
        Ok(operations)
    }

    /// The operations that have not ended, the newest first.
    pub async fn unfinished(&self) -> Result<Vec<Operation>, StoreError> {
        let mut operations = Vec::new();
        for id in self.inner.cx.store.open_operations().await? {
            operations.extend(self.get(&id).await?);
        }
        newest_first(&mut operations);
        Ok(operations)
    }

    /// Forgets what is over and was kept for long enough. `with` are kinds of documents of the caller that have
    /// the id of an operation: they go with it.
    pub async fn prune(&self, now: Timestamp, with: &[&str]) -> Result<Pruned, StoreError> {
        retention::prune(&*self.inner.cx.store, now, with).await
    }

    /// The alarms of operations that have not ended.
    pub async fn alarms(&self) -> Result<Vec<(OperationId, Alarm)>, StoreError> {
        let mut alarms = Vec::new();
        for id in self.inner.cx.store.open_operations().await? {
            // Not copied: there may be a thousand of them, with as many steps.
            let alarm = match self.inner.find(&id) {
                Some(live) => live.ask(|operation| operation.alarm.clone()),
                None => self.get(&id).await?.and_then(|operation| operation.alarm),
            };
            alarms.extend(alarm.map(|alarm| (id, alarm)));
        }
        Ok(alarms)
    }

    /// Whether anybody uses these GPUs, or their host should know and does not say. A host that can't know says no.
    pub async fn is_in_use(&self, target: &Target) -> bool {
        self.in_use_by(target).await.is_some()
    }

    /// The same, with who it is, for people.
    pub async fn in_use_by(&self, target: &Target) -> Option<String> {
        let used = crate::host::used(&self.inner.cx, target).await.err();
        used.map(|error| error.to_string())
    }

    /// Which units are in the hands of which operations.
    pub async fn claims(&self) -> Result<Vec<Claim>, StoreError> {
        let claims = read_all::<Claim>(&*self.inner.cx.store).await?;
        Ok(claims.into_iter().map(|claim| claim.value).collect())
    }

    /// Waits until the operation has ended or is quarantined, or until the deadline, and tells how it is
    /// then. `None` where there is none.
    pub async fn wait(&self, id: &OperationId, deadline: Duration) -> Result<Option<Operation>, StoreError> {
        // "For ever" must not overflow.
        const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
        let deadline = tokio::time::Instant::now() + deadline.min(LONGEST);
        if let Some(live) = self.inner.find(id) {
            // Whether it settled or not: the caller sees the state.
            let _ = tokio::time::timeout_at(deadline, live.settled_here()).await;
        }
        loop {
            let operation = self.get(id).await?;
            let over = operation.as_ref().is_none_or(Operation::is_settled);
            let now = tokio::time::Instant::now();
            if over || now >= deadline {
                return Ok(operation);
            }
            // Another manager works at it: the store tells.
            tokio::time::sleep_until(deadline.min(now + self.inner.cx.options.first_pause)).await;
        }
    }

    /// Stops an operation and undoes what it did. When this returns, nothing new begins.
    pub async fn cancel(&self, id: &OperationId, by: &str, reason: &str) -> Result<(), CancelError> {
        let stop = Stop::cancelled(by, reason);
        let Some(live) = self.inner.find(id) else {
            let ended = self.get(id).await?;
            let open = ended
                .as_ref()
                .is_some_and(|operation| !operation.state.has_ended());
            if open && self.inner.cx.charge.is_shared() {
                if self.inner.cancel_apart(id, &stop).await? {
                    return Ok(());
                }
                let (by, reason) = (by.to_owned(), reason.to_owned());
                return Ok(self.order(id, Wish::Cancel { by, reason }).await?);
            }
            return Err(ended.map_or_else(
                || CancelError::NotFound(id.clone()),
                |operation| CancelError::TooLate {
                    operation: id.clone(),
                    state: operation.state,
                },
            ));
        };
        let entry = Entry {
            lines: vec![Line::Unwind(stop)],
            changes: vec![],
            begins: Begins::Step,
            proof: None,
        };
        match live.write(entry).await {
            Ok(()) => Ok(()),
            Err(Halt::Stopped) => Err(CancelError::TooLate {
                operation: id.clone(),
                state: live.ask(|operation| operation.state),
            }),
            Err(halt) => Err(CancelError::Halted(ResolveError::from(halt).to_string())),
        }
    }

    /// Brings an indeterminate or quarantined operation to an end, as an operator says who looked.
    pub async fn resolve(&self, id: &OperationId, wish: Resolve) -> Result<(), ResolveError> {
        let Some(live) = self.inner.find(id) else {
            return self.resolve_elsewhere(id, wish).await;
        };
        let inner = Arc::clone(&self.inner);
        detached(async move { Inner::resolve(&inner, live, wish).await }).await
    }

    /// Begins nothing more, waits until what was sent is answered and written down, at most until the
    /// deadline, and ends. Open operations go on with the next [`Executor::recover`]. Tells whether all was answered.
    pub async fn shutdown(&self, deadline: Duration) -> bool {
        self.inner.closing.store(true, Ordering::SeqCst);
        let mut tasks = Vec::new();
        for worker in self.inner.workers().values_mut() {
            worker.live.park();
            tasks.extend(worker.task.take());
        }
        let all = futures_util::future::join_all(tasks.iter_mut());
        let answered = tokio::time::timeout(deadline, all).await.is_ok();
        if !answered {
            tracing::warn!("some operations were cut off; they are read back at the next start");
        }
        for task in &tasks {
            task.abort();
        }
        answered
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.inner.closing.store(true, Ordering::SeqCst);
        for worker in self.inner.workers().values() {
            worker.live.park();
            if let Some(task) = &worker.task {
                task.abort();
            }
        }
    }
}

impl Inner {
    fn workers(&self) -> MutexGuard<'_, BTreeMap<OperationId, Worker>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, id: &OperationId) -> Option<Arc<Live>> {
        self.workers().get(id).map(|worker| Arc::clone(&worker.live))
    }

    fn elsewhere(&self) -> MutexGuard<'_, BTreeMap<OperationId, Apart>> {
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the task that works at the operation.
    fn work(inner: &Arc<Self>, live: Arc<Live>) {
        let mut workers = inner.workers();
        if inner.closing.load(Ordering::SeqCst) {
            live.park();
        } else {
            live.unpark();
        }
        let span = live.span().clone();
        let task = tokio::spawn(look_after(Arc::clone(inner), Arc::clone(&live)).instrument(span));
        let id = live.id.clone();
        let task = Some(task);
        let gives_way = false;
        workers.insert(
            id,
            Worker {
                live,
                task,
                gives_way,
            },
        );
    }

    /// The store did not say whether an operation was begun: asks it. Where it does not answer that either, or
    /// comes to another answer in a moment, the operation goes on from there; the caller does not wait for it.
    async fn find_out(
        inner: &Arc<Self>,
        id: OperationId,
        error: StoreError,
    ) -> Result<OperationId, SubmitError> {
        let error = match Self::adopt_if_begun(inner, &id).await {
            Ok(true) => return Ok(id),
            Ok(false) => SubmitError::Store(error),
            Err(_) => SubmitError::Unknown {
                operation: id.clone(),
                error,
            },
        };
        // It ends with the executor.
        let (asker, wanted) = (Arc::downgrade(inner), id.clone());
        let options = inner.cx.options.clone();
        tokio::spawn(async move {
            let mut pauses = options.pauses();
            let until = tokio::time::Instant::now() + options.settle;
            loop {
                tokio::time::sleep(pauses.next().unwrap_or(options.last_pause)).await;
                let Some(asker) = asker.upgrade() else { return };
                if asker.closing.load(Ordering::SeqCst) {
                    return;
                }
                match Self::adopt_if_begun(&asker, &wanted).await {
                    Ok(false) if tokio::time::Instant::now() < until => {}
                    Err(StoreError::Unavailable { .. }) => {}
                    Ok(_) => return,
                    Err(error) => {
                        tracing::error!(operation = %wanted, %error, "it was begun, and can't be read");
                        return;
                    }
                }
            }
        });
        Err(error)
    }

    /// Works at the operation if the store has it.
    async fn adopt_if_begun(inner: &Arc<Self>, id: &OperationId) -> Result<bool, StoreError> {
        if inner.find(id).is_some() {
            return Ok(true);
        }
        if load(&*inner.cx.store, id).await?.is_none() {
            return Ok(false);
        }
        Self::take_up(inner, id).await?;
        Ok(true)
    }

    async fn resolve(inner: &Arc<Self>, live: Arc<Live>, wish: Resolve) -> Result<(), ResolveError> {
        let state = live.ask(|operation| operation.state);
        match (state, wish.resolution) {
            (OperationState::Indeterminate, Resolution::Retry) => {
                live.hurry();
                Ok(())
            }
            (OperationState::Quarantined, Resolution::Retry) => {
                let entry = Entry {
                    lines: vec![Line::Retried {
                        by: wish.by,
                        reason: wish.reason,
                    }],
                    changes: vec![],
                    begins: Begins::Nothing,
                    proof: None,
                };
                live.write(entry).await?;
                Self::work(inner, live);
                Ok(())
            }
            (
                OperationState::Indeterminate | OperationState::Quarantined,
                Resolution::Accept { unreadable },
            ) => {
                // What it has in flight is waited for; then nobody but us works at it.
                live.park();
                inner.parked(&live.id).await;
                let accepted = resolve::accept(&inner.cx, &live, &wish, unreadable).await;
                // Ends at once where it was accepted; else it goes on as before.
                Self::work(inner, live);
                accepted
            }
            (state, _) => Err(ResolveError::NotNeeded {
                operation: live.id.clone(),
                state,
            }),
        }
    }

    /// Waits until nobody works at the operation.
    async fn parked(&self, id: &OperationId) {
        let task = self.workers().get_mut(id).and_then(|worker| worker.task.take());
        if let Some(task) = task {
            // However it ended: it is over.
            let _ = task.await;
        }
    }
}

fn newest_first(operations: &mut [Operation]) {
    operations.sort_by(|a, b| (b.created, &b.id).cmp(&(a.created, &a.id)));
}

/// Lets something finish even if nobody waits for it any more: a client that hangs up leaves nothing
/// half done.
async fn detached<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    match tokio::spawn(work).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime is going down, and whoever waits here with it.
        Err(_) => std::future::pending().await,
    }
}

/// Works at one operation. A panic ends the step that it happened in, not the process and not the
/// operation: it goes on from the journal, as after a crash.
async fn look_after(inner: Arc<Inner>, live: Arc<Live>) {
    let mut pauses = inner.cx.options.pauses();
    loop {
        match AssertUnwindSafe(run(&inner.cx, &live)).catch_unwind().await {
            Ok(Ok(()) | Err(Halt::Parked)) => break,
            Ok(Err(Halt::Stopped)) => {}
            Ok(Err(Halt::Fenced { message, .. })) => {
                tracing::error!(operation = %live.id, message, "left to whoever wrote it");
                inner.workers().remove(&live.id);
                live.leave();
                return;
            }
            Ok(Err(Halt::Broken(message))) => {
                tracing::error!(operation = %live.id, message, "an operation can't go on; this is a mistake of ours");
                live.show_all(format!(
                    "somebody who looks into a mistake of Poolwright's: {message}"
                ));
                return;
            }
            Err(_) => {
                tracing::error!(operation = %live.id, "a panic in an operation; it is carried on");
                // Steps that were cut off may have left lines behind that are still to be written.
                live.written().await;
            }
        }
        let pause = pauses.next().unwrap_or(inner.cx.options.last_pause);
        if live.pause(pause, None).await.is_err() {
            return;
        }
    }
    if live.ask(|operation| operation.state.has_ended()) {
        inner.workers().remove(&live.id);
    }
}
