//! Whether any demand is left for the sake of lower priorities: whether it would find a place with theirs taken away.

use super::super::problem::{Demand, Need, Problem};
use super::super::promised::Kept;
use super::super::solution::Served;
use super::{Broken, Judge, Key};
use std::collections::HashMap;

/// Whether a demand need not be served.
pub(super) fn may_be_left(demand: &Demand) -> Result<(), Broken> {
    match demand.runs {
        Some(_) if demand.priority == u32::MAX => Err(Broken::Ended(demand.name())),
        _ => Ok(()),
    }
}

/// What demands of some priority and above use, by slot.
struct Used {
    hosts: Vec<Vec<u32>>,
    groups: Vec<Vec<u32>>,
    /// By tenant with a quota.
    quotas: Vec<Vec<u32>>,
}

impl Judge<'_> {
    /// What runs keeps its GPUs.
    pub(super) fn stays(&self, demand: &Demand, served: &Served, host: usize) -> Result<(), Broken> {
        let Some(runs) = demand.runs else { return Ok(()) };
        let mut groups = served.gpus.keys().map(|name| self.groups.get(name));
        match host == runs.host && groups.all(|group| group == Some(&runs.group)) {
            true => Ok(()),
            false => Err(Broken::Moved(demand.name())),
        }
    }

    /// Judges demands of one part and one phase, and missing parts of those that run, where only numbers limit them.
    pub(super) fn priorities(&self) -> Result<(), Broken> {
        let problem = self.problem;
        if problem.classes.is_empty() || !counts_alone(problem) {
            return Ok(());
        }
        let served = self.plan.demands.iter();
        let served: HashMap<Key<'_>, &Served> = served.map(|served| (served.key(), served)).collect();
        let of = |demand: &Demand| {
            self.hosts
                .get(served.get(&demand.key())?.host.as_deref()?)
                .copied()
        };
        let hosts = problem.demands.iter().map(of);
        let placed = Placed {
            judge: self,
            hosts: hosts.collect(),
            served,
            kept: problem.kept(),
        };
        placed.judge()
    }
}

/// Where everything runs.
struct Placed<'j, 'a> {
    judge: &'j Judge<'a>,
    /// By demand.
    hosts: Vec<Option<usize>>,
    served: HashMap<Key<'j>, &'j Served>,
    /// What tenants are guaranteed, by slot.
    kept: Vec<Kept>,
}

impl Placed<'_, '_> {
    fn judge(&self) -> Result<(), Broken> {
        let problem = self.judge.problem;
        for priority in &problem.classes {
            let used = self.used_from(*priority);
            let demands = problem.demands.iter().enumerate();
            for (index, demand) in demands.filter(|(_, demand)| demand.priority == *priority) {
                if self.hosts[index].is_some() || !self.stands_alone(index) {
                    continue;
                }
                if let Some(host) = self.place(&used, index) {
                    return Err(Broken::Passed {
                        demand: demand.name(),
                        priority: *priority,
                        host: problem.hosts[host].id.clone(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Whether it may be served by itself: nothing must come with it that is not there.
    fn stands_alone(&self, demand: usize) -> bool {
        self.judge.problem.demands[demand].share.is_none_or(|share| {
            let mut parts = self.judge.problem.bundles[share.bundle].demands();
            parts.any(|part| self.hosts[part].is_some())
        })
    }

    fn used_from(&self, priority: u32) -> Used {
        let problem = self.judge.problem;
        let none = |count: usize| vec![vec![0; problem.slots]; count];
        let mut used = Used {
            hosts: none(problem.hosts.len()),
            groups: none(problem.groups.len()),
            quotas: none(problem.quotas.len()),
        };
        for (demand, host) in problem.demands.iter().zip(&self.hosts) {
            let served = self.served.get(&demand.key());
            let (Some(host), Some(served)) = (host, served.filter(|_| demand.priority >= priority)) else {
                continue;
            };
            let groups = &self.judge.groups;
            let counts = served.gpus.iter();
            let counts = counts.filter_map(|(name, count)| Some((*groups.get(name)?, u32::from(*count))));
            for (group, count) in counts {
                let tenant = problem
                    .quotas
                    .iter()
                    .position(|quota| quota.tenant == demand.tenant);
                for slot in demand.window.clone() {
                    used.hosts[*host][slot] += count;
                    used.groups[group][slot] += count;
                    if let Some(tenant) = tenant {
                        used.quotas[tenant][slot] += count;
                    }
                }
            }
        }
        used
    }

    /// A host that has a place for a demand.
    fn place(&self, used: &Used, index: usize) -> Option<usize> {
        let problem = self.judge.problem;
        let demand = &problem.demands[index];
        let apart = |host: usize| {
            let share = demand.share?;
            let phase = &problem.bundles[share.bundle].phases[share.phase];
            let mut others = phase.parts.clone().filter(|_| phase.apart);
            others.find(|part| self.hosts[*part] == Some(host))
        };
        let open = |host: usize| {
            let closed = &problem.hosts[host].closed;
            let mut slots = demand.window.clone();
            !slots.any(|slot| closed.iter().any(|window| window.contains(&slot)))
        };
        let may = |host: &usize| {
            demand.hosts.as_ref().is_none_or(|hosts| hosts.contains(host))
                && open(*host)
                && apart(*host).is_none()
        };
        let needs = demand.needs.iter().filter(|need| {
            let gpus = u32::from(need.gpus);
            may_use(problem, used, demand, gpus) && self.has_gpus(used, demand, need)
        });
        let fewest = needs.map(|need| u32::from(need.gpus)).min()?;
        let has_room = |host: &usize| {
            let room = u32::from(problem.hosts[*host].room);
            demand
                .window
                .clone()
                .all(|slot| used.hosts[*host][slot] + fewest <= room)
        };
        (0..problem.hosts.len()).filter(may).find(has_room)
    }
}

impl Placed<'_, '_> {
    /// Whether there are GPUs of one kind that others' guarantees leave.
    fn has_gpus(&self, used: &Used, demand: &Demand, need: &Need) -> bool {
        let (problem, wants) = (self.judge.problem, u32::from(need.gpus));
        let is_good = |index: &usize, kind: usize| {
            let group = &problem.groups[*index];
            let may = demand.runs.is_none_or(|runs| runs.group == *index);
            may && group.kind == kind && group.memory_gb >= need.memory_gb
        };
        let may = |kind: &usize| need.kinds.as_ref().is_none_or(|kinds| kinds.contains(kind));
        (0..problem.kinds.len()).filter(may).any(|kind| {
            let good: Vec<usize> = (0..problem.groups.len())
                .filter(|index| is_good(index, kind))
                .collect();
            let free = good.iter().map(|index| {
                let most = used.groups[*index][demand.window.clone()].iter().max();
                u32::from(problem.groups[*index].count).saturating_sub(most.copied().unwrap_or(0))
            });
            free.sum::<u32>() >= wants && self.leaves_guarantees(used, demand, &good, wants)
        })
    }

    /// Whether so many of these groups leave what others are guaranteed.
    fn leaves_guarantees(&self, used: &Used, demand: &Demand, groups: &[usize], gpus: u32) -> bool {
        let problem = self.judge.problem;
        let leaves = |slot: usize, set: &Vec<usize>| {
            let count: u32 = set
                .iter()
                .map(|group| u32::from(problem.groups[*group].count))
                .sum();
            let in_use: u32 = set.iter().map(|group| used.groups[*group][slot]).sum();
            let of = self.kept[slot].of.iter().zip(&problem.quotas).zip(&used.quotas);
            let of = of.filter(|(((_, suits), _), _)| suits.iter().all(|group| set.contains(group)));
            let kept = of.map(|(((kept, _), quota), used)| {
                let own = if quota.tenant == demand.tenant { gpus } else { 0 };
                kept.saturating_sub(used[slot] + own)
            });
            in_use + gpus + kept.sum::<u32>() <= count
        };
        demand.window.clone().all(|slot| {
            let sets = self.kept[slot].sets.iter();
            let mut concerned = sets.filter(|set| groups.iter().any(|group| set.contains(group)));
            concerned.all(|set| leaves(slot, set))
        })
    }
}

/// Whether hosts and GPUs are limited in number alone.
fn counts_alone(problem: &Problem) -> bool {
    let of_hosts =
        |host: &super::super::problem::Host| host.reach.is_none() && host.bar.is_none() && host.hold <= 1;
    problem.fabric.uplinks.is_empty()
        && problem.hosts.iter().all(of_hosts)
        && !problem.demands.iter().any(|demand| demand.one_switch)
}

/// Whether its tenant may use so many more.
fn may_use(problem: &Problem, used: &Used, demand: &Demand, gpus: u32) -> bool {
    let mut quotas = problem.quotas.iter().zip(&used.quotas);
    let own = quotas.find(|(quota, _)| quota.tenant == demand.tenant);
    let mut slots = demand.window.clone();
    own.is_none_or(|(quota, used)| slots.all(|slot| used[slot] + gpus <= quota.most))
}
