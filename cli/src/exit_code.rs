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
    /// Authentication failed, of the account or of a service by its certificate; or the account lacks a right.
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
    /// No answer, or a wrong one. A later try may succeed.
    Unavailable = 10,
    /// Ctrl-C. Shells use 128 and the number of the signal.
    Interrupted = 130,
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
            ErrorCode::CredentialsRefused | ErrorCode::Forbidden | ErrorCode::Untrusted => {
                Self::Authentication
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Arguments;
    use clap::CommandFactory;

    const ALL: [ExitCode; 12] = [
        ExitCode::Ok,
        ExitCode::Generic,
        ExitCode::Usage,
        ExitCode::NotFound,
        ExitCode::Authentication,
        ExitCode::Conflict,
        ExitCode::Stale,
        ExitCode::Timeout,
        ExitCode::Partial,
        ExitCode::Indeterminate,
        ExitCode::Unavailable,
        ExitCode::Interrupted,
    ];

    #[test]
    fn the_help_and_the_reference_list_every_code() {
        let help = Arguments::command().get_after_help().unwrap().to_string();
        let help = help.split_once("Exit codes:").unwrap().1.replace('\n', " ");
        let reference = include_str!("../../docs/OPERATING.md");
        let reference = reference.split_once("## Exit codes").unwrap().1;
        for code in ALL {
            let number = code as u8;
            assert!(help.contains(&format!(" {number} ")), "{number}: {help}");
            assert!(
                reference.contains(&format!("| {number} | ")),
                "{number}: {reference}"
            );
        }
        assert_eq!(
            reference.lines().filter(|line| line.starts_with("| ")).count(),
            ALL.len() + 1,
            "a code that does not exist, or one too few here: {reference}"
        );
    }

    /// Fault 94: by the error code.
    #[test]
    fn untrusted_certificates_and_damaged_databases_are_not_unavailable() {
        assert_eq!(ExitCode::from(ErrorCode::Untrusted), ExitCode::Authentication);
        assert_eq!(ExitCode::from(ErrorCode::Internal), ExitCode::Generic);
        assert_eq!(ExitCode::from(ErrorCode::Unavailable), ExitCode::Unavailable);
    }
}
