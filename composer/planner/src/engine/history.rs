//! Expected run times, from jobs that finished: of the same tenant and width, if enough of them did.

use super::Millis;
use std::collections::{BTreeMap, VecDeque};

/// Finished jobs that are remembered of a kind: old ones say little of today's.
const REMEMBERED: usize = 200;
/// Fewer than these say nothing.
const ENOUGH: usize = 5;
/// An overrunning job is not expected to end sooner than this.
const AT_LEAST: Millis = 60_000;
/// Expected of the first jobs of all.
const UNKNOWN: Millis = 3_600_000;

/// Run times of one kind of job, in the order in which they ended.
#[derive(Clone, Debug, Default)]
struct Sample {
    ended: VecDeque<Millis>,
    sum: u128,
}

impl Sample {
    fn learn(&mut self, run_time: Millis) {
        if self.ended.len() == REMEMBERED
            && let Some(oldest) = self.ended.pop_front()
        {
            self.sum -= u128::from(oldest);
        }
        self.ended.push_back(run_time);
        self.sum += u128::from(run_time);
    }

    fn mean(&self) -> Option<Millis> {
        let count = self.ended.len();
        (count >= ENOUGH).then(|| (self.sum / count as u128) as Millis)
    }
}

/// What finished jobs tell of those to come.
///
/// Jobs that end late are learned late, so that right after a start of history run times are expected too short.
#[derive(Clone, Debug, Default)]
pub struct History {
    alike: BTreeMap<(usize, u32), Sample>,
    tenants: BTreeMap<usize, Sample>,
    widths: BTreeMap<u32, Sample>,
    all: Sample,
    tails: BTreeMap<usize, Tail>,
    tail: Tail,
    /// By tenant, how long jobs ran of which it was said how long they would, in parts of that.
    excesses: BTreeMap<usize, VecDeque<f64>>,
}

impl History {
    /// A job of a tenant and a width has run so long.
    pub fn learn(&mut self, tenant: usize, gpus: u32, run_time: Millis) {
        self.alike.entry((tenant, gpus)).or_default().learn(run_time);
        self.tenants.entry(tenant).or_default().learn(run_time);
        self.widths.entry(gpus).or_default().learn(run_time);
        self.all.learn(run_time);
        self.tails.entry(tenant).or_default().learn(run_time);
        self.tail.learn(run_time);
    }

    /// A job of a tenant has run so long, and it was said beforehand how long it would.
    pub fn compare(&mut self, tenant: usize, said: Millis, run_time: Millis) {
        let excesses = self.excesses.entry(tenant).or_default();
        if excesses.len() == REMEMBERED {
            excesses.pop_front();
        }
        excesses.push_back(run_time as f64 / said.max(1) as f64);
    }

    /// How many times longer jobs of a tenant run than is said of them: the median, if there are enough. Never less than
    /// once: a job that ends early delays no other.
    #[must_use]
    pub fn excess(&self, tenant: usize) -> f64 {
        let known = self.excesses.get(&tenant).filter(|known| known.len() >= ENOUGH);
        let mut sorted: Vec<f64> = known.into_iter().flatten().copied().collect();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).map_or(1.0, |median| median.max(1.0))
    }

    /// The mean run time of jobs like it: like it in tenant and width, else in tenant, else in width, else any. Of run
    /// times that differ by orders of magnitude the mean, and not the median, says what a job will cost those behind it.
    #[must_use]
    pub fn expected(&self, tenant: usize, gpus: u32) -> Millis {
        let of = |sample: Option<&Sample>| sample.and_then(Sample::mean);
        of(self.alike.get(&(tenant, gpus)))
            .or_else(|| of(self.tenants.get(&tenant)))
            .or_else(|| of(self.widths.get(&gpus)))
            .or_else(|| self.all.mean())
            .unwrap_or(UNKNOWN)
    }

    /// The expected remaining run time of an overrunning job: the median of longer jobs of its tenant if there are enough,
    /// else of all tenants. If there are too few of those: until the next step of the counts.
    #[must_use]
    pub fn remaining(&self, tenant: usize, ran: Millis) -> Millis {
        let of_tenant = self.tails.get(&tenant).and_then(|tail| tail.median_above(ran));
        let ends = of_tenant.or_else(|| self.tail.median_above(ran));
        ends.unwrap_or_else(|| step_end(step(ran)))
            .saturating_sub(ran)
            .max(AT_LEAST)
    }
}

/// All run times that were ever seen, counted by steps of a factor of the square root of two.
#[derive(Clone, Debug, Default)]
struct Tail {
    counts: Vec<u32>,
}

fn step(run_time: Millis) -> usize {
    (2.0 * (run_time.max(1) as f64).log2()) as usize
}

fn step_end(step: usize) -> Millis {
    ((step + 1) as f64 / 2.0).exp2() as Millis
}

impl Tail {
    fn learn(&mut self, run_time: Millis) {
        let step = step(run_time);
        if self.counts.len() <= step {
            self.counts.resize(step + 1, 0);
        }
        self.counts[step] += 1;
    }

    /// The median of those that ran longer; `None` of too few.
    fn median_above(&self, ran: Millis) -> Option<Millis> {
        let first = step(ran) + 1;
        let longer = self.counts.get(first..)?;
        let all: u32 = longer.iter().sum();
        if all < ENOUGH as u32 {
            return None;
        }
        let mut below = 0;
        let middle = longer.iter().position(|count| {
            below += count;
            2 * below >= all
        })?;
        // The middle of its step.
        Some(((first + middle) as f64 / 2.0 + 0.25).exp2() as Millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_expected_comes_from_the_likeliest_peers() {
        let mut history = History::default();
        assert_eq!(history.expected(0, 8), UNKNOWN);
        for run_time in [10, 20, 30, 40, 50] {
            history.learn(0, 8, run_time);
        }
        assert_eq!(history.expected(0, 8), 30);
        assert_eq!(history.expected(0, 1), 30, "the tenant's others");
        assert_eq!(history.expected(7, 8), 30, "others of that width");
        assert_eq!(history.expected(7, 3), 30, "any");
        for run_time in [1, 1, 1, 1, 1] {
            history.learn(0, 1, run_time);
        }
        assert_eq!(history.expected(0, 1), 1);
        assert_eq!(history.expected(0, 8), 30);
    }

    #[test]
    fn what_ran_longer_than_expected_ends_as_the_longer_ones_did() {
        let mut history = History::default();
        let (minute, hour) = (60_000, 3_600_000);
        (0..95).for_each(|_| history.learn(0, 1, minute));
        (0..5).for_each(|_| history.learn(0, 1, 10 * hour));
        let near = |remaining: Millis, hours: Millis| remaining.abs_diff(hours * hour) < 3 * hour;
        assert!(near(history.remaining(0, 5 * minute), 10));
        assert!(
            near(history.remaining(7, 9 * hour), 2),
            "as those of other tenants did"
        );
        // Nothing is known of such long ones: no more than the next step, and not as long again.
        let beyond = history.remaining(0, 100 * hour);
        assert!((minute..42 * hour).contains(&beyond), "{beyond}");
        assert_eq!(History::default().remaining(0, 10), AT_LEAST);
    }

    #[test]
    fn what_is_said_of_run_times_is_corrected_by_what_they_were() {
        let mut history = History::default();
        for (run_time, expected) in [(40, 1.0), (60, 1.0), (100, 1.0), (120, 1.0), (160, 5.0)] {
            history.compare(0, 20, run_time);
            assert_eq!(history.excess(0), expected, "after {run_time}");
        }
        assert_eq!(history.excess(1), 1.0, "another tenant's");
        (0..10).for_each(|_| history.compare(0, 1000, 20));
        assert_eq!(history.excess(0), 1.0, "most are shorter than said");
    }

    #[test]
    fn old_run_times_are_forgotten() {
        let mut history = History::default();
        (0..REMEMBERED).for_each(|_| history.learn(0, 1, 1000));
        (0..REMEMBERED).for_each(|_| history.learn(0, 1, 5));
        assert_eq!(history.expected(0, 1), 5);
    }
}
