//! Demands that can do with one of several sets of GPUs.

use super::super::instances::{Size, instance};
use super::*;
use fastrand::Rng;

/// A problem made by chance in which some demands can do with several sets, a few at a price.
fn with_options(seed: u64, size: Size) -> Value {
    let mut rng = Rng::with_seed(seed);
    let mut value = extended(instance(seed, size));
    for demand in value["demands"].as_array_mut().unwrap() {
        if rng.u8(..3) == 0 {
            continue;
        }
        let (gpus, memory) = (demand["gpus"].as_u64().unwrap(), demand["min_mem_gb"].clone());
        let penalty = [0, 0, 30, 200][rng.usize(..4)];
        let other = [1, gpus + 1, (gpus / 2).max(1)][rng.usize(..3)];
        let least = [24, 40][rng.usize(..2)];
        demand["options"] = json!([
            {"gpus": gpus, "min_mem_gb": memory},
            {"gpus": other, "min_mem_gb": least, "penalty": penalty},
        ]);
        demand
            .as_object_mut()
            .unwrap()
            .retain(|key, _| key != "gpus" && key != "min_mem_gb");
    }
    value["tenants"] = json!([{"id": "t0", "most_gpus": rng.u8(1..4), "guaranteed_gpus": 1}]);
    value
}

#[test]
fn of_several_sets_of_gpus_a_demand_gets_the_one_that_is_best_for_all() {
    let mut second = 0;
    for seed in 0..14 {
        let (problem, plan, _) = cheapest_of_all(seed, &with_options(seed, Size::TINY));
        let pairs = problem.demands.iter().zip(&plan.demands);
        second += pairs
            .filter(|(demand, served)| served.got().is_some_and(|got| got != u32::from(demand.gpus())))
            .count();
    }
    assert!(second > 3, "the second set was taken {second} times");
    for seed in 0..8 {
        checked(seed, &with_options(seed, Size::SMALL));
    }
}

#[test]
fn a_set_that_is_none_of_the_options_is_found_out_and_a_penalty_is_paid() {
    let options = json!([{"gpus": 2, "min_mem_gb": 40}, {"gpus": 3, "min_mem_gb": 24, "types": ["T24"], "penalty": 7},
        {"gpus": 1, "min_mem_gb": 0, "types": ["T24"], "penalty": 9}]);
    let problem = read(&small(json!([demand(&json!({"options": options}))]))).unwrap();
    let gets = |kind: &str, count: u16| {
        judged(
            &problem,
            json!([{"demand": "d", "host": "large", "gpus": {kind: count}}]),
            &[(kind, count)],
        )
    };
    // Attached 60, at work for two slots of 15, detached 20, and the host on for two of 20 after 100.
    assert_eq!(gets("T24@s0", 1), Ok((60 + 30 + 20 + 140 + 9) * 1000));
    assert!(gets("T40@s0", 2).is_ok());
    let none = gets("T24@s0", 2).unwrap_err();
    assert_eq!(
        none.to_string(),
        "demand d gets 2 T24@s0, which is none of the sets that it can do with"
    );
}

#[test]
fn why_no_option_can_be_had_is_said_of_each() {
    let never = json!([{"gpus": 1, "min_mem_gb": 80}, {"gpus": 9, "min_mem_gb": 24}]);
    let (reason, help) = why(&small(json!([demand(&json!({"options": never}))])));
    for part in [
        "none of its 2 options",
        "the largest have 40 GB",
        "the largest host has room for 4",
    ] {
        assert!(reason.contains(part), "{reason}");
    }
    assert!(help.iter().any(|help| help.contains("GPUs of 80 GB")), "{help:?}");
    // All of the first kind are taken for long; the second can never be had.
    let taken =
        json!({"id": "e", "tenant": "t", "start": 0, "end": 8, "gpus": 2, "min_mem_gb": 40, "weight": 9});
    let options = json!([{"gpus": 1, "min_mem_gb": 40}, {"gpus": 3, "min_mem_gb": 24, "types": ["T24"]}]);
    let (reason, help) = why(&small(json!([demand(&json!({"options": options})), taken])));
    assert!(reason.contains("none of T40 is free"), "{reason}");
    assert!(reason.contains("of T24 there are 2"), "{reason}");
    assert!(help.contains(&"1 more GPU of T24".to_owned()), "{help:?}");
}

#[test]
fn gpus_that_are_pinned_are_told_where_too_few_are_left() {
    let mut value = small(json!([demand(&json!({"gpus": 2, "min_mem_gb": 40}))]));
    for gpu in [2, 3] {
        value["gpus"][gpu]["pinned"] = json!(true);
    }
    let (reason, help) = why(&value);
    assert!(
        reason.contains("of T40 there are 0 beside 2 that are pinned"),
        "{reason}"
    );
    assert_eq!(
        help,
        [
            "2 more GPUs of T40",
            "2 of those that are pinned let go (pinned: false)"
        ]
    );
}

#[test]
fn options_that_can_t_be_right_are_refused_by_field() {
    let cases = [
        (
            json!({"options": []}),
            "demands[0] (d).options: none; write one set",
        ),
        (json!({}), "demands[0] (d).gpus: missing; write 1 to"),
        (json!({"gpus": 1}), "demands[0] (d).min_mem_gb: missing;"),
        (
            json!({"gpus": 1, "options": [{"gpus": 1, "min_mem_gb": 1}]}),
            "demands[0] (d).gpus: given beside options; write gpus in each option",
        ),
        (
            json!({"options": [{"gpus": 1, "min_mem_gb": 1}, {"gpus": 0, "min_mem_gb": 1}]}),
            "demands[0] (d).options[1].gpus: 0; write 1 to",
        ),
        (
            json!({"options": [{"gpus": 1_000_000_000, "min_mem_gb": 1}]}),
            "demands[0] (d).options[0].gpus: 1000000000;",
        ),
        (
            json!({"options": [{"gpus": 1, "min_mem_gb": 1, "types": ["T99"]}]}),
            "demands[0] (d).options[0].types: \"T99\"; name a type",
        ),
        (
            json!({"options": [{"gpus": 1, "min_mem_gb": 1, "penalty": -1}]}),
            "demands[0] (d).options[0].penalty: -1; write 0 to",
        ),
    ];
    for (more, message) in cases {
        let said = refused(&more);
        assert!(said.contains(message), "{more}: {said}");
    }
}
