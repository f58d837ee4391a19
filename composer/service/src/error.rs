//! What can go wrong when the manager is asked something. The kind decides the HTTP status and the exit
//! code; the message says what, where and why; the hint says what to do next.

use crate::accounts::{ADMIN, Account};
use poolwright_executor::{CancelError, KeyUsed, ResolveError, SubmitError};
use poolwright_model::id::ControlEndpointId;
use poolwright_planner::direct::Refusal;
use poolwright_store::{StoreError, Stored};
use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// The request can't be understood, or asks for something that can't be.
    BadRequest,
    /// More than is read at once.
    TooLarge,
    NotFound,
    /// Whoever asks may not do that there; `details` has what is lacking.
    Forbidden,
    /// Somebody else has it, or it is there already.
    Conflict,
    /// What the request rests on is no longer so; look again and repeat it.
    Stale,
    /// Not done within its time; it goes on.
    Timeout,
    /// Not everything that was asked for could be done, so nothing was.
    Unplaced,
    /// An outcome is unknown, or an undo failed: an operator must look.
    Indeterminate,
    /// A management service refuses the account that the manager has for it.
    CredentialsRefused,
    /// A management service shows a certificate that is not trusted. A retry does not help.
    Untrusted,
    /// Can't be served now; later perhaps.
    Unavailable,
    /// A mistake of ours.
    Internal,
}

/// An answer that is not what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServiceError {
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub code: ErrorCode,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The operation that it is about, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Everything that led to it, a line a piece, where the message has only the most telling.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
    /// Endpoints of which too little is known just now.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub stale: Box<[ControlEndpointId]>,
    /// What was planned for was taken by others meanwhile: another plan may do.
    #[serde(skip)]
    pub taken: bool,
    /// No management service was reached, or who answers there is not believed: asking again changes nothing by itself.
    #[serde(skip)]
    pub unconnected: bool,
}

impl ServiceError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            operation: None,
            details: Vec::new(),
            stale: Box::default(),
            taken: false,
            unconnected: false,
        }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadRequest, message)
    }

    pub fn not_found(kind: &str, id: &str) -> Self {
        let error = Self::new(ErrorCode::NotFound, format!("there is no {kind} {id:?}"));
        error.with_hint(match kind {
            "operation" => "poolwright ops list --all has those that are kept".to_owned(),
            "account" | "tenant" => format!("poolwright {kind} list has the names"),
            "kind" => "poolwright size --list kinds has the names".to_owned(),
            // No command lists them.
            "subscription" => "GET /redfish/v1/EventService/Subscriptions lists what there is".to_owned(),
            kind => format!("poolwright get {kind}s has the names"),
        })
    }

    pub fn with_details(mut self, details: Vec<String>) -> Self {
        self.details = details;
        self
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ServiceError {}

impl From<StoreError> for ServiceError {
    fn from(error: StoreError) -> Self {
        // A retry repairs no damage.
        let is_damage = error.is_damage();
        let code = match &error {
            StoreError::Conflict { .. } => ErrorCode::Stale,
            StoreError::Unavailable { .. } if !is_damage => ErrorCode::Unavailable,
            _ => ErrorCode::Internal,
        };
        let told = Self::new(code, error.to_string());
        match error {
            _ if is_damage => told.with_hint(
                "stop the managers and restore a backup: poolwright restore FILE --data-dir DIR, or PostgreSQL's tools",
            ),
            StoreError::Malformed { .. } => told.with_hint(
                "was it written by a newer Poolwright? start that one again; poolwright doctor has more",
            ),
            StoreError::Damaged { kind, id, .. } if (kind.as_str(), id.as_str()) == (Account::KIND, ADMIN) => told
                .with_hint(
                    "restart the manager with --new-admin-password; or as another administrator: poolwright resume --damaged account/admin",
                ),
            StoreError::Damaged { .. } => told
                .with_hint("poolwright doctor has the next steps; if it does not answer, restore a backup"),
            _ => told,
        }
    }
}

impl From<SubmitError> for ServiceError {
    fn from(error: SubmitError) -> Self {
        let code = match &error {
            SubmitError::Claimed { .. } | SubmitError::NotClean { .. } => ErrorCode::Conflict,
            SubmitError::GpuState { .. } | SubmitError::Stale { .. } => ErrorCode::Stale,
            SubmitError::BadPlan { .. } => ErrorCode::BadRequest,
            SubmitError::Closing => ErrorCode::Unavailable,
            SubmitError::Unknown { .. } => ErrorCode::Indeterminate,
            SubmitError::KeyUsed(used) => return used.clone().into(),
            SubmitError::Store(error) => {
                return Self {
                    taken: matches!(error, StoreError::Conflict { .. }),
                    ..error.clone().into()
                };
            }
        };
        let taken = matches!(
            error,
            SubmitError::Claimed { .. } | SubmitError::GpuState { .. } | SubmitError::Stale { .. }
        );
        let (operation, hint) = match &error {
            SubmitError::Claimed { operation, .. } => (Some(operation.to_string()), None),
            SubmitError::Unknown { operation, .. } => (
                Some(operation.to_string()),
                Some(format!(
                    "see whether it is there: poolwright ops show {operation}"
                )),
            ),
            _ => (None, None),
        };
        Self {
            operation,
            hint,
            taken,
            ..Self::new(code, error.to_string())
        }
    }
}

impl From<KeyUsed> for ServiceError {
    fn from(used: KeyUsed) -> Self {
        Self {
            operation: used.operation.as_ref().map(ToString::to_string),
            ..Self::new(ErrorCode::Conflict, used.to_string())
                .with_hint("use a new key for each request; the same key is for the same request, repeated")
        }
    }
}

impl From<CancelError> for ServiceError {
    fn from(error: CancelError) -> Self {
        let code = match &error {
            CancelError::NotFound(_) => ErrorCode::NotFound,
            CancelError::TooLate { .. } => ErrorCode::Conflict,
            CancelError::Store(error) => return error.clone().into(),
            CancelError::Halted(_) => ErrorCode::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

impl From<ResolveError> for ServiceError {
    fn from(error: ResolveError) -> Self {
        let (code, hint) = match &error {
            ResolveError::NotFound(_) => (ErrorCode::NotFound, None),
            ResolveError::NotNeeded { .. } => (ErrorCode::Conflict, None),
            ResolveError::NoRetry { operation, .. } => (
                ErrorCode::Conflict,
                Some(format!(
                    "if it is damaged, repair it: poolwright doctor has the next steps; if a newer Poolwright wrote it, start \
                     that one; or look at the hardware, then end it: poolwright ops resolve {operation} --with accept \
                     --reason WHY"
                )),
            ),
            ResolveError::HoldersUnknown(_) => (
                ErrorCode::Conflict,
                Some("recover that first: poolwright doctor has the next steps".to_owned()),
            ),
            ResolveError::Unreadable { .. } => (ErrorCode::Indeterminate, None),
            ResolveError::Halted(_) => (ErrorCode::Unavailable, None),
            ResolveError::Store(error) => return error.clone().into(),
        };
        Self {
            hint,
            ..Self::new(code, error.to_string())
        }
    }
}

impl From<Refusal> for ServiceError {
    fn from(refusal: Refusal) -> Self {
        let code = match &refusal {
            Refusal::UnknownGpu { .. } | Refusal::UnknownHost { .. } | Refusal::UnknownComposition { .. } => {
                ErrorCode::NotFound
            }
            Refusal::NoGpus => ErrorCode::BadRequest,
            _ => ErrorCode::Conflict,
        };
        Self::new(code, refusal.to_string()).with_hint(refusal.hint())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_comes_with_the_list_of_what_is() {
        let hint = |kind| ServiceError::not_found(kind, "x").hint.unwrap();
        assert_eq!(hint("schedule"), "poolwright get schedules has the names");
        assert!(hint("operation").contains("ops list"));
        assert_eq!(hint("account"), "poolwright account list has the names");
    }

    /// Fault 94: a damaged database.
    #[test]
    fn a_damaged_database_is_an_internal_error_and_not_unavailable() {
        let store = |hint| StoreError::Unavailable {
            reason: "database disk image is malformed".to_owned(),
            hint,
        };
        let damaged = ServiceError::from(store("restore a backup"));
        assert_eq!(damaged.code, ErrorCode::Internal);
        assert!(!damaged.message.contains("just now"), "{damaged}");
        assert!(damaged.hint.unwrap().contains("poolwright restore"));
        let full = ServiceError::from(store("free some space"));
        assert_eq!(full.code, ErrorCode::Unavailable);
        assert!(full.message.contains("just now"), "{full}");
    }
}
