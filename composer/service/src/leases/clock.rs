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

#[cfg(test)]
mod tests {
    use super::*;

    /// Since the machine was started, as the system itself tells: sleep counted, and whatever the wall clock was set to.
    fn uptime() -> f64 {
        let told = std::fs::read_to_string("/proc/uptime").unwrap();
        told.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Fault 53: what leases are judged by where several managers run is no wall clock: it counts from the start of the
    /// machine, and only forward.
    #[test]
    fn the_clock_of_leases_is_that_of_the_machine_since_its_start() {
        let clock = SystemBootClock;
        let before = clock.now();
        let uptime = uptime();
        let after = clock.now();
        let second = Duration::from_secs(1).as_secs_f64();
        assert!(
            before.as_secs_f64() - second <= uptime && uptime <= after.as_secs_f64() + second,
            "up for {uptime} s, and the clock says {before:?} to {after:?}"
        );
        let mut last = after;
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last, "{now:?} after {last:?}");
            last = now;
        }
    }

    /// Fault 53: and it is this clock that managers are given, unless somebody says otherwise.
    #[test]
    fn managers_are_given_the_clock_of_the_machine() {
        let sharing =
            crate::leases::Sharing::new("home".to_owned(), "name".to_owned(), Duration::from_secs(75));
        let (before, now) = (SystemBootClock.now(), sharing.clock.now());
        assert!(before <= now && now <= SystemBootClock.now(), "{now:?}");
    }
}
