//! What is expected of every plan that is found, whatever the problem says.

use super::extended::read;
use super::instances::{Size, instance};
use super::{every_plan, planned, problem};
use poolwright_planner::horizon::{Assignment, Plan, Problem, Unserved, check, reasons};
use serde_json::Value;

/// The plan that is found passes the check at what it costs; what the cheapest of all plans costs is not below its bound.
pub fn against_all(seed: u64, value: &Value) -> (Problem, Plan, i64) {
    let problem = read(value).unwrap_or_else(|error| panic!("seed {seed}: {error}: {value}"));
    let least = every_plan::least(&problem);
    let plan = planned(&problem, seed, 400, None);
    assert_eq!(
        check(&problem, &plan.assignment),
        Ok(plan.cost),
        "seed {seed}: {value}"
    );
    assert!(plan.bound <= least, "seed {seed}: {} above {least}", plan.bound);
    assert!(least <= plan.cost, "seed {seed}: {} below {least}", plan.cost);
    (problem, plan, least)
}

/// The same, and it costs as little.
pub fn cheapest_of_all(seed: u64, value: &Value) -> (Problem, Assignment, i64) {
    let (problem, plan, least) = against_all(seed, value);
    assert_eq!(plan.cost, least, "seed {seed}: {value}");
    (problem, plan.assignment, least)
}

/// A plan of a larger problem passes the check, and says something of everything that is not served.
pub fn checked(seed: u64, value: &Value) -> Assignment {
    let problem = read(value).unwrap_or_else(|error| panic!("seed {seed}: {error}: {value}"));
    let plan = planned(&problem, seed, 60, None);
    assert_eq!(
        check(&problem, &plan.assignment),
        Ok(plan.cost),
        "seed {seed}: {value}"
    );
    assert!(plan.bound <= plan.cost, "seed {seed}");
    let unserved = reasons(&problem, &plan.assignment);
    let said = |one: &Unserved| !one.reason.is_empty() && !one.help.is_empty();
    assert!(unserved.iter().all(said), "{unserved:?}");
    plan.assignment
}

/// Whether so much is more than the problem of the seed costs when nothing is said beyond `cps-1`.
pub fn is_dearer_than_free(seed: u64, least: i64) -> bool {
    least > planned(&problem(&instance(seed, Size::TINY)), seed, 400, None).cost
}

/// A plan for a problem begins with one that knows nothing of what the problem says beyond `cps-1`, and passes the check.
pub fn checked_after_a_free_one(seed: u64, value: &Value) -> (Problem, Assignment) {
    let problem_said = read(value).unwrap_or_else(|error| panic!("seed {seed}: {error}: {value}"));
    let before = planned(&problem(&instance(seed, Size::SMALL)), seed, 50, None).assignment;
    let plan = planned(&problem_said, seed, 60, Some(&before));
    assert_eq!(
        check(&problem_said, &plan.assignment),
        Ok(plan.cost),
        "seed {seed}"
    );
    assert!(plan.bound <= plan.cost, "seed {seed}");
    (problem_said, plan.assignment)
}
