//! Where the time for journal lines and documents comes from. Waits don't ask it: they are tokio's.

use jiff::Timestamp;

/// Tells the time.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
}

/// The time of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the edge at which the time comes in"
    )]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
