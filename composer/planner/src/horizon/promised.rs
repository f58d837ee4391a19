//! What tenants are promised in each slot: GPUs that are kept for them, and their fair shares of all.
//!
//! A guarantee is of GPUs that suit: those that some demand of the tenant's can do with in that slot. In each set of GPUs
//! that suits a tenant, and in all of these sets together, what others use leaves what is kept for the tenants that nothing
//! outside of it suits. Where there are too few of them for all, those that are named first have theirs.
//!
//! A fair share is what a tenant gets of all GPUs where each gets as many for its weight, and none more than it wants.

use super::problem::{Cost, Problem};

/// Groups of GPUs, in order.
pub(super) type Groups = Vec<usize>;

/// What is kept in one slot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Kept {
    /// By quota: how many, and of which groups.
    pub of: Vec<(u32, Groups)>,
    /// The sets of groups in which it is kept.
    pub sets: Vec<Groups>,
}

impl Problem {
    /// GPUs that tenants with a quota want and that there are any of, by quota and slot; no more than they may use.
    fn wanted_gpus(&self) -> Vec<Vec<u32>> {
        let mut wanted = vec![vec![0_u32; self.slots]; self.quotas.len()];
        for demand in &self.demands {
            let Some(quota) = demand.quota.filter(|_| !demand.choices.is_empty()) else {
                continue;
            };
            for slot in &mut wanted[quota][demand.window.clone()] {
                *slot = slot
                    .saturating_add(u32::from(demand.gpus()))
                    .min(self.quotas[quota].most);
            }
        }
        wanted
    }

    /// What is kept for tenants, by slot: no more than each is guaranteed, may use, or has demands for.
    pub(super) fn kept(&self) -> Vec<Kept> {
        if self.quotas.iter().all(|quota| quota.guaranteed == 0) {
            return vec![Kept::default(); self.slots];
        }
        let wanted = self.wanted_gpus();
        let mut suits = vec![vec![Groups::new(); self.slots]; self.quotas.len()];
        for demand in &self.demands {
            let Some(quota) = demand.quota.filter(|quota| self.quotas[*quota].guaranteed > 0) else {
                continue;
            };
            let groups = demand.choices.iter().flat_map(|choice| &choice.groups);
            let groups: Groups = groups.copied().collect();
            for suits in &mut suits[quota][demand.window.clone()] {
                suits.extend(&groups);
                suits.sort_unstable();
                suits.dedup();
            }
        }
        let at = |slot: usize| {
            let quotas = self.quotas.iter().enumerate();
            let of = quotas.map(|(place, quota)| {
                let suits = suits[place][slot].clone();
                (wanted[place][slot].min(quota.guaranteed), suits)
            });
            self.kept_of(of.collect())
        };
        (0..self.slots).map(at).collect()
    }

    fn kept_of(&self, mut of: Vec<(u32, Groups)>) -> Kept {
        let mut sets: Vec<Groups> = of
            .iter()
            .filter(|(count, suits)| *count > 0 && !suits.is_empty())
            .map(|(_, suits)| suits.clone())
            .collect();
        let mut all = sets.concat();
        all.sort_unstable();
        all.dedup();
        sets.push(all);
        sets.retain(|set| !set.is_empty());
        sets.sort_by_key(|set| (set.len(), set.clone()));
        sets.dedup();
        for set in &sets {
            let mut left: u32 = set.iter().map(|group| u32::from(self.groups[*group].count)).sum();
            for (count, _) in of.iter_mut().filter(|(_, suits)| is_within(suits, set)) {
                *count = left.min(*count);
                left -= *count;
            }
        }
        Kept { of, sets }
    }

    /// Fair shares, by quota and slot; nothing where nobody pays for what is short of them.
    pub(super) fn fair_shares(&self) -> Vec<Vec<u32>> {
        let mut shares = vec![vec![0; self.slots]; self.quotas.len()];
        if self.unfair == 0 {
            return shares;
        }
        let wanted = self.wanted_gpus();
        for slot in 0..self.slots {
            let quotas = self.quotas.iter().zip(&wanted);
            let wants: Vec<(u32, u32)> = quotas
                .map(|(quota, wanted)| (wanted[slot], quota.weight))
                .collect();
            for (share, fair) in shares.iter_mut().zip(fair(self.gpus(), &wants)) {
                share[slot] = fair;
            }
        }
        shares
    }

    /// The most that can be paid for what tenants are short of their shares.
    pub(super) fn most_unfair(&self) -> f64 {
        let shares = self.fair_shares();
        let short: f64 = shares.iter().flatten().map(|share| f64::from(*share)).sum();
        short * self.unfair as f64
    }
}

/// Whether all of these are among those.
pub(super) fn is_within(groups: &[usize], set: &[usize]) -> bool {
    groups.iter().all(|group| set.binary_search(group).is_ok())
}

/// Shares so many GPUs out among those who want so many with such a weight: who wants less than its share leaves the rest to
/// the others.
fn fair(gpus: u32, wants: &[(u32, u32)]) -> Vec<u32> {
    let mut shares: Vec<Option<u32>> = vec![None; wants.len()];
    let mut left = u64::from(gpus);
    loop {
        let open = wants.iter().zip(&shares).filter(|(_, share)| share.is_none());
        let weights: u64 = open.map(|((_, weight), _)| u64::from(*weight)).sum();
        let of = |weight: u32| left * u64::from(weight) / weights.max(1);
        let (mut taken, mut any) = (0, false);
        for ((wants, weight), share) in wants.iter().zip(&mut shares) {
            if share.is_none() && u64::from(*wants) <= of(*weight) {
                *share = Some(*wants);
                (taken, any) = (taken + u64::from(*wants), true);
            }
        }
        if !any {
            let open = wants.iter().zip(shares);
            return open
                .map(|((_, weight), share)| share.unwrap_or(of(*weight) as u32))
                .collect();
        }
        left -= taken;
    }
}

/// What it costs that a tenant has so many of its share, for a slot.
pub(super) fn short(unfair: Cost, share: u32, used: u32) -> Cost {
    unfair * Cost::from(share.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wants_less_than_its_share_leaves_the_rest_to_others() {
        assert_eq!(fair(8, &[(8, 1), (8, 1)]), [4, 4]);
        assert_eq!(fair(8, &[(8, 3), (8, 1)]), [6, 2]);
        assert_eq!(fair(8, &[(1, 1), (8, 1), (8, 1)]), [1, 3, 3]);
        assert_eq!(fair(8, &[(2, 1), (3, 1)]), [2, 3]);
        assert_eq!(fair(0, &[(2, 1)]), [0]);
        assert_eq!(fair(8, &[]), [0_u32; 0]);
    }
}
