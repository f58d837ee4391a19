//! An executor on a fake rack, and the questions that every test asks at the end.

use crate::leased::Leased;
use crate::plans::attach;
use crate::rack::{Call, How, Rack, Wiring};
use jiff::Timestamp;
use poolwright_executor::{
    Alone, Charge, Claim, Clock, CompositionRecord, Executor, GpuRecord, Hooks, Key, Operation,
    OperationKind, OperationState, Options, Submission, SubmitError,
};
use poolwright_model::id::OperationId;
use poolwright_model::lifecycle::GpuState;
use poolwright_planner::Plan;
use poolwright_store::{Batch, SqliteStore, Store, read, read_all};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Long enough for everything, on a clock that jumps.
pub const FOREVER: Duration = Duration::from_secs(1_000_000);

struct Noon;

impl Clock for Noon {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }
}

pub struct Kit {
    pub store: Arc<dyn Store>,
    pub rack: Arc<Rack>,
    pub options: Options,
    pub clock: Arc<dyn Clock>,
    /// Managers that take over from each other; `None`: there is only one.
    pub leased: Option<Arc<Leased>>,
}

impl Kit {
    pub fn new() -> Self {
        Self::with(Rack::new())
    }

    pub fn with(rack: Rack) -> Self {
        Self {
            store: Arc::new(SqliteStore::in_memory().unwrap()),
            rack: Arc::new(rack),
            options: Options::default(),
            clock: Arc::new(Noon),
            leased: None,
        }
    }

    /// Several managers share the store from now on, one of which is in charge.
    pub async fn share(&mut self) {
        self.leased = Some(Leased::first(&self.store).await);
    }

    /// Where there are several managers another one is in charge from here on, whatever became of the one before.
    pub async fn taken_over(&self) {
        if let Some(leased) = &self.leased {
            leased.take_over(self.options.longest_write()).await;
        }
    }

    pub fn executor(&self) -> Executor {
        self.executor_with(Arc::new(()))
    }

    pub fn executor_with(&self, hooks: Arc<dyn Hooks>) -> Executor {
        let charge: Arc<dyn Charge> = match &self.leased {
            Some(leased) => Arc::new(leased.manager()),
            None => Arc::new(Alone),
        };
        Executor::with_charge(
            Arc::clone(&self.store),
            Arc::new(Wiring(Arc::clone(&self.rack))),
            charge,
            Arc::clone(&self.clock),
            self.options.clone(),
            hooks,
        )
    }

    /// Runs a plan that must succeed: how a test gets to where it begins.
    pub async fn given(&self, plan: Plan) {
        let done = run(&self.executor(), plan).await;
        assert_eq!(done.state, OperationState::Completed, "{:?}", done.error());
    }

    pub async fn gpu(&self, gpu: &str) -> GpuRecord {
        read::<GpuRecord>(&*self.store, gpu).await.unwrap().unwrap().value
    }

    pub async fn compositions(&self) -> BTreeMap<String, CompositionRecord> {
        let all = read_all::<CompositionRecord>(&*self.store).await.unwrap();
        all.into_iter()
            .map(|record| (record.value.composition.id.to_string(), record.value))
            .collect()
    }

    /// What must hold whenever nothing is running: the records, the compositions and the fabric tell one
    /// story, nothing is held by nobody, and nothing was asked for that never should be.
    pub async fn all_is_well(&self) {
        assert_eq!(self.rack.sins(), Vec::<String>::new());
        assert!(
            self.store.open_operations().await.unwrap().is_empty(),
            "an operation is open"
        );
        let claims = read_all::<Claim>(&*self.store).await.unwrap();
        assert!(claims.is_empty(), "claims leaked: {claims:?}");
        let bindings = self.rack.bindings();
        for record in read_all::<GpuRecord>(&*self.store).await.unwrap() {
            let GpuRecord {
                gpu,
                state,
                clean,
                host_port,
                ..
            } = record.value;
            let bound = bindings.get(gpu.as_str()).cloned().unwrap_or_default();
            match state {
                GpuState::Free | GpuState::Dirty => assert!(bound.is_empty(), "{gpu} is {state}: {bound:?}"),
                GpuState::Bound | GpuState::Attached => {
                    assert_eq!(bound, [host_port.unwrap().to_string()], "{gpu} is {state}");
                }
                GpuState::Foreign => assert!(self.rack.is_of_others(gpu.as_str()), "{gpu} is {state}"),
                other => panic!("{gpu} is {other} while nothing runs"),
            }
            if clean {
                assert!(
                    !self.rack.is_dirty(gpu.as_str()),
                    "{gpu} is not as clean as it seems"
                );
            }
            assert!(!self.rack.is_drained(gpu.as_str()), "{gpu} was left drained");
        }
        let mut held = BTreeMap::new();
        for record in self.compositions().await.into_values() {
            for unit in record.composition.held {
                assert!(
                    record.evidence.contains_key(&unit.unit),
                    "no evidence for {}",
                    unit.unit
                );
                let twice = held.insert(unit.unit.to_string(), vec![unit.host_port.to_string()]);
                assert!(twice.is_none(), "{} is in two compositions", unit.unit);
            }
        }
        // What others bound may be theirs still, or taken over.
        let mut ours = bindings;
        ours.retain(|unit, _| held.contains_key(unit) || !self.rack.is_of_others(unit));
        assert_eq!(held, ours, "compositions (left) and fabric (right) differ");
    }
}

pub fn submission(plan: Plan) -> Submission {
    submission_of(OperationKind::Apply, plan)
}

pub fn submission_of(kind: OperationKind, plan: Plan) -> Submission {
    Submission {
        id: OperationId::new(format!("op-{}", plan.id)).unwrap(),
        kind,
        plan,
        tenant: None,
        by: "tester".to_owned(),
        key: None,
        force: None,
        deadline: None,
        allow_stale: false,
        partial_ok: false,
        with: Batch::new(),
    }
}

/// A key for a request that is told by these words.
pub fn key(key: &str, what: &str) -> Option<Key> {
    Some(Key::new(key, OperationKind::Apply, what.to_owned(), &what).unwrap())
}

/// Submits a plan and waits for its end.
pub async fn run(executor: &Executor, plan: Plan) -> Operation {
    run_as(OperationKind::Apply, executor, plan).await
}

/// A rack that answers so when it is asked to attach, and what came of it.
pub async fn attached_while(call: Call, how: How, times: u32) -> (Kit, Operation) {
    let kit = Kit::new();
    kit.rack.break_down(call, None, how, times);
    let done = run(&kit.executor(), attach()).await;
    (kit, done)
}

pub async fn run_as(kind: OperationKind, executor: &Executor, plan: Plan) -> Operation {
    let id = executor.submit(submission_of(kind, plan)).await.unwrap();
    ended(executor, &id).await
}

pub async fn ended(executor: &Executor, id: &OperationId) -> Operation {
    let operation = executor.wait(id, FOREVER).await.unwrap().unwrap();
    let settled = operation.state.has_ended() || operation.state == OperationState::Quarantined;
    assert!(settled, "{} waits for {:?}", operation.state, operation.waits());
    operation
}

/// Waits until the operation is as it should be; looks again whenever time went on.
pub async fn until(executor: &Executor, id: &OperationId, what: impl Fn(&Operation) -> bool) -> Operation {
    for _ in 0..100_000 {
        let operation = executor.get(id).await.unwrap().unwrap();
        if what(&operation) {
            return operation;
        }
        assert!(
            !operation.state.has_ended(),
            "ended as {}: {:?}",
            operation.state,
            operation.error()
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came");
}

pub fn is_claimed(error: &SubmitError) -> bool {
    matches!(error, SubmitError::Claimed { .. })
}
