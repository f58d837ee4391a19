//! What runs by itself and fails again and again.

use crate::stories::calendar::*;
use crate::stories::kit::{ME, Pool, gpus};
use poolwright_emulator::fault::{Fault, FaultKind};
use poolwright_service::limits::NewLimits;
use poolwright_service::{CheckResult, Operation, OperationKind, OperationState, Pause, Paused};
use serde_json::json;

impl Pool {
    /// From 20:00 on two GPUs are wanted, and no host says that it sees what it is given: it is taken away again.
    async fn failing_night(&self) {
        self.schedule(json!({
            "id": "night",
            "window": {"opens": "0 20 * * *", "closes": "30 7 * * *"},
            "demands": [gpus("training", "h100-pcie-80gb", 2)],
        }))
        .await;
        let refused = Fault::new(FaultKind::Status {
            code: 503,
            retry_after: None,
        });
        self.fault(refused.on("GET", "/redfish/v1/Systems/1/Processors"));
    }

    /// What ran by itself, the latest first.
    async fn automatic(&self) -> Vec<Operation> {
        let mut operations = self.composer().operations().await.unwrap();
        operations.retain(|operation| operation.kind == OperationKind::Schedule);
        operations
    }

    async fn automation_paused(&self) -> Option<Pause> {
        let pauses = self.composer().pauses().await.unwrap();
        pauses.into_iter().find(|pause| pause.what == Paused::Automation)
    }
}

#[tokio::test(start_paused = true)]
async fn three_failures_in_a_row_pause_automation_until_somebody_lets_it_go_on() {
    let mut pool = Pool::of("demo").await;
    pool.failing_night().await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until(NIGHT).await;
    let failed = pool.automatic().await;
    assert_eq!(failed.len(), 3, "and no fourth in three hours");
    let paused = pool.automation_paused().await.unwrap();
    assert_eq!(paused.by, "the manager");
    for operation in &failed {
        assert_eq!(operation.state, OperationState::RolledBack);
        assert!(operation.steps.iter().any(|record| record.has_moved()));
        assert!(paused.reason.contains(operation.id.as_str()), "{paused}");
    }
    assert!(paused.reason.contains("503"), "it says what was wrong: {paused}");
    let trouble = pool.night().await.trouble.unwrap();
    assert!(
        trouble.reason.contains("automation is paused by the manager"),
        "{trouble}"
    );
    let doctor = pool.composer().doctor().await.unwrap();
    let told = doctor.iter().find(|check| check.name == "pauses").unwrap();
    assert!(
        told.result == CheckResult::Warning && told.message.contains("ended badly"),
        "{told:?}"
    );
    // Whoever asks for something is heard.
    let asked = pool.compose(gpus("lab", "h100-pcie-80gb", 1)).await.unwrap();
    assert_eq!(pool.ended(&asked).await.state, OperationState::RolledBack);

    clockwork.stop().await;
    pool.restart().await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until("2026-03-03T01:00:00Z").await;
    assert_eq!(pool.automatic().await.len(), 3);
    assert_eq!(pool.automation_paused().await, Some(paused));

    // It counts anew.
    pool.composer().resume(&Paused::Automation, ME).await.unwrap();
    pool.pass_until("2026-03-03T02:00:00Z").await;
    let again = pool.automatic().await;
    assert_eq!(again.len(), 6);
    let paused = pool.automation_paused().await.unwrap();
    assert!(
        again[..3].iter().all(|op| paused.reason.contains(op.id.as_str()))
            && again[3..]
                .iter()
                .all(|op| !paused.reason.contains(op.id.as_str())),
        "{paused}"
    );

    pool.emulation.clear_faults();
    pool.composer().resume(&Paused::Automation, ME).await.unwrap();
    pool.pass_until("2026-03-03T02:01:00Z").await;
    assert_eq!(pool.holders().await, holds(&[("training", 2)]));
    assert_eq!(pool.composer().limits().await.unwrap().failed, 0);
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_ends_between_a_failure_and_its_judgement_judges_it_later() {
    let mut pool = Pool::of("demo").await;
    pool.failing_night().await;
    let one = NewLimits {
        failures: Some(1),
        ..NewLimits::default()
    };
    pool.composer().set_limits(&one).await.unwrap();
    let clockwork = Clockwork::of(&pool);
    pool.sleep_until(EVENING).await;
    pool.until("it is being undone", async || {
        let begun = pool.automatic().await;
        begun
            .iter()
            .any(|operation| operation.state == OperationState::Unwinding)
    })
    .await;
    clockwork.stop().await;
    pool.restart().await;
    pool.quiet().await;
    let clockwork = Clockwork::of(&pool);
    pool.pass_until(NIGHT).await;
    assert_eq!(pool.automatic().await.len(), 1);
    assert!(pool.automation_paused().await.is_some());
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_before_anything_moves_and_what_finds_no_gpus_pauses_nothing() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
    pool.schedule(night()).await;
    let mut more = night();
    (more["id"], more["suspends"]) = ("more".into(), json!([]));
    more["demands"] = json!([gpus("huge", "l40s-48gb", 4096)]);
    pool.schedule(more).await;
    let refused = Fault::new(FaultKind::Status {
        code: 503,
        retry_after: None,
    });
    pool.fault(refused.on("GET", "/agent/drain"));
    let clockwork = Clockwork::of(&pool);
    pool.pass_until(NIGHT).await;
    let tries = pool.automatic().await;
    assert!(tries.len() > 10, "{}", tries.len());
    assert!(
        tries
            .iter()
            .all(|operation| operation.state == OperationState::RolledBack)
    );
    assert_eq!(pool.automation_paused().await, None);
    let limits = pool.composer().limits().await.unwrap();
    assert_eq!((limits.failed, limits.moved), (0, 0));
    clockwork.stop().await;
}
