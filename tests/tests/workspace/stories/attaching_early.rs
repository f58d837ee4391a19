//! What a window wants is attached before it opens, by what attaches were measured to take here; whoever has its GPUs
//! keeps them until then.

use crate::stories::calendar::*;
use crate::stories::kit::{Pool, at, demand_id, gpus};
use jiff::{SignedDuration, Timestamp};
use poolwright_emulator::rack::Rack;
use poolwright_executor::Clock as _;
use poolwright_service::DueOpening;
use poolwright_service::early::Early;
use poolwright_service::keep::{Keep, Level};
use poolwright_service::schedule::Schedule;
use poolwright_store::{Batch, Layer, SqliteStore, Store, StoreError, Stored, Versioned, read};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

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

    /// The night as it is kept.
    async fn kept_night(&self) -> Versioned<Schedule> {
        let found = read::<Schedule>(self.store.as_ref(), "night").await.unwrap();
        found.unwrap()
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

/// Of two that open together with GPUs for one.
async fn two_nights(priority: i32, other: i32) -> Pool {
    let pool = Pool::of("demo").await;
    pool.attaches_are_measured().await;
    pool.composed(gpus("chat", H100, 16)).await;
    for (id, demand, priority) in [("batch", "batch", priority), ("urgent", "urgent", other)] {
        let mut wants = gpus(demand, H100, 8);
        wants["priority"] = json!(priority);
        let mut night = lone_night(8);
        (night["id"], night["demands"]) = (json!(id), json!([wants]));
        pool.schedule(night).await;
    }
    pool
}

#[tokio::test(start_paused = true)]
async fn nothing_is_taken_early_that_one_who_goes_first_at_the_opening_would_lack() {
    for (batch, urgent, served) in [(0, 100, "urgent"), (100, 0, "batch")] {
        let pool = two_nights(batch, urgent).await;
        let clockwork = Clockwork::of(&pool);
        pool.sleep_until(&before(at(EVENING))).await;
        for demand in ["batch", "urgent"] {
            let told = pool.because(demand).await;
            assert_eq!(told.contains("attached before"), demand == served, "{told}");
        }
        pool.pass_until(NIGHT).await;
        assert_eq!(pool.holders().await, holds(&[("chat", 16), (served, 8)]));
        clockwork.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_taken_early_that_is_lacking_where_one_opens_that_suspends_another() {
    let pool = Pool::of("demo").await;
    pool.attaches_are_measured().await;
    pool.composed(gpus("chat", H100, 16)).await;
    let mut large = night();
    large["demands"][0]["priority"] = json!(100);
    pool.schedule(large).await;
    let mut small = lone_night(8);
    (small["id"], small["demands"]) = (json!("batch"), json!([gpus("batch", H100, 8)]));
    pool.schedule(small).await;
    let clockwork = Clockwork::of(&pool);
    pool.sleep_until(&before(at(EVENING))).await;
    assert_eq!(pool.holders().await, holds(&[("chat", 16)]));
    pool.pass_until(NIGHT).await;
    assert_eq!(pool.holders().await, holds(&[("training", 24)]));
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_ends_what_was_decided_for_the_opening() {
    let pool = Pool::of("demo").await;
    pool.attaches_are_measured().await;
    pool.schedule(lone_night(16)).await;
    let clockwork = Clockwork::of(&pool);
    pool.sleep_until(&pool.next_night().await.attached_from.unwrap().to_string())
        .await;
    pool.until("it is decided", async || {
        pool.kept_night().await.value.early.is_some()
    })
    .await;
    pool.composer().pause_schedule(&night_id(), true).await.unwrap();
    assert_eq!(pool.kept_night().await.value.early, None);
    pool.until("all is free again", async || pool.holders().await.is_empty())
        .await;
    clockwork.stop().await;
}

/// What was free when it was decided is not any more.
#[tokio::test(start_paused = true)]
async fn what_is_kept_for_others_stays_until_the_window_opens() {
    let mut pool = Pool::of("demo").await;
    pool.options.keep = Some(Keep {
        level: Level::P50,
        ahead_h: 2,
        most_gpus: 8,
        attach: false,
    });
    pool.restart().await;
    pool.sleep_until("2026-03-02T19:30:00Z").await;
    pool.composed(gpus("chat", H100, 4)).await;
    let days_ago = pool.clock.now() - SignedDuration::from_hours(90);
    pool.composer().note_wants(days_ago).await.unwrap();
    pool.release("chat").await.unwrap();
    assert_eq!(pool.holders().await, holds(&[("nobody", 4)]));
    let mut wants = gpus("training", H100, 24);
    wants["tenant"] = json!("other");
    let mut others = lone_night(24);
    others["demands"] = json!([wants]);
    pool.schedule(others).await;
    let mut night = pool.kept_night().await;
    night.value.early = Some(Early {
        opens: at(EVENING),
        demands: BTreeSet::from([demand_id("training")]),
    });
    let mut batch = Batch::new();
    batch
        .expect(Schedule::KIND, "night", Some(night.revision))
        .put(&night.value)
        .unwrap();
    pool.store.commit(batch).await.unwrap();
    let clockwork = Clockwork::of(&pool);
    pool.sleep_until(&before(at(EVENING))).await;
    assert_eq!(pool.holders().await, holds(&[("nobody", 4)]));
    assert_eq!(pool.night().await.trouble, None, "it may wait for its window");
    pool.pass_until(NIGHT).await;
    assert_eq!(pool.holders().await, holds(&[("training", 24)]));
    clockwork.stop().await;
}

/// A store whose journals can't be read any more, by which attaches are measured.
struct Torn {
    store: SqliteStore,
    is_torn: Arc<AtomicBool>,
}

impl Layer for Torn {
    fn below(&self) -> &dyn Store {
        &self.store
    }

    async fn read<T: Send>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let of_journal = std::any::type_name::<T>().contains("JournalLine");
        match of_journal && self.is_torn.load(Ordering::SeqCst) {
            true => Err(StoreError::Malformed {
                kind: "journal".to_owned(),
                id: "any".to_owned(),
                reason: "it is torn".to_owned(),
            }),
            false => call.await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn where_nothing_can_be_measured_schedules_run_as_they_would_without() {
    let is_torn = Arc::new(AtomicBool::new(false));
    let store = Torn {
        store: SqliteStore::in_memory().unwrap(),
        is_torn: is_torn.clone(),
    };
    let mut pool = Pool::bare(Rack::builtin("demo").unwrap(), Arc::new(store));
    pool.open().await;
    pool.add_all_endpoints().await;
    pool.attaches_are_measured().await;
    pool.schedule(lone_night(16)).await;
    is_torn.store(true, Ordering::SeqCst);
    let clockwork = Clockwork::of(&pool);
    pool.sleep_until(&before(at(EVENING))).await;
    assert_eq!(pool.holders().await, holds(&[]));
    assert_eq!(pool.night().await.trouble, None, "it may wait for its window");
    pool.pass_until(NIGHT).await;
    assert_eq!(pool.holders().await, holds(&[("training", 16)]));
    clockwork.stop().await;
}

/// Counts reads of the store.
struct Counting(Arc<dyn Store>, Arc<AtomicUsize>);

impl Layer for Counting {
    fn below(&self) -> &dyn Store {
        &*self.0
    }

    async fn read<T: Send>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        call.await
    }
}

/// The duration of a finished operation is read once, however often the manager computes when windows open.
#[tokio::test(start_paused = true)]
async fn whoever_asks_again_when_windows_open_costs_little() {
    let reads = Arc::new(AtomicUsize::new(0));
    let store = Counting(Arc::new(SqliteStore::in_memory().unwrap()), reads.clone());
    let mut pool = Pool::bare(Rack::builtin("demo").unwrap(), Arc::new(store));
    pool.open().await;
    pool.add_all_endpoints().await;
    pool.attaches_are_measured().await;
    pool.schedule(lone_night(2)).await;
    let asked = async || {
        let before = reads.load(Ordering::Relaxed);
        let next = pool.next_night().await;
        (reads.load(Ordering::Relaxed) - before, next)
    };
    let (first, told) = asked().await;
    let (again, same) = asked().await;
    assert_eq!(told, same);
    assert!(told.attached_from.is_some());
    // Five operations attached, and told how long that took.
    assert!(again + 5 <= first, "{first} reads, then {again}");
    // One more is read once, too.
    pool.composed(gpus("f", H100, 1)).await;
    let (more, _) = asked().await;
    assert!(
        (again + 1..first).contains(&more),
        "{first} reads, {again}, then {more}"
    );
    assert_eq!(asked().await.0, again);
}
