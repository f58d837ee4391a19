//! What the process says as it ends. Scripts branch on these numbers, so they never change.

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
