//! What runs by itself is in the audit log, with what it was for and who set that up.

use crate::stories::calendar::*;
use crate::stories::kit::{Pool, gpus, spec};
use crate::stories::queueing::job;
use poolwright_service::audit::{Entry, Kind};
use serde_json::json;

impl Pool {
    /// What began and ended by itself, in its order.
    async fn by_itself(&self) -> Vec<Entry> {
        let entries = self.composer().audit().after(0, 1000).await.unwrap();
        let is_so = |entry: &Entry| matches!(entry.record.kind, Kind::Began | Kind::Ended);
        entries.into_iter().filter(is_so).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_schedule_and_the_queue_do_is_in_the_log_with_who_set_it_up() {
    let pool = Pool::of("demo").await;
    let clockwork = Clockwork::of(&pool);
    pool.composed(gpus("chat", "h100-pcie-80gb", 12)).await;
    let night = serde_json::from_value(night()).unwrap();
    pool.composer().add_schedule_by(night, "kim").await.unwrap();
    let job = spec(job("batch", 2, json!({"at_most": "1h"})));
    pool.composer().add_demand_by(job, "lee").await.unwrap();
    pool.settles().await;
    let log = pool.by_itself().await;
    let [began, ended] = log.as_slice() else {
        panic!("{log:?}")
    };
    assert_eq!(
        (began.record.kind, began.record.by.as_deref()),
        (Kind::Began, Some("queue"))
    );
    assert_eq!(
        (began.record.what.as_str(), began.record.on.as_str()),
        ("queue", "demand/batch")
    );
    assert_eq!(began.record.said["set_up_by"], "lee");
    let operation = pool.composer().operations().await.unwrap().remove(0);
    assert_eq!(began.record.made, Some(operation.id.to_string()));
    assert_eq!(ended.record.made, began.record.made);
    assert_eq!(ended.record.said["state"], "completed");
    assert!(
        began
            .to_string()
            .contains("queue begins by itself queue demand/batch"),
        "{began}"
    );

    pool.is_done("batch").await;
    pool.pass_until(NIGHT).await;
    let log = pool.by_itself().await;
    let evening = log.iter().find(|entry| entry.record.what == "schedule");
    let evening = &evening.unwrap().record;
    assert!(evening.on.contains("schedule/night"), "{evening:?}");
    // The demand that makes way was asked for by somebody else.
    let who = evening.said["set_up_by"].as_str().unwrap();
    assert!(who.contains("kim"), "{evening:?}");
    let began = log
        .iter()
        .filter(|entry| entry.record.kind == Kind::Began)
        .count();
    assert_eq!(began * 2, log.len(), "each has ended: {log:?}");
    // The way back is one, too.
    pool.pass_until("2026-03-03T08:00:00Z").await;
    let back = pool.by_itself().await;
    let back = back
        .iter()
        .filter(|entry| entry.record.on.contains("schedule/night"))
        .count();
    assert!(back > 1, "{back}");
    clockwork.stop().await;
}
