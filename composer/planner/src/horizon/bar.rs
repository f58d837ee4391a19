//! Which kept GPUs to give up where a host has no window for the BARs of all of them.
//!
//! Where all BARs are of one size the window is a number of GPUs, and the answer is exact ([`cover`]). Else those go that
//! are worth least for what they map where too much is mapped, and of them those stay that fit after all.

use super::cover::{self, Interval};
use super::keep::Gap;
use super::problem::Cost;

/// A GPU that is kept over a gap.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    pub from: usize,
    pub to: usize,
    pub saving: Cost,
    /// MiB.
    pub bar: u64,
}

impl Kept {
    pub fn of(gap: Gap, bar: u64) -> Self {
        let Gap { from, to, saving } = gap;
        Self {
            from,
            to,
            saving,
            bar,
        }
    }
}

/// How much more is mapped than may be, by slot; `None` where it is nowhere.
pub(super) fn beyond(mut mapped: Vec<u64>, most: u64) -> Option<Vec<u64>> {
    if mapped.iter().all(|mapped| *mapped <= most) {
        return None;
    }
    mapped
        .iter_mut()
        .for_each(|mapped| *mapped = mapped.saturating_sub(most));
    Some(mapped)
}

/// What is given up so that there are so many GPUs and so many MiB less by slot.
pub(super) fn give_up(gpus: &[u32], mib: &[u64], kept: &[Kept]) -> Vec<bool> {
    let size = kept.iter().map(|kept| kept.bar).max().unwrap_or(0);
    if size > 0 && kept.iter().all(|kept| kept.bar == size) {
        let wanted = gpus.iter().zip(mib);
        let wanted: Vec<u32> = wanted
            .map(|(gpus, mib)| (*gpus).max(mib.div_ceil(size).min(u64::from(u32::MAX)) as u32))
            .collect();
        return exactly(&wanted, kept);
    }
    let mut given_up = exactly(gpus, kept);
    let mut left: Vec<u64> = mib.to_vec();
    for (kept, _) in kept.iter().zip(&given_up).filter(|(_, given_up)| **given_up) {
        (left[kept.from..kept.to].iter_mut()).for_each(|left| *left = left.saturating_sub(kept.bar));
    }
    while let Some(next) = cheapest(&left, kept, &given_up) {
        given_up[next] = true;
        let kept = &kept[next];
        (left[kept.from..kept.to].iter_mut()).for_each(|left| *left = left.saturating_sub(kept.bar));
    }
    take_back(gpus, mib, kept, &mut given_up);
    given_up
}

fn exactly(wanted: &[u32], kept: &[Kept]) -> Vec<bool> {
    let interval = |kept: &Kept| Interval {
        from: kept.from,
        to: kept.to,
        most: 1,
        cost: kept.saving,
    };
    let intervals: Vec<Interval> = kept.iter().map(interval).collect();
    // What is in use alone always fits, so giving up every keep is enough.
    let taken = cover::cover(wanted, &intervals).unwrap_or_else(|| vec![1; kept.len()]);
    taken.into_iter().map(|taken| taken > 0).collect()
}

/// What is worth least for each MiB that it helps.
fn cheapest(left: &[u64], kept: &[Kept], given_up: &[bool]) -> Option<usize> {
    let helps = |kept: &Kept| -> u64 {
        left[kept.from..kept.to]
            .iter()
            .map(|left| kept.bar.min(*left))
            .sum()
    };
    (0..kept.len())
        .filter(|index| !given_up[*index])
        .filter_map(|index| Some((index, helps(&kept[index]))).filter(|(_, helps)| *helps > 0))
        .min_by(|(one, helps), (other, others)| {
            let (one, other) = (kept[*one].saving as f64, kept[*other].saving as f64);
            (one * *others as f64).total_cmp(&(other * *helps as f64))
        })
        .map(|(index, _)| index)
}

/// Keeps again what fits after all, the most valuable first.
fn take_back(gpus: &[u32], mib: &[u64], kept: &[Kept], given_up: &mut [bool]) {
    let mut spare: Vec<(i64, i128)> = gpus
        .iter()
        .zip(mib)
        .map(|(gpus, mib)| (-i64::from(*gpus), -i128::from(*mib)))
        .collect();
    let mut gone: Vec<usize> = (0..kept.len()).filter(|index| given_up[*index]).collect();
    for index in &gone {
        for (gpus, mib) in &mut spare[kept[*index].from..kept[*index].to] {
            (*gpus, *mib) = (*gpus + 1, *mib + i128::from(kept[*index].bar));
        }
    }
    gone.sort_by_key(|index| std::cmp::Reverse(kept[*index].saving));
    for index in gone {
        let (window, bar) = (kept[index].from..kept[index].to, i128::from(kept[index].bar));
        if spare[window.clone()]
            .iter()
            .all(|(gpus, mib)| *gpus > 0 && *mib >= bar)
        {
            given_up[index] = false;
            (spare[window].iter_mut()).for_each(|(gpus, mib)| (*gpus, *mib) = (*gpus - 1, *mib - bar));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worth(kept: &[Kept], chosen: impl Fn(usize) -> bool) -> Cost {
        (0..kept.len())
            .filter(|index| chosen(*index))
            .map(|index| kept[index].saving)
            .sum()
    }

    fn is_enough(gpus: &[u32], mib: &[u64], kept: &[Kept], chosen: impl Fn(usize) -> bool) -> bool {
        (0..gpus.len()).all(|slot| {
            let there =
                |index: &usize| chosen(*index) && (kept[*index].from..kept[*index].to).contains(&slot);
            let gone: Vec<u64> = (0..kept.len())
                .filter(there)
                .map(|index| kept[index].bar)
                .collect();
            gone.len() >= gpus[slot] as usize && gone.iter().sum::<u64>() >= mib[slot]
        })
    }

    #[test]
    fn what_is_given_up_is_enough_and_seldom_dearer_than_it_must_be() {
        let mut rng = fastrand::Rng::with_seed(5);
        let (mut tried, mut least_found) = (0, 0);
        for round in 0..400 {
            let slots = rng.usize(1..7);
            let kept: Vec<Kept> = (0..rng.usize(1..8))
                .map(|_| {
                    let from = rng.usize(..slots);
                    let bar = if round % 2 == 0 { 4 } else { rng.u64(..5) };
                    Kept {
                        from,
                        to: rng.usize(from + 1..=slots),
                        saving: rng.i64(1..50),
                        bar,
                    }
                })
                .collect();
            let gpus: Vec<u32> = (0..slots).map(|_| rng.u32(..2)).collect();
            let mib: Vec<u64> = (0..slots).map(|_| rng.u64(..6)).collect();
            if !is_enough(&gpus, &mib, &kept, |_| true) {
                continue;
            }
            let found = give_up(&gpus, &mib, &kept);
            assert!(
                is_enough(&gpus, &mib, &kept, |index| found[index]),
                "{gpus:?} {mib:?} {kept:?}"
            );
            let sets = (0_u32..1 << kept.len())
                .filter(|set| is_enough(&gpus, &mib, &kept, |index| set >> index & 1 == 1));
            let least = sets
                .map(|set| worth(&kept, |index| set >> index & 1 == 1))
                .min()
                .unwrap();
            let cost = worth(&kept, |index| found[index]);
            // With one size it is exact.
            assert!(
                cost >= least && (round % 2 == 1 || cost == least),
                "{cost} {least} {kept:?}"
            );
            (tried, least_found) = (tried + 1, least_found + usize::from(cost == least));
        }
        assert!(
            tried > 100 && least_found * 10 > tried * 9,
            "{least_found} of {tried}"
        );
    }
}
