//! Jobs where limits let only so much be moved by itself.

use crate::line::scene::*;
use jiff::{SignedDuration, Timestamp};
use poolwright_model::id::TenantId;
use poolwright_planner::Kept;
use poolwright_planner::queue::{Allowed, Because, Counted, Rests};

fn minute(minutes: i64) -> Timestamp {
    hour(0) + SignedDuration::from_mins(minutes)
}

/// Of each so much was moved so many minutes ago.
fn moved(allowed: Allowed, moves: &[(Counted, u32, i64)]) -> Rests {
    let mut rests = Rests::new(allowed);
    for (whose, count, ago) in moves {
        rests.count(whose.clone(), minute(-ago), *count);
    }
    rests
}

/// Four moves of each but a GPU, which may be moved once.
fn few() -> Allowed {
    Allowed {
        gpu: 1,
        host: 4,
        tenant: 4,
        ..Allowed::default()
    }
}

fn gpus(scene: &Scene) -> Vec<Counted> {
    let gpus = scene.world().snapshot.topology.gpus.iter();
    gpus.map(|gpu| Counted::Gpu(gpu.id.clone())).collect()
}

fn host(name: &str) -> Counted {
    Counted::Host(name.parse().unwrap())
}

fn tenant(name: &str) -> Counted {
    Counted::Tenant(TenantId::from_lossy(name))
}

#[test]
fn a_job_begins_on_what_may_be_moved_and_waits_only_where_nothing_else_is_free() {
    let mut scene = Scene::new();
    let gpus = gpus(&scene);
    let job = || vec![waits("job", 4, 1, 0)];
    let mut moves: Vec<_> = gpus[..4].iter().map(|gpu| (gpu.clone(), 1, 40)).collect();
    scene.rests = moved(few(), &moves);
    assert_eq!(scene.starts(job()), ["job"], "the other four");
    moves.push((gpus[4].clone(), 1, 10));
    scene.rests = moved(few(), &moves);
    let (because, kept) = scene.because(job(), "job");
    assert!(
        matches!(because, Because::Rests(at) if at == minute(20)),
        "{because:?}"
    );
    assert_eq!(kept, Some(minute(20)));
    assert_eq!(scene.begins_in_minutes(job()), ["job 20"]);
    // A host that may be brought three more is closed to four, and its neighbour is not.
    let mut moves = vec![(host("h1"), 1, 40)];
    scene.rests = moved(few(), &moves);
    assert_eq!(scene.starts(job()), ["job"]);
    moves.push((host("h2"), 4, 10));
    scene.rests = moved(few(), &moves);
    assert_eq!(scene.starts(job()), [] as [&str; 0]);
    assert_eq!(scene.begins_in_minutes(job()), ["job 20"]);
    // What a tenant had keeps only its own jobs.
    scene.rests = moved(few(), &[(tenant("two"), 1, 10)]);
    let two = || vec![of("two", waits("theirs", 4, 1, 0)), waits("mine", 4, 1, 1)];
    assert_eq!(scene.starts(two()), ["mine"]);
    assert_eq!(scene.begins_in_minutes(two()), ["mine 0", "theirs 50"]);
}

/// Five moves are left until half an hour from now, and ten are allowed.
fn five_left() -> Scene {
    let mut scene = Scene::new();
    let allowed = Allowed {
        all: 10,
        ..Allowed::default()
    };
    scene.rests = moved(allowed, &[(Counted::All, 5, 30)]);
    scene
}

#[test]
fn a_wide_job_that_waits_for_moves_has_them_kept_and_is_not_starved_by_narrow_ones() {
    let scene = five_left();
    // Both hosts are free, and six moves are too many now.
    let wide = || spanning(waits("wide", 6, 1, 0));
    let (because, kept) = scene.because(vec![wide()], "wide");
    assert!(
        matches!(because, Because::Rests(at) if at == minute(30)),
        "{because:?}"
    );
    assert_eq!(kept, Some(minute(30)));
    assert_eq!(
        scene.starts(vec![wide(), waits("narrow", 2, 1, 1)]),
        ["narrow"],
        "it fits beside, and leaves enough moves"
    );
    let three = || {
        vec![
            wide(),
            waits("one", 2, 1, 1),
            waits("two", 2, 1, 2),
            waits("three", 1, 1, 3),
        ]
    };
    assert_eq!(scene.starts(three()), ["one"], "GPUs are kept, too");
    // A short one is over by then, and what it moved still counts.
    let mut short = waits("short", 4, 1, 1);
    short.expected = SignedDuration::from_mins(20);
    let mut shorter = waits("shorter", 2, 1, 1);
    shorter.expected = SignedDuration::from_mins(20);
    let (because, _) = scene.because(vec![wide(), short], "short");
    assert!(matches!(because, Because::Behind { .. }), "{because:?}");
    assert_eq!(scene.starts(vec![wide(), shorter]), ["shorter"]);
}

#[test]
fn what_starts_in_one_decision_counts_for_what_comes_after_it() {
    let scene = five_left();
    let jobs = || vec![waits("a", 3, 1, 0), waits("b", 3, 1, 1)];
    assert_eq!(scene.starts(jobs()), ["a"]);
    assert_eq!(scene.begins_in_minutes(jobs()), ["a 0", "b 30"]);
}

#[test]
fn a_job_for_which_no_hour_is_long_enough_says_so_and_keeps_nothing_back() {
    let mut scene = Scene::new();
    let allowed = Allowed {
        plan: 3,
        ..Allowed::default()
    };
    scene.rests = moved(allowed, &[]);
    let jobs = || vec![waits("wide", 4, 1, 0), waits("other", 3, 1, 1)];
    let (because, kept) = scene.because(jobs(), "wide");
    assert!(matches!(because, Because::Above { most: 3 }), "{because:?}");
    assert_eq!(kept, None);
    assert_eq!(scene.starts(jobs()), ["other"]);
    assert_eq!(scene.begins(jobs()), ["other 0"]);
}

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
        "nobody knows of any room for the wide one"
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

#[test]
fn what_is_kept_for_its_tenant_is_taken_up_however_much_was_moved() {
    let mut scene = four_kept();
    let none_left = |whose: Counted| moved(few(), &[(whose, 4, 10)]);
    let its = scene.rack.held[0].host.to_string();
    let jobs = || vec![waits("job", 4, 1, 0)];
    for whose in [tenant("one"), host(&its)] {
        scene.rests = none_left(whose.clone());
        assert_eq!(scene.starts(jobs()), ["job"], "{whose:?}");
        assert_eq!(scene.begins(jobs()), ["job 0"], "{whose:?}");
    }
    // Another tenant's is not.
    scene.rests = none_left(tenant("two"));
    assert_eq!(
        scene.starts(vec![of("two", waits("job", 4, 1, 0))]),
        [] as [&str; 0]
    );
    // Only one has it.
    scene.rests = none_left(tenant("one"));
    let both = vec![waits("a", 4, 1, 0), waits("b", 4, 1, 1)];
    assert_eq!(scene.begins_in_minutes(both), ["a 0", "b 50"]);
}

/// Of many that are alike one is tried.
#[test]
fn however_many_wait_for_moves_each_is_told_until_when() {
    let mut scene = Scene::new();
    let moves: Vec<_> = gpus(&scene).into_iter().map(|gpu| (gpu, 1, 10)).collect();
    scene.rests = moved(few(), &moves);
    let jobs = (0..500).map(|n| waits(&format!("job-{n}"), 4, 1, n)).collect();
    let (because, _) = scene.because(jobs, "job-499");
    assert!(
        matches!(because, Because::Rests(at) if at == minute(50)),
        "{because:?}"
    );
}
