//! The clock of leases: it only goes forward, is never set, and goes on while the machine sleeps.

use std::time::Duration;

/// Time since some moment in the past.
pub trait BootClock: Send + Sync {
    fn now(&self) -> Duration;
}

/// `CLOCK_BOOTTIME` of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemBootClock;

impl BootClock for SystemBootClock {
    fn now(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
    }
}

/// The clock of tokio, which tests may stop.
#[derive(Debug, Clone, Copy)]
pub struct TokioClock(tokio::time::Instant);

impl Default for TokioClock {
    fn default() -> Self {
        Self(tokio::time::Instant::now())
    }
}

impl BootClock for TokioClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}
