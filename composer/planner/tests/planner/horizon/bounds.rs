//! What the bound and the first plan owe to what they look at: each of these fails without it.

use super::instances::{costs, gpu};
use super::{planned, problem};
use poolwright_planner::horizon::check;
use serde_json::{Value, json};

/// Hosts with room for so many, GPUs of one kind behind their switch, and demands: start, end, GPUs.
fn one_kind(hosts: usize, room: u64, gpus: usize, demands: &[(u64, u64, u64)]) -> Value {
    let hosts = (0..hosts).map(|host| {
        json!({"id": format!("h{host}"), "slots": room, "switch": "s0", "host_on_w": 350, "host_idle_w": 150})
    });
    let demands = demands.iter().enumerate().map(|(index, (start, end, gpus))| {
        json!({"id": format!("d{index}"), "tenant": "t", "start": start, "end": end, "gpus": gpus, "min_mem_gb": 24,
            "weight": 1})
    });
    json!({"schema": "cps-1", "horizon_slots": 8, "slot_s": 3600, "hosts": hosts.collect::<Vec<_>>(),
        "gpus": (0..gpus).map(|index| gpu(&format!("g{index}"), "T24", "s0", None)).collect::<Vec<_>>(),
        "demands": demands.collect::<Vec<_>>(), "costs": costs()})
}

#[test]
fn a_demand_is_served_whole_or_not_at_all() {
    // In part, five GPUs would serve the first and two thirds of the second.
    let plan = planned(
        &problem(&one_kind(2, 8, 5, &[(0, 8, 3), (0, 8, 3)])),
        1,
        100,
        None,
    );
    assert!(
        plan.gap() < 0.02,
        "{} is said to cost {} at least",
        plan.cost,
        plan.bound
    );
}

#[test]
fn two_that_are_wider_than_half_a_host_do_not_share_one() {
    // There are GPUs for all three, and room for sixteen.
    let plan = planned(
        &problem(&one_kind(2, 8, 16, &[(0, 8, 5), (0, 8, 5), (0, 8, 5)])),
        1,
        100,
        None,
    );
    assert!(
        plan.gap() < 0.02,
        "{} is said to cost {} at least",
        plan.cost,
        plan.bound
    );
}

#[test]
fn where_a_case_is_dearer_than_the_plan_there_is_nothing_left_to_find() {
    // One of three is served, and everything about it is the same for each.
    let plan = planned(
        &problem(&one_kind(1, 4, 4, &[(0, 4, 4), (0, 4, 4), (0, 4, 4)])),
        1,
        100,
        None,
    );
    assert_eq!(plan.bound, plan.cost);
}

#[test]
fn the_first_plan_serves_all_where_there_is_enough_for_all() {
    // In no slot are more than eight wanted. Placed by what they cost, or as they come, some would be in others' way.
    let windows = [(0, 2), (4, 8), (1, 5), (2, 4), (5, 8), (0, 1)];
    let demands: Vec<(u64, u64, u64)> = windows.iter().map(|(start, end)| (*start, *end, 4)).collect();
    for seed in 0..20 {
        let problem = problem(&one_kind(2, 4, 8, &demands));
        let first = planned(&problem, seed, 0, None);
        assert!(
            first
                .assignment
                .demands
                .iter()
                .all(|served| served.host.is_some()),
            "{first:?}"
        );
    }
}

#[test]
fn of_very_many_groups_enough_are_found_wherever_they_are_free() {
    // One GPU behind each of 150 switches, and room for all at hosts behind a few of them.
    let hosts: Vec<Value> = (0..40)
        .map(|host| {
            json!({"id": format!("h{host}"), "slots": 8, "switch": format!("s{}", host % 3),
        "host_on_w": 350, "host_idle_w": 150})
        })
        .collect();
    let gpus: Vec<Value> = (0..150)
        .map(|index| gpu(&format!("g{index}"), "T24", &format!("s{index}"), None))
        .collect();
    let demands: Vec<Value> = (0..30)
        .map(|index| {
            json!({"id": format!("d{index}"), "start": 0, "end": 2, "gpus": 5, "min_mem_gb": 24, "weight": 1})
        })
        .collect();
    let value = json!({"schema": "cps-1", "horizon_slots": 3, "slot_s": 3600, "hosts": hosts, "gpus": gpus,
        "demands": demands, "costs": costs()});
    let problem = problem(&value);
    let plan = planned(&problem, 1, 0, None);
    assert_eq!(check(&problem, &plan.assignment), Ok(plan.cost));
    let served = plan
        .assignment
        .demands
        .iter()
        .filter(|served| served.host.is_some());
    assert_eq!(served.count(), 30, "each GPU is wanted");
    let near = plan.assignment.demands.iter().filter(|served| {
        let host = served
            .host
            .as_deref()
            .and_then(|host| host[1..].parse::<usize>().ok());
        host.is_some_and(|host| served.gpus.contains_key(&format!("T24@s{}", host % 3)))
    });
    assert_eq!(
        near.count(),
        3,
        "the GPU behind the switch of a host is used there"
    );
}
