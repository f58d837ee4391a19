//! A demand whose need changes over time: each phase gets its GPUs when its time has come. And what a demand is sized
//! with: the constants of the site, and what joins the GPUs of the pool.

use crate::stories::calendar::*;
use crate::stories::kit::{ME, Pool, spec};
use poolwright_emulator::Rack;
use poolwright_service::demand::DemandRecord;
use poolwright_service::{ErrorCode, How, OperationKind, pool_kinds};
use poolwright_sizing::Calibration;
use poolwright_store::SqliteStore;
use serde_json::{Value, json};
use std::sync::Arc;

/// Two hours of training, an hour of evaluation, an hour of fine-tuning.
fn run(starts: Option<&str>) -> Value {
    let mut run = json!({"id": "run", "model": "8B", "kind": "h100-pcie-80gb", "phase": [
        {"kind": "main", "hours": 2, "gpus": 16},
        {"kind": "evaluation", "hours": 1},
        {"kind": "fine-tune", "hours": 1, "gpus": 4},
    ]});
    if let Some(starts) = starts {
        run["starts"] = json!(starts);
    }
    run
}

impl Pool {
    async fn kept(&self, demand: Value) -> DemandRecord {
        self.composer().add_demand(spec(demand)).await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn each_phase_gets_its_gpus_by_the_clock() {
    let mut pool = Pool::of("demo").await;
    pool.kept(run(Some(EVENING))).await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until("2026-03-02T19:59:00Z").await;
    assert_eq!(pool.holders().await, holds(&[]), "not before its time");
    assert!(
        pool.because("run")
            .await
            .contains("its first phase begins at 2026-03-02T20")
    );

    pool.pass_until("2026-03-02T20:10:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("run", 16)]));
    assert!(
        pool.because("run")
            .await
            .contains("phase main until 2026-03-02T22")
    );
    let last = pool.composer().operations().await.unwrap().pop().unwrap();
    assert_eq!(last.kind, OperationKind::Schedule);
    let undone = pool
        .composer()
        .undo_operation(&last.id, ME, &How::default())
        .await;
    assert!(
        undone
            .unwrap_err()
            .message
            .contains("the phases of demand run decide")
    );

    // Nobody is there when the phase ends.
    clockwork.stop().await;
    pool.crash().await;
    pool.sleep_until("2026-03-02T22:05:00Z").await;
    pool.open().await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until("2026-03-02T22:10:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("run", 1)]));
    pool.pass_until("2026-03-02T23:10:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("run", 4)]));
    pool.all_is_well().await;
    // It is over, and holds nothing.
    pool.pass_until("2026-03-03T00:10:00Z").await;
    assert_eq!(pool.holders().await, holds(&[]));
    assert_eq!(pool.demands().await, ["run"]);
    assert!(pool.because("run").await.contains("its last phase ended"));
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn composed_now_it_goes_on_by_the_clock_until_it_is_released() {
    let pool = Pool::of("demo").await;
    let clockwork = Clockwork::of(&pool);
    pool.composed(run(None)).await;
    assert_eq!(pool.holders().await, holds(&[("run", 16)]));
    // Others are served beside it, and leave it as it is.
    pool.composed(json!({"id": "chat", "gpus": 2, "kind": "h100-pcie-80gb"}))
        .await;
    pool.pass_until("2026-03-02T14:10:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("chat", 2), ("run", 1)]));
    pool.released("run").await;
    pool.pass_until("2026-03-02T15:10:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("chat", 2)]));
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn phases_that_nobody_could_follow_are_refused() {
    let pool = Pool::of("demo").await;
    let later = pool.compose(run(Some(EVENING))).await.unwrap_err();
    assert_eq!(later.code, ErrorCode::BadRequest);
    assert!(later.message.contains("can't be composed now"), "{later}");
    let mut night = night();
    night["demands"] = json!([run(None)]);
    night["suspends"] = json!([]);
    let night = pool
        .composer()
        .add_schedule(serde_json::from_value(night).unwrap())
        .await;
    assert!(night.unwrap_err().message.contains("has phases"));
    assert!(pool.demands().await.is_empty());
}

/// What was measured here corrects what is sized here, and the need says by which file and how much.
#[tokio::test(start_paused = true)]
async fn a_manager_sizes_with_the_constants_of_its_site_and_says_so() {
    let measured = json!({"corrections": [{
        "framework": "vllm-0.11", "constant": "engine-alone", "rows": 4, "error_before": 5.0, "error_after": 1.0,
        "change": {"middle": 6.1, "safe": 12.8},
    }]});
    let needs = async |calibration: Calibration| {
        let mut pool = Pool::bare(
            Rack::builtin("demo").unwrap(),
            Arc::new(SqliteStore::in_memory().unwrap()),
        );
        pool.options.calibration = calibration;
        pool.open().await;
        pool.add_all_endpoints().await;
        pool.kept(json!({"id": "chat", "model": "8B", "task": "infer", "kind": "h100-pcie-80gb"}))
            .await
            .demand
            .need
    };
    let calibration = Calibration::parse("here.json", &measured.to_string()).unwrap();
    let (before, after) = (needs(Calibration::default()).await, needs(calibration).await);
    assert!(after.alternatives[0].min_memory_per_gpu > before.alternatives[0].min_memory_per_gpu);
    let told = |lines: &[String]| {
        let said = |line: &&String| line.starts_with("calibrated: vllm-0.11 engine-alone");
        lines.iter().find(said).cloned()
    };
    assert_eq!(told(&before.explanation), None);
    let told = told(&after.explanation).unwrap();
    assert!(
        told.contains("+6.100 GiB") && told.ends_with("in here.json"),
        "{told}"
    );
}

/// Tensor parallelism stays where the pool joins GPUs, and the answer says how the engine is to be started.
#[tokio::test(start_paused = true)]
async fn a_demand_is_sized_for_what_joins_the_pools_gpus() {
    let pool = Pool::of("demo").await;
    let kinds = pool_kinds(&*pool.snapshot().await);
    let h100 = kinds.iter().find(|kind| kind.kind == "h100-pcie-80gb").unwrap();
    let island = h100.island.unwrap();
    assert!((1..h100.count).contains(&island), "{h100:?}");
    let record = pool
        .kept(json!({"id": "large", "model": "405B", "task": "infer", "weights": "fp8"}))
        .await;
    for set in &record.demand.need.alternatives {
        let joined = kinds
            .iter()
            .find(|kind| set.kind.as_deref() == Some(kind.kind.as_str()));
        assert!(
            Some(set.group) <= joined.unwrap().island,
            "{set}, groups of {}",
            set.group
        );
    }
    let change = pool
        .compose(json!({"id": "chat", "model": "8B", "kind": "h100-pcie-80gb"}))
        .await
        .unwrap();
    assert_eq!(change.advice.len(), 1);
    assert!(
        change.advice[0].contains("--gpu-memory-utilization"),
        "{:?}",
        change.advice
    );
    pool.done(&change).await;
}
