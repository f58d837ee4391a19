//! Exit codes. Scripts branch on them, so they never change.

/// The exit code of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ExitCode {
    Ok = 0,
    /// Any other error.
    Generic = 1,
    /// Wrong arguments; or a destructive command off a terminal without `--yes`.
    Usage = 2,
    NotFound = 3,
    /// Authentication failed, of the account or of a service by its certificate; or the account lacks a right.
    Authentication = 4,
    /// A conflict with another holder, or with an existing object.
    Conflict = 5,
    /// The state that the request was made for has changed.
    Stale = 6,
    /// Time-out; the operation goes on, and its id is printed.
    Timeout = 7,
    /// Partial success.
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
