//! What the manager will do, as a plan of the problem.

use super::pool::{Pool, written};
use super::slots::Slots;
use super::wishes::Asked;
use super::{Outlook, few};
use crate::horizon::problem::Demand;
use crate::horizon::{Assignment, Problem, Served};
use poolwright_model::id::DemandId;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// GPUs by host and group.
type Spots = BTreeMap<(usize, String), u16>;

pub(super) fn plan(
    outlook: &Outlook<'_>,
    slots: &Slots,
    pool: &Pool,
    asked: &Asked,
    problem: &Problem,
    not_said: &mut Vec<String>,
) -> Assignment {
    let mut own = Own {
        problem,
        left: HashMap::new(),
        attached: BTreeMap::new(),
    };
    own.hold(outlook, slots, pool);
    let names: HashMap<&str, &DemandId> = asked
        .all
        .iter()
        .map(|one| (one.id.as_str(), &one.demand))
        .collect();
    let mut served: Vec<Option<(usize, BTreeMap<String, u16>)>> = vec![None; problem.demands.len()];
    // Running demands take their own GPUs first; the other demands take suitable ones of the rest.
    for runs in [true, false] {
        for (at, demand) in problem.demands.iter().enumerate() {
            if demand.runs.is_some() == runs
                && let Some(source) = names.get(demand.id.as_str())
            {
                served[at] = own.serve(demand, source);
            }
        }
    }
    for bundle in &problem.bundles {
        let whole = bundle.phases.iter().all(|phase| {
            let parts = phase.parts.clone();
            parts.filter(|part| served[*part].is_some()).count() >= phase.least
        });
        if !whole {
            served[bundle.demands()].fill(None);
        }
    }
    let mut partly: Vec<String> = Vec::new();
    for (demand, served) in problem.demands.iter().zip(&served) {
        let source = names.get(demand.id.as_str());
        let holds = source.is_some_and(|source| own.holds(source, &demand.window));
        if served.is_none() && holds && !partly.contains(&demand.id) {
            partly.push(demand.id.clone());
        }
    }
    if !partly.is_empty() {
        not_said.push(format!(
            "the manager serves these for a part of their time, in a part of their phases, or elsewhere than they may run \
             here, which counts as not served: {}",
            few(&partly)
        ));
    }
    let demands = problem.demands.iter().zip(served).map(|(demand, served)| {
        let (host, gpus) = served.unzip();
        Served {
            demand: demand.id.clone(),
            phase: demand.phase(),
            part: demand.part(),
            host: host.map(|host| problem.hosts[host].id.clone()),
            gpus: gpus.unwrap_or_default(),
        }
    });
    Assignment {
        demands: demands.collect(),
        attached: own.attached,
    }
}

struct Own<'a> {
    problem: &'a Problem,
    /// What a demand of the manager holds in each slot, and serves nothing yet here.
    left: HashMap<DemandId, Vec<Spots>>,
    attached: BTreeMap<String, BTreeMap<String, Vec<u16>>>,
}

impl Own<'_> {
    /// Adds each holding at its host.
    fn hold(&mut self, outlook: &Outlook<'_>, slots: &Slots, pool: &Pool) {
        for held in outlook.holdings {
            let Some(host) = pool.host(&held.host) else {
                continue;
            };
            let window = slots.window(held.from, Some(held.until));
            let gpus = held.gpus.iter().filter_map(|gpu| pool.gpu(gpu));
            for gpu in gpus.filter(|gpu| !gpu.pinned) {
                let group = format!("{}@{}", written(&gpu.kind), gpu.place);
                let rows = self.attached.entry(held.host.to_string()).or_default();
                let row = rows
                    .entry(group.clone())
                    .or_insert_with(|| vec![0; slots.count()]);
                row[window.clone()].iter_mut().for_each(|count| *count += 1);
                let Some(demand) = &held.demand else { continue };
                let left = self.left.entry(demand.clone());
                let left = left.or_insert_with(|| vec![Spots::new(); slots.count()]);
                for spots in &mut left[window.clone()] {
                    *spots.entry((host, group.clone())).or_default() += 1;
                }
            }
        }
    }

    /// What a demand of the manager holds throughout a window, and serves nothing yet.
    fn throughout(&self, source: &DemandId, window: &Range<usize>) -> Spots {
        let Some(left) = self.left.get(source) else {
            return Spots::new();
        };
        let mut slots = left[window.clone()].iter();
        let mut all = slots.next().cloned().unwrap_or_default();
        for spots in slots {
            all.retain(|spot, count| {
                *count = spots.get(spot).copied().unwrap_or(0).min(*count);
                *count > 0
            });
        }
        all
    }

    fn holds(&self, source: &DemandId, window: &Range<usize>) -> bool {
        let left = self.left.get(source);
        left.is_some_and(|left| {
            left[window.clone()]
                .iter()
                .any(|spots| spots.values().any(|count| *count > 0))
        })
    }

    /// Takes what serves a demand of the problem from what the manager holds for it.
    fn serve(&mut self, demand: &Demand, source: &DemandId) -> Option<(usize, BTreeMap<String, u16>)> {
        let all = self.throughout(source, &demand.window);
        let hosts: Vec<usize> = match (&demand.runs, &demand.hosts) {
            (Some(runs), _) => vec![runs.host],
            (None, Some(hosts)) => hosts.clone(),
            (None, None) => (0..self.problem.hosts.len()).collect(),
        };
        let mut best: Option<(usize, u16, BTreeMap<String, u16>)> = None;
        for host in hosts {
            for need in &demand.needs {
                for kind in 0..self.problem.kinds.len() {
                    let suits = |group: &usize| {
                        let is = &self.problem.groups[*group];
                        is.kind == kind
                            && need.kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind))
                            && demand.runs.is_none_or(|runs| runs.group == *group)
                    };
                    let groups = (0..self.problem.groups.len()).filter(suits);
                    let mut lacks = need.gpus;
                    let mut gpus = BTreeMap::new();
                    for name in groups.map(|group| self.problem.group_name(group)) {
                        let has = all.get(&(host, name.clone())).copied().unwrap_or(0).min(lacks);
                        if has > 0 {
                            lacks -= has;
                            gpus.insert(name, has);
                        }
                    }
                    let more = best.as_ref().is_none_or(|(_, most, _)| need.gpus > *most);
                    if lacks == 0 && more {
                        best = Some((host, need.gpus, gpus));
                    }
                }
            }
        }
        let (host, _, gpus) = best?;
        for spots in &mut self.left.get_mut(source)?[demand.window.clone()] {
            for (name, count) in &gpus {
                if let Some(left) = spots.get_mut(&(host, name.clone())) {
                    *left -= count;
                }
            }
        }
        Some((host, gpus))
    }
}
