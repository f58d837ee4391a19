//! Errors of commands: cause, place, next step and exit code.

use crate::exit_code::ExitCode;
use poolwright_driver::{DriverError, ErrorKind};
use poolwright_model::fault::FaultKind;
use poolwright_model::profile::UnknownKind;
use std::fmt;
use std::io;
use std::path::Path;

/// The error of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: ExitCode,
    /// What, where and why.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
    /// All causes; printed with `--explain`: see [`Failure::explained`].
    pub details: Vec<String>,
    /// Transient: a refused connection, or no answer.
    pub may_pass: bool,
}

impl Failure {
    pub fn new(code: ExitCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            details: Vec::new(),
            may_pass: false,
        }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ExitCode::Usage, message)
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub fn that_may_pass(mut self) -> Self {
        self.may_pass = true;
        self
    }

    /// Adds the details, or a hint at `--explain`.
    pub fn explained(mut self, explain: bool) -> Self {
        let details = std::mem::take(&mut self.details);
        match (explain, details.len()) {
            (true, 1..) => self.message = format!("{}\n  {}", self.message, details.join("\n  ")),
            (false, 2..) => {
                let more = format!("--explain shows all {} with their reasons", details.len());
                self.hint = Some(match self.hint {
                    Some(hint) => format!("{hint}; {more}"),
                    None => more,
                });
            }
            _ => {}
        }
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

impl From<UnknownKind> for Failure {
    fn from(unknown: UnknownKind) -> Self {
        Self::new(ExitCode::NotFound, unknown.to_string()).with_hint(unknown.hint())
    }
}

impl From<DriverError> for Failure {
    fn from(error: DriverError) -> Self {
        let code = match error.kind {
            ErrorKind::CredentialsRefused => ExitCode::Authentication,
            ErrorKind::Conflict => ExitCode::Conflict,
            ErrorKind::OutcomeUnknown => ExitCode::Indeterminate,
            ErrorKind::CannotTell => ExitCode::Generic,
            ErrorKind::NoEffect if error.fault == FaultKind::Tls => ExitCode::Authentication,
            ErrorKind::NoEffect => ExitCode::Unavailable,
        };
        Self {
            hint: error.hint,
            ..Self::new(code, error.message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_shown_to_who_asks() {
        let failure = Failure {
            details: vec!["a: too small".to_owned(), "b: none left".to_owned()],
            ..Failure::new(ExitCode::Conflict, "it fits nowhere").with_hint("add GPUs")
        };
        assert_eq!(
            failure.clone().explained(false).to_string(),
            "error: it fits nowhere\nhint: add GPUs; --explain shows all 2 with their reasons"
        );
        assert_eq!(
            failure.explained(true).to_string(),
            "error: it fits nowhere\n  a: too small\n  b: none left\nhint: add GPUs"
        );
    }

    #[test]
    fn refused_credentials_have_an_exit_code_of_their_own() {
        let refused = DriverError::new(ErrorKind::CredentialsRefused, "box-1 refuses the password");
        assert_eq!(Failure::from(refused).code, ExitCode::Authentication);
        let untrusted = DriverError::no_effect("the certificate has expired").with_fault(FaultKind::Tls);
        assert_eq!(Failure::from(untrusted).code, ExitCode::Authentication);
        let absent = DriverError::no_effect("connection refused").with_fault(FaultKind::Unreachable);
        assert_eq!(Failure::from(absent).code, ExitCode::Unavailable);
        let absent = io::Error::from(io::ErrorKind::NotFound);
        assert_eq!(
            Failure::file(Path::new("ca.pem"), "read", &absent).code,
            ExitCode::NotFound
        );
    }
}
