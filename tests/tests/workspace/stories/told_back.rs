//! What is told of a return is so: who has nothing back yet is not said to have, a run by hand ends in time for its
//! return, and `why` names who suspends a demand and until when.

use crate::stories::calendar::*;
use crate::stories::kit::{Pool, demand_id, gpus};
use poolwright_service::{ErrorCode, ServiceError};
use serde_json::{Value, json};

async fn pool() -> (Pool, Clockwork) {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 8)).await;
    let clockwork = Clockwork::of(&pool);
    (pool, clockwork)
}

fn lends(id: &str, closes: &str, gpus_of: u32) -> Value {
    json!({
        "id": id, "suspends": ["chat"], "reclaim_s": 600,
        "window": {"opens": "0 20 * * *", "closes": closes},
        "demands": [gpus(&format!("{id}-job"), "h100-pcie-80gb", gpus_of)],
    })
}

async fn run(pool: &Pool, for_s: u32) -> Result<poolwright_service::ScheduleStatus, ServiceError> {
    pool.composer().run_schedule(&night_id(), Some(for_s), "me").await
}

async fn because(pool: &Pool) -> String {
    let why = pool.composer().why(&demand_id("chat")).await.unwrap();
    why.because.join("\n")
}

async fn told_of_returns(pool: &Pool) -> Vec<String> {
    let runs = pool.runs().await.into_iter();
    let told = runs
        .map(|run| run.outcome)
        .filter(|outcome| outcome.contains("lent"));
    told.collect()
}

#[tokio::test(start_paused = true)]
async fn what_another_schedule_lends_on_is_not_said_to_be_back() {
    let (pool, clockwork) = pool().await;
    pool.schedule(lends("first", "0 22 * * *", 4)).await;
    pool.schedule(lends("second", "0 6 * * *", 4)).await;
    pool.pass_until(NIGHT).await;
    assert_eq!(pool.holders().await, holds(&[("second-job", 4)]));
    let told = told_of_returns(&pool).await;
    assert_eq!(
        told,
        ["what first lent: chat is not back, and is lent by schedule second now"]
    );
    pool.pass_until("2026-03-03T06:30:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("chat", 8)]));
    let told = told_of_returns(&pool).await;
    assert!(told[1].starts_with("what second lent is back after"), "{told:?}");
    assert_eq!(told.len(), 2, "{told:?}");
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_by_hand_leaves_time_for_its_return_or_is_refused() {
    let (pool, clockwork) = pool().await;
    let mut lend = night();
    lend["back_by_close"] = json!(true);
    pool.schedule(lend).await;
    let refused = run(&pool, 300).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::BadRequest);
    assert!(
        refused.message.contains("a return takes 300 s, which is assumed")
            && refused.message.contains("there are 300 s"),
        "{refused}"
    );
    run(&pool, 1800).await.unwrap();
    pool.pass_until("2026-03-02T12:24:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("training", 24)]));
    assert!(
        because(&pool).await.contains("until 2026-03-02T12:25"),
        "{}",
        because(&pool).await
    );
    assert!(
        because(&pool).await.contains("back by 2026-03-02T12:30"),
        "{}",
        because(&pool).await
    );
    pool.pass_until("2026-03-02T12:30:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("chat", 8)]));
    let told = told_of_returns(&pool).await;
    assert!(
        told[0].contains("back after") && !told[0].contains("late"),
        "{told:?}"
    );
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn back_by_a_closing_that_never_comes_is_refused() {
    let (pool, clockwork) = pool().await;
    let mut lend = night();
    lend["window"] = json!({"weekly": ["daily 00:00-24:00"]});
    lend["back_by_close"] = json!(true);
    let spec = serde_json::from_value(lend).unwrap();
    let refused = pool.composer().add_schedule(spec).await.unwrap_err();
    assert!(refused.message.contains("never closes"), "{refused}");
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn why_names_who_suspends_a_demand_with_a_floor_and_when_that_ends() {
    let pool = Pool::of("demo").await;
    let mut chat = gpus("chat", "h100-pcie-80gb", 8);
    chat["floor"] = json!(2);
    pool.composed(chat).await;
    pool.schedule(night()).await;
    let clockwork = Clockwork::of(&pool);
    run(&pool, 600).await.unwrap();
    pool.pass_until("2026-03-02T12:05:00Z").await;
    let told = because(&pool).await;
    assert!(
        told.contains("schedule night suspends it until 2026-03-02T12:10:0"),
        "{told}"
    );
    assert!(told.contains("down to its floor of 2"), "{told}");
    assert!(!told.contains("could be served now"), "{told}");
    pool.pass_until("2026-03-02T12:20:00Z").await;
    assert!(
        !because(&pool).await.contains("suspends"),
        "{}",
        because(&pool).await
    );
    clockwork.stop().await;
}
