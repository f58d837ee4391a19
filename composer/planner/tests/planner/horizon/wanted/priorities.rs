//! Demands of several priorities.

use super::super::every_plan;
use super::super::instances::{Size, instance};
use super::*;
use fastrand::Rng;

fn with_priorities(seed: u64, size: Size, most: u32) -> Value {
    let mut rng = Rng::with_seed(seed);
    let mut value = extended(instance(seed, size));
    for demand in value["demands"].as_array_mut().unwrap() {
        demand["priority"] = json!(rng.u32(..=most));
        // Worth nothing by itself, now and then.
        if rng.bool() {
            demand["weight"] = json!(0.01);
        }
        if rng.u8(..4) == 0 {
            demand["parts"] = json!({"least": 1, "most": 2, "same_host_ok": rng.bool()});
            demand["gpus"] = json!(1);
        }
    }
    value["tenants"] = json!([{"id": "t0", "most_gpus": rng.u8(1..4), "guaranteed_gpus": 1}]);
    value
}

/// What is unmet of each priority above 0, the highest first.
fn unmet(problem: &Problem, plan: &Assignment) -> Vec<i64> {
    let of = |priority: &u32| {
        let pairs = problem.demands.iter().zip(&plan.demands);
        let unserved = pairs.filter(|(demand, served)| demand.priority == *priority && served.host.is_none());
        unserved.map(|(demand, _)| demand.unmet).sum()
    };
    problem.classes.iter().map(of).collect()
}

#[test]
fn higher_priorities_go_first_and_then_the_cost_decides() {
    let mut dearer = 0;
    for seed in 0..10 {
        let value = with_priorities(seed, Size::TINY, 2);
        let (problem, _, least) = cheapest_of_all(seed, &value);
        let mut without = problem.clone();
        without.classes.clear();
        without.demands.iter_mut().for_each(|demand| demand.priority = 0);
        dearer += u32::from(least > every_plan::least(&without));
    }
    assert!(dearer > 3, "priorities cost something {dearer} times");
}

#[test]
fn what_is_promised_of_priorities_is_kept_however_short_the_search() {
    for seed in 0..8 {
        let value = with_priorities(seed, Size::SMALL, 3);
        let problem = read(&value).unwrap();
        let mut last = None;
        for rounds in [0, 5, 80] {
            let plan = planned(&problem, seed, rounds, None);
            assert_eq!(
                check(&problem, &plan.assignment),
                Ok(plan.cost),
                "seed {seed}, {rounds} rounds"
            );
            let unmet = unmet(&problem, &plan.assignment);
            if rounds == 5 {
                last = Some(unmet);
            } else if let Some(last) = &last {
                assert!(unmet <= *last, "seed {seed}: {unmet:?} after {last:?}");
            }
        }
    }
}

/// One GPU that both can have: `low` is worth far more than `high`.
fn two(priority: u32) -> Value {
    let demand = |id: &str, priority: u32, weight: f64| {
        json!({"id": id, "start": 2, "end": 4, "gpus": 2, "min_mem_gb": 40,
        "weight": weight, "priority": priority})
    };
    small(json!([demand("low", 1, 1000.0), demand("high", priority, 0.001)]))
}

#[test]
fn a_demand_that_was_passed_over_for_a_lower_one_is_found_out() {
    let entries =
        json!([{"demand": "low", "host": "large", "gpus": {"T40@s0": 2}}, {"demand": "high", "host": null}]);
    let judge = |priority| judged(&read(&two(priority)).unwrap(), entries.clone(), &[("T40@s0", 2)]);
    assert!(judge(1).is_ok(), "of one priority, either may have them");
    let passed = judge(2).unwrap_err();
    assert!(matches!(passed, Broken::Passed { priority: 2, .. }), "{passed}");
    let plan = planned(&read(&two(2)).unwrap(), 1, 20, None).assignment;
    let hosts: Vec<bool> = plan.demands.iter().map(|served| served.host.is_some()).collect();
    assert_eq!(hosts, [false, true]);
    let (_, help) = why(&two(2));
    assert!(help.contains(&"a higher priority".to_owned()), "{help:?}");
}

#[test]
fn priorities_that_can_t_be_right_are_refused() {
    let said = refused(&json!({"gpus": 1, "min_mem_gb": 0, "priority": 1001}));
    assert!(
        said.contains("demands[0] (d).priority: 1001; write 0 to 1000"),
        "{said}"
    );
}
