//! How a command fails: one value that says what went wrong, where and why, what to do next, and with which
//! exit code the process ends.

use crate::exit_code::ExitCode;
use poolwright_driver::{DriverError, ErrorKind};
use poolwright_service::{ErrorCode, ServiceError};
use std::fmt;
use std::io;
use std::path::Path;

/// An error as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: ExitCode,
    /// What, where and why.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
}

impl Failure {
    pub fn new(code: ExitCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
        }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ExitCode::Usage, message)
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// A file or folder that could not be read, written or made.
    pub fn file(path: &Path, verb: &str, error: &io::Error) -> Self {
        let code = match error.kind() {
            io::ErrorKind::NotFound => ExitCode::NotFound,
            _ => ExitCode::Generic,
        };
        let hint = match error.kind() {
            io::ErrorKind::NotFound => "check the path: it is taken from the folder that you are in",
            io::ErrorKind::PermissionDenied => "check who owns the file and who may read it",
            _ => "check the path and the disk",
        };
        Self::new(code, format!("{} can't be {verb}: {error}", path.display())).with_hint(hint)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

impl From<ServiceError> for Failure {
    fn from(error: ServiceError) -> Self {
        let hint = error.hint.or_else(|| usual_hint(error.code).map(str::to_owned));
        Self {
            code: error.code.into(),
            message: error.message,
            hint,
        }
    }
}

fn usual_hint(code: ErrorCode) -> Option<&'static str> {
    Some(match code {
        ErrorCode::BadRequest => "see --help for what is allowed",
        ErrorCode::NotFound => "see what there is: poolwright get NOUN; poolwright get --help has the nouns",
        ErrorCode::Conflict => "see what is held and by whom: poolwright get compositions",
        ErrorCode::Stale => "look again and repeat it",
        ErrorCode::Timeout => "it goes on: see poolwright ops list",
        ErrorCode::Unplaced => "see what is free: poolwright get gpus",
        ErrorCode::Indeterminate => "see poolwright ops list, then poolwright ops resolve",
        ErrorCode::Unavailable => "see poolwright doctor, and try again later",
        ErrorCode::Internal => return None,
    })
}

impl From<DriverError> for Failure {
    fn from(error: DriverError) -> Self {
        let code = match error.kind {
            ErrorKind::CredentialsRefused => ExitCode::Authentication,
            ErrorKind::Conflict => ExitCode::Conflict,
            ErrorKind::OutcomeUnknown => ExitCode::Indeterminate,
            ErrorKind::CannotTell => ExitCode::Generic,
            ErrorKind::NoEffect => ExitCode::Unavailable,
        };
        Self {
            code,
            message: error.message,
            hint: error.hint,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_and_what_next() {
        let failure: Failure = ServiceError::not_found("demand", "web").into();
        assert_eq!(failure.code, ExitCode::NotFound);
        assert_eq!(
            failure.to_string(),
            "error: there is no demand \"web\"\nhint: see what there is: poolwright get NOUN; poolwright get --help has the nouns"
        );
    }

    #[test]
    fn refused_credentials_have_an_exit_code_of_their_own() {
        let refused = DriverError::new(ErrorKind::CredentialsRefused, "box-1 refuses the password");
        assert_eq!(Failure::from(refused).code, ExitCode::Authentication);
        let absent = io::Error::from(io::ErrorKind::NotFound);
        assert_eq!(
            Failure::file(Path::new("ca.pem"), "read", &absent).code,
            ExitCode::NotFound
        );
    }
}
