//! The manager is gone from one moment to the next, and comes back.

use crate::stories::kit::{FOREVER, ME, Pool, at, demand_id, gpus, spec};
use jiff::Timestamp;
use poolwright_emulator::Rack;
use poolwright_emulator::fault::{Fault, FaultKind};
use poolwright_emulator::state::{Job, State};
use poolwright_model::id::OperationId;
use poolwright_model::lifecycle::GpuState;
use poolwright_planner::Demand;
use poolwright_service::demand::{DemandRecord, Pending};
use poolwright_service::{How, OperationKind, OperationState};
use poolwright_sizing::need::Need;
use poolwright_store::{Batch, OpenError, SqliteStore, Stored};
use std::sync::Arc;
use std::time::Duration;

/// Crashes after so much of the rack's time, comes back, and waits until nothing goes on.
async fn crash_after(pool: &mut Pool, time: Duration) {
    tokio::time::sleep(time).await;
    pool.restart().await;
    pool.quiet().await;
}

#[tokio::test(start_paused = true)]
async fn whatever_was_under_way_is_carried_on() {
    for step in 0..20 {
        let mut pool = Pool::of("demo").await;
        pool.compose(gpus("chat", "h100-pcie-80gb", 4)).await.unwrap();
        crash_after(&mut pool, Duration::from_millis(30 * step)).await;
        assert_eq!(pool.holders().await["chat"], 4, "composed, {step}");
        assert_eq!(pool.demands().await, ["chat"], "{step}");
        pool.all_is_well().await;

        pool.release("chat").await.unwrap();
        crash_after(&mut pool, Duration::from_millis(30 * step)).await;
        assert!(pool.demands().await.is_empty(), "released, {step}");
        pool.all_is_free().await;
        let tally = pool.emulation.with(|state, _| state.tally());
        assert_eq!(
            (tally.binds, tally.unbinds),
            (4, 4),
            "nothing was done twice, {step}"
        );
        assert_eq!(pool.composer().operations().await.unwrap().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_silent_when_the_manager_comes_back_is_still_asked_who_uses_its_gpus() {
    let mut pool = Pool::of("small").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 1)).await;
    let gpu = pool.gpu_ix(pool.truth().keys().next().unwrap());
    let job = Job {
        pid: 7,
        command: "train".to_owned(),
    };
    let start = |state: &mut State, now| state.start_job(gpu, job, now);
    pool.emulation.with(start).unwrap();
    pool.crash().await;
    pool.silence("host-1-bmc");
    pool.open().await;
    let change = pool.release("chat").await.unwrap();
    assert_eq!(pool.ended(&change).await.state, OperationState::RolledBack);
    let tally = pool.emulation.with(|state, _| state.tally());
    assert_eq!((tally.pulled_in_use, tally.unbinds), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_fails_after_a_restart_is_not_kept_either() {
    let mut pool = Pool::of("demo").await;
    // No host ever sees a GPU.
    let blind = Fault::new(FaultKind::Status {
        code: 503,
        retry_after: None,
    });
    pool.fault(blind.on("GET", "/redfish/v1/Systems/1/Processors"));
    pool.compose(gpus("chat", "h100-pcie-80gb", 4)).await.unwrap();
    pool.until("all are bound", async || pool.truth().len() == 4)
        .await;
    pool.restart().await;
    assert_eq!(pool.demands().await, ["chat"], "it is still being composed");
    pool.quiet().await;
    let operations = pool.composer().operations().await.unwrap();
    assert_eq!(operations[0].state, OperationState::RolledBack);
    assert!(pool.demands().await.is_empty());
    assert!(
        pool.composer().plan().await.unwrap().changes_nothing(),
        "nobody brings it back"
    );
    pool.all_is_free().await;
    pool.restart().await;
    assert!(pool.demands().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_release_that_fails_after_a_restart_changes_nothing() {
    let mut pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 2)).await;
    let before = pool.truth();
    let refused = Fault::new(FaultKind::Status {
        code: 503,
        retry_after: None,
    });
    pool.fault(refused.on("GET", "/agent/drain"));
    let change = pool.release("chat").await.unwrap();
    pool.restart().await;
    pool.ended(&change).await;
    assert_eq!(pool.demands().await, ["chat"]);
    assert_eq!(pool.truth(), before);
    assert!(pool.composer().plan().await.unwrap().changes_nothing());
    pool.all_is_well().await;
}

/// A demand whose operation was never begun: the crash came between the two.
#[tokio::test(start_paused = true)]
async fn a_request_that_was_cut_off_was_never_made() {
    let mut pool = Pool::of("demo").await;
    pool.composed(gpus("stays", "l40s-48gb", 1)).await;
    let never = || OperationId::new("op-never-begun").unwrap();
    let mut half = DemandRecord {
        spec: spec(gpus("half", "l40s-48gb", 1)),
        demand: Demand {
            id: demand_id("half"),
            tenant: "default".parse().unwrap(),
            priority: 0,
            need: Need::of_kind("l40s-48gb", 1),
            created: Timestamp::UNIX_EPOCH,
        },
        course: None,
        schedule: None,
        pending: Some(Pending::Composing(never())),
        job: None,
        set_up_by: None,
        dropped: false,
    };
    let mut batch = Batch::new();
    batch.put(&half).unwrap();
    // And a release that was cut off just so.
    let stays = pool.composer().demand(&demand_id("stays")).await.unwrap();
    batch
        .put(&DemandRecord {
            pending: Some(Pending::Releasing(never())),
            ..stays
        })
        .unwrap();
    pool.store.commit(batch).await.unwrap();
    // Whoever hung up in the middle left it like this: the manager goes on, and a new request is in order.
    assert_eq!(pool.demands().await, ["stays"]);
    assert!(pool.composer().plan().await.unwrap().changes_nothing());
    pool.composed(gpus("half", "l40s-48gb", 1)).await;
    pool.released("half").await;

    half.pending = Some(Pending::Composing(never()));
    let mut batch = Batch::new();
    batch.put(&half).unwrap();
    pool.store.commit(batch).await.unwrap();
    pool.restart().await;
    assert_eq!(pool.demands().await, ["stays"]);
    assert!(
        pool.store
            .get(DemandRecord::KIND, "half")
            .await
            .unwrap()
            .is_none(),
        "swept away"
    );
    pool.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn everything_is_called_as_before() {
    // The box of this rack doesn't know the UUIDs of its GPUs, and learns nothing while they are free.
    let mut pool = Pool::of("blocks").await;
    let before = pool.gpu("box-1/gpu-1").await.id;
    pool.composed(gpus("chat", "h100-nvl-94gb", 4)).await;
    pool.composer().discover(&()).await.unwrap();
    pool.restart().await;
    assert_eq!(pool.gpu("box-1/gpu-1").await.id, before);
    assert_eq!(pool.gpu("box-1/gpu-1").await.state, GpuState::Attached);
    pool.all_is_well().await;

    // A box that is silent at the start is not forgotten.
    pool.silence("box-1");
    pool.restart().await;
    assert!(
        pool.snapshot()
            .await
            .topology
            .gpus
            .iter()
            .all(|gpu| gpu.control.is_empty())
    );
    assert!(
        pool.composer().plan().await.unwrap().steps.is_empty(),
        "what isn't seen isn't touched"
    );
    pool.emulation.clear_faults();
    pool.composer().discover(&()).await.unwrap();
    assert_eq!(pool.gpu("box-1/gpu-1").await.id, before);
    pool.all_is_well().await;
    pool.released("chat").await;
    pool.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_box_that_comes_later_leaves_what_was_there() {
    let mut pool = Pool::bare(
        Rack::builtin("demo").unwrap(),
        Arc::new(SqliteStore::in_memory().unwrap()),
    );
    pool.open().await;
    for host in 1..=6 {
        pool.add_endpoint(&format!("host-{host}-bmc")).await;
    }
    pool.add_endpoint("box-2").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 2)).await;
    // Its fabric is called like the other's, and the hosts have a port in it, too.
    pool.add_endpoint("box-1").await;
    pool.all_is_well().await;
    pool.restart().await;
    pool.all_is_well().await;
    pool.released("chat").await;
    pool.all_is_free().await;
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_closes_in_an_orderly_way_parks_what_it_does() {
    let mut pool = Pool::of("demo").await;
    pool.compose(gpus("chat", "h100-pcie-80gb", 4)).await.unwrap();
    pool.until("something is bound", async || !pool.truth().is_empty())
        .await;
    pool.composer().close().await;
    let error = pool.compose(gpus("late", "l40s-48gb", 1)).await.unwrap_err();
    assert!(error.message.contains("shutting down"), "{error}");
    pool.restart().await;
    assert_eq!(pool.demands().await, ["chat"], "what was refused is not kept");
    pool.quiet().await;
    pool.all_is_well().await;
    assert_eq!(pool.holders().await["chat"], 4);
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_is_applied_goes_on_as_well() {
    let mut pool = Pool::of("demo").await;
    for id in ["one", "two", "three"] {
        let manager = pool.composer();
        manager
            .add_demand(spec(gpus(id, "h100-pcie-80gb", 6)))
            .await
            .unwrap();
    }
    let manager = pool.composer();
    let plan = manager.plan().await.unwrap();
    manager
        .apply(plan, OperationKind::Apply, ME, &How::default())
        .await
        .unwrap();
    pool.until("some are bound", async || pool.truth().len() > 2)
        .await;
    pool.restart().await;
    assert!(
        pool.composer().plan().await.unwrap().changes_nothing(),
        "somebody sees to it"
    );
    pool.quiet().await;
    assert_eq!(pool.truth().len(), 18);
    pool.all_is_well().await;
    assert!(pool.composer().plan().await.unwrap().changes_nothing());
}

/// On a disk, and in real time: the rack takes a while to bind.
#[tokio::test]
async fn the_same_folder_opened_again_has_everything() {
    let dir = tempfile::tempdir().unwrap();
    let rack = include_str!("../../../../hw-profiles/racks/small.toml");
    let rack = rack.replace(
        "style = \"zones\"",
        "style = \"zones\"\nlatency = { bind = \"30ms\" }",
    );
    let rack = Rack::from_toml("slow-8.toml", &rack).unwrap();
    let open = || SqliteStore::open(dir.path());
    let mut pool = Pool::bare(rack, Arc::new(open().unwrap()));
    pool.options.execute.first_pause = Duration::from_millis(5);
    pool.options.execute.verify_pause = Duration::from_millis(5);
    pool.open().await;
    pool.add_all_endpoints().await;
    let change = pool.compose(gpus("chat", "h100-pcie-80gb", 8)).await.unwrap();
    while pool.truth().is_empty() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    pool.crash().await;
    pool.store = Arc::new(SqliteStore::in_memory().unwrap());
    // The folder is free as soon as nothing of the old manager is left.
    let mut store = open();
    for _ in 0..1000 {
        if !matches!(store, Err(OpenError::Locked { .. })) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        store = open();
    }
    pool.store = Arc::new(store.unwrap());
    pool.open().await;
    let id = &change.operation.as_ref().unwrap().id;
    let ended = pool.composer().wait(id, FOREVER).await.unwrap();
    assert_eq!(ended.state, OperationState::Completed, "{:?}", ended.error());
    assert_eq!(pool.truth().len(), 8);
    pool.all_is_well().await;
    assert!(ended.created > at("2026-03-02T12:00:00Z"));
}
