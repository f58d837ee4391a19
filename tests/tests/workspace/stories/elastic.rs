//! Demands that are content with fewer GPUs than they want.

use crate::stories::calendar::*;
use crate::stories::kit::{Pool, gpus, spec};
use serde_json::{Value, json};

fn elastic(id: &str, least: u32, most: u32) -> Value {
    let mut demand = gpus(id, "h100-pcie-80gb", most);
    demand["least_gpus"] = json!(least);
    demand
}

/// An elastic demand gets the available GPUs and more with each later plan; no other compose takes them.
#[tokio::test(start_paused = true)]
async fn it_has_what_there_is_and_grows_by_a_plan() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 16)).await;
    pool.composed(elastic("train", 4, 20)).await;
    assert_eq!(pool.holders().await, holds(&[("chat", 16), ("train", 8)]));
    let plan = pool.composer().plan().await.unwrap();
    assert!(plan.changes_nothing(), "{plan:?}");
    pool.released("chat").await;
    pool.composed(gpus("lab", "h100-pcie-80gb", 4)).await;
    assert_eq!(pool.holders().await, holds(&[("lab", 4), ("train", 8)]));
    let plan = pool.composer().plan().await.unwrap();
    assert!(plan.releases.is_empty(), "{plan:?}");
    pool.applied(plan).await;
    assert_eq!(pool.holders().await, holds(&[("lab", 4), ("train", 20)]));
    pool.compose(gpus("late", "h100-pcie-80gb", 4)).await.unwrap_err();
    let plan = pool.composer().plan().await.unwrap();
    assert!(plan.changes_nothing(), "{plan:?}");
    pool.all_is_well().await;
}

/// A job begins with the available GPUs, and a window takes its GPUs beside other demands.
#[tokio::test(start_paused = true)]
async fn a_job_begins_with_what_there_is() {
    let pool = Pool::of("demo").await;
    let clockwork = Clockwork::of(&pool);
    pool.composed(gpus("chat", "h100-pcie-80gb", 18)).await;
    let mut job = elastic("sweep", 4, 16);
    job["queue"] = json!({"runs_for": "2h"});
    pool.submit(job).await;
    pool.settles().await;
    assert_eq!(pool.holders().await, holds(&[("chat", 18), ("sweep", 6)]));
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_contradicts_itself_is_refused() {
    let pool = Pool::of("demo").await;
    for least in [0, 9] {
        let refused = pool.compose(elastic("train", least, 8)).await.unwrap_err();
        assert!(refused.message.contains("least_gpus"), "{refused}");
    }
    let mut model = elastic("serve", 1, 8);
    model["gpus"] = Value::Null;
    model["kind"] = Value::Null;
    model["model"] = json!("8B");
    model["task"] = json!("infer");
    let refused = pool.composer().add_demand(spec(model)).await.unwrap_err();
    assert!(refused.message.contains("least_gpus"), "{refused}");
}
