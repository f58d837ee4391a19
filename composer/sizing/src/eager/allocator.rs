//! PyTorch's caching allocator for CUDA, after `c10/cuda/CUDACachingAllocator.cpp`: the segments that it reserves for a
//! sequence of tensors.
//!
//! Tensors up to 1 MiB come from segments of 2 MiB, larger ones from segments of 20 MiB, and those from 10 MiB on from
//! segments of their own, in steps of 2 MiB. The smallest free block that is large enough is taken, and split where more
//! than 1 MiB would be left. Free neighbours become one block inside a segment, never across two: a freed activation
//! does not make room for a larger gradient. With `expandable_segments` there is one segment that grows.

const MIB: u64 = 1 << 20;
/// Sizes are multiples of this.
const ROUND: u64 = 512;
/// The largest size of the small pool, and the least that is split off in the large one.
const SMALL: u64 = MIB;
const SMALL_SEGMENT: u64 = 2 * MIB;
const LARGE_SEGMENT: u64 = 20 * MIB;
/// From this size on a segment is as large as its tensor.
const OWN_SEGMENT: u64 = 10 * MIB;

/// A block of a segment: the number by which it is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Block(usize);

#[derive(Clone, Copy, Debug)]
struct State {
    size: u64,
    is_small: bool,
    is_free: bool,
    before: Option<Block>,
    after: Option<Block>,
}

#[derive(Debug, Default)]
pub(crate) struct Allocator {
    blocks: Vec<State>,
    /// Numbers of blocks that are no more.
    unused: Vec<Block>,
    /// Free blocks by size: large, small.
    free: [Vec<(u64, Block)>; 2],
    /// The end of the one segment of each pool, where segments expand.
    ends: Option<[Option<Block>; 2]>,
    live: u64,
    most_live: u64,
    reserved: u64,
}

impl Allocator {
    pub fn new(expandable: bool) -> Allocator {
        Allocator {
            ends: expandable.then_some([None, None]),
            ..Allocator::default()
        }
    }

    /// The most bytes of tensors at once, rounded as they are.
    pub fn most_live(&self) -> u64 {
        self.most_live
    }

    /// Bytes of all segments, which are never given back.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    pub fn take(&mut self, bytes: f64) -> Block {
        let size = (bytes.max(1.0).ceil() as u64).div_ceil(ROUND) * ROUND;
        let is_small = size <= SMALL;
        let pool = &mut self.free[usize::from(is_small)];
        let at = pool.partition_point(|free| *free < (size, Block(0)));
        let block = match at < pool.len() {
            true => pool.remove(at).1,
            false => self.reserve(size, is_small),
        };
        self.split(block, size);
        self.blocks[block.0].is_free = false;
        self.live += self.blocks[block.0].size;
        self.most_live = self.most_live.max(self.live);
        block
    }

    pub fn give(&mut self, block: Block) {
        let state = self.blocks[block.0];
        self.live -= state.size;
        let mut merged = block;
        if let Some(after) = state.after.filter(|after| self.blocks[after.0].is_free) {
            self.join(block, after);
        }
        if let Some(before) = state.before.filter(|before| self.blocks[before.0].is_free) {
            self.remove_free(before);
            self.join_all(before, block);
            merged = before;
        }
        self.add_free(merged);
    }

    /// A new segment, or the one segment longer.
    fn reserve(&mut self, size: u64, is_small: bool) -> Block {
        let pool = usize::from(is_small);
        let end = self.ends.and_then(|ends| ends[pool]);
        // The free end of a segment that expands is used.
        let free_end = end.filter(|end| self.blocks[end.0].is_free);
        let there = free_end.map_or(0, |end| self.blocks[end.0].size);
        let segment = match (is_small, self.ends.is_some()) {
            (true, _) => (size - there).div_ceil(SMALL_SEGMENT) * SMALL_SEGMENT,
            (false, true) => (size - there).div_ceil(LARGE_SEGMENT) * LARGE_SEGMENT,
            (false, false) if size < OWN_SEGMENT => LARGE_SEGMENT,
            (false, false) => size.div_ceil(2 * MIB) * (2 * MIB),
        };
        self.reserved += segment;
        if let Some(end) = free_end {
            self.remove_free(end);
            self.blocks[end.0].size += segment;
            return end;
        }
        let block = self.add(State {
            size: segment,
            is_small,
            is_free: true,
            before: end,
            after: None,
        });
        if let Some(end) = end {
            self.blocks[end.0].after = Some(block);
        }
        if let Some(ends) = &mut self.ends {
            ends[pool] = Some(block);
        }
        block
    }

    /// Splits the rest of a block off as a free one; a small rest stays part of it.
    fn split(&mut self, block: Block, size: u64) {
        let state = self.blocks[block.0];
        let left = state.size - size;
        let worth = if state.is_small {
            left >= ROUND
        } else {
            left > SMALL
        };
        if !worth {
            return;
        }
        let rest = self.add(State {
            size: left,
            is_small: state.is_small,
            is_free: true,
            before: Some(block),
            after: state.after,
        });
        self.blocks[block.0].size = size;
        self.blocks[block.0].after = Some(rest);
        self.follow(rest);
        self.add_free(rest);
    }

    fn add(&mut self, state: State) -> Block {
        match self.unused.pop() {
            Some(block) => {
                self.blocks[block.0] = state;
                block
            }
            None => {
                self.blocks.push(state);
                Block(self.blocks.len() - 1)
            }
        }
    }

    /// Tells the block behind, or the pool whose end it is now, of this one.
    fn follow(&mut self, block: Block) {
        let state = self.blocks[block.0];
        match (state.after, &mut self.ends) {
            (Some(after), _) => self.blocks[after.0].before = Some(block),
            (None, Some(ends)) => ends[usize::from(state.is_small)] = Some(block),
            (None, None) => {}
        }
    }

    fn join(&mut self, block: Block, after: Block) {
        self.remove_free(after);
        self.join_all(block, after);
    }

    fn join_all(&mut self, block: Block, after: Block) {
        let gone = self.blocks[after.0];
        self.blocks[block.0].size += gone.size;
        self.blocks[block.0].after = gone.after;
        self.unused.push(after);
        self.follow(block);
    }

    fn add_free(&mut self, block: Block) {
        let state = &mut self.blocks[block.0];
        state.is_free = true;
        let (pool, free) = (&mut self.free[usize::from(state.is_small)], (state.size, block));
        pool.insert(pool.partition_point(|other| *other < free), free);
    }

    fn remove_free(&mut self, block: Block) {
        let state = &mut self.blocks[block.0];
        state.is_free = false;
        let (pool, free) = (&mut self.free[usize::from(state.is_small)], (state.size, block));
        if let Ok(at) = pool.binary_search(&free) {
            pool.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = 1024.0 * 1024.0;

    fn reserved(allocator: &Allocator) -> f64 {
        allocator.reserved() as f64 / MIB
    }

    #[test]
    fn sizes_of_segments() {
        let mut allocator = Allocator::default();
        // 1,000 bytes are rounded to 1,024, in a segment of 2 MiB; 1 MiB more goes into it, 1 MiB again does not.
        let sizes = [
            (1000.0, 2.0),
            (MIB, 2.0),
            (MIB, 4.0),
            (3.0 * MIB, 24.0),
            (17.5 * MIB, 42.0),
        ];
        for (size, expected) in sizes {
            allocator.take(size);
            assert!((reserved(&allocator) - expected).abs() < 1e-9, "{size}");
        }
        assert_eq!(
            allocator.most_live(),
            1024 + (23.0 * MIB) as u64,
            "half a MiB is not split off"
        );
    }

    #[test]
    fn merging_inside_a_segment_alone() {
        let mut allocator = Allocator::default();
        let whole = allocator.take(64.0 * MIB);
        allocator.give(whole);
        let parts: Vec<Block> = (0..4).map(|_| allocator.take(16.0 * MIB)).collect();
        assert!(
            (reserved(&allocator) - 64.0).abs() < 1e-9,
            "the parts are of one segment"
        );
        for part in [1, 3, 2, 0] {
            allocator.give(parts[part]);
        }
        let whole = allocator.take(64.0 * MIB);
        assert!(
            (reserved(&allocator) - 64.0).abs() < 1e-9,
            "they are one block again"
        );
        allocator.give(whole);
        allocator.take(65.0 * MIB);
        assert!(
            (reserved(&allocator) - 130.0).abs() < 1e-9,
            "66 more: every free block is too small"
        );
    }

    #[test]
    fn best_fit() {
        let mut allocator = Allocator::default();
        let blocks = [40.0, 20.0, 30.0].map(|size| allocator.take(size * MIB));
        for block in blocks {
            allocator.give(block);
        }
        allocator.take(19.5 * MIB);
        assert_eq!(
            allocator.free[0].len(),
            2,
            "half a MiB is too little to split off"
        );
        assert!((reserved(&allocator) - 90.0).abs() < 1e-9);
    }

    #[test]
    fn growth_of_expandable_segments() {
        let mut allocator = Allocator::new(true);
        let first = allocator.take(64.0 * MIB);
        let second = allocator.take(16.0 * MIB);
        assert!((reserved(&allocator) - 80.0).abs() < 1e-9);
        allocator.give(first);
        allocator.give(second);
        allocator.take(90.0 * MIB);
        assert!(
            (reserved(&allocator) - 100.0).abs() < 1e-9,
            "the free end is used"
        );
    }
}
