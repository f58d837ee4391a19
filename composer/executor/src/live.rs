//! An operation while this process works at it: what is seen of it, and waiting for it.

use crate::charge::Tenure;
use crate::context::Context;
use crate::gpus::Gpus;
use crate::journal::{Journal, More};
use crate::ledger::{Entry, Halt};
use crate::observed::Observed;
use crate::operation::{Operation, StepRecord};
use crate::state::StepState;
use poolwright_model::id::{ControlEndpointId, OperationId};
use poolwright_planner::Plan;
use poolwright_store::StoreError;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tracing::Span;

type Proofs = BTreeMap<ControlEndpointId, Tenure>;

pub(crate) struct Live {
    pub id: OperationId,
    pub plan: Arc<Plan>,
    journal: Arc<Journal>,
    left: Observed<bool>,
    hurry: Notify,
    /// By what this manager was in charge of which endpoint when each step was intended.
    proofs: Mutex<BTreeMap<u32, Proofs>>,
}

impl Live {
    pub fn new(cx: &Context, operation: Operation, plan: Plan, gpus: Gpus) -> Self {
        Self {
            id: operation.id.clone(),
            plan: Arc::new(plan),
            journal: Arc::new(Journal::new(cx, operation, gpus)),
            left: Observed::new(false),
            hurry: Notify::new(),
            proofs: Mutex::default(),
        }
    }

    /// A step may be done at an endpoint by what puts this manager in charge of it now.
    pub fn prove(&self, index: u32, endpoint: &ControlEndpointId, tenure: Tenure) {
        let mut proofs = self.proofs();
        proofs.entry(index).or_default().insert(endpoint.clone(), tenure);
    }

    /// Nothing is proven for the step any more.
    pub fn prove_anew(&self, index: u32) {
        self.proofs().remove(&index);
    }

    pub fn proof(&self, index: u32, endpoint: &ControlEndpointId) -> Option<Tenure> {
        self.proofs().get(&index)?.get(endpoint).cloned()
    }

    fn proofs(&self) -> MutexGuard<'_, BTreeMap<u32, Proofs>> {
        // Each use leaves it whole.
        self.proofs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The parent of the log messages about the operation.
    pub fn span(&self) -> &Span {
        &self.journal.span
    }

    pub fn operation(&self) -> Operation {
        self.ask(Operation::clone)
    }

    /// Looks at the operation without copying it.
    pub fn ask<T>(&self, question: impl FnOnce(&Operation) -> T) -> T {
        self.journal.seen.look(question)
    }

    /// A step as it is now.
    pub fn step(&self, index: u32) -> Result<StepRecord, Halt> {
        self.ask(|operation| operation.step(index).cloned())
            .ok_or_else(|| Halt::Broken(format!("there is no step {index}")))
    }

    /// Asks about the GPUs that it has in hand.
    pub async fn ask_gpus<T>(&self, question: impl FnOnce(&Gpus) -> T) -> T {
        self.journal.ask_gpus(question).await
    }

    /// Writes lines, with what they mean for GPUs and for whoever listens.
    pub async fn write(&self, entry: Entry) -> Result<(), Halt> {
        self.journal.write(entry, None).await
    }

    /// Takes lines of which nothing outside depends, and that a restart would look into again: they are committed
    /// with the next.
    pub async fn carry(&self, entry: Entry) -> Result<(), Halt> {
        self.journal.carry(entry).await
    }

    /// [`Live::write`] with more in the same commit.
    pub async fn write_with(&self, entry: Entry, more: More) -> Result<(), Halt> {
        self.journal.write(entry, Some(more)).await
    }

    /// Waits until everything that was to be written is.
    pub async fn written(&self) {
        self.journal.commit_all().await;
    }

    /// Asks the store, however long it can't answer.
    pub async fn patiently<T, F>(&self, ask: impl Fn() -> F) -> Result<T, Halt>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        self.journal.patiently(ask).await
    }

    /// Says what a step waits for. Not worth a journal line: it is gone after a restart.
    pub fn show(&self, index: u32, waiting_for: Option<String>) {
        self.journal.seen.change(|operation| {
            if let Some(record) = operation.steps.get_mut(index as usize) {
                // A look has no intent in the journal; it runs from when it first waits.
                if record.state == StepState::Pending && !record.step.verb.has_effect() {
                    record.state = StepState::Running;
                }
                record.waiting_for = waiting_for;
            }
        });
    }

    /// Says what keeps a step from beginning, or from going on.
    pub fn hold_back(&self, index: u32, waiting_for: Option<String>) {
        self.journal.seen.change(|operation| {
            if let Some(record) = operation.steps.get_mut(index as usize) {
                record.waiting_for = waiting_for;
            }
        });
    }

    /// Says what the operation as a whole waits for.
    pub fn show_all(&self, waiting_for: String) {
        self.journal
            .seen
            .change(|operation| operation.waiting_for = Some(waiting_for));
    }

    /// No more steps begin, and waits end; what was sent is waited for and written down.
    pub fn park(&self) {
        self.journal.parked.change(|parked| *parked = true);
    }

    pub fn unpark(&self) {
        self.journal.parked.change(|parked| *parked = false);
    }

    /// Somebody else looks after it from here on.
    pub fn leave(&self) {
        self.left.change(|left| *left = true);
    }

    /// Waits until this process knows no more: the operation has ended, needs an operator, or was left
    /// to somebody else.
    pub async fn settled_here(&self) {
        tokio::select! {
            biased;
            () = self.journal.seen.until(Operation::is_settled) => {}
            () = self.left.until(|left| *left) => {}
        }
    }

    /// Waits until it is so.
    pub async fn until(&self, is_so: impl Fn(&Operation) -> bool) {
        self.journal.seen.until(is_so).await;
    }

    /// Cuts the current pauses short.
    pub fn hurry(&self) {
        self.hurry.notify_waiters();
    }

    /// Pauses; can be cut short.
    pub async fn pause(&self, pause: Duration, forward: Option<u32>) -> Result<(), Halt> {
        let paused = async {
            tokio::select! {
                biased;
                () = self.hurry.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        };
        self.unless_halted(forward, paused).await
    }

    /// Waits for something that changes nothing. Ends early where the operation is parked or, for a step that
    /// goes `forward`, where that is to be undone.
    pub async fn unless_halted<T>(
        &self,
        forward: Option<u32>,
        wait: impl Future<Output = T>,
    ) -> Result<T, Halt> {
        let Journal { parked, seen, .. } = &*self.journal;
        let turned = |operation: &Operation| forward.is_some_and(|index| operation.turns_back(index));
        tokio::select! {
            biased;
            () = parked.until(|parked| *parked) => Err(Halt::Parked),
            () = seen.until(turned), if forward.is_some() => Err(Halt::Stopped),
            result = wait => Ok(result),
        }
    }
}
