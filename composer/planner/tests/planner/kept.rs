//! What is attached and idle for what is expected: it stands while nobody needs it, and goes to whoever does.

use crate::support::*;
use jiff::Timestamp;
use poolwright_model::lifecycle::GpuState;
use poolwright_model::step::Verb;
use poolwright_model::topology::PowerState;
use poolwright_planner::kept::{may_stay, serves_as_it_is};
use poolwright_planner::{Kept, Plan, Reason};
use poolwright_sizing::need::Need;

fn h100(count: u32) -> Need {
    Need::of_kind("h100", count)
}

/// `first` had four of six GPUs on one of two hosts, and is gone: what it had is kept there.
fn rack() -> Rack {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 6)
        .host("a", "f/s", 4)
        .host("b", "f/s", 4)
        .want("first", h100(4));
    rack.apply(1);
    assert_eq!(rack.held[0].host.as_str(), "a");
    rack.forget("first");
    keep(&mut rack);
    rack
}

fn keep(rack: &mut Rack) {
    for composition in &mut rack.held {
        composition.demand = None;
        composition.kept = Some(Kept {
            since: Timestamp::UNIX_EPOCH,
            by: Timestamp::UNIX_EPOCH,
            part_of: None,
        });
    }
}

fn is_of_another(rack: &mut Rack) {
    rack.demands[0].tenant = "other".parse().unwrap();
}

fn goes(plan: &Plan) -> usize {
    plan.releases.len()
}

#[test]
fn what_is_kept_stands_while_others_are_served_beside_it() {
    let mut rack = rack();
    assert!(rack.plan().changes_nothing(), "no demand, and it stays");
    rack.demand("small", 0, h100(2));
    let plan = rack.apply(3);
    assert_eq!((goes(&plan), hosts_of(&plan, "small").len()), (0, 1));
    assert_eq!(rack.held.len(), 2);
}

#[test]
fn it_goes_where_somebody_can_not_be_served_beside_it() {
    for seed in 0..8 {
        let mut rack = rack();
        // Three are not free beside the four that are kept; the check holds the plan to drain, unbind and reset.
        rack.demand("larger", 0, h100(3));
        let plan = rack.apply(seed);
        assert_eq!((goes(&plan), plan.unplaced.len()), (1, 0));
        assert_eq!(rack.held.len(), 1);
        assert!(rack.plan().changes_nothing());
    }
}

#[test]
fn it_stands_where_its_going_would_not_help() {
    let mut rack = rack();
    rack.demand("huge", 0, h100(7));
    let plan = rack.plan();
    assert_eq!((goes(&plan), plan.unplaced.len()), (0, 1));
}

#[test]
fn only_what_is_needed_of_it_goes() {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 4)
        .gpus("f/s", "l4", 22.0, 2)
        .host("a", "f/s", 4)
        .host("b", "f/s", 4)
        .want("one", h100(2))
        .want("two", h100(2))
        .want("cheap", Need::of_kind("l4", 2));
    rack.apply(1);
    for demand in ["one", "two", "cheap"] {
        rack.forget(demand);
    }
    keep(&mut rack);
    rack.demand("next", 0, h100(1));
    let plan = rack.apply(2);
    assert_eq!((goes(&plan), plan.unplaced.len()), (1, 0), "{plan:?}");
    assert_eq!(plan.releases[0].gpu_count(), 2);
    assert_eq!(rack.held.len(), 3);
}

/// Retained GPUs make way for a demand that lacks some, and not for one that only grows.
#[test]
fn an_elastic_demand_does_not_grow_into_retained_gpus() {
    let singles = ["1", "2", "3", "4", "5", "6"];
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 8)
        .host("a", "f/s", 8)
        .host("b", "f/s", 8);
    for single in singles {
        rack.demand(single, 0, h100(1));
    }
    rack.apply(1);
    singles.iter().for_each(|single| rack.forget(single));
    keep(&mut rack);
    rack.demand("elastic", 0, h100(8).spanning(true).from_least(2));
    assert_eq!(goes(&rack.apply(2)), 0);
    rack.demand("one", 0, h100(1));
    let plan = rack.apply(3);
    assert_eq!((goes(&plan), plan.unplaced.len()), (1, 0), "{plan:?}");
}

#[test]
fn a_slot_that_it_sits_in_is_given_to_whoever_needs_it() {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 8)
        .host("a", "f/s", 4)
        .want("first", h100(4));
    rack.apply(1);
    rack.forget("first");
    keep(&mut rack);
    rack.demand("next", 0, h100(2));
    let plan = rack.apply(2);
    assert_eq!((goes(&plan), plan.unplaced.len()), (1, 0));
}

#[test]
fn what_is_kept_for_a_tenant_is_gone_before_another_comes_to_its_host() {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 4)
        .host("a", "f/s", 4)
        .want("first", h100(2));
    rack.apply(1);
    rack.forget("first");
    keep(&mut rack);
    rack.demand("same", 0, h100(1));
    assert_eq!(goes(&rack.plan()), 0, "its own tenant may come beside it");
    is_of_another(&mut rack);
    let plan = rack.apply(2);
    assert_eq!(goes(&plan), 1, "{plan:?}");
    let place = |verb: Verb| plan.steps.iter().filter(move |step| step.verb == verb);
    let preflight = place(Verb::Preflight).next().unwrap();
    for unbind in place(Verb::Unbind) {
        assert!(preflight.after.contains(&unbind.index), "{:?}", plan.steps);
    }
}

#[test]
fn it_serves_its_tenant_as_it_is_and_nobody_else() {
    let mut rack = rack();
    rack.demand("again", 0, h100(4));
    let found = |rack: &Rack| {
        serves_as_it_is(&rack.demands[0], &rack.world())
            .iter()
            .map(|c| c.id.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(found(&rack), [rack.held[0].id.clone()]);
    rack.demands[0].need = h100(3);
    assert_eq!(found(&rack), [], "one too many");
    rack.demands[0].need = Need::of_kind("l4", 4);
    assert_eq!(found(&rack), [], "another kind");
    rack.demands[0].need = h100(4);
    is_of_another(&mut rack);
    assert_eq!(found(&rack), [], "another tenant");
    rack.demands[0].tenant = "acme".parse().unwrap();
    // Somebody has bound one of them elsewhere since.
    let elsewhere = rack.host_mut("b").ports[0].id.clone();
    rack.gpu_mut("g001").host_port = Some(elsewhere);
    assert_eq!(found(&rack), [], "it is not where it was");
}

#[test]
fn what_one_demand_held_at_several_hosts_serves_together_or_each_by_itself() {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 8)
        .host("a", "f/s", 4)
        .host("b", "f/s", 4)
        .want("wide", h100(6).spanning(true));
    rack.apply(1);
    assert_eq!(rack.held.len(), 2);
    rack.forget("wide");
    keep(&mut rack);
    for composition in &mut rack.held {
        composition.kept.as_mut().unwrap().part_of = Some("wide".parse().unwrap());
    }
    let found = |rack: &Rack, need: Need| {
        let mut rack = rack.clone();
        rack.demand("again", 0, need);
        let world = rack.world();
        let found = serves_as_it_is(&rack.demands[0], &world);
        found.iter().map(|c| c.gpu_count()).sum::<u32>()
    };
    assert_eq!(found(&rack, h100(6).spanning(true)), 6);
    assert_eq!(found(&rack, h100(6)), 0, "it may not span hosts");
    assert_eq!(found(&rack, h100(4)), 4, "one part of it is enough");
    rack.held.remove(0);
    assert_eq!(found(&rack, h100(6).spanning(true)), 0, "a part is gone");
}

#[test]
fn what_stays_is_in_order_and_alone_with_its_tenant() {
    let mut rack = Rack::new()
        .gpus("f/s", "h100", 80.0, 4)
        .host("a", "f/s", 4)
        .want("one", h100(2));
    rack.apply(1);
    assert!(may_stay(&rack.held[0], &rack.world()));
    rack.demand("beside", 0, h100(1));
    rack.apply(2);
    let one = |rack: &Rack| {
        let found = rack
            .held
            .iter()
            .find(|c| c.demand.as_ref().unwrap().as_str() == "one");
        found.unwrap().clone()
    };
    assert!(may_stay(&one(&rack), &rack.world()), "beside its own tenant");
    let other = rack
        .held
        .iter_mut()
        .find(|c| c.demand.as_ref().unwrap().as_str() == "beside");
    other.unwrap().tenant = Some("other".parse().unwrap());
    assert!(
        !may_stay(&one(&rack), &rack.world()),
        "another tenant is at its host"
    );
    rack.held
        .retain(|c| c.tenant.as_ref().unwrap().as_str() != "other");
    rack.gpu_mut("g001").health = poolwright_model::topology::Health::Critical;
    assert!(!may_stay(&one(&rack), &rack.world()), "one of them is broken");
}

#[test]
fn nothing_comes_beside_what_can_not_be_let_go_of() {
    let mut rack = rack();
    rack.host_mut("b").power_state = PowerState::Off;
    let kept = rack.held[0].held[0].gpus[0].to_string();
    rack.gpu_mut(&kept).state = GpuState::Indeterminate;
    rack.demand("small", 0, h100(1));
    is_of_another(&mut rack);
    let plan = rack.plan();
    assert_eq!((goes(&plan), hosts_of(&plan, "small").len()), (0, 0));
    assert!(
        matches!(reason(&plan, "small"), Reason::NoHost { keeps: 1, off: 1, .. }),
        "{plan:?}"
    );
    rack.gpu_mut(&kept).state = GpuState::Attached;
    let plan = rack.plan();
    assert_eq!((goes(&plan), hosts_of(&plan, "small").len()), (1, 1));
}
