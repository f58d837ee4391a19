//! What can go wrong when hardware is told something. The kind decides what may be done next.

use poolwright_model::fault::FaultKind;
use std::fmt;

/// What an error says about the effect. The safe execution of operations rests on this distinction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Nothing changed: it was not sent, or the service refused it.
    NoEffect,
    /// Nothing changed, because what was expected is not so: the precondition failed, somebody else holds it.
    Conflict,
    /// It was sent, and nobody knows whether it was done. Read back.
    OutcomeUnknown,
    /// The service does not offer this, or can't tell.
    CannotTell,
    /// The service refuses our credentials. Nothing changed; trying again may lock the account.
    CredentialsRefused,
}

/// Whether a request whose outcome is unknown may still have its effect after this answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Late {
    /// Nobody knows: the answer was lost.
    #[default]
    Perhaps,
    /// The service is through with it: what is read back now is what came of it.
    Never,
    /// For as long as this task of the service goes on; [`Fabric::task`](crate::Fabric::task) tells.
    Task(String),
}

/// An error of a driver: its kind, what happened in words, and a hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverError {
    pub kind: ErrorKind,
    /// What, where and why.
    pub message: String,
    /// What to do next, where we know.
    pub hint: Option<String>,
    /// The Redfish MessageId, where the service gave one.
    pub message_id: Option<String>,
    /// What kind of fault it is when it ends an observation.
    pub fault: FaultKind,
    /// Means something where the outcome is unknown only.
    pub late: Late,
}

impl DriverError {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
            message_id: None,
            fault: FaultKind::ServerError,
            late: Late::default(),
        }
    }

    pub fn no_effect(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NoEffect, message)
    }

    pub fn unknown(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::OutcomeUnknown, message)
    }

    pub fn cannot_tell(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::CannotTell, message)
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub fn with_late(mut self, late: Late) -> Self {
        self.late = late;
        self
    }

    pub fn with_fault(mut self, fault: FaultKind) -> Self {
        self.fault = fault;
        self
    }

    pub fn with_message_id(mut self, id: impl Into<String>) -> Self {
        self.message_id = Some(id.into());
        self
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for DriverError {}
