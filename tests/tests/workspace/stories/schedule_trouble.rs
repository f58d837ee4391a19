//! When a recomposition by the calendar can't be done: it is told once, tried again, and never given up.

use crate::stories::calendar::*;
use crate::stories::kit::{FOREVER, Pool, at, demand_id, gpus};
use poolwright_emulator::fault::{Fault, FaultKind};
use poolwright_service::{OperationState, runner};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn a_recomposition_that_fails_is_tried_again_and_told() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
    pool.schedule(night()).await;
    let clockwork = Clockwork::of(&pool);
    // A host's agent refuses to let go, twice.
    let refused = Fault::new(FaultKind::Status {
        code: 503,
        retry_after: None,
    });
    pool.fault(refused.on("GET", "/agent/drain").times(2));
    pool.pass_until("2026-03-02T20:10:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("training", 24)]));
    pool.all_is_well().await;
    let runs = pool.runs().await;
    let (last, failed) = runs.split_last().unwrap();
    assert!(last.succeeded && !failed.is_empty(), "{runs:?}");
    for run in failed {
        assert!(!run.succeeded && run.outcome.contains("503"), "{run:?}");
        assert!(run.outcome.contains("rolled-back") && run.operation.is_some());
    }
    clockwork.stop().await;
}

/// Fault 40: silent for ten minutes of a recomposition.
#[tokio::test(start_paused = true)]
async fn a_box_that_falls_silent_during_a_recomposition_is_waited_for() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
    pool.schedule(night()).await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until("2026-03-02T19:59:00Z").await;
    // It takes five writes of the evening and loses the others; then it gives no answer to anything.
    let lost = Fault::new(FaultKind::TimeOutBefore).at("box-1");
    pool.fault(lost.on("PATCH", "/redfish/v1/Fabrics/*/Zones/*").after(5));
    pool.until("a write is lost", async || {
        let operations = pool.composer().operations().await.unwrap();
        operations
            .iter()
            .any(|operation| operation.waits().iter().any(|wait| wait.contains("box-1")))
            && pool.truth().len() < 20
    })
    .await;
    pool.silence("box-1");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let before = pool.truth();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(pool.truth(), before, "nothing moves while nobody can look");
    let open = pool.store.open_operations().await.unwrap();
    assert_eq!(open.len(), 1, "what it has in hand it keeps in hand");
    let operation = pool.composer().operation(&open[0]).await.unwrap();
    assert_eq!(operation.state, OperationState::Indeterminate);
    assert!(
        operation.waits().iter().all(|wait| !wait.is_empty()),
        "{:?}",
        operation.waits()
    );

    pool.emulation.clear_faults();
    pool.pass_until("2026-03-02T20:30:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("training", 24)]));
    pool.quiet().await;
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_fails_each_time_is_tried_less_and_less_often_and_told_once() {
    let mut pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
    pool.schedule(night()).await;
    let clockwork = Clockwork::of(&pool);
    let refused = Fault::new(FaultKind::Status {
        code: 503,
        retry_after: None,
    });
    pool.fault(refused.on("GET", "/agent/drain"));
    pool.pass_until("2026-03-02T20:01:00Z").await;
    let first = pool.operations().await - 1;
    assert!((5..8).contains(&first), "{first} tries in the first minute");

    // It is told where people look, and once for each reason.
    pool.pass_until("2026-03-03T01:00:00Z").await;
    let told = pool.night().await.trouble.unwrap();
    assert!(told.reason.contains("503"), "{told}");
    assert_eq!(
        (told.tries as usize, told.again_after_s),
        (pool.operations().await - 1, 900)
    );
    assert!(told.since < at("2026-03-02T20:00:10Z"), "{told}");
    assert!(told.last_try > at("2026-03-03T00:44:00Z"), "{told}");
    for demand in ["training", "chat"] {
        let why = pool.composer().why(&demand_id(demand)).await.unwrap();
        assert!(why.because.join("; ").contains(&told.to_string()), "{why:?}");
    }
    let reasons = |runs: &[runner::ScheduleRun]| -> BTreeMap<String, u32> {
        let reason = |run: &runner::ScheduleRun| (run.reason.clone().unwrap(), run.tries);
        runs.iter().map(reason).collect()
    };
    let runs = pool.runs().await;
    assert_eq!(
        reasons(&runs).len(),
        runs.len(),
        "one note for each reason: {runs:?}"
    );
    assert_eq!(
        reasons(&runs).values().sum::<u32>(),
        told.tries,
        "and each try is counted"
    );
    assert!(runs.iter().any(|run| run.tries > 1 && run.last_at > Some(run.at)));

    // A manager that starts anew goes on with the same notes.
    clockwork.stop().await;
    pool.restart().await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until("2026-03-03T06:00:00Z").await;
    let runs = pool.runs().await;
    assert_eq!(reasons(&runs).len(), runs.len(), "{runs:?}");
    let tries = reasons(&runs).values().sum::<u32>();
    assert!(
        (50..70).contains(&tries),
        "{tries} tries in a night with a restart"
    );
    assert_eq!(pool.holders().await, holds(&[("chat", 20)]));
    pool.all_is_well().await;

    // Somebody has mended the host.
    pool.emulation.clear_faults();
    pool.pass_until("2026-03-03T06:20:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("training", 24)]));
    assert!(pool.runs().await.last().unwrap().succeeded);
    assert!(pool.night().await.trouble.is_none());
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_suspended_demand_that_can_not_be_put_back_is_told_and_comes_back_once_it_can() {
    let pool = Pool::of("demo").await;
    let manager = pool.composer();
    pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
    let mut schedule = night();
    schedule["demands"] = json!([gpus("training", "h100-pcie-80gb", 4)]);
    pool.schedule(schedule).await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until(NIGHT).await;
    pool.composed(gpus("guest", "h100-pcie-80gb", 3)).await;
    // Two GPUs that nobody holds are pulled out.
    let held = pool.truth();
    let rack = pool.emulation.rack().clone();
    let free = (1..=16).map(|n| format!("box-1/gpu-{n}"));
    for gpu in free.filter(|gpu| !held.contains_key(gpu)).take(2) {
        let at = rack.gpu_named(&gpu).unwrap();
        pool.emulation.with(|state, now| state.vanish(at, now));
    }
    manager.discover(&()).await.unwrap();

    pool.pass_until("2026-03-03T09:00:00Z").await;
    assert_eq!(
        pool.holders().await,
        holds(&[("guest", 3)]),
        "all of it or nothing"
    );
    let trouble = manager.schedule(&night_id()).await.unwrap().trouble.unwrap();
    assert!(
        trouble.reason.contains("chat") && trouble.reason.contains("19 are free"),
        "{trouble}"
    );
    let why = manager.why(&demand_id("chat")).await.unwrap().because.join("; ");
    assert!(why.contains("not as the calendar wants it"), "{why}");
    let told = pool.runs().await;
    let told = told.last().unwrap();
    assert!(
        !told.succeeded && told.tries > 5 && told.open.is_empty(),
        "{told:?}"
    );

    pool.released("guest").await;
    pool.pass_until("2026-03-03T09:05:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("chat", 20)]));
    assert!(manager.schedule(&night_id()).await.unwrap().trouble.is_none());
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_window_whose_demand_fits_nowhere_says_so_once() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
    let mut schedule = night();
    schedule["suspends"] = json!([]);
    pool.schedule(schedule).await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until(NIGHT).await;
    // Other things go on meanwhile.
    pool.composed(gpus("search", "l40s-48gb", 1)).await;
    pool.released("search").await;
    pool.pass_until("2026-03-02T23:30:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("chat", 20)]));
    let runs = pool.runs().await;
    assert_eq!(runs.len(), 1, "{runs:?}");
    assert!(
        !runs[0].succeeded && runs[0].outcome.contains("4 are free"),
        "{runs:?}"
    );
    // Once there is room it is served, window open.
    pool.released("chat").await;
    pool.pass_until("2026-03-02T23:50:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("training", 24)]));
    assert!(pool.runs().await.last().unwrap().succeeded);
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_is_stuck_does_not_keep_the_rest_from_the_calendar() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 16)).await;
    let schedule = json!({
        "id": "night",
        "window": {"opens": "0 20 * * *", "closes": "15 20 * * *"},
        "demands": [gpus("training", "l40s-48gb", 2), gpus("tests", "h100-pcie-80gb", 2)],
    });
    pool.schedule(schedule).await;
    let clockwork = Clockwork::of(&pool);
    // From the second bind on the box of the L40S answers no more.
    let lost = Fault::new(FaultKind::TimeOutAfter).at("box-2");
    pool.fault(lost.on("PATCH", "/redfish/v1/Fabrics/*/Zones/*").times(1));
    pool.sleep_until(EVENING).await;
    pool.until("something is bound in it", async || pool.truth().len() > 16)
        .await;
    pool.silence("box-2");
    let stuck = pool.store.open_operations().await.unwrap()[0].clone();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let operation = pool.composer().operation(&stuck).await.unwrap();
    assert_eq!(operation.state, OperationState::Indeterminate);
    let runs = pool.runs().await;
    assert!(
        runs[0].outcome.contains("indeterminate"),
        "told as late: {runs:?}"
    );
    // The box is back: what was under way ends, and then the calendar has its way.
    pool.emulation.clear_faults();
    let ended = pool.composer().wait(&stuck, FOREVER).await.unwrap();
    assert!(ended.state.has_ended(), "{}", ended.state);
    pool.pass_until("2026-03-03T02:00:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("chat", 16)]));
    pool.all_is_well().await;
    clockwork.stop().await;
}
