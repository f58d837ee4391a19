//! A demand whose need changes over time: the windows of its phases, put to the calendar.
//!
//! What is wanted at a moment follows from the clock alone, as with schedules: nothing before the first phase, and
//! nothing after the last.

use jiff::{SignedDuration, Timestamp};
use poolwright_sizing::need::NeedWindow;
use serde::{Deserialize, Serialize};

/// The needs of a run, and when it begins. Its windows follow one another without a gap; there is at least one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Course {
    pub starts: Timestamp,
    pub windows: Vec<NeedWindow>,
}

impl Course {
    /// The phase that is on then.
    pub fn at(&self, now: Timestamp) -> Option<&NeedWindow> {
        if now < self.starts {
            return None;
        }
        let second = u64::try_from(now.duration_since(self.starts).as_secs()).ok()?;
        NeedWindow::at(self.windows.iter(), second)
    }

    /// When a phase begins or ends next.
    pub fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        let ends = self.windows.iter().map(|window| self.moment(window.end_s));
        [self.starts].into_iter().chain(ends).find(|edge| *edge > now)
    }

    /// When the last phase ends.
    pub fn ends(&self) -> Timestamp {
        self.moment(self.windows.last().map_or(0, |last| last.end_s))
    }

    /// For people.
    pub fn tell(&self, now: Timestamp) -> String {
        match self.at(now) {
            Some(window) => format!("phase {} until {}", window.phase, self.moment(window.end_s)),
            None if now < self.starts => format!("its first phase begins at {}", self.starts),
            None => format!("its last phase ended at {}", self.ends()),
        }
    }

    /// The last moment of the calendar, where it lies beyond.
    pub(crate) fn moment(&self, second: u64) -> Timestamp {
        let after = SignedDuration::from_secs(i64::try_from(second).unwrap_or(i64::MAX));
        self.starts.checked_add(after).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolwright_sizing::need::Need;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn window(phase: &str, start_s: u64, end_s: u64) -> NeedWindow {
        NeedWindow {
            phase: phase.into(),
            start_s,
            end_s,
            need: Need::of_kind("l4-24gb", 1),
        }
    }

    #[test]
    fn what_is_on_follows_from_the_clock() {
        let course = Course {
            starts: at("2026-03-02T20:00:00Z"),
            windows: vec![window("main", 0, 3600), window("evaluation", 3600, 5400)],
        };
        for (now, phase, next, said) in [
            (
                "2026-03-02T19:59:59.5Z",
                None,
                Some("2026-03-02T20:00:00Z"),
                "begins at 2026-03-02T20",
            ),
            (
                "2026-03-02T20:00:00Z",
                Some("main"),
                Some("2026-03-02T21:00:00Z"),
                "main until 2026-03-02T21",
            ),
            (
                "2026-03-02T21:00:00Z",
                Some("evaluation"),
                Some("2026-03-02T21:30:00Z"),
                "evaluation until 2026-03-02T21:30",
            ),
            ("2026-03-02T21:30:00Z", None, None, "ended at 2026-03-02T21:30"),
        ] {
            let now = at(now);
            assert_eq!(course.at(now).map(|window| window.phase.as_str()), phase, "{now}");
            assert_eq!(course.next_change(now), next.map(at), "{now}");
            assert!(course.tell(now).contains(said), "{}", course.tell(now));
        }
    }

    #[test]
    fn what_lies_beyond_the_calendar_does_not_come() {
        let course = Course {
            starts: at("9999-01-01T00:00:00Z"),
            windows: vec![window("main", 0, u64::MAX)],
        };
        assert_eq!(course.ends(), Timestamp::MAX);
        assert!(course.at(Timestamp::MAX).is_some());
    }
}
