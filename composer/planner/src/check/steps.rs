//! Every change has its steps, done to the right thing and in the right order.

use super::{Facts, units_of};
use crate::composition::{Composition, Held};
use crate::violation::Violation;
use poolwright_model::id::{CompositionId, UnitId};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::step::{Step, Verb};
use std::collections::{BTreeMap, HashMap, HashSet};

pub(super) fn check(facts: &Facts<'_>, found: &mut Vec<Violation>) {
    let steps = &facts.plan.steps;
    for (place, step) in steps.iter().enumerate() {
        let before = |after: &u32| (*after as usize) < place;
        if step.index as usize != place || !step.after.iter().all(before) {
            let step = step.index;
            found.push(Violation::StepPlace { step });
        }
    }
    let mut wanted = wanted(facts);
    let mut reset_of: HashMap<&UnitId, u32> = HashMap::new();
    let mut chains: BTreeMap<(&CompositionId, &UnitId), Vec<(Verb, u32)>> = BTreeMap::new();
    for (place, step) in (0u32..).zip(steps) {
        let (unit, verb) = (&step.target.unit, step.verb);
        let key = step
            .composition
            .as_ref()
            .map(|composition| (composition, unit, verb));
        let Some((composition, held)) = key.and_then(|key| wanted.remove(&key)) else {
            found.push(Violation::StepExtra { step: place });
            continue;
        };
        if step.target != held.target(&composition.host) {
            found.push(Violation::StepTarget { step: place });
        }
        if verb == Verb::Reset {
            reset_of.insert(unit, place);
        }
        chains
            .entry((&composition.id, unit))
            .or_default()
            .push((verb, place));
    }
    for (composition, unit, verb) in wanted.into_keys() {
        found.push(Violation::StepMissing {
            composition: composition.clone(),
            unit: unit.clone(),
            verb,
        });
    }
    for ((_, unit), chain) in &chains {
        order(steps, chain, reset_of.get(unit).copied(), found);
    }
}

type Key<'a> = (&'a CompositionId, &'a UnitId, Verb);

/// What must be done, and to what.
fn wanted<'a>(facts: &Facts<'a>) -> BTreeMap<Key<'a>, (&'a Composition, &'a Held)> {
    let mut wanted = BTreeMap::new();
    for (c, held) in units_of(&facts.plan.releases) {
        for verb in [Verb::Drain, Verb::Unbind, Verb::Reset] {
            wanted.insert((&c.id, &held.unit, verb), (c, held));
        }
    }
    for (c, held) in units_of(&facts.plan.composes) {
        for verb in [Verb::Preflight, Verb::Bind, Verb::Verify, Verb::Ready] {
            wanted.insert((&c.id, &held.unit, verb), (c, held));
        }
        let dirty = |id| facts.gpus.get(id).is_some_and(|gpu| gpu.state == GpuState::Dirty);
        if held.gpus.iter().any(dirty) && !facts.released.contains(&held.unit) {
            wanted.insert((&c.id, &held.unit, Verb::Reset), (c, held));
        }
    }
    wanted
}

/// Within one unit of one composition: each verb after those that must be done before it.
fn order(steps: &[Step], chain: &[(Verb, u32)], reset: Option<u32>, found: &mut Vec<Violation>) {
    let at = |verb: Verb| chain.iter().find(|(v, _)| *v == verb).map(|(_, place)| *place);
    let leaves = at(Verb::Unbind).is_some();
    let pairs = [
        (at(Verb::Unbind), at(Verb::Drain)),
        (at(Verb::Reset).filter(|_| leaves), at(Verb::Unbind)),
        (at(Verb::Bind), at(Verb::Preflight)),
        (at(Verb::Bind), reset),
        (at(Verb::Verify), at(Verb::Bind)),
        (at(Verb::Ready), at(Verb::Verify)),
    ];
    for (step, wait_for) in pairs
        .into_iter()
        .filter_map(|(step, first)| Some((step?, first?)))
    {
        if !before(steps, step).contains(&wait_for) {
            found.push(Violation::StepOrder { step, wait_for });
        }
    }
}

/// All steps that are done for certain when this one begins.
pub(super) fn before(steps: &[Step], step: u32) -> HashSet<u32> {
    let mut all = HashSet::new();
    let mut open = vec![step];
    while let Some(next) = open.pop() {
        let after = steps.get(next as usize).map_or(&[][..], |step| &step.after);
        open.extend(after.iter().filter(|after| **after < next && all.insert(**after)));
    }
    all
}
