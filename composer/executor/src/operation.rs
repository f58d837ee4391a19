//! An operation: the run of one plan, and how far it is.
//!
//! The journal is the truth. An operation in the store is what it was when its document was last written
//! (at submission, and at its end) plus the journal lines since; `Operation::apply` adds a line. The
//! running operation in memory is made by the same function from the same lines.

use crate::alarm::{Alarm, Severity};
use crate::left_out::LeftOut;
use crate::line::{Line, Noted, StepLine};
use crate::state::{IllegalTransition, OperationEvent, OperationState, StepState};
use jiff::Timestamp;
use poolwright_model::id::{ControlEndpointId, OperationId, PlanId, TenantId, UnitId};
use poolwright_model::step::{Step, Target, Verb};
use poolwright_store::Stored;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// What somebody wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum OperationKind {
    /// A plan for all demands.
    Apply,
    Compose,
    Release,
    Attach,
    Detach,
    /// Detached and attached in one: from one host to another, or one GPU for another.
    Move,
    /// A schedule's recomposition.
    Schedule,
    /// Letting go of what a late request of a manager before had bound.
    Late,
    /// The contrary of an operation that is completed.
    Undo,
    /// Taking over what somebody else bound: it reads back, and sends nothing.
    Adopt,
    /// Binding again what a composition holds and its fabric lost.
    Repair,
    /// A job of the queue that gets its GPUs, or lets go of them.
    Queue,
    /// Attaching ahead what is expected to be wanted, or letting go of what was kept for it.
    Keep,
    /// Nothing that is ever begun: what is shown of an operation that can't be read.
    Unreadable,
}

impl OperationKind {
    /// Whether it runs by itself, and not because somebody asked for it just then.
    pub fn is_automatic(self) -> bool {
        matches!(
            self,
            Self::Schedule | Self::Repair | Self::Late | Self::Queue | Self::Keep
        )
    }

    /// Whether one of this kind may be asked to go on without what fails. What lets go of all that a demand holds, or
    /// puts things back as they were, is nothing by halves; nor is what runs by itself, which is tried again.
    pub fn may_be_partial(self) -> bool {
        matches!(
            self,
            Self::Apply | Self::Compose | Self::Attach | Self::Detach | Self::Move
        )
    }

    /// The register of operations: what is in here is swept by the tests, with a fault at every step.
    pub const ALL: [Self; 13] = [
        Self::Apply,
        Self::Compose,
        Self::Release,
        Self::Attach,
        Self::Detach,
        Self::Move,
        Self::Schedule,
        Self::Late,
        Self::Undo,
        Self::Adopt,
        Self::Repair,
        Self::Queue,
        Self::Keep,
    ];
}

/// The run of one plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Operation {
    pub id: OperationId,
    pub kind: OperationKind,
    pub plan: PlanId,
    /// For whom, where it is for one tenant.
    pub tenant: Option<TenantId>,
    /// Who asked: a user, or the name of a schedule.
    pub by: String,
    /// The same key again is the same operation.
    pub key: Option<String>,
    /// Why GPUs may be pulled although they are in use.
    pub force: Option<String>,
    /// What is not done by then is undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// It was allowed to rest on what had been seen some time before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_stale: bool,
    /// A part of it is better than nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial_ok: bool,
    pub created: Timestamp,
    pub ended: Option<Timestamp>,
    pub state: OperationState,
    /// When it came into that state; `None` in what was written before that was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Why it is being undone, or was.
    pub stop: Option<Stop>,
    /// What it goes on without; only where a part was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// Somebody must look, or had to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alarm: Option<Alarm>,
    /// What it waits for just now, where that is not a matter of one step.
    pub waiting_for: Option<String>,
    pub steps: Vec<StepRecord>,
    /// Where several managers share a store: the endpoints at which hosts may be made to let go of GPUs. All of them are
    /// to see the same, whoever has looked at which host, so it is said once and for all.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub hosts_at: BTreeSet<ControlEndpointId>,
    /// Resets beside the steps, of units that it gives back: the last line of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clean_ups: Vec<StepLine>,
    /// The number of the last journal line in here.
    pub seq: u64,
}

/// Why an operation is undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stop {
    pub cause: StopCause,
    /// What failed, where and why; or the reason given.
    pub message: String,
}

impl Stop {
    /// It was to be done by then, and was not.
    pub(crate) fn too_late(deadline: Option<Timestamp>) -> Self {
        let by = deadline
            .map(|deadline| format!(" by {deadline}"))
            .unwrap_or_default();
        Self {
            cause: StopCause::Deadline,
            message: format!("it was not done{by}, as was asked"),
        }
    }

    /// Somebody wants it undone, with or without a reason.
    pub(crate) fn cancelled(by: &str, reason: &str) -> Self {
        let message = match reason.trim() {
            "" => format!("cancelled by {by}"),
            reason => format!("cancelled by {by}: {reason}"),
        };
        Self {
            cause: StopCause::Cancelled(by.to_owned()),
            message,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum StopCause {
    /// The step with this index.
    Failed(u32),
    /// By whom.
    Cancelled(String),
    /// It was not done in time.
    Deadline,
}

/// A step, and how far it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepRecord {
    #[serde(flatten)]
    pub step: Step,
    /// Whose composition it is for.
    pub tenant: Option<TenantId>,
    pub state: StepState,
    /// How often the hardware was asked to do it; while undoing, to undo it.
    pub attempts: u32,
    /// It failed, but a request whose outcome nobody knew may still have its effect.
    pub unsure: bool,
    /// The task in which the service still goes on with what was asked: until it has ended, that may come true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Which start of the host it was done under, where the host says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    /// What was seen, and by whom.
    pub evidence: Option<String>,
    pub error: Option<String>,
    pub waiting_for: Option<String>,
}

impl Stored for Operation {
    const KIND: &'static str = "operation";
    fn id(&self) -> &str {
        self.id.as_str()
    }
}

impl StepRecord {
    pub(crate) fn new(step: Step, tenant: Option<TenantId>) -> Self {
        Self {
            step,
            tenant,
            state: StepState::Pending,
            attempts: 0,
            unsure: false,
            task: None,
            boot: None,
            evidence: None,
            error: None,
            waiting_for: None,
        }
    }

    /// Whether it has bound or unbound GPUs, or may have; it may have been undone since.
    pub fn has_moved(&self) -> bool {
        matches!(self.step.verb, Verb::Bind | Verb::Unbind)
            && (self.needs_undo() || matches!(self.state, StepState::Undone | StepState::Stuck))
    }

    /// Whether something out there may be different because of it, and is to be put back.
    pub(crate) fn needs_undo(&self) -> bool {
        self.step.verb.has_effect()
            && match self.state {
                StepState::Running | StepState::Done | StepState::Indeterminate | StepState::Undoing => true,
                // Where it was known before that nobody there can do it, nobody was asked.
                StepState::NotPossible => self.attempts > 0,
                StepState::Failed => self.unsure,
                StepState::Pending | StepState::Skipped | StepState::Undone | StepState::Stuck => false,
            }
    }
}

/// A line that doesn't fit: a mistake of ours, or a journal that somebody else wrote into.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    #[error(transparent)]
    Operation(#[from] IllegalTransition),
    #[error("step {index} is {from} and can't become {to}")]
    Step {
        index: u32,
        from: StepState,
        to: StepState,
    },
    #[error("there is no step {0}")]
    NoStep(u32),
}

impl Operation {
    /// The step with this index. Steps stand at the place that their index says; submission checks it.
    pub fn step(&self, index: u32) -> Option<&StepRecord> {
        self.steps.get(index as usize)
    }

    /// The step that does this to a unit at a host's port.
    pub(crate) fn step_of(&self, verb: Verb, target: &Target) -> Option<&StepRecord> {
        self.steps.iter().find(|record| {
            let of = &record.step.target;
            record.step.verb == verb && of.unit == target.unit && of.host_port == target.host_port
        })
    }

    /// All units that it has in hand.
    pub fn units(&self) -> BTreeSet<&UnitId> {
        self.steps.iter().map(|record| &record.step.target.unit).collect()
    }

    /// The control endpoints at which it binds, unbinds and resets, and at which hosts are made to let go of GPUs.
    pub fn endpoints(&self) -> BTreeSet<ControlEndpointId> {
        let targets = self.steps.iter().map(|record| &record.step.target);
        let fabrics = targets.map(|target| &target.unit_at.endpoint);
        fabrics.chain(&self.hosts_at).cloned().collect()
    }

    /// Nothing was begun yet, as far as the journal has it; what only looked may have been.
    pub(crate) fn is_untouched(&self) -> bool {
        let mut steps = self.steps.iter();
        steps.all(|record| record.state == StepState::Pending)
    }

    /// Nothing happens to it any more by itself.
    pub fn is_settled(&self) -> bool {
        self.state.has_ended() || self.state == OperationState::Quarantined
    }

    /// How long it is in its state beyond what is usual; `None` where it is not.
    pub fn late_by(&self, now: Timestamp) -> Option<Duration> {
        let usual = self.state.usual()?;
        let since = self.since.unwrap_or(self.created);
        let in_state = Duration::try_from(now.duration_since(since)).ok()?;
        in_state.checked_sub(usual).filter(|late| !late.is_zero())
    }

    /// How long it may still be in its state before that is unusual; `None`: for ever.
    pub(crate) fn leaves_within(&self, now: Timestamp) -> Option<Duration> {
        let since = self.since.unwrap_or(self.created);
        // A clock that was set back says nothing.
        let in_state = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        Some(self.state.usual()?.saturating_sub(in_state))
    }

    fn raise(&mut self, at: Timestamp, severity: Severity, message: String) {
        if self.alarm.as_ref().is_none_or(|alarm| alarm.severity < severity) {
            self.alarm = Some(Alarm {
                at,
                severity,
                message,
            });
        }
    }

    /// Everything that it waits for just now, for people.
    pub fn waits(&self) -> Vec<String> {
        let steps = self.steps.iter().filter_map(|record| record.waiting_for.clone());
        self.waiting_for.iter().cloned().chain(steps).collect()
    }

    /// What went wrong, for people; `None` where nothing did.
    pub fn error(&self) -> Option<String> {
        let is_open = |state| matches!(state, StepState::Stuck | StepState::Indeterminate);
        let steps = self.steps.iter().map(|record| (record.state, &record.error));
        let clean_ups = self.clean_ups.iter().map(|line| (line.state, &line.error));
        let stuck = steps.chain(clean_ups);
        let stuck = stuck.filter_map(|(state, error)| error.clone().filter(|_| is_open(state)));
        let left_out = self.left_out.iter().filter(|_| self.stop.is_none());
        let left_out = left_out.map(|left| format!("without {}: {}", left.unit, left.why));
        let messages: Vec<_> = self
            .stop
            .iter()
            .map(|stop| stop.message.clone())
            .chain(left_out)
            .chain(stuck)
            .collect();
        (!messages.is_empty()).then(|| messages.join("; "))
    }

    /// Whether its first step on the unit takes it from the pool (bind), rather than letting go of it.
    pub(crate) fn takes(&self, unit: &UnitId) -> bool {
        let verbs = self.steps.iter().filter(|r| r.step.target.unit == *unit);
        verbs
            .map(|record| record.step.verb)
            .find(|verb| matches!(verb, Verb::Bind | Verb::Unbind | Verb::Drain))
            == Some(Verb::Bind)
    }

    /// Adds a journal line.
    pub(crate) fn apply(&mut self, noted: &Noted) -> Result<(), Misfit> {
        match &noted.line {
            Line::Submitted | Line::Adopted => {}
            Line::Started => self.happen(OperationEvent::Started, noted.at)?,
            Line::Step(line) => self.apply_step(line)?,
            Line::CleanUp(line) => self.apply_clean_up(line)?,
            Line::Unwind(stop) => {
                // The first reason stays the reason.
                self.stop.get_or_insert_with(|| stop.clone());
                if self.state != OperationState::Unwinding {
                    self.happen(OperationEvent::Unwind, noted.at)?;
                }
            }
            Line::LeftOut { units } => {
                let known = self.units_left_out();
                // The first reason stays the reason.
                let new = units.iter().filter(|left| !known.contains(&left.unit));
                self.left_out.extend(new.cloned());
            }
            Line::Overdue { message } => self.raise(noted.at, Severity::Warning, message.clone()),
            Line::Quarantined => {
                self.happen(OperationEvent::UndoFailed, noted.at)?;
                let message = self.error().unwrap_or_else(|| "an undo failed".to_owned());
                self.raise(noted.at, Severity::Critical, message);
            }
            Line::Retried { .. } => {
                for record in &mut self.steps {
                    if record.state == StepState::Stuck {
                        (record.state, record.attempts) = (StepState::Undoing, 0);
                    }
                }
                let event = match self.stop {
                    Some(_) => OperationEvent::Unwind,
                    None => OperationEvent::GoOn,
                };
                self.happen(event, noted.at)?;
            }
            Line::Completed => self.end(OperationEvent::AllDone, noted.at)?,
            Line::RolledBack => {
                let asked = self
                    .stop
                    .as_ref()
                    .is_some_and(|stop| matches!(stop.cause, StopCause::Cancelled(_)));
                let event = if asked {
                    OperationEvent::AllUndoneOnRequest
                } else {
                    OperationEvent::AllUndone
                };
                self.end(event, noted.at)?;
            }
            Line::Accepted { .. } => self.end(OperationEvent::Accepted, noted.at)?,
        }
        self.settle(noted.at)?;
        self.seq += 1;
        Ok(())
    }

    fn apply_step(&mut self, line: &StepLine) -> Result<(), Misfit> {
        let record = self
            .steps
            .get_mut(line.index as usize)
            .ok_or(Misfit::NoStep(line.index))?;
        if !record.state.may_become(line.state) {
            return Err(Misfit::Step {
                index: line.index,
                from: record.state,
                to: line.state,
            });
        }
        record.state = line.state;
        record.attempts = line.attempts;
        record.unsure = line.unsure;
        record.task.clone_from(&line.task);
        record.boot.clone_from(&line.boot);
        // What failed stays to be seen while it is undone, and after.
        if line.error.is_some() || !matches!(line.state, StepState::Undoing | StepState::Undone) {
            record.error.clone_from(&line.error);
        }
        record.waiting_for = None;
        if line.evidence.is_some() {
            record.evidence.clone_from(&line.evidence);
        }
        Ok(())
    }

    fn apply_clean_up(&mut self, line: &StepLine) -> Result<(), Misfit> {
        let record = self
            .steps
            .get_mut(line.index as usize)
            .ok_or(Misfit::NoStep(line.index))?;
        record.waiting_for = None;
        self.clean_ups.retain(|known| known.index != line.index);
        self.clean_ups.push(line.clone());
        Ok(())
    }

    /// The reset beside the step with this index, as far as it is.
    pub(crate) fn clean_up(&self, index: u32) -> Option<&StepLine> {
        self.clean_ups.iter().find(|line| line.index == index)
    }

    /// An operation is indeterminate for as long as one of its steps is, or a reset beside them.
    fn settle(&mut self, at: Timestamp) -> Result<(), IllegalTransition> {
        let steps = self.steps.iter().map(|record| record.state);
        let mut states = steps.chain(self.clean_ups.iter().map(|line| line.state));
        let unknown = states.any(|state| state == StepState::Indeterminate);
        match (self.state, unknown) {
            (OperationState::Running | OperationState::Unwinding, true) => {
                self.happen(OperationEvent::OutcomeUnknown, at)
            }
            (OperationState::Indeterminate, false) if self.stop.is_some() => {
                self.happen(OperationEvent::Unwind, at)
            }
            (OperationState::Indeterminate, false) => self.happen(OperationEvent::OutcomeRead, at),
            _ => Ok(()),
        }
    }

    fn happen(&mut self, event: OperationEvent, at: Timestamp) -> Result<(), IllegalTransition> {
        let state = self.state.next(event)?;
        if state != self.state {
            self.since = Some(at);
        }
        self.state = state;
        Ok(())
    }

    fn end(&mut self, event: OperationEvent, at: Timestamp) -> Result<(), IllegalTransition> {
        self.happen(event, at)?;
        self.ended = Some(at);
        self.waiting_for = None;
        for record in &mut self.steps {
            record.waiting_for = None;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancellation_without_a_reason_gives_none() {
        assert_eq!(Stop::cancelled("admin", " ").message, "cancelled by admin");
        assert_eq!(
            Stop::cancelled("admin", "wrong host").message,
            "cancelled by admin: wrong host"
        );
    }
}
