//! What a window wants is attached before it opens, by what attaches were measured to take here; whoever has its GPUs
//! keeps them until then.

use crate::calendar::*;
use crate::kit::{Pool, at, gpus};
use jiff::{SignedDuration, Timestamp};
use poolwright_executor::Clock as _;
use poolwright_service::DueOpening;
use serde_json::{Value, json};

const H100: &str = "h100-pcie-80gb";

/// By night, in time for 20:00, beside all others.
fn lone_night(count: u32) -> Value {
    json!({
        "id": "night",
        "window": {"opens": "0 20 * * *", "closes": "30 7 * * *"},
        "demands": [gpus("training", H100, count)],
    })
}

impl Pool {
    /// As many attaches as are enough to go by.
    async fn attaches_are_measured(&self) {
        for name in ["a", "b", "c", "d", "e"] {
            self.composed(gpus(name, H100, 1)).await;
        }
        for name in ["a", "b", "c", "d", "e"] {
            self.released(name).await;
        }
    }

    async fn next_night(&self) -> DueOpening {
        let next = self.composer().next_openings(Some(&night_id()), 1).await.unwrap();
        next.into_iter().next().unwrap()
    }
}

fn before(moment: Timestamp) -> String {
    (moment - SignedDuration::from_secs(1)).to_string()
}

#[tokio::test(start_paused = true)]
async fn its_gpus_are_there_when_the_window_opens_and_stay_for_it() {
    let mut pool = Pool::of("demo").await;
    pool.attaches_are_measured().await;
    pool.schedule(lone_night(16)).await;
    let due = pool.next_night().await;
    let (from, lead) = (due.attached_from.unwrap(), due.lead.unwrap());
    assert_eq!((due.opens, lead.measured, lead.rounds), (at(EVENING), 5, 2));
    assert_eq!(from, at(EVENING) - lead.length());

    let mut clockwork = Clockwork::of(&pool);
    pool.sleep_until(&before(from)).await;
    assert_eq!(pool.holders().await, holds(&[]), "no sooner than they must");
    pool.sleep_until(EVENING).await;
    assert_eq!(pool.holders().await, holds(&[("training", 16)]), "{lead}");
    let bound = pool.truth();
    assert_eq!(bound.len(), 16, "the rack says so, too");

    // A night later, with a restart before it opens.
    pool.pass_until(MORNING).await;
    assert_eq!(pool.holders().await, holds(&[]));
    let from = pool.next_night().await.attached_from.unwrap();
    pool.sleep_until(&from.to_string()).await;
    pool.until("training is being attached", async || {
        !pool.store.open_operations().await.unwrap().is_empty()
    })
    .await;
    clockwork.stop().await;
    pool.restart().await;
    clockwork = Clockwork::of(&pool);
    pool.until("training has its GPUs", async || {
        pool.holders().await == holds(&[("training", 16)])
    })
    .await;
    assert!(!pool.night().await.open && pool.clock.now() < at(NEXT_EVENING));
    let told = pool.because("training").await;
    assert!(told.contains("attached before schedule night opens"), "{told}");
    pool.pass_until("2026-03-03T23:00:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("training", 16)]));
    let runs = pool.runs().await;
    assert!(runs.iter().all(|run| run.succeeded), "{runs:#?}");

    // Whoever thinks better of it has them back before it would have opened.
    pool.pass_until("2026-03-04T07:30:00Z").await;
    let from = pool.next_night().await.attached_from.unwrap();
    pool.pass_until(&from.to_string()).await;
    assert_eq!(pool.holders().await, holds(&[("training", 16)]));
    pool.composer().remove_schedule(&night_id()).await.unwrap();
    pool.until("all is free again", async || pool.holders().await.is_empty())
        .await;
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nobody_is_stopped_for_it_before_the_window_opens() {
    let pool = Pool::of("demo").await;
    pool.attaches_are_measured().await;
    pool.composed(gpus("chat", H100, 20)).await;
    pool.schedule(night()).await;
    let clockwork = Clockwork::of(&pool);
    assert!(pool.next_night().await.attached_from.unwrap() < at(EVENING));
    pool.sleep_until(&before(at(EVENING))).await;
    assert_eq!(pool.holders().await, holds(&[("chat", 20)]));
    assert_eq!(pool.night().await.trouble, None, "it may wait for its window");
    pool.pass_until(NIGHT).await;
    assert_eq!(pool.holders().await, holds(&[("training", 24)]));
    let runs = pool.runs().await;
    assert!(runs.iter().all(|run| run.succeeded), "{runs:#?}");
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn where_nothing_was_measured_they_are_attached_at_the_opening() {
    let pool = Pool::of("demo").await;
    pool.schedule(lone_night(16)).await;
    assert_eq!(pool.next_night().await.attached_from, None);
    let clockwork = Clockwork::of(&pool);
    pool.sleep_until(&before(at(EVENING))).await;
    assert_eq!(pool.holders().await, holds(&[]));
    pool.pass_until(NIGHT).await;
    assert_eq!(pool.holders().await, holds(&[("training", 16)]));
    clockwork.stop().await;
}
