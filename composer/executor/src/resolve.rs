//! The way out of *Indeterminate* and *Quarantined* for an operator who looked.
//!
//! The fabric is read first, always. Only of what it can't say the operator's word is taken.

use crate::charge;
use crate::context::Context;
use crate::finish::{self, Truth};
use crate::ledger::Halt;
use crate::live::Live;
use crate::note::Way;
use crate::operation::StepRecord;
use crate::state::OperationState;
use poolwright_driver::Bound;
use poolwright_model::id::{OperationId, UnitId};
use poolwright_model::step::Verb;
use poolwright_store::StoreError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the operator wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resolution {
    /// Look again now, and go on from there: forward, or with the undo.
    Retry,
    /// End it with things as the fabric shows them. Of a unit of which the fabric can't say anything,
    /// take this for the truth; `None` refuses then.
    Accept { unreadable: Option<Said> },
}

/// An operator's word about a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    /// It is bound to nothing.
    Free,
    /// It is bound where the operation wanted it, or wanted it away from.
    Bound,
}

/// A resolution, with who says so and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolve {
    pub resolution: Resolution,
    pub by: String,
    pub reason: String,
}

/// Why an operation was not resolved. It is as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    #[error("there is no operation {0}")]
    NotFound(OperationId),
    #[error(
        "operation {operation} is {state}: only one that is indeterminate or quarantined needs resolving"
    )]
    NotNeeded {
        operation: OperationId,
        state: OperationState,
    },
    #[error(
        "the fabric does not say where unit {unit} is ({error}): look at the hardware, and say what you see, or retry later"
    )]
    Unreadable { unit: UnitId, error: String },
    #[error("operation {operation} can't be read, so it can't be tried again ({why})")]
    NoRetry { operation: OperationId, why: String },
    /// It would be ended without looking whether the damaged document holds its GPUs.
    #[error("the holders of its GPUs are unknown while {0} is damaged")]
    HoldersUnknown(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It is not for this process to decide just now.
    #[error("{0}")]
    Halted(String),
}

/// Ends the operation as the fabric shows it. Nobody else works at it.
pub(crate) async fn accept(
    cx: &Context,
    live: &Live,
    wish: &Resolve,
    unreadable: Option<Said>,
) -> Result<(), ResolveError> {
    let truths = truths(cx, live, unreadable).await?;
    // What was in flight may have settled it.
    let state = live.ask(|operation| operation.state);
    if !matches!(state, OperationState::Indeterminate | OperationState::Quarantined) {
        return Err(ResolveError::NotNeeded {
            operation: live.id.clone(),
            state,
        });
    }
    take_drains_back(cx, live, &truths).await?;
    Ok(finish::accepted(cx, live, (&wish.by, &wish.reason), &truths).await?)
}

/// Reads where every unit of the operation is.
async fn truths(
    cx: &Context,
    live: &Live,
    unreadable: Option<Said>,
) -> Result<BTreeMap<UnitId, Truth>, ResolveError> {
    let operation = live.operation();
    let mut truths = BTreeMap::new();
    for record in &operation.steps {
        let target = &record.step.target;
        if truths.contains_key(&target.unit) {
            continue;
        }
        let truth = match cx.metal.bound(target).await {
            Ok(Bound::Free) => Truth::Free,
            Ok(Bound::To { port_address }) => finish::truth_of(&operation, &target.unit, &port_address),
            // Never ours to give away again.
            Ok(Bound::Several { .. }) => Truth::Foreign,
            Err(error) => match unreadable {
                Some(Said::Free) => Truth::Free,
                Some(Said::Bound) => last_bound(&operation.steps, &target.unit),
                None => {
                    return Err(ResolveError::Unreadable {
                        unit: target.unit.clone(),
                        error: error.to_string(),
                    });
                }
            },
        };
        truths.insert(target.unit.clone(), truth);
    }
    Ok(truths)
}

/// What stays bound stays usable: an undo that failed may have drained it before.
async fn take_drains_back(cx: &Context, live: &Live, truths: &BTreeMap<UnitId, Truth>) -> Result<(), Halt> {
    for truth in truths.values() {
        let Truth::Ours(index) = truth else { continue };
        let Ok(record) = live.step(*index) else { continue };
        charge::confirm(cx, live, *index).await?;
        let pass = cx.pass(live, *index, Way::Undo);
        let why = match cx.metal.undrain(&record.step.target, pass).await {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error.to_string(),
            // The operator waits for an answer, and not for whoever paused it.
            Err(Halt::Parked) => "changes are paused".to_owned(),
            Err(halt) => return Err(halt),
        };
        // Worth a word, not worth holding the operation for: the host has its GPU.
        tracing::warn!(operation = %live.id, step = %record.step, why, "a drain was not taken back");
    }
    Ok(())
}

/// The step whose port an operator means by "bound": the last that was begun.
fn last_bound(steps: &[StepRecord], unit: &UnitId) -> Truth {
    let moves = steps.iter().filter(|record| {
        record.step.target.unit == *unit && matches!(record.step.verb, Verb::Bind | Verb::Unbind)
    });
    let begun = moves.clone().rfind(|record| record.attempts > 0);
    begun
        .or_else(|| moves.clone().next())
        .map_or(Truth::Foreign, |record| Truth::Ours(record.step.index))
}

impl From<Halt> for ResolveError {
    fn from(halt: Halt) -> Self {
        Self::Halted(match halt {
            Halt::Stopped => "it has ended in the meantime".to_owned(),
            Halt::Parked => "the manager is shutting down: try again once it is back".to_owned(),
            Halt::Fenced { message, .. } | Halt::Broken(message) => message,
        })
    }
}
