//! Waiting jobs that are alike, in order, with a quick answer to "which is the first that is short enough?".
//!
//! Kept in blocks, each with the shortest expected run time in it: ten thousand waiting jobs are not looked at one by
//! one whenever a GPU comes free.

use super::{JobId, Millis};

/// Where a job stands: its rank, then its number.
pub(super) type Rank = (Millis, JobId);

const BLOCK: usize = 64;

#[derive(Clone, Debug, Default)]
struct Block {
    jobs: Vec<(Rank, Millis)>,
    shortest: Millis,
}

impl Block {
    fn measured(jobs: Vec<(Rank, Millis)>) -> Self {
        let shortest = jobs
            .iter()
            .map(|(_, expected)| *expected)
            .min()
            .unwrap_or(Millis::MAX);
        Self { jobs, shortest }
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

    pub fn insert(&mut self, rank: Rank, expected: Millis) {
        let at = self.block_of(rank);
        let Some(block) = self.blocks.get_mut(at) else {
            self.blocks.push(Block::measured(vec![(rank, expected)]));
            return;
        };
        let place = block.jobs.partition_point(|(other, _)| *other < rank);
        block.jobs.insert(place, (rank, expected));
        block.shortest = block.shortest.min(expected);
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

    pub fn first(&self) -> Option<Rank> {
        Some(self.blocks.first()?.jobs.first()?.0)
    }

    /// The first job that is expected to run no longer than `limit`.
    pub fn first_within(&self, limit: Millis) -> Option<Rank> {
        let block = self.blocks.iter().find(|block| block.shortest <= limit)?;
        let (rank, _) = block.jobs.iter().find(|(_, expected)| *expected <= limit)?;
        Some(*rank)
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
        let (mut lane, mut list) = (Lane::default(), Vec::<(Rank, Millis)>::new());
        let mut chance = fastrand::Rng::with_seed(7);
        let mut next = |below: u64| chance.u64(..below);
        for id in 0..3000 {
            let rank = (next(500), id);
            let expected = next(1000);
            lane.insert(rank, expected);
            list.push((rank, expected));
            list.sort_unstable();
            if next(3) == 0 {
                let (gone, _) = list.remove(next(list.len() as u64) as usize);
                assert!(lane.remove(gone));
                assert!(!lane.remove(gone));
            }
            let limit = next(1000);
            let first = list.iter().find(|(_, expected)| *expected <= limit);
            assert_eq!(lane.first_within(limit), first.map(|(rank, _)| *rank));
            assert_eq!(lane.first(), list.first().map(|(rank, _)| *rank));
            assert_eq!(lane.is_empty(), list.is_empty());
        }
    }
}
