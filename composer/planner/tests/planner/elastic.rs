//! Demands that are content with fewer GPUs, and the happier the more they have.

use crate::support::*;
use poolwright_planner::Share;
use poolwright_sizing::need::Need;

fn from(least: u32, most: u32) -> Need {
    Need::of_kind("h100", most).spanning(true).from_least(least)
}

/// Eight GPUs, and two hosts that take four each.
fn two_hosts() -> Rack {
    Rack::new()
        .gpus("f/s", "h100", 80.0, 8)
        .host("h1", "f/s", 4)
        .host("h2", "f/s", 4)
}

fn has(rack: &Rack, demand: &str) -> u32 {
    let held = rack
        .held
        .iter()
        .filter(|c| c.demand.as_ref().is_some_and(|id| id.as_str() == demand));
    held.map(|c| c.gpu_count()).sum()
}

#[test]
fn it_takes_as_many_as_there_are() {
    for (least, most, expected) in [(1, 6, 6), (1, 20, 8), (8, 20, 8)] {
        let mut rack = two_hosts().want("d", from(least, most));
        rack.apply(1);
        assert_eq!(has(&rack, "d"), expected, "{least} to {most}");
        assert!(rack.plan().changes_nothing());
    }
    let lacks = two_hosts().want("d", from(9, 20)).plan();
    let why = lacks.unplaced[0].to_string();
    assert!(
        why.contains("9 are needed") && why.contains("add 1 GPU "),
        "{why}"
    );
}

#[test]
fn it_leaves_others_what_they_want_in_the_same_plan() {
    let mut rack = two_hosts()
        .want("many", from(2, 8))
        .want("four", Need::of_kind("h100", 4));
    let plan = rack.apply(1);
    assert!(plan.unplaced.is_empty());
    assert_eq!((has(&rack, "many"), has(&rack, "four")), (2, 4));
    // The next plan gives it the GPUs that no other demand wants.
    rack.apply(2);
    assert_eq!((has(&rack, "many"), has(&rack, "four")), (4, 4));
    assert!(rack.plan().changes_nothing());
}

#[test]
fn it_grows_where_it_is_once_nobody_lacks_anything() {
    let mut rack = two_hosts()
        .want("four", Need::of_kind("h100", 4))
        .want("many", from(2, 8));
    rack.apply(1);
    let before: Vec<_> = rack.held.iter().flat_map(|c| c.gpus().cloned()).collect();
    rack.forget("four");
    rack.demand("vast", 0, Need::of_kind("h100", 9));
    let plan = rack.apply(2);
    assert_eq!(plan.unplaced.len(), 1, "one that no plan can serve");
    let mine = has(&rack, "many");
    assert!(mine < 8, "{mine}");
    rack.forget("vast");
    let plan = rack.apply(3);
    assert!(plan.releases.is_empty(), "what it has stays");
    assert_eq!(has(&rack, "many"), 8);
    let after: Vec<_> = rack.held.iter().flat_map(|c| c.gpus().cloned()).collect();
    assert!(before.iter().filter(|gpu| after.contains(gpu)).count() >= 2);
    assert!(rack.plan().changes_nothing());
}

#[test]
fn it_has_no_more_than_its_tenant_may() {
    let mut rack = two_hosts().want("d", from(2, 8));
    let tenant = rack.demands[0].tenant.clone();
    let share = |most| Share {
        most: Some(most),
        ..Share::default()
    };
    rack.promises.shares.insert(tenant.clone(), share(5));
    rack.apply(1);
    assert_eq!(has(&rack, "d"), 5);
    rack.promises.shares.insert(tenant, share(6));
    rack.apply(2);
    assert_eq!(has(&rack, "d"), 6);
}

#[test]
fn one_that_waits_makes_nobody_shrink() {
    let mut rack = two_hosts().want("d", from(2, 8));
    rack.apply(1);
    rack.demand("late", 9, Need::of_kind("h100", 4));
    let plan = rack.plan();
    assert_eq!((plan.unplaced.len(), plan.releases.len()), (1, 0));
}
