//! Ways to go on from the past: each says, from what is known at the end of a step, how many GPUs are wanted so many
//! steps later.

use super::ends::Ends;
use super::{JobRun, Series, Window};
use std::fmt;

/// A way to go on from the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Method {
    /// The mean of the last step stays.
    LastValue,
    /// The last value of all but jobs whose ends are planned; of these, those that will still run.
    LessEnds,
    /// The level at this moment stays.
    Level,
    /// A mean in which what is older counts less, by half from step to step (of 10: so many tenths are new).
    Smoothed { tenths: u8 },
    /// The mean of the last day.
    Day,
    /// The level, which goes over into the mean of seven days within so many hours.
    Blend { hours: u8 },
    /// The same time of the last seven days; how far off it is now wanes within so many hours.
    Daily { hours: u8 },
    /// The same time of the last four weeks; likewise.
    Weekly { hours: u8 },
    /// Those that run stay as long as jobs like them did, or as was planned; others come as they came of late.
    Jobs { days: u8 },
}

/// All that are tried; the last value first, for it is what others must beat.
pub(super) const ALL: [Method; 17] = [
    Method::LastValue,
    Method::LessEnds,
    Method::Level,
    Method::Smoothed { tenths: 5 },
    Method::Smoothed { tenths: 2 },
    Method::Day,
    Method::Blend { hours: 6 },
    Method::Blend { hours: 12 },
    Method::Blend { hours: 24 },
    Method::Blend { hours: 48 },
    Method::Blend { hours: 96 },
    Method::Daily { hours: 12 },
    Method::Daily { hours: 48 },
    Method::Weekly { hours: 12 },
    Method::Weekly { hours: 48 },
    Method::Jobs { days: 1 },
    Method::Jobs { days: 7 },
];

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LastValue => write!(f, "last value"),
            Self::LessEnds => write!(f, "known ends"),
            Self::Level => write!(f, "level"),
            Self::Smoothed { tenths } => write!(f, "smoothed 0.{tenths}"),
            Self::Day => write!(f, "mean of a day"),
            Self::Blend { hours } => write!(f, "blend {hours} h"),
            Self::Daily { hours } => write!(f, "daily {hours} h"),
            Self::Weekly { hours } => write!(f, "weekly {hours} h"),
            Self::Jobs { days } => write!(f, "jobs {days} d"),
        }
    }
}

/// The past, with what methods need of it reckoned once.
pub(super) struct Past<'a> {
    pub series: &'a Series,
    day: Vec<f64>,
    week: Vec<f64>,
    smoothed: [Vec<f64>; 2],
    ends: Option<Ends>,
    /// What jobs used of which it was known when they would end; empty where there are none.
    planned: Vec<f64>,
}

impl<'a> Past<'a> {
    pub fn new(series: &'a Series, jobs: &[JobRun]) -> Self {
        Self {
            series,
            day: trailing(&series.means, series.steps(24.0)),
            week: trailing(&series.means, series.steps(168.0)),
            smoothed: [smoothed(&series.means, 0.5), smoothed(&series.means, 0.2)],
            ends: (!jobs.is_empty()).then(|| Ends::new(series, jobs)),
            planned: planned(series, jobs),
        }
    }

    /// How many steps are known.
    pub fn len(&self) -> usize {
        self.series.means.len()
    }

    /// The methods for which enough is known at all.
    pub fn methods(&self) -> impl Iterator<Item = Method> {
        let (jobs, planned) = (self.ends.is_some(), !self.planned.is_empty());
        ALL.into_iter().filter(move |method| match method {
            Method::Jobs { .. } => jobs,
            Method::LessEnds => planned,
            _ => true,
        })
    }

    /// GPUs of jobs that run at the end of a step and are planned to end before the one `ahead`; of those that stay.
    pub fn planned(&self, at: usize, ahead: usize) -> (f64, f64) {
        let ends = self.ends.as_ref();
        ends.map_or((0.0, 0.0), |ends| ends.planned(at, ahead))
    }

    /// What a method said at the end of step `at` of the step `ahead` later.
    pub fn said(&self, method: Method, at: usize, ahead: usize) -> f64 {
        let level = self.series.levels[at];
        let wanes = |hours: u8| (-(ahead as f64) / self.series.steps(f64::from(hours)) as f64).exp();
        let seasonal = |period_h: f64, most: usize, hours: u8| {
            let period = self.series.steps(period_h);
            let then = self.alike(at, ahead, period, most)?;
            // How this time of the day was in the same past: what is off now is off from that.
            let now = self.alike(at, period, period, most)?;
            Some(then + (level - now) * wanes(hours))
        };
        let said = match method {
            Method::LastValue => self.series.means[at],
            Method::LessEnds => {
                let planned = self.planned.get(at).copied().unwrap_or(0.0);
                (self.series.means[at] - planned).max(0.0) + self.planned(at, ahead).1
            }
            Method::Level => level,
            Method::Smoothed { tenths: 5 } => self.smoothed[0][at],
            Method::Smoothed { .. } => self.smoothed[1][at],
            Method::Day => self.day[at],
            Method::Blend { hours } => self.week[at] + (level - self.week[at]) * wanes(hours),
            Method::Daily { hours } => seasonal(24.0, 7, hours).unwrap_or(level),
            Method::Weekly { hours } => seasonal(168.0, 4, hours).unwrap_or(level),
            Method::Jobs { days } => {
                let ends = self.ends.as_ref();
                ends.map_or(level, |ends| ends.wanted(at, ahead, days))
            }
        };
        said.max(0.0)
    }

    /// The mean of the steps known at `at` that lie whole periods before the one `ahead`; None where there is none.
    fn alike(&self, at: usize, ahead: usize, period: usize, most: usize) -> Option<f64> {
        let first = ahead.div_ceil(period);
        let (mut sum, mut count) = (0.0, 0);
        for back in first..first + most {
            let Some(step) = (at + ahead).checked_sub(back * period) else {
                break;
            };
            sum += self.series.means[step];
            count += 1;
        }
        (count > 0).then(|| sum / f64::from(count))
    }
}

/// What jobs with planned ends used, step by step; nothing where there are none.
fn planned(series: &Series, jobs: &[JobRun]) -> Vec<f64> {
    let planned: Vec<JobRun> = jobs.iter().filter(|job| job.planned.is_some()).copied().collect();
    let window = Window {
        since: series.end_of(0) - series.step,
        until: series.end,
        step: series.step,
    };
    match planned.is_empty() {
        true => Vec::new(),
        // They were judged when the history was made.
        false => Series::of_jobs(&planned, window).map_or(Vec::new(), |series| series.means),
    }
}

/// For each step the mean of so many up to it.
fn trailing(values: &[f64], window: usize) -> Vec<f64> {
    let mut sums = vec![0.0];
    for value in values {
        sums.push(sums[sums.len() - 1] + value);
    }
    (0..values.len())
        .map(|at| {
            let from = (at + 1).saturating_sub(window);
            (sums[at + 1] - sums[from]) / (at + 1 - from) as f64
        })
        .collect()
}

fn smoothed(values: &[f64], new: f64) -> Vec<f64> {
    let mut level = values.first().copied().unwrap_or(0.0);
    values
        .iter()
        .map(|value| {
            level += new * (value - level);
            level
        })
        .collect()
}
