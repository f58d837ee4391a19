//! What a demand holds in the end is what it asked for: one kind, memory enough, all parts or none.

use super::Facts;
use crate::composition::{Composition, Held};
use crate::demand::Demand;
use crate::violation::Violation;
use poolwright_model::id::{DemandId, GpuId};
use poolwright_model::topology::Gpu;
use poolwright_sizing::need::{GpuSet, Need};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A composition with the units that it has in the end.
type Whole<'a> = (&'a Composition, &'a [&'a Held]);

pub(super) fn check(facts: &Facts<'_>, found: &mut Vec<Violation>) {
    let demands: HashMap<&DemandId, &Demand> = facts.world.demands.iter().map(|d| (&d.id, d)).collect();
    let mut by_demand: BTreeMap<&DemandId, Vec<Whole<'_>>> = BTreeMap::new();
    for (composition, units) in facts.after.values() {
        if let Some(demand) = &composition.demand {
            by_demand.entry(demand).or_default().push((composition, units));
        }
    }
    let touched: BTreeSet<&DemandId> = facts
        .plan
        .composes
        .iter()
        .chain(&facts.plan.releases)
        .filter_map(|c| c.demand.as_ref())
        .collect();
    for (demand, whole) in touched
        .iter()
        .filter_map(|demand| by_demand.get_key_value(demand))
    {
        let in_use = &facts.world.cordoned.in_use;
        let mut units = whole.iter().flat_map(|(_, units)| units.iter());
        // What of a group is in use stays behind.
        let stays_behind = units.any(|held| in_use.contains_key(&held.unit));
        if !stays_behind && !all_parts(whole) {
            let demand = (*demand).clone();
            found.push(Violation::GroupBroken { demand });
        }
    }
    for composition in &facts.plan.composes {
        one_kind(facts, composition, found);
        let Some(id) = &composition.demand else { continue };
        match demands.get(id) {
            None => found.push(Violation::NoSuchDemand {
                composition: composition.id.clone(),
                demand: id.clone(),
            }),
            Some(demand) if composition.tenant.as_ref() != Some(&demand.tenant) => {
                let composition = composition.id.clone();
                found.push(Violation::WrongTenant { composition });
            }
            Some(_) => {}
        }
    }
    limits(facts, found);
    let composed: BTreeSet<&DemandId> = facts
        .plan
        .composes
        .iter()
        .filter_map(|c| c.demand.as_ref())
        .collect();
    for demand in composed.iter().filter_map(|id| demands.get(*id)) {
        let whole = by_demand.get(&demand.id).map_or(&[][..], Vec::as_slice);
        memory(facts, demand, whole, found);
        if !demand
            .need
            .alternatives
            .iter()
            .any(|set| is_met(facts, demand, set, whole))
        {
            let demand = demand.id.clone();
            found.push(Violation::NeedNotMet { demand });
        }
    }
}

/// No tenant gets more than it may hold. One that holds more already, as its limit was lowered, gets no more.
fn limits(facts: &Facts<'_>, found: &mut Vec<Violation>) {
    let promises = facts.world.promises;
    let tenants = facts.plan.composes.iter().filter_map(|c| c.tenant.as_ref());
    for tenant in tenants.collect::<BTreeSet<_>>() {
        let Some(most) = promises.shares.get(tenant).and_then(|share| share.most) else {
            continue;
        };
        let theirs = |c: &Composition| c.tenant.as_ref() == Some(tenant) && c.kept.is_none();
        let coming = promises.coming.get(tenant).copied().unwrap_or_default();
        let before = facts.world.held.iter().filter(|c| theirs(c));
        let before: usize = before.map(|c| c.gpus().count()).sum();
        let after = facts.after.values().filter(|(c, _)| theirs(c));
        let after: usize = after
            .flat_map(|(_, units)| units.iter())
            .map(|held| held.gpus.len())
            .sum();
        let holds = u32::try_from(after).unwrap_or(u32::MAX).saturating_add(coming);
        if holds > most && after > before {
            let tenant = tenant.clone();
            found.push(Violation::AboveTheLimit { tenant, holds, most });
        }
    }
}

/// Parts 1 to n, on n hosts; each says how many there were when it came.
fn all_parts(whole: &[Whole<'_>]) -> bool {
    let parts: BTreeSet<u32> = whole.iter().map(|(c, _)| c.part).collect();
    let hosts: BTreeSet<_> = whole.iter().map(|(c, _)| &c.host).collect();
    let count = whole.len();
    parts.into_iter().eq(1..=count as u32)
        && hosts.len() == count
        && whole
            .iter()
            .all(|(c, _)| c.part <= c.parts && c.parts as usize <= count)
}

fn one_kind(facts: &Facts<'_>, composition: &Composition, found: &mut Vec<Violation>) {
    let units = facts
        .after
        .get(&composition.id)
        .map(|(_, units)| units.as_slice());
    let gpus = units.into_iter().flatten().flat_map(|held| &held.gpus);
    let kinds: BTreeSet<String> = gpus
        .filter_map(|id| facts.gpus.get(id))
        .map(|gpu| name(gpu))
        .collect();
    if kinds.len() > 1 {
        found.push(Violation::SeveralKinds {
            composition: composition.id.clone(),
            kinds: kinds.into_iter().collect(),
        });
    }
}

/// The profile, else the model, else the PCI ids.
fn name(gpu: &Gpu) -> String {
    match (&gpu.profile, &gpu.model, &gpu.pci_ids) {
        (Some(profile), _, _) => profile.clone(),
        (None, Some(model), _) => model.clone(),
        (None, None, Some(ids)) => [ids.vendor.as_str(), ids.device.as_str()].join(":"),
        (None, None, None) => String::new(),
    }
}

fn gpus<'a>(facts: &Facts<'a>, whole: &[Whole<'a>]) -> Vec<(&'a GpuId, Option<&'a Gpu>)> {
    let ids = whole
        .iter()
        .flat_map(|(_, units)| units.iter())
        .flat_map(|held| &held.gpus);
    ids.map(|id| (id, facts.gpus.get(id).copied())).collect()
}

fn memory(facts: &Facts<'_>, demand: &Demand, whole: &[Whole<'_>], found: &mut Vec<Violation>) {
    let least = demand
        .need
        .alternatives
        .iter()
        .map(|set| set.min_memory_per_gpu)
        .min();
    let Some(needed) = least else { return };
    for (id, gpu) in gpus(facts, whole) {
        let has = gpu.and_then(|gpu| gpu.memory_bytes);
        if let Some(has) = has.filter(|has| *has < needed) {
            found.push(Violation::MemoryTooSmall {
                demand: demand.id.clone(),
                gpu: id.clone(),
                has,
                needed,
            });
        }
    }
}

fn is_met(facts: &Facts<'_>, demand: &Demand, set: &GpuSet, whole: &[Whole<'_>]) -> bool {
    let need: &Need = &demand.need;
    let in_part = facts.world.cordoned.in_part.contains(&demand.id);
    let gpus = gpus(facts, whole);
    let suitable = |gpu: &Gpu| {
        let kind = set.kind.as_ref().is_none_or(|kind| *kind == name(gpu));
        kind && gpu
            .memory_bytes
            .is_some_and(|memory| memory >= set.min_memory_per_gpu)
    };
    // A unit that is kept and not seen now was right when it was composed.
    let seen = || gpus.iter().filter_map(|(_, gpu)| *gpu);
    let kinds: BTreeSet<String> = seen().map(name).collect();
    let hosts = whole.len() == 1 || need.spannable && !whole.is_empty();
    let one_is_missing = |at: usize, skip: Option<usize>| -> u32 {
        let units = whole[at]
            .1
            .iter()
            .enumerate()
            .filter(|(unit, _)| Some(*unit) != skip);
        let gpus = units.map(|(_, held)| held.gpus.len()).sum::<usize>();
        u32::try_from(gpus).unwrap_or(u32::MAX) / set.group.max(1) * set.group.max(1)
    };
    let counts: Vec<u32> = (0..whole.len()).map(|at| one_is_missing(at, None)).collect();
    let all: u32 = counts.iter().sum();
    let none_too_many = (0..whole.len()).all(|at| {
        let mut units = 0..whole[at].1.len();
        units.all(|unit| all - counts[at] + one_is_missing(at, Some(unit)) < set.count)
    });
    seen().all(suitable) && kinds.len() <= 1 && hosts && (in_part || all >= set.count) && none_too_many
}
