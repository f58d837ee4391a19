//! The least cost of a tiny problem, by trying every plan: every host and share of groups for each demand, and for
//! each of those everything that can be attached in each slot. Written from the rules, with nothing of the solver.

use poolwright_planner::horizon::Problem;
use poolwright_planner::horizon::problem::{Cost, Need};
use std::cmp::Ordering;
use std::collections::HashMap;

/// GPUs by host and group: `[host * groups + group]`.
type Counts = Vec<u16>;

struct Every<'p> {
    problem: &'p Problem,
    /// Everything that can be attached at a time.
    attachable: Vec<Counts>,
    /// In use by quota and slot.
    by_quota: Vec<Vec<u32>>,
    /// Where each demand so far runs.
    at: Vec<Option<usize>>,
    /// What is unmet of each class of priorities so far.
    neglect: Vec<Cost>,
    least: (Vec<Cost>, Cost),
}

pub fn least(problem: &Problem) -> Cost {
    let cells = problem.hosts.len() * problem.groups.len();
    let mut every = Every {
        problem,
        attachable: Vec::new(),
        by_quota: vec![vec![0; problem.slots]; problem.quotas.len()],
        at: Vec::new(),
        neglect: vec![0; problem.classes.len()],
        least: (vec![Cost::MAX; problem.classes.len()], Cost::MAX),
    };
    every.attach(&mut vec![0; cells], 0);
    every.serve(0, &mut vec![vec![0; cells]; problem.slots], 0);
    every.least.1
}

impl Every<'_> {
    fn fits(&self, counts: &Counts) -> bool {
        let (hosts, groups) = (self.problem.hosts.len(), self.problem.groups.len());
        let at = |host: usize| {
            (0..groups)
                .map(|group| counts[host * groups + group])
                .sum::<u16>()
        };
        let of = |group: usize| (0..hosts).map(|host| counts[host * groups + group]).sum::<u16>();
        let mapped = |host: usize| -> u64 {
            let of = |group: usize| u64::from(counts[host * groups + group]) * self.problem.groups[group].bar;
            (0..groups).map(of).sum()
        };
        let reached = |host: usize| {
            let reach = self.problem.hosts[host].reach.as_ref();
            let lies =
                |group: usize| reach.is_none_or(|reach| reach.contains(&self.problem.groups[group].switch));
            (0..groups).all(|group| counts[host * groups + group] == 0 || lies(group))
        };
        (0..hosts).all(|host| at(host) <= self.problem.hosts[host].room)
            && (0..hosts).all(reached)
            && (0..hosts).all(|host| {
                self.problem.hosts[host]
                    .bar
                    .is_none_or(|most| mapped(host) <= most)
            })
            && (0..groups).all(|group| of(group) <= self.problem.groups[group].count)
    }

    /// What the hops between a GPU and its host cost in a slot.
    fn hop(&self, host: usize, group: usize) -> Cost {
        let ends = (self.problem.groups[group].switch, self.problem.hosts[host].switch);
        let hops = &self.problem.fabric.hops;
        let hops = if hops.is_empty() {
            u16::from(ends.0 != ends.1)
        } else {
            hops[ends.0][ends.1]
        };
        self.problem.costs.hop * Cost::from(hops)
    }

    /// Whether uplinks carry what is in use, which counts at both ends.
    fn is_carried(&self, used: &Counts) -> bool {
        let mut carried = vec![0_u32; self.problem.switches.len()];
        for (cell, count) in used.iter().enumerate() {
            let host = self.problem.hosts[cell / self.problem.groups.len()].switch;
            let gpu = self.problem.groups[cell % self.problem.groups.len()].switch;
            if host != gpu {
                carried[host] += u32::from(*count);
                carried[gpu] += u32::from(*count);
            }
        }
        let uplinks = self.problem.fabric.uplinks.iter().zip(carried);
        uplinks
            .clone()
            .all(|(most, carried)| most.is_none_or(|most| carried <= most))
    }

    fn attach(&mut self, counts: &mut Counts, cell: usize) {
        if !self.fits(counts) {
            return;
        }
        if cell == counts.len() {
            return self.attachable.push(counts.clone());
        }
        for count in 0..=self.problem.groups[cell % self.problem.groups.len()].count {
            counts[cell] = count;
            self.attach(counts, cell + 1);
        }
        counts[cell] = 0;
    }

    /// Every way to serve the demands from one on, or not to.
    fn serve(&mut self, demand: usize, used: &mut Vec<Counts>, cost: Cost) {
        let problem = self.problem;
        if self.is_no_better(cost) {
            return;
        }
        let Some(wanted) = problem.demands.get(demand) else {
            let cost = cost + self.on(used) + self.unfair();
            if !self.is_no_better(cost) && self.is_together() && self.leaves_what_is_guaranteed(used) {
                let cost = cost.saturating_add(self.attached(used));
                if !self.is_no_better(cost) {
                    self.least = (self.neglect.clone(), cost);
                }
            }
            return;
        };
        let class = problem.classes.iter().position(|class| *class == wanted.priority);
        if let Some(class) = class {
            self.neglect[class] += wanted.unmet;
        }
        self.at.push(None);
        self.serve(demand + 1, used, cost + wanted.unmet);
        self.at.pop();
        if let Some(class) = class {
            self.neglect[class] -= wanted.unmet;
        }
        for need in &wanted.needs {
            self.serve_as(demand, need, used, cost);
        }
    }

    /// Every way to serve a demand with one need, and those after it.
    fn serve_as(&mut self, demand: usize, need: &Need, used: &mut Vec<Counts>, cost: Cost) {
        let problem = self.problem;
        let wanted = &problem.demands[demand];
        let gpus = u32::from(need.gpus);
        let quota = wanted.quota.map(|quota| (quota, problem.quotas[quota].most));
        if let Some((quota, most)) = quota {
            if (wanted.window.clone()).any(|slot| self.by_quota[quota][slot] + gpus > most) {
                return;
            }
            let slots = wanted.window.clone();
            slots.for_each(|slot| self.by_quota[quota][slot] += gpus);
        }
        for host in 0..problem.hosts.len() {
            let closed = |slot: usize| {
                let mut closed = problem.hosts[host].closed.iter();
                closed.any(|window| window.contains(&slot))
            };
            if self.is_in_order(demand, host)
                && wanted.hosts.as_ref().is_none_or(|hosts| hosts.contains(&host))
                && !wanted.window.clone().any(closed)
            {
                self.serve_at(demand, need, host, used, cost + need.penalty);
            }
        }
        if let Some((quota, _)) = quota {
            let slots = wanted.window.clone();
            slots.for_each(|slot| self.by_quota[quota][slot] -= gpus);
        }
    }

    /// Parts are alike: the first of them are served, and at hosts that do not come before those of others.
    fn is_in_order(&self, demand: usize, host: usize) -> bool {
        let is_first = self.problem.demands[demand]
            .share
            .is_none_or(|share| share.part == 0);
        is_first || self.at[demand - 1].is_some_and(|before| before <= host)
    }

    /// Every share of groups of every kind.
    fn serve_at(&mut self, demand: usize, need: &Need, host: usize, used: &mut Vec<Counts>, cost: Cost) {
        let problem = self.problem;
        let (window, groups) = (&problem.demands[demand].window, problem.groups.len());
        for kind in 0..problem.kinds.len() {
            let may = |group: &usize| {
                problem.demands[demand]
                    .runs
                    .is_none_or(|runs| runs.group == *group)
                    && problem.groups[*group].kind == kind
                    && need.kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind))
                    && problem.groups[*group].memory_gb >= need.memory_gb
            };
            let may: Vec<usize> = (0..groups).filter(may).collect();
            for share in shares(need.gpus, may.len()) {
                // Groups of a kind are behind different switches.
                let switches = share.iter().filter(|count| **count > 0).count();
                if problem.demands[demand].one_switch && switches > 1 {
                    continue;
                }
                let mut work = problem.fabric.split * ((switches - 1) * window.len()) as Cost;
                for (group, count) in may.iter().zip(&share) {
                    let a_slot = problem.groups[*group].active + self.hop(host, *group);
                    work += Cost::from(*count) * a_slot * window.len() as Cost;
                    let slots = window.clone();
                    slots.for_each(|slot| used[slot][host * groups + group] += count);
                }
                if used
                    .iter()
                    .all(|counts| self.fits(counts) && self.is_carried(counts))
                {
                    self.at.push(Some(host));
                    self.serve(demand + 1, used, cost + work);
                    self.at.pop();
                }
                for (group, count) in may.iter().zip(&share) {
                    let slots = window.clone();
                    slots.for_each(|slot| used[slot][host * groups + group] -= count);
                }
            }
        }
    }

    /// Whether the best so far leaves less unmet of the highest class that differs, or costs no more where none does.
    fn is_no_better(&self, cost: Cost) -> bool {
        (&self.least.0, self.least.1) <= (&self.neglect, cost)
    }

    /// Of each bundle, nothing is served, or enough in each phase; parts that must be apart are.
    fn is_together(&self) -> bool {
        self.problem.bundles.iter().all(|bundle| {
            let mut counts = Vec::new();
            for phase in &bundle.phases {
                let mut hosts: Vec<usize> = self.at[phase.parts.clone()].iter().flatten().copied().collect();
                let count = hosts.len();
                hosts.sort_unstable();
                hosts.dedup();
                if phase.apart && hosts.len() < count {
                    return false;
                }
                counts.push((count, phase.least));
            }
            counts.iter().all(|(count, _)| *count == 0) || counts.iter().all(|(count, least)| count >= least)
        })
    }

    /// Groups of GPUs that some demand of a tenant's can do with in a slot, and how many GPUs those demands want.
    fn suits(&self, quota: usize, slot: usize) -> (Vec<usize>, u32) {
        let problem = self.problem;
        let is_good = |group: &usize, need: &Need| {
            let group = &problem.groups[*group];
            let may = need
                .kinds
                .as_ref()
                .is_none_or(|kinds| kinds.contains(&group.kind));
            may && group.memory_gb >= need.memory_gb
        };
        let (mut suits, mut wants) = (Vec::new(), 0);
        let demands = problem.demands.iter();
        for demand in demands.filter(|demand| demand.quota == Some(quota) && demand.window.contains(&slot)) {
            let good = (0..problem.groups.len())
                .filter(|group| demand.needs.iter().any(|need| is_good(group, need)));
            let good: Vec<usize> = good.collect();
            wants += if good.is_empty() {
                0
            } else {
                u32::from(demand.gpus())
            };
            suits.extend(good);
        }
        suits.sort_unstable();
        suits.dedup();
        (suits, wants)
    }

    /// In each slot and each set of GPUs that suits a tenant, and in all of those, what is in use and what tenants may still
    /// claim of their guarantees is not more than there is.
    fn leaves_what_is_guaranteed(&self, used: &[Counts]) -> bool {
        let (problem, groups) = (self.problem, self.problem.groups.len());
        (0..problem.slots).all(|slot| {
            let quotas = problem.quotas.iter().enumerate();
            let claims = quotas.map(|(place, quota)| {
                let (suits, wants) = self.suits(place, slot);
                let has_any = quota.guaranteed > 0;
                let suits = if has_any { suits } else { Vec::new() };
                (suits, wants.min(quota.guaranteed).min(quota.most))
            });
            let mut claims: Vec<(Vec<usize>, u32)> = claims.collect();
            let mut sets: Vec<Vec<usize>> = claims
                .iter()
                .filter(|(_, claim)| *claim > 0)
                .map(|(suits, _)| suits.clone())
                .collect();
            let all: std::collections::BTreeSet<usize> = sets.concat().into_iter().collect();
            sets.push(all.into_iter().collect());
            sets.sort_by_key(|set| (set.len(), set.clone()));
            let within = |suits: &[usize], set: &[usize]| suits.iter().all(|group| set.contains(group));
            let count = |set: &[usize]| {
                set.iter()
                    .map(|group| u32::from(problem.groups[*group].count))
                    .sum::<u32>()
            };
            // Where there are too few for all, those that are named first have theirs.
            for set in &sets {
                let mut left = count(set);
                for (_, claim) in claims.iter_mut().filter(|(suits, _)| within(suits, set)) {
                    *claim = left.min(*claim);
                    left -= *claim;
                }
            }
            sets.iter().all(|set| {
                let cells = used[slot].iter().enumerate();
                let in_use: u32 = cells
                    .filter(|(cell, _)| set.contains(&(cell % groups)))
                    .map(|(_, count)| u32::from(*count))
                    .sum();
                let open = claims.iter().enumerate();
                let open = open.filter(|(_, (suits, _))| within(suits, set));
                let open: u32 = open
                    .map(|(place, (_, claim))| claim.saturating_sub(self.by_quota[place][slot]))
                    .sum();
                in_use + open <= count(set)
            })
        })
    }

    /// What it costs that tenants have less than their fair shares.
    fn unfair(&self) -> Cost {
        let problem = self.problem;
        let all: u32 = problem.groups.iter().map(|group| u32::from(group.count)).sum();
        let mut short = 0;
        for slot in 0..problem.slots * usize::from(problem.unfair > 0) {
            let wants = |quota: usize| self.suits(quota, slot).1.min(problem.quotas[quota].most);
            let wants: Vec<u32> = (0..problem.quotas.len()).map(wants).collect();
            let mut shares: HashMap<usize, u32> = HashMap::new();
            loop {
                let left = all - shares.values().sum::<u32>();
                let open: Vec<usize> = (0..wants.len())
                    .filter(|quota| !shares.contains_key(quota))
                    .collect();
                let weights: u32 = open.iter().map(|quota| problem.quotas[*quota].weight).sum();
                let of = |quota: &usize| left * problem.quotas[*quota].weight / weights.max(1);
                let content: Vec<usize> = open
                    .iter()
                    .copied()
                    .filter(|quota| wants[*quota] <= of(quota))
                    .collect();
                if content.is_empty() {
                    shares.extend(open.iter().map(|quota| (*quota, of(quota))));
                    break;
                }
                shares.extend(content.into_iter().map(|quota| (quota, wants[quota])));
            }
            for (quota, share) in shares {
                short += Cost::from(share.saturating_sub(self.by_quota[quota][slot]));
            }
        }
        short * problem.unfair
    }

    /// Every way for each host to be on when it is used.
    fn on(&self, used: &[Counts]) -> Cost {
        let groups = self.problem.groups.len();
        let of_host = |host: usize| {
            let busy = |slot: usize| {
                used[slot][host * groups..(host + 1) * groups]
                    .iter()
                    .any(|count| *count > 0)
            };
            let ways = (0..1_u32 << used.len())
                .filter(|way| (0..used.len()).all(|slot| !busy(slot) || way >> slot & 1 == 1));
            let fired = |way: u32| (way & !(way << 1)).count_ones();
            ways.map(|way| {
                Cost::from(way.count_ones()) * self.problem.hosts[host].on
                    + Cost::from(fired(way)) * self.problem.costs.fire_up
            })
            .min()
            .unwrap()
        };
        (0..self.problem.hosts.len()).map(of_host).sum()
    }

    /// For how many slots none may go after a step from what was attached to what is; `None`: some may not go yet.
    fn held(&self, before: &Counts, locks: &[usize], now: &Counts) -> Option<Vec<usize>> {
        let cells = before.iter().zip(now).zip(locks).enumerate();
        let locks = cells.map(|(cell, ((before, now), lock))| {
            let hold = self.problem.hosts[cell / self.problem.groups.len()].hold;
            match now.cmp(before) {
                Ordering::Greater => Some(hold.saturating_sub(1)),
                Ordering::Less if *lock > 0 => None,
                _ => Some(lock.saturating_sub(1)),
            }
        });
        locks.collect()
    }

    /// Every way to attach what is used.
    fn attached(&self, used: &[Counts]) -> Cost {
        let problem = self.problem;
        let groups = problem.groups.len();
        let mut first = vec![0; problem.hosts.len() * groups];
        for (host, known) in problem.hosts.iter().enumerate() {
            known
                .attached
                .iter()
                .for_each(|(group, count)| first[host * groups + group] = *count);
        }
        // By what is attached, and for how many slots none of it may go.
        let locks = vec![0_usize; first.len()];
        let mut ways: HashMap<(&Counts, Vec<usize>), Cost> = HashMap::from([((&first, locks), 0)]);
        for used in used {
            let mut next: HashMap<(&Counts, Vec<usize>), Cost> = HashMap::new();
            let enough = |now: &&Counts| now.iter().zip(used).all(|(now, used)| now >= used);
            for now in self.attachable.iter().filter(enough) {
                let idle = now.iter().zip(used).enumerate();
                let idle: Cost = idle
                    .map(|(cell, (now, used))| Cost::from(now - used) * problem.groups[cell % groups].idle)
                    .sum();
                for ((before, locks), cost) in &ways {
                    let Some(locks) = self.held(before, locks, now) else {
                        continue;
                    };
                    let moved = before.iter().zip(now).map(|(before, now)| {
                        problem.costs.attach * Cost::from(now.saturating_sub(*before))
                            + problem.costs.detach * Cost::from(before.saturating_sub(*now))
                    });
                    let cost = cost + idle + moved.sum::<Cost>();
                    let least = next.entry((now, locks)).or_insert(cost);
                    *least = cost.min(*least);
                }
            }
            ways = next;
        }
        ways.into_values().min().unwrap_or(Cost::MAX)
    }
}

/// Every way to share a number out over so many.
fn shares(count: u16, over: usize) -> Vec<Vec<u16>> {
    match over {
        0 => Vec::new(),
        1 => vec![vec![count]],
        _ => (0..=count)
            .flat_map(|first| {
                shares(count - first, over - 1).into_iter().map(move |mut rest| {
                    rest.insert(0, first);
                    rest
                })
            })
            .collect(),
    }
}
