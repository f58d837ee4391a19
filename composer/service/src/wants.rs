//! How many GPUs a tenant wanted and had, of all kinds and of each, noted over time: what the manager's own forecasts rest on.
//!
//! What is noted holds until the next note. It is bounded: the last two days as they were noted, before that hours, and
//! nothing older than [`KEPT_S`].

use jiff::Timestamp;
use poolwright_planner::forecast::{Sample, Series, Window};
use poolwright_store::Stored;
use serde::{Deserialize, Serialize};

/// Two months.
const KEPT_S: i64 = 60 * 86_400;
/// Of so long each note is kept.
const FINE_S: i64 = 2 * 86_400;
const HOUR_S: i64 = 3_600;
/// Notes are drawn together once there are more than these.
const MOST: usize = 2_400;

/// What a tenant wanted and had.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Wants {
    pub tenant: String,
    /// Only GPUs of this kind; without it, of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Both of them, where it is of a kind.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    id: String,
    /// The latest last.
    pub noted: Vec<Noted>,
    /// Of the largest composition that it had when that was noted last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Shape>,
}

/// So many GPUs of a kind at one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub kind: String,
    pub gpus: u32,
}

/// From a moment on, in seconds since 1970: GPUs wanted, and GPUs held. Of hours that were drawn together, their means.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Noted(pub i64, pub f64, pub f64);

impl Stored for Wants {
    const KIND: &'static str = "wants";
    fn id(&self) -> &str {
        match self.kind {
            Some(_) => &self.id,
            None => &self.tenant,
        }
    }
}

impl Wants {
    pub fn of(tenant: &str, kind: Option<&str>) -> Self {
        Self {
            tenant: tenant.to_owned(),
            kind: kind.map(str::to_owned),
            id: kind.map_or_else(String::new, |kind| format!("{tenant}@{kind}")),
            noted: Vec::new(),
            shape: None,
        }
    }

    /// Notes what is so now; says whether that is new.
    pub fn note(&mut self, now: Timestamp, wanted: f64, held: f64) -> bool {
        let now = now.as_second();
        let before = self.noted.len();
        // The clock was set back: what was noted in the future was noted by a wrong one.
        self.noted.retain(|noted| noted.0 < now);
        let same = self
            .noted
            .last()
            .is_some_and(|last| (last.1, last.2) == (wanted, held));
        if same {
            return self.noted.len() != before;
        }
        self.noted.push(Noted(now, wanted, held));
        if self.noted.len() > MOST {
            self.draw_together(now);
        }
        true
    }

    /// Whether nothing has been wanted for as long as anything is kept.
    pub fn is_over(&self, now: Timestamp) -> bool {
        match self.noted.last() {
            Some(last) => last.1 == 0.0 && last.2 == 0.0 && now.as_second() - last.0 > KEPT_S,
            None => true,
        }
    }

    pub fn samples(&self) -> Vec<Sample> {
        self.samples_of(|noted| noted.1)
    }

    fn samples_of(&self, what: fn(&Noted) -> f64) -> Vec<Sample> {
        let sample = |noted: &Noted| Sample {
            at: noted.0,
            gpus: what(noted),
        };
        self.noted.iter().map(sample).collect()
    }

    /// Makes hours of what is older than two days, and forgets what is too old.
    fn draw_together(&mut self, now: i64) {
        let until = (now - FINE_S).div_euclid(HOUR_S) * HOUR_S;
        let first = self.noted.first().map_or(until, |first| first.0);
        let window = Window {
            since: first.max(now - KEPT_S).div_euclid(HOUR_S) * HOUR_S,
            until,
            step: HOUR_S,
        };
        let hours = |what| Series::of_samples(&self.samples_of(what), window);
        let (Ok(wanted), Ok(held)) = (hours(|noted| noted.1), hours(|noted| noted.2)) else {
            // Nothing of it is older than that, so that it is all of two days.
            return;
        };
        let ends = self.noted.iter().rev().find(|noted| noted.0 <= until).copied();
        let means = wanted.means.iter().zip(&held.means);
        let mut drawn: Vec<Noted> = (0..)
            .zip(means)
            .map(|(hour, (wanted, held))| Noted(window.since + hour * HOUR_S, *wanted, *held))
            .collect();
        drawn.dedup_by(|later, earlier| (later.1, later.2) == (earlier.1, earlier.2));
        drawn.extend(ends.map(|last| Noted(until, last.1, last.2)));
        drawn.extend(self.noted.iter().filter(|noted| noted.0 > until));
        self.noted = drawn;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn only_what_changed_is_noted() {
        let mut wants = Wants::of("red", None);
        assert!(wants.note(at(0), 4.0, 2.0));
        assert!(!wants.note(at(300), 4.0, 2.0));
        assert!(wants.note(at(600), 4.0, 4.0));
        assert_eq!(wants.noted, [Noted(0, 4.0, 2.0), Noted(600, 4.0, 4.0)]);
    }

    #[test]
    fn what_a_wrong_clock_noted_goes_when_it_is_set_back() {
        let mut wants = Wants::of("red", None);
        wants.note(at(100), 1.0, 1.0);
        wants.note(at(1_000_000), 2.0, 2.0);
        assert!(wants.note(at(400), 1.0, 1.0));
        assert_eq!(wants.noted, [Noted(100, 1.0, 1.0)]);
    }

    #[test]
    fn a_year_of_changes_stays_small_and_tells_the_same() {
        let mut wants = Wants::of("red", None);
        let mut most = 0;
        let level = |note: i64| if (note / 6) % 2 == 0 { 3.0 } else { 5.0 } + (note % 2) as f64;
        for note in 0..105_120 {
            wants.note(at(note * 300), level(note), 1.0);
            most = most.max(wants.noted.len());
        }
        assert!(most <= MOST + 1, "{most}");
        let now = 105_120 * 300;
        let oldest = wants.noted[0].0;
        assert!(oldest >= now - KEPT_S - 10 * 86_400, "{oldest}");
        let window = Window {
            since: now - 30 * 86_400,
            until: now,
            step: HOUR_S,
        };
        let series = Series::of_samples(&wants.samples(), window).unwrap();
        for hour in series.means {
            assert!((hour - 4.5).abs() < 1e-9, "{hour}");
        }
    }

    #[test]
    fn who_wanted_nothing_for_two_months_is_over() {
        let mut wants = Wants::of("red", None);
        wants.note(at(0), 1.0, 1.0);
        assert!(!wants.is_over(at(10 * KEPT_S)));
        wants.note(at(10), 0.0, 0.0);
        assert!(!wants.is_over(at(KEPT_S)));
        assert!(wants.is_over(at(KEPT_S + 11)));
    }
}
