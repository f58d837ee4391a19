//! Much of an endpoint that is gone all at once.

use crate::stories::calendar::*;
use crate::stories::kit::{ME, Pool, gpus};
use poolwright_emulator::Rack;
use poolwright_model::composable::WhyNotKind;
use poolwright_model::fault::FaultKind;
use poolwright_model::id::ControlEndpointId;
use poolwright_model::lifecycle::GpuState;
use poolwright_service::limits::NewLimits;
use poolwright_service::{CheckResult, DriftKind, ErrorCode};
use poolwright_store::SqliteStore;
use std::sync::Arc;
use std::time::Duration;

const KIND: &str = "h100-pcie-80gb";

fn box_1() -> ControlEndpointId {
    ControlEndpointId::from_lossy("box-1")
}

/// So many of the 16 GPUs of the first box.
fn first(count: usize) -> Vec<String> {
    (1..=count).map(|n| format!("box-1/gpu-{n}")).collect()
}

impl Pool {
    async fn vanish_all(&self, gpus: &[String]) {
        self.composer().discover(&()).await.unwrap();
        for gpu in gpus {
            let gpu = self.gpu_ix(gpu);
            self.emulation.with(|state, now| state.vanish(gpu, now));
        }
        self.composer().discover(&()).await.unwrap();
    }

    async fn reappear_all(&self, gpus: &[String]) {
        for gpu in gpus {
            let gpu = self.gpu_ix(gpu);
            self.emulation.with(|state, _| state.reappear(gpu));
        }
        self.composer().discover(&()).await.unwrap();
    }

    /// What is wrong with the first box itself.
    async fn fault_of_box_1(&self) -> Option<String> {
        let snapshot = self.snapshot().await;
        let mut faults = snapshot.faults.iter();
        let fault = faults.find(|fault| fault.source == "box-1" && fault.kind == FaultKind::Missing);
        fault.map(|fault| fault.message.clone())
    }

    /// GPUs of the first box that may be had.
    async fn composable_in_box_1(&self) -> usize {
        let snapshot = self.snapshot().await;
        let gpus = snapshot.topology.gpus.iter();
        let there = gpus.filter(|gpu| gpu.control.iter().any(|at| at.endpoint == box_1()));
        there
            .filter(|gpu| gpu.state == GpuState::Free && gpu.composability.is_composable())
            .count()
    }
}

#[tokio::test(start_paused = true)]
async fn what_vanishes_all_at_once_is_a_fault_of_the_endpoint_until_it_is_back() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", KIND, 20)).await;
    pool.schedule(night()).await;
    let before = pool.snapshot().await.topology.gpus.len();
    let (held, operations) = (pool.shown().await, pool.operations().await);
    pool.vanish_all(&first(5)).await;

    let snapshot = pool.snapshot().await;
    assert_eq!(snapshot.topology.gpus.len(), before);
    let mut gpus = snapshot.topology.gpus.iter();
    assert!(
        gpus.all(|gpu| gpu.state != GpuState::Missing),
        "nothing is missing"
    );
    assert_eq!(pool.shown().await, held, "it is shown as it was");
    let fault = pool.fault_of_box_1().await.unwrap();
    assert!(fault.starts_with("5 of 16 GPUs vanished in one look"), "{fault}");
    assert_eq!(pool.composable_in_box_1().await, 0);
    let mut gpus = snapshot.topology.gpus.iter();
    assert!(gpus.any(|gpu| {
        gpu.composability
            .0
            .as_ref()
            .is_some_and(|why| why.kind == WhyNotKind::Disbelieved)
    }));
    let doctor = pool.composer().doctor().await.unwrap();
    let told = doctor
        .iter()
        .find(|check| check.name == "endpoint box-1")
        .unwrap();
    assert_eq!(told.result, CheckResult::Problem);
    assert!(
        told.hint
            .as_ref()
            .unwrap()
            .contains("poolwright endpoint accept box-1")
    );
    let status = pool.composer().status().await.unwrap();
    assert!(
        status.silent[0]
            .to_string()
            .contains("box-1 is shown as it was at"),
        "{status:?}"
    );
    let drifts = pool.composer().drift().await.unwrap();
    assert!(!drifts.is_empty() && drifts.iter().all(|drift| drift.kind == DriftKind::Unreadable));

    // Nothing is done there by itself.
    let clockwork = Clockwork::of(&pool);
    pool.pass_until(NIGHT).await;
    assert_eq!(pool.holders().await, holds(&[("chat", 20)]));
    assert_eq!(pool.operations().await, operations);
    let trouble = pool.night().await.trouble.unwrap();
    assert!(!trouble.reason.is_empty(), "{trouble}");

    pool.reappear_all(&first(5)).await;
    assert_eq!(pool.fault_of_box_1().await, None);
    pool.pass_until("2026-03-02T23:20:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("training", 24)]));
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_that_is_held_there_is_released_by_itself() {
    let pool = Pool::of("demo").await;
    let mut schedule = night();
    schedule["suspends"] = serde_json::json!([]);
    pool.schedule(schedule).await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until(NIGHT).await;
    assert_eq!(pool.holders().await, holds(&[("training", 24)]));
    pool.vanish_all(&first(5)).await;
    let operations = pool.operations().await;
    // The window closes.
    pool.pass_until("2026-03-03T09:00:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("training", 24)]));
    assert_eq!(pool.operations().await, operations);
    let trouble = pool.night().await.trouble.unwrap();
    assert!(
        trouble.reason.contains("box-1: 5 of 16 GPUs vanished"),
        "{trouble}"
    );
    pool.reappear_all(&first(5)).await;
    pool.pass_until("2026-03-03T09:20:00Z").await;
    pool.all_is_free().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_out_is_accepted_by_somebody() {
    let mut pool = Pool::of("demo").await;
    let nothing = pool
        .composer()
        .accept_endpoint(&box_1(), ME, true)
        .await
        .unwrap_err();
    assert_eq!(nothing.code, ErrorCode::Conflict);
    pool.composed(gpus("chat", KIND, 20)).await;
    pool.vanish_all(&first(5)).await;
    assert!(pool.fault_of_box_1().await.is_some());

    // A manager that starts anew does not take it for the way it always was.
    pool.restart().await;
    let fault = pool.fault_of_box_1().await.unwrap();
    assert!(fault.starts_with("5 of 16 GPUs vanished"), "{fault}");

    let shown = pool.composer().accept_endpoint(&box_1(), ME, true).await.unwrap();
    assert_eq!((shown.accepted, shown.gone.len(), shown.left), (false, 5, 11));
    assert!(pool.fault_of_box_1().await.is_some(), "it was only shown");
    let accepted = pool
        .composer()
        .accept_endpoint(&box_1(), ME, false)
        .await
        .unwrap();
    assert!(accepted.accepted);
    assert_eq!(pool.fault_of_box_1().await, None);
    let snapshot = pool.snapshot().await;
    let mut why_not = snapshot
        .topology
        .gpus
        .iter()
        .filter_map(|gpu| gpu.composability.0.as_ref());
    assert!(why_not.all(|why| why.kind != WhyNotKind::Disbelieved));
    let drifts = pool.composer().drift().await.unwrap();
    assert!(
        !drifts.is_empty() && drifts.iter().all(|drift| drift.kind == DriftKind::Missing),
        "what is held is missing: {drifts:?}"
    );
    pool.restart().await;
    assert_eq!(pool.fault_of_box_1().await, None, "it stays accepted");
}

#[tokio::test(start_paused = true)]
async fn who_holds_what_is_gone_is_told_before_it_is_accepted() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", KIND, 20)).await;
    pool.vanish_all(&first(16)).await;
    let shown = pool.composer().accept_endpoint(&box_1(), ME, true).await.unwrap();
    assert_eq!((shown.gone.len(), shown.left), (16, 0));
    let held = shown
        .gone
        .iter()
        .filter(|lost| lost.composition.is_some())
        .count();
    assert!(held >= 12, "20 of 24 are held: {held}");
    assert!(shown.gone.iter().all(|lost| lost.gpu.is_some()));
}

#[tokio::test(start_paused = true)]
async fn a_quarter_is_missing_and_no_fault_unless_it_is_said_so() {
    let pool = Pool::of("demo").await;
    pool.vanish_all(&first(4)).await;
    assert_eq!(pool.fault_of_box_1().await, None);
    assert_eq!(pool.gpu("box-1/gpu-1").await.state, GpuState::Missing);
    pool.reappear_all(&first(4)).await;
    let tenth = NewLimits {
        vanished: Some(10),
        ..NewLimits::default()
    };
    pool.composer().set_limits(&tenth).await.unwrap();
    pool.vanish_all(&first(2)).await;
    assert!(
        pool.fault_of_box_1()
            .await
            .unwrap()
            .contains("2 of 16 GPUs vanished in one look, more than 10 %")
    );
}

/// Who is bound where is read far more often than everything else; what is gone there all at once waits for a walk.
#[tokio::test(start_paused = true)]
async fn what_vanishes_between_two_walks_is_a_fault_of_the_endpoint_too() {
    let mut pool = Pool::bare(
        Rack::builtin("demo").unwrap(),
        Arc::new(SqliteStore::in_memory().unwrap()),
    );
    (pool.options.poll, pool.options.walk) = (Some(Duration::from_secs(30)), Duration::from_secs(3600));
    pool.open().await;
    pool.add_all_endpoints().await;
    let clockwork = Clockwork::of(&pool);
    for gpu in first(5) {
        let gpu = pool.gpu_ix(&gpu);
        pool.emulation.with(|state, now| state.vanish(gpu, now));
    }
    let all = pool.snapshot().await.topology.gpus.len();
    pool.until("it is a fault", async || {
        let snapshot = pool.snapshot().await;
        let mut gpus = snapshot.topology.gpus.iter();
        assert!(
            gpus.all(|gpu| gpu.state != GpuState::Missing),
            "nothing is missing"
        );
        assert_eq!(snapshot.topology.gpus.len(), all);
        pool.fault_of_box_1().await.is_some()
    })
    .await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(
        pool.snapshot().await.topology.gpus.len(),
        all,
        "what it showed before stays shown"
    );
    assert_eq!(pool.composable_in_box_1().await, 0);
    clockwork.stop().await;
}
