//! Times of day and week that come again, in a time zone.
//!
//! A window opens at each moment that one cron expression names and closes at each that the other names.
//! Whether it is open at some time follows from the calendar alone, so a manager that was down at 20:00
//! still knows at 20:10 what should be.
//!
//! Daylight saving: a local time that is skipped counts at the first moment after the gap; a local time
//! that comes twice counts the first time only.

use croner::Cron;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// A window as people write it: checked, and turned into a [`Window`], once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowSpec {
    /// Cron expression of the opening, such as `0 20 * * MON-FRI`.
    pub opens: String,
    /// Cron expression of the closing, such as `30 7 * * *`.
    pub closes: String,
    /// IANA name, such as `Europe/Berlin`.
    #[serde(default = "utc")]
    pub zone: String,
}

fn utc() -> String {
    "UTC".into()
}

/// Why a window can't be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    #[error(
        "{which} {text:?} is not a cron expression ({reason}); five fields are wanted, such as \"0 20 * * MON-FRI\" for 20:00 on weekdays"
    )]
    Cron {
        which: &'static str,
        text: String,
        reason: String,
    },
    #[error("{0:?} is not an IANA time zone known here; examples: UTC, Europe/Berlin, America/New_York")]
    Zone(String),
    #[error("{which} {text:?} names no moment that ever comes")]
    Never { which: &'static str, text: String },
}

/// A window that can be asked.
#[derive(Debug, Clone)]
pub struct Window {
    opens: Cron,
    closes: Cron,
    zone: TimeZone,
}

impl WindowSpec {
    pub fn parse(&self, now: Timestamp) -> Result<Window, WindowError> {
        let zone = TimeZone::get(&self.zone).map_err(|_| WindowError::Zone(self.zone.clone()))?;
        let window = Window {
            opens: cron("opens", &self.opens)?,
            closes: cron("closes", &self.closes)?,
            zone,
        };
        for (which, text, cron) in [
            ("opens", &self.opens, &window.opens),
            ("closes", &self.closes, &window.closes),
        ] {
            if window.after(cron, now).is_none() {
                return Err(WindowError::Never {
                    which,
                    text: text.clone(),
                });
            }
        }
        Ok(window)
    }
}

fn cron(which: &'static str, text: &str) -> Result<Cron, WindowError> {
    let error = |reason: String| WindowError::Cron {
        which,
        text: text.to_owned(),
        reason,
    };
    if text.split_whitespace().count() != 5 {
        return Err(error("it has not five fields".into()));
    }
    Cron::from_str(text).map_err(|e| error(e.to_string()))
}

impl Window {
    /// Whether the window is open. A moment that is named by both is closed.
    pub fn is_open(&self, at: Timestamp) -> bool {
        match (
            self.at_or_before(&self.opens, at),
            self.at_or_before(&self.closes, at),
        ) {
            (Some(opened), Some(closed)) => opened > closed,
            (opened, _) => opened.is_some(),
        }
    }

    /// Whether it is open after any of its next openings. Where each is a closing as well, it never is.
    pub fn ever_opens(&self, at: Timestamp) -> bool {
        const LOOKED_AT: usize = 100;
        let openings =
            std::iter::successors(self.after(&self.opens, at), |last| self.after(&self.opens, *last));
        openings.take(LOOKED_AT).any(|opening| self.is_open(opening))
    }

    /// The next moment after `at` at which it turns: closes where it is open, opens where it is closed.
    pub fn next_change(&self, at: Timestamp) -> Option<Timestamp> {
        let cron = if self.is_open(at) {
            &self.closes
        } else {
            &self.opens
        };
        self.after(cron, at)
    }

    /// The next openings after `at`.
    pub fn next_openings(&self, at: Timestamp, count: usize) -> Vec<Timestamp> {
        std::iter::successors(self.after(&self.opens, at), |last| self.after(&self.opens, *last))
            .take(count)
            .collect()
    }

    fn after(&self, cron: &Cron, at: Timestamp) -> Option<Timestamp> {
        let next = cron
            .find_next_occurrence(&at.to_zoned(self.zone.clone()), false)
            .ok()?;
        Some(next.timestamp())
    }

    fn at_or_before(&self, cron: &Cron, at: Timestamp) -> Option<Timestamp> {
        let last = cron
            .find_previous_occurrence(&at.to_zoned(self.zone.clone()), true)
            .ok()?;
        Some(last.timestamp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn night(zone: &str) -> Window {
        let spec = WindowSpec {
            opens: "0 20 * * *".into(),
            closes: "30 7 * * *".into(),
            zone: zone.into(),
        };
        spec.parse(at("2026-01-01T00:00:00Z")).unwrap()
    }

    #[test]
    fn a_night_is_open_from_20_to_half_past_7_in_its_zone() {
        let berlin = night("Europe/Berlin");
        // In January Berlin is an hour ahead of UTC.
        assert!(!berlin.is_open(at("2026-01-10T18:59:59Z")));
        assert!(berlin.is_open(at("2026-01-10T19:00:00Z")));
        assert!(berlin.is_open(at("2026-01-11T06:29:59Z")));
        assert!(!berlin.is_open(at("2026-01-11T06:30:00Z")));
        assert_eq!(
            berlin.next_change(at("2026-01-10T18:00:00Z")),
            Some(at("2026-01-10T19:00:00Z"))
        );
        assert_eq!(
            berlin.next_change(at("2026-01-10T19:00:00Z")),
            Some(at("2026-01-11T06:30:00Z"))
        );
    }

    #[test]
    fn a_closing_of_a_window_that_is_closed_is_no_change() {
        let spec = WindowSpec {
            opens: "0 20 * * MON-FRI".into(),
            closes: "30 7 * * *".into(),
            zone: "UTC".into(),
        };
        let saturday = at("2026-11-21T12:00:00Z");
        let weekdays = spec.parse(saturday).unwrap();
        assert_eq!(weekdays.next_change(saturday), Some(at("2026-11-23T20:00:00Z")));
    }

    #[test]
    fn the_local_hour_stays_when_the_clocks_change() {
        for (zone, winter, summer) in [
            ("Europe/Berlin", "2026-03-28T19:00:00Z", "2026-03-29T18:00:00Z"),
            ("America/New_York", "2026-03-08T01:00:00Z", "2026-03-09T00:00:00Z"),
            ("Australia/Sydney", "2026-04-04T09:00:00Z", "2026-04-05T10:00:00Z"),
        ] {
            let window = night(zone);
            let before = at(winter)
                .checked_sub(jiff::SignedDuration::from_secs(60))
                .unwrap();
            assert_eq!(
                window.next_openings(before, 2),
                [at(winter), at(summer)],
                "{zone}"
            );
        }
    }

    #[test]
    fn a_time_that_is_skipped_or_comes_twice_counts_once() {
        let spec = |opens: &str| WindowSpec {
            opens: opens.into(),
            closes: "0 12 * * *".into(),
            zone: "Europe/Berlin".into(),
        };
        let window = spec("30 2 * * *").parse(at("2026-01-01T00:00:00Z")).unwrap();
        // On 2026-03-29 the clocks go from 02:00 to 03:00; on 2026-10-25 from 03:00 back to 02:00.
        let spring = window.next_openings(at("2026-03-28T12:00:00Z"), 2);
        assert_eq!(
            spring,
            [at("2026-03-29T01:00:00Z"), at("2026-03-30T00:30:00Z")],
            "skipped: first moment after the gap"
        );
        let autumn = window.next_openings(at("2026-10-24T12:00:00Z"), 2);
        assert_eq!(
            autumn,
            [at("2026-10-25T00:30:00Z"), at("2026-10-26T01:30:00Z")],
            "twice: the first time"
        );
        for day in [spring[0], autumn[0]] {
            assert!(window.is_open(day));
        }
    }

    #[test]
    fn a_window_that_closes_whenever_it_opens_never_opens() {
        let now = at("2026-01-01T00:00:00Z");
        let opens = |opens: &str, closes: &str| {
            let spec = WindowSpec {
                opens: opens.into(),
                closes: closes.into(),
                zone: "UTC".into(),
            };
            spec.parse(now).unwrap().ever_opens(now)
        };
        assert!(!opens("0 20 * * *", "0 20 * * *"));
        assert!(!opens("0 20 * * MON", "0 * * * *"));
        assert!(opens("0 20 * * *", "0 20 * * MON,TUE,WED,THU,FRI"), "at weekends");
        assert!(opens("0 20 * * *", "30 7 * * *"));
    }

    #[test]
    fn what_cannot_be_understood_is_explained() {
        let error = |opens: &str, zone: &str| {
            let spec = WindowSpec {
                opens: opens.into(),
                closes: "0 7 * * *".into(),
                zone: zone.into(),
            };
            spec.parse(at("2026-01-01T00:00:00Z")).unwrap_err().to_string()
        };
        assert!(error("8 o'clock", "UTC").contains("0 20 * * MON-FRI"));
        assert!(error("0 99 * * *", "UTC").contains("0 99 * * *"));
        assert!(error("0 20 * * *", "Mars/Olympus").contains("Europe/Berlin"));
        assert!(
            error("0 0 30 2 *", "UTC").contains("never comes")
                || error("0 0 30 2 *", "UTC").contains("ever comes")
        );
    }
}
