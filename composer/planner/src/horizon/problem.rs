//! The problem of planning over time: a horizon of equal slots, hosts with room for so many GPUs, groups of
//! like GPUs, and demands that each want some GPUs of one kind on one host for a window of slots.
//!
//! Invariants, kept by [`cps1`](super::cps1) and taken for granted by everything else in this module: indices
//! point into the vectors beside them; every window lies in the horizon and is not empty; every demand wants at
//! least one GPU; no cost is negative, and the sum of all that can be paid fits in a [`Cost`].

use std::ops::Range;

/// An amount of the problem's one unit of cost, in thousandths: sums stay exact.
pub type Cost = i64;

/// Thousandths in one unit of cost.
pub const UNIT: f64 = 1000.0;

/// Who wants which GPUs when, and what there is.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// Slots in the horizon.
    pub slots: usize,
    pub hosts: Vec<Host>,
    pub groups: Vec<Group>,
    pub demands: Vec<Demand>,
    /// Names of GPU kinds, which [`Group::kind`] points at.
    pub kinds: Vec<String>,
    /// Names of switches.
    pub switches: Vec<String>,
    pub costs: Costs,
    pub quotas: Vec<Quota>,
}

/// How many GPUs a tenant may use at a time, and how many are kept for it while it wants them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    pub tenant: String,
    pub most: u32,
    /// Others never take these from it in a slot in which it has demands for as many.
    pub guaranteed: u32,
}

/// A host: how many GPUs it has room for, and what it costs to have it on.
#[derive(Debug, Clone, PartialEq)]
pub struct Host {
    pub id: String,
    /// Most GPUs that are attached at a time.
    pub room: u16,
    pub switch: usize,
    /// A slot on, above a slot off.
    pub on: Cost,
    /// GPUs that are attached before the first slot, by group.
    pub attached: Vec<(usize, u16)>,
    /// Slots in which nothing runs there.
    pub closed: Vec<Range<usize>>,
}

/// GPUs that are alike: of one kind, behind one switch.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    pub kind: usize,
    pub switch: usize,
    pub count: u16,
    pub memory_gb: f64,
    /// A GPU at work for a slot.
    pub active: Cost,
    /// A GPU attached and idle for a slot.
    pub idle: Cost,
}

/// GPUs wanted for a window: all of one kind, all on one host, for all of the window, or none.
#[derive(Debug, Clone, PartialEq)]
pub struct Demand {
    pub id: String,
    pub tenant: String,
    /// Slots, the end not among them; with the lead.
    pub window: Range<usize>,
    /// Slots at the beginning of the window in which its GPUs are attached and checked, and it does not run yet.
    pub lead: usize,
    pub gpus: u16,
    /// What a GPU must have at least.
    pub memory_gb: f64,
    /// What not serving it costs.
    pub unmet: Cost,
    /// Groups by kind that are good enough, the kinds that are cheapest at work first.
    pub choices: Vec<Vec<usize>>,
    /// Kinds that it may have; `None`: all that have the memory.
    pub kinds: Option<Vec<usize>>,
    /// Hosts that it may run on, in order; `None`: all.
    pub hosts: Option<Vec<usize>>,
    /// Its tenant's.
    pub quota: Option<usize>,
}

/// What changes cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    pub attach: Cost,
    pub detach: Cost,
    pub fire_up: Cost,
    /// A GPU at work behind another switch than its host's, for a slot.
    pub hop: Cost,
}

impl Problem {
    /// The name of a group, as solutions have it: `KIND@SWITCH`.
    pub fn group_name(&self, group: usize) -> String {
        let group = &self.groups[group];
        format!("{}@{}", self.kinds[group.kind], self.switches[group.switch])
    }

    /// All GPUs that may be moved.
    pub(super) fn gpus(&self) -> u32 {
        self.groups.iter().map(|group| u32::from(group.count)).sum()
    }

    /// What is kept for each tenant with a quota, by slot: no more than it is guaranteed, may use, or has demands for.
    pub(super) fn guarantees(&self) -> Vec<Vec<u32>> {
        let mut wanted = vec![vec![0_u32; self.slots]; self.quotas.len()];
        for demand in &self.demands {
            let Some(quota) = demand.quota else { continue };
            for slot in &mut wanted[quota][demand.window.clone()] {
                *slot = slot.saturating_add(u32::from(demand.gpus));
            }
        }
        for (quota, wanted) in self.quotas.iter().zip(&mut wanted) {
            let most = quota.guaranteed.min(quota.most);
            wanted.iter_mut().for_each(|slot| *slot = (*slot).min(most));
        }
        wanted
    }

    /// Whether a demand may run on a host in a window, as far as that is said.
    pub(super) fn may_run(&self, demand: &Demand, host: usize, window: &Range<usize>) -> bool {
        let closed = |closed: &Range<usize>| window.start < closed.end && closed.start < window.end;
        let hosts = demand.hosts.as_ref();
        hosts.is_none_or(|hosts| hosts.binary_search(&host).is_ok())
            && !self.hosts[host].closed.iter().any(closed)
    }

    /// What a GPU of a group costs at work for a demand on a host, over the demand's window.
    pub(super) fn work(&self, demand: &Demand, host: usize, group: usize) -> Cost {
        let group = &self.groups[group];
        let hop = if group.switch == self.hosts[host].switch {
            0
        } else {
            self.costs.hop
        };
        demand.window.len() as Cost * (group.active + hop)
    }
}
