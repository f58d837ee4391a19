//! The problem of planning over time: a horizon of equal slots, hosts with room for so many GPUs, groups of
//! like GPUs, and demands that each want some GPUs of one kind on one host for a window of slots; where a demand
//! can do with one of several needs, it gets one of them. What belongs together is a [bundle](super::bundle).
//!
//! Invariants, kept by [`cps1`](super::cps1) and taken for granted by everything else in this module: indices
//! point into the vectors beside them; every window lies in the horizon and is not empty; every demand has a
//! need, and every need wants at least one GPU; no cost is negative, and the sum of all that can be paid fits in a [`Cost`].

use super::bundle::{Bundle, Share};
use super::fabric::Fabric;
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
    /// A GPU that a tenant is short of its fair share, for a slot.
    pub unfair: Cost,
    pub fabric: Fabric,
    /// Demands that belong together.
    pub bundles: Vec<Bundle>,
    /// Priorities above 0 that demands have, the highest first.
    pub classes: Vec<u32>,
}

/// How many GPUs a tenant may use at a time, and how many are kept for it while it wants them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    pub tenant: String,
    pub most: u32,
    /// Others never take these from it in a slot in which it has demands for as many: so many of the GPUs that these can
    /// do with.
    pub guaranteed: u32,
    /// Its weight where what tenants are short of their fair shares is paid for.
    pub weight: u32,
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
    /// Switches whose GPUs can be attached to it, in order; `None`: all.
    pub reach: Option<Vec<usize>>,
    /// MiB of GPUs' BARs that it can map at a time; `None`: any number.
    pub bar: Option<u64>,
    /// Slots for which GPUs stay attached to it, once they are.
    pub hold: usize,
}

/// GPUs that are alike: of one kind, behind one switch.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    pub kind: usize,
    pub switch: usize,
    pub count: u16,
    /// Further ones, which stay where they are and serve no demand.
    pub pinned: u16,
    pub memory_gb: f64,
    /// A GPU at work for a slot.
    pub active: Cost,
    /// A GPU attached and idle for a slot.
    pub idle: Cost,
    /// MiB of a GPU's BARs.
    pub bar: u64,
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
    /// What it can do with, one of them. It counts as the first where it is not served.
    pub needs: Vec<Need>,
    /// What not serving it costs.
    pub unmet: Cost,
    /// See [`classes`](super::classes).
    pub priority: u32,
    /// What is good enough, need by need and kind by kind, the cheapest at work first. What another is never worse than
    /// is left out.
    pub choices: Vec<Choice>,
    /// Hosts that it may run on, in order; `None`: all.
    pub hosts: Option<Vec<usize>>,
    /// Its tenant's.
    pub quota: Option<usize>,
    /// Its GPUs are all behind one switch.
    pub one_switch: bool,
    /// Where it is a part of a bundle.
    pub share: Option<Share>,
    /// Where it runs already, and stays as long as it runs.
    pub runs: Option<Runs>,
}

/// The GPUs that a demand runs on when the horizon begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runs {
    pub host: usize,
    pub group: usize,
}

/// GPUs that a demand can do with.
#[derive(Debug, Clone, PartialEq)]
pub struct Need {
    pub gpus: u16,
    /// What a GPU must have at least.
    pub memory_gb: f64,
    /// Kinds that it may have; `None`: all that have the memory.
    pub kinds: Option<Vec<usize>>,
    /// What being served so costs, above being served as it likes best.
    pub penalty: Cost,
}

/// A need met by one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    pub gpus: u16,
    pub penalty: Cost,
    /// Groups of the kind that are good enough, at least one.
    pub groups: Vec<usize>,
}

/// What changes cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    pub attach: Cost,
    pub detach: Cost,
    pub fire_up: Cost,
    /// A hop between a GPU at work and its host, for a slot.
    pub hop: Cost,
}

impl Demand {
    /// GPUs that it counts for where it is not served: those of its first need.
    pub fn gpus(&self) -> u16 {
        self.needs.first().map_or(0, |need| need.gpus)
    }

    /// The fewest GPUs that it can be served with.
    pub(super) fn fewest(&self) -> u16 {
        self.needs.iter().map(|need| need.gpus).min().unwrap_or(0)
    }

    /// What it costs to be served by so many GPUs of these groups and not as it likes best.
    pub(super) fn penalty(&self, parts: &[(usize, u16)]) -> Cost {
        if self.choices.iter().all(|choice| choice.penalty == 0) {
            return 0;
        }
        let gpus: u32 = parts.iter().map(|(_, count)| u32::from(*count)).sum();
        let meets = |choice: &&Choice| {
            u32::from(choice.gpus) == gpus && parts.iter().all(|(group, _)| choice.groups.contains(group))
        };
        let met = self.choices.iter().filter(meets);
        met.map(|choice| choice.penalty).min().unwrap_or(0)
    }
}

impl Problem {
    /// The groups that are good enough for a need, by kind.
    pub(super) fn groups_for(&self, need: &Need) -> Vec<Vec<usize>> {
        groups_for(&self.groups, self.kinds.len(), need)
    }

    /// The name of a group, as solutions have it: `KIND@SWITCH`.
    pub fn group_name(&self, group: usize) -> String {
        let group = &self.groups[group];
        format!("{}@{}", self.kinds[group.kind], self.switches[group.switch])
    }

    /// All GPUs that may be moved.
    pub(super) fn gpus(&self) -> u32 {
        self.groups.iter().map(|group| u32::from(group.count)).sum()
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
        let hops = self.fabric.hops(group.switch, self.hosts[host].switch);
        demand.window.len() as Cost * (group.active + Cost::from(hops) * self.costs.hop)
    }
}

/// The groups that are good enough for a need, by kind.
fn groups_for(groups: &[Group], kinds: usize, need: &Need) -> Vec<Vec<usize>> {
    let mut by_kind = vec![Vec::new(); kinds];
    for (index, group) in groups.iter().enumerate() {
        let may = need
            .kinds
            .as_ref()
            .is_none_or(|kinds| kinds.contains(&group.kind));
        if may && group.memory_gb >= need.memory_gb {
            by_kind[group.kind].push(index);
        }
    }
    by_kind.retain(|groups| !groups.is_empty());
    by_kind
}

/// What is good enough for one of several needs over so many slots, as [`Demand::choices`] has it.
pub(super) fn choices(groups: &[Group], kinds: usize, needs: &[Need], slots: usize) -> Vec<Choice> {
    let mut all = Vec::new();
    for need in needs {
        let of_kinds = groups_for(groups, kinds, need).into_iter();
        all.extend(of_kinds.map(|groups| Choice {
            gpus: need.gpus,
            penalty: need.penalty,
            groups,
        }));
    }
    let at_work = |choice: &Choice| {
        let a_slot = choice.groups.first().map_or(0, |group| groups[*group].active);
        a_slot
            .saturating_mul(slots as Cost * Cost::from(choice.gpus))
            .saturating_add(choice.penalty)
    };
    all.sort_by_key(at_work);
    let mut choices: Vec<Choice> = Vec::new();
    for choice in all {
        let no_worse = |other: &Choice| {
            other.groups == choice.groups && other.gpus <= choice.gpus && other.penalty <= choice.penalty
        };
        if !choices.iter().any(no_worse) {
            choices.push(choice);
        }
    }
    choices
}
