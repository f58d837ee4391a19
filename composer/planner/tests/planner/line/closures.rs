//! Hosts that are closed for a time, as for maintenance: no job goes on into it there.

use crate::line::scene::*;
use jiff::SignedDuration;
use poolwright_planner::engine::observed::Because;

#[test]
fn a_job_begins_where_it_is_over_before_the_host_closes_or_once_it_is_open() {
    let scene = Scene::new().closes("h1", 3, Some(5)).runs("busy", 4, 99);
    let at = &scene.rack.held[0].host;
    assert_eq!(at.as_str(), "h1", "what runs there stays");
    let other = Scene::new().closes("h2", 3, Some(5)).runs("busy", 4, 99);
    let jobs = || vec![waits("long", 2, 4, 0), waits("short", 2, 3, 1)];
    assert_eq!(scene.starts(jobs()), ["long", "short"], "its host stays open");
    assert_eq!(other.starts(jobs()), ["short"]);
    let (because, kept) = other.because(jobs(), "long");
    let Because::NoRoom(unplaced) = because else {
        panic!("{because:?}")
    };
    assert!(unplaced.shortfall().contains("slot"), "{unplaced}");
    assert_eq!(
        kept,
        Some(hour(5)),
        "a place is kept for it from when its host is open again"
    );
    assert_eq!(other.begins(jobs()), ["long 5", "short 0"]);
}

/// It is stopped for windows, and not where a host closes.
#[test]
fn a_job_that_may_be_stopped_does_not_run_into_a_closure() {
    let scene = Scene::new().closes("h1", 3, Some(5)).closes("h2", 9, None);
    let patient = |hours: Option<i64>| {
        let mut job = waits("patient", 2, 1, 0);
        job.limit = Some(SignedDuration::ZERO);
        job.ends_within = hours.map(SignedDuration::from_hours);
        vec![job]
    };
    assert_eq!(scene.starts(patient(Some(2))), ["patient"], "it ends before both");
    assert_eq!(scene.starts(patient(Some(4))), [] as [&str; 0]);
    assert_eq!(scene.starts(patient(None)), [] as [&str; 0]);
    let scene = Scene::new().closes("h1", 3, Some(5));
    assert_eq!(scene.starts(patient(None)), ["patient"], "on the other host");
}

#[test]
fn a_shorter_one_that_is_alike_is_not_held_up_by_a_longer_one() {
    let scene = Scene::new().closes("h1", 3, None).closes("h2", 3, None);
    let jobs = || {
        vec![
            waits("long", 4, 4, 0),
            waits("longer", 4, 5, 1),
            waits("short", 4, 3, 2),
        ]
    };
    assert_eq!(scene.starts(jobs()), ["short"]);
    assert_eq!(scene.begins(jobs()), ["short 0"]);
    assert_eq!(
        scene.never(jobs()),
        ["long", "longer"],
        "nobody knows when they open"
    );
}
