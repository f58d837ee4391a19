//! An operation while it is worked at: what is known of it, and the one way in which that changes.
//!
//! Everything that happens goes through [`Live::write`]: the line is made, checked against what is legal,
//! committed with the GPUs' states and the events, and only then true in memory. If the store can't be
//! written to, nothing goes on until it can.

use crate::context::Context;
use crate::event::Event;
use crate::gpus::{self, Change, Gpus};
use crate::line::{Line, Noted};
use crate::operation::{Operation, StepRecord};
use crate::state::StepState;
use poolwright_model::id::OperationId;
use poolwright_planner::Plan;
use poolwright_store::{Batch, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Notify, watch};

/// Why the work at an operation pauses or ends here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Halt {
    /// The operation is being undone: nothing new begins.
    Stopped,
    /// The process shuts down, or an operator steps in: everything is in the journal, to be carried on.
    Parked,
    /// Somebody else wrote what only this operation should: its journal, or the document of this kind.
    Fenced { kind: String, message: String },
    /// A mistake of ours; the operation stays as it is until somebody looks.
    Broken(String),
}

/// What is to be written together.
pub(crate) struct Entry {
    pub lines: Vec<Line>,
    /// What happens to which step's unit.
    pub changes: Vec<(u32, Change)>,
    pub begins: Begins,
}

/// Whether something new begins with an entry. If so, it is refused while the operation is parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begins {
    /// A step: refused once the operation is being undone.
    Step,
    /// An undo.
    Undo,
    /// Nothing; it says what was seen.
    Nothing,
}

pub(crate) struct Live {
    pub id: OperationId,
    pub plan: Arc<Plan>,
    seen: watch::Sender<Operation>,
    /// Held while something is being committed, so that lines stay in order.
    gpus: Mutex<Gpus>,
    parked: watch::Sender<bool>,
    left: watch::Sender<bool>,
    hurry: Notify,
}

impl Live {
    pub fn new(operation: Operation, plan: Plan, gpus: Gpus) -> Self {
        Self {
            id: operation.id.clone(),
            plan: Arc::new(plan),
            seen: watch::Sender::new(operation),
            gpus: Mutex::new(gpus),
            parked: watch::Sender::new(false),
            left: watch::Sender::new(false),
            hurry: Notify::new(),
        }
    }

    pub fn operation(&self) -> Operation {
        self.seen.borrow().clone()
    }

    /// Looks at the operation without copying it.
    pub fn ask<T>(&self, question: impl FnOnce(&Operation) -> T) -> T {
        question(&self.seen.borrow())
    }

    /// A step as it is now.
    pub fn step(&self, index: u32) -> Result<StepRecord, Halt> {
        self.ask(|operation| operation.step(index).cloned())
            .ok_or_else(|| Halt::Broken(format!("there is no step {index}")))
    }

    /// The GPUs that it has in hand.
    pub async fn gpus(&self) -> Gpus {
        self.gpus.lock().await.clone()
    }

    /// Says what a step waits for. Not worth a journal line: it is gone after a restart.
    pub fn show(&self, index: u32, waiting_for: Option<String>) {
        self.seen.send_modify(|operation| {
            if let Some(record) = operation.steps.get_mut(index as usize) {
                // A look has no intent in the journal; it runs from when it first waits.
                if record.state == StepState::Pending && !record.step.verb.has_effect() {
                    record.state = StepState::Running;
                }
                record.waiting_for = waiting_for;
            }
        });
    }

    /// Says what the operation as a whole waits for.
    pub fn show_all(&self, waiting_for: String) {
        self.seen
            .send_modify(|operation| operation.waiting_for = Some(waiting_for));
    }

    /// No more steps begin, and waits end; what was sent is waited for and written down.
    pub fn park(&self) {
        self.parked.send_replace(true);
    }

    pub fn unpark(&self) {
        self.parked.send_replace(false);
    }

    pub fn is_parked(&self) -> bool {
        *self.parked.borrow()
    }

    /// Somebody else looks after it from here on.
    pub fn leave(&self) {
        self.left.send_replace(true);
    }

    /// Waits until this process knows no more: the operation has ended, needs an operator, or was left
    /// to somebody else.
    pub async fn settled_here(&self) {
        let (mut seen, mut left) = (self.seen.subscribe(), self.left.subscribe());
        tokio::select! {
            _ = seen.wait_for(Operation::is_settled) => {}
            _ = left.wait_for(|left| *left) => {}
        }
    }

    /// Cuts the current pauses short.
    pub fn hurry(&self) {
        self.hurry.notify_waiters();
    }

    /// Pauses; can be cut short.
    pub async fn pause(&self, pause: Duration, forward: bool) -> Result<(), Halt> {
        let paused = async {
            tokio::select! {
                () = self.hurry.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        };
        self.unless_halted(forward, paused).await
    }

    /// Waits for something that changes nothing. Ends early where the operation is parked or, with
    /// `forward`, is to be undone.
    pub async fn unless_halted<T>(&self, forward: bool, wait: impl Future<Output = T>) -> Result<T, Halt> {
        let mut parked = self.parked.subscribe();
        let mut seen = self.seen.subscribe();
        tokio::select! {
            biased;
            _ = parked.wait_for(|parked| *parked) => Err(Halt::Parked),
            _ = seen.wait_for(|operation| operation.stop.is_some()), if forward => Err(Halt::Stopped),
            result = wait => Ok(result),
        }
    }

    /// Writes lines, with what they mean for GPUs and for whoever listens.
    pub async fn write(&self, cx: &Context, entry: Entry) -> Result<(), Halt> {
        self.write_with(cx, entry, |_, _| Ok(())).await
    }

    /// [`Live::write`] with more in the same commit; `more` is told the operation as it will be.
    pub async fn write_with(
        &self,
        cx: &Context,
        entry: Entry,
        more: impl FnOnce(&Operation, &mut Batch) -> Result<(), StoreError>,
    ) -> Result<(), Halt> {
        let mut held = self.gpus.lock().await;
        let before = self.operation();
        if before.state.has_ended() || (entry.begins == Begins::Step && before.stop.is_some()) {
            return Err(Halt::Stopped);
        }
        if entry.begins != Begins::Nothing && self.is_parked() {
            return Err(Halt::Parked);
        }
        let at = cx.clock.now();
        let noted: Vec<_> = entry.lines.into_iter().map(|line| Noted { at, line }).collect();
        let mut after = before;
        let mut batch = Batch::new();
        for line in &noted {
            add(&mut after, line, &mut batch)?;
        }
        let mut gpus = held.clone();
        for (index, change) in entry.changes {
            let Some(record) = after.step(index) else { continue };
            let of = gpus::Context {
                operation: &self.id,
                composition: record.step.composition.as_ref(),
                tenant: record.tenant.as_ref(),
                at,
            };
            for changed in gpus.change(&record.step.target, change, &of) {
                batch.put(&changed).map_err(broken)?;
            }
        }
        more(&after, &mut batch).map_err(broken)?;
        self.commit(cx, batch).await?;
        *held = gpus;
        self.seen.send_modify(|operation| {
            for line in &noted {
                // It was legal a moment ago, and only this function moves states.
                if let Err(error) = operation.apply(line) {
                    tracing::error!(operation = %self.id, %error, "memory and journal differ");
                }
            }
        });
        Ok(())
    }

    async fn commit(&self, cx: &Context, batch: Batch) -> Result<(), Halt> {
        self.patiently(cx, || cx.store.commit(batch.clone())).await?;
        Ok(())
    }

    /// Asks the store, however long it can't: what isn't written down isn't done.
    pub async fn patiently<T, F>(&self, cx: &Context, ask: impl Fn() -> F) -> Result<T, Halt>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut pauses = cx.options.pauses();
        loop {
            match ask().await {
                Ok(answer) => {
                    self.seen
                        .send_if_modified(|operation| operation.waiting_for.take().is_some());
                    return Ok(answer);
                }
                Err(StoreError::Conflict { kind, id, .. }) => {
                    let message = format!("{kind} {id} was written by somebody else");
                    return Err(Halt::Fenced { kind, message });
                }
                Err(error @ StoreError::Malformed { .. }) => return Err(broken(error)),
                Err(error @ StoreError::Unavailable { .. }) => {
                    tracing::warn!(operation = %self.id, %error, "waiting for the store");
                    self.show_all(format!("the store: {error}"));
                    let pause = pauses.next().unwrap_or(cx.options.last_pause);
                    self.pause(pause, false).await?;
                }
            }
        }
    }
}

/// Adds a line to the operation and to the batch, with the events that tell of it.
fn add(operation: &mut Operation, line: &Noted, batch: &mut Batch) -> Result<(), Halt> {
    let state = operation.state;
    operation
        .apply(line)
        .map_err(|misfit| Halt::Broken(misfit.to_string()))?;
    batch.line(&operation.id, operation.seq, line).map_err(broken)?;
    if let Line::Step(step) = &line.line
        && let Some(event) = Event::step(line.at, operation, step.index)
    {
        batch.event(&event).map_err(broken)?;
    }
    if operation.state != state {
        batch
            .event(&Event::operation(line.at, operation))
            .map_err(broken)?;
    }
    Ok(())
}

fn broken(error: StoreError) -> Halt {
    Halt::Broken(error.to_string())
}
