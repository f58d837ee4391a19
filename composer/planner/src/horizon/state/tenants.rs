//! What a demand's tenant may use, and whether it has its share.

use super::State;
use super::guarantees::InTheWay;
use crate::horizon::problem::{Cost, Demand};
use crate::horizon::promised::short;

impl State<'_> {
    /// GPUs of these groups that a demand's tenant may use beside those that it uses, in every slot of the demand's window.
    pub fn free_quota(&self, demand: &Demand, groups: &[usize]) -> u32 {
        self.within_limit(demand)
            .min(self.beside_guarantees(demand, groups))
    }

    /// As far as its tenant's own limit goes.
    pub fn within_limit(&self, demand: &Demand) -> u32 {
        let Some(quota) = demand.quota else {
            return u32::MAX;
        };
        let used = self.quotas[quota][demand.window.clone()].iter().copied().max();
        self.problem.quotas[quota].most.saturating_sub(used.unwrap_or(0))
    }

    /// As far as what others are guaranteed leaves of these groups.
    pub fn beside_guarantees(&self, demand: &Demand, groups: &[usize]) -> u32 {
        let used = |slot: usize| demand.quota.map_or(0, |quota| self.quotas[quota][slot]);
        let guarantees = self.guarantees.as_ref();
        guarantees.map_or(u32::MAX, |guarantees| guarantees.free(demand, used, groups))
    }

    /// For whom GPUs of these groups are kept where the fewest are left to a demand.
    pub fn guarantees_in_the_way(&self, demand: &Demand, groups: &[usize]) -> Option<InTheWay> {
        let guarantees = self.guarantees.as_ref()?;
        guarantees.in_the_way(demand, &self.quotas, groups)
    }

    /// By how much less is paid for what its tenant is short of its fair share, if a demand gets so many GPUs.
    pub fn fairer(&self, demand: &Demand, gpus: u16) -> Cost {
        let Some(quota) = demand.quota.filter(|_| self.problem.unfair > 0) else {
            return 0;
        };
        let short = |slot: usize, more: u32| {
            let used = self.quotas[quota][slot] + more;
            short(self.problem.unfair, self.shares[quota][slot], used)
        };
        let slots = demand.window.clone();
        slots
            .map(|slot| short(slot, 0) - short(slot, u32::from(gpus)))
            .sum()
    }

    /// A slot in which a demand would take its tenant beyond its fair share: what it uses there, and the share.
    pub fn beyond_share(&self, demand: &Demand) -> Option<(u32, u32)> {
        let quota = demand.quota.filter(|_| self.problem.unfair > 0)?;
        let mut slots = demand.window.clone();
        slots.find_map(|slot| {
            let (used, share) = (self.quotas[quota][slot], self.shares[quota][slot]);
            (used + u32::from(demand.gpus()) > share).then_some((used, share))
        })
    }
}
