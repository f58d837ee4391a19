//! What problems may say beyond `cps-1`: kept by every plan, found out by the check, and said where it is in the way.

use super::instances::{Size, gpu, instance};
use super::judge::{cheapest_of_all, checked, checked_after_a_free_one, is_dearer_than_free};
use super::planned;
use fastrand::Rng;
use poolwright_planner::horizon::{Assignment, Broken, Problem, check, cps1, extended, reasons};
use serde_json::{Value, json};

pub fn read(value: &Value) -> Result<Problem, cps1::Invalid> {
    let instance = serde_json::from_value(value.clone()).unwrap();
    extended::read(&instance, &serde_json::from_value(value.clone()).unwrap())
}

/// A problem made by chance, with something more to keep for hosts, demands and tenants.
pub fn more_to_keep(seed: u64, size: Size) -> Value {
    let mut rng = Rng::with_seed(seed);
    let mut value = instance(seed, size);
    value["schema"] = extended::SCHEMA.into();
    let slots = value["horizon_slots"].as_i64().unwrap();
    for host in value["hosts"].as_array_mut().unwrap() {
        if rng.bool() {
            let start = rng.i64(0..slots);
            host["closed"] = json!([{"start": start, "end": start + 1}]);
        }
    }
    for demand in value["demands"].as_array_mut().unwrap() {
        if rng.u8(..3) == 0 {
            demand["hosts"] = json!([format!("h{}", rng.u8(..2))]);
        }
        if rng.u8(..3) == 0 {
            let kind = ["T24", "T40"][rng.usize(..2)];
            demand["types"] = json!([kind]);
        }
    }
    value["tenants"] = json!([{"id": "t0", "most_gpus": rng.u8(1..4)}, {"id": "t1", "most_gpus": 2}]);
    value
}

/// The same, where GPUs are pinned, some demands want their GPUs beforehand, and tenants are guaranteed some.
fn guaranteed_and_beforehand(seed: u64, size: Size) -> Value {
    let mut rng = Rng::with_seed(seed);
    let mut value = instance(seed, size);
    value["schema"] = extended::SCHEMA.into();
    let gpus = value["gpus"].as_array_mut().unwrap();
    let pinned = rng.usize(..gpus.len());
    gpus[pinned]["pinned"] = json!(rng.bool());
    let most = gpus.len() as u64 - 1;
    for demand in value["demands"].as_array_mut().unwrap() {
        demand["lead"] = json!(rng.u8(..2));
    }
    let first = rng.u64(..=most.min(2));
    value["tenants"] = json!([
        {"id": "t0", "guaranteed_gpus": first},
        {"id": "t1", "guaranteed_gpus": rng.u64(..=(most - first).min(2)), "most_gpus": 2},
    ]);
    value
}

#[test]
fn guarantees_leads_and_pinned_gpus_are_kept_at_the_least_cost() {
    let mut dearer = 0;
    for seed in 0..16 {
        let value = guaranteed_and_beforehand(seed, Size::TINY);
        let (_, _, least) = cheapest_of_all(seed, &value);
        dearer += u32::from(is_dearer_than_free(seed, least));
    }
    assert!(dearer > 3, "what was to keep cost nothing: {dearer}");
    for seed in 0..8 {
        checked(seed, &guaranteed_and_beforehand(seed, Size::SMALL));
    }
}

#[test]
fn of_all_plans_that_keep_it_the_cheapest_is_found() {
    let mut dearer = 0;
    for seed in 0..12 {
        let value = more_to_keep(seed, Size::TINY);
        // Not every chance problem has a kind that it names.
        if read(&value).is_err() {
            continue;
        }
        let (_, _, least) = cheapest_of_all(seed, &value);
        dearer += u32::from(is_dearer_than_free(seed, least));
    }
    assert!(dearer > 3, "what was to keep cost nothing: {dearer}");
}

#[test]
fn larger_plans_keep_it_too_also_those_that_begin_with_one_that_does_not() {
    for seed in 0..8 {
        let (problem, plan) = checked_after_a_free_one(seed, &more_to_keep(seed, Size::SMALL));
        let unserved = plan.demands.iter().filter(|served| served.host.is_none());
        assert_eq!(reasons(&problem, &plan).len(), unserved.count());
    }
}

/// Two hosts with room for four and two, two GPUs of each of two types, and one demand of tenant t for slots 2 to 3.
fn one_demand() -> Value {
    let host = |id: &str, slots: u64| json!({"id": id, "slots": slots, "switch": "s0", "host_on_w": 350, "host_idle_w": 150});
    json!({"schema": extended::SCHEMA, "horizon_slots": 8, "slot_s": 3600, "hosts": [host("large", 4), host("small", 2)],
        "gpus": [gpu("g0", "T24", "s0", None), gpu("g1", "T24", "s0", None), gpu("g2", "T40", "s0", None),
            gpu("g3", "T40", "s0", None)],
        "demands": [{"id": "d", "tenant": "t", "start": 2, "end": 4, "gpus": 2, "min_mem_gb": 24, "weight": 1}],
        "costs": super::instances::costs()})
}

pub fn changed(changes: &[(&str, Value)]) -> Value {
    let mut value = one_demand();
    for (at, to) in changes {
        let (parent, key) = at.rsplit_once('/').unwrap();
        value.pointer_mut(parent).unwrap()[key] = to.clone();
    }
    value
}

#[test]
fn a_plan_that_does_not_keep_it_is_found_out() {
    let free = read(&one_demand()).unwrap();
    let plan = |host: &str, kind: &str| -> Assignment {
        let mut row = vec![0_u16; 8];
        row[2..4].fill(2);
        serde_json::from_value(
            json!({"demands": [{"demand": "d", "host": host, "gpus": {kind: 2}}],
            "attached": {host: {kind: row}}}),
        )
        .unwrap()
    };
    assert!(check(&free, &plan("large", "T24@s0")).is_ok());
    let broken = |changes: &[(&str, Value)]| {
        let problem = read(&changed(changes)).unwrap();
        check(&problem, &plan("large", "T24@s0")).unwrap_err()
    };
    let closed = broken(&[("/hosts/0/closed", json!([{"start": 3, "end": 4}]))]);
    assert!(matches!(closed, Broken::Closed { slot: 3, .. }), "{closed}");
    let elsewhere = broken(&[("/demands/0/hosts", json!(["small"]))]);
    assert!(matches!(elsewhere, Broken::Elsewhere { .. }), "{elsewhere}");
    let kind = broken(&[("/demands/0/types", json!(["T40"]))]);
    assert!(matches!(kind, Broken::Kind { .. }), "{kind}");
    let quota = broken(&[("/tenants", json!([{"id": "t", "most_gpus": 1}]))]);
    assert!(
        matches!(
            quota,
            Broken::Quota {
                slot: 2,
                used: 2,
                most: 1,
                ..
            }
        ),
        "{quota}"
    );
    // A slot before, in which the plan attaches nothing.
    let late = broken(&[("/demands/0/lead", json!(1))]);
    assert!(matches!(late, Broken::NotAttached { slot: 1, .. }), "{late}");
    let pinned = broken(&[("/gpus/0/pinned", json!(true))]);
    assert!(matches!(pinned, Broken::Pool { count: 1, .. }), "{pinned}");
    // Another tenant is guaranteed three of the four GPUs, and has a demand for as many.
    let mut value = one_demand();
    let other =
        json!({"id": "e", "tenant": "u", "start": 0, "end": 8, "gpus": 3, "min_mem_gb": 24, "weight": 1});
    value["demands"].as_array_mut().unwrap().push(other);
    value["tenants"] = json!([{"id": "u", "guaranteed_gpus": 3}]);
    let mut greedy = plan("large", "T24@s0");
    greedy
        .demands
        .push(serde_json::from_value(json!({"demand": "e", "host": null})).unwrap());
    let guarantee = check(&read(&value).unwrap(), &greedy).unwrap_err();
    assert!(
        matches!(
            guarantee,
            Broken::Guarantee {
                slot: 2,
                used: 2,
                kept: 3,
                count: 4
            }
        ),
        "{guarantee}"
    );
    // It wants none of them by then.
    value["demands"][1]["end"] = json!(2);
    assert!(check(&read(&value).unwrap(), &greedy).is_ok());
}

#[test]
fn what_is_in_the_way_is_said() {
    let closed = json!([{"start": 3, "end": 4}]);
    let cases = [
        (
            vec![
                ("/hosts/0/closed", closed.clone()),
                ("/hosts/1/closed", closed.clone()),
            ],
            "every host that it may run on with room for 2 GPUs is closed at some time in slots 2 to 3: large in slot 3, small in slot 3",
        ),
        (
            vec![
                ("/hosts/0/closed", closed),
                ("/demands/0/hosts", json!(["large"])),
            ],
            "is closed at some time in slots 2 to 3",
        ),
        (
            vec![
                ("/demands/0/gpus", json!(3)),
                ("/demands/0/hosts", json!(["small"])),
            ],
            "the largest that it may run on has room for 2",
        ),
        (
            vec![
                ("/demands/0/types", json!(["T24"])),
                ("/demands/0/min_mem_gb", json!(40)),
            ],
            "it may have GPUs of T24, and none of them has 40 GB or more",
        ),
        (
            vec![("/tenants", json!([{"id": "t", "most_gpus": 1}]))],
            "it wants 2 GPUs, and tenant t may use 1 at a time",
        ),
        (
            vec![
                ("/tenants", json!([{"id": "t", "most_gpus": 3}])),
                (
                    "/demands/1",
                    json!({"id": "e", "tenant": "t", "start": 0, "end": 8, "gpus": 2, "min_mem_gb": 24, "weight": 4}),
                ),
            ],
            "in slots 2 to 3 tenant t may use 1 more at most",
        ),
    ];
    for (changes, why) in cases {
        let mut value = one_demand();
        for (at, to) in &changes {
            match *at {
                "/demands/1" => value["demands"].as_array_mut().unwrap().push(to.clone()),
                at => {
                    let (parent, key) = at.rsplit_once('/').unwrap();
                    value.pointer_mut(parent).unwrap()[key] = to.clone();
                }
            }
        }
        let problem = read(&value).unwrap();
        let plan = planned(&problem, 1, 20, None);
        let [unserved] = &reasons(&problem, &plan.assignment)[..] else {
            panic!("{changes:?}: {plan:?}")
        };
        assert!(unserved.reason.contains(why), "{changes:?}: {unserved:?}");
        assert!(!unserved.help.is_empty());
    }
}

#[test]
fn what_is_kept_for_another_tenant_is_said() {
    let mut value = one_demand();
    // Never served, for there are not four of a kind: what its tenant is guaranteed is kept for it all the same.
    let other =
        json!({"id": "e", "tenant": "u", "start": 0, "end": 8, "gpus": 4, "min_mem_gb": 24, "weight": 1});
    value["demands"].as_array_mut().unwrap().push(other);
    value["tenants"] = json!([{"id": "u", "guaranteed_gpus": 3}]);
    let problem = read(&value).unwrap();
    let plan = planned(&problem, 1, 20, None);
    let reasons = reasons(&problem, &plan.assignment);
    let of_d = reasons.iter().find(|one| one.demand == "d").unwrap();
    let told = "at most 1 are left beside the guarantees: 3 for tenant u";
    assert!(of_d.reason.contains(told), "{of_d:?}");
    assert!(of_d.help.contains(&"1 more GPU".to_owned()), "{of_d:?}");
}

#[test]
fn what_can_t_be_right_is_refused_by_field() {
    let cases = [
        (
            (
                "/hosts/0/closed",
                json!([{"start": 0, "end": 3}, {"start": 2, "end": 4}]),
            ),
            "hosts[0] (large).closed[1]: slots 2 to 4, some of which are in closed[0]",
        ),
        (
            ("/hosts/1/closed", json!([{"start": 3, "end": 3}])),
            "hosts[1] (small).closed[0]: slots 3 to 3; a window starts at 0 or later, ends after that",
        ),
        (
            ("/hosts/1/closed", json!([{"start": 3, "end": 9}])),
            "hosts[1] (small).closed[0]: slots 3 to 9;",
        ),
        (
            ("/demands/0/hosts", json!([])),
            "demands[0] (d).hosts: none; name a host",
        ),
        (
            ("/demands/0/hosts", json!(["nowhere"])),
            "demands[0] (d).hosts: \"nowhere\"; name a host of",
        ),
        (
            ("/demands/0/types", json!(["T99"])),
            "demands[0] (d).types: \"T99\"; name a type of",
        ),
        (
            (
                "/tenants",
                json!([{"id": "t", "most_gpus": 1}, {"id": "t", "most_gpus": 2}]),
            ),
            "tenants[1] (t).id: \"t\" a second time",
        ),
        (
            ("/tenants", json!([{"id": "t", "most_gpus": 1_000_000_000}])),
            "tenants[0] (t).most_gpus: 1000000000; write 0 to",
        ),
        (
            (
                "/tenants",
                json!([{"id": "t", "guaranteed_gpus": 3}, {"id": "u", "guaranteed_gpus": 2}]),
            ),
            "tenants[1] (u).guaranteed_gpus: 2, with which tenants are guaranteed 5; there are 4 GPUs",
        ),
        (
            (
                "/tenants",
                json!([{"id": "t", "guaranteed_gpus": 2, "most_gpus": 1}]),
            ),
            "tenants[0] (t).guaranteed_gpus: 2; most_gpus allows it 1",
        ),
        (
            ("/demands/0/lead", json!(1_000_000_000)),
            "demands[0] (d).lead: 1000000000; its window ends at 4",
        ),
        (
            ("/tenants", json!([{"id": "t", "weight": 0}])),
            "tenants[0] (t).weight: 0; write 1 to",
        ),
        (
            ("/costs/unfair_per_gpu_slot", json!(-1)),
            "costs.unfair_per_gpu_slot: -1; write 0 to",
        ),
        (("/schema", json!("cps-1")), "schema: \"cps-1\";"),
    ];
    for (change, message) in cases {
        let said = read(&changed(std::slice::from_ref(&change)))
            .unwrap_err()
            .to_string();
        assert!(said.contains(message), "{change:?}: {said}");
    }
}
