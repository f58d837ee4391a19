//! Times of day and week that come again, in a time zone.
//!
//! A window opens at each moment that one cron expression names and closes at each that the other names; or it is open
//! in ranges of the week. Whether it is open at some time follows from the calendar alone, so a manager that was down at
//! 20:00 still knows at 20:10 what should be.
//!
//! A window may be in force only from a first day to a last, in its zone; on other days it is closed.
//!
//! Daylight saving: a local time that is skipped counts at the first moment after the gap; a local time that comes twice
//! counts the first time only, but for expressions whose hours are `*` or a step ([`moments`]).

mod expression;
mod moments;
mod weekly;

use croner::Cron;
use expression::cron;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A window as people write it: checked, and turned into a [`Window`], once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WindowSpec {
    /// Cron expression of the opening, such as `0 20 * * MON-FRI`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub opens: String,
    /// Cron expression of the closing, such as `30 7 * * *`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub closes: String,
    /// Ranges of the week instead of both, such as `MON-FRI 20:00-07:30`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weekly: Vec<String>,
    /// IANA name, such as `Europe/Berlin`.
    #[serde(default = "utc")]
    pub zone: String,
    /// Closed on all days before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub first_day: Option<Date>,
    /// Closed on all days after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub last_day: Option<Date>,
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
    #[error("weekly {text:?} is no range of the week ({reason}); an example: \"MON-FRI 20:00-07:30\"")]
    Weekly { text: String, reason: String },
    #[error("weekly {text:?} and {other:?}: both are open at some time; let one end where the other begins")]
    Overlap { text: String, other: String },
    #[error("a window has either opens and closes, or weekly: {0}")]
    Form(&'static str),
    #[error("{0:?} is not an IANA time zone known here; examples: UTC, Europe/Berlin, America/New_York")]
    Zone(String),
    #[error("{which} {text:?} names no moment that ever comes")]
    Never { which: &'static str, text: String },
    #[error("first_day {first} comes after last_day {last}: it would be open on no day")]
    Days { first: Date, last: Date },
    #[error("{which} {day} lies outside of all time; an example: 2026-12-24")]
    Day { which: &'static str, day: Date },
}

/// A window that can be asked.
#[derive(Debug, Clone)]
pub struct Window {
    /// Open while any of them is.
    turns: Vec<Turn>,
    zone: TimeZone,
    /// When its first day begins, and when its last is over.
    begins: Option<Timestamp>,
    ends: Option<Timestamp>,
}

/// Opens and closes by two cron expressions.
#[derive(Debug, Clone)]
struct Turn {
    opens: Cron,
    closes: Cron,
}

/// A time in which a window is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    pub opens: Timestamp,
    /// `None`: it does not close any more.
    pub closes: Option<Timestamp>,
}

/// The most moments at which a window might turn that are looked at for one at which it does: more than a day of minutes,
/// and more than a month of fourteen turns a day.
const LOOKED_AT: usize = 1500;

impl WindowSpec {
    /// One that opens and closes by cron expressions.
    pub fn cron(opens: impl Into<String>, closes: impl Into<String>, zone: impl Into<String>) -> Self {
        Self {
            opens: opens.into(),
            closes: closes.into(),
            weekly: Vec::new(),
            zone: zone.into(),
            ..Self::default()
        }
    }

    pub fn parse(&self, now: Timestamp) -> Result<Window, WindowError> {
        let zone = TimeZone::get(&self.zone).map_err(|_| WindowError::Zone(self.zone.clone()))?;
        let turns = match (
            self.opens.is_empty(),
            self.closes.is_empty(),
            self.weekly.is_empty(),
        ) {
            (false, false, true) => vec![Turn::of(&self.opens, &self.closes)?],
            (true, true, false) => weekly::parse(&self.weekly)?
                .into_iter()
                .map(weekly::Range::cron)
                .map(|(opens, closes)| Turn::of(&opens, &closes))
                .collect::<Result<_, _>>()?,
            (true, true, true) => return Err(WindowError::Form("there is none of them")),
            (_, _, false) => return Err(WindowError::Form("there are both")),
            (true, false, true) => return Err(WindowError::Form("opens is missing")),
            (false, true, true) => return Err(WindowError::Form("closes is missing")),
        };
        let (begins, ends) = self.days(&zone)?;
        let window = Window {
            turns,
            zone,
            begins,
            ends,
        };
        for turn in &window.turns {
            for (which, text, cron) in [
                ("opens", &self.opens, &turn.opens),
                ("closes", &self.closes, &turn.closes),
            ] {
                if moments::after(cron, &window.zone, now).is_none() {
                    return Err(WindowError::Never {
                        which,
                        text: text.clone(),
                    });
                }
            }
        }
        Ok(window)
    }

    /// When the first day begins, and when the last is over.
    fn days(&self, zone: &TimeZone) -> Result<(Option<Timestamp>, Option<Timestamp>), WindowError> {
        if let (Some(first), Some(last)) = (self.first_day, self.last_day)
            && first > last
        {
            return Err(WindowError::Days { first, last });
        }
        let begin = |day: Date| day.to_zoned(zone.clone()).map(|begin| begin.timestamp());
        let begins = |which, day: Option<Date>, begin: &dyn Fn(Date) -> Result<Timestamp, jiff::Error>| {
            let day = day.map(|day| begin(day).map_err(|_| WindowError::Day { which, day }));
            day.transpose()
        };
        Ok((
            begins("first_day", self.first_day, &begin)?,
            begins("last_day", self.last_day, &|day| begin(day.tomorrow()?))?,
        ))
    }
}

/// As people read it, without its zone.
impl fmt::Display for WindowSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.weekly.as_slice() {
            [] => write!(f, "{} to {}", self.opens, self.closes)?,
            ranges => f.write_str(&ranges.join("; "))?,
        }
        if let Some(first) = self.first_day {
            write!(f, ", first on {first}")?;
        }
        match self.last_day {
            Some(last) => write!(f, ", last on {last}"),
            None => Ok(()),
        }
    }
}

impl Turn {
    fn of(opens: &str, closes: &str) -> Result<Self, WindowError> {
        Ok(Self {
            opens: cron("opens", opens)?,
            closes: cron("closes", closes)?,
        })
    }
}

impl Window {
    /// Whether the window is open. A moment at which one of its turns both opens and closes is closed.
    pub fn is_open(&self, at: Timestamp) -> bool {
        self.is_in_force(at) && self.is_turned_open(at)
    }

    fn is_in_force(&self, at: Timestamp) -> bool {
        self.begins.is_none_or(|begins| begins <= at) && !self.is_over(at)
    }

    /// Whether its last day is over.
    pub fn is_over(&self, at: Timestamp) -> bool {
        self.ends.is_some_and(|ends| ends <= at)
    }

    /// Whether it would be open if it were always in force.
    fn is_turned_open(&self, at: Timestamp) -> bool {
        self.turns.iter().any(|turn| {
            match (
                moments::at_or_before(&turn.opens, &self.zone, at),
                moments::at_or_before(&turn.closes, &self.zone, at),
            ) {
                (Some(opened), Some(closed)) => opened > closed,
                (opened, _) => opened.is_some(),
            }
        })
    }

    /// Whether it is open after any of its next openings. Where each is a closing as well, it never is.
    pub fn ever_opens(&self, at: Timestamp) -> bool {
        let from = self.begins.map_or(at, |begins| begins.max(at));
        if from > at && self.is_open(from) {
            return true;
        }
        let mut next = self.next_of(from, |turn| &turn.opens);
        for _ in 0..LOOKED_AT {
            match next.filter(|opening| !self.is_over(*opening)) {
                Some(opening) if self.is_open(opening) => return true,
                Some(opening) => next = self.next_of(opening, |turn| &turn.opens),
                None => return false,
            }
        }
        false
    }

    /// The next moment after `at` at which it turns: closes where it is open, opens where it is closed. `None` where it
    /// never does. Where that is very far away, an earlier moment at which to ask again.
    pub fn next_change(&self, at: Timestamp) -> Option<Timestamp> {
        if self.is_open(at) {
            return self.next_turn(at).into_iter().chain(self.ends).min();
        }
        let next = match self.begins.filter(|begins| *begins > at) {
            Some(begins) if self.is_turned_open(begins) => Some(begins),
            Some(begins) => self.next_turn(begins),
            // What is not in force any more does not change.
            None if self.is_over(at) => None,
            None => self.next_turn(at),
        };
        next.filter(|next| !self.is_over(*next))
    }

    /// The same if it were always in force.
    fn next_turn(&self, at: Timestamp) -> Option<Timestamp> {
        let open = self.is_turned_open(at);
        let mut next = at;
        for _ in 0..LOOKED_AT {
            next = self.next_of(next, |turn| if open { &turn.closes } else { &turn.opens })?;
            if self.is_turned_open(next) != open {
                return Some(next);
            }
        }
        // Of the week, all of which was looked at.
        let whole_week = self.turns.len() > 1 && open;
        (!whole_week).then_some(next)
    }

    /// When the window opened that is open at `at`. `None` where it is closed, or open for as long as is looked back.
    pub fn opened_at(&self, at: Timestamp) -> Option<Timestamp> {
        if !self.is_open(at) {
            return None;
        }
        self.turned_open_at(at).into_iter().chain(self.begins).max()
    }

    /// The same if it were always in force.
    fn turned_open_at(&self, at: Timestamp) -> Option<Timestamp> {
        let moment = SignedDuration::from_secs(1);
        let mut open = at;
        for _ in 0..LOOKED_AT {
            if !self.is_turned_open(open) {
                return None;
            }
            let turns = self.turns.iter();
            let last = turns
                .filter_map(|turn| moments::at_or_before(&turn.opens, &self.zone, open))
                .max()?;
            let before = last.checked_sub(moment).ok()?;
            if !self.is_turned_open(before) {
                return Some(last);
            }
            open = before;
        }
        None
    }

    /// The next times after `at` in which it is open.
    pub fn next_openings(&self, at: Timestamp, count: usize) -> Vec<Opening> {
        let mut found = Vec::new();
        let mut from = at;
        // A change that is no opening is a closing, or a moment at which to ask again.
        for _ in 0..count.saturating_mul(3).saturating_add(10) {
            if found.len() == count {
                break;
            }
            let Some(next) = self.next_change(from) else { break };
            if self.is_open(next) {
                let closes = self.next_change(next);
                found.push(Opening { opens: next, closes });
            }
            from = next;
        }
        found
    }

    /// The next moment after `at` that closes it, open or not.
    pub fn next_closing(&self, at: Timestamp) -> Option<Timestamp> {
        let ends = self.ends.filter(|ends| *ends > at);
        self.next_of(at, |turn| &turn.closes)
            .into_iter()
            .chain(ends)
            .min()
    }

    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// The next moment after `at` that is named by one kind of expression of any turn.
    fn next_of<'a>(&'a self, at: Timestamp, which: impl Fn(&'a Turn) -> &'a Cron) -> Option<Timestamp> {
        let next = self
            .turns
            .iter()
            .filter_map(|turn| moments::after(which(turn), &self.zone, at));
        next.min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn night(zone: &str) -> Window {
        let spec = WindowSpec::cron("0 20 * * *", "30 7 * * *", zone);
        spec.parse(at("2026-01-01T00:00:00Z")).unwrap()
    }

    fn weekly(ranges: &[&str], zone: &str) -> Window {
        let spec = WindowSpec {
            weekly: ranges.iter().map(|range| (*range).to_owned()).collect(),
            zone: zone.into(),
            ..WindowSpec::default()
        };
        spec.parse(at("2026-01-01T00:00:00Z")).unwrap()
    }

    /// When it opens next, and the time after that.
    fn starts(window: &Window, after: Timestamp) -> Vec<Timestamp> {
        let openings = window.next_openings(after, 2).into_iter();
        openings.map(|opening| opening.opens).collect()
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
        let spec = WindowSpec::cron("0 20 * * MON-FRI", "30 7 * * *", "UTC");
        let saturday = at("2026-11-21T12:00:00Z");
        let weekdays = spec.parse(saturday).unwrap();
        assert_eq!(weekdays.next_change(saturday), Some(at("2026-11-23T20:00:00Z")));
    }

    /// Fault 54: in three zones.
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
            assert_eq!(starts(&window, before), [at(winter), at(summer)], "{zone}");
        }
    }

    /// Fault 54: once, on either day.
    #[test]
    fn a_time_that_is_skipped_or_comes_twice_counts_once() {
        let spec = |opens: &str| WindowSpec::cron(opens, "0 12 * * *", "Europe/Berlin");
        let window = spec("30 2 * * *").parse(at("2026-01-01T00:00:00Z")).unwrap();
        // On 2026-03-29 the clocks go from 02:00 to 03:00; on 2026-10-25 from 03:00 back to 02:00.
        let spring = starts(&window, at("2026-03-28T12:00:00Z"));
        assert_eq!(
            spring,
            [at("2026-03-29T01:00:00Z"), at("2026-03-30T00:30:00Z")],
            "skipped: first moment after the gap"
        );
        let autumn = starts(&window, at("2026-10-24T12:00:00Z"));
        assert_eq!(
            autumn,
            [at("2026-10-25T00:30:00Z"), at("2026-10-26T01:30:00Z")],
            "twice: the first time"
        );
        for day in [spring[0], autumn[0]] {
            assert!(window.is_open(day));
        }
    }

    /// Fault 54: ranges of the week keep the same rule, in three zones; what lies in the gap alone does not come.
    #[test]
    fn a_range_of_the_week_meets_the_change_of_the_clocks() {
        let opening = |window: &Window, after: &str| window.next_openings(at(after), 1)[0];
        for (zone, eve, gap_ends, range) in [
            (
                "Europe/Berlin",
                "2026-03-28T12:00:00Z",
                "2026-03-29T01:00:00Z",
                "SUN 02:30-04:00",
            ),
            (
                "America/New_York",
                "2026-03-07T12:00:00Z",
                "2026-03-08T07:00:00Z",
                "SUN 02:30-04:00",
            ),
            (
                "Australia/Sydney",
                "2026-10-03T06:00:00Z",
                "2026-10-03T16:00:00Z",
                "SUN 02:30-04:00",
            ),
        ] {
            let hour = SignedDuration::from_hours(1);
            let found = opening(&weekly(&[range], zone), eve);
            assert_eq!(
                found.opens,
                at(gap_ends),
                "{zone}: the first moment after the gap"
            );
            assert_eq!(
                found.closes,
                at(gap_ends).checked_add(hour).ok(),
                "{zone}: at 04:00 as ever"
            );
            let inside = opening(&weekly(&["SUN 02:15-02:45"], zone), eve);
            assert!(inside.opens > at(gap_ends), "{zone}: not on that day: {inside:?}");
        }
        // On 2026-10-25 in Berlin, 02:30 comes at 00:30Z and again at 01:30Z.
        let twice = opening(
            &weekly(&["SUN 02:30-03:30"], "Europe/Berlin"),
            "2026-10-24T12:00:00Z",
        );
        assert_eq!(twice.opens, at("2026-10-25T00:30:00Z"), "the first time");
        assert_eq!(
            twice.closes,
            Some(at("2026-10-25T02:30:00Z")),
            "two hours for that reason"
        );
    }

    #[test]
    fn ranges_that_touch_are_one_time() {
        let window = weekly(
            &["FRI 20:00-24:00", "SAT,SUN 00:00-24:00", "MON 00:00-07:30"],
            "UTC",
        );
        let friday = at("2026-11-20T12:00:00Z");
        let weekend = Opening {
            opens: at("2026-11-20T20:00:00Z"),
            closes: Some(at("2026-11-23T07:30:00Z")),
        };
        assert_eq!(window.next_openings(friday, 1), [weekend]);
        assert_eq!(window.opened_at(at("2026-11-22T09:00:00Z")), Some(weekend.opens));
        assert_eq!(window.opened_at(friday), None);
        let always = weekly(&["daily 00:00-24:00"], "UTC");
        assert!(always.is_open(friday) && always.ever_opens(friday));
        assert_eq!(
            (always.next_change(friday), always.opened_at(friday)),
            (None, None)
        );
    }

    #[test]
    fn openings_are_told_only_where_it_was_closed_before() {
        // Each hour opens it, and it stays open from the first on.
        let spec = WindowSpec::cron("0 20-23 * * *", "30 7 * * *", "UTC");
        let window = spec.parse(at("2026-01-01T00:00:00Z")).unwrap();
        let noon = at("2026-01-10T12:00:00Z");
        assert_eq!(
            starts(&window, noon),
            [at("2026-01-10T20:00:00Z"), at("2026-01-11T20:00:00Z")]
        );
        assert_eq!(
            window.opened_at(at("2026-01-11T05:00:00Z")),
            Some(at("2026-01-10T20:00:00Z"))
        );
    }

    #[test]
    fn a_window_that_closes_whenever_it_opens_never_opens() {
        let now = at("2026-01-01T00:00:00Z");
        let opens = |opens: &str, closes: &str| {
            let spec = WindowSpec::cron(opens, closes, "UTC");
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
            let spec = WindowSpec::cron(opens, "0 7 * * *", zone);
            spec.parse(at("2026-01-01T00:00:00Z")).unwrap_err().to_string()
        };
        let form = |opens: &str, weekly: &[&str]| {
            let spec = WindowSpec {
                weekly: weekly.iter().map(|range| (*range).to_owned()).collect(),
                ..WindowSpec::cron(opens, "", "UTC")
            };
            spec.parse(at("2026-01-01T00:00:00Z")).unwrap_err().to_string()
        };
        assert!(form("", &[]).contains("none of them"));
        assert!(form("0 20 * * *", &[]).contains("closes is missing"));
        assert!(form("0 20 * * *", &["MON 08:00-09:00"]).contains("both"));
        assert!(error("8 o'clock", "UTC").contains("0 20 * * MON-FRI"));
        assert!(error("0 99 * * *", "UTC").contains("0 99 * * *"));
        assert!(error("0 20 * * *", "Mars/Olympus").contains("Europe/Berlin"));
        assert!(
            error("0 0 30 2 *", "UTC").contains("never comes")
                || error("0 0 30 2 *", "UTC").contains("ever comes")
        );
    }
}
