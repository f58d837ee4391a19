//! GPUs wanted over time, in steps of one length that end where the past ends.

use super::Seconds;

/// Steps that are kept, the latest: three months of hours. What is older says little of tomorrow.
pub const MOST_STEPS: usize = 2_160;
/// Moments are within this many seconds of zero, and numbers of GPUs below as many.
const MOST: f64 = 1e11;

/// So many GPUs were wanted from then on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub at: Seconds,
    pub gpus: f64,
}

/// A job: since when it wants GPUs, and until when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobRun {
    pub from: Seconds,
    /// When it ended; None while it runs.
    pub ended: Option<Seconds>,
    /// When it was to end, as was known from its beginning.
    pub planned: Option<Seconds>,
    pub gpus: f64,
}

/// What is known: since when, until when, and how finely it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub since: Seconds,
    /// When the forecast is made.
    pub until: Seconds,
    pub step: Seconds,
}

/// Why there is no series.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SeriesError {
    #[error("a step of {0} s: allowed are 60 to 86,400")]
    Step(Seconds),
    #[error("{gpus} GPUs at {at} s: allowed are numbers from 0 to 1e11, at moments within 1e11 s")]
    Number { at: Seconds, gpus: f64 },
    #[error("{known} s are known, less than one step of {step} s: give a longer past, or a shorter step")]
    TooShort { known: Seconds, step: Seconds },
}

/// GPUs wanted, step by step.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The end of the last step: when the forecast is made.
    pub end: Seconds,
    pub step: Seconds,
    /// The mean over each step.
    pub means: Vec<f64>,
    /// The level at the end of each step.
    pub levels: Vec<f64>,
}

impl Series {
    /// From samples in any order, each holding until the next; before the first nothing is wanted. Of two at one moment
    /// the later in the list counts.
    pub fn of_samples(samples: &[Sample], window: Window) -> Result<Self, SeriesError> {
        samples
            .iter()
            .try_for_each(|sample| judge(sample.at, sample.gpus))?;
        let mut sorted = samples.to_vec();
        sorted.sort_by_key(|sample| sample.at);
        let mut filling = Filling::new(window)?;
        for (place, sample) in sorted.iter().enumerate() {
            let until = sorted.get(place + 1).map_or(window.until, |next| next.at);
            filling.add(sample.at, until, sample.gpus);
        }
        Ok(filling.done())
    }

    /// From jobs: at each moment the GPUs of those that had begun and not ended.
    pub fn of_jobs(jobs: &[JobRun], window: Window) -> Result<Self, SeriesError> {
        jobs.iter().try_for_each(JobRun::judge)?;
        let mut filling = Filling::new(window)?;
        for job in jobs {
            filling.add(job.from, job.ended.unwrap_or(window.until), job.gpus);
        }
        Ok(filling.done())
    }

    /// What all of them want together; None where they are of different windows, or none.
    #[must_use]
    pub fn sum<'a>(series: impl IntoIterator<Item = &'a Self>) -> Option<Self> {
        let mut series = series.into_iter();
        let mut sum = series.next()?.clone();
        for other in series {
            if (sum.end, sum.step, sum.means.len()) != (other.end, other.step, other.means.len()) {
                return None;
            }
            let add =
                |to: &mut [f64], from: &[f64]| to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
            add(&mut sum.means, &other.means);
            add(&mut sum.levels, &other.levels);
        }
        Some(sum)
    }

    /// Steps in so many hours, at least one.
    pub(super) fn steps(&self, hours: f64) -> usize {
        ((hours * 3600.0 / self.step as f64).round() as usize).max(1)
    }

    /// When a step ends.
    pub(super) fn end_of(&self, step: usize) -> Seconds {
        self.end - (self.means.len() - 1 - step) as Seconds * self.step
    }
}

impl JobRun {
    pub(super) fn judge(&self) -> Result<(), SeriesError> {
        let moments = [Some(self.from), self.ended, self.planned];
        moments
            .into_iter()
            .flatten()
            .try_for_each(|at| judge(at, self.gpus))
    }
}

fn judge(at: Seconds, gpus: f64) -> Result<(), SeriesError> {
    match (0.0..=MOST).contains(&gpus) && (at as f64).abs() <= MOST {
        true => Ok(()),
        false => Err(SeriesError::Number { at, gpus }),
    }
}

/// GPU-seconds by step, while spans are added; whole steps by their differences, so that a long span costs no more.
struct Filling {
    start: Seconds,
    step: Seconds,
    end: Seconds,
    parts: Vec<f64>,
    whole: Vec<f64>,
    level: Vec<f64>,
}

impl Filling {
    fn new(window: Window) -> Result<Self, SeriesError> {
        let Window { since, until, step } = window;
        if !(60..=86_400).contains(&step) {
            return Err(SeriesError::Step(step));
        }
        [since, until].into_iter().try_for_each(|at| judge(at, 0.0))?;
        let known = until - since;
        if known < step {
            return Err(SeriesError::TooShort { known, step });
        }
        let steps = usize::try_from(known / step).map_or(MOST_STEPS, |steps| steps.min(MOST_STEPS));
        Ok(Self {
            start: until - steps as Seconds * step,
            step,
            end: until,
            parts: vec![0.0; steps],
            whole: vec![0.0; steps + 1],
            level: vec![0.0; steps + 1],
        })
    }

    fn add(&mut self, from: Seconds, until: Seconds, gpus: f64) {
        let (from, until) = (from.max(self.start), until.min(self.end));
        if from >= until {
            return;
        }
        let steps = self.parts.len();
        let (first, last) = (self.step_of(from), self.step_of(until));
        if first == last {
            self.parts[first] += gpus * (until - from) as f64;
        } else {
            self.parts[first] += gpus * (self.end_of(first) - from) as f64;
            if last < steps {
                self.parts[last] += gpus * (until - self.start_of(last)) as f64;
            }
            self.whole[first + 1] += gpus;
            self.whole[last] -= gpus;
        }
        // A step ends with what is wanted just before its end: what ends there is still among it.
        self.level[first] += gpus;
        self.level[last] -= gpus;
    }

    fn step_of(&self, at: Seconds) -> usize {
        ((at - self.start) / self.step) as usize
    }

    fn start_of(&self, step: usize) -> Seconds {
        self.start + step as Seconds * self.step
    }

    fn end_of(&self, step: usize) -> Seconds {
        self.start_of(step + 1)
    }

    fn done(self) -> Series {
        let (mut whole, mut level) = (0.0, 0.0);
        let (mut means, mut levels) = (Vec::new(), Vec::new());
        for (step, part) in self.parts.iter().enumerate() {
            whole += self.whole[step];
            level += self.level[step];
            // Sums of differences leave crumbs below zero.
            means.push((whole + part / self.step as f64).max(0.0));
            levels.push(f64::max(level, 0.0));
        }
        Series {
            end: self.end,
            step: self.step,
            means,
            levels,
        }
    }
}
