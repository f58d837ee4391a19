//! Demands that span hosts, and demands in phases.

use super::super::instances::{Size, instance};
use super::*;
use fastrand::Rng;

/// Some demands of a problem made by chance span hosts, some are in two phases, and some are both.
fn with_bundles(seed: u64, size: Size, most: u64) -> Value {
    let mut rng = Rng::with_seed(seed);
    let mut value = extended(instance(seed, size));
    for demand in value["demands"].as_array_mut().unwrap() {
        let what = rng.u8(..4);
        if what == 0 {
            continue;
        }
        let length = demand["end"].as_i64().unwrap() - demand["start"].as_i64().unwrap();
        let mut parts = || {
            let least = rng.u64(1..=2);
            json!({"least": least, "most": rng.u64(least..=most.max(least)), "same_host_ok": rng.bool()})
        };
        let gpus = demand["gpus"].as_u64().unwrap().div_ceil(2);
        demand["gpus"] = json!(gpus);
        if what == 1 || length < 2 {
            demand["parts"] = parts();
            continue;
        }
        let first = rng.i64(1..length);
        let memory = demand["min_mem_gb"].clone();
        let mut phases = json!([{"slots": first, "gpus": rng.u64(1..=2), "min_mem_gb": 24},
            {"slots": length - first, "gpus": gpus, "min_mem_gb": memory}]);
        if what == 3 {
            phases[1]["parts"] = json!({"least": 1, "most": 2, "same_host_ok": rng.bool()});
        }
        demand["phases"] = phases;
        let beside = ["end", "gpus", "min_mem_gb"];
        demand
            .as_object_mut()
            .unwrap()
            .retain(|key, _| !beside.contains(&key.as_str()));
    }
    value
}

/// How many bundles are served as a whole, in part, and not.
fn served(problem: &Problem, plan: &Assignment) -> [usize; 3] {
    let mut counts = [0; 3];
    for bundle in &problem.bundles {
        let parts = bundle.demands().len();
        let there = plan.demands[bundle.demands()]
            .iter()
            .filter(|served| served.host.is_some())
            .count();
        counts[if there == parts {
            0
        } else if there > 0 {
            1
        } else {
            2
        }] += 1;
    }
    counts
}

#[test]
fn what_belongs_together_is_served_together_at_the_least_cost() {
    let mut counts = [0; 3];
    // All plans of 0 and 2 take long to count.
    for seed in [1].into_iter().chain(3..14) {
        let (problem, plan, _) = cheapest_of_all(seed, &with_bundles(seed, Size::TINY, 4));
        for (sum, count) in counts.iter_mut().zip(served(&problem, &plan)) {
            *sum += count;
        }
    }
    assert!(
        counts.iter().all(|count| *count > 1),
        "whole, in part, not: {counts:?}"
    );
}

#[test]
fn larger_plans_keep_it_together_too_also_those_that_begin_with_one_that_does_not() {
    for seed in 0..8 {
        let value = with_bundles(seed, Size::SMALL, 5);
        let mut before = checked(seed, &value);
        // A part of one, and a phase of another, are gone.
        for served in before
            .demands
            .iter_mut()
            .filter(|served| served.part == Some(1) || served.phase == Some(2))
        {
            served.host = None;
            served.gpus.clear();
        }
        let problem = read(&value).unwrap();
        for rounds in [0, 40] {
            let plan = planned(&problem, seed, rounds, Some(&before));
            assert_eq!(check(&problem, &plan.assignment), Ok(plan.cost), "seed {seed}");
        }
    }
}

fn gang(least: u64, most: u64, same_host_ok: bool) -> Value {
    json!({"gpus": 1, "min_mem_gb": 24, "parts": {"least": least, "most": most, "same_host_ok": same_host_ok}})
}

#[test]
fn a_bundle_that_is_torn_is_found_out() {
    let part = |part: u64, host: Option<&str>| match host {
        Some(host) => json!({"demand": "d", "part": part, "host": host, "gpus": {"T24@s0": 1}}),
        None => json!({"demand": "d", "part": part, "host": null}),
    };
    let large = Some("large");
    let judge = |gang: Value, hosts: [Option<&str>; 2], attached: u16| {
        let problem = read(&small(json!([demand(&gang)]))).unwrap();
        judged(
            &problem,
            json!([part(1, hosts[0]), part(2, hosts[1])]),
            &[("T24@s0", attached)],
        )
    };
    assert!(judge(gang(2, 2, true), [large, large], 2).is_ok());
    let together = judge(gang(2, 2, false), [large, large], 2).unwrap_err();
    assert!(matches!(together, Broken::Together { .. }), "{together}");
    let torn = judge(gang(2, 2, true), [large, None], 1).unwrap_err();
    let is = matches!(
        torn,
        Broken::Incomplete {
            phase: 1,
            got: 1,
            least: 2,
            ..
        }
    );
    assert!(is, "{torn}");
    // Elastic: one part is missing, and costs 500 for each of two slots. Attached 60, at work 30, detached 20, the host 140.
    assert_eq!(
        judge(gang(1, 2, false), [large, None], 1),
        Ok((1000 + 60 + 30 + 20 + 140) * 1000)
    );
    // Nothing of it.
    assert_eq!(judge(gang(2, 2, false), [None, None], 0), Ok(2_000_000));
    let phases = json!({"phases": [{"slots": 1, "gpus": 1, "min_mem_gb": 24}, {"slots": 1, "gpus": 1, "min_mem_gb": 24}]});
    let mut of_phases = demand(&phases);
    of_phases.as_object_mut().unwrap().remove("end");
    let problem = read(&small(json!([of_phases]))).unwrap();
    let first = json!([{"demand": "d", "phase": 1, "host": "large", "gpus": {"T24@s0": 1}},
        {"demand": "d", "phase": 2, "host": null}]);
    let torn = judged(&problem, first, &[("T24@s0", 1)]).unwrap_err();
    assert!(
        matches!(torn, Broken::Incomplete { phase: 2, got: 0, .. }),
        "{torn}"
    );
    let twice = judged(&problem, json!([{"demand": "d", "host": null}]), &[]).unwrap_err();
    assert!(matches!(twice, Broken::UnknownDemand(_)), "{twice}");
}

#[test]
fn gpus_that_stay_from_phase_to_phase_are_attached_once() {
    let mut of_phases = demand(&json!({"phases": [{"slots": 2, "gpus": 1, "min_mem_gb": 40},
        {"slots": 2, "gpus": 2, "min_mem_gb": 40}]}));
    of_phases.as_object_mut().unwrap().remove("end");
    let problem = read(&small(json!([of_phases]))).unwrap();
    let plan = planned(&problem, 1, 60, None).assignment;
    let rows: Vec<_> = plan
        .attached
        .values()
        .flat_map(|groups| groups.values())
        .collect();
    // The last stay until the end of the horizon: two detaches cost 40, two idle slots of two GPUs 20.
    assert_eq!(rows, [&vec![0, 0, 1, 1, 2, 2, 2, 2]], "{plan:?}");
}

#[test]
fn why_a_bundle_is_not_served_is_said_of_what_is_in_the_way() {
    let only = |more: Value| why(&small(json!([demand(&more)])));
    let (reason, help) = only(gang(3, 3, false));
    assert!(
        reason.contains("3 parts of 1 GPU or more, each on a host of its own"),
        "{reason}"
    );
    assert!(reason.contains("hosts have room for 2"), "{reason}");
    assert!(help.iter().any(|help| help.contains("same_host_ok")), "{help:?}");
    let (reason, help) = only(gang(5, 5, true));
    assert!(
        reason.contains("it wants 5 parts, and there are GPUs for 4"),
        "{reason}"
    );
    assert_eq!(help, ["GPUs for 1 more"]);
    // Another has three of the four GPUs meanwhile.
    let other = json!({"id": "e", "tenant": "t", "start": 0, "end": 8, "gpus": 1, "min_mem_gb": 24, "weight": 9,
        "parts": {"least": 3, "same_host_ok": true}});
    let (reason, help) = why(&small(json!([demand(&gang(2, 2, true)), other])));
    assert!(
        reason.contains("beside 1 of its 2 parts there is no place for the next"),
        "{reason}"
    );
    assert!(!help.is_empty());
    // Of an elastic one, what is missing.
    let problem = read(&small(json!([demand(&gang(1, 2, true)), other]))).unwrap();
    let [unserved] = &reasons(&problem, &planned(&problem, 1, 40, None).assignment)[..] else {
        panic!()
    };
    assert!(unserved.partly, "{unserved:?}");
    assert!(
        unserved.reason.contains("1 of its 2 parts are not served"),
        "{unserved:?}"
    );
}

#[test]
fn parts_and_phases_that_can_t_be_right_are_refused_by_field() {
    let one = |more: Value| json!({"gpus": 1, "min_mem_gb": 24, "parts": more});
    let phases = |more: Value| json!({"end": null, "phases": more});
    let cases = [
        (
            one(json!({"least": 0})),
            "demands[0] (d).parts.least: 0; write 1 to",
        ),
        (
            one(json!({"least": 1_000_000_000})),
            "demands[0] (d).parts.least: 1000000000;",
        ),
        (
            one(json!({"least": 3, "most": 2})),
            "demands[0] (d).parts.most: 2; parts.least is 3",
        ),
        (phases(json!([])), "demands[0] (d).phases: none;"),
        (
            phases(json!([{"slots": 0}])),
            "demands[0] (d).phases[0].slots: 0; it begins at 2: write 1 to 6",
        ),
        (
            phases(
                json!([{"slots": 6, "gpus": 1, "min_mem_gb": 0}, {"slots": 1, "gpus": 1, "min_mem_gb": 0}]),
            ),
            "demands[0] (d).phases[1].slots: 1; the horizon ends with the phase before, at 8",
        ),
        (
            phases(json!([{"slots": i64::MAX}])),
            "demands[0] (d).phases[0].slots: 9223372036854775807;",
        ),
        (
            phases(json!([{"slots": 1}])),
            "demands[0] (d).phases[0].gpus: missing;",
        ),
        (
            json!({"phases": [{"slots": 1, "gpus": 1, "min_mem_gb": 0}]}),
            "demands[0] (d).end: given beside phases; leave it out",
        ),
        (
            json!({"end": null, "gpus": 1, "phases": [{"slots": 1, "gpus": 1, "min_mem_gb": 0}]}),
            "demands[0] (d).gpus: given beside phases; write gpus in each phase",
        ),
        (
            json!({"end": null, "gpus": 1, "min_mem_gb": 0}),
            "demands[0] (d).end: missing;",
        ),
    ];
    for (more, message) in cases {
        let said = refused(&more);
        assert!(said.contains(message), "{more}: {said}");
    }
    let mut many = Vec::new();
    for index in 0..32 {
        let mut one = demand(&gang(32_767, 32_767, true));
        one["id"] = json!(format!("d{index}"));
        one["weight"] = json!(0.001);
        many.push(one);
    }
    let said = read(&small(json!(many))).unwrap_err().to_string();
    assert!(
        said.contains("with which all demands have more than 1000000 parts"),
        "{said}"
    );
}
