//! The manager's wall clock, which is set forward and back as machines' clocks are.

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use poolwright_executor::Clock as Now;
use poolwright_service::clock::Clock;
use std::sync::Mutex;
use std::time::Duration;

/// Runs with the runtime's time, from the beginning of the epoch's year 30, and can be set.
pub struct JumpingClock {
    began: tokio::time::Instant,
    set: Mutex<SignedDuration>,
}

/// 2000-01-01.
const BEGAN_AT: i64 = 946_684_800;

impl JumpingClock {
    pub fn new() -> Self {
        Self {
            began: tokio::time::Instant::now(),
            set: Mutex::default(),
        }
    }

    pub fn jump(&self, by: SignedDuration) {
        *super::gate::unpoisoned(&self.set) += by;
    }
}

impl Default for JumpingClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Now for JumpingClock {
    fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.began.elapsed()).unwrap_or(SignedDuration::MAX);
        let set = *super::gate::unpoisoned(&self.set);
        let start = Timestamp::from_second(BEGAN_AT).unwrap_or(Timestamp::UNIX_EPOCH);
        start
            .saturating_add(passed.saturating_add(set))
            .unwrap_or(Timestamp::MAX)
    }
}

#[async_trait]
impl Clock for JumpingClock {
    async fn sleep_until(&self, until: Timestamp) {
        // As with the machine's: it may be set while we sleep, so it is looked at once a minute.
        let left = Duration::try_from(until.duration_since(self.now())).unwrap_or_default();
        tokio::time::sleep(left.min(Duration::from_secs(60)) + Duration::from_millis(1)).await;
    }
}
