//! However calendars come: what the manager does is a plan of the problem that its calendar is, and the search that begins
//! with it ends with none that costs more.

use crate::calendar::week::{Week, closure, wish};
use crate::support::{Rack, need, set};
use poolwright_planner::calendar::Wish;
use poolwright_planner::horizon::{Broken, Budget, Request, check, solve};
use proptest::prelude::*;

const KINDS: [Option<&str>; 3] = [None, Some("red"), Some("blue")];

#[derive(Debug, Clone)]
struct Wanted {
    kind: usize,
    count: u32,
    spans: bool,
    /// In units of 5 minutes, one after the other.
    times: Vec<(i64, i64)>,
    phase: bool,
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let times = prop::collection::vec((0..30_i64, 1..40_i64), 1..4);
    (0..KINDS.len(), 1..6_u32, any::<bool>(), times, any::<bool>()).prop_map(
        |(kind, count, spans, times, phase)| Wanted {
            kind,
            count,
            spans,
            times,
            phase,
        },
    )
}

const LENGTH: i64 = 480;

fn wishes(all: &[Wanted]) -> Vec<Wish> {
    let mut wishes = Vec::new();
    for (number, wanted) in all.iter().enumerate() {
        let mut from = 0;
        for (place, (pause, takes)) in wanted.times.iter().enumerate() {
            let begins = from + 5 * pause * i64::from(!(wanted.phase && place > 0));
            from = (begins + 5 * takes).min(LENGTH);
            if begins >= LENGTH {
                break;
            }
            let set = set(KINDS[wanted.kind], wanted.count + place as u32 % 2, 20.0, 1);
            let mut one = wish(&format!("d{number}"), need(vec![set], wanted.spans), begins..from);
            one.phase = wanted.phase;
            wishes.push(one);
        }
    }
    wishes
}

fn rack(hosts: &[u32], gpus: (usize, usize)) -> Rack {
    let mut rack = Rack::new()
        .gpus("f/s1", "red", 80.0, gpus.0)
        .gpus("f/s2", "blue", 40.0, gpus.1)
        .gpus("f/s2", "red", 80.0, 1)
        .cable("f", "s1", "s2");
    for (number, slots) in hosts.iter().enumerate() {
        let at = ["f/s1", "f/s2"][number % 2];
        rack = rack.host(&format!("host-{number}"), at, *slots);
    }
    rack
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn what_the_manager_does_is_a_plan_of_it(
        all in prop::collection::vec(wanted(), 1..7),
        hosts in prop::collection::vec(1..7_u32, 1..4),
        gpus in (0..7_usize, 0..5_usize),
        runs in any::<bool>(),
        closed in prop::collection::vec((0..3_usize, 0..90_i64, 1..40_i64), 0..2),
        slot in prop::sample::select(vec![5_i64, 15, 60]),
    ) {
        let mut week = Week::of(rack(&hosts, gpus), LENGTH, wishes(&all));
        if runs {
            week = week.running();
        }
        week.slot = slot;
        week.closures = (closed.iter().take(1))
            .map(|(host, from, takes)| closure(&format!("host-{}", host % hosts.len()), 5 * from..5 * (from + takes)))
            .collect();
        let posed = week.posed();
        let own = match posed.judged {
            // What a closure finds there stays, and in the problem nothing runs at a closed host.
            Err(Broken::Closed { .. }) => {
                prop_assert!(!closed.is_empty());
                return Ok(());
            }
            judged => judged.unwrap(),
        };
        let plan = solve(&posed.problem, Request {
            seed: 1,
            budget: Budget::Rounds(5),
            previous: Some(&posed.own),
            news: &mut |_, _| {},
        });
        prop_assert_eq!(check(&posed.problem, &plan.assignment), Ok(plan.cost));
        prop_assert!(plan.bound <= plan.cost && plan.bound <= own, "{} {} {own}", plan.bound, plan.cost);
        // Running demands have their own priority class, for which the cost may rise; without them it does not.
        prop_assert!(plan.cost <= own || !posed.problem.classes.is_empty(), "{} {own}", plan.cost);
    }
}
