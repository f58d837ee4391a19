//! What tenants are guaranteed, and what that leaves to others.

use crate::horizon::problem::{Demand, Problem};
use crate::horizon::promised::{Kept, is_within};

/// What is kept for tenants, where anything is.
#[derive(Debug, Clone)]
pub(super) struct Guarantees {
    /// By slot.
    kept: Vec<Kept>,
    /// GPUs of each set that nobody uses and nothing claims, by slot.
    left: Vec<Vec<i64>>,
}

/// What tenants are guaranteed and do not use yet, where others may take no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InTheWay {
    /// GPUs that are left.
    pub left: u32,
    /// Tenants, by quota, and how many GPUs are kept for each.
    pub kept: Vec<(usize, u32)>,
}

impl Guarantees {
    pub fn of(problem: &Problem) -> Option<Self> {
        if problem.quotas.iter().all(|quota| quota.guaranteed == 0) {
            return None;
        }
        let kept = problem.kept();
        let left = kept.iter().map(|kept| {
            let of_set = |set: &Vec<usize>| {
                let count: i64 = set
                    .iter()
                    .map(|group| i64::from(problem.groups[*group].count))
                    .sum();
                let claims = kept.of.iter().filter(|(_, suits)| is_within(suits, set));
                count - claims.map(|(count, _)| i64::from(*count)).sum::<i64>()
            };
            kept.sets.iter().map(of_set).collect()
        });
        let left = left.collect();
        Some(Self { kept, left })
    }

    /// GPUs of these groups that a demand may use in a slot, while its tenant uses so many; and in which set that is least.
    fn free_in(&self, quota: Option<usize>, slot: usize, used: u32, groups: &[usize]) -> (u32, usize) {
        let kept = &self.kept[slot];
        let sets = kept.sets.iter().enumerate();
        let concerned = sets.filter(|(_, set)| groups.iter().any(|group| set.binary_search(group).is_ok()));
        let free = concerned.map(|(place, set)| {
            let own = quota.map(|quota| &kept.of[quota]);
            let own = own.filter(|(_, suits)| is_within(suits, set));
            let own = own.map_or(0, |(count, _)| count.saturating_sub(used));
            let free = self.left[slot][place] + i64::from(own);
            (free.clamp(0, u32::MAX.into()) as u32, place)
        });
        free.min().unwrap_or((u32::MAX, 0))
    }

    /// GPUs of these groups that a demand may use in its window, while its tenant uses so many.
    pub fn free(&self, demand: &Demand, used: impl Fn(usize) -> u32, groups: &[usize]) -> u32 {
        let free = |slot: usize| self.free_in(demand.quota, slot, used(slot), groups).0;
        demand.window.clone().map(free).min().unwrap_or(0)
    }

    /// For whom GPUs of these groups are kept in the slot in which the fewest are left to a demand.
    pub fn in_the_way(&self, demand: &Demand, used: &[Vec<u32>], groups: &[usize]) -> Option<InTheWay> {
        let used_of = |quota: usize, slot: usize| used[quota][slot];
        let slots = demand.window.clone();
        let least = slots.map(|slot| {
            let own = demand.quota.map_or(0, |quota| used_of(quota, slot));
            (self.free_in(demand.quota, slot, own, groups), slot)
        });
        let ((left, place), slot) = least.min()?;
        let set = self.kept[slot].sets.get(place)?;
        let kept = self.kept[slot].of.iter().enumerate();
        let kept = kept.filter(|(quota, (_, suits))| Some(*quota) != demand.quota && is_within(suits, set));
        let kept = kept.map(|(quota, (count, _))| (quota, count.saturating_sub(used_of(quota, slot))));
        Some(InTheWay {
            left,
            kept: kept.filter(|(_, count)| *count > 0).collect(),
        })
    }

    /// In a slot a tenant uses so many after so many before, and so many more or less of each of these groups.
    pub fn change(
        &mut self,
        quota: Option<usize>,
        slot: usize,
        (before, after): (u32, u32),
        parts: &[(usize, u16)],
    ) {
        let kept = &self.kept[slot];
        for (set, left) in kept.sets.iter().zip(&mut self.left[slot]) {
            let of_set = parts.iter().filter(|(group, _)| set.binary_search(group).is_ok());
            let moved: i64 = of_set.map(|(_, count)| i64::from(*count)).sum();
            let own = quota.map(|quota| &kept.of[quota]);
            let own = own
                .filter(|(_, suits)| is_within(suits, set))
                .map_or(0, |(count, _)| *count);
            let claims = |used: u32| i64::from(own.saturating_sub(used));
            *left += claims(before) - claims(after);
            *left += if after > before { -moved } else { moved };
        }
    }
}
