//! What is told to whoever listens: the executor's events in the outbox.

use crate::alarm::{Alarm, Severity};
use crate::operation::{Operation, OperationKind};
use crate::state::{OperationState, StepState};
use jiff::Timestamp;
use poolwright_model::id::{OperationId, PlanId};
use serde::{Deserialize, Serialize};

/// An event, committed with the journal line that it tells of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// An operation is in a new state: started, ended, or in need of somebody.
    Operation {
        at: Timestamp,
        operation: OperationId,
        kind: OperationKind,
        plan: PlanId,
        state: OperationState,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// A step is in a new state.
    Step {
        at: Timestamp,
        operation: OperationId,
        step: u32,
        /// Such as `bind gpu-1 to host-2 (port host-2/p0)`.
        what: String,
        state: StepState,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// Somebody must look at an operation.
    Alarm {
        at: Timestamp,
        operation: OperationId,
        severity: Severity,
        /// Why.
        message: String,
    },
}

impl Event {
    pub(crate) fn operation(at: Timestamp, operation: &Operation) -> Self {
        Self::Operation {
            at,
            operation: operation.id.clone(),
            kind: operation.kind,
            plan: operation.plan.clone(),
            state: operation.state,
            error: operation.error(),
        }
    }

    /// `None` where there is no alarm.
    pub(crate) fn alarm(operation: &Operation) -> Option<Self> {
        let Alarm {
            at,
            severity,
            message,
        } = operation.alarm.clone()?;
        Some(Self::Alarm {
            at,
            operation: operation.id.clone(),
            severity,
            message,
        })
    }

    pub(crate) fn step(at: Timestamp, operation: &Operation, index: u32) -> Option<Self> {
        let record = operation.step(index)?;
        Some(Self::Step {
            at,
            operation: operation.id.clone(),
            step: index,
            what: record.step.to_string(),
            state: record.state,
            error: record.error.clone(),
        })
    }
}
