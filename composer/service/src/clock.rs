//! The only place that knows what time it is.
//!
//! [`WallClock`] is the edge to the machine's clock. [`FastClock`] lets a day pass in a minute: its time
//! runs a fixed number of times faster than real time, from a chosen moment.

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
pub use poolwright_executor::Clock as Now;
use poolwright_executor::SystemClock;
use std::time::Duration;

/// Tells the time, and waits until a time.
#[async_trait]
pub trait Clock: Now {
    /// Returns at `until` or earlier: whoever waits looks at the time again.
    async fn sleep_until(&self, until: Timestamp);
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct WallClock;

impl Now for WallClock {
    fn now(&self) -> Timestamp {
        SystemClock.now()
    }
}

#[async_trait]
impl Clock for WallClock {
    async fn sleep_until(&self, until: Timestamp) {
        // The wall clock may be set while we sleep, so it is looked at once a minute.
        const LOOK_AGAIN: Duration = Duration::from_secs(60);
        tokio::time::sleep(between(self.now(), until).min(LOOK_AGAIN)).await;
    }
}

/// A clock that runs `speed` times faster than real time.
#[derive(Debug, Clone, Copy)]
pub struct FastClock {
    began: tokio::time::Instant,
    began_at: Timestamp,
    speed: f64,
}

impl FastClock {
    /// Starts at `at`. `speed` is at least 0.001.
    pub fn starting_at(at: Timestamp, speed: f64) -> Self {
        Self {
            began: tokio::time::Instant::now(),
            began_at: at,
            speed: speed.max(0.001),
        }
    }
}

impl Now for FastClock {
    fn now(&self) -> Timestamp {
        let passed = self.began.elapsed().as_secs_f64() * self.speed;
        SignedDuration::try_from_secs_f64(passed)
            .ok()
            .and_then(|passed| self.began_at.checked_add(passed).ok())
            .unwrap_or(Timestamp::MAX)
    }
}

#[async_trait]
impl Clock for FastClock {
    async fn sleep_until(&self, until: Timestamp) {
        let real = between(self.now(), until).as_secs_f64() / self.speed;
        // A millisecond more, so that rounding does not end the sleep just before its time.
        tokio::time::sleep(Duration::try_from_secs_f64(real).unwrap_or_default() + Duration::from_millis(1))
            .await;
    }
}

fn between(now: Timestamp, until: Timestamp) -> Duration {
    Duration::try_from(until.duration_since(now)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_day_passes_in_a_minute() {
        let start: Timestamp = "2026-03-01T00:00:00Z".parse().unwrap();
        let clock = FastClock::starting_at(start, 1440.0);
        let tomorrow: Timestamp = "2026-03-02T00:00:00Z".parse().unwrap();
        let began = tokio::time::Instant::now();
        while clock.now() < tomorrow {
            clock.sleep_until(tomorrow).await;
        }
        let took = began.elapsed();
        assert!(
            took >= Duration::from_secs(60) && took < Duration::from_secs(61),
            "{took:?}"
        );
    }
}
