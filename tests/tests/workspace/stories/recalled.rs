//! A manager that comes back shows the pool as it was before it has looked at it, and says so.

use crate::stories::calendar::Clockwork;
use crate::stories::kit::{Pool, gpus};
use poolwright_emulator::Rack;
use poolwright_emulator::fault::{Fault, FaultKind as RackFault};
use poolwright_emulator::rack::GpuIx;
use poolwright_model::fault::FaultKind;
use poolwright_model::lifecycle::GpuState;
use poolwright_service::ErrorCode;
use poolwright_store::SqliteStore;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

const POLL: Duration = Duration::from_secs(30);
/// Longer than the first looks take.
const SOON: Duration = Duration::from_secs(20);
const COMMON: &str = "h100-pcie-80gb";

async fn polled(rack: &str) -> Pool {
    let mut pool = Pool::bare(
        Rack::builtin(rack).unwrap(),
        Arc::new(SqliteStore::in_memory().unwrap()),
    );
    pool.options.poll = Some(POLL);
    pool.open().await;
    pool.add_all_endpoints().await;
    // What was seen is kept once somebody has asked for it.
    pool.snapshot().await;
    pool
}

impl Pool {
    /// How many GPUs are shown in all, and how many of them as they were before the start.
    async fn shown_as_before(&self) -> (usize, usize) {
        let gpus = self.composer().gpus().await.unwrap();
        let as_before = gpus.iter().filter(|gpu| gpu.stale && gpu.observed_at.is_none());
        (gpus.len(), as_before.count())
    }

    fn silence_all(&self) {
        self.fault(Fault::new(RackFault::TimeOutBefore));
    }
}

#[tokio::test(start_paused = true)]
async fn the_pool_is_shown_at_once_and_marked_until_it_was_looked_at() {
    let mut pool = polled("demo").await;
    pool.composed(gpus("chat", COMMON, 2)).await;
    let (shown, truth) = (pool.shown().await, pool.truth());
    let all = pool.snapshot().await.topology.gpus.len();
    pool.crash().await;
    pool.open().await;
    assert_eq!(pool.shown_as_before().await, (all, all));
    assert_eq!(pool.shown().await, shown, "who holds what is written down");
    assert_eq!(shown, truth);
    let snapshot = pool.snapshot().await;
    let not_looked_at = snapshot
        .faults
        .iter()
        .filter(|fault| fault.kind == FaultKind::NotLookedAt);
    assert_eq!(
        not_looked_at.count(),
        pool.composer().endpoints().await.unwrap().len()
    );
    assert!(pool.composer().silent().is_empty(), "nobody was asked yet");

    let clockwork = Clockwork::of(&pool);
    tokio::time::sleep(SOON).await;
    assert_eq!(pool.shown_as_before().await, (all, 0));
    assert!(pool.snapshot().await.faults.is_empty());
    pool.all_is_well().await;
    clockwork.stop().await;
}

/// What a change rests on is read first, and refused where that can't be.
#[tokio::test(start_paused = true)]
async fn a_change_reads_what_it_rests_on() {
    let mut pool = polled("demo").await;
    pool.restart().await;
    pool.silence_all();
    let refused = pool.compose(gpus("chat", COMMON, 1)).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Stale, "{refused}");
    assert!(
        refused.message.contains("not read since the manager started"),
        "{refused}"
    );
    assert!(pool.truth().is_empty() && pool.demands().await.is_empty());

    pool.emulation.clear_faults();
    pool.restart().await;
    pool.composed(gpus("chat", COMMON, 1)).await;
    let (all, as_before) = pool.shown_as_before().await;
    assert!(
        as_before > 0 && as_before < all,
        "the others nobody has looked at: {as_before} of {all}"
    );
    pool.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_bound_meanwhile_is_not_given_away() {
    let mut pool = polled("small").await;
    pool.crash().await;
    for at in 0..8 {
        let gpu = pool.emulation.rack().gpu_name(GpuIx(at));
        pool.bind_by_others(&gpu, "host-1/port-1");
    }
    pool.open().await;
    let refused = pool.compose(gpus("chat", COMMON, 1)).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Unplaced, "{refused}");
    assert_eq!(pool.truth().len(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_gpu_that_was_pulled_meanwhile_is_missing_and_not_forgotten() {
    let mut pool = polled("demo").await;
    pool.composed(gpus("chat", COMMON, 1)).await;
    let (name, _) = pool.truth().pop_first().unwrap();
    pool.crash().await;
    let gpu = pool.gpu_ix(&name);
    pool.emulation.with(|state, now| state.vanish(gpu, now));
    pool.open().await;
    assert_ne!(pool.gpu(&name).await.state, GpuState::Missing);
    let clockwork = Clockwork::of(&pool);
    pool.until("it is missed", async || {
        pool.gpu(&name).await.state == GpuState::Missing
    })
    .await;
    assert_eq!(pool.holders().await["chat"], 1);
    clockwork.stop().await;
}

/// The calendar rests on all endpoints: it waits for the first look at them.
#[tokio::test(start_paused = true)]
async fn a_window_that_is_open_at_the_start_is_served_without_a_failed_try() {
    let mut pool = polled("demo").await;
    pool.crash().await;
    pool.open().await;
    pool.schedule(json!({
        "id": "noon", "window": {"opens": "0 11 * * *", "closes": "0 13 * * *"}, "suspends": [],
        "demands": [gpus("night", COMMON, 2)],
    }))
    .await;
    pool.restart().await;
    let clockwork = Clockwork::of(&pool);
    pool.until("it is served", async || {
        pool.holders().await.get("night") == Some(&2)
    })
    .await;
    let runs = pool.composer().schedule_runs().await.unwrap();
    assert!(runs.iter().all(|run| run.reason.is_none()), "{runs:?}");
    clockwork.stop().await;
}

/// An operation that was under way goes on at once: what it touches is looked at before anybody may ask.
#[tokio::test(start_paused = true)]
async fn what_was_under_way_is_carried_on() {
    for step in 0..10 {
        let mut pool = polled("demo").await;
        pool.compose(gpus("chat", COMMON, 4)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(40 * step)).await;
        pool.restart().await;
        pool.quiet().await;
        assert_eq!(pool.holders().await["chat"], 4, "{step}");
        let tally = pool.emulation.with(|state, _| state.tally());
        assert_eq!(
            (tally.binds, tally.unbinds),
            (4, 0),
            "nothing was done twice, {step}"
        );
        pool.all_is_well().await;
    }
}

/// Letting go needs no look; the operation reaches what nobody has asked yet.
#[tokio::test(start_paused = true)]
async fn what_is_held_can_be_released_before_anybody_looked() {
    let mut pool = polled("demo").await;
    pool.composed(gpus("chat", COMMON, 2)).await;
    pool.restart().await;
    let (all, as_before) = pool.shown_as_before().await;
    assert_eq!(all, as_before);
    pool.released("chat").await;
    assert!(pool.truth().is_empty());
}
