//! A day that passes in seconds: the clock that it runs by, and what is to happen while it passes.

use async_trait::async_trait;
use jiff::civil::date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use poolwright_executor::Clock as Now;
use poolwright_model::id::{DemandId, ScheduleId};
use poolwright_service::clock::Clock;
use poolwright_service::demand::DemandSpec;
use poolwright_service::occurrence::{Missed, Overlap};
use poolwright_service::schedule::ScheduleSpec;
use poolwright_service::window::WindowSpec;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Where the calendar of the day is read.
const ZONE: &str = "Europe/Berlin";
/// An hour passes in a second.
const FAST: f64 = 3600.0;

/// A clock that starts at 18:00 and keeps the pace of this machine until it is told to hurry.
pub struct DayClock {
    zone: TimeZone,
    zone_name: &'static str,
    pace: Mutex<Pace>,
    changed: Notify,
}

#[derive(Clone, Copy)]
struct Pace {
    since: Instant,
    since_at: Timestamp,
    speed: f64,
}

impl DayClock {
    pub fn at_six() -> Self {
        // A machine without a time zone database has a day all the same.
        let (zone, zone_name) = match TimeZone::get(ZONE) {
            Ok(zone) => (zone, ZONE),
            Err(_) => (TimeZone::UTC, "UTC"),
        };
        let six = date(2026, 6, 1).at(18, 0, 0, 0).to_zoned(zone.clone());
        let since_at = six.map_or(Timestamp::UNIX_EPOCH, |six| six.timestamp());
        let pace = Mutex::new(Pace {
            since: Instant::now(),
            since_at,
            speed: 1.0,
        });
        Self {
            zone,
            zone_name,
            pace,
            changed: Notify::new(),
        }
    }

    /// From now on an hour passes in a second.
    pub fn hurry(&self) {
        let since_at = self.now();
        *self.pace.lock().unwrap_or_else(PoisonError::into_inner) = Pace {
            since: Instant::now(),
            since_at,
            speed: FAST,
        };
        self.changed.notify_waiters();
    }

    /// `Mon 20:00`, in the zone of the day.
    pub fn told(&self, at: Timestamp) -> String {
        at.to_zoned(self.zone.clone()).strftime("%a %H:%M").to_string()
    }

    fn pace(&self) -> Pace {
        *self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By night: what suspends the demands and wants others, from 20:00 to half past seven.
    pub fn night(&self, suspends: Vec<DemandId>, wants: Vec<DemandSpec>) -> ScheduleSpec {
        ScheduleSpec {
            id: ScheduleId::from_lossy("night"),
            window: WindowSpec::cron("0 20 * * *", "30 7 * * *", self.zone_name),
            demands: wants,
            suspends,
            paused: false,
            overlap: Overlap::default(),
            missed: Missed::default(),
            back_by_close: false,
            ladder: None,
            reclaim_s: None,
            alert: None,
        }
    }
}

impl Now for DayClock {
    fn now(&self) -> Timestamp {
        let Pace {
            since,
            since_at,
            speed,
        } = self.pace();
        let passed = SignedDuration::try_from_secs_f64(since.elapsed().as_secs_f64() * speed);
        passed
            .ok()
            .and_then(|passed| since_at.checked_add(passed).ok())
            .unwrap_or(Timestamp::MAX)
    }
}

#[async_trait]
impl Clock for DayClock {
    async fn sleep_until(&self, until: Timestamp) {
        let left = until.duration_since(self.now()).as_secs_f64() / self.pace().speed;
        // A millisecond more, so that rounding does not end the sleep just before its time.
        let left = Duration::try_from_secs_f64(left).unwrap_or_default() + Duration::from_millis(1);
        tokio::select! {
            () = tokio::time::sleep(left) => {}
            // Whoever waits looks at the time again.
            () = self.changed.notified() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_night_passes_in_seconds_once_the_clock_hurries() {
        let clock = DayClock::at_six();
        let six = clock.now();
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(clock.now().duration_since(six), SignedDuration::from_secs(3));
        clock.hurry();
        let morning = six.checked_add(SignedDuration::from_hours(14)).unwrap();
        let began = Instant::now();
        while clock.now() < morning {
            clock.sleep_until(morning).await;
        }
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
        assert!(clock.told(six).ends_with("18:00"));
    }

    #[tokio::test(start_paused = true)]
    async fn who_sleeps_is_woken_when_the_pace_changes() {
        let clock = DayClock::at_six();
        let later = clock.now().checked_add(SignedDuration::from_hours(2)).unwrap();
        let began = Instant::now();
        let hurry = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            clock.hurry();
        };
        let sleep = async {
            while clock.now() < later {
                clock.sleep_until(later).await;
            }
        };
        tokio::join!(sleep, hurry);
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    }
}
