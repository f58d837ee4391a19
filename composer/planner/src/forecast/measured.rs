//! How often the past would have been right: what would have been said at each step, held against what came.

use serde::{Deserialize, Serialize};

/// What came of forecasts of the past.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Measured {
    /// So many moments of the past were forecast.
    pub moments: usize,
    pub ours: Against,
    /// The same of the last value with the quantile of its errors.
    pub last_value: Against,
}

/// Forecasts held against what came.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Against {
    /// Share of the moments at which p90 sufficed.
    pub coverage: f64,
    /// GPUs that p90 had more than were wanted, in the mean, by those wanted in the mean.
    pub over: f64,
    /// How far p50 was off, by what was wanted: the weighted absolute percentage error, as a share.
    pub wape: f64,
    /// The quantile loss of p90, by what was wanted in the mean.
    pub pinball90: f64,
}

/// What was said of a moment, and what came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Judged {
    pub p50: f64,
    pub p90: f64,
    pub came: f64,
}

impl Against {
    /// None where nothing was wanted, or nothing said.
    pub(super) fn of(judged: &[Judged]) -> Option<Self> {
        let came: f64 = judged.iter().map(|one| one.came).sum();
        if judged.is_empty() || came <= 0.0 {
            return None;
        }
        let by_came = |each: fn(&Judged) -> f64| judged.iter().map(each).sum::<f64>() / came;
        // What is sums of differences may be off by a crumb.
        let covered = judged.iter().filter(|one| one.came <= one.p90 + 1e-6).count();
        Some(Self {
            coverage: covered as f64 / judged.len() as f64,
            over: by_came(|one| (one.p90 - one.came).max(0.0)),
            wape: by_came(|one| (one.came - one.p50).abs()),
            pinball90: by_came(|one| f64::max(0.9 * (one.came - one.p90), 0.1 * (one.p90 - one.came))),
        })
    }
}
