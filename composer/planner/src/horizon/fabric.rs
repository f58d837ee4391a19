//! The fabric between hosts and GPUs: who can be attached to whom, over how many hops, and what uplinks and hosts'
//! windows for BARs carry at a time.
//!
//! Invariants: everything that is left out limits nothing, and then nothing is counted. An uplink carries a GPU that
//! works across switches at both ends: at the GPU's switch, and at its host's.

use super::problem::{Cost, Demand, Host, Problem};
use std::ops::Range;

/// What is known of switches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fabric {
    /// Between two switches; empty: one between any two.
    pub hops: Vec<Vec<u16>>,
    /// GPUs at work that a switch's uplink carries at a time, by switch; empty: any number, everywhere.
    pub uplinks: Vec<Option<u32>>,
    /// What each further switch that a demand's GPUs are behind costs for a slot.
    pub split: Cost,
    /// Whether GPUs stay attached to any host for longer than a slot, once they are.
    pub holds: bool,
}

impl Fabric {
    /// Hops from one switch to another.
    pub(super) fn hops(&self, from: usize, to: usize) -> u16 {
        match self.hops.get(from) {
            Some(row) => row[to],
            None => u16::from(from != to),
        }
    }

    /// How many GPUs an uplink carries.
    pub(super) fn uplink(&self, switch: usize) -> u32 {
        self.uplinks.get(switch).copied().flatten().unwrap_or(u32::MAX)
    }
}

impl Problem {
    /// Whether GPUs of a group can be attached to a host at all.
    pub(super) fn reaches(&self, host: usize, group: usize) -> bool {
        let reach = self.hosts[host].reach.as_ref();
        reach.is_none_or(|reach| reach.binary_search(&self.groups[group].switch).is_ok())
    }

    /// Whether a group is behind another switch than a host.
    pub(super) fn is_far(&self, host: usize, group: usize) -> bool {
        self.groups[group].switch != self.hosts[host].switch
    }

    /// What it costs that a demand's GPUs are behind so many switches.
    pub(super) fn split(&self, demand: &Demand, switches: usize) -> Cost {
        demand.window.len() as Cost * self.fabric.split * switches.saturating_sub(1) as Cost
    }

    /// Whether anything may be in the way of a demand at a host, beside GPUs and room.
    pub(super) fn is_limited(&self, demand: &Demand, host: usize) -> bool {
        let at = &self.hosts[host];
        demand.one_switch
            || at.reach.is_some()
            || at.bar.is_some()
            || self.fabric.split > 0
            || !self.fabric.uplinks.is_empty()
    }

    /// Whether no host is limited in what it can have attached, but for room.
    pub(super) fn reaches_all(&self) -> bool {
        let free = |host: &Host| host.reach.is_none() && host.bar.is_none() && host.hold <= 1;
        self.hosts.iter().all(free) && self.fabric.split == 0 && self.fabric.uplinks.is_empty()
    }

    /// Groups by the switch that they are behind.
    pub(super) fn groups_behind(&self) -> Vec<Vec<usize>> {
        let mut behind = vec![Vec::new(); self.switches.len()];
        for (group, known) in self.groups.iter().enumerate() {
            behind[known.switch].push(group);
        }
        behind
    }

    /// Whether GPUs stay attached anywhere for longer than a slot.
    pub(super) fn holds(&self) -> bool {
        self.fabric.holds
    }

    /// Whether any host has a window for BARs that is known.
    pub(super) fn counts_bars(&self) -> bool {
        self.hosts.iter().any(|host| host.bar.is_some())
    }
}

/// What uplinks carry and what is mapped for GPUs in use, by slot; nothing where nothing limits it.
#[derive(Debug, Clone)]
pub(super) struct Carried {
    /// GPUs, by switch.
    uplinks: Vec<Vec<u32>>,
    /// MiB, by host.
    bars: Vec<Vec<u64>>,
}

impl Carried {
    pub fn nothing(problem: &Problem) -> Self {
        let hosts = if problem.counts_bars() {
            problem.hosts.len()
        } else {
            0
        };
        Self {
            uplinks: vec![vec![0; problem.slots]; problem.fabric.uplinks.len()],
            bars: vec![vec![0; problem.slots]; hosts],
        }
    }

    /// So many GPUs of a group come into use at a host, or no longer are.
    pub fn change(
        &mut self,
        problem: &Problem,
        (host, group): (usize, usize),
        count: u16,
        window: &Range<usize>,
        comes: bool,
    ) {
        if !self.uplinks.is_empty() && problem.is_far(host, group) {
            for switch in [problem.groups[group].switch, problem.hosts[host].switch] {
                for carried in &mut self.uplinks[switch][window.clone()] {
                    *carried = if comes {
                        *carried + u32::from(count)
                    } else {
                        *carried - u32::from(count)
                    };
                }
            }
        }
        if let Some(bars) = self.bars.get_mut(host) {
            let size = problem.groups[group].bar * u64::from(count);
            for mapped in &mut bars[window.clone()] {
                *mapped = if comes { *mapped + size } else { *mapped - size };
            }
        }
    }

    /// GPUs that an uplink carries beside what it carries, in every slot of a window.
    pub fn free_uplink(&self, problem: &Problem, switch: usize, window: &Range<usize>) -> u32 {
        let Some(carried) = self.uplinks.get(switch) else {
            return u32::MAX;
        };
        let most = carried[window.clone()].iter().copied().max().unwrap_or(0);
        problem.fabric.uplink(switch).saturating_sub(most)
    }

    /// MiB that a host can map beside what it maps for GPUs in use, in every slot of a window.
    pub fn free_bar(&self, problem: &Problem, host: usize, window: &Range<usize>) -> u64 {
        let Some(bar) = problem.hosts[host].bar else {
            return u64::MAX;
        };
        let most = self.bars[host][window.clone()].iter().copied().max().unwrap_or(0);
        bar.saturating_sub(most)
    }

    /// Whether a host and uplinks carry these GPUs for a demand, too.
    pub fn fits(&self, problem: &Problem, demand: &Demand, host: usize, parts: &[(usize, u16)]) -> bool {
        if !problem.is_limited(demand, host) {
            return true;
        }
        let far = || parts.iter().filter(|(group, _)| problem.is_far(host, *group));
        let across: u32 = far().map(|(_, count)| u32::from(*count)).sum();
        let size = |(group, count): &(usize, u16)| problem.groups[*group].bar * u64::from(*count);
        let window = &demand.window;
        let carried = |(group, count): &(usize, u16)| {
            self.free_uplink(problem, problem.groups[*group].switch, window) >= u32::from(*count)
        };
        parts.iter().all(|(group, _)| problem.reaches(host, *group))
            && (!demand.one_switch || parts.len() == 1)
            && far().all(carried)
            && self.free_uplink(problem, problem.hosts[host].switch, window) >= across
            && self.free_bar(problem, host, window) >= parts.iter().map(size).sum()
    }
}
