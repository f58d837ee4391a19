//! How long those that run will stay, and who comes: from jobs that have ended, and from those known to go on.
//!
//! Jobs that run still say only that they run at least so long (a product-limit estimate over classes of age). What was
//! planned at a job's beginning is believed until it has passed.

use super::{JobRun, Seconds, Series};

/// Classes of age: the first is a minute long, each next a third longer than all before; the last is open.
const CLASSES: usize = 48;
const FIRST_S: f64 = 60.0;
const WIDER: f64 = 1.33;
/// So often, in hours, it is learned anew how long jobs run.
const LEARNED_EVERY_H: f64 = 24.0;
/// Days over which arrivals are counted.
const DAYS: [u8; 2] = [1, 7];

/// What was known of jobs at the end of each step.
pub(super) struct Ends {
    steps: Vec<Known>,
    stays: Vec<Stay>,
    step_s: f64,
}

/// At the end of one step.
struct Known {
    /// Which of the learned there was.
    stay: usize,
    /// GPUs that run, by class of age, of jobs of which no end is known.
    running: Vec<(u8, f64)>,
    /// Of those whose end is planned: when, in seconds from here, and how many GPUs; the earliest first, summed from
    /// the last.
    planned: Vec<(f64, f64)>,
    /// Of those whose planned end has passed.
    overdue: f64,
    /// GPUs that came a second, over each of [`DAYS`].
    arrivals: [f64; 2],
}

/// Which share of the GPUs stays how long.
struct Stay {
    shares: [f64; CLASSES + 1],
}

impl Ends {
    pub fn new(series: &Series, jobs: &[JobRun]) -> Self {
        let mut jobs = jobs.to_vec();
        jobs.sort_by_key(|job| job.from);
        let every = series.steps(LEARNED_EVERY_H);
        let (mut steps, mut stays) = (Vec::new(), Vec::new());
        let mut open: Vec<JobRun> = Vec::new();
        let mut next = 0;
        for step in 0..series.means.len() {
            let now = series.end_of(step);
            if step % every == 0 {
                stays.push(Stay::learned(&jobs, now));
            }
            while let Some(job) = jobs.get(next).filter(|job| job.from < now) {
                open.push(*job);
                next += 1;
            }
            open.retain(|job| job.ended.is_none_or(|ended| ended > now));
            let arrivals = DAYS.map(|days| arrivals(&jobs[..next], series, now, days));
            steps.push(Known::of(&open, now, stays.len() - 1, arrivals));
        }
        Self {
            steps,
            stays,
            step_s: series.step as f64,
        }
    }

    /// GPUs wanted in the step `ahead` of the one at whose end it is asked.
    pub fn wanted(&self, at: usize, ahead: usize, days: u8) -> f64 {
        let known = &self.steps[at];
        let stay = &self.stays[known.stay];
        // The middle of that step stands for all of it.
        let later = (ahead as f64 - 0.5) * self.step_s;
        let running = known
            .running
            .iter()
            .map(|(class, gpus)| gpus * stay.stays(middle(*class), later));
        let first = known.planned.partition_point(|(ends, _)| *ends <= later);
        let planned = known.planned.get(first).map_or(0.0, |(_, gpus)| *gpus);
        let place = DAYS.iter().position(|known| *known == days).unwrap_or(0);
        running.sum::<f64>() + planned + known.arrivals[place] * stay.seconds_within(later)
    }

    /// GPUs of jobs with planned ends that run at the end of a step: those that end before the middle of the step
    /// `ahead`, and those that stay. What is overdue stays.
    pub fn planned(&self, at: usize, ahead: usize) -> (f64, f64) {
        let known = &self.steps[at];
        let later = (ahead as f64 - 0.5) * self.step_s;
        let first = known.planned.partition_point(|(ends, _)| *ends <= later);
        let from = |place: usize| known.planned.get(place).map_or(0.0, |(_, gpus)| *gpus);
        (from(0) - from(first), from(first) + known.overdue)
    }
}

impl Known {
    fn of(open: &[JobRun], now: Seconds, stay: usize, arrivals: [f64; 2]) -> Self {
        let mut running = vec![0.0; CLASSES];
        let (mut planned, mut overdue) = (Vec::new(), 0.0);
        for job in open {
            match job.planned {
                Some(end) if end > now => planned.push(((end - now) as f64, job.gpus)),
                end => {
                    running[class(now.saturating_sub(job.from) as f64)] += job.gpus;
                    overdue += end.map_or(0.0, |_| job.gpus);
                }
            }
        }
        planned.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut sum = 0.0;
        for (_, gpus) in planned.iter_mut().rev() {
            sum += *gpus;
            *gpus = sum;
        }
        let running = running.into_iter().enumerate().filter(|(_, gpus)| *gpus > 0.0);
        Self {
            stay,
            running: running.map(|(class, gpus)| (class as u8, gpus)).collect(),
            planned,
            overdue,
            arrivals,
        }
    }
}

/// GPUs that came a second over the last days; over a shorter past, over that.
fn arrivals(begun: &[JobRun], series: &Series, now: Seconds, days: u8) -> f64 {
    let known = now - series.end_of(0) + series.step;
    let window = known.min(Seconds::from(days) * 86_400);
    let first = begun.partition_point(|job| job.from < now - window);
    let gpus: f64 = begun[first..].iter().map(|job| job.gpus).sum();
    gpus / window.max(1) as f64
}

impl Stay {
    /// From all jobs that had begun by then, by their GPUs: what has ended since is not known yet.
    fn learned(jobs: &[JobRun], now: Seconds) -> Self {
        let (mut ended, mut seen) = ([0.0; CLASSES], [0.0; CLASSES]);
        for job in jobs.iter().take_while(|job| job.from < now) {
            let until = job.ended.map_or(now, |ended| ended.min(now));
            let class = class(until.saturating_sub(job.from) as f64);
            seen[class] += job.gpus;
            if job.ended.is_some_and(|ended| ended <= now) {
                ended[class] += job.gpus;
            }
        }
        let mut shares = [1.0; CLASSES + 1];
        let mut at_risk: f64 = seen.iter().sum();
        for class in 0..CLASSES {
            // Those that are not known any longer were there for half of their class.
            let there = at_risk - (seen[class] - ended[class]) / 2.0;
            let goes = if there > 0.0 {
                (ended[class] / there).min(1.0)
            } else {
                0.0
            };
            shares[class + 1] = shares[class] * (1.0 - goes);
            at_risk -= seen[class];
        }
        Self { shares }
    }

    /// The share that stays longer than that.
    fn share(&self, seconds: f64) -> f64 {
        let class = class(seconds);
        let (from, to) = (starts(class), starts(class + 1));
        let along = ((seconds - from) / (to - from)).clamp(0.0, 1.0);
        self.shares[class] + (self.shares[class + 1] - self.shares[class]) * along
    }

    /// Of what is so old, the share that is there so much later. What is older than all that was seen stays.
    fn stays(&self, age: f64, later: f64) -> f64 {
        let now = self.share(age);
        match now > 1e-9 {
            true => (self.share(age + later) / now).min(1.0),
            false => 1.0,
        }
    }

    /// For how many seconds, in the mean, what comes within that time is there at its end: the area under the shares.
    fn seconds_within(&self, later: f64) -> f64 {
        let (mut area, mut class) = (0.0, 0);
        while class < CLASSES && starts(class) < later {
            let (from, to) = (starts(class), starts(class + 1).min(later));
            area += f64::midpoint(self.share(from), self.share(to)) * (to - from);
            class += 1;
        }
        area
    }
}

/// Where a class of age starts, in seconds.
fn starts(class: usize) -> f64 {
    match class {
        0 => 0.0,
        _ => FIRST_S * WIDER.powi(class as i32 - 1),
    }
}

fn middle(class: u8) -> f64 {
    let class = usize::from(class);
    f64::midpoint(starts(class), starts(class + 1))
}

fn class(seconds: f64) -> usize {
    match seconds < FIRST_S {
        true => 0,
        false => (((seconds / FIRST_S).ln() / WIDER.ln()) as usize + 1).min(CLASSES - 1),
    }
}
