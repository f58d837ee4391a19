//! What is done with GPUs that a tenant is expected to want soon: kept attached where they are, or attached ahead.
//!
//! Keeping pays where it is more likely that the tenant wants them again than that somebody else must have them
//! detached first: that is p50. With p90 one chance in ten is enough, for those whose waiting is dear.

use poolwright_planner::forecast::{Basis, Forecast, Horizon};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The policy. Nothing is kept where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    pub level: Level,
    /// Only what is expected within so many hours counts.
    pub ahead_h: u32,
    /// No more GPUs than these are kept together.
    pub most_gpus: u32,
    /// GPUs that are free are attached ahead, too.
    pub attach: bool,
}

/// How sure it must be that they are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    P50,
    P90,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::P50 => "p50",
            Self::P90 => "p90",
        })
    }
}

/// The most GPUs that a tenant is expected to want at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Expected {
    pub gpus: u32,
    /// In how many seconds, at the latest.
    pub in_s: i64,
    /// The share of the past hours at which p90 sufficed; nothing where calendars say it.
    pub coverage: Option<f64>,
}

impl Expected {
    /// The more of two; of those that say the same the earlier.
    pub fn or_more(self, other: Self) -> Self {
        match (other.gpus, -other.in_s) > (self.gpus, -self.in_s) {
            true => other,
            false => self,
        }
    }
}

impl Keep {
    /// `None` where the past is too short for anything to be measured: nothing is done on a guess.
    pub(crate) fn expects(&self, forecast: &Forecast) -> Option<Expected> {
        let within = i64::from(self.ahead_h) * 3600;
        let said = |horizon: &Horizon| match self.level {
            Level::P50 => horizon.p50,
            Level::P90 => horizon.p90,
        };
        let told = forecast.horizons.iter().filter_map(|horizon| {
            let coverage = horizon.measured.as_ref()?.ours.coverage;
            let counts = horizon.in_s <= within && horizon.basis != Basis::ShortPast;
            counts.then(|| Expected {
                gpus: said(horizon).round().clamp(0.0, f64::from(u32::MAX)) as u32,
                in_s: horizon.in_s,
                coverage: Some(coverage),
            })
        });
        told.reduce(Expected::or_more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolwright_planner::forecast::{History, Series, Window, forecast};

    fn keep(level: Level) -> Keep {
        Keep {
            level,
            ahead_h: 4,
            most_gpus: 16,
            attach: false,
        }
    }

    /// Eight GPUs for half of each day; it is told at the end of the wanting half.
    fn days(days: i64) -> Forecast {
        let window = Window {
            since: 0,
            until: days * 86_400,
            step: 3600,
        };
        let samples = (0..2 * days).map(|half| poolwright_planner::forecast::Sample {
            at: half * 43_200,
            gpus: if half % 2 == 1 { 8.0 } else { 0.0 },
        });
        let series = Series::of_samples(&samples.collect::<Vec<_>>(), window).unwrap();
        forecast(&History::of(series), &[1, 2, 3, 4, 13, 14])
    }

    #[test]
    fn a_past_that_is_too_short_expects_nothing() {
        assert_eq!(keep(Level::P90).expects(&days(1)), None);
    }

    #[test]
    fn only_what_comes_soon_counts() {
        let long = days(20);
        let soon = keep(Level::P50).expects(&long).unwrap();
        assert!(soon.gpus <= 4, "they are not wanted by night: {soon:?}");
        let later = Keep {
            ahead_h: 14,
            ..keep(Level::P50)
        };
        let later = later.expects(&long).unwrap();
        assert!(later.gpus >= 6 && later.in_s >= 13 * 3600, "{later:?}");
    }
}
