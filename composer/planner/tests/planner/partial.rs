//! What is left of a plan where some units stay as they are.

use crate::support::*;
use poolwright_model::id::{CompositionId, UnitId};
use poolwright_planner::direct::{attach, move_to};
use poolwright_planner::{Composition, Plan};
use poolwright_sizing::need::Need;
use std::collections::BTreeSet;

fn rack() -> Rack {
    Rack::new()
        .gpus("f/s", "h100", 80.0, 8)
        .host("h", "f/s", 4)
        .host("other", "f/s", 4)
}

fn unit_of(composition: &Composition, nth: usize) -> UnitId {
    composition.held[nth].unit.clone()
}

fn without(plan: &Plan, units: &[UnitId]) -> Plan {
    plan.without(&units.iter().cloned().collect())
}

fn sizes(compositions: &[Composition]) -> Vec<(CompositionId, u32)> {
    let sizes = compositions.iter().map(|c| (c.id.clone(), c.gpu_count()));
    sizes.collect()
}

#[test]
fn what_is_left_out_is_not_composed() {
    let rack = rack();
    let gpus: Vec<_> = ["g001", "g002"].map(|gpu| gpu.parse().unwrap()).into();
    let plan = attach(&gpus, &"h".parse().unwrap(), &rack.input()).unwrap();
    let one = unit_of(&plan.composes[0], 0);
    let two = unit_of(&plan.composes[0], 1);
    assert_eq!(without(&plan, &[]), plan);
    let rest = without(&plan, std::slice::from_ref(&one));
    assert_eq!(rest.composes[0].held.len(), 1);
    assert!(without(&plan, &[one, two]).after(&rack.held).is_empty());
}

#[test]
fn what_can_not_be_moved_stays_in_the_composition_that_had_it() {
    let mut rack = rack();
    let gpus: Vec<_> = ["g001", "g002"].map(|gpu| gpu.parse().unwrap()).into();
    let attached = attach(&gpus, &"h".parse().unwrap(), &rack.input()).unwrap();
    rack.execute(&attached, 1);
    let before = rack.held.clone();
    let plan = move_to(&gpus, &"other".parse().unwrap(), &rack.input()).unwrap();
    assert!(!plan.keeps.contains(&before[0].id), "it would have ended");
    let rest = without(&plan, &[unit_of(&before[0], 0)]);
    assert!(rest.keeps.contains(&before[0].id), "now it goes on");
    let after = rest.after(&before);
    let moved = plan.composes[0].id.clone();
    let expected = BTreeSet::from([(before[0].id.clone(), 1), (moved, 1)]);
    assert_eq!(sizes(&after).into_iter().collect::<BTreeSet<_>>(), expected);
}

#[test]
fn the_compositions_of_a_demand_that_are_left_are_numbered_anew() {
    let rack = rack().want("wide", Need::of_kind("h100", 8).spanning(true));
    let plan = rack.plan();
    let [first, _] = plan.composes.as_slice() else {
        panic!("{:?}", plan.composes);
    };
    let units: Vec<_> = (0..first.held.len()).map(|nth| unit_of(first, nth)).collect();
    let rest = without(&plan, &units);
    let [left] = rest.composes.as_slice() else {
        panic!("{:?}", rest.composes);
    };
    assert_eq!((left.part, left.parts), (1, 1));
}
