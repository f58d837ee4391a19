//! What runs by the calendar: a day passes in a moment.

use crate::stories::calendar::*;
use crate::stories::kit::{ME, Pool, at, demand_id, gpus, spec};
use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use poolwright_emulator::Rack;
use poolwright_executor::Clock as _;
use poolwright_service::clock::{Clock, FastClock};
use poolwright_service::schedule::ScheduleSpec;
use poolwright_service::{ErrorCode, How, OperationKind};
use poolwright_store::SqliteStore;
use poolwright_tests::torture::clock::JumpingClock;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn a_window_opens_and_closes() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
    pool.composed(gpus("search", "l40s-48gb", 2)).await;
    let status = pool.schedule(night()).await;
    assert!(!status.open);
    assert_eq!(status.next_change, Some(at(EVENING)));
    let clockwork = Clockwork::of(&pool);
    let day = holds(&[("chat", 20), ("search", 2)]);
    assert_eq!(pool.holders().await, day);

    for (evening, night, morning) in [
        (EVENING, NIGHT, MORNING),
        (NEXT_EVENING, "2026-03-03T23:00:00Z", "2026-03-04T07:30:00Z"),
    ] {
        let before: Timestamp = at(evening) - Duration::from_secs(10);
        pool.pass_until(&before.to_string()).await;
        assert_eq!(pool.holders().await, day, "not before its time");
        pool.pass_until(night).await;
        assert_eq!(pool.holders().await, holds(&[("search", 2), ("training", 24)]));
        pool.all_is_well().await;
        let why = pool.composer().why(&demand_id("chat")).await.unwrap();
        let until = format!("schedule night suspends it until {}", at(morning));
        assert!(
            !why.wanted_now && why.because.join(" ").contains(&until),
            "{:?}",
            why.because
        );
        pool.pass_until(morning).await;
        assert_eq!(pool.holders().await, day);
        pool.all_is_well().await;
    }
    let runs = pool.runs().await;
    assert_eq!(runs.len(), 4, "{runs:?}");
    assert!(runs.iter().all(|run| run.succeeded));
    assert_eq!(runs[0].open, [night_id()]);
    assert!(runs[0].at >= at(EVENING) && runs[0].at < at(EVENING) + Duration::from_secs(1));
    assert!(runs[1].open.is_empty());
    let tally = pool.emulation.with(|state, _| state.tally());
    assert_eq!((tally.bound_dirty, tally.pulled_in_use), (0, 0));
    clockwork.stop().await;
}

/// Fault 71: made up for once.
#[tokio::test(start_paused = true)]
async fn an_opening_that_was_missed_is_made_up_for_and_nothing_is_done_twice() {
    let mut pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
    pool.schedule(night()).await;
    // Nobody is there when the window opens.
    pool.crash().await;
    tokio::time::sleep(Duration::from_secs(10 * 3600)).await;
    assert_eq!(pool.truth().len(), 20);
    pool.open().await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until("2026-03-02T22:30:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("training", 24)]));
    let operations = pool.operations().await;

    // Several restarts within the window.
    clockwork.stop().await;
    for hour in ["23:00", "23:30", "23:59"] {
        pool.restart().await;
        let clockwork = Clockwork::of(&pool);
        pool.pass_until(&format!("2026-03-02T{hour}:00Z")).await;
        clockwork.stop().await;
    }
    assert_eq!(pool.operations().await, operations, "nothing was done twice");
    assert_eq!(pool.holders().await, holds(&[("training", 24)]));

    // Gone again until long after the closing.
    pool.crash().await;
    tokio::time::sleep(Duration::from_secs(12 * 3600)).await;
    pool.open().await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until("2026-03-03T13:00:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("chat", 20)]));
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_in_the_middle_of_a_recomposition() {
    for milliseconds in [1, 100, 300, 500, 700, 1_000, 1_500] {
        let mut pool = Pool::of("demo").await;
        pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
        pool.schedule(night()).await;
        let clockwork = Clockwork::of(&pool);
        let wait = at(EVENING).duration_since(pool.clock.now());
        let wait = Duration::try_from(wait).unwrap() + Duration::from_millis(milliseconds);
        tokio::time::sleep(wait).await;
        clockwork.stop().await;
        pool.restart().await;
        let clockwork = Clockwork::of(&pool);
        pool.pass_until("2026-03-02T20:10:00Z").await;
        assert_eq!(pool.holders().await, holds(&[("training", 24)]), "{milliseconds}");
        pool.all_is_well().await;
        let tally = pool.emulation.with(|state, _| state.tally());
        assert_eq!((tally.binds, tally.unbinds), (44, 20), "{milliseconds}");
        assert_eq!(pool.operations().await, 2, "{milliseconds}");
        clockwork.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn paused_gone_on_and_removed() {
    let mut pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
    pool.schedule(night()).await;
    let mut clockwork = Clockwork::of(&pool);
    pool.pass_until(NIGHT).await;
    let (by_day, by_night) = (holds(&[("chat", 20)]), holds(&[("training", 24)]));
    assert_eq!(pool.holders().await, by_night);

    pool.composer().pause_schedule(&night_id(), true).await.unwrap();
    pool.pass_until("2026-03-02T23:10:00Z").await;
    assert_eq!(pool.holders().await, by_day, "a pause closes the window");
    let status = pool.composer().pause_schedule(&night_id(), false).await.unwrap();
    assert!(status.open);
    pool.pass_until("2026-03-02T23:20:00Z").await;
    assert_eq!(pool.holders().await, by_night);

    // Its demands are its own.
    let error = pool.release("training").await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Conflict);
    assert!(error.hint.unwrap().contains("schedule pause night"));
    let error = pool
        .composer()
        .remove_demand(&demand_id("training"))
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::Conflict);

    // It was the last one, and nobody runs when it is removed.
    clockwork.stop().await;
    pool.composer().remove_schedule(&night_id()).await.unwrap();
    assert_eq!(
        pool.demands().await,
        ["chat", "training"],
        "listed while it holds GPUs"
    );
    assert!(
        pool.because("training")
            .await
            .contains("its schedule has dropped it")
    );
    pool.restart().await;
    clockwork = Clockwork::of(&pool);
    pool.pass_until("2026-03-02T23:40:00Z").await;
    assert_eq!(pool.demands().await, ["chat"]);
    assert_eq!(
        pool.holders().await,
        by_day,
        "what it held is let go, what it suspended comes back"
    );
    pool.all_is_well().await;
    // From now on nothing happens by itself.
    let operations = pool.operations().await;
    let waiting = spec(gpus("waiting", "h100-pcie-80gb", 2));
    pool.composer().add_demand(waiting).await.unwrap();
    pool.pass_until(NEXT_EVENING).await;
    pool.composed(gpus("other", "l40s-48gb", 1)).await;
    pool.pass_until("2026-03-03T21:00:00Z").await;
    assert_eq!(pool.operations().await, operations + 1);
    clockwork.stop().await;
}

/// Tells the time rightly, but for a moment that lasts: so many times it is asked before it is 20:00, and
/// from then on it is after.
struct PassesMeanwhile {
    right: FastClock,
    before: AtomicU32,
}

impl poolwright_executor::Clock for PassesMeanwhile {
    fn now(&self) -> Timestamp {
        let still_before = |left: u32| left.checked_sub(1);
        let before = self.before.fetch_update(SeqCst, SeqCst, still_before).is_ok();
        let edge = at(EVENING);
        match before {
            true => edge - Duration::from_millis(1),
            false => self.right.now(),
        }
    }
}

#[async_trait]
impl Clock for PassesMeanwhile {
    async fn sleep_until(&self, until: Timestamp) {
        self.right.sleep_until(until).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_window_that_opens_while_the_calendar_is_looked_at_is_not_missed() {
    for looks in 1..12 {
        let mut pool = Pool::of("demo").await;
        pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
        pool.schedule(night()).await;
        pool.sleep_until(EVENING).await;
        pool.crash().await;
        pool.managers_clock = Arc::new(PassesMeanwhile {
            right: *pool.clock,
            before: AtomicU32::new(looks),
        });
        pool.open().await;
        let clockwork = Clockwork::of(&pool);
        pool.pass_until("2026-03-02T20:05:00Z").await;
        assert_eq!(pool.holders().await, holds(&[("training", 24)]), "after {looks}");
        clockwork.stop().await;
    }
}

/// Fault 53: the manager's clock is set back after an opening, or forward over it and back again.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_does_a_windows_work_once() {
    let minutes = |minutes: u64| tokio::time::sleep(Duration::from_secs(60 * minutes));
    let hour = SignedDuration::from_hours(1);
    // From noon: so many minutes pass, then the clock is set.
    for jumps in [vec![(8 * 60 + 10, -hour)], vec![(7 * 60 + 30, hour), (10, -hour)]] {
        let store = Arc::new(SqliteStore::in_memory().unwrap());
        let mut pool = Pool::bare(Rack::builtin("demo").unwrap(), store);
        let clock = Arc::new(JumpingClock::new());
        pool.managers_clock = clock.clone();
        pool.open().await;
        minutes(12 * 60).await;
        pool.add_all_endpoints().await;
        pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
        pool.schedule(night()).await;
        let clockwork = Clockwork::of(&pool);
        for (passed, by) in &jumps {
            minutes(*passed).await;
            clock.jump(*by);
        }
        assert_eq!(pool.holders().await, holds(&[("training", 24)]), "{jumps:?}");
        let operations = pool.operations().await;
        // Eight strikes once more.
        minutes(120).await;
        assert_eq!(pool.holders().await, holds(&[("training", 24)]), "{jumps:?}");
        assert_eq!(pool.operations().await, operations, "{jumps:?}");
        minutes(12 * 60).await;
        assert_eq!(pool.holders().await, holds(&[("chat", 20)]), "{jumps:?}");
        assert_eq!(pool.operations().await, operations + 1, "{jumps:?}");
        pool.all_is_well().await;
        clockwork.stop().await;
    }
}

/// A day passes in 24 seconds, so that windows open and close while the hardware is at work.
#[tokio::test(start_paused = true)]
async fn a_window_that_is_shorter_than_the_work_leaves_all_as_it_was() {
    let mut pool = Pool::bare(
        Rack::builtin("demo").unwrap(),
        Arc::new(SqliteStore::in_memory().unwrap()),
    );
    let clock = Arc::new(FastClock::starting_at(at("2026-03-02T12:00:00Z"), 3600.0));
    pool.managers_clock = clock.clone();
    pool.open().await;
    pool.add_all_endpoints().await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
    let mut short = night();
    short["window"] = json!({"opens": "0 * * * *", "closes": "10 * * * *"});
    pool.schedule(short).await;
    let clockwork = Clockwork::of(&pool);
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert!(pool.operations().await > 2, "it was at work");
    pool.composer().pause_schedule(&night_id(), true).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    pool.quiet().await;
    assert_eq!(pool.holders().await, holds(&[("chat", 20)]));
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_schedule_touches_what_it_names_and_nothing_else() {
    let pool = Pool::of("demo").await;
    let manager = pool.composer();
    pool.composed(gpus("chat", "h100-pcie-80gb", 8)).await;
    pool.composed(gpus("old", "h100-pcie-80gb", 4)).await;
    // A change that waits for the next apply.
    manager
        .add_demand(spec(gpus("waiting", "l40s-48gb", 2)))
        .await
        .unwrap();
    let waits = |plan: &poolwright_service::Plan| (plan.summary().gpus_unbound, plan.summary().gpus_bound);
    assert_eq!(waits(&manager.plan().await.unwrap()), (0, 2));

    let clockwork = Clockwork::of(&pool);
    let mut lunch = night();
    lunch["window"] = json!({"opens": "0 11 * * *", "closes": "0 13 * * *"});
    lunch["demands"] = json!([gpus("training", "h100-pcie-80gb", 16)]);
    assert!(pool.schedule(lunch).await.open, "so it takes effect at once");
    pool.pass_until("2026-03-02T12:10:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("old", 4), ("training", 16)]));
    manager.pause_schedule(&night_id(), true).await.unwrap();
    pool.pass_until("2026-03-02T12:20:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("chat", 8), ("old", 4)]));
    manager.pause_schedule(&night_id(), false).await.unwrap();
    pool.pass_until("2026-03-02T12:30:00Z").await;
    manager.remove_schedule(&night_id()).await.unwrap();
    pool.pass_until("2026-03-02T12:40:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("chat", 8), ("old", 4)]));
    assert_eq!(waits(&manager.plan().await.unwrap()), (0, 2), "it waits still");
    assert_eq!(pool.demands().await, ["chat", "old", "waiting"]);
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_window_that_is_closed_moves_nothing() {
    let pool = Pool::of("demo").await;
    let manager = pool.composer();
    let clockwork = Clockwork::of(&pool);
    // One waits to be composed, one has its GPUs.
    manager
        .add_demand(spec(gpus("standing", "h100-pcie-80gb", 2)))
        .await
        .unwrap();
    pool.composed(gpus("chat", "h100-pcie-80gb", 4)).await;
    let before = pool.operations().await;
    let mut schedule = night();
    schedule["suspends"] = json!(["standing", "chat"]);
    assert!(!pool.schedule(schedule).await.open);
    pool.pass_until("2026-03-02T12:10:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("chat", 4)]));

    let refused = manager.remove_demand(&demand_id("chat")).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict);
    assert!(refused.message.contains("schedule night suspends"), "{refused}");
    assert!(refused.hint.unwrap().contains("schedule remove night"));
    manager.remove_schedule(&night_id()).await.unwrap();
    let refused = manager.remove_demand(&demand_id("chat")).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict);
    assert!(refused.hint.unwrap().contains("poolwright release chat"));
    pool.pass_until("2026-03-02T12:20:00Z").await;
    assert_eq!(
        pool.holders().await,
        holds(&[("chat", 4)]),
        "nothing is released by itself"
    );
    assert_eq!(pool.operations().await, before);
    clockwork.stop().await;
}

/// What the window had put aside comes back, also where the schedule is gone before its window closes, and the
/// manager was away meanwhile.
#[tokio::test(start_paused = true)]
async fn what_was_put_aside_comes_back_when_its_schedule_is_gone() {
    let mut pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
    pool.schedule(night()).await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until(NIGHT).await;
    assert_eq!(pool.holders().await, holds(&[("training", 24)]));
    clockwork.stop().await;
    pool.composer().remove_schedule(&night_id()).await.unwrap();
    pool.restart().await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until("2026-03-02T23:30:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("chat", 20)]));
    // From now on it is nobody's but its owner's.
    let operations = pool.operations().await;
    pool.pass_until(MORNING).await;
    assert_eq!(pool.holders().await, holds(&[("chat", 20)]));
    assert_eq!(pool.operations().await, operations);
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_makes_no_sense_is_refused() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 1)).await;
    pool.schedule(night()).await;
    let refused = async |change: fn(&mut Value)| {
        let mut schedule = night();
        schedule["id"] = json!("other");
        schedule["demands"] = json!([gpus("more", "h100-pcie-80gb", 1)]);
        change(&mut schedule);
        let spec: ScheduleSpec = serde_json::from_value(schedule).unwrap();
        pool.composer().add_schedule(spec).await.unwrap_err()
    };
    let window = refused(|s| s["window"]["opens"] = json!("at eight")).await;
    assert!(window.message.contains("five fields"), "{window}");
    let never = refused(|s| s["window"]["closes"] = s["window"]["opens"].clone()).await;
    assert!(
        never.message.contains("never opens") && never.hint.is_some(),
        "{never}"
    );
    let nothing = refused(|s| (s["demands"], s["suspends"]) = (json!([]), json!([]))).await;
    assert!(nothing.hint.is_some(), "{nothing}");
    assert_eq!(
        refused(|s| s["suspends"] = json!(["nobody"])).await.code,
        ErrorCode::NotFound
    );
    let others = refused(|s| s["suspends"] = json!(["training"])).await;
    assert!(others.message.contains("belongs to schedule night"), "{others}");
    let twice = refused(|s| {
        let demand = s["demands"][0].clone();
        s["demands"] = json!([demand.clone(), demand]);
    });
    assert!(twice.await.message.contains("twice"));
    assert_eq!(
        refused(|s| s["id"] = json!("night")).await.code,
        ErrorCode::Conflict
    );
    let taken = refused(|s| {
        s["demands"] = json!([gpus("chat", "h100-pcie-80gb", 1)]);
        s["suspends"] = json!([]);
    });
    let taken = taken.await;
    assert_eq!(taken.code, ErrorCode::Conflict);
    assert_eq!(pool.composer().schedules().await.unwrap().len(), 1);
    assert_eq!(pool.demands().await, ["chat", "training"]);
}

#[tokio::test(start_paused = true)]
async fn a_plan_from_before_the_window_is_not_applied_in_it() {
    let pool = Pool::of("demo").await;
    let manager = pool.composer();
    manager
        .add_demand(spec(gpus("chat", "h100-pcie-80gb", 20)))
        .await
        .unwrap();
    let plan = manager.plan().await.unwrap();
    pool.schedule(night()).await;
    pool.pass_until(NIGHT).await;
    let error = manager
        .apply(plan, OperationKind::Apply, ME, &How::default())
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::Stale, "{error}");
    assert!(pool.truth().is_empty());
}
