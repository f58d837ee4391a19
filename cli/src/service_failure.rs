//! Errors of the service as commands end with them.

use crate::exit_code::ExitCode;
use crate::failure::Failure;
use poolwright_executor::{Operation, OperationState};
use poolwright_service::{ErrorCode, ServiceError};

pub fn refused(error: ServiceError) -> Failure {
    let (code, usual_hint) = match error.code {
        ErrorCode::BadRequest => (ExitCode::Usage, "see --help for the allowed values"),
        ErrorCode::TooLarge => (ExitCode::Usage, "ask for less at once"),
        ErrorCode::NotFound => (
            ExitCode::NotFound,
            "poolwright get --help has the nouns, and poolwright get NOUN what there is of each",
        ),
        ErrorCode::Forbidden => (
            ExitCode::Authentication,
            "ask with an account that may: --username",
        ),
        ErrorCode::Conflict => (
            ExitCode::Conflict,
            "list the holders of GPUs: poolwright get compositions",
        ),
        ErrorCode::Stale => (ExitCode::Stale, "look again and repeat it"),
        ErrorCode::Timeout => (ExitCode::Timeout, "it goes on: see poolwright ops list"),
        ErrorCode::Unplaced => (ExitCode::Conflict, "list the free GPUs: poolwright get gpus"),
        ErrorCode::Indeterminate => (
            ExitCode::Indeterminate,
            "see poolwright ops list, then poolwright ops resolve",
        ),
        ErrorCode::CredentialsRefused => (
            ExitCode::Authentication,
            "check the account and its password file on the manager's machine",
        ),
        ErrorCode::Untrusted => (
            ExitCode::Authentication,
            "give the authority or the fingerprint of the service itself",
        ),
        ErrorCode::Unavailable => (
            ExitCode::Unavailable,
            "see poolwright doctor, and try again later",
        ),
        ErrorCode::Internal => (ExitCode::Generic, ""),
    };
    let usual_hint = (!usual_hint.is_empty()).then(|| usual_hint.to_owned());
    Failure {
        hint: error.hint.or(usual_hint),
        details: error.details,
        ..Failure::new(code, error.message)
    }
}

/// The exit code of a wait for this operation.
pub fn operation_exit_code(operation: &Operation) -> ExitCode {
    match operation.state {
        OperationState::Completed if operation.is_partial() => ExitCode::Partial,
        OperationState::Completed => ExitCode::Ok,
        OperationState::Indeterminate | OperationState::Quarantined => ExitCode::Indeterminate,
        OperationState::RolledBack | OperationState::Cancelled | OperationState::Failed => ExitCode::Generic,
        OperationState::Pending | OperationState::Running | OperationState::Unwinding => ExitCode::Timeout,
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
    fn an_error_says_what_and_what_next() {
        let failure = refused(ServiceError::not_found("demand", "web"));
        assert_eq!(failure.code, ExitCode::NotFound);
        assert_eq!(
            failure.to_string(),
            "error: there is no demand \"web\"\nhint: poolwright get demands has the names"
        );
    }

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
        let code = |code| refused(ServiceError::new(code, "no")).code;
        assert_eq!(code(ErrorCode::Untrusted), ExitCode::Authentication);
        assert_eq!(code(ErrorCode::Internal), ExitCode::Generic);
        assert_eq!(code(ErrorCode::Unavailable), ExitCode::Unavailable);
    }
}
