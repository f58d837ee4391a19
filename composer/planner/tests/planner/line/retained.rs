//! GPUs that stay attached for a tenant, and the jobs that take them up.

use crate::line::scene::*;
use poolwright_planner::Kept;
use poolwright_planner::engine::observed::{Because, Verdict};

/// Four GPUs that stay attached for the tenant of all jobs that name no other.
fn four_kept() -> Scene {
    let mut scene = Scene::new().runs("gone", 4, 1);
    scene.running.clear();
    let kept = Kept {
        since: hour(0),
        by: hour(1),
        part_of: None,
    };
    for composition in &mut scene.rack.held {
        (composition.demand, composition.kept) = (None, Some(kept.clone()));
    }
    scene
}

#[test]
fn what_is_kept_is_not_taken_up_before_somebody_whose_room_is_being_made() {
    let mut scene = four_kept().runs("going", 4, 1);
    scene.running.clear();
    // All eight: four are kept, and the others are just being detached.
    let wide = of("two", spanning(waits("wide", 8, 1, 0)));
    let jobs = || vec![wide.clone(), waits("job", 4, 1, 1)];
    assert_eq!(
        scene.starts(jobs()),
        ["job"],
        "no expected end makes room for the wide one"
    );
    scene.in_motion = true;
    assert_eq!(scene.starts(jobs()), [] as [&str; 0]);
    let (because, _) = scene.because(jobs(), "job");
    assert!(matches!(because, Because::InMotion), "{because:?}");
}

#[test]
fn retained_gpus_serve_a_job_behind_many_that_have_no_room() {
    let scene = four_kept();
    let none_alike = (0..500).map(|n| waits(&format!("job-{n}"), 100 + n, 1, i64::from(n)));
    let jobs = none_alike.chain([waits("last", 4, 1, 1_000)]);
    assert_eq!(scene.starts(jobs.collect()), ["last"]);
}

/// Both hosts have four GPUs for it: those that stay attached for its tenant are taken.
#[test]
fn a_job_starts_on_retained_gpus_of_its_tenant() {
    let scene = four_kept();
    let Verdict::Starts(chosen) = scene
        .outlook(vec![waits("job", 4, 1, 0)])
        .places
        .remove(0)
        .verdict
    else {
        panic!("it waits");
    };
    let kept = &scene.rack.held[0];
    assert_eq!(chosen.hosts, [kept.host.clone()].into());
    assert_eq!(chosen.gpus, kept.gpus().cloned().collect());
    let other = scene
        .outlook(vec![of("two", waits("job", 4, 1, 0))])
        .places
        .remove(0)
        .verdict;
    let Verdict::Starts(other) = other else {
        panic!("it waits")
    };
    assert!(
        other.gpus.is_disjoint(&chosen.gpus),
        "they are another tenant's: {other:?}"
    );
}
