//! GPUs that stay attached for a tenant, and the jobs that take them up.

use crate::line::scene::*;
use poolwright_planner::Kept;
use poolwright_planner::queue::Because;

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

/// It is a trial like any other.
#[test]
fn what_is_kept_is_not_tried_for_more_jobs_than_one_decision_looks_at() {
    let scene = four_kept();
    let none_alike = |n: u32| waits(&format!("job-{n}"), 100 + n, 1, i64::from(n));
    let jobs = |others: u32| {
        let before = (0..others).map(none_alike);
        before.chain([waits("last", 4, 1, 1_000)]).collect()
    };
    assert_eq!(scene.starts(jobs(20)), ["last"]);
    let (because, _) = scene.because(jobs(500), "last");
    assert!(matches!(because, Because::Many), "{because:?}");
    // Of many that are alike one is tried.
    let alike = (0..500).map(|n| waits(&format!("job-{n}"), 100, 1, n));
    assert_eq!(
        scene.starts(alike.chain([waits("last", 4, 1, 1_000)]).collect()),
        ["last"]
    );
}
