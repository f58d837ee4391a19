//! What problems say of the fabric between hosts and GPUs: kept by every plan at the least cost, found out by the check, and
//! said where it is in the way.

use super::extended::{changed, more_to_keep, read};
use super::instances::{Size, instance};
use super::judge::{against_all, cheapest_of_all, checked_after_a_free_one, is_dearer_than_free};
use super::{every_plan, planned};
use fastrand::Rng;
use poolwright_planner::horizon::{Assignment, Broken, OffFabric, check, extended, reasons};
use serde_json::{Value, json};

/// A problem made by chance with hosts that don't reach all, hops, narrow uplinks, and demands for one switch.
fn within_reach(seed: u64, size: Size) -> Value {
    let mut value = instance(seed, size);
    add_fabric(&mut value, seed);
    value
}

fn add_fabric(value: &mut Value, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    value["schema"] = extended::SCHEMA.into();
    value["hops"] = json!([{"from": "s0", "to": "s1", "hops": rng.u8(..4)}]);
    value["costs"]["split_per_slot"] = json!(rng.u8(..3) * 20);
    if rng.bool() {
        value["switches"] = json!([{"id": "s1", "uplink_gpus": rng.u8(..4)}]);
    }
    let hosts = value["hosts"].as_array_mut().unwrap();
    let mut reach = Vec::new();
    for host in hosts.iter_mut() {
        let own = host["switch"].clone();
        reach.push(rng.u8(..3) == 0);
        if reach.last() == Some(&true) {
            host["reach"] = json!([own]);
        }
    }
    for gpu in value["gpus"].as_array_mut().unwrap() {
        let at = gpu["attached_to"]
            .as_str()
            .map(|host| host[1..].parse::<usize>().unwrap());
        if at.is_some_and(|at| reach[at] && gpu["switch"] != format!("s{}", at % 2)) {
            gpu["attached_to"] = Value::Null;
        }
    }
    for demand in value["demands"].as_array_mut().unwrap() {
        demand["one_switch"] = json!(rng.u8(..3) == 0);
    }
}

/// The same with BARs, all of one size or not, and hosts that can't map all that they have room for.
fn add_bars(value: &mut Value, seed: u64, same: bool) {
    let mut rng = Rng::with_seed(seed);
    value["schema"] = extended::SCHEMA.into();
    for host in value["hosts"].as_array_mut().unwrap() {
        if rng.bool() {
            host["bar_gib"] = json!(rng.u64(1..5) * 16);
        }
    }
    for gpu in value["gpus"].as_array_mut().unwrap() {
        gpu["bar_gib"] = json!(if same || gpu["type"] == "T24" { 16 } else { 32 });
    }
}

/// The same where GPUs stay attached for a while, at each host for its own.
fn add_holds(value: &mut Value, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    value["schema"] = extended::SCHEMA.into();
    value["hold"] = json!(rng.u8(2..4));
    // As cheap as this, nobody keeps a GPU for longer than it must be.
    value["costs"]["attach"] = json!(1);
    value["costs"]["detach"] = json!(1);
    value["hosts"][1]["hold"] = json!(rng.u8(0..5));
}

#[test]
fn of_all_plans_within_reach_the_cheapest_is_found() {
    let mut dearer = 0;
    for seed in 0..24 {
        let value = within_reach(seed, Size::TINY);
        let (_, _, least) = cheapest_of_all(seed, &value);
        dearer += u32::from(is_dearer_than_free(seed, least));
    }
    assert!(dearer > 8, "the fabric cost nothing: {dearer}");
}

#[test]
fn of_all_plans_whose_bars_are_mapped_the_cheapest_is_found() {
    let mut dearer = 0;
    for seed in 0..20 {
        let mut value = instance(seed, Size::TINY);
        add_bars(&mut value, seed, seed % 2 == 0);
        let (_, _, least) = cheapest_of_all(seed, &value);
        dearer += u32::from(is_dearer_than_free(seed, least));
    }
    assert!(dearer > 5, "windows cost nothing: {dearer}");
}

#[test]
fn of_all_plans_that_hold_what_is_attached_the_cheapest_is_found() {
    let (mut dearer, mut cheapest) = (0, 0);
    for seed in 0..24 {
        let mut value = instance(seed, Size::TINIEST);
        add_holds(&mut value, seed);
        let (_, plan, least) = against_all(seed, &value);
        cheapest += u32::from(plan.cost == least);
        (value["hold"], value["hosts"][1]["hold"]) = (json!(0), json!(0));
        dearer += u32::from(least > every_plan::least(&read(&value).unwrap()));
    }
    assert!(dearer > 8, "to hold cost nothing: {dearer}");
    // Where there is no room for all that is held, ways are found one after the other.
    assert!(cheapest >= 23, "{cheapest} of 24");
}

#[test]
fn larger_plans_keep_all_of_it_together_also_those_that_begin_with_one_that_does_not() {
    for seed in 0..12 {
        let mut value = more_to_keep(seed, Size::SMALL);
        add_fabric(&mut value, seed);
        add_bars(&mut value, seed, false);
        if seed % 2 == 0 {
            add_holds(&mut value, seed);
        }
        let (problem, plan) = checked_after_a_free_one(seed, &value);
        for unserved in reasons(&problem, &plan) {
            assert!(!unserved.help.is_empty(), "seed {seed}: {unserved:?}");
            assert!(
                !unserved.reason.contains("at least 0 more"),
                "seed {seed}: {unserved:?}"
            );
        }
    }
}

/// Two GPUs of each type behind s0, one more of T24 behind s1; the demand wants two or, changed, three.
fn two_switches(changes: &[(&str, Value)]) -> Value {
    let mut value = changed(&[]);
    let far = super::instances::gpu("g4", "T24", "s1", None);
    value["gpus"].as_array_mut().unwrap().push(far);
    for (at, to) in changes {
        let (parent, key) = at.rsplit_once('/').unwrap();
        value.pointer_mut(parent).unwrap()[key] = to.clone();
    }
    value
}

fn three_of_t24(changes: &[(&str, Value)]) -> Value {
    let mut all = vec![("/demands/0/gpus", json!(3))];
    all.extend_from_slice(changes);
    two_switches(&all)
}

#[test]
fn a_plan_that_the_fabric_does_not_carry_is_found_out() {
    let mut row = vec![0_u16; 8];
    row[2..4].fill(1);
    let two: Vec<u16> = row.iter().map(|count| count * 2).collect();
    let plan: Assignment = serde_json::from_value(json!({
        "demands": [{"demand": "d", "host": "large", "gpus": {"T24@s0": 2, "T24@s1": 1}}],
        "attached": {"large": {"T24@s0": two, "T24@s1": row}}}))
    .unwrap();
    let judged = |changes: &[(&str, Value)]| check(&read(&three_of_t24(changes)).unwrap(), &plan);
    let cost = judged(&[]).unwrap();
    let off = |changes: &[(&str, Value)]| match judged(changes).unwrap_err() {
        Broken::Fabric(off) => off,
        other => panic!("{other}"),
    };
    let unreached = off(&[("/hosts/0/reach", json!(["s0"]))]);
    assert!(
        matches!(unreached, OffFabric::Unreached { slot: 2, .. }),
        "{unreached}"
    );
    let uplink = off(&[("/switches", json!([{"id": "s0", "uplink_gpus": 0}]))]);
    assert!(
        matches!(
            uplink,
            OffFabric::Uplink {
                slot: 2,
                carried: 1,
                most: 0,
                ..
            }
        ),
        "{uplink}"
    );
    let bars: Vec<(String, Value)> = (0..5)
        .map(|gpu| (format!("/gpus/{gpu}/bar_gib"), json!(32)))
        .collect();
    let mut bars: Vec<(&str, Value)> = bars.iter().map(|(at, to)| (at.as_str(), to.clone())).collect();
    bars.push(("/hosts/0/bar_gib", json!(95.5)));
    let window = off(&bars);
    assert!(
        matches!(
            window,
            OffFabric::Window {
                slot: 2,
                mib: 98_304,
                most: 97_792,
                ..
            }
        ),
        "{window}"
    );
    let several = off(&[("/demands/0/one_switch", json!(true))]);
    assert!(
        matches!(several, OffFabric::SeveralSwitches { switches: 2, .. }),
        "{several}"
    );
    let gone = off(&[("/hosts/0/hold", json!(3))]);
    assert!(
        matches!(
            gone,
            OffFabric::NotHeld {
                slot: 4,
                since: 2,
                hold: 3,
                ..
            }
        ),
        "{gone}"
    );
    assert_eq!(
        judged(&[("/hold", json!(3)), ("/hosts/0/hold", json!(2))]),
        Ok(cost)
    );
    // Each of the two slots: two more hops of 2, and a second switch for 7.
    let far = judged(&[
        ("/hops", json!([{"from": "s1", "to": "s0", "hops": 3}])),
        ("/costs/split_per_slot", json!(7)),
    ]);
    assert_eq!(far.unwrap(), cost + 2 * (2 * 2000 + 7000));
}

#[test]
fn gpus_behind_fewer_switches_are_taken_where_others_cost_more() {
    let parts = |split: u64| {
        // One is attached at first behind each switch: without a price for it, both are left where they are.
        let value = two_switches(&[
            ("/gpus/0/attached_to", json!("large")),
            ("/gpus/4/attached_to", json!("large")),
            ("/demands/0/types", json!(["T24"])),
            ("/costs/split_per_slot", json!(split)),
        ]);
        let problem = read(&value).unwrap();
        let plan = planned(&problem, 1, 50, None);
        assert_eq!(check(&problem, &plan.assignment), Ok(plan.cost));
        plan.assignment.demands[0].gpus.len()
    };
    assert_eq!((parts(0), parts(100)), (2, 1));
}

#[test]
fn which_limit_of_the_fabric_is_in_the_way_is_said() {
    let only_s0 = json!(["s0"]);
    let cases = [
        (
            vec![("/hosts/0/reach", only_s0.clone()), ("/hosts/1/reach", only_s0)],
            "no host reaches more than 2 (large, of T24)",
        ),
        (
            vec![("/demands/0/one_switch", json!(true))],
            "behind none are more than 2 (T24 for large)",
        ),
        (
            vec![
                ("/hosts/0/bar_gib", json!(40)),
                ("/gpus/0/bar_gib", json!(16)),
                ("/gpus/1/bar_gib", json!(16)),
                ("/gpus/4/bar_gib", json!(16)),
            ],
            "no host maps BARs of more than 2 (large, of T24): those of a GPU are 16 GiB, and the window of large has \
40 GiB",
        ),
        (
            vec![("/switches", json!([{"id": "s1", "uplink_gpus": 0}]))],
            "uplinks carry no more than 2 to a host (large, of T24)",
        ),
        (
            vec![
                ("/switches", json!([{"id": "s1", "uplink_gpus": 1}])),
                (
                    "/demands/1",
                    json!({"id": "e", "start": 0, "end": 8, "gpus": 1, "min_mem_gb": 24, "weight": 9,
                    "hosts": ["small"], "types": ["T80"]}),
                ),
                ("/gpus/5", super::instances::gpu("g5", "T80", "s1", None)),
            ],
            "uplinks carry no more than 2 that are free in slots 2 to 3 to a host (large, of T24)",
        ),
    ];
    for (changes, why) in cases {
        let mut value = three_of_t24(&[]);
        for (at, to) in &changes {
            let (parent, key) = at.rsplit_once('/').unwrap();
            let parent = value.pointer_mut(parent).unwrap();
            match parent.as_array_mut() {
                Some(list) if list.len() == key.parse::<usize>().unwrap() => list.push(to.clone()),
                _ => parent[key] = to.clone(),
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
fn a_fabric_that_can_t_be_right_is_refused_by_field() {
    let cases = [
        (
            ("/hosts/0/reach", json!(["s9"])),
            "hosts[0] (large).reach: \"s9\"; name a switch of",
        ),
        (
            ("/hosts/0/reach", json!([])),
            "hosts[0] (large).reach: none; name a switch",
        ),
        (
            ("/hosts/0/bar_gib", json!(-1)),
            "hosts[0] (large).bar_gib: -1; write 0 to",
        ),
        (
            ("/gpus/0/bar_gib", json!(1e30)),
            "gpus[0] (g0).bar_gib: 1e30; write 0 to",
        ),
        (
            ("/gpus/1/bar_gib", json!(2)),
            "gpus[1] (g1).bar_gib: 2, but 0 at g0; GPUs of one type behind one switch",
        ),
        (
            ("/hops", json!([{"from": "s0", "to": "s0", "hops": 1}])),
            "hops[0].to: \"s0\", as from; from a switch to itself",
        ),
        (
            ("/hops", json!([{"from": "s0", "to": "s7", "hops": 1}])),
            "hops[0].to: \"s7\"; name a switch",
        ),
        (
            (
                "/hops",
                json!([{"from": "s0", "to": "s1", "hops": 1}, {"from": "s1", "to": "s0", "hops": 2}]),
            ),
            "hops[1].to: \"s1\" and \"s0\", as hops[0]; two switches are named once",
        ),
        (
            (
                "/hops",
                json!([{"from": "s0", "to": "s1", "hops": 1_000_000_000}]),
            ),
            "hops[0].hops: 1000000000; write 0 to 100",
        ),
        (
            ("/switches", json!([{"id": "s9"}])),
            "switches[0] (s9).id: \"s9\"; name a switch",
        ),
        (
            ("/switches", json!([{"id": "s0"}, {"id": "s0"}])),
            "switches[1] (s0).id: \"s0\", as switches[0];",
        ),
        (
            ("/switches", json!([{"id": "s0", "uplink_gpus": 1_000_000_000}])),
            "switches[0] (s0).uplink_gpus: 1000000000; write 0 to",
        ),
        (
            ("/costs/split_per_slot", json!(-7)),
            "costs.split_per_slot: -7; write 0 to",
        ),
    ];
    for (change, message) in cases {
        let said = read(&two_switches(std::slice::from_ref(&change)))
            .unwrap_err()
            .to_string();
        assert!(said.contains(message), "{change:?}: {said}");
    }
    let out_of_reach = two_switches(&[
        ("/hosts/0/reach", json!(["s0"])),
        ("/gpus/4/attached_to", json!("large")),
    ]);
    let said = read(&out_of_reach).unwrap_err().to_string();
    assert!(
        said.contains("gpus[4] (g4).attached_to: \"large\", which does not reach s1; name the switch"),
        "{said}"
    );
    let pinned = two_switches(&[
        ("/gpus/4/attached_to", json!("large")),
        ("/gpus/4/pinned", json!(true)),
        ("/gpus/4/bar_gib", json!(8)),
        ("/hosts/0/bar_gib", json!(4)),
    ]);
    let said = read(&pinned).unwrap_err().to_string();
    assert!(
        said.contains("gpus[4] (g4).bar_gib: 8, pinned at large; large has a window of 4 GiB"),
        "{said}"
    );
}

#[test]
fn what_stays_attached_and_leaves_no_room_is_said() {
    // Two GPUs of T24 stay at the only host for which there is room from slot 0 to 7; then one of T40 is wanted there.
    let mut value = two_switches(&[
        ("/hosts/0/slots", json!(2)),
        ("/hosts/1/slots", json!(0)),
        ("/hold", json!(8)),
        ("/demands/0/start", json!(0)),
        ("/demands/0/end", json!(1)),
        ("/demands/0/types", json!(["T24"])),
        ("/demands/0/weight", json!(9)),
    ]);
    let later = json!({"id": "e", "start": 3, "end": 4, "gpus": 1, "min_mem_gb": 40, "weight": 1});
    value["demands"].as_array_mut().unwrap().push(later);
    let problem = read(&value).unwrap();
    let plan = planned(&problem, 1, 50, None);
    assert_eq!(check(&problem, &plan.assignment), Ok(plan.cost));
    let [unserved] = &reasons(&problem, &plan.assignment)[..] else {
        panic!("{plan:?}")
    };
    assert!(
        unserved.reason.contains("what is attached stays for its hold"),
        "{unserved:?}"
    );
    assert!(unserved.help.contains(&"a shorter hold".to_owned()));
}
