//! A second opinion on a plan over time: whether it keeps every rule, and what it costs. Shares no code with the
//! search; it goes through the problem and the plan slot by slot.

mod bundles;
mod classes;
mod fabric;
mod needs;

pub use fabric::OffFabric;

use super::problem::{Cost, Demand, Problem};
use super::solution::Assignment;
use std::collections::HashMap;

/// A rule that a plan over time breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    #[error("{0} is not a demand of the problem")]
    UnknownDemand(String),
    #[error("demand {0} is there twice, or not at all")]
    NotOnce(String),
    #[error("{0} is not a host of the problem")]
    UnknownHost(String),
    #[error("{0} is not a group of GPUs of the problem")]
    UnknownGroup(String),
    #[error("demand {demand} gets {got} GPUs and wants {wanted}")]
    Count { demand: String, got: u32, wanted: u32 },
    #[error("demand {demand} gets {got}, which is none of the sets that it can do with")]
    NoOption { demand: String, got: String },
    #[error("demand {0} gets GPUs of several kinds")]
    Mixed(String),
    #[error(
        "demand {demand} gets {got} of its parts in phase {phase}, and nothing of it may run with fewer than {least}"
    )]
    Incomplete {
        demand: String,
        phase: usize,
        got: usize,
        least: usize,
    },
    #[error("demand {0} runs and may not be ended, and is not served")]
    Ended(String),
    #[error("demand {0} runs on other GPUs than those that it gets")]
    Moved(String),
    #[error("two parts of demand {demand} run on {host}, and each must have a host of its own")]
    Together { demand: String, host: String },
    #[error(
        "demand {demand} of priority {priority} is not served, and {host} has a place for it beside its own and higher priorities"
    )]
    Passed {
        demand: String,
        priority: u32,
        host: String,
    },
    #[error("demand {demand} gets GPUs of {group}, which have too little memory")]
    Memory { demand: String, group: String },
    #[error("demand {demand} gets GPUs of {group}, which are not among the types that it may have")]
    Kind { demand: String, group: String },
    #[error("demand {demand} runs on {host}, which is not among the hosts that it may run on")]
    Elsewhere { demand: String, host: String },
    #[error("slot {slot}: demand {demand} runs on {host}, which is closed then")]
    Closed {
        demand: String,
        host: String,
        slot: usize,
    },
    #[error("slot {slot}: tenant {tenant} uses {used} GPUs and may use {most}")]
    Quota {
        tenant: String,
        slot: usize,
        used: u32,
        most: u32,
    },
    #[error(
        "slot {slot}: of {count} GPUs that suit them {used} are in use, and {kept} more are guaranteed to tenants that have demands for them"
    )]
    Guarantee {
        slot: usize,
        used: u32,
        kept: u32,
        count: u32,
    },
    #[error("{host} has {got} slots for {group} in the plan, the horizon has {wanted}")]
    Length {
        host: String,
        group: String,
        got: usize,
        wanted: usize,
    },
    #[error("slot {slot}: {attached} GPUs of {group} are attached, there are {count}")]
    Pool {
        group: String,
        slot: usize,
        attached: u32,
        count: u32,
    },
    #[error("slot {slot}: {attached} GPUs are attached to {host}, which has room for {room}")]
    Room {
        host: String,
        slot: usize,
        attached: u32,
        room: u32,
    },
    #[error("slot {slot}: {used} GPUs of {group} are in use at {host}, {attached} are attached")]
    NotAttached {
        host: String,
        group: String,
        slot: usize,
        used: u32,
        attached: u32,
    },
    #[error(transparent)]
    Fabric(#[from] OffFabric),
}

/// What a plan costs, if it keeps every rule.
///
/// # Errors
/// The first rule that it breaks.
pub fn check(problem: &Problem, plan: &Assignment) -> Result<Cost, Broken> {
    let mut judge = Judge::new(problem, plan)?;
    let demands = judge.demands()?;
    judge.bundles()?;
    judge.quotas()?;
    judge.guarantees()?;
    judge.fabric()?;
    judge.priorities()?;
    Ok(demands + judge.unfair() + judge.hosts() + judge.attached()?)
}

/// What a plan calls a demand: id, phase and part.
type Key<'a> = (&'a str, Option<usize>, Option<usize>);

struct Judge<'a> {
    problem: &'a Problem,
    plan: &'a Assignment,
    hosts: HashMap<&'a str, usize>,
    groups: HashMap<String, usize>,
    /// In use and attached, by host, group and slot.
    used: HashMap<(usize, usize), Vec<u32>>,
    attached: HashMap<(usize, usize), &'a [u16]>,
}

impl<'a> Judge<'a> {
    fn new(problem: &'a Problem, plan: &'a Assignment) -> Result<Self, Broken> {
        let hosts: HashMap<&str, usize> = problem
            .hosts
            .iter()
            .enumerate()
            .map(|(index, host)| (host.id.as_str(), index))
            .collect();
        let name = |index: usize| {
            let group = &problem.groups[index];
            format!("{}@{}", problem.kinds[group.kind], problem.switches[group.switch])
        };
        let groups: HashMap<String, usize> = (0..problem.groups.len())
            .map(|index| (name(index), index))
            .collect();
        let mut attached = HashMap::new();
        for (host, rows) in &plan.attached {
            let at = *hosts
                .get(host.as_str())
                .ok_or_else(|| Broken::UnknownHost(host.clone()))?;
            for (group, row) in rows {
                let of = *groups
                    .get(group)
                    .ok_or_else(|| Broken::UnknownGroup(group.clone()))?;
                if row.len() != problem.slots {
                    let (host, group) = (host.clone(), group.clone());
                    return Err(Broken::Length {
                        host,
                        group,
                        got: row.len(),
                        wanted: problem.slots,
                    });
                }
                attached.insert((at, of), row.as_slice());
            }
        }
        Ok(Self {
            problem,
            plan,
            hosts,
            groups,
            used: HashMap::new(),
            attached,
        })
    }

    /// Unmet demand and GPUs at work.
    fn demands(&mut self) -> Result<Cost, Broken> {
        let known: HashMap<Key<'_>, &Demand> = self
            .problem
            .demands
            .iter()
            .map(|demand| (demand.key(), demand))
            .collect();
        let mut left = known.clone();
        let mut total = 0;
        for served in &self.plan.demands {
            let id = || bundles::name(served.key());
            let demand = *known
                .get(&served.key())
                .ok_or_else(|| Broken::UnknownDemand(id()))?;
            left.remove(&served.key()).ok_or_else(|| Broken::NotOnce(id()))?;
            let Some(host) = &served.host else {
                classes::may_be_left(demand)?;
                total += demand.unmet;
                continue;
            };
            let at = *self
                .hosts
                .get(host.as_str())
                .ok_or_else(|| Broken::UnknownHost(host.clone()))?;
            if demand.hosts.as_ref().is_some_and(|hosts| !hosts.contains(&at)) {
                let (demand, host) = (id(), host.clone());
                return Err(Broken::Elsewhere { demand, host });
            }
            self.stays(demand, served, at)?;
            let closed = &self.problem.hosts[at].closed;
            if let Some(slot) =
                (demand.window.clone()).find(|slot| closed.iter().any(|window| window.contains(slot)))
            {
                let (demand, host) = (id(), host.clone());
                return Err(Broken::Closed { demand, host, slot });
            }
            let mut groups = Vec::new();
            for name in served.gpus.keys() {
                let group = self.groups.get(name);
                groups.push(*group.ok_or_else(|| Broken::UnknownGroup(name.clone()))?);
            }
            let of_groups = groups.iter().map(|group| &self.problem.groups[*group]);
            total += needs::met(demand, &served.gpus, of_groups)?;
            for (index, count) in groups.into_iter().zip(served.gpus.values()) {
                let group = &self.problem.groups[index];
                let (from, to) = (group.switch, self.problem.hosts[at].switch);
                let usual = u16::from(from != to);
                let hops = self.problem.fabric.hops.get(from).map_or(usual, |row| row[to]);
                let a_slot = group.active + Cost::from(hops) * self.problem.costs.hop;
                let row = self
                    .used
                    .entry((at, index))
                    .or_insert_with(|| vec![0; self.problem.slots]);
                for used in &mut row[demand.window.clone()] {
                    *used += u32::from(*count);
                    total += Cost::from(*count) * a_slot;
                }
            }
            total += self.switches(demand, served)?;
        }
        match left.keys().next() {
            Some(key) => Err(Broken::NotOnce(bundles::name(*key))),
            None => Ok(total),
        }
    }

    /// GPUs of each demand that is served.
    fn served(&self) -> HashMap<Key<'a>, u32> {
        let served = self.plan.demands.iter().filter(|served| served.host.is_some());
        let gpus = served.map(|served| (served.key(), &served.gpus));
        gpus.map(|(demand, gpus)| (demand, gpus.values().map(|count| u32::from(*count)).sum()))
            .collect()
    }

    /// No tenant uses more than it may.
    fn quotas(&self) -> Result<(), Broken> {
        let served = self.served();
        for quota in &self.problem.quotas {
            for slot in 0..self.problem.slots {
                let demands = self.problem.demands.iter();
                let demands =
                    demands.filter(|demand| demand.tenant == quota.tenant && demand.window.contains(&slot));
                let used = demands.filter_map(|demand| served.get(&demand.key())).sum();
                if used > quota.most {
                    return Err(Broken::Quota {
                        tenant: quota.tenant.clone(),
                        slot,
                        used,
                        most: quota.most,
                    });
                }
            }
        }
        Ok(())
    }

    /// GPUs that a tenant uses, by slot.
    fn used_by(&self, tenant: &str) -> Vec<u32> {
        let (mut used, served) = (vec![0; self.problem.slots], self.served());
        for demand in self
            .problem
            .demands
            .iter()
            .filter(|demand| demand.tenant == tenant)
        {
            let gpus = served.get(&demand.key()).copied().unwrap_or(0);
            used[demand.window.clone()]
                .iter_mut()
                .for_each(|used| *used += gpus);
        }
        used
    }

    /// What a tenant is guaranteed and has demands for is left for it, or in use by it: in each set of GPUs that suits.
    fn guarantees(&self) -> Result<(), Broken> {
        let problem = self.problem;
        if problem.quotas.iter().all(|quota| quota.guaranteed == 0) {
            return Ok(());
        }
        let has: Vec<Vec<u32>> = problem
            .quotas
            .iter()
            .map(|quota| self.used_by(&quota.tenant))
            .collect();
        for (slot, guaranteed) in problem.kept().iter().enumerate() {
            for set in &guaranteed.sets {
                let count = set
                    .iter()
                    .map(|group| u32::from(problem.groups[*group].count))
                    .sum();
                let in_set = self.used.iter().filter(|((_, group), _)| set.contains(group));
                let used: u32 = in_set.map(|(_, row)| row[slot]).sum();
                let kept = guaranteed.of.iter().zip(&has);
                let kept = kept.filter(|((_, suits), _)| suits.iter().all(|group| set.contains(group)));
                let kept: u32 = kept.map(|((kept, _), has)| kept.saturating_sub(has[slot])).sum();
                if used + kept > count {
                    return Err(Broken::Guarantee {
                        slot,
                        used,
                        kept,
                        count,
                    });
                }
            }
        }
        Ok(())
    }

    /// What tenants are short of their fair shares.
    fn unfair(&self) -> Cost {
        let shares = self.problem.fair_shares();
        let quotas = self.problem.quotas.iter().zip(&shares);
        let short = quotas.map(|(quota, shares)| {
            let slots = shares.iter().zip(self.used_by(&quota.tenant));
            slots
                .map(|(share, used)| Cost::from(share.saturating_sub(used)))
                .sum::<Cost>()
        });
        short.sum::<Cost>() * self.problem.unfair
    }

    /// Hosts that are on, and their fire-ups.
    fn hosts(&self) -> Cost {
        let mut busy = vec![vec![false; self.problem.slots]; self.problem.hosts.len()];
        for ((host, _), row) in &self.used {
            for (busy, used) in busy[*host].iter_mut().zip(row) {
                *busy |= *used > 0;
            }
        }
        let mut total = 0;
        for (host, busy) in self.problem.hosts.iter().zip(&busy) {
            // The cheapest way to be off, and to be on, after each slot.
            let (mut off, mut on): (Cost, Option<Cost>) = (0, None);
            for busy in busy {
                let fired = off + self.problem.costs.fire_up;
                let stays = on.map_or(fired, |on| on.min(fired)) + host.on;
                off = on.map_or(off, |on| on.min(off));
                on = Some(stays);
                if *busy {
                    off = Cost::MAX / 2;
                }
            }
            total += on.map_or(off, |on| on.min(off));
        }
        total
    }

    /// Attaching, detaching and idling.
    fn attached(&self) -> Result<Cost, Broken> {
        let problem = self.problem;
        let mut total = 0;
        let (mut pools, mut rooms) = (
            vec![0_u32; problem.groups.len()],
            vec![0_u32; problem.hosts.len()],
        );
        let mut before: HashMap<(usize, usize), i64> = HashMap::new();
        for (host, known) in problem.hosts.iter().enumerate() {
            for (group, count) in &known.attached {
                before.insert((host, *group), i64::from(*count));
            }
        }
        let mut pairs: Vec<(usize, usize)> = self
            .used
            .keys()
            .chain(self.attached.keys())
            .chain(before.keys())
            .copied()
            .collect();
        pairs.sort_unstable();
        pairs.dedup();
        for slot in 0..problem.slots {
            pools.fill(0);
            rooms.fill(0);
            for (host, group) in &pairs {
                let now = self
                    .attached
                    .get(&(*host, *group))
                    .map_or(0, |row| u32::from(row[slot]));
                let used = self.used.get(&(*host, *group)).map_or(0, |row| row[slot]);
                let (host_id, group_id) = (&problem.hosts[*host].id, || problem.group_name(*group));
                if used > now {
                    return Err(Broken::NotAttached {
                        host: host_id.clone(),
                        group: group_id(),
                        slot,
                        used,
                        attached: now,
                    });
                }
                pools[*group] += now;
                rooms[*host] += now;
                let more = i64::from(now) - before.insert((*host, *group), i64::from(now)).unwrap_or(0);
                total += if more > 0 {
                    more * problem.costs.attach
                } else {
                    -more * problem.costs.detach
                };
                total += i64::from(now - used) * problem.groups[*group].idle;
            }
            for (group, attached) in pools.iter().enumerate() {
                let count = u32::from(problem.groups[group].count);
                if *attached > count {
                    return Err(Broken::Pool {
                        group: problem.group_name(group),
                        slot,
                        attached: *attached,
                        count,
                    });
                }
            }
            for (host, attached) in rooms.iter().enumerate() {
                let room = u32::from(problem.hosts[host].room);
                if *attached > room {
                    return Err(Broken::Room {
                        host: problem.hosts[host].id.clone(),
                        slot,
                        attached: *attached,
                        room,
                    });
                }
            }
        }
        Ok(total)
    }
}
