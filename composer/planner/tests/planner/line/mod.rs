//! The queue before a pool as it is seen: who starts now, and for what the others wait.

mod closures;
mod preempting;
mod retained;
mod scene;

use jiff::SignedDuration;
use poolwright_planner::Share;
use poolwright_planner::engine::observed::{Because, Cut, Verdict, WaitingJob};
use scene::*;
use std::collections::BTreeSet;

#[test]
fn the_first_that_does_not_fit_has_a_place_kept_and_nobody_delays_it() {
    let scene = Scene::new().runs("a", 4, 3);
    let jobs = || {
        vec![
            waits("wide", 4, 1, 1),
            waits("whole", 5, 1, 0),
            waits("short", 2, 3, 2),
            waits("long", 2, 4, 3),
        ]
    };
    // No host takes five, and a need that does not span hosts never fits; it holds nobody up.
    assert_eq!(scene.starts(jobs()), ["wide"]);
    let beside = vec![
        waits("first", 2, 9, 0),
        waits("wide", 4, 1, 1),
        waits("long", 2, 4, 3),
    ];
    assert_eq!(
        scene.starts(beside),
        ["first", "long"],
        "the wide one gets the other host"
    );
    let both = Scene::new().runs("a", 4, 3).runs("b", 2, 5);
    let waiting = || {
        vec![
            waits("wide", 4, 1, 0),
            waits("short", 2, 3, 1),
            waits("long", 2, 6, 2),
        ]
    };
    assert_eq!(both.starts(waiting()), ["short"], "of the two that fit beside b");
    let (because, expected) = both.because(waiting(), "wide");
    assert!(matches!(because, Because::NoRoom(_)), "{because:?}");
    assert_eq!(expected, Some(hour(3)));
}

#[test]
fn what_calendars_will_want_is_left_to_them() {
    let scene = Scene::new()
        .wants(0, &[])
        .wants(4, &[("night", 8)])
        .wants(12, &[]);
    let jobs = || vec![waits("long", 4, 5, 0), waits("short", 4, 4, 1)];
    // Eight on two hosts is a need that spans them.
    let mut scene = scene;
    scene.ahead[1].wanted[0].need.spannable = true;
    assert_eq!(scene.starts(jobs()), ["short"]);
    let (because, _) = scene.because(jobs(), "long");
    assert!(
        matches!(&because, Because::Wanted { label, at } if label == "hour 4" && *at == hour(4)),
        "{because:?}"
    );
    let mut patient = jobs();
    patient[0].limit = Some(SignedDuration::ZERO);
    assert_eq!(scene.starts(patient), ["long", "short"]);
    // Half of it is enough for the night: the long one may have the other.
    scene.ahead[1].wanted[0] = demand("night", 4);
    assert_eq!(scene.starts(jobs()), ["long", "short"]);
}

#[test]
fn of_those_that_may_be_stopped_only_what_must_goes() {
    let scene = Scene::new()
        .runs("busy", 2, 99)
        .runs("patient-1", 2, 99)
        .runs("patient-2", 2, 99);
    let mut scene = scene.wants(0, &[]).wants(4, &[("night", 4)]);
    let stops = |scene: &Scene| -> Vec<String> {
        scene
            .outlook(vec![])
            .stops
            .iter()
            .map(|stop| format!("{} {}", stop.demand, stop.at))
            .collect()
    };
    // Two GPUs are free on one host, and four are wanted on one.
    assert_eq!(
        stops(&scene),
        ["patient-2 1970-01-01T04:00:00Z"],
        "the other host has one that stays"
    );
    scene.ahead[1].wanted[0] = demand("night", 2);
    assert_eq!(stops(&scene), [] as [&str; 0], "there is room");
    scene.ahead[1].wanted[0] = demand("night", 9);
    assert_eq!(stops(&scene), [] as [&str; 0], "it would be in vain");
}

/// A job that waits for its limit's sake holds no idle GPUs: short ones pass it.
#[test]
fn a_job_that_may_run_into_a_window_has_no_place_before_it() {
    let scene = Scene::new()
        .runs("a", 4, 3)
        .wants(0, &[])
        .wants(4, &[("night", 8)])
        .wants(12, &[]);
    let mut scene = scene;
    scene.ahead[1].wanted[0].need.spannable = true;
    let mut endless = waits("endless", 4, 1, 0);
    (endless.limit, endless.ends_within) = (None, None);
    let jobs = || vec![endless.clone(), waits("short", 4, 2, 1)];
    assert_eq!(scene.starts(jobs()), ["short"]);
    let (because, reserved) = scene.because(jobs(), "endless");
    assert!(
        matches!(&because, Because::Wanted { at, .. } if *at == hour(4)),
        "{because:?}"
    );
    assert_eq!(reserved, Some(hour(12)));
}

/// What is wanted to the end of all that is known makes room for no job.
#[test]
fn no_place_is_reserved_at_the_end_of_time() {
    let mut scene = Scene::new().runs("chat", 4, 9).wants(0, &[("chat", 4)]);
    scene.running.clear();
    let jobs = || {
        vec![
            waits("wide", 5, 1, 0),
            spanning(waits("next", 8, 1, 1)),
            waits("job", 4, 1, 2),
        ]
    };
    assert_eq!(scene.starts(jobs()), ["job"]);
    assert_eq!(scene.never(jobs()), ["next", "wide"]);
    assert_eq!(scene.because(jobs(), "next").1, None);
}

/// GPUs for which others stop are not lent to a job that comes after.
#[test]
fn a_later_job_does_not_take_what_a_guarantee_gets_by_a_stop() {
    let share = Share {
        guaranteed: 4,
        ..Share::default()
    };
    let scene = Scene::new()
        .runs("busy", 4, 99)
        .runs("patient", 2, 99)
        .guarantees("lab", share);
    let jobs = || vec![of("lab", waits("ours", 4, 1, 0)), waits("theirs", 2, 1, 1)];
    let outlook = scene.outlook(jobs());
    let stops: Vec<&str> = outlook.stops.iter().map(|stop| stop.demand.as_str()).collect();
    assert_eq!((stops, scene.starts(jobs())), (vec!["patient"], vec![]));
}

/// Of two alternatives the one within what its tenant may hold.
#[test]
fn a_job_starts_on_no_more_than_its_tenant_may_hold() {
    let few = Share {
        most: Some(3),
        ..Share::default()
    };
    let scene = Scene::new().guarantees("lab", few);
    let mut job = of("lab", waits("job", 4, 1, 0));
    let two = demand("two", 2).need.alternatives;
    job.demand.need.alternatives.extend(two);
    let Verdict::Starts(chosen) = scene.outlook(vec![job]).places.remove(0).verdict else {
        panic!("it waits");
    };
    assert_eq!(chosen.gpus.len(), 2);
}

#[test]
fn the_guaranteed_go_first_and_others_no_further_than_they_may() {
    let lab = Share {
        guaranteed: 4,
        most: Some(6),
        weight: 1,
    };
    let scene = Scene::new().guarantees("lab", lab);
    let jobs = || {
        vec![
            waits("early", 4, 9, 0),
            waits("next", 4, 9, 1),
            of("lab", waits("ours", 4, 1, 9)),
        ]
    };
    assert_eq!(scene.starts(jobs()), ["ours", "early"]);
    let more = vec![
        of("lab", waits("ours", 4, 1, 0)),
        of("lab", waits("more", 4, 1, 1)),
    ];
    let (because, _) = scene.because(more, "more");
    assert!(
        matches!(because, Because::Share { holds: 4, most: 6 }),
        "{because:?}"
    );
}

#[test]
fn tenants_come_near_their_shares() {
    let scene = Scene::new().runs("a", 2, 9);
    // The first tenant holds two of two, with two that want something.
    let jobs = || vec![waits("mine", 4, 1, 0), of("two", waits("theirs", 4, 1, 1))];
    assert_eq!(scene.starts(jobs()), ["theirs"], "put back by two hours");
    let heavy = Share {
        weight: 1000,
        ..Share::default()
    };
    let scene = Scene::new().runs("a", 2, 9).guarantees("one", heavy);
    assert_eq!(
        scene.starts(jobs()),
        ["mine"],
        "hardly anything is the other's share"
    );
}

/// Whatever comes: each job has one place, what starts fits together, and the same asked twice is answered the same.
#[test]
fn all_that_starts_fits_beside_what_runs() {
    let mut chance = fastrand::Rng::with_seed(7);
    let mut next = |below: u64| chance.u64(..below);
    for round in 0..60 {
        let mut scene = Scene::new();
        let mut free = 8;
        for n in 0..next(3) {
            let gpus = 1 + next(2) as u32;
            free -= gpus;
            scene = scene.runs(&format!("runs-{n}"), gpus, 1 + next(9) as i64);
        }
        if next(2) == 0 {
            scene = scene
                .wants(0, &[])
                .wants(1 + next(6) as i64, &[("night", 1 + next(4) as u32)]);
        }
        let jobs: Vec<WaitingJob> = (0..next(12))
            .map(|n| {
                let tenant = ["one", "two", "three"][next(3) as usize];
                let job = waits(
                    &format!("job-{n}"),
                    1 + next(5) as u32,
                    1 + next(9) as i64,
                    next(5) as i64,
                );
                of(tenant, job)
            })
            .collect();
        let outlook = scene.outlook(jobs.clone());
        assert_eq!(outlook.places.len(), jobs.len(), "round {round}");
        let names: BTreeSet<_> = outlook.places.iter().map(|place| &place.demand).collect();
        assert_eq!(names.len(), jobs.len());
        let started = scene.starts(jobs.clone());
        let gpus: u32 = jobs
            .iter()
            .filter(|job| started.iter().any(|name| name == job.demand.id.as_str()))
            .map(|job| job.demand.need.alternatives[0].count)
            .sum();
        assert!(gpus <= free, "round {round}: {gpus} of {free}");
        assert_eq!(started, scene.starts(jobs));
    }
}

#[test]
fn when_each_begins_follows_from_those_before_it_and_from_what_is_kept() {
    let line = || {
        vec![
            waits("a", 4, 2, 0),
            waits("b", 4, 3, 1),
            waits("c", 4, 1, 2),
            waits("d", 4, 1, 3),
        ]
    };
    assert_eq!(
        Scene::new().begins(line()),
        ["a 0", "b 0", "c 2", "d 3"],
        "two at a time"
    );
    // Eight that span both hosts have their place kept from the third hour on.
    let mut wide = waits("wide", 8, 1, 0);
    wide.demand.need.spannable = true;
    let behind = vec![wide, waits("long", 2, 9, 1), waits("short", 2, 3, 2)];
    let scene = Scene::new().runs("runs", 4, 3);
    assert_eq!(scene.begins(behind), ["long 4", "short 0", "wide 3"]);
    // What can't begin is named by no hour, and told apart.
    let vast = || vec![waits("vast", 5, 1, 0), waits("small", 1, 1, 1)];
    assert_eq!(scene.begins(vast()), ["small 0"]);
    assert_eq!(scene.never(vast()), ["vast"]);
}

/// Never is said only of what was looked for to the end.
#[test]
fn where_the_search_was_cut_short_that_is_said_and_not_that_it_never_begins() {
    let vast = || vec![waits("vast", 5, 1, 0)];
    let mut scene = Scene::new().wants(0, &[]).wants(4, &[("night", 4)]);
    assert_eq!(scene.never(vast()), ["vast"]);
    scene.ahead_until = Some(hour(4));
    let expected = scene.expected(vast());
    assert_eq!((expected.never.len(), expected.begins.len()), (0, 0));
    let cut: Vec<Cut> = expected.cut.into_values().collect();
    assert_eq!(cut, [Cut::Calendars(hour(4))]);

    // One at a time, for more moments than one forecast looks at.
    let long: Vec<WaitingJob> = (0..1_100)
        .map(|at| spanning(waits(&format!("job-{at:04}"), 8, 1, at)))
        .collect();
    let expected = Scene::new().expected(long);
    let many = expected.cut.values().filter(|cut| **cut == Cut::Many).count();
    assert_eq!(
        (many, expected.begins.len(), expected.never.len()),
        (99, 1_001, 0)
    );
}

#[test]
fn what_a_client_has_reserved_is_nobody_elses_until_that_is_over() {
    let wide = || vec![spanning(waits("wide", 8, 2, 0)), waits("narrow", 4, 2, 1)];
    let scene = Scene::new().runs("runs", 4, 1).reserves(7, 3);
    assert_eq!(scene.begins(wide()), ["narrow 1", "wide 3"]);
    // For the wide one a place is kept from when the reservation is over.
    let (_, kept) = scene.because(wide(), "wide");
    assert_eq!(kept, Some(hour(3)));
}

#[test]
fn calendars_stops_and_tenants_are_seen_beforehand() {
    let evening = Scene::new()
        .wants(0, &[])
        .wants(4, &[("night", 4), ("other", 4)])
        .wants(12, &[]);
    let jobs = vec![
        waits("long", 4, 5, 0),
        waits("short", 4, 4, 1),
        waits("next", 4, 1, 2),
    ];
    assert_eq!(evening.begins(jobs), ["long 12", "next 0", "short 0"]);
    let stopped = Scene::new()
        .runs("busy", 4, 99)
        .runs("patient", 4, 99)
        .guarantees(
            "lab",
            Share {
                guaranteed: 4,
                ..Share::default()
            },
        );
    let ours = of("lab", waits("ours", 4, 1, 0));
    assert_eq!(
        stopped.begins(vec![ours, waits("theirs", 4, 1, 1)]),
        ["ours 0", "theirs 1"]
    );
    let few = Share {
        most: Some(4),
        ..Share::default()
    };
    let lab = |id, turn| of("lab", waits(id, 4, 2, turn));
    let limited = Scene::new().guarantees("lab", few);
    assert_eq!(
        limited.begins(vec![lab("one", 0), lab("two", 1)]),
        ["one 0", "two 2"]
    );
}

/// Of two jobs that want the same each is told for itself why it waits.
#[test]
fn a_job_that_waits_is_not_told_the_name_of_another() {
    let scene = Scene::new().runs("a", 4, 3).runs("b", 4, 5);
    for id in ["first", "second"] {
        let (because, _) = scene.because(vec![waits("first", 4, 1, 0), waits("second", 4, 1, 1)], id);
        let Because::NoRoom(unplaced) = because else {
            panic!("{because:?}")
        };
        assert_eq!(unplaced.demand.as_str(), id);
    }
}
