//! The making of a forecast.

use super::choose;
use super::conformal::upper;
use super::measured::{Against, Judged, Measured};
use super::methods::{Method, Past};
use super::{History, Seconds};
use serde::{Deserialize, Serialize};

/// Errors of so many hours are looked at for what must be added.
const ERRORS_H: f64 = 336.0;
/// So many hours later an error counts half.
const HALF_LIFE_H: f64 = 96.0;
/// So many hours of the past are measured, the latest.
const MEASURED_H: f64 = 240.0;
/// With fewer errors than these nine of ten can't be told: the worst of them stands for it.
const ENOUGH: usize = 24;
const LEVEL: f64 = 0.9;

/// What is expected, horizon by horizon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Forecast {
    /// When it is made.
    pub at: Seconds,
    pub step_s: Seconds,
    /// Steps of the past that it rests on, and the mean of them.
    pub known_steps: usize,
    pub mean: f64,
    pub horizons: Vec<Horizon>,
}

/// GPUs wanted in one step to come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Horizon {
    /// How many steps ahead.
    pub ahead: usize,
    /// When that step ends, in seconds from now.
    pub in_s: Seconds,
    pub p50: f64,
    pub p90: f64,
    /// GPUs of jobs that run and are known to end by then.
    #[serde(default)]
    pub ends: f64,
    pub basis: Basis,
    /// None where too little is known to measure anything.
    pub measured: Option<Measured>,
}

/// What a forecast rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "is")]
pub enum Basis {
    /// Halfway between the last value and the mean of these.
    Methods { methods: Vec<String> },
    /// The last value, for nothing was clearly better.
    LastValue,
    /// The last value, less what is known to end by then.
    KnownEnds,
    /// The last value and the worst of few errors: the past is too short.
    ShortPast,
}

impl Forecast {
    /// The most GPUs that are expected, in nine of ten cases, within so many seconds.
    #[must_use]
    pub fn most_within(&self, seconds: Seconds) -> f64 {
        let within = self
            .horizons
            .iter()
            .filter(|horizon| horizon.in_s - self.step_s < seconds);
        within.map(|horizon| horizon.p90).fold(0.0, f64::max)
    }
}

/// Forecasts the steps that lie so far ahead; a step of zero ahead is left out.
#[must_use]
pub fn forecast(history: &History, ahead: &[usize]) -> Forecast {
    let series = &history.series;
    let past = Past::new(series, &history.jobs);
    let horizons = ahead.iter().filter(|ahead| **ahead > 0);
    Forecast {
        at: series.end,
        step_s: series.step,
        known_steps: past.len(),
        mean: series.means.iter().sum::<f64>() / past.len().max(1) as f64,
        horizons: horizons.filter_map(|ahead| horizon(&past, *ahead)).collect(),
    }
}

fn horizon(past: &Past<'_>, ahead: usize) -> Option<Horizon> {
    let now = past.len().checked_sub(1)?;
    let said = choose::said(past, ahead);
    let ours = Bounds::new(past, said.points, ahead);
    let (p50, p90) = ours.at(now);
    let ends = past.planned(now, ahead).0;
    let known_ends = said.base == Method::LessEnds && ends > 0.0;
    let basis = match (past.len().saturating_sub(ahead) < ENOUGH, said.best.is_empty()) {
        (true, _) => Basis::ShortPast,
        (false, true) if known_ends => Basis::KnownEnds,
        (false, true) => Basis::LastValue,
        (false, false) => Basis::Methods {
            methods: said.best.iter().map(ToString::to_string).collect(),
        },
    };
    let in_s = Seconds::try_from(ahead).unwrap_or(Seconds::MAX);
    Some(Horizon {
        ahead,
        in_s: in_s.saturating_mul(past.series.step),
        p50,
        p90,
        ends,
        basis,
        measured: measured(past, &ours, ahead),
    })
}

/// What was said, with what had to be added at each step.
struct Bounds<'a> {
    points: Vec<f64>,
    errors: Vec<f64>,
    window: usize,
    half_life: f64,
    ahead: usize,
    found: &'a [f64],
}

impl<'a> Bounds<'a> {
    fn new(past: &Past<'a>, points: Vec<f64>, ahead: usize) -> Self {
        let found = past.series.means.as_slice();
        let errors = points.iter().zip(found.iter().skip(ahead));
        Self {
            errors: errors.map(|(point, found)| found - point).collect(),
            points,
            window: past.series.steps(ERRORS_H),
            half_life: past.series.steps(HALF_LIFE_H) as f64,
            ahead,
            found,
        }
    }

    /// p50 and p90 as they were said at the end of a step.
    fn at(&self, at: usize) -> (f64, f64) {
        let known = (at + 1).saturating_sub(self.ahead).min(self.errors.len());
        let errors = &self.errors[known.saturating_sub(self.window)..known];
        let p50 = self.points[at];
        let more = upper(errors, LEVEL, self.half_life).unwrap_or(0.0);
        (p50, p50 + more.max(0.0))
    }

    fn judged(&self, at: usize) -> Judged {
        let (p50, p90) = self.at(at);
        Judged {
            p50,
            p90,
            came: self.found[at + self.ahead],
        }
    }
}

/// The latest moments of which it is known what came, and before which enough was known to say anything.
fn measured(past: &Past<'_>, ours: &Bounds<'_>, ahead: usize) -> Option<Measured> {
    let until = past.len().checked_sub(ahead)?;
    let from = until
        .saturating_sub(past.series.steps(MEASURED_H))
        .max(ahead.saturating_add(ENOUGH));
    if from >= until {
        return None;
    }
    let last: Vec<f64> = (0..past.len())
        .map(|at| past.said(Method::LastValue, at, ahead))
        .collect();
    let last = Bounds {
        half_life: f64::INFINITY,
        ..Bounds::new(past, last, ahead)
    };
    let judged = |bounds: &Bounds<'_>| {
        let all: Vec<Judged> = (from..until).map(|at| bounds.judged(at)).collect();
        Against::of(&all)
    };
    Some(Measured {
        moments: until - from,
        ours: judged(ours)?,
        last_value: judged(&last)?,
    })
}
