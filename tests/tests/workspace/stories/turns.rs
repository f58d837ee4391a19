//! Whose turn it is in the queue: by what is left to do, with ageing; by priority; and by what tenants hold.

use crate::stories::calendar::*;
use crate::stories::kit::Pool;
use crate::stories::queueing::job;
use poolwright_model::id::TenantId;
use poolwright_service::tenant::NewTenant;
use serde_json::{Value, json};
use std::time::Duration;

async fn minutes(minutes: u64) {
    tokio::time::sleep(Duration::from_secs(60 * minutes)).await;
}

fn runs(id: &str, gpus: u32, hours: u32) -> Value {
    job(id, gpus, json!({"runs_for": format!("{hours}h")}))
}

fn of(tenant: &str, mut job: Value) -> Value {
    job["tenant"] = json!(tenant);
    job
}

fn urgent(priority: i32, mut job: Value) -> Value {
    job["priority"] = json!(priority);
    job
}

/// Nothing runs the queue while time passes here: what is told is what would begin.
#[tokio::test(start_paused = true)]
async fn where_much_waits_short_jobs_go_first_and_a_long_one_does_not_wait_for_ever() {
    let pool = Pool::of("demo").await;
    pool.submit(runs("long", 8, 40)).await;
    minutes(10).await;
    pool.submit(runs("short", 8, 1)).await;
    assert_eq!(pool.in_line().await, ["short", "long"]);
    pool.composer()
        .remove_demand(&"short".parse().unwrap())
        .await
        .unwrap();
    // It has aged: what comes much later comes after it.
    minutes(3 * 24 * 60).await;
    pool.submit(runs("later", 8, 1)).await;
    assert_eq!(pool.in_line().await, ["long", "later"]);
}

#[tokio::test(start_paused = true)]
async fn the_order_follows_what_waits_now_and_jobs_begin_in_it() {
    let pool = Pool::of("demo").await;
    let clockwork = Clockwork::of(&pool);
    pool.submit(runs("most", 20, 9)).await;
    pool.settles().await;
    clockwork.stop().await;
    pool.submit(runs("medium", 4, 4)).await;
    minutes(50).await;
    pool.submit(runs("small", 4, 1)).await;
    assert_eq!(
        pool.in_line().await,
        ["medium", "small"],
        "little waits: first come, first served"
    );
    pool.submit(runs("vast", 24, 90)).await;
    assert_eq!(pool.in_line().await, ["small", "medium", "vast"]);
    let vast = "vast".parse().unwrap();
    pool.composer().remove_demand(&vast).await.unwrap();
    assert_eq!(
        pool.in_line().await,
        ["medium", "small"],
        "and little waits again"
    );

    // An hour earlier for each step of priority, and no more.
    minutes(10).await;
    pool.submit(urgent(1, runs("urgent", 4, 1))).await;
    assert_eq!(pool.in_line().await, ["urgent", "medium", "small"]);
    minutes(90).await;
    pool.submit(urgent(1, runs("late", 4, 1))).await;
    assert_eq!(pool.in_line().await, ["urgent", "medium", "small", "late"]);

    let clockwork = Clockwork::of(&pool);
    for begins in ["urgent", "medium", "small", "late"] {
        pool.settles().await;
        assert_eq!(pool.holders().await, holds(&[("most", 20), (begins, 4)]));
        pool.is_done(begins).await;
    }
    pool.settles().await;
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_holds_more_than_its_share_is_put_back_by_its_weight() {
    let pool = Pool::of("demo").await;
    let clockwork = Clockwork::of(&pool);
    pool.submit(of("many", runs("most", 16, 9))).await;
    pool.settles().await;
    clockwork.stop().await;
    pool.submit(of("many", runs("more", 8, 1))).await;
    minutes(90).await;
    pool.submit(of("few", runs("first", 8, 1))).await;
    // It holds all that is held, twice its half: two hours.
    assert_eq!(pool.in_line().await, ["first", "more"]);
    let weight = async |weight| {
        let new = NewTenant {
            weight: Some(weight),
            ..NewTenant::default()
        };
        let many = TenantId::from_lossy("many");
        pool.composer().set_tenant(&many, &new).await.unwrap();
    };
    weight(2).await;
    // Two thirds are its share now, and it holds them one and a half times: an hour.
    assert_eq!(pool.in_line().await, ["more", "first"]);
    weight(1).await;
    let clockwork = Clockwork::of(&pool);
    pool.settles().await;
    assert_eq!(pool.holders().await, holds(&[("first", 8), ("most", 16)]));
    pool.all_is_well().await;
    clockwork.stop().await;
}
