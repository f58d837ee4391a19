//! Openings of schedules that give way to one another, that were missed, or that somebody asked for by hand.

use crate::stories::calendar::*;
use crate::stories::kit::{Pool, at, gpus};
use crate::stories::managers;
use poolwright_model::id::ScheduleId;
use poolwright_service::occurrence::Fate;
use poolwright_service::{ErrorCode, OperationState, runner};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// From nine in the evening `chat` makes way for `batch`, too, but not while it makes way for `training`.
fn late(overlap: &str) -> Value {
    json!({
        "id": "late",
        "window": {"weekly": ["daily 21:00-10:00"], "zone": "UTC"},
        "suspends": ["chat"],
        "overlap": overlap,
        "demands": [gpus("batch", "h100-pcie-80gb", 16)],
    })
}

fn late_id() -> ScheduleId {
    ScheduleId::new("late").unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_that_is_queued_begins_when_the_other_is_over() {
    let mut pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
    pool.schedule(night()).await;
    pool.schedule(late("queue")).await;
    let mut clockwork = Clockwork::of(&pool);
    pool.pass_until(NIGHT).await;
    assert_eq!(pool.holders().await, holds(&[("training", 24)]));
    let status = pool.composer().schedule(&late_id()).await.unwrap();
    assert_eq!(
        (status.open, status.fate),
        (false, Some(Fate::Waits { r#for: night_id() }))
    );

    // What was decided outlives the manager.
    clockwork.stop().await;
    pool.restart().await;
    clockwork = Clockwork::of(&pool);
    pool.pass_until(MORNING).await;
    assert_eq!(
        pool.holders().await,
        holds(&[("batch", 16)]),
        "chat waits for both"
    );
    assert!(pool.composer().schedule(&late_id()).await.unwrap().open);
    pool.pass_until("2026-03-03T10:00:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("chat", 20)]));
    let of_late = pool.runs().await.into_iter().filter(|run| run.is_of(&late_id()));
    assert!(of_late.count() >= 2, "{:?}", pool.runs().await);
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_gives_way_is_left_out_and_told_once() {
    let mut pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
    pool.schedule(night()).await;
    pool.schedule(late("skip")).await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until(NIGHT).await;
    clockwork.stop().await;
    pool.restart().await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until("2026-03-03T09:00:00Z").await;
    assert_eq!(
        pool.holders().await,
        holds(&[("chat", 20)]),
        "also when the other is over"
    );
    let left_out = |runs: Vec<poolwright_service::runner::ScheduleRun>| {
        let told = runs.into_iter().filter(|run| run.outcome.contains("left out"));
        told.map(|run| run.outcome).collect::<Vec<_>>()
    };
    let told = left_out(pool.runs().await);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("schedule night was running"), "{told:?}");
    clockwork.stop().await;
}

/// GPUs by demand, as a manager has them.
async fn holders_at(manager: &managers::Manager) -> BTreeMap<String, u32> {
    let mut holders = BTreeMap::new();
    for composition in manager.composer.compositions().await.unwrap() {
        let demand = composition.demand.as_ref().unwrap().to_string();
        *holders.entry(demand).or_default() += composition.gpu_count();
    }
    holders
}

#[tokio::test(start_paused = true)]
async fn two_managers_decide_about_an_opening_once_and_both_keep_to_it() {
    for (overlap, after, left_out) in [("skip", ("chat", 20), 1), ("queue", ("batch", 16), 0)] {
        let mut pool = Pool::of("demo").await;
        pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
        // All of it within an hour: two managers that only wait for the next window look at their leases all the while.
        let (mut night, mut late) = (night(), late(overlap));
        night["window"]["closes"] = json!("20 20 * * *");
        late["window"]["weekly"] = json!(["daily 20:05-22:00"]);
        pool.schedule(night).await;
        pool.schedule(late).await;
        pool.composer().close().await;
        pool.crash().await;
        pool.sleep_until("2026-03-02T19:58:00Z").await;
        let (a, b) = (
            managers::manager(&pool, "a").await,
            managers::manager(&pool, "b").await,
        );
        let stop = CancellationToken::new();
        let runs = [&a, &b].map(|manager| tokio::spawn(runner::run(manager.composer.clone(), stop.clone())));
        pool.pass_until("2026-03-02T20:12:00Z").await;
        assert_eq!(holders_at(&b).await, holds(&[("training", 24)]), "{overlap}");
        // One of them is away while the other window closes, and comes back.
        a.gate.stop();
        pool.pass_until("2026-03-02T20:40:00Z").await;
        assert_eq!(holders_at(&b).await, holds(&[after]), "{overlap}");
        a.gate.go_on();
        pool.pass_until("2026-03-02T20:50:00Z").await;
        for manager in [&a, &b] {
            assert_eq!(holders_at(manager).await, holds(&[after]), "{overlap}");
        }
        let told = b.composer.schedule_runs().await.unwrap().into_iter();
        let told: Vec<String> = told.map(|run| run.outcome).collect();
        let said = told.iter().filter(|outcome| outcome.contains("left out"));
        assert_eq!(said.count(), left_out, "{overlap}: {told:?}");
        let operations = b.composer.operations().await.unwrap();
        let done = operations
            .iter()
            .filter(|operation| operation.state == OperationState::Completed);
        assert_eq!(
            done.count(),
            3,
            "{overlap}: chat, the night, and what came after it: {operations:#?}"
        );
        stop.cancel();
        for run in runs {
            run.await.unwrap();
        }
        managers::all_is_well(&mut pool, &[&a, &b]).await;
    }
}

/// Fault 71: left out, where that is asked for, and once.
#[tokio::test(start_paused = true)]
async fn a_missed_opening_is_left_out_where_its_schedule_says_so() {
    let mut pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
    let mut strict = night();
    strict["missed"] = json!("skip");
    pool.schedule(strict).await;
    pool.crash().await;
    tokio::time::sleep(Duration::from_secs(10 * 3600)).await;
    pool.open().await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until(NIGHT).await;
    assert_eq!(pool.holders().await, holds(&[("chat", 20)]));
    assert_eq!(pool.operations().await, 1, "nothing was moved");
    clockwork.stop().await;
    pool.restart().await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until(MORNING).await;
    let runs = pool.runs().await;
    assert_eq!(runs.len(), 1, "{runs:?}");
    assert!(runs[0].outcome.contains("it was missed"), "{runs:?}");
    // The next one is not.
    pool.pass_until("2026-03-03T23:00:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("training", 24)]));
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_by_hand_has_its_time_and_no_more() {
    let pool = Pool::of("demo").await;
    let manager = pool.composer();
    pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
    pool.schedule(night()).await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until("2026-03-02T13:00:00Z").await;
    let status = manager.run_schedule(&night_id(), Some(7200), "me").await.unwrap();
    assert!(status.open);
    assert!(
        status.next_change.unwrap() < at("2026-03-02T15:01:00Z"),
        "{status:?}"
    );
    pool.pass_until("2026-03-02T14:00:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("training", 24)]));
    let twice = manager.run_schedule(&night_id(), None, "me").await.unwrap_err();
    assert_eq!(twice.code, ErrorCode::Conflict, "{twice}");
    pool.pass_until("2026-03-02T16:00:00Z").await;
    assert_eq!(
        pool.holders().await,
        holds(&[("chat", 20)]),
        "back after two hours"
    );

    // Without a time it lasts until the window would close; a pause ends it.
    let until = manager
        .run_schedule(&night_id(), None, "me")
        .await
        .unwrap()
        .schedule
        .by_hand;
    assert_eq!(until.unwrap().until, at(MORNING));
    pool.pass_until("2026-03-02T17:00:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("training", 24)]));
    manager.pause_schedule(&night_id(), true).await.unwrap();
    pool.pass_until("2026-03-02T17:30:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("chat", 20)]));
    let paused = manager.run_schedule(&night_id(), None, "me").await.unwrap_err();
    assert!(paused.hint.unwrap().contains("schedule resume night"));
    assert_eq!(
        manager
            .next_openings(Some(&night_id()), 5)
            .await
            .unwrap_err()
            .code,
        ErrorCode::Conflict
    );
    manager.pause_schedule(&night_id(), false).await.unwrap();
    pool.pass_until("2026-03-02T18:00:00Z").await;
    assert_eq!(
        pool.holders().await,
        holds(&[("chat", 20)]),
        "it does not come back"
    );
    let due = manager.next_openings(None, 5).await.unwrap();
    let opens: Vec<String> = due.iter().map(|due| due.opens.to_string()).collect();
    assert_eq!(opens[..2], [EVENING, NEXT_EVENING]);
    assert_eq!(due.len(), 5);
    pool.all_is_well().await;
    clockwork.stop().await;
}

/// What is lent keeps its floor, and is back when the window closes, and not only on the way.
#[tokio::test(start_paused = true)]
async fn what_is_lent_keeps_its_floor_and_is_back_by_the_closing() {
    let pool = Pool::of("demo").await;
    let manager = pool.composer();
    let mut chat = gpus("chat", "h100-pcie-80gb", 20);
    chat["floor"] = json!(4);
    pool.composed(chat).await;
    let mut lend = night();
    lend["back_by_close"] = json!(true);
    lend["demands"] = json!([gpus("training", "h100-pcie-80gb", 16)]);
    // Five minutes are assumed while nothing was measured: in three nothing can be back.
    let mut short = lend.clone();
    short["window"] = json!({"opens": "0 20 * * *", "closes": "3 20 * * *"});
    let spec = serde_json::from_value(short.clone()).unwrap();
    let refused = manager.add_schedule(spec).await.unwrap_err();
    assert!(
        refused.message.contains("can't be back by") && refused.hint.is_some(),
        "{refused}"
    );

    pool.schedule(lend).await;
    let clockwork = Clockwork::of(&pool);
    let lent = holds(&[("chat", 4), ("training", 16)]);
    pool.pass_until(NIGHT).await;
    assert_eq!(pool.holders().await, lent);
    let lent_out = pool.truth();
    pool.pass_until("2026-03-03T07:24:00Z").await;
    assert_eq!(pool.holders().await, lent);
    pool.pass_until("2026-03-03T07:29:00Z").await;
    assert_eq!(
        pool.holders().await,
        holds(&[("chat", 20)]),
        "back before it closes"
    );
    assert_eq!(lent_out.len(), 20, "{lent_out:?}");
    // What was measured takes the place of what was assumed: then a short window is long enough.
    for hour in 8..11 {
        let on = format!("2026-03-03T{hour:02}:10:00Z");
        let off = format!("2026-03-03T{hour:02}:30:00Z");
        manager.run_schedule(&night_id(), Some(600), "me").await.unwrap();
        pool.pass_until(&on).await;
        pool.pass_until(&off).await;
    }
    let returns = manager.schedule(&night_id()).await.unwrap().returns.unwrap();
    assert!(returns.measured >= 5 && returns.p95_s < 170, "{returns}");
    manager.remove_schedule(&night_id()).await.unwrap();
    // So it counts also where nobody is promised when what is lent is back.
    let mut brief = night();
    (brief["id"], brief["demands"]) = ("brief".into(), json!([]));
    pool.schedule(brief).await;
    let brief = ScheduleId::new("brief").unwrap();
    let refused = manager.run_schedule(&brief, Some(1), "me").await.unwrap_err();
    assert!(refused.message.contains("it would lend for 1 s"), "{refused}");
    manager.remove_schedule(&brief).await.unwrap();
    pool.pass_until("2026-03-03T12:00:00Z").await;
    pool.schedule(short).await;
    pool.pass_until("2026-03-03T20:02:00Z").await;
    assert_eq!(pool.holders().await, lent);
    pool.pass_until("2026-03-03T20:03:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("chat", 20)]));
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_serves_a_model_keeps_its_floor_of_the_gpus_that_it_has() {
    let pool = Pool::of("demo").await;
    pool.composed(json!({"id": "chat", "model": "70B", "task": "infer", "floor": 2}))
        .await;
    let (all, served) = (pool.holders().await["chat"], pool.truth());
    assert!(all > 2, "{all}");
    let mut lend = night();
    lend["demands"] = json!([]);
    pool.schedule(lend).await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until(NIGHT).await;
    assert_eq!(pool.holders().await, holds(&[("chat", 2)]));
    let kept = pool.truth();
    assert!(
        kept.iter().all(|(gpu, port)| served.get(gpu) == Some(port)),
        "{kept:?} of {served:?}"
    );
    pool.pass_until("2026-03-03T08:00:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("chat", all)]));
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_floor_that_makes_no_sense_is_refused() {
    let pool = Pool::of("demo").await;
    for (floor, mut chat) in [
        (0, gpus("chat", "h100-pcie-80gb", 4)),
        (4, gpus("chat", "h100-pcie-80gb", 4)),
        (5, gpus("chat", "h100-pcie-80gb", 4)),
        (0, json!({"id": "chat", "model": "70B", "task": "infer"})),
        (99, json!({"id": "chat", "model": "70B", "task": "infer"})),
    ] {
        chat["floor"] = json!(floor);
        let refused = pool
            .composer()
            .add_demand(crate::stories::kit::spec(chat))
            .await
            .unwrap_err();
        assert!(
            refused.message.contains(&format!("a floor of {floor} GPUs")),
            "{refused}"
        );
    }
}
