//! What the process says as it ends. Scripts branch on these numbers, so they never change.

use poolwright_executor::{Operation, OperationState};
use poolwright_service::ErrorCode;

/// The way a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ExitCode {
    Ok = 0,
    /// An error that none of the others describes.
    Generic = 1,
    /// Wrong arguments; or something destructive off a terminal without `--yes`.
    Usage = 2,
    NotFound = 3,
    /// Authentication failed, or the account may not do that.
    Authentication = 4,
    /// Somebody else has it, or it is there already.
    Conflict = 5,
    /// What the request rests on is no longer so.
    Stale = 6,
    /// Not over in time; the operation goes on, and its id is printed.
    Timeout = 7,
    /// Part of it was done.
    Partial = 8,
    /// An outcome is unknown, or an undo failed: an operator must look.
    Indeterminate = 9,
    /// Nobody answers, or not as they should.
    Unavailable = 10,
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}

impl From<ErrorCode> for ExitCode {
    fn from(code: ErrorCode) -> Self {
        match code {
            ErrorCode::BadRequest | ErrorCode::TooLarge => Self::Usage,
            ErrorCode::NotFound => Self::NotFound,
            ErrorCode::Conflict | ErrorCode::Unplaced => Self::Conflict,
            ErrorCode::Stale => Self::Stale,
            ErrorCode::Timeout => Self::Timeout,
            ErrorCode::Indeterminate => Self::Indeterminate,
            ErrorCode::CredentialsRefused | ErrorCode::Forbidden => Self::Authentication,
            ErrorCode::Unavailable => Self::Unavailable,
            ErrorCode::Internal => Self::Generic,
        }
    }
}

impl ExitCode {
    /// How waiting for an operation that came to rest like this ends.
    pub fn of_operation(operation: &Operation) -> Self {
        match operation.state {
            OperationState::Completed if operation.is_partial() => Self::Partial,
            OperationState::Completed => Self::Ok,
            OperationState::Indeterminate | OperationState::Quarantined => Self::Indeterminate,
            OperationState::RolledBack | OperationState::Cancelled | OperationState::Failed => Self::Generic,
            OperationState::Pending | OperationState::Running | OperationState::Unwinding => Self::Timeout,
        }
    }
}
