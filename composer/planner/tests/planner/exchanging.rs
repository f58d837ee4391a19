//! A GPU that failed serves nobody: whoever holds it is given another one.

use crate::support::*;
use poolwright_model::composable::{Composability, WhyNotKind};
use poolwright_planner::Plan;
use poolwright_sizing::need::Need;

/// A demand for three of four GPUs, on a host with so many slots, of which one fails.
fn failing(slots: u32) -> (Rack, String) {
    let rack = Rack::new().gpus("f/s", "h100", 80.0, 4).host("h", "f/s", slots);
    let mut rack = rack.want("d", Need::of_kind("h100", 3));
    let plan = rack.apply(1);
    let gpu = gpus_of(&plan, "d").remove(0);
    quarantine(&mut rack, &gpu);
    (rack, gpu)
}

fn quarantine(rack: &mut Rack, gpu: &str) {
    rack.gpu_mut(gpu).composability = Composability::no(WhyNotKind::Quarantined, "Xid 79");
}

fn moved(plan: &Plan) -> (Vec<String>, Vec<String>) {
    let units = |compositions: &[poolwright_planner::Composition]| {
        let held = compositions.iter().flat_map(|c| &c.held);
        held.map(|held| held.unit.to_string()).collect()
    };
    (units(&plan.releases), units(&plan.composes))
}

#[test]
fn the_one_that_failed_goes_and_another_comes_beside_those_that_stay() {
    for slots in [3, 8] {
        let (mut rack, failed) = failing(slots);
        let plan = rack.plan();
        rack.holds(&plan);
        let (goes, comes) = moved(&plan);
        assert_eq!((goes, comes.len()), (vec![failed], 1), "{slots} slots");
        assert_eq!(plan.keeps.len(), 1, "and the rest stays");
        rack.apply(2);
        assert!(rack.plan().changes_nothing(), "once");
    }
}

/// A look that asked the fabric before a bind and the host after it tells of one GPU in two ways; the next one won't.
#[test]
fn what_is_told_in_two_ways_for_a_moment_moves_nobody() {
    let (mut rack, held) = failing(8);
    rack.gpu_mut(&held).composability =
        Composability::no(WhyNotKind::Disputed, "bound to nobody, but seen on h");
    let plan = rack.plan();
    rack.holds(&plan);
    assert!(plan.changes_nothing(), "{plan:#?}");
    assert_eq!(plan.keeps.len(), 1);
}

#[test]
fn where_there_is_no_other_one_nothing_is_taken_away_and_it_is_told() {
    let (mut rack, _) = failing(8);
    for gpu in ["g001", "g002", "g003", "g004"] {
        quarantine(&mut rack, gpu);
    }
    let plan = rack.plan();
    rack.holds(&plan);
    assert!(plan.changes_nothing());
    assert_eq!(plan.unplaced.len(), 1);
    assert_eq!(plan.unplaced[0].holding.len(), 1, "it keeps what it has");
    let told = plan.unplaced[0].to_string();
    assert!(told.contains("quarantined"), "{told}");
}

#[test]
fn one_that_failed_is_given_to_nobody_and_can_be_let_go_of() {
    let (mut rack, failed) = failing(8);
    rack.forget("d");
    let plan = rack.apply(2);
    assert_eq!(moved(&plan).0.len(), 3, "all of it goes");
    rack.demand("next", 0, Need::of_kind("h100", 4));
    assert_eq!(rack.plan().unplaced.len(), 1);
    rack.forget("next");
    rack.demand("less", 0, Need::of_kind("h100", 3));
    let plan = rack.plan();
    assert!(!gpus_of(&plan, "less").contains(&failed));
}

#[test]
fn where_its_host_has_none_left_it_is_served_elsewhere() {
    let rack = Rack::new().gpus("f/s", "h100", 80.0, 2).host("h", "f/s", 2);
    let mut rack = rack.want("d", Need::of_kind("h100", 2));
    let gpu = gpus_of(&rack.apply(1), "d").remove(0);
    quarantine(&mut rack, &gpu);
    let mut rack = rack.gpus("g/s", "h100", 80.0, 2).host("other", "g/s", 2);
    let plan = rack.apply(2);
    assert_eq!(hosts_of(&plan, "d"), [("other".to_owned(), 2)]);
}
