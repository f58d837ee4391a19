//! Taking back what was done.

use crate::stories::kit::{ME, Pool, demand_id, gpus, spec};
use poolwright_emulator::fault::{Fault, FaultKind};
use poolwright_model::id::OperationId;
use poolwright_service::{Change, ErrorCode, How, Operation, OperationKind, OperationState, ServiceError};
use serde_json::json;
use std::time::Duration;

impl Pool {
    async fn undo(&self, done: &Operation) -> Result<Change, ServiceError> {
        self.composer()
            .undo_operation(&done.id, ME, &How::default())
            .await
    }

    /// Undoes it, and waits until that is done.
    async fn undone(&self, done: &Operation) -> Operation {
        let change = self.undo(done).await.unwrap();
        assert_eq!(change.operation.as_ref().unwrap().kind, OperationKind::Undo);
        self.done(&change).await
    }

    /// Refused for this reason, and nothing is different.
    async fn is_not_undone(&self, done: &Operation, because: &str) -> ServiceError {
        let before = (self.truth(), self.demands().await);
        let error = self.undo(done).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::Conflict, "{error}");
        assert!(
            error.message.contains("can't be undone") || error.message.contains("already"),
            "{error}"
        );
        assert!(error.message.contains(because), "{because}: {error}");
        assert_eq!((self.truth(), self.demands().await), before);
        error
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_composed_is_released_and_the_other_way_round() {
    let pool = Pool::of("demo").await;
    let composed = pool.composed(gpus("chat", "h100-pcie-80gb", 4)).await;
    let bound = pool.truth();

    let dry = How {
        dry_run: true,
        ..How::default()
    };
    let shown = pool
        .composer()
        .undo_operation(&composed.id, ME, &dry)
        .await
        .unwrap();
    assert!(shown.operation.is_none());
    assert_eq!(shown.plan.summary().gpus_unbound, 4);
    assert_eq!(
        (pool.truth(), pool.demands().await),
        (bound.clone(), vec!["chat".to_owned()])
    );

    let undo = pool.undone(&composed).await;
    assert!(pool.truth().is_empty());
    assert!(pool.demands().await.is_empty());
    pool.all_is_free().await;

    // The undo is an operation like any other: it can be undone, which is to do it again.
    let again = pool.undone(&undo).await;
    assert_eq!(pool.truth(), bound, "the same GPUs on the same hosts");
    assert_eq!(pool.demands().await, ["chat"]);
    assert!(pool.composer().plan().await.unwrap().changes_nothing());
    pool.undone(&again).await;
    pool.all_is_free().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_released_comes_back_to_where_it_was() {
    let mut pool = Pool::of("demo").await;
    pool.composed(json!({"id": "big", "model": "70B", "task": "infer"}))
        .await;
    let (bound, demand) = (
        pool.truth(),
        pool.composer().demand(&demand_id("big")).await.unwrap(),
    );
    let released = pool.released("big").await;
    let change = pool.undo(&released).await.unwrap();
    // The manager is gone in the middle.
    pool.restart().await;
    pool.done(&change).await;
    pool.quiet().await;
    assert_eq!(pool.truth(), bound);
    assert_eq!(pool.composer().demand(&demand_id("big")).await.unwrap(), demand);
    pool.all_is_well().await;
    // Where it fails nothing is different.
    let released = pool.released("big").await;
    pool.refuse_a_move_after(1);
    let change = pool.undo(&released).await.unwrap();
    assert_eq!(pool.ended(&change).await.state, OperationState::RolledBack);
    assert!(pool.demands().await.is_empty());
    pool.all_is_free().await;
    pool.undone(&released).await;
    assert_eq!(pool.truth(), bound);
}

#[tokio::test(start_paused = true)]
async fn attached_detached_and_applied_are_taken_back_too() {
    let pool = Pool::of("demo").await;
    let manager = pool.composer();
    let (free, host) = (
        pool.gpu_ids(&["box-1/gpu-15", "box-1/gpu-16"]).await,
        pool.host_id("host-6").await,
    );
    let attached = pool
        .done(&manager.attach(&free, &host, ME, &How::default()).await.unwrap())
        .await;
    let bound = pool.truth();
    let detached = pool
        .done(&manager.detach(&free[..1], ME, &How::default()).await.unwrap())
        .await;
    let error = pool.is_not_undone(&attached, detached.id.as_str()).await;
    assert!(error.hint.unwrap().contains("ops undo"));
    let undo = pool.undone(&detached).await;
    assert_eq!(pool.truth(), bound);
    // The composition was written by the undo last; what it holds is as the attach left it.
    pool.is_not_undone(&attached, undo.id.as_str()).await;

    manager
        .add_demand(spec(gpus("chat", "h100-pcie-80gb", 4)))
        .await
        .unwrap();
    let plan = manager.plan().await.unwrap();
    let applied = manager
        .apply(plan, OperationKind::Apply, ME, &How::default())
        .await;
    let applied = pool.done(&applied.unwrap()).await;
    assert_eq!(pool.truth().len(), 6);
    pool.undone(&applied).await;
    assert_eq!(pool.truth(), bound);
    assert_eq!(pool.demands().await, ["chat"], "it was wanted before, and waits");
    pool.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn what_has_changed_since_is_named_and_nothing_is_done() {
    let pool = Pool::of("small").await;
    let slow = Fault::new(FaultKind::Slow {
        by: Duration::from_secs(20),
    });
    pool.fault(slow.on("PATCH", "/redfish/v1/Fabrics/*/Zones/*").times(1));
    let change = pool.compose(gpus("one", "h100-pcie-80gb", 5)).await.unwrap();
    let running = change.operation.clone().unwrap();
    pool.is_not_undone(&running, "it is ").await;
    let one = pool.done(&change).await;
    let released = pool.released("one").await;
    pool.is_not_undone(&one, "no longer holds").await;

    // Somebody else has the GPUs.
    pool.composed(gpus("other", "h100-pcie-80gb", 5)).await;
    let error = pool.is_not_undone(&released, "is held by other").await;
    assert!(error.hint.is_some());
    pool.released("other").await;
    // One of the same name is wanted by now.
    pool.composer()
        .add_demand(spec(gpus("one", "h100-pcie-80gb", 1)))
        .await
        .unwrap();
    pool.is_not_undone(&released, "there is a demand one already")
        .await;
    pool.composer().remove_demand(&demand_id("one")).await.unwrap();
    pool.undone(&released).await;
    pool.is_not_undone(&released, "has changed composition")
        .await
        .operation
        .unwrap();

    let never: OperationId = "op-never".parse().unwrap();
    let error = pool.composer().undo_operation(&never, ME, &How::default()).await;
    assert_eq!(error.unwrap_err().code, ErrorCode::NotFound);
    pool.fault(
        Fault::new(FaultKind::Status {
            code: 400,
            retry_after: None,
        })
        .on("PATCH", "/redfish/v1/Fabrics/*/Zones/*")
        .times(1),
    );
    let failed = pool
        .ended(&pool.compose(gpus("two", "h100-pcie-80gb", 2)).await.unwrap())
        .await;
    assert_eq!(failed.state, OperationState::RolledBack);
    pool.is_not_undone(&failed, "everything is as it was before")
        .await;
}

/// Under a key it is done once; a schedule would do again at once what it decides about.
#[tokio::test(start_paused = true)]
async fn an_undo_is_a_request_like_any_other() {
    let pool = Pool::of("demo").await;
    let manager = pool.composer();
    let composed = pool.composed(gpus("chat", "l40s-48gb", 2)).await;
    let night = json!({
        "id": "night",
        "window": {"opens": "0 20 * * *", "closes": "30 7 * * *"},
        "suspends": ["chat"],
    });
    let night = serde_json::from_value(night).unwrap();
    manager.add_schedule(night).await.unwrap();
    let error = pool
        .is_not_undone(&composed, "schedule night decides about demand chat")
        .await;
    assert!(error.hint.unwrap().contains("schedule pause night"));
    manager
        .pause_schedule(&"night".parse().unwrap(), true)
        .await
        .unwrap();
    let how = How {
        key: Some("k".to_owned()),
        ..How::default()
    };
    let first = manager.undo_operation(&composed.id, ME, &how).await.unwrap();
    pool.done(&first).await;
    let again = manager.undo_operation(&composed.id, ME, &how).await.unwrap();
    assert!(again.replayed);
    assert_eq!(again.operation.unwrap().id, first.operation.unwrap().id);
    pool.all_is_free().await;
}

/// What is forgotten takes nothing with it that stands.
#[tokio::test(start_paused = true)]
async fn an_operation_that_is_forgotten_can_no_longer_be_undone() {
    let pool = Pool::of("demo").await;
    let composed = pool.composed(gpus("chat", "l40s-48gb", 2)).await;
    let bound = pool.truth();
    let in_days = |days: i64| pool.composer().clock().now() + jiff::SignedDuration::from_hours(24 * days);
    pool.composer().prune(in_days(89)).await.unwrap();
    assert_eq!(pool.composer().operations().await.unwrap().len(), 1);
    pool.composer().prune(in_days(91)).await.unwrap();
    assert!(pool.composer().operations().await.unwrap().is_empty());
    let error = pool.undo(&composed).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::NotFound, "{error}");
    assert_eq!(
        pool.store.count("operation-demand").await.unwrap(),
        0,
        "what was kept for the undo is gone too"
    );
    assert_eq!(
        (pool.truth(), pool.demands().await),
        (bound, vec!["chat".to_owned()])
    );
    pool.released("chat").await;
    pool.all_is_free().await;
}
