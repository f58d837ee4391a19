//! Whether what is held is what is wanted.

use crate::composition::{Composition, Held};
use crate::demand::Demand;
use crate::plan::World;
use crate::survey::{Survey, UnitFacts};
use poolwright_model::composable::WhyNotKind;
use poolwright_model::id::{DemandId, UnitId};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::Gpu;
use poolwright_sizing::need::{GpuSet, Need};
use std::collections::{BTreeMap, BTreeSet};

/// Whether these compositions together are what the need asks for: one of its alternatives, and no unit more.
/// A unit that the snapshot doesn't show is taken for what it was composed as.
pub(crate) fn serves(survey: &Survey<'_>, need: &Need, compositions: &[&Composition]) -> bool {
    !any_failed(survey, compositions) && serves_if_well(survey, need, compositions)
}

/// Demands that hold what they want, where some of that failed: nothing but an exchange is lacking to them.
pub fn served_but_for_failures(world: &World<'_>) -> BTreeSet<DemandId> {
    let out_of_use =
        |gpu: &&Gpu| matches!(&gpu.composability.0, Some(why) if why.kind == WhyNotKind::Quarantined);
    let gpus = world.snapshot.topology.gpus.iter();
    let out_of_use: BTreeSet<&UnitId> = gpus.filter(out_of_use).map(|gpu| &gpu.unit).collect();
    let may_have_failed = |c: &&Composition| c.held.iter().any(|held| out_of_use.contains(&held.unit));
    let concerned = world.held.iter().filter(may_have_failed);
    let concerned: BTreeSet<&DemandId> = concerned.filter_map(|c| c.demand.as_ref()).collect();
    if concerned.is_empty() {
        return BTreeSet::new();
    }
    let of_them = |c: &&Composition| c.demand.as_ref().is_some_and(|id| concerned.contains(id));
    let held: Vec<&Composition> = world.held.iter().filter(of_them).collect();
    let units = held.iter().flat_map(|c| &c.held).map(|held| &held.unit);
    let survey = Survey::near(world, units, []);
    let lacks_an_exchange = |demand: &&Demand| {
        let has = held.iter().filter(|c| c.demand.as_ref() == Some(&demand.id));
        let has: Vec<&Composition> = has.copied().collect();
        any_failed(&survey, &has) && serves_if_well(&survey, &demand.need, &has)
    };
    let demands = world.demands.iter();
    let demands = demands.filter(|demand| concerned.contains(&demand.id));
    demands
        .filter(lacks_an_exchange)
        .map(|demand| demand.id.clone())
        .collect()
}

/// Demands that hold other GPUs than they want: a plan for all demands changes that.
pub fn served_otherwise(world: &World<'_>) -> BTreeSet<DemandId> {
    let mut has: BTreeMap<&DemandId, Vec<&Composition>> = BTreeMap::new();
    for composition in world.held {
        if let Some(demand) = &composition.demand {
            has.entry(demand).or_default().push(composition);
        }
    }
    let wanted: BTreeSet<&DemandId> = world.demands.iter().map(|demand| &demand.id).collect();
    has.retain(|id, _| wanted.contains(id));
    let units = has.values().flatten().flat_map(|c| &c.held);
    let survey = Survey::near(world, units.map(|held| &held.unit), []);
    let demands = world.demands.iter();
    let otherwise = demands.filter(|demand| {
        let has = has.get(&demand.id);
        has.is_some_and(|has| !serves_if_well(&survey, &demand.need, has))
    });
    otherwise.map(|demand| demand.id.clone()).collect()
}

/// Whether it would be what the need asks for if nothing of it had failed.
fn serves_if_well(survey: &Survey<'_>, need: &Need, compositions: &[&Composition]) -> bool {
    if compositions.len() > 1 && !need.spannable {
        return false;
    }
    need.alternatives.iter().any(|set| {
        let admitted = compositions.iter().all(|c| all_admitted(survey, set, c));
        admitted && one_kind(survey, compositions) && count_fits(set, compositions)
    })
}

fn any_failed(survey: &Survey<'_>, compositions: &[&Composition]) -> bool {
    compositions.iter().any(|c| !failed(survey, c).is_empty())
}

/// What a composition holds and nobody can use any more: it serves nothing, wherever it is.
pub(crate) fn failed(survey: &Survey<'_>, composition: &Composition) -> Vec<Held> {
    let out_of_use = |held: &&Held| survey.unit(&held.unit).is_some_and(UnitFacts::is_out_of_use);
    composition.held.iter().filter(out_of_use).cloned().collect()
}

/// A unit as it is seen; `None` where it is missing, and what is said of it may be less than what it is.
fn seen<'s, 'a>(survey: &'s Survey<'a>, held: &Held) -> Option<&'s UnitFacts<'a>> {
    let unit = survey.unit(&held.unit)?;
    let is_missing = unit.gpus.iter().any(|gpu| gpu.state == GpuState::Missing);
    (!is_missing).then_some(unit)
}

/// Whether every unit of a composition may be one of a set.
pub(crate) fn all_admitted(survey: &Survey<'_>, set: &GpuSet, composition: &Composition) -> bool {
    let mut seen = composition.held.iter().filter_map(|held| seen(survey, held));
    seen.all(|unit| set.admits(unit.kind.as_deref(), unit.memory))
}

fn one_kind(survey: &Survey<'_>, compositions: &[&Composition]) -> bool {
    let units = compositions.iter().flat_map(|c| &c.held);
    let kinds = units.filter_map(|held| seen(survey, held)?.kind.as_deref());
    kinds.collect::<BTreeSet<_>>().len() <= 1
}

/// Enough GPUs in whole groups, and no unit without which there would be enough, too.
fn count_fits(set: &GpuSet, compositions: &[&Composition]) -> bool {
    let whole = |gpus: u32| gpus / set.group.max(1) * set.group.max(1);
    let counts: Vec<u32> = compositions.iter().map(|c| c.gpu_count()).collect();
    let all: u32 = counts.iter().map(|gpus| whole(*gpus)).sum();
    let needed = |(gpus, composition): (&u32, &&Composition)| {
        let without = |held: &Held| all - whole(*gpus) + whole(gpus - held.slots());
        composition.held.iter().all(|held| without(held) < set.count)
    };
    all >= set.count && counts.iter().zip(compositions).all(needed)
}

/// Splits a composition into what is enough for so many GPUs, and the rest: of equals the last ids go.
pub(crate) fn without_superfluous(composition: &Composition, gpus: u32) -> (Vec<Held>, Vec<Held>) {
    let mut left = composition.gpu_count();
    let (mut stays, mut goes) = (Vec::new(), Vec::new());
    for held in composition.held.iter().rev() {
        if left - held.slots() >= gpus {
            left -= held.slots();
            goes.push(held.clone());
        } else {
            stays.push(held.clone());
        }
    }
    stays.reverse();
    goes.reverse();
    (stays, goes)
}
