//! A plan when the time is over, be it before anything was placed: it keeps every rule, and says what nobody had the time
//! for. The clock is a stand-in that counts how often it is looked at.

use super::extended::read;
use super::instances::{Size, instance};
use super::problem;
use super::wanted::with_everything;
use poolwright_planner::horizon::{
    Assignment, Budget, Plan, Problem, Request, Unserved, check, reasons, solve,
};
use std::time::Duration;

/// Later than any limit, and than a first plan takes.
const LATE: Duration = Duration::from_secs(3600);

/// The plan of one whose time is over after so many looks at the clock.
fn cut_after(problem: &Problem, looks: usize, previous: Option<&Assignment>) -> Plan {
    let mut looked = 0;
    let mut elapsed = || {
        looked += 1;
        if looked > looks { LATE } else { Duration::ZERO }
    };
    let plan = solve(
        problem,
        Request {
            seed: 1,
            budget: Budget::Time {
                limit: Duration::from_millis(200),
                elapsed: &mut elapsed,
            },
            previous,
            news: &mut |_, _| {},
        },
    );
    assert_eq!(
        check(problem, &plan.assignment),
        Ok(plan.cost),
        "after {looks} looks"
    );
    assert!(plan.bound <= plan.cost, "after {looks} looks: {plan:?}");
    plan
}

fn served(plan: &Plan) -> usize {
    let demands = plan.assignment.demands.iter();
    demands.filter(|served| served.host.is_some()).count()
}

#[test]
fn a_plan_that_had_no_time_keeps_every_rule_and_says_what_was_not_tried() {
    let problem = problem(&instance(5, Size::SMALL));
    let none = cut_after(&problem, 0, None);
    assert_eq!((served(&none), none.rounds), (0, 0));
    let unserved = reasons(&problem, &none.assignment);
    assert_eq!(unserved.len(), problem.demands.len());
    let untried = |one: &&Unserved| one.reason.contains("the search ended before it was tried");
    let untried: Vec<_> = unserved.iter().filter(untried).collect();
    assert!(!untried.is_empty(), "{unserved:?}");
    assert!(
        untried
            .iter()
            .all(|one| one.help.contains(&"more time, or more rounds".to_owned()))
    );
}

#[test]
fn wherever_a_plan_is_cut_short_it_keeps_every_rule() {
    for seed in 0..3 {
        let plain = problem(&instance(seed, Size::SMALL));
        let more = read(&with_everything(seed, Size::SMALL)).unwrap();
        let before = served(&cut_after(&plain, 7, None));
        assert!((1..=7).contains(&before), "one is placed for each look: {before}");
        for looks in [0, 1, 3, 10, 30, 60, 100, 200] {
            let plan = cut_after(&plain, looks, None);
            assert!(plan.rounds <= 8 * looks as u64, "{plan:?}");
            cut_after(&more, looks, None);
        }
    }
}

#[test]
fn a_plan_that_goes_on_keeps_what_it_had_when_there_is_no_time() {
    let problem = problem(&instance(3, Size::SMALL));
    let before = cut_after(&problem, 200, None);
    let after = cut_after(&problem, 0, Some(&before.assignment));
    assert!(served(&before) > 0);
    assert_eq!(after.assignment.demands, before.assignment.demands);
}
