//! What was there before us: it is looked at, and left alone until somebody adopts it.

use crate::stories::kit::{ME, Pool, gpus};
use poolwright_emulator::{Rack, in_process};
use poolwright_model::composable::WhyNotKind;
use poolwright_model::id::ControlEndpointId;
use poolwright_model::lifecycle::GpuState;
use poolwright_service::endpoint::Standing;
use poolwright_service::{Adopting, ErrorCode, How, OperationKind, OperationState};
use poolwright_store::SqliteStore;
use std::sync::Arc;

/// A manager that has just been shown a rack on which others have bound three GPUs to two hosts.
async fn newcomer() -> Pool {
    let rack = Rack::builtin("zones").unwrap();
    let mut pool = Pool::bare(rack, Arc::new(SqliteStore::in_memory().unwrap()));
    pool.bind_by_others("box-1/gpu-1", "host-1/port-1");
    pool.bind_by_others("box-1/gpu-3", "host-1/port-1");
    assert_eq!(pool.truth().len(), 3, "one is bound from the start");
    pool.open().await;
    for endpoint in in_process(&pool.emulation).endpoints {
        pool.add_endpoint_as(endpoint.endpoint().as_str(), Standing::Observed)
            .await;
    }
    pool
}

fn box_1() -> ControlEndpointId {
    ControlEndpointId::from_lossy("box-1")
}

impl Pool {
    async fn adopt(&self, dry_run: bool) -> Adopting {
        let how = How {
            dry_run,
            ..How::default()
        };
        self.composer()
            .adopt_endpoint(&box_1(), ME, &how, None)
            .await
            .unwrap()
    }

    fn binds_and_unbinds(&self) -> (u64, u64, u64) {
        let tally = self.emulation.with(|state, _| state.tally());
        (tally.binds, tally.unbinds, tally.resets)
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_endpoint_is_looked_at_and_left_alone() {
    let pool = newcomer().await;
    let (before, asked) = (pool.truth(), pool.binds_and_unbinds());
    let foreign = pool.gpu("box-1/gpu-1").await;
    assert_eq!(foreign.state, GpuState::Foreign);
    let free = pool.gpu("box-1/gpu-4").await;
    let why = free.composability.0.clone().unwrap();
    assert_eq!((free.state, why.kind), (GpuState::Free, WhyNotKind::ObserveOnly));
    assert!(why.detail.contains("poolwright endpoint adopt box-1"), "{why}");

    let error = pool.compose(gpus("all", "a100-pcie-80gb", 1)).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Unplaced, "{error}");
    let host = pool.host_id("host-1").await;
    let manager = pool.composer();
    let error = manager
        .attach(std::slice::from_ref(&free.id), &host, ME, &How::default())
        .await
        .unwrap_err();
    assert!(error.message.contains("only observed"), "{error}");

    let would = pool.adopt(true).await;
    assert!(would.change.operation.is_none());
    let hosts: Vec<u32> = would.change.plan.composes.iter().map(|c| c.gpu_count()).collect();
    assert_eq!(hosts, [2, 1], "a composition a host");
    let endpoint = pool.composer().endpoint(&box_1()).await.unwrap();
    assert_eq!(endpoint.standing, Standing::Observed, "it was a dry run");
    assert_eq!((pool.truth(), pool.binds_and_unbinds()), (before, asked));
    assert!(pool.recorded().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_adopted_becomes_ours_and_is_not_touched() {
    let mut pool = newcomer().await;
    let (before, asked) = (pool.truth(), pool.binds_and_unbinds());
    let adopting = pool.adopt(false).await;
    assert!(adopting.left.is_empty(), "{:?}", adopting.left);
    let done = pool.done(&adopting.change).await;
    assert_eq!(done.kind, OperationKind::Adopt);
    assert!(
        done.steps.iter().all(|step| step.evidence.is_some()),
        "each was read back"
    );
    assert_eq!((pool.truth(), pool.binds_and_unbinds()), (before.clone(), asked));
    assert_eq!(pool.recorded().await, before);
    pool.all_is_well().await;
    let undone = pool
        .composer()
        .undo_operation(&done.id, ME, &How::default())
        .await;
    assert!(undone.unwrap_err().message.contains("moved nothing"));

    pool.restart().await;
    assert_eq!(pool.recorded().await, before);
    assert!(matches!(
        pool.gpu("box-1/gpu-1").await.state,
        GpuState::Bound | GpuState::Attached
    ));
    let again = pool.adopt(false).await;
    assert!(
        again.change.operation.is_none(),
        "there is nothing left to take over"
    );
    pool.composed(gpus("chat", "rtx-6000-ada-48gb", 1)).await;
    pool.released("chat").await;
    let ours = pool.gpu_ids(&["box-1/gpu-3"]).await;
    let change = pool.composer().detach(&ours, ME, &How::default()).await.unwrap();
    pool.done(&change).await;
    assert_eq!(pool.truth().len(), 2);
    pool.all_is_well().await;
    assert_eq!(pool.gpu("box-1/gpu-3").await.state, GpuState::Free, "and reset");
}

#[tokio::test(start_paused = true)]
async fn what_has_gone_meanwhile_is_not_bound_again() {
    let pool = newcomer().await;
    let foreign = pool.gpu("box-1/gpu-1").await;
    let adopting = pool.adopt(false).await;
    // Before its host has confirmed it.
    pool.unbind_by_others("box-1/gpu-1");
    let (before, asked) = (pool.truth(), pool.binds_and_unbinds());
    let ended = pool.ended(&adopting.change).await;
    assert_eq!(ended.state, OperationState::RolledBack);
    let gone = foreign.id.to_string();
    assert!(ended.error().unwrap().contains(&gone), "{:?}", ended.error());
    assert_eq!((pool.truth(), pool.binds_and_unbinds()), (before, asked));
    assert!(pool.recorded().await.is_empty());
    pool.composer().discover(&()).await.unwrap();
    assert_eq!(
        pool.gpu("box-1/gpu-3").await.state,
        GpuState::Foreign,
        "as before"
    );

    let adopting = pool.adopt(false).await;
    pool.done(&adopting.change).await;
    assert_eq!(pool.recorded().await, pool.truth(), "the others");
    pool.all_is_well().await;
}
