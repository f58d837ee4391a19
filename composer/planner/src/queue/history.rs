//! Run times expected from what has finished: of the same tenant and width, where enough of them have.

use super::Millis;
use std::collections::{BTreeMap, VecDeque};

/// Finished jobs that are remembered of a kind: old ones say little of today's.
const REMEMBERED: usize = 200;
/// Fewer than these say nothing.
const ENOUGH: usize = 5;
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
}

impl History {
    /// A job of a tenant and a width has run so long.
    pub fn learn(&mut self, tenant: usize, gpus: u32, run_time: Millis) {
        self.alike.entry((tenant, gpus)).or_default().learn(run_time);
        self.tenants.entry(tenant).or_default().learn(run_time);
        self.widths.entry(gpus).or_default().learn(run_time);
        self.all.learn(run_time);
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
    fn old_run_times_are_forgotten() {
        let mut history = History::default();
        (0..REMEMBERED).for_each(|_| history.learn(0, 1, 1000));
        (0..REMEMBERED).for_each(|_| history.learn(0, 1, 5));
        assert_eq!(history.expected(0, 1), 5);
    }
}
