//! Jobs that have others of lower priority make way.

use crate::line::scene::*;
use poolwright_planner::Share;
use poolwright_planner::engine::observed::WaitingJob;

fn of_priority(priority: i32, mut job: WaitingJob) -> WaitingJob {
    job.demand.priority = priority;
    job
}

fn preempts(priority: i32, mut job: WaitingJob) -> WaitingJob {
    job.preempts = true;
    of_priority(priority, job)
}

fn stops(scene: &Scene, waiting: Vec<WaitingJob>) -> Vec<String> {
    let stops = scene.outlook(waiting).stops.into_iter();
    stops.map(|stop| stop.demand.to_string()).collect()
}

#[test]
fn of_lower_priority_only_what_must_goes() {
    let scene = || {
        Scene::new()
            .runs("patient-1", 2, 99)
            .runs("patient-2", 4, 99)
            .runs("busy", 2, 99)
    };
    let urgent = |priority| vec![preempts(priority, waits("urgent", 2, 1, 0))];
    assert_eq!(stops(&scene(), urgent(1)), ["patient-1"], "one is enough");
    assert_eq!(stops(&scene(), urgent(0)), [] as [&str; 0], "they are no lower");
    let whole = vec![preempts(1, waits("whole", 4, 1, 0))];
    assert_eq!(
        stops(&scene(), whole),
        ["patient-2"],
        "the other host has one that stays"
    );
    let plain = vec![of_priority(9, waits("plain", 2, 1, 0))];
    assert_eq!(stops(&scene(), plain), [] as [&str; 0], "it does not preempt");
    let vain = vec![preempts(9, waits("vain", 5, 1, 0))];
    assert_eq!(stops(&scene(), vain), [] as [&str; 0], "no host takes five");
    let stop = scene().outlook(urgent(3)).stops.remove(0);
    assert_eq!(
        (stop.at, stop.label.as_str()),
        (hour(0), "job urgent, of priority 3")
    );
}

#[test]
fn what_others_are_guaranteed_does_not_make_way() {
    let mut scene = Scene::new().runs("patient-1", 4, 99).runs("patient-2", 4, 99);
    scene
        .rack
        .held
        .iter_mut()
        .for_each(|c| c.tenant = c.demand.as_ref().map(|_| "one".parse().unwrap()));
    let urgent = || vec![of("two", preempts(9, waits("urgent", 4, 1, 0)))];
    assert_eq!(stops(&scene, urgent()).len(), 1);
    let share = Share {
        guaranteed: 8,
        ..Share::default()
    };
    let scene = scene.guarantees("one", share);
    assert_eq!(stops(&scene, urgent()), [] as [&str; 0]);
    let own = vec![preempts(9, waits("own", 4, 1, 0))];
    assert_eq!(stops(&scene, own).len(), 1, "its own tenant's");
}

/// A tenant that is one GPU above its guarantee keeps what it is guaranteed.
#[test]
fn preemption_leaves_a_tenant_its_guarantee() {
    let scene = |guaranteed| {
        let mut scene = Scene::new().runs("patient-1", 4, 99).runs("patient-2", 4, 99);
        for held in &mut scene.rack.held {
            held.tenant = held.demand.as_ref().map(|_| "one".parse().unwrap());
        }
        let share = Share {
            guaranteed,
            ..Share::default()
        };
        scene.guarantees("one", share)
    };
    let urgent = |gpus| vec![of("two", preempts(9, spanning(waits("urgent", gpus, 1, 0))))];
    assert_eq!(stops(&scene(7), urgent(4)), [] as [&str; 0]);
    assert_eq!(stops(&scene(4), urgent(4)).len(), 1);
    assert_eq!(
        stops(&scene(4), urgent(8)),
        [] as [&str; 0],
        "one is not enough, and both are too many"
    );
}

/// Reclaim and release take time, so GPUs that are being released count as available.
#[test]
fn nobody_else_goes_while_one_leaves_that_is_enough() {
    let scene = Scene::new().runs("leaving", 4, 99).runs("patient", 4, 99);
    let urgent = |gpus| vec![preempts(9, waits("urgent", gpus, 1, 0))];
    assert_eq!(stops(&scene, urgent(4)), [] as [&str; 0]);
    let wider = vec![preempts(9, spanning(waits("wider", 8, 1, 0)))];
    assert_eq!(stops(&scene, wider), ["patient"]);

    let share = Share {
        guaranteed: 4,
        ..Share::default()
    };
    let scene = scene.guarantees("lab", share);
    let ours = vec![of("lab", waits("ours", 4, 1, 0))];
    assert_eq!(stops(&scene, ours), [] as [&str; 0], "as for what is guaranteed");
}

#[test]
fn it_goes_before_all_of_lower_priority_and_by_its_turn_among_others() {
    let scene = Scene::new().runs("a", 4, 9);
    let jobs = || {
        vec![
            of_priority(2, waits("low", 4, 1, 0)),
            of_priority(5, waits("same", 4, 1, 1)),
            of_priority(7, waits("high", 4, 1, 30)),
            preempts(5, waits("urgent", 4, 1, 2)),
        ]
    };
    let order = |jobs| -> Vec<String> {
        let places = scene.outlook(jobs).places.into_iter();
        places.map(|place| place.demand.to_string()).collect()
    };
    assert_eq!(order(jobs()), ["urgent", "low", "same", "high"]);
    let without_low = jobs().split_off(1);
    assert_eq!(order(without_low), ["same", "urgent", "high"]);
    let several = vec![
        preempts(5, waits("first", 4, 1, 2)),
        preempts(9, waits("second", 4, 1, 3)),
        of_priority(2, waits("low", 4, 1, 0)),
    ];
    assert_eq!(order(several), ["second", "first", "low"]);
}
