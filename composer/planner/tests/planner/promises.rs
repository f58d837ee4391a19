//! What tenants are promised, in plans of demands: the most that each may hold, what each is guaranteed, and its share.

use crate::support::*;
use poolwright_model::id::TenantId;
use poolwright_planner::{Demand, Plan, Reason, Share};
use poolwright_sizing::need::Need;

/// Eight GPUs, and hosts for all of them.
fn rack() -> Rack {
    Rack::new()
        .gpus("f/s", "red", 80.0, 8)
        .host("h1", "f/s", 8)
        .host("h2", "f/s", 8)
}

fn promised(mut rack: Rack, tenant: &str, guaranteed: u32, most: Option<u32>, weight: u32) -> Rack {
    let share = Share {
        guaranteed,
        most,
        weight,
    };
    let tenant = TenantId::from_lossy(tenant);
    rack.promises.shares.insert(tenant, share);
    rack
}

fn wants(rack: &mut Rack, tenant: &str, id: &str, priority: i32, gpus: u32) {
    let mut demand = demand_of(rack, id, priority, gpus);
    demand.tenant = TenantId::from_lossy(tenant);
    rack.demands.push(demand);
}

fn demand_of(rack: &mut Rack, id: &str, priority: i32, gpus: u32) -> Demand {
    rack.demand(id, priority, Need::of_kind("red", gpus));
    rack.demands.pop().unwrap()
}

/// The demands that a plan serves, in the order of their names.
fn served(plan: &Plan) -> Vec<&str> {
    let demands = plan.composes.iter().filter_map(|c| c.demand.as_ref());
    let mut served: Vec<&str> = demands.map(|id| id.as_str()).collect();
    served.sort_unstable();
    served
}

fn why<'p>(plan: &'p Plan, demand: &str) -> &'p Reason {
    let unplaced = plan.unplaced.iter().find(|u| u.demand.as_str() == demand);
    &unplaced.unwrap().tried[0].reason
}

#[test]
fn no_tenant_gets_more_than_it_may_hold_and_is_told_what_would_help() {
    let mut rack = promised(rack(), "lab", 0, Some(4), 1);
    wants(&mut rack, "lab", "first", 2, 3);
    wants(&mut rack, "lab", "second", 1, 2);
    wants(&mut rack, "web", "other", 0, 2);
    let plan = rack.plan();
    assert_eq!(served(&plan), ["first", "other"]);
    assert!(
        matches!(
            why(&plan, "second"),
            Reason::TenantLimit {
                needed: 2,
                holds: 3,
                most: 4,
                ..
            }
        ),
        "{plan:?}"
    );
    let told = plan.unplaced[0].to_string();
    assert!(
        told.contains("tenant lab holds 3 beside it and may hold 4 at most"),
        "{told}"
    );
    assert!(told.contains("what helps: release 1 GPU of tenant lab"), "{told}");
    let all = plan.unplaced[0].alternatives().join("\n");
    assert!(all.contains("poolwright tenant set lab --most 5"), "{all}");

    // What it has counts, also what operations bring; and it may always want less.
    rack.apply(1);
    rack.promises.shares.insert(
        TenantId::from_lossy("lab"),
        Share {
            most: Some(2),
            ..Share::default()
        },
    );
    rack.forget("first");
    rack.forget("second");
    wants(&mut rack, "lab", "first", 2, 4);
    assert!(matches!(
        why(&rack.plan(), "first"),
        Reason::TenantLimit {
            holds: 0,
            needed: 4,
            ..
        }
    ));
    rack.forget("first");
    wants(&mut rack, "lab", "first", 2, 2);
    rack.promises.coming.insert(TenantId::from_lossy("lab"), 5);
    let plan = rack.plan();
    assert!(plan.unplaced.is_empty(), "{plan:?}");
    assert_eq!(plan.summary().gpus_unbound, 1);
}

#[test]
fn a_smaller_alternative_is_taken_where_the_first_is_more_than_it_may_hold() {
    let mut rack = promised(rack(), "lab", 0, Some(2), 1).gpus("f/s", "big", 160.0, 2);
    wants(&mut rack, "lab", "model", 0, 4);
    let need = need(
        vec![set(Some("red"), 4, 80.0, 1), set(Some("big"), 2, 160.0, 1)],
        false,
    );
    rack.demands[0].need = need;
    let plan = rack.plan();
    assert_eq!(plan.composes[0].gpu_count(), 2);
}

#[test]
fn what_is_guaranteed_goes_before_any_priority_of_what_is_not() {
    let mut rack = promised(rack(), "lab", 4, None, 1);
    wants(&mut rack, "web", "loud", 9, 6);
    wants(&mut rack, "lab", "ours", 0, 4);
    let plan = rack.plan();
    assert_eq!(served(&plan), ["ours"]);
    assert!(
        matches!(why(&plan, "loud"), Reason::AllBusy { free: 4, .. }),
        "{plan:?}"
    );
    // Beyond the guarantee it is one of many.
    rack.promises
        .shares
        .get_mut(&TenantId::from_lossy("lab"))
        .unwrap()
        .guaranteed = 3;
    assert_eq!(served(&rack.plan()), ["loud"]);
}

#[test]
fn what_is_guaranteed_and_wanted_is_left_also_where_there_is_too_little_of_it() {
    let mut rack = promised(promised(rack(), "lab", 8, None, 1), "web", 0, None, 1);
    wants(&mut rack, "web", "early", 0, 3);
    rack.apply(1);
    // Five are left, and eight are wanted.
    wants(&mut rack, "lab", "wide", 0, 8);
    wants(&mut rack, "web", "more", 9, 2);
    let plan = rack.plan();
    assert_eq!(served(&plan), [""; 0]);
    assert!(
        matches!(why(&plan, "more"), Reason::Promised { demand, gpus: 5, .. } if demand.as_str() == "wide"),
        "{plan:?}"
    );
    let told = plan
        .unplaced
        .iter()
        .find(|u| u.demand.as_str() == "more")
        .unwrap()
        .to_string();
    assert!(
        told.contains("what tenant lab is guaranteed and wants: demand wide"),
        "{told}"
    );
    assert!(told.contains("ask again once demand wide is served"), "{told}");

    // The same where it waits elsewhere, such as in the queue.
    let wide = rack
        .demands
        .iter()
        .position(|demand| demand.id.as_str() == "wide")
        .unwrap();
    let wide = rack.demands.remove(wide);
    rack.promises.waiting.push(wide);
    assert!(matches!(why(&rack.plan(), "more"), Reason::Promised { .. }));
    // For what can never be served nothing is left.
    rack.promises.waiting[0].need = Need::of_kind("red", 9);
    rack.promises
        .shares
        .get_mut(&TenantId::from_lossy("lab"))
        .unwrap()
        .guaranteed = 9;
    assert_eq!(served(&rack.plan()), ["more"]);
    // And what is guaranteed and not wanted is anybody's.
    rack.promises.waiting.clear();
    assert_eq!(served(&rack.plan()), ["more"]);
}

#[test]
fn where_there_is_too_little_tenants_come_near_their_shares() {
    let all = |weight: u32| {
        let mut rack = promised(rack(), "web", 0, None, weight);
        for (tenant, id) in [("lab", "a1"), ("lab", "a2"), ("lab", "a3"), ("lab", "a4")] {
            wants(&mut rack, tenant, id, 0, 2);
        }
        for id in ["b1", "b2", "b3", "b4"] {
            wants(&mut rack, "web", id, 0, 2);
        }
        let plan = rack.plan();
        served(&plan).iter().filter(|id| id.starts_with('b')).count()
    };
    assert_eq!(all(1), 2, "two of four each");
    assert_eq!(all(3), 3, "three parts of four");
}
