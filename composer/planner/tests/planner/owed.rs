//! What was lent is owed back: a plan that would take of it is found out, be it the GPUs or the room for them.

use crate::support::*;
use poolwright_model::id::DemandId;
use poolwright_planner::owed::{Breach, Debt, breach};
use poolwright_planner::{Composition, Demand};
use poolwright_sizing::need::Need;
use std::collections::BTreeSet;

/// Two hosts of four slots and eight GPUs; `chat` wants four on one host, and has lent them to `night`, which takes two.
fn lent(others: usize) -> (Rack, Debt) {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 8)
        .gpus("f/s", "l4", 24.0, others)
        .host("a", "f/s", 4)
        .host("b", "f/s", 4)
        .want("night", Need::of_kind("h100", 2));
    rack.apply(1);
    rack.demand("chat", 0, Need::of_kind("h100", 4));
    let chat: Demand = rack.demands.pop().unwrap();
    let debt = Debt {
        due: "2026-03-03T07:30:00Z".parse().unwrap(),
        lent_to: [(chat.id.clone(), "schedule night".to_owned())].into(),
        over: [DemandId::new("night").unwrap()].into(),
        lenders: vec![chat],
    };
    (rack, debt)
}

/// Who would lack something of it if this were served, too.
fn with(rack: &Rack, debt: &Debt, id: &str, need: Need) -> (Option<Breach>, Vec<Composition>) {
    let mut other = rack.clone();
    other.demand(id, 0, need);
    let plan = other.plan();
    assert!(plan.unplaced.is_empty(), "{:?}", plan.unplaced);
    let after = plan.after(&rack.held);
    (breach(std::slice::from_ref(debt), &rack.world(), &after), after)
}

#[test]
fn what_borrowers_hold_and_what_is_free_is_owed_and_the_rest_is_not() {
    let (rack, debt) = lent(0);
    assert_eq!(with(&rack, &debt, "two", Need::of_kind("h100", 2)).0, None);
    let (found, _) = with(&rack, &debt, "five", Need::of_kind("h100", 5).spanning(true));
    let found = found.unwrap();
    assert_eq!(
        (found.lender.as_str(), found.lent_to.as_str()),
        ("chat", "schedule night")
    );
    assert_eq!((found.due, found.gpus), (debt.due, 1), "{found:?}");
}

#[test]
fn the_room_on_hosts_is_owed_as_well() {
    let (rack, debt) = lent(8);
    let (found, after) = with(&rack, &debt, "many", Need::of_kind("l4", 6).spanning(true));
    assert_eq!(after.len(), 3);
    assert_eq!(found.unwrap().lender.as_str(), "chat");
    let (_, hosts) = debt.takes(&rack.world());
    assert_eq!(hosts.len(), 1, "all of it returns to one");
}

#[test]
fn what_is_lacking_already_keeps_nobody_from_anything() {
    let (rack, mut debt) = lent(0);
    debt.lenders[0].need = Need::of_kind("h100", 16);
    assert_eq!(with(&rack, &debt, "two", Need::of_kind("h100", 2)).0, None);
    let nothing = breach(&[debt], &rack.world(), &rack.held);
    assert_eq!(nothing, None, "nothing is changed");
}

#[test]
fn what_is_left_free_for_a_return_is_what_it_takes_and_nobody_has() {
    let (rack, debt) = lent(0);
    let (places, _) = debt.takes(&rack.world());
    let held: Vec<_> = rack
        .held
        .iter()
        .flat_map(|c| &c.held)
        .map(|held| &held.unit)
        .collect();
    assert!(
        places.iter().all(|place| !held.contains(&&place.unit)),
        "{places:?}"
    );
    assert!(places.len() <= 4, "{places:?}");
}

#[test]
fn what_a_lender_takes_that_is_served_anyway_is_left_free_for_it() {
    let (mut rack, debt) = lent(0);
    assert!(!debt.takes(&rack.world()).1.is_empty());
    rack.demands.extend(debt.lenders.clone());
    assert_eq!(debt.takes(&rack.world()), (Vec::new(), BTreeSet::new()));
}

#[test]
fn a_lend_that_is_about_to_begin_is_no_breach_of_itself() {
    let (mut rack, debt) = lent(0);
    // `chat` still has what `night` is going to get, at another host.
    rack.forget("night");
    rack.apply(2);
    rack.demands.clone_from(&debt.lenders);
    rack.apply(3);
    rack.demands.clear();
    rack.demand("night", 0, Need::of_kind("h100", 6).spanning(true));
    let plan = rack.plan();
    let after = plan.after(&rack.held);
    assert_eq!(after.iter().map(|c| c.gpu_count()).sum::<u32>(), 6);
    assert_eq!(breach(&[debt], &rack.world(), &after), None);
}
