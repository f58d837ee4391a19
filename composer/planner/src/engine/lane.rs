//! Waiting jobs that are alike, in order, with a quick answer to "which is the first that is short enough?".
//!
//! Kept in blocks, each with the shortest expected run time in it: ten thousand waiting jobs are not looked at one by
//! one whenever a GPU comes free.

use super::{Job, JobId, Millis};

/// Where a job stands: its rank, then its number.
pub(super) type Rank = (Millis, JobId);

const BLOCK: usize = 64;

/// How long a job is expected to run, and how long it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spans {
    pub expected: Millis,
    /// [`Millis::MAX`] without a limit.
    pub limit: Millis,
}

impl Spans {
    pub const ANY: Self = Self {
        expected: Millis::MAX,
        limit: Millis::MAX,
    };

    pub fn of(job: &Job) -> Self {
        Self {
            expected: job.expected,
            limit: job.limit.unwrap_or(Millis::MAX),
        }
    }

    /// Whether neither is longer than that of the other.
    fn is_within(self, other: Self) -> bool {
        self.expected <= other.expected && self.limit <= other.limit
    }

    fn least(self, other: Self) -> Self {
        Self {
            expected: self.expected.min(other.expected),
            limit: self.limit.min(other.limit),
        }
    }
}

#[derive(Clone, Debug)]
struct Block {
    jobs: Vec<(Rank, Spans)>,
    /// The shortest of each.
    shortest: Spans,
}

impl Block {
    fn measured(jobs: Vec<(Rank, Spans)>) -> Self {
        let spans = jobs.iter().map(|(_, spans)| *spans);
        Self {
            shortest: spans.fold(Spans::ANY, Spans::least),
            jobs,
        }
    }
}

/// Jobs of one tenant, class and width, by rank.
#[derive(Clone, Debug, Default)]
pub(super) struct Lane {
    blocks: Vec<Block>,
}

impl Lane {
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub fn insert(&mut self, rank: Rank, spans: Spans) {
        let at = self.block_of(rank);
        let Some(block) = self.blocks.get_mut(at) else {
            self.blocks.push(Block::measured(vec![(rank, spans)]));
            return;
        };
        let place = block.jobs.partition_point(|(other, _)| *other < rank);
        block.jobs.insert(place, (rank, spans));
        block.shortest = block.shortest.least(spans);
        if block.jobs.len() > 2 * BLOCK {
            let later = block.jobs.split_off(BLOCK);
            *block = Block::measured(std::mem::take(&mut block.jobs));
            self.blocks.insert(at + 1, Block::measured(later));
        }
    }

    pub fn remove(&mut self, rank: Rank) -> bool {
        let at = self.block_of(rank);
        let Some(block) = self.blocks.get_mut(at) else {
            return false;
        };
        let Ok(place) = block.jobs.binary_search_by_key(&rank, |(other, _)| *other) else {
            return false;
        };
        block.jobs.remove(place);
        if block.jobs.is_empty() {
            self.blocks.remove(at);
        } else {
            *block = Block::measured(std::mem::take(&mut block.jobs));
        }
        true
    }

    /// In order.
    pub fn jobs(&self) -> impl Iterator<Item = (Rank, Spans)> {
        self.blocks.iter().flat_map(|block| block.jobs.iter().copied())
    }

    pub fn first(&self) -> Option<Rank> {
        Some(self.blocks.first()?.jobs.first()?.0)
    }

    /// The first job that neither is expected to run nor may run for longer.
    pub fn first_within(&self, most: Spans) -> Option<Rank> {
        let blocks = self.blocks.iter();
        let mut blocks = blocks.filter(|block| block.shortest.is_within(most));
        blocks.find_map(|block| {
            let found = block.jobs.iter().find(|(_, spans)| spans.is_within(most));
            found.map(|(rank, _)| *rank)
        })
    }

    /// The block that the rank belongs in: the last that does not begin after it.
    fn block_of(&self, rank: Rank) -> usize {
        let after = self
            .blocks
            .partition_point(|block| block.jobs.first().is_some_and(|(first, _)| *first <= rank));
        after.saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a plain sorted list, over many insertions and removals.
    #[test]
    fn a_lane_answers_as_a_sorted_list_does() {
        let (mut lane, mut list) = (Lane::default(), Vec::<(Rank, Spans)>::new());
        let mut chance = fastrand::Rng::with_seed(7);
        let mut next = |below: u64| chance.u64(..below);
        for id in 0..3000 {
            let rank = (next(500), id);
            let spans = Spans {
                expected: next(1000),
                limit: next(1000),
            };
            lane.insert(rank, spans);
            list.push((rank, spans));
            list.sort_unstable_by_key(|(rank, _)| *rank);
            if next(3) == 0 {
                let (gone, _) = list.remove(next(list.len() as u64) as usize);
                assert!(lane.remove(gone));
                assert!(!lane.remove(gone));
            }
            let most = Spans {
                expected: next(1000),
                limit: next(1000),
            };
            let within =
                |(_, spans): &&(Rank, Spans)| spans.expected <= most.expected && spans.limit <= most.limit;
            let first = list.iter().find(within);
            assert_eq!(lane.first_within(most), first.map(|(rank, _)| *rank));
            assert_eq!(lane.first(), list.first().map(|(rank, _)| *rank));
            assert_eq!(lane.is_empty(), list.is_empty());
        }
    }
}
