//! How much may happen by itself.

use crate::stories::calendar::*;
use crate::stories::kit::{Pool, at, demand_id, gpus};
use crate::stories::managers::{all_is_well, two};
use crate::stories::queueing::job;
use jiff::SignedDuration;
use poolwright_emulator::rack::Rack;
use poolwright_service::limits::{Limits, NewLimits};
use poolwright_service::{CheckResult, ErrorCode, OperationKind};
use poolwright_store::SqliteStore;
use poolwright_tests::torture::clock::JumpingClock;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

impl Pool {
    /// Sets one limit.
    async fn limit(&self, set: impl FnOnce(&mut NewLimits)) {
        let mut new = NewLimits::default();
        set(&mut new);
        self.composer().set_limits(&new).await.unwrap();
    }

    /// What keeps the night schedule.
    async fn trouble(&self) -> Option<String> {
        let status = self.night().await;
        status.trouble.map(|trouble| trouble.reason)
    }
}

/// GPUs of a demand `of-ID` while a window is open.
fn window(id: &str, opens: &str, closes: &str, count: u32) -> Value {
    json!({
        "id": id, "window": {"opens": opens, "closes": closes},
        "demands": [gpus(&format!("of-{id}"), "h100-pcie-80gb", count)],
    })
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_moves_too_much_is_not_begun_and_told_until_the_limit_is_raised() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
    pool.schedule(night()).await;
    pool.limit(|limits| limits.per_plan = Some(23)).await;
    let clockwork = Clockwork::of(&pool);
    let before = pool.operations().await;
    pool.pass_until(NIGHT).await;
    assert_eq!(pool.holders().await, holds(&[("chat", 20)]));
    assert_eq!(pool.operations().await, before, "nothing was begun");
    let reason = pool.trouble().await.unwrap();
    for word in [
        "24 GPUs would be moved",
        "23 are allowed in one plan",
        "poolwright limits set --per-plan 24",
    ] {
        assert!(reason.contains(word), "{reason}");
    }
    let why = pool.composer().why(&demand_id("training")).await.unwrap();
    assert!(why.because.join("; ").contains(&reason), "{why:?}");
    let doctor = pool.composer().doctor().await.unwrap();
    let calendar = doctor.iter().find(|check| check.name == "calendar").unwrap();
    assert!(
        calendar.result == CheckResult::Warning && calendar.message.contains(&reason),
        "{calendar:?}"
    );
    assert_eq!(pool.runs().await.len(), 1, "it is noted once");

    // Somebody who asks for it may.
    pool.released("chat").await;
    pool.composed(gpus("lab", "h100-pcie-80gb", 24)).await;
    pool.released("lab").await;

    pool.limit(|limits| limits.per_plan = Some(24)).await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    pool.quiet().await;
    assert_eq!(
        pool.holders().await,
        holds(&[("training", 24)]),
        "at once, and not a quarter of an hour later"
    );
    assert_eq!(
        pool.composer().limits().await.unwrap().moved,
        24,
        "but for operators'"
    );
    assert_eq!(pool.trouble().await, None);
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_moved_counts_for_an_hour_also_after_a_restart() {
    let mut pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
    let mut schedule = night();
    schedule["window"]["closes"] = "30 20 * * *".into();
    pool.schedule(schedule).await;
    pool.limit(|limits| limits.per_hour = Some(40)).await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until("2026-03-02T20:29:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("training", 24)]));
    pool.pass_until("2026-03-02T20:31:00Z").await;
    let reason = pool.trouble().await.unwrap();
    for word in [
        "moves wanted: 24, made by itself in the last hour: 24, allowed in an hour: 40",
        "begun at 2026-03-02T21:00:0",
        "limits set --per-hour 48",
    ] {
        assert!(reason.contains(word), "{reason}");
    }
    clockwork.stop().await;
    pool.restart().await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until("2026-03-02T20:59:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("training", 24)]));
    pool.pass_until("2026-03-02T21:20:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("chat", 20)]), "an hour has passed");
    let mut operations = pool.composer().operations().await.unwrap();
    operations.retain(|operation| operation.kind == OperationKind::Schedule);
    assert_eq!(operations.len(), 2);
    assert!(operations[0].created >= at("2026-03-02T21:00:00Z"));
    pool.all_is_well().await;
    clockwork.stop().await;
}

/// What one host, one tenant or one GPU has had counts by itself, however much room the others have.
#[tokio::test(start_paused = true)]
async fn what_one_host_tenant_or_gpu_had_counts_for_an_hour_too() {
    for which in ["host", "tenant", "gpu"] {
        let pool = Pool::of("demo").await;
        pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
        let mut schedule = night();
        schedule["window"]["closes"] = "30 20 * * *".into();
        schedule["demands"][0]["tenant"] = "blue".into();
        pool.schedule(schedule).await;
        let clockwork = Clockwork::of(&pool);
        pool.pass_until("2026-03-02T20:29:00Z").await;
        assert_eq!(pool.holders().await, holds(&[("training", 24)]));
        let had = pool.composer().limits().await.unwrap().moved_most;
        let mut limit = NewLimits::default();
        let (had, limited) = match which {
            "host" => (had.host, &mut limit.per_host),
            "tenant" => (had.tenant, &mut limit.per_tenant),
            _ => (had.gpu, &mut limit.per_gpu),
        };
        assert!(had > 0, "{which}");
        *limited = Some(had);
        pool.limit(|new| *new = limit).await;
        pool.pass_until("2026-03-02T20:31:00Z").await;
        assert_eq!(pool.holders().await, holds(&[("training", 24)]), "{which}");
        let reason = pool.trouble().await.unwrap();
        assert!(
            reason.contains(which) && reason.contains(&format!("limits set --per-{which} ")),
            "{reason}"
        );
        pool.pass_until("2026-03-02T21:20:00Z").await;
        assert_eq!(pool.holders().await, holds(&[("chat", 20)]), "an hour has passed");
        pool.all_is_well().await;
        clockwork.stop().await;
    }
}

/// A GPU that automation moved stays in place for the time of the limit, and no longer.
#[tokio::test(start_paused = true)]
async fn a_gpu_that_was_moved_is_held_for_a_while() {
    let pool = Pool::of("demo").await;
    pool.limit(|new| new.hold_s = Some(45 * 60)).await;
    pool.schedule(window("night", "0 20 * * *", "30 20 * * *", 8))
        .await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until("2026-03-02T20:31:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("of-night", 8)]), "it is held");
    let reason = pool.trouble().await.unwrap();
    assert!(
        reason.contains("less than 2700 s ago") && reason.contains("limits set --hold 0s"),
        "{reason}"
    );
    pool.pass_until("2026-03-02T20:47:00Z").await;
    assert_eq!(pool.holders().await, holds(&[]));
    pool.all_is_well().await;
    clockwork.stop().await;
}

/// A clock that was years ahead for a while holds automation back for an hour, and not for years.
#[tokio::test(start_paused = true)]
async fn what_was_moved_in_the_future_counts_for_an_hour() {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    let mut pool = Pool::bare(Rack::builtin("demo").unwrap(), store);
    let clock = Arc::new(JumpingClock::new());
    pool.managers_clock = clock.clone();
    pool.open().await;
    pool.add_all_endpoints().await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
    pool.limit(|limits| limits.per_hour = Some(40)).await;
    let years = SignedDuration::from_hours(3 * 365 * 24);
    let minutes = async |minutes: u64| tokio::time::sleep(Duration::from_secs(60 * minutes)).await;
    clock.jump(years);
    // By the clock's years it is open from 20:00 to 07:30, whatever the day.
    pool.schedule(night()).await;
    let clockwork = Clockwork::of(&pool);
    let is_open = async || pool.night().await.open;
    while !is_open().await {
        minutes(10).await;
    }
    minutes(10).await;
    assert_eq!(pool.holders().await, holds(&[("training", 24)]));
    clock.jump(-years);
    clock.jump(SignedDuration::from_hours(12));
    minutes(20).await;
    assert!(!is_open().await);
    assert_eq!(
        pool.holders().await,
        holds(&[("training", 24)]),
        "held back by what was moved"
    );
    minutes(90).await;
    assert_eq!(pool.holders().await, holds(&[("chat", 20)]));
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn limits_are_set_one_by_one_and_kept() {
    let mut pool = Pool::of("demo").await;
    pool.limit(|limits| limits.per_host = Some(16)).await;
    pool.restart().await;
    let expected = Limits {
        per_host: 16,
        ..Limits::default()
    };
    assert_eq!(pool.composer().limits().await.unwrap().limits, expected);
    let nothing = NewLimits {
        per_gpu: Some(0),
        ..NewLimits::default()
    };
    let refused = pool.composer().set_limits(&nothing).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::BadRequest);
}

/// One is stopped between the look at the limits and the commit of its own.
#[tokio::test(start_paused = true)]
async fn limits_that_are_set_at_two_managers_at_once_hold_both() {
    let (mut pool, a, b) = two("demo").await;
    a.gate.stop_before("commit");
    let per_plan = NewLimits {
        per_plan: Some(23),
        ..NewLimits::default()
    };
    let composer = a.composer.clone();
    let first = tokio::spawn(async move { composer.set_limits(&per_plan).await });
    a.gate.is_stopped().await;
    let per_hour = NewLimits {
        per_hour: Some(77),
        ..NewLimits::default()
    };
    b.composer.set_limits(&per_hour).await.unwrap();
    a.gate.go_on();
    first.await.unwrap().unwrap();
    for manager in [&a, &b] {
        let limits = manager.composer.limits().await.unwrap().limits;
        assert_eq!((limits.per_plan, limits.per_hour), (23, 77));
    }
    all_is_well(&mut pool, &[&a, &b]).await;
}

/// Submitted jobs are requests: limits of automation neither delay nor count them. Each takes all GPUs of the pool.
#[tokio::test(start_paused = true)]
async fn jobs_are_requests_that_no_limit_delays() {
    let pool = Pool::of("demo").await;
    pool.limit(|limits| (limits.per_gpu, limits.per_plan, limits.hold_s) = (Some(1), Some(4), Some(3600)))
        .await;
    let clockwork = Clockwork::of(&pool);
    for n in 0..5 {
        let name = format!("job-{n}");
        pool.submit(job(&name, 24, json!({"runs_for": "1m"}))).await;
        pool.settles().await;
        assert_eq!(pool.holders().await, holds(&[(&name, 24)]));
        pool.is_done(&name).await;
        pool.settles().await;
    }
    let limits = pool.composer().limits().await.unwrap();
    assert_eq!((limits.moved, limits.failed), (0, 0));
    pool.schedule(window("one", "0 20 * * *", "30 20 * * *", 4)).await;
    pool.pass_until("2026-03-02T20:05:00Z").await;
    assert_eq!(
        pool.holders().await,
        holds(&[("of-one", 4)]),
        "nor does a window wait for what jobs moved"
    );
    pool.all_is_well().await;
    clockwork.stop().await;
}

/// What a closed window can't give back yet keeps the next one from nothing that it does not need.
#[tokio::test(start_paused = true)]
async fn gpus_that_may_not_be_moved_hold_back_only_what_needs_them() {
    let pool = Pool::of("demo").await;
    pool.limit(|limits| limits.per_gpu = Some(1)).await;
    pool.schedule(window("one", "0 20 * * *", "30 20 * * *", 4)).await;
    pool.schedule(window("two", "30 20 * * *", "0 23 * * *", 8)).await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until("2026-03-02T20:25:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("of-one", 4)]));
    pool.pass_until("2026-03-02T20:35:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("of-one", 4), ("of-two", 8)]));
    let status = pool.composer().schedule(&"one".parse().unwrap()).await.unwrap();
    let reason = status.trouble.unwrap().reason;
    for word in [
        "held back by a limit",
        "allowed in an hour: 1",
        "begun at 2026-03-02T21:00:0",
    ] {
        assert!(reason.contains(word), "{reason}");
    }
    pool.pass_until("2026-03-02T21:20:00Z").await;
    assert_eq!(
        pool.holders().await,
        holds(&[("of-two", 8)]),
        "an hour has passed"
    );
    pool.all_is_well().await;
    clockwork.stop().await;
}

/// GPUs that were moved as often as they may be are left alone by calendars too, where others serve as well.
#[tokio::test(start_paused = true)]
async fn calendars_take_gpus_that_may_still_be_moved_while_others_rest() {
    let pool = Pool::of("demo").await;
    pool.limit(|limits| limits.per_gpu = Some(2)).await;
    pool.schedule(window("one", "0 20 * * *", "10 20 * * *", 8)).await;
    pool.schedule(window("two", "20 20 * * *", "30 20 * * *", 8))
        .await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until("2026-03-02T20:12:00Z").await;
    assert_eq!(pool.composer().limits().await.unwrap().moved_most.gpu, 2);
    pool.pass_until("2026-03-02T20:22:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("of-two", 8)]), "on other GPUs");
    assert_eq!(pool.composer().limits().await.unwrap().moved_most.gpu, 2);
    pool.pass_until("2026-03-02T20:32:00Z").await;
    assert_eq!(pool.holders().await, holds(&[]));
    clockwork.stop().await;
}
