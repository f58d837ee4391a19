//! The simulation itself: it repeats, it finds what it should, and a few seeds of it hold.

use clap::ValueEnum;
use poolwright_tests::torture::invariants::Invariant;
use poolwright_tests::torture::plants::Plant;
use poolwright_tests::torture::{Campaign, Report, run};

fn campaign(seed: u64, seeds: u64) -> Campaign {
    Campaign {
        seed,
        operations: 0,
        seeds,
        jobs: 2,
        plant: None,
        first: false,
        loud: false,
    }
}

fn held(report: &Report) {
    assert!(report.violations == 0, "{:#?}", report.failures);
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_seed_another() {
    let hash = |seed, jobs| {
        let report = run(
            &Campaign {
                jobs,
                ..campaign(seed, 4)
            },
            |_| (),
        );
        held(&report);
        report.trace_hash
    };
    let first = hash(7, 1);
    assert_eq!(first, hash(7, 2), "whatever runs at the same time");
    assert_ne!(first, hash(8, 2));
}

#[test]
fn some_seeds_do_what_they_are_for() {
    let report = run(&campaign(1000, 16), |_| ());
    held(&report);
    assert!(
        report.operations > 60 && report.crashes > 8 && report.faults > 20,
        "{report:?}"
    );
    for invariant in Invariant::ALL {
        assert!(report.invariants[&invariant] > 0, "{invariant} is never checked");
    }
}

#[test]
fn each_invariant_has_a_planted_bug_that_breaks_it_and_is_found() {
    for invariant in Invariant::ALL {
        let breaks = |plant: &&Plant| plant.breaks() == invariant;
        assert!(
            Plant::value_variants().iter().any(|plant| breaks(&plant)),
            "no bug breaks {invariant}"
        );
    }
    for &plant in Plant::value_variants() {
        let planted = Campaign {
            plant: Some(plant),
            first: true,
            ..campaign(1, 40)
        };
        let report = run(&planted, |_| ());
        let found = report.violated.contains_key(&plant.breaks());
        assert!(found, "{plant}: {:?} in {} seeds", report.violated, report.seeds);
        assert!(report.failures[0].replay.contains(&format!("--plant {plant}")));
        assert!(!report.failures[0].trace.is_empty());
    }
}
