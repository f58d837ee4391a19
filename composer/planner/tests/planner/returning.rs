//! What was lent is given back as far as nobody uses it, and the rest beside it later.

use crate::support::*;
use poolwright_model::id::{DemandId, UnitId};
use poolwright_planner::Deferral;
use poolwright_sizing::need::Need;

/// Two hosts of four slots; by night `training` has all eight GPUs, and then `chat` is to have them back.
fn by_night() -> Rack {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 8)
        .host("a", "f/s", 4)
        .host("b", "f/s", 4)
        .want("training", Need::of_kind("h100", 8).spanning(true));
    rack.apply(1);
    rack.forget("training");
    rack.demand("chat", 0, Need::of_kind("h100", 8).spanning(true));
    rack
}

fn unit(id: &str) -> UnitId {
    UnitId::new(id).unwrap()
}

fn somebody_uses(rack: &mut Rack, units: &[&str]) {
    let by = || "in use on a: train (process 77)".to_owned();
    rack.cordoned.in_use = units.iter().map(|id| (unit(id), by())).collect();
    rack.cordoned.in_part = [DemandId::new("chat").unwrap()].into();
}

fn has(rack: &Rack, demand: &str) -> u32 {
    let held = rack.held.iter();
    let of_it = held.filter(|c| c.demand.as_ref().is_some_and(|id| id.as_str() == demand));
    of_it.map(|c| c.gpu_count()).sum()
}

#[test]
fn what_nobody_uses_goes_back_at_once_and_the_rest_once_it_is_idle() {
    let mut rack = by_night();
    somebody_uses(&mut rack, &["g003"]);
    let plan = rack.apply(1);
    assert_eq!((has(&rack, "chat"), has(&rack, "training")), (7, 1));
    assert!(plan.steps.iter().all(|step| step.target.unit != unit("g003")));
    let [stays] = plan.deferred.as_slice() else {
        panic!("{plan:#?}")
    };
    assert!(matches!(&stays.because, Deferral::InUse { unit: stays, .. } if *stays == unit("g003")));
    assert_eq!(plan.unplaced.len(), 1, "what is missing is said");
    // Nothing changes while it is in use.
    assert!(rack.plan().steps.is_empty());

    let before = rack.held.clone();
    rack.cordoned.in_use.clear();
    let plan = rack.apply(2);
    assert_eq!((has(&rack, "chat"), has(&rack, "training")), (8, 0));
    let moved: Vec<_> = plan.moves().into_keys().collect();
    assert_eq!(moved, [&unit("g003")], "all else stays where it is");
    let chat = before
        .iter()
        .filter(|c| c.demand.as_ref().unwrap().as_str() == "chat");
    for part in chat {
        let now = rack.held.iter().find(|c| c.id == part.id).unwrap();
        assert!(part.held.iter().all(|held| now.held.contains(held)));
    }
    assert!(rack.plan().changes_nothing());
}

#[test]
fn a_host_that_is_wholly_in_use_is_joined_later_as_another_part() {
    let mut rack = by_night();
    let on_one: Vec<String> = {
        let part = rack.held.iter().find(|c| c.host.as_str() == "b").unwrap();
        part.held.iter().map(|held| held.unit.to_string()).collect()
    };
    somebody_uses(&mut rack, &on_one.iter().map(String::as_str).collect::<Vec<_>>());
    rack.apply(1);
    assert_eq!((has(&rack, "chat"), has(&rack, "training")), (4, 4));
    rack.cordoned.in_use.clear();
    let plan = rack.apply(2);
    assert_eq!((has(&rack, "chat"), plan.composes.len()), (8, 1));
    assert!(rack.plan().changes_nothing());
}

#[test]
fn a_demand_that_is_not_given_back_anything_has_all_or_nothing() {
    let mut rack = by_night();
    somebody_uses(&mut rack, &["g003"]);
    rack.cordoned.in_part.clear();
    let plan = rack.plan();
    assert!(plan.composes.is_empty() && plan.unplaced.len() == 1, "{plan:#?}");
}

#[test]
fn who_is_more_important_is_given_back_first() {
    let mut rack = by_night();
    rack.demand("urgent", 5, Need::of_kind("h100", 4));
    somebody_uses(&mut rack, &["g003"]);
    rack.cordoned.in_part.insert(DemandId::new("urgent").unwrap());
    rack.apply(1);
    assert_eq!((has(&rack, "urgent"), has(&rack, "chat")), (4, 3));
}

#[test]
fn a_checker_refuses_to_let_go_of_what_is_in_use() {
    let mut rack = by_night();
    let plan = rack.plan();
    somebody_uses(&mut rack, &["g003"]);
    let beside = rack.plan();
    let mut wrong = plan;
    wrong.deferred = beside.deferred;
    wrong.keeps = beside.keeps;
    let found = poolwright_planner::check(&wrong, &rack.world());
    let found = format!("{found:?}");
    assert!(found.contains("DeferredChanged"), "{found}");
}
