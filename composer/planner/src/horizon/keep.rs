//! Keep or detach: what it costs to have the GPUs of one group at one host when they are in use there.
//!
//! The n-th GPU in use is one *level*. A level is in use in some slots; over each gap between them the GPU is
//! kept, at the price of being idle, or detached and attached again, whichever is cheaper. Levels don't touch
//! each other, so the sum over levels is the least cost exactly; it is what a shortest path through the states
//! of each GPU would find. Room at the host and the size of the group are looked at elsewhere
//! (`State::cost`).
//!
//! Use is written as *runs*: the slots at which it changes, and to how much, the first of them slot 0.

use super::problem::{Cost, Costs};
use std::ops::Range;

/// Attached by nobody so far.
const NEVER: usize = usize::MAX;

/// Prices of one group's GPUs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prices {
    pub idle: Cost,
    pub attach: Cost,
    pub detach: Cost,
}

impl Prices {
    pub fn new(idle: Cost, costs: Costs) -> Self {
        Self {
            idle,
            attach: costs.attach,
            detach: costs.detach,
        }
    }

    /// What keeping saves over a gap before the next use, or before the end of the horizon.
    fn saving(&self, slots: usize, used_again: bool) -> Cost {
        let otherwise = if used_again {
            self.attach + self.detach
        } else {
            self.detach
        };
        otherwise - self.idle * slots as Cost
    }
}

/// Slots over which a GPU may be kept idle, and what that saves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gap {
    pub from: usize,
    pub to: usize,
    pub saving: Cost,
}

/// A slot at which use changes, and to how many GPUs.
pub(super) type Run = (usize, u16);

/// The runs of what is used in each slot.
pub(super) fn runs(used: &[u16], runs: &mut Vec<Run>) {
    runs.clear();
    for (slot, used) in used.iter().enumerate() {
        if runs.last().is_none_or(|(_, before)| before != used) {
            runs.push((slot, *used));
        }
    }
}

/// The runs of what is used if `count` more are used in a window.
pub(super) fn more(runs: &[Run], window: &Range<usize>, count: u16, more: &mut Vec<Run>) {
    more.clear();
    let (mut level, mut next) = (0, window.start);
    for (slot, used) in runs.iter().copied().chain([(usize::MAX, 0)]) {
        // The borders of the window that lie before this run.
        while next < slot && next <= window.end {
            let inside = next == window.start;
            more.push((next, level + if inside { count } else { 0 }));
            next = if inside { window.end } else { usize::MAX };
        }
        if slot == usize::MAX {
            break;
        }
        if next == slot {
            next = if slot == window.start {
                window.end
            } else {
                usize::MAX
            };
        }
        more.push((slot, used + if window.contains(&slot) { count } else { 0 }));
        level = used;
    }
}

/// What a group costs at a host that has `attached` of its GPUs at first and uses `runs`: attaching, detaching and
/// idling over `slots`, the least there is. Hears of every gap over which keeping pays, for each GPU.
pub(super) fn cost(
    runs: &[Run],
    slots: usize,
    attached: u16,
    prices: Prices,
    lasts: &mut Vec<usize>,
    mut kept: impl FnMut(Gap),
) -> Cost {
    lasts.clear();
    lasts.resize(usize::from(attached), 0);
    let (mut level, mut cost) = (usize::from(attached), 0);
    let mut over = |from: usize, to: usize, used_again: bool| {
        let saving = prices.saving(to - from, used_again);
        if saving > 0 {
            kept(Gap { from, to, saving });
        }
        let without = if used_again {
            prices.attach + prices.detach
        } else {
            prices.detach
        };
        without - saving.max(0)
    };
    for (slot, used) in runs {
        let (slot, used) = (*slot, usize::from(*used));
        if used > lasts.len() {
            lasts.resize(used, NEVER);
        }
        for last in &lasts[level.min(used)..used] {
            cost += match *last {
                NEVER => prices.attach,
                // Attached before the first slot and used in it: no gap.
                last if last == slot => 0,
                last => over(last, slot, true),
            };
        }
        if used < level {
            lasts[used..level].fill(slot);
        }
        level = used;
    }
    for last in lasts[level..].iter().filter(|last| **last != NEVER) {
        cost += over(*last, slots, false);
    }
    cost
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICES: Prices = Prices {
        idle: 5,
        attach: 60,
        detach: 20,
    };

    /// All ways to be attached in each slot, tried one by one.
    fn tried(used: &[u16], attached: u16, most: u16) -> Cost {
        let mut best = vec![Cost::MAX; usize::from(most) + 1];
        best[usize::from(attached)] = 0;
        for needed in used {
            let mut next = vec![Cost::MAX; usize::from(most) + 1];
            for (before, so_far) in best.iter().enumerate().filter(|(_, cost)| **cost < Cost::MAX) {
                for (now, least) in next.iter_mut().enumerate().skip(usize::from(*needed)) {
                    let moved = PRICES.attach * now.saturating_sub(before) as Cost
                        + PRICES.detach * before.saturating_sub(now) as Cost;
                    let idle = PRICES.idle * (now as Cost - Cost::from(*needed));
                    *least = (*least).min(so_far + moved + idle);
                }
            }
            best = next;
        }
        best.into_iter().min().unwrap()
    }

    #[test]
    fn what_is_found_is_the_least_of_all_ways() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..400 {
            let used: Vec<u16> = (0..rng.usize(1..40))
                .map(|_| rng.u16(0..4) * u16::from(rng.u8(0..3) == 0))
                .collect();
            let attached = rng.u16(0..4);
            let mut runs_of = Vec::new();
            runs(&used, &mut runs_of);
            let found = cost(&runs_of, used.len(), attached, PRICES, &mut Vec::new(), |_| {});
            assert_eq!(found, tried(&used, attached, 4), "{used:?}, {attached} at first");
        }
    }

    #[test]
    fn a_gap_is_kept_only_where_that_pays() {
        let mut found = Vec::new();
        cost(
            &[(0, 1), (1, 0), (3, 1), (4, 0)],
            12,
            1,
            PRICES,
            &mut Vec::new(),
            |gap| found.push(gap),
        );
        assert_eq!(
            found,
            [Gap {
                from: 1,
                to: 3,
                saving: 70
            }],
            "idle to the end costs 40, a detach 20"
        );
    }

    #[test]
    fn more_in_a_window_is_what_it_would_be_slot_by_slot() {
        let mut rng = fastrand::Rng::with_seed(11);
        for _ in 0..400 {
            let mut used: Vec<u16> = (0..rng.usize(1..12)).map(|_| rng.u16(0..3)).collect();
            let start = rng.usize(..used.len());
            let window = start..rng.usize(start + 1..=used.len());
            let (mut before, mut found) = (Vec::new(), Vec::new());
            runs(&used, &mut before);
            more(&before, &window, 2, &mut found);
            used[window.clone()].iter_mut().for_each(|used| *used += 2);
            let by_slot = |runs: &[Run]| -> Vec<u16> {
                (0..used.len())
                    .map(|slot| runs.iter().rev().find(|run| run.0 <= slot).unwrap().1)
                    .collect()
            };
            // A border at the end of the horizon is beyond every slot.
            assert_eq!(by_slot(&found), used, "{before:?} {window:?}");
            assert!(found.is_sorted_by_key(|run| run.0));
        }
    }
}
