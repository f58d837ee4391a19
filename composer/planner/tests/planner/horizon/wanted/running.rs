//! Demands that run when the horizon begins.

use super::super::instances::{Size, instance};
use super::*;
use fastrand::Rng;
use std::collections::BTreeMap;

/// A problem made by chance in which demands run on GPUs that are attached, and some of them may be ended.
pub fn with_running(seed: u64, size: Size) -> Value {
    let mut rng = Rng::with_seed(seed);
    let mut value = extended(instance(seed, size));
    let mut attached: BTreeMap<(String, String), u64> = BTreeMap::new();
    for gpu in value["gpus"].as_array().unwrap() {
        if let Some(host) = gpu["attached_to"].as_str() {
            let group = format!(
                "{}@{}",
                gpu["type"].as_str().unwrap(),
                gpu["switch"].as_str().unwrap()
            );
            *attached.entry((host.to_owned(), group)).or_default() += 1;
        }
    }
    let mut attached = attached.into_iter();
    for demand in value["demands"].as_array_mut().unwrap() {
        demand["priority"] = json!(rng.u32(..2));
        let Some(((host, group), count)) = attached.next() else {
            continue;
        };
        if rng.u8(..4) == 0 {
            continue;
        }
        let gpus = rng.u64(1..=count);
        (demand["start"], demand["gpus"], demand["min_mem_gb"]) = (json!(0), json!(gpus), json!(24));
        demand["running"] = json!({"host": host, "gpus": {group: gpus}});
        if rng.u8(..3) > 0 {
            demand["preemptible"] = json!({"notice": rng.u64(..3), "stop": rng.u64(..30)});
            demand["weight"] = json!([0.01, 1.0][usize::from(rng.bool())]);
        }
    }
    value
}

#[test]
fn what_runs_stays_where_it_is_or_is_ended_after_its_notice_at_the_least_cost() {
    let (mut stayed, mut ended) = (0, 0);
    for seed in 0..10 {
        let (problem, plan, _) = cheapest_of_all(seed, &with_running(seed, Size::TINY));
        for (demand, served) in problem.demands.iter().zip(&plan.demands) {
            stayed += u32::from(demand.runs.is_some() && served.host.is_some());
            ended += u32::from(demand.runs.is_some() && served.host.is_none());
        }
    }
    assert!(stayed > 5 && ended > 1, "{stayed} stayed, {ended} were ended");
    for seed in 0..6 {
        let value = with_running(seed, Size::SMALL);
        let before = checked(seed, &extended(instance(seed, Size::SMALL)));
        checked(seed, &value);
        let problem = read(&value).unwrap();
        let plan = planned(&problem, seed, 20, Some(&before));
        assert_eq!(check(&problem, &plan.assignment), Ok(plan.cost), "seed {seed}");
    }
}

/// Both GPUs of 40 GB are at `large`, where `d` runs on them; `e` comes at slot 4, wants them and goes first.
fn two(preemptible: &Value) -> Value {
    let runs = json!({"id": "d", "start": 0, "end": 8, "gpus": 2, "min_mem_gb": 40, "weight": 1,
        "running": {"host": "large", "gpus": {"T40@s0": 2}}, "preemptible": preemptible});
    let comes =
        json!({"id": "e", "start": 4, "end": 8, "gpus": 2, "min_mem_gb": 40, "weight": 1, "priority": 3});
    let mut value = small(json!([runs, comes]));
    for gpu in [2, 3] {
        value["gpus"][gpu]["attached_to"] = json!("large");
    }
    value
}

#[test]
fn a_demand_of_a_higher_priority_ends_what_may_be_ended_and_nothing_else() {
    let problem = read(&two(&Value::Null)).unwrap();
    let plan = planned(&problem, 1, 40, None).assignment;
    let hosts: Vec<Option<&str>> = plan.demands.iter().map(|served| served.host.as_deref()).collect();
    assert_eq!(hosts, [Some("large"), None]);
    let problem = read(&two(&json!({"notice": 2, "stop": 5}))).unwrap();
    let plan = planned(&problem, 1, 40, None);
    let key: Vec<_> = plan
        .assignment
        .demands
        .iter()
        .map(|served| (served.key(), served.host.is_some()))
        .collect();
    assert_eq!(
        key,
        [
            (("d", Some(1), None), true),
            (("d", Some(2), None), false),
            (("e", None, None), true)
        ]
    );
    let unserved = reasons(&problem, &plan.assignment);
    assert!(
        unserved[0].partly && unserved[0].reason.contains("it runs and is ended before slot 2"),
        "{unserved:?}"
    );
    // Six slots of two GPUs unmet, and the stop.
    assert_eq!(problem.demands[1].unmet, (6 * 2 * 500 + 5) * 1000);
}

#[test]
fn what_runs_and_may_be_ended_is_named_where_another_finds_no_place() {
    // Not worth the end of what runs, and of no priority that would go before it.
    let cheap = |preemptible: &Value| {
        let mut value = two(preemptible);
        (value["demands"][1]["priority"], value["demands"][1]["weight"]) = (json!(0), json!(0.1));
        why(&value)
    };
    let (reason, help) = cheap(&json!({"notice": 2, "stop": 5}));
    assert!(reason.contains("none of T40 is free"), "{reason}");
    let end = "d ended from slot 2 on, which may be (2 GPUs of T40@s0 at large): by a higher weight, or a priority above 0";
    assert!(help.contains(&end.to_owned()), "{help:?}");
    let (_, help) = cheap(&Value::Null);
    assert!(!help.iter().any(|help| help.contains("ended")), "{help:?}");
    // With a notice that ends after its window began, ending it would not help.
    let (_, help) = cheap(&json!({"notice": 5}));
    assert!(!help.iter().any(|help| help.contains("ended")), "{help:?}");
    // One of two that run would not do; both would.
    let mut value = two(&json!({"notice": 1}));
    let mut other = value["demands"][0].clone();
    other["id"] = json!("c");
    for demand in [&mut value["demands"][0], &mut other] {
        demand["gpus"] = json!(1);
        demand["running"]["gpus"]["T40@s0"] = json!(1);
    }
    value["demands"].as_array_mut().unwrap().push(other);
    (value["demands"][1]["priority"], value["demands"][1]["weight"]) = (json!(0), json!(0.1));
    let (_, help) = why(&value);
    let both =
        |help: &String| help.contains("d ended from slot 1") && help.contains(" and c ended from slot 1");
    assert!(help.iter().any(both), "{help:?}");
}

#[test]
fn what_is_moved_or_ended_all_the_same_is_found_out() {
    let problem = read(&two(&json!({"notice": 2}))).unwrap();
    let rest = |host: Value| json!({"demand": "d", "phase": 2, "host": host, "gpus": {}});
    let entries = |first: Value| json!([first, rest(Value::Null), {"demand": "e", "host": null}]);
    let ended = judged(
        &problem,
        entries(json!({"demand": "d", "phase": 1, "host": null})),
        &[],
    )
    .unwrap_err();
    assert_eq!(
        ended.to_string(),
        "demand d phase 1 runs and may not be ended, and is not served"
    );
    let moved = json!({"demand": "d", "phase": 1, "host": "large", "gpus": {"T24@s0": 2}});
    let moved = judged(&problem, entries(moved), &[]).unwrap_err();
    assert!(matches!(moved, Broken::Moved(_)), "{moved}");
}

#[test]
fn what_can_t_run_like_that_is_refused() {
    let on = |at: &str, to: Value| {
        let mut value = two(&Value::Null);
        let (parent, key) = at.rsplit_once('/').unwrap();
        value.pointer_mut(parent).unwrap()[key] = to;
        read(&value).unwrap_err().to_string()
    };
    let cases = [
        (
            "/demands/0/running/host",
            json!("nowhere"),
            "demands[0] (d).running.host: \"nowhere\";",
        ),
        (
            "/demands/0/running/gpus",
            json!({}),
            "demands[0] (d).running.gpus: GPUs of 0 groups;",
        ),
        (
            "/demands/0/running/gpus",
            json!({"T99@s0": 2}),
            "\"T99@s0\"; name GPUs",
        ),
        (
            "/demands/0/running/gpus",
            json!({"T40@s0": 1}),
            "1 of T40@s0; write as many as it wants",
        ),
        (
            "/demands/0/running/gpus",
            json!({"T24@s0": 2}),
            "of 0 that are attached to large others use 0",
        ),
        (
            "/demands/0/start",
            json!(1),
            "demands[0] (d).start: 1 and a lead of 0; what runs starts at slot 0",
        ),
        (
            "/demands/1/preemptible",
            json!({"notice": 1}),
            "demands[1] (e).preemptible: of what does not run;",
        ),
        (
            "/demands/0/preemptible",
            json!({"notice": 1, "stop": -1}),
            "demands[0] (d).preemptible.stop: -1;",
        ),
        (
            "/demands/0/parts",
            json!({"least": 2}),
            "demands[0] (d).running: beside parts or phases;",
        ),
        (
            "/hosts/0/closed",
            json!([{"start": 3, "end": 4}]),
            "demand d, running: every host that it may run on",
        ),
    ];
    for (at, to, message) in cases {
        let said = on(at, to);
        assert!(said.contains(message), "{at}: {said}");
    }
}
