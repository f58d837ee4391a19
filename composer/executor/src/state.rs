//! The states of an operation and of its steps, and every legal transition: [`OperationState::next`] and
//! [`StepState::may_become`].
//!
//! ```text
//!                Started            AllDone
//!   Pending ──────────────► Running ────────► Completed
//!      │                    │  │  ▲
//!      │ Unwind      Unwind │  │  └──────── OutcomeRead ───────┐
//!      │                    │  └────────── OutcomeUnknown ───┐ │
//!      ▼                    ▼       OutcomeUnknown           ▼ │      Accepted
//!      └────────────────► Unwinding ────────────────► Indeterminate ──────────► Failed
//!                         │   │  ▲ ▲ ◄──────────── Unwind ──┘                     ▲
//!             AllUndone   │   │  │ └────────────── Unwind (an operator: try again) │
//!        (OnRequest)      │   │  └──────────────────────────┐                     │
//!   RolledBack ◄──────────┘   └─────── UndoFailed ──► Quarantined ──── Accepted ──┘
//!  (Cancelled)
//! ```
//!
//! Where a part was asked for, the undo of what is left out goes on beside the rest, in *Running*: if that undo fails
//! the operation is *Quarantined* once the rest is done, and goes on from there with the next try (*GoOn*).
//!
//! Invariants: *Indeterminate* (an outcome is unknown and can't be read back) and *Quarantined* (an undo
//! failed) hold what they hold. Neither is ever shown as an end, and time alone leads out of neither:
//! only a successful read does, or an operator. *Failed* is what an operator made of them.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Where an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum OperationState {
    /// In the journal, its units claimed; nothing done yet.
    Pending,
    Running,
    /// What was done is being undone.
    Unwinding,
    /// The outcome of a step is unknown and can't be read back yet. Both ends are held.
    Indeterminate,
    /// An undo failed; an operator must look. Both ends are held.
    Quarantined,
    /// Every goal holds, but for what it says that it left out.
    Completed,
    /// A step failed, and everything is as it was before.
    RolledBack,
    /// Somebody cancelled it, and everything is as it was before.
    Cancelled,
    /// Ended by an operator with things as the fabric showed them.
    Failed,
}

/// What happens to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OperationEvent {
    Started,
    AllDone,
    /// A step failed, somebody cancelled, or an operator says: try the undo again.
    Unwind,
    AllUndone,
    AllUndoneOnRequest,
    /// An outcome is unknown, and the fabric can't be read.
    OutcomeUnknown,
    /// No outcome is unknown any more.
    OutcomeRead,
    UndoFailed,
    /// An operator says: try the undo of what is left out again.
    GoOn,
    /// An operator ended it as it is.
    Accepted,
}

/// An event that can't happen in this state: a mistake of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an operation that is {state} can't have {event:?} happen to it")]
pub struct IllegalTransition {
    pub state: OperationState,
    pub event: OperationEvent,
}

impl OperationState {
    pub const ALL: [Self; 9] = [
        Self::Pending,
        Self::Running,
        Self::Unwinding,
        Self::Indeterminate,
        Self::Quarantined,
        Self::Completed,
        Self::RolledBack,
        Self::Cancelled,
        Self::Failed,
    ];

    /// The state after an event. The only place that knows what is legal.
    pub fn next(self, event: OperationEvent) -> Result<Self, IllegalTransition> {
        use OperationEvent as E;
        use OperationState as S;
        Ok(match (self, event) {
            (S::Pending, E::Started) => S::Running,
            (S::Running, E::AllDone) => S::Completed,

            (S::Running | S::Unwinding, E::OutcomeUnknown) => S::Indeterminate,
            (S::Indeterminate, E::OutcomeRead) => S::Running,

            (S::Pending | S::Running | S::Indeterminate | S::Quarantined, E::Unwind) => S::Unwinding,
            (S::Unwinding, E::AllUndone) => S::RolledBack,
            (S::Unwinding, E::AllUndoneOnRequest) => S::Cancelled,
            (S::Running | S::Unwinding, E::UndoFailed) => S::Quarantined,
            (S::Quarantined, E::GoOn) => S::Running,

            (S::Indeterminate | S::Quarantined, E::Accepted) => S::Failed,

            (state, event) => return Err(IllegalTransition { state, event }),
        })
    }

    /// Nothing happens to it any more, and it holds nothing.
    pub fn has_ended(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::RolledBack | Self::Cancelled | Self::Failed
        )
    }

    /// How long an operation is in it as a rule; what takes longer is told as late. `None`: for ever.
    ///
    /// A wide recomposition waits for hosts for minutes; half an hour is what a host takes to come up at the
    /// slowest (NVIDIA's infra-controller allows it that). An outcome that nobody knows for five minutes needs
    /// somebody, and an undo that failed at once.
    pub const fn usual(self) -> Option<Duration> {
        let minutes = match self {
            Self::Pending => 1,
            Self::Running => 30,
            Self::Unwinding => 15,
            Self::Indeterminate => 5,
            Self::Quarantined => 0,
            Self::Completed | Self::RolledBack | Self::Cancelled | Self::Failed => return None,
        };
        Some(Duration::from_secs(60 * minutes))
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Unwinding => "unwinding",
            Self::Indeterminate => "indeterminate",
            Self::Quarantined => "quarantined",
            Self::Completed => "completed",
            Self::RolledBack => "rolled-back",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for OperationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Where a step is.
///
/// ```text
///   Pending ──► Running ──► Done ──► Undoing ──► Undone
///      │         │  ▲ │                │  ▲ └──► Stuck (the undo failed)
///      │         ▼  │ └──► Failed      ▼  │
///      │    Indeterminate         Indeterminate
///      ├──► Skipped (the goal held already)   Running ──► NotPossible, and on from there as from Done
///      └──► Done, Failed (nothing had to be sent)
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum StepState {
    Pending,
    /// The intent is in the journal: it was sent, or is about to be.
    Running,
    /// The goal holds, by our doing.
    Done,
    /// The goal held already. Not ours to undo.
    Skipped,
    /// Nobody there can do it, and what follows can do without. Never shown as done; the evidence says who can't.
    NotPossible,
    Failed,
    /// Sent, and nobody knows what became of it.
    Indeterminate,
    /// The intent to undo it is in the journal.
    Undoing,
    /// It is as it was before.
    Undone,
    /// It can't be undone.
    Stuck,
}

impl StepState {
    pub const ALL: [Self; 10] = [
        Self::Pending,
        Self::Running,
        Self::Done,
        Self::Skipped,
        Self::NotPossible,
        Self::Failed,
        Self::Indeterminate,
        Self::Undoing,
        Self::Undone,
        Self::Stuck,
    ];

    /// The only place that knows what is legal.
    pub fn may_become(self, next: Self) -> bool {
        use StepState as S;
        match self {
            S::Pending => matches!(
                next,
                S::Running | S::Done | S::Skipped | S::NotPossible | S::Failed
            ),
            // Running again: asked a second time.
            S::Running => !matches!(next, S::Pending | S::Skipped),
            S::Done | S::NotPossible | S::Failed => {
                matches!(next, S::Undoing | S::Undone | S::Stuck | S::Indeterminate)
            }
            S::Indeterminate => !matches!(next, S::Pending | S::Skipped | S::Indeterminate),
            S::Undoing => matches!(next, S::Undoing | S::Undone | S::Stuck | S::Indeterminate),
            S::Stuck => matches!(next, S::Undoing),
            S::Skipped | S::Undone => false,
        }
    }

    /// Steps that come after it may begin.
    pub fn is_through(self) -> bool {
        matches!(self, Self::Done | Self::Skipped | Self::NotPossible)
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Done => "done",
            Self::Skipped => "skipped",
            Self::NotPossible => "not-possible",
            Self::Failed => "failed",
            Self::Indeterminate => "indeterminate",
            Self::Undoing => "undoing",
            Self::Undone => "undone",
            Self::Stuck => "stuck",
        }
    }
}

impl fmt::Display for StepState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use OperationEvent as E;
    use OperationState as S;

    const EVENTS: [E; 10] = [
        E::Started,
        E::AllDone,
        E::Unwind,
        E::AllUndone,
        E::AllUndoneOnRequest,
        E::OutcomeUnknown,
        E::OutcomeRead,
        E::UndoFailed,
        E::GoOn,
        E::Accepted,
    ];

    #[test]
    fn an_end_is_an_end_and_nothing_else_is_a_trap() {
        for state in S::ALL {
            let ways_out = EVENTS.iter().filter(|event| state.next(**event).is_ok()).count();
            assert_eq!(ways_out == 0, state.has_ended(), "{state}");
        }
    }

    #[test]
    fn what_is_unknown_or_stuck_is_never_shown_as_success() {
        for state in [S::Indeterminate, S::Quarantined] {
            for event in EVENTS {
                let next = state.next(event);
                assert!(!matches!(next, Ok(S::Completed | S::RolledBack | S::Cancelled)));
            }
        }
    }

    #[test]
    fn an_illegal_event_names_both() {
        let error = S::Completed.next(E::Unwind).unwrap_err();
        assert_eq!(
            error.to_string(),
            "an operation that is completed can't have Unwind happen to it"
        );
    }

    #[test]
    fn a_step_can_always_be_undone_once_something_may_have_been_sent() {
        for state in StepState::ALL {
            let sent = !matches!(state, StepState::Pending | StepState::Skipped | StepState::Undone);
            assert_eq!(sent, state.may_become(StepState::Undoing), "{state}");
        }
    }
}
