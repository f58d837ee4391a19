//! What stories about schedules share: a night that makes way for training, and a runner.

use crate::stories::kit::{Pool, at, gpus};
use poolwright_executor::Clock as _;
use poolwright_model::id::ScheduleId;
use poolwright_service::schedule::ScheduleSpec;
use poolwright_service::{ScheduleStatus, runner};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub const EVENING: &str = "2026-03-02T20:00:00Z";
pub const NIGHT: &str = "2026-03-02T23:00:00Z";
pub const MORNING: &str = "2026-03-03T07:30:00Z";
pub const NEXT_EVENING: &str = "2026-03-03T20:00:00Z";

/// By night, from 20:00 to 7:30, `chat` makes way for `training`.
pub fn night() -> Value {
    json!({
        "id": "night",
        "window": {"opens": "0 20 * * *", "closes": "30 7 * * *"},
        "suspends": ["chat"],
        "demands": [gpus("training", "h100-pcie-80gb", 24)],
    })
}

pub fn night_id() -> ScheduleId {
    ScheduleId::new("night").unwrap()
}

pub fn holds(expected: &[(&str, u32)]) -> BTreeMap<String, u32> {
    expected
        .iter()
        .map(|(id, count)| ((*id).to_owned(), *count))
        .collect()
}

/// A runner that stops with its handle.
pub struct Clockwork {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Clockwork {
    pub fn of(pool: &Pool) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(runner::run(pool.composer().clone(), stop.clone()));
        Self { stop, task }
    }

    pub async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

impl Pool {
    /// How the night schedule stands.
    pub async fn night(&self) -> ScheduleStatus {
        self.composer().schedule(&night_id()).await.unwrap()
    }

    pub async fn schedule(&self, schedule: Value) -> ScheduleStatus {
        let spec: ScheduleSpec = serde_json::from_value(schedule).unwrap();
        self.composer().add_schedule(spec).await.unwrap()
    }

    pub async fn sleep_until(&self, time: &str) {
        let time = at(time);
        while self.clock.now() < time {
            let left = time.duration_since(self.clock.now());
            tokio::time::sleep(Duration::try_from(left).unwrap() + Duration::from_millis(1)).await;
        }
    }

    /// Lets the time pass, until then and until nothing goes on any more.
    pub async fn pass_until(&self, time: &str) {
        self.sleep_until(time).await;
        // The runner may be about to begin, or between two tries.
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.quiet().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    pub async fn runs(&self) -> Vec<runner::ScheduleRun> {
        self.composer().schedule_runs().await.unwrap()
    }

    pub async fn operations(&self) -> usize {
        self.composer().operations().await.unwrap().len()
    }
}
