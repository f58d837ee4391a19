//! Compose, release, attach and detach, as they should go.

use crate::stories::kit::{ME, Pool, demand_id, gpus, spec};
use poolwright_emulator::Rack;
use poolwright_emulator::fault::{Fault, FaultKind};
use poolwright_model::id::GpuId;
use poolwright_model::lifecycle::GpuState;
use poolwright_service::{ErrorCode, How, OperationKind, OperationState, Release};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

fn keyed(key: &str) -> How {
    How {
        key: Some(key.to_owned()),
        ..How::default()
    }
}

fn dry() -> How {
    How {
        dry_run: true,
        ..How::default()
    }
}

#[tokio::test(start_paused = true)]
async fn models_of_three_sizes_come_and_go() {
    let pool = Pool::of("demo").await;
    let mut bound = 0;
    for (id, model, least) in [("small", "8B", 1), ("middle", "70B", 4), ("large", "400B", 10)] {
        pool.composed(json!({"id": id, "model": model, "task": "infer"}))
            .await;
        pool.all_is_well().await;
        let holds = pool.holders().await[id];
        assert!(holds >= least, "{model} holds {holds}");
        bound += holds;
        assert_eq!(pool.truth().len(), bound as usize);
    }
    let large = pool.composer().why(&demand_id("large")).await.unwrap().holds;
    let hosts: BTreeSet<_> = large.iter().map(|c| &c.host).collect();
    assert!(
        large.len() > 1 && hosts.len() == large.len(),
        "over several hosts"
    );
    assert!(large.iter().all(|c| c.parts as usize == large.len()));
    let attached = pool.snapshot().await;
    let attached = attached
        .topology
        .gpus
        .iter()
        .filter(|gpu| gpu.state == GpuState::Attached);
    assert_eq!(attached.count(), bound as usize, "seen by their hosts, too");

    for id in ["middle", "large", "small"] {
        pool.released(id).await;
        pool.all_is_well().await;
        assert!(!pool.demands().await.contains(&id.to_owned()));
    }
    assert!(pool.truth().is_empty());
    pool.all_is_free().await;
    let tally = pool.emulation.with(|state, _| state.tally());
    assert_eq!(
        (tally.binds, tally.unbinds, tally.resets),
        (bound.into(), bound.into(), bound.into())
    );
    assert_eq!(
        (tally.bound_dirty, tally.double_binds_refused, tally.pulled_in_use),
        (0, 0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_released_can_be_had_at_once() {
    let pool = Pool::of("small").await;
    for round in 0..5 {
        let id = format!("round-{round}");
        pool.composed(gpus(&id, "h100-pcie-80gb", 8)).await;
        // No time passes between the end of one and the beginning of the next.
        pool.released(&id).await;
    }
    pool.all_is_free().await;
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_changes_nothing() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("here", "l40s-48gb", 2)).await;
    let free = pool.gpu_ids(&["box-1/gpu-16"]).await;
    let host = pool.host_id("host-6").await;
    let (truth, revision) = (pool.truth(), pool.store.revision().await.unwrap());

    let manager = pool.composer();
    let composed = manager
        .compose(spec(gpus("new", "h100-pcie-80gb", 4)), ME, &dry())
        .await
        .unwrap();
    assert_eq!(composed.plan.summary().gpus_bound, 4);
    let what = || Release::Demand(demand_id("here"));
    let released = manager.release(what(), ME, &dry()).await.unwrap();
    assert_eq!(released.plan.summary().gpus_unbound, 2);
    let attached = manager.attach(&free, &host, ME, &dry()).await.unwrap();
    assert_eq!(attached.plan.summary().gpus_bound, 1);
    for change in [composed, released, attached] {
        assert!(change.operation.is_none());
    }
    assert_eq!(pool.truth(), truth);
    assert_eq!(
        pool.store.revision().await.unwrap(),
        revision,
        "nothing was written"
    );
    assert_eq!(pool.demands().await, ["here"]);
}

/// Fault 11: a compose is asked for twice.
#[tokio::test(start_paused = true)]
async fn the_same_key_is_the_same_operation() {
    let pool = Pool::of("demo").await;
    let manager = pool.composer();
    let demand = || spec(gpus("chat", "l40s-48gb", 2));
    // Two at once, and one later.
    let key = keyed("compose-chat");
    let (first, second) = tokio::join!(
        manager.compose(demand(), ME, &key),
        manager.compose(demand(), ME, &key)
    );
    let first = first.unwrap();
    pool.done(&first).await;
    let third = manager.compose(demand(), ME, &key).await.unwrap();
    let id = |change: &poolwright_service::Change| change.operation.as_ref().unwrap().id.clone();
    assert_eq!(id(&first), id(&second.unwrap()));
    assert_eq!(id(&first), id(&third));
    assert_eq!(pool.truth().len(), 2);
    let in_time = How {
        deadline_s: Some(600),
        ..key.clone()
    };
    let in_part = How {
        partial_ok: true,
        ..key.clone()
    };
    let from_memory = How {
        allow_stale: true,
        ..key.clone()
    };
    for otherwise in [in_time, in_part, from_memory] {
        let refused = manager.compose(demand(), ME, &otherwise).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::Conflict, "{otherwise:?}: {refused}");
        assert!(refused.hint.unwrap().contains("a new key"), "{otherwise:?}");
    }

    let key = keyed("release-chat");
    let what = || Release::Demand(demand_id("chat"));
    let first = manager.release(what(), ME, &key).await.unwrap();
    pool.done(&first).await;
    assert_eq!(id(&first), id(&manager.release(what(), ME, &key).await.unwrap()));

    manager.add_demand(demand()).await.unwrap();
    let plan = manager.plan().await.unwrap();
    let key = keyed("apply");
    let apply = async || {
        manager
            .apply(plan.clone(), OperationKind::Apply, ME, &key)
            .await
            .unwrap()
    };
    let first = apply().await;
    pool.done(&first).await;
    assert_eq!(id(&first), id(&apply().await), "although the plan no longer fits");

    let (free, host) = (
        pool.gpu_ids(&["box-1/gpu-16"]).await,
        pool.host_id("host-6").await,
    );
    let key = keyed("attach");
    let first = manager.attach(&free, &host, ME, &key).await.unwrap();
    assert_eq!(
        id(&first),
        id(&manager.attach(&free, &host, ME, &key).await.unwrap())
    );
    pool.done(&first).await;
    let key = keyed("detach");
    let first = manager.detach(&free, ME, &key).await.unwrap();
    pool.done(&first).await;
    assert_eq!(id(&first), id(&manager.detach(&free, ME, &key).await.unwrap()));

    assert_eq!(manager.operations().await.unwrap().len(), 5);
    pool.all_is_well().await;
}

/// Fault 10: demands for the last GPUs.
#[tokio::test(start_paused = true)]
async fn of_two_who_want_the_last_gpus_one_gets_them() {
    let pool = Pool::of("small").await;
    let (one, other) = tokio::join!(
        pool.compose(gpus("one", "h100-pcie-80gb", 5)),
        pool.compose(gpus("other", "h100-pcie-80gb", 5))
    );
    let (winner, loser) = if one.is_ok() { (one, other) } else { (other, one) };
    pool.done(&winner.unwrap()).await;
    let error = loser.unwrap_err();
    assert_eq!(error.code, ErrorCode::Unplaced, "{error}");
    assert!(error.message.contains("3 are free"), "{error}");
    assert!(
        error.message.contains("operation") || error.message.contains(" for o"),
        "who has them: {error}"
    );
    assert_eq!(pool.demands().await.len(), 1);
    assert_eq!(pool.truth().len(), 5);
    pool.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn those_who_ask_at_once_get_different_gpus_while_there_are_enough() {
    let pool = Pool::of("demo").await;
    let asked = (0..6).map(|n| pool.compose(gpus(&format!("d{n}"), "h100-pcie-80gb", 4)));
    for change in futures_util::future::join_all(asked).await {
        pool.done(&change.unwrap()).await;
    }
    assert_eq!(pool.truth().len(), 24);
    pool.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn what_fits_nowhere_leaves_nothing() {
    let pool = Pool::of("demo").await;
    pool.snapshot().await;
    let revision = pool.store.revision().await.unwrap();
    let too_many = pool
        .compose(gpus("huge", "h100-pcie-80gb", 25))
        .await
        .unwrap_err();
    assert_eq!(too_many.code, ErrorCode::Unplaced);
    assert!(too_many.message.contains("24 GPUs"), "{too_many}");
    let no_kind = pool.compose(gpus("none", "a100-pcie-80gb", 1)).await.unwrap_err();
    assert_eq!(no_kind.code, ErrorCode::Unplaced, "{no_kind}");
    let too_big = json!({"id": "giant", "model": "400B", "task": "full"});
    assert_eq!(pool.compose(too_big).await.unwrap_err().code, ErrorCode::Unplaced);
    assert!(pool.demands().await.is_empty());
    assert_eq!(pool.store.revision().await.unwrap(), revision);
    assert!(pool.truth().is_empty());
}

#[tokio::test(start_paused = true)]
async fn gpus_are_attached_and_detached_by_name() {
    let pool = Pool::of("demo").await;
    let manager = pool.composer();
    let ids = pool.gpu_ids(&["box-1/gpu-3", "box-1/gpu-4"]).await;
    let host = pool.host_id("host-2").await;
    let change = manager.attach(&ids, &host, ME, &How::default()).await.unwrap();
    pool.done(&change).await;
    pool.all_is_well().await;
    let truth = pool.truth();
    assert!(truth["box-1/gpu-3"].starts_with("host-2/") && truth["box-1/gpu-4"].starts_with("host-2/"));

    let again = manager
        .attach(&ids[..1], &host, ME, &How::default())
        .await
        .unwrap_err();
    assert_eq!(again.code, ErrorCode::Conflict);
    assert!(again.message.contains("held by"), "{again}");
    assert!(again.hint.is_some());
    let nobody = GpuId::new("gpu-nobody").unwrap();
    let error = manager
        .attach(std::slice::from_ref(&nobody), &host, ME, &How::default())
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::NotFound);
    assert_eq!(
        manager
            .detach(&[nobody], ME, &How::default())
            .await
            .unwrap_err()
            .code,
        ErrorCode::Conflict
    );

    // Others are served beside it, and what is attached by name stays where it is.
    pool.composed(gpus("chat", "h100-pcie-80gb", 4)).await;
    assert!(manager.plan().await.unwrap().changes_nothing());
    let change = manager.detach(&ids[..1], ME, &How::default()).await.unwrap();
    pool.done(&change).await;
    assert_eq!(pool.truth().len(), 5);
    let change = manager.detach(&ids[1..], ME, &How::default()).await.unwrap();
    pool.done(&change).await;
    assert_eq!(pool.holders().await.len(), 1);
    pool.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_gpu_that_was_not_reset_is_closed_to_other_tenants() {
    let rack = include_str!("../../../../hw-profiles/racks/small.toml");
    let rack = rack.replace(
        "style = \"zones\"",
        "style = \"zones\"\noptions = { reset_action = false }",
    );
    let pool = Pool::with(Rack::from_toml("no-reset.toml", &rack).unwrap()).await;
    let of = |id: &str, tenant: &str| json!({"id": id, "tenant": tenant, "gpus": 8});
    pool.composed(of("first", "red")).await;
    pool.released("first").await;
    pool.all_is_well().await;
    assert_eq!(pool.gpu("box-1/gpu-1").await.state, GpuState::Dirty);

    let change = pool.compose(of("second", "blue")).await.unwrap();
    let ended = pool.ended(&change).await;
    assert_eq!(ended.state, OperationState::RolledBack);
    assert!(
        ended.error().unwrap().contains("closed to other tenants"),
        "{:?}",
        ended.error()
    );
    assert!(pool.demands().await.is_empty(), "not kept");
    assert!(pool.truth().is_empty());

    pool.composed(of("third", "red")).await;
    pool.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_attached_by_name_is_moved_whole_or_not_at_all() {
    let pool = Pool::of("demo").await;
    let manager = pool.composer();
    let named = pool.gpu_ids(&["box-1/gpu-15", "box-1/gpu-16"]).await;
    let (here, there) = (pool.host_id("host-5").await, pool.host_id("host-6").await);
    let attached = manager.attach(&named, &here, ME, &How::default()).await.unwrap();
    pool.done(&attached).await;
    let before = pool.truth();

    let moved = manager.move_to(&named, &there, ME, &dry()).await.unwrap();
    assert_eq!(moved.plan.summary().gpus_bound, 2);
    assert_eq!(pool.truth(), before, "a dry run");

    let moved = manager
        .move_to(&named, &there, ME, &How::default())
        .await
        .unwrap();
    assert_eq!(pool.done(&moved).await.kind, OperationKind::Move);
    let after = pool.truth();
    assert_eq!(after.len(), 2);
    assert!(
        before
            .iter()
            .all(|(gpu, port)| after.get(gpu).is_some_and(|now| now != port)),
        "{after:?}"
    );
    pool.all_is_well().await;
    let again = manager
        .move_to(&named, &there, ME, &How::default())
        .await
        .unwrap_err();
    assert!(again.message.contains("already"), "{again}");
}

#[tokio::test(start_paused = true)]
async fn a_demand_is_not_let_go_of_while_a_plan_that_serves_it_is_carried_out() {
    let pool = Pool::of("small").await;
    let manager = pool.composer();
    let wanted = spec(json!({"id": "chat", "gpus": 1}));
    manager.add_demand(wanted).await.unwrap();
    let plan = manager.plan().await.unwrap();
    let slow = Fault::new(FaultKind::Slow {
        by: Duration::from_secs(5),
    });
    pool.fault(slow.on("PATCH", "/redfish/v1/Fabrics/*/Zones/*").times(1));
    let applying = manager
        .apply(plan, OperationKind::Apply, ME, &How::default())
        .await
        .unwrap();
    let operation = applying.operation.as_ref().unwrap().id.clone();

    let refused = pool.release("chat").await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict);
    assert_eq!(refused.operation, Some(operation.to_string()));
    let said = format!("operation {operation} is composing demand chat");
    assert_eq!(refused.message, said);

    pool.done(&applying).await;
    assert_eq!(pool.demands().await, ["chat"], "what is built has its demand");
    pool.released("chat").await;
    pool.all_is_free().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_not_done_by_its_deadline_is_undone() {
    let pool = Pool::of("demo").await;
    let slow = Fault::new(FaultKind::Slow {
        by: Duration::from_secs(20),
    });
    pool.fault(slow.on("PATCH", "/redfish/v1/Fabrics/*/Zones/*").times(1));
    let how = How {
        deadline_s: Some(5),
        ..How::default()
    };
    let demand = spec(gpus("chat", "h100-pcie-80gb", 4));
    let change = pool.composer().compose(demand, ME, &how).await.unwrap();
    let ended = pool.ended(&change).await;
    assert_eq!(ended.state, OperationState::RolledBack);
    let error = ended.error().unwrap();
    assert!(error.contains("it was not done by"), "{error}");
    assert!(pool.truth().is_empty());
    pool.all_is_free().await;
    let in_time = How {
        deadline_s: Some(600),
        ..How::default()
    };
    let demand = spec(gpus("chat", "h100-pcie-80gb", 4));
    let change = pool.composer().compose(demand, ME, &in_time).await.unwrap();
    pool.done(&change).await;
}

/// Other demands keep their surplus GPUs until a plan for all is applied.
#[tokio::test(start_paused = true)]
async fn nobody_is_shrunk_for_a_demand_that_somebody_composes() {
    let pool = Pool::of("demo").await;
    let kind = "h100-pcie-80gb";
    pool.composed(gpus("chat", kind, 8)).await;
    let before = pool.truth();
    let smaller = serde_json::from_value(json!({"demands": [gpus("chat", kind, 4)]})).unwrap();
    pool.composer().declare(smaller, false).await.unwrap();
    let all_but_four = 24 - 4;
    let refused = pool.compose(gpus("lab", kind, all_but_four)).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Unplaced, "{refused}");
    let change = pool.compose(gpus("lab", kind, 4)).await.unwrap();
    assert!(change.plan.releases.is_empty(), "{:?}", change.plan);
    pool.done(&change).await;
    assert_eq!(pool.holders().await["chat"], 8);
    assert!(
        before
            .iter()
            .all(|(gpu, port)| pool.truth().get(gpu) == Some(port))
    );
    // A plan for all says so, and does it.
    let plan = pool.composer().plan().await.unwrap();
    let goes: u32 = plan
        .releases
        .iter()
        .map(poolwright_planner::Composition::gpu_count)
        .sum();
    assert_eq!(goes, 4, "{plan:?}");
    pool.applied(plan).await;
    assert_eq!(pool.holders().await["chat"], 4);
    pool.all_is_well().await;
}

/// Fault 79: the limit holds for the plan that runs, and not for an earlier dry run.
#[tokio::test(start_paused = true)]
async fn a_change_that_would_detach_more_gpus_than_allowed_is_refused() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 4)).await;
    let before = pool.truth();
    let at_most = |max| How {
        max_detach: Some(max),
        ..keyed("release-1")
    };
    let release = async |how: How| {
        let what = Release::Demand(demand_id("chat"));
        pool.composer().release(what, ME, &how).await
    };
    let refused = release(at_most(3)).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict, "{refused}");
    assert!(refused.message.contains("detach 4 GPUs"), "{refused}");
    assert_eq!(pool.truth(), before, "nothing was changed");
    // A refusal uses up no key, and a key stands for the change with any limit.
    let released = release(at_most(4)).await.unwrap();
    pool.done(&released).await;
    assert!(release(at_most(0)).await.unwrap().replayed);
    pool.all_is_free().await;
}
