//! What stays, what goes and what comes adds up, and the plan says what it rests on.

use super::{Facts, units_of};
use crate::plan::Deferral;
use crate::violation::Violation;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(facts: &Facts<'_>, found: &mut Vec<Violation>) {
    kept_or_released(facts, found);
    new_ids(facts, found);
    put_off(facts, found);
    reads(facts, found);
}

fn kept_or_released(facts: &Facts<'_>, found: &mut Vec<Violation>) {
    let kept: BTreeSet<_> = facts.plan.keeps.iter().collect();
    for composition in &facts.plan.keeps {
        if !facts.held.contains_key(composition) {
            let composition = composition.clone();
            found.push(Violation::KeptNotHeld { composition });
        }
    }
    let mut left: BTreeMap<_, Vec<_>> = facts
        .held
        .iter()
        .map(|(id, c)| (*id, c.held.iter().collect()))
        .collect();
    for (composition, held) in units_of(&facts.plan.releases) {
        let units = left.entry(&composition.id).or_default();
        match units.iter().position(|unit| *unit == held) {
            Some(at) => drop(units.remove(at)),
            None => found.push(Violation::ReleaseNotHeld {
                composition: composition.id.clone(),
                unit: held.unit.clone(),
            }),
        }
    }
    for id in facts.held.keys() {
        let stays = left.get(id).is_some_and(|units| !units.is_empty());
        if stays != kept.contains(id) {
            let composition = (*id).clone();
            found.push(Violation::NeitherKeptNorReleased { composition });
        }
    }
}

fn new_ids(facts: &Facts<'_>, found: &mut Vec<Violation>) {
    let mut seen = BTreeSet::new();
    for composition in &facts.plan.composes {
        let id = composition.id.clone();
        if composition.held.is_empty() {
            found.push(Violation::Empty {
                composition: id.clone(),
            });
        }
        let grows = facts.held.get(&id).is_none_or(|old| {
            let same = old.host == composition.host && old.demand == composition.demand;
            // It grows, or is made anew of what it was.
            let ends = facts.plan.releases.iter().any(|released| released.id == id);
            same && (facts.plan.keeps.contains(&id) || ends)
        });
        if !seen.insert(id.clone()) || !grows {
            found.push(Violation::IdTaken { composition: id });
        }
    }
}

fn put_off(facts: &Facts<'_>, found: &mut Vec<Violation>) {
    let changed: BTreeSet<_> = facts
        .plan
        .releases
        .iter()
        .chain(&facts.plan.composes)
        .map(|c| &c.id)
        .collect();
    for deferred in &facts.plan.deferred {
        let composition = &deferred.composition;
        let is_changed = match &deferred.because {
            // What nobody uses goes.
            Deferral::InUse { unit, .. } => facts.released.contains(unit),
            _ => changed.contains(composition),
        };
        if is_changed || !facts.plan.keeps.contains(composition) {
            let composition = composition.clone();
            found.push(Violation::DeferredChanged { composition });
        }
    }
    let served: BTreeSet<_> = facts
        .plan
        .composes
        .iter()
        .filter_map(|c| c.demand.as_ref())
        .collect();
    for unplaced in &facts.plan.unplaced {
        if served.contains(&unplaced.demand) && !facts.world.cordoned.in_part.contains(&unplaced.demand) {
            let demand = unplaced.demand.clone();
            found.push(Violation::PlacedAndUnplaced { demand });
        }
    }
}

fn reads(facts: &Facts<'_>, found: &mut Vec<Violation>) {
    let reads = &facts.plan.reads;
    for (_, held) in units_of(&facts.plan.releases).chain(units_of(&facts.plan.composes)) {
        if !reads.units.contains_key(&held.unit) {
            let what = format!("unit {}", held.unit);
            found.push(Violation::NotRead { what });
        }
        // A host that is gone has no port to read; what is left there can be released all the same.
        if !reads.ports.contains_key(&held.host_port) && facts.ports.contains_key(&held.host_port) {
            let what = format!("host port {}", held.host_port);
            found.push(Violation::NotRead { what });
        }
    }
}
