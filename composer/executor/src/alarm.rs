//! An alarm for an operation that somebody must look at: one whose outcome nobody knows for longer than is usual, and
//! one whose undo failed.
//!
//! It is a line of the journal and an event, so that it is raised once however often the manager restarts, and a
//! warning in the log. It changes nothing: what is held stays held. An operation has at most one for each severity.

use crate::context::Context;
use crate::ledger::{Begins, Entry, Halt};
use crate::line::Line;
use crate::live::Live;
use crate::operation::Operation;
use crate::state::OperationState;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The clock may be set meanwhile: it is looked at at least so often.
const LOOK: Duration = Duration::from_secs(30);

/// How bad it is, in Redfish's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// It may still end well by itself.
    Warning,
    /// It does not end without somebody.
    Critical,
}

/// Somebody must look at an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Alarm {
    pub at: Timestamp,
    pub severity: Severity,
    pub message: String,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Warning => "warning",
            Self::Critical => "critical",
        })
    }
}

/// Returns once an outcome is unknown for longer than is usual, and nobody was told.
pub(crate) async fn is_due(cx: &Context, live: &Live) {
    let unknown =
        |operation: &Operation| operation.state == OperationState::Indeterminate && operation.alarm.is_none();
    loop {
        live.until(unknown).await;
        let left = live.ask(|operation| operation.leaves_within(cx.clock.now()));
        match left {
            Some(left) if !left.is_zero() => tokio::time::sleep(left.min(LOOK)).await,
            _ if live.ask(unknown) => return,
            _ => {}
        }
    }
}

/// Tells that an outcome is unknown for too long.
pub(crate) async fn raise(live: &Live) -> Result<(), Halt> {
    let message = live.ask(|operation| {
        let why = operation.error();
        why.unwrap_or_else(|| "nobody knows what became of a request".to_owned())
    });
    let entry = Entry {
        lines: vec![Line::Overdue { message }],
        changes: vec![],
        begins: Begins::Nothing,
        proof: None,
    };
    live.write(entry).await?;
    tell(live);
    Ok(())
}

/// Into the log, for whoever watches that.
pub(crate) fn tell(live: &Live) {
    let Some(alarm) = live.ask(|operation| operation.alarm.clone()) else {
        return;
    };
    let Alarm {
        severity, message, ..
    } = alarm;
    tracing::warn!(operation = %live.id, %severity, reason = message, "operation needs attention");
}
