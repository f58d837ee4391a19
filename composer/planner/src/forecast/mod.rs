//! How many GPUs will be wanted: the middle (p50) and what suffices in nine of ten cases (p90), hour by hour. Pure: the
//! past comes in as values, and the same past gives the same forecast.
//!
//! * [`forecast`]: a [`History`] in, a [`Forecast`] out. Begin there.
//! * [`Series`]: GPUs wanted, step by step, from samples or from recorded jobs.
//! * [`JobRun`]: what is known of jobs: how long they ran, and when those that still run are to end.
//! * [`Measured`]: how often the past would have been right, beside the last value with the quantile of its errors.
//!
//! On the way: `methods` (ways to go on from the past), `ends` (how long those that run will stay, and who comes),
//! `choose` (which way did well), `conformal` (how much to add so that it suffices).
//!
//! Invariants: a forecast for a moment rests on what was known when it was made, also where the past is judged; p50 is
//! never above p90; neither is negative; too short a past is the last value, and says so.

mod choose;
mod conformal;
mod ends;
mod make;
mod measured;
mod methods;
mod series;

pub use make::{Basis, Forecast, Horizon, forecast};
pub use measured::{Against, Measured};
pub use series::{JobRun, MOST_STEPS, Sample, Series, SeriesError, Window};

/// Seconds from a zero that the caller chooses.
pub type Seconds = i64;

/// What is known of the past of one tenant and pool.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    series: Series,
    jobs: Vec<JobRun>,
}

impl History {
    /// A series of which the jobs behind it are not known.
    #[must_use]
    pub fn of(series: Series) -> Self {
        Self {
            series,
            jobs: Vec::new(),
        }
    }

    /// With the jobs behind it, also those that have ended: from them is learned how long jobs run.
    pub fn with_jobs(series: Series, jobs: Vec<JobRun>) -> Result<Self, SeriesError> {
        jobs.iter().try_for_each(JobRun::judge)?;
        Ok(Self { series, jobs })
    }

    /// The series of these jobs.
    pub fn of_jobs(jobs: Vec<JobRun>, window: Window) -> Result<Self, SeriesError> {
        let series = Series::of_jobs(&jobs, window)?;
        Ok(Self { series, jobs })
    }

    #[must_use]
    pub fn series(&self) -> &Series {
        &self.series
    }
}
