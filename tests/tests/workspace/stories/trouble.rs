//! What goes wrong, and what people do about it.

use crate::stories::kit::{FOREVER, ME, Pool, demand_id, gpus};
use poolwright_emulator::fault::{Fault, FaultKind};
use poolwright_emulator::state::Job;
use poolwright_executor::StepRecord;
use poolwright_model::composable::WhyNotKind;
use poolwright_model::fault::FaultKind as Seen;
use poolwright_model::id::ControlEndpointId;
use poolwright_model::lifecycle::GpuState;
use poolwright_model::step::Verb;
use poolwright_service::{
    CheckResult, ErrorCode, How, OperationKind, OperationState, Release, Resolution, StepState,
};
use serde_json::json;
use std::time::Duration;

/// Fault 19: nothing of it stays.
#[tokio::test(start_paused = true)]
async fn a_compose_that_fails_half_way_leaves_nothing() {
    let pool = Pool::of("demo").await;
    // The third of four binds.
    pool.refuse_a_move_after(2);
    let change = pool.compose(gpus("chat", "h100-pcie-80gb", 4)).await.unwrap();
    assert_eq!(
        pool.demands().await,
        ["chat"],
        "while it is composed it is there to be seen"
    );
    let ended = pool.ended(&change).await;
    assert_eq!(ended.state, OperationState::RolledBack);
    assert!(
        ended.steps.iter().any(|step| step.state == StepState::Undone),
        "some were bound"
    );
    assert!(ended.error().unwrap().contains("503"), "{:?}", ended.error());
    assert!(pool.demands().await.is_empty());
    assert!(pool.truth().is_empty());
    pool.all_is_free().await;
    // Nobody brings it back.
    assert!(pool.composer().plan().await.unwrap().changes_nothing());
    pool.composed(gpus("chat", "h100-pcie-80gb", 4)).await;
}

/// Fault 5: whoever asks how the manager is hears of it until it is over.
#[tokio::test(start_paused = true)]
async fn an_undo_that_fails_is_an_alarm_of_the_manager() {
    let pool = Pool::of("demo").await;
    let status = async || pool.composer().status().await.unwrap();
    assert_eq!(status().await.alarms, []);
    // One of two is bound, and can't be unbound again.
    let refused = Fault::new(FaultKind::Status {
        code: 503,
        retry_after: None,
    });
    pool.fault(refused.on("PATCH", "/redfish/v1/Fabrics/*/Zones/*").after(1));
    let change = pool.compose(gpus("chat", "h100-pcie-80gb", 2)).await.unwrap();
    let held = pool.ended(&change).await;
    assert_eq!(held.state, OperationState::Quarantined);
    let [alarm] = status().await.alarms.try_into().unwrap();
    assert_eq!(alarm.operation, held.id);
    let told = alarm.to_string();
    assert!(told.starts_with("critical: somebody must look"), "{told}");

    pool.emulation.clear_faults();
    let retry = Resolution::Retry;
    pool.composer()
        .resolve(&held.id, retry, ME, "mended")
        .await
        .unwrap();
    assert_eq!(pool.ended(&change).await.state, OperationState::RolledBack);
    assert_eq!(status().await.alarms, []);
    pool.all_is_free().await;
}

/// Fault 18: what others bound is left to them.
#[tokio::test(start_paused = true)]
async fn what_somebody_else_bound_is_left_alone() {
    let pool = Pool::of("zones").await;
    let foreign = pool.gpu("box-1/gpu-2").await;
    assert_eq!(foreign.state, GpuState::Foreign);
    assert_eq!(
        foreign.composability.0.as_ref().unwrap().kind,
        WhyNotKind::Foreign
    );
    let before = pool.truth();
    assert_eq!(before.len(), 1);

    let host = pool.host_id("host-1").await;
    let error = pool
        .composer()
        .attach(std::slice::from_ref(&foreign.id), &host, ME, &How::default())
        .await
        .unwrap_err();
    assert!(error.message.contains("somebody else bound it"), "{error}");
    let error = pool
        .composer()
        .detach(std::slice::from_ref(&foreign.id), ME, &How::default())
        .await
        .unwrap_err();
    assert!(error.message.contains("not held"), "{error}");

    // There are six of its kind, and five to be had.
    let error = pool.compose(gpus("all", "a100-pcie-80gb", 6)).await.unwrap_err();
    assert!(error.message.contains("bound by somebody else"), "{error}");
    pool.composed(gpus("most", "a100-pcie-80gb", 5)).await;
    pool.all_is_well().await;
    pool.released("most").await;
    assert_eq!(pool.truth(), before, "still bound where it was");
    pool.all_is_well().await;

    // One more is bound under our eyes, and one that we have reset before.
    pool.bind_by_others("box-1/gpu-1", "host-1/port-1");
    pool.composer().discover(&()).await.unwrap();
    assert_eq!(pool.gpu("box-1/gpu-1").await.state, GpuState::Foreign);
    pool.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_plan_whose_ground_has_moved_is_refused() {
    let pool = Pool::of("demo").await;
    let manager = pool.composer();
    manager
        .add_demand(crate::stories::kit::spec(gpus("chat", "h100-pcie-80gb", 4)))
        .await
        .unwrap();
    let plan = manager.plan().await.unwrap();
    assert_eq!(plan.summary().gpus_bound, 4);
    let target = &plan.composes[0].held[0].gpus[0];
    let snapshot = pool.snapshot().await;
    let serial = snapshot.topology.gpu(target).unwrap().serial.clone();
    let rack = pool.emulation.rack().clone();
    let at = rack
        .gpus
        .iter()
        .position(|gpu| Some(&gpu.serial) == serial.as_ref())
        .unwrap();
    let name = rack.gpu_name(poolwright_emulator::rack::GpuIx(at));
    let port = rack
        .box_of(poolwright_emulator::rack::GpuIx(at))
        .map(|of| rack[of].ports[0])
        .unwrap();
    pool.bind_by_others(&name, &rack.port_name(port));
    let before = pool.truth();

    let error = manager
        .apply(plan, OperationKind::Apply, ME, &How::default())
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::Stale);
    assert!(error.message.contains("was free") && error.hint.unwrap().contains("new plan"));
    assert_eq!(pool.truth(), before);
    assert!(manager.operations().await.unwrap().is_empty());

    let plan = manager.plan().await.unwrap();
    let change = manager
        .apply(plan, OperationKind::Apply, ME, &How::default())
        .await
        .unwrap();
    pool.done(&change).await;
    pool.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_plan_for_what_is_no_longer_wanted_is_refused() {
    let pool = Pool::of("demo").await;
    let manager = pool.composer();
    manager
        .add_demand(crate::stories::kit::spec(gpus("chat", "h100-pcie-80gb", 4)))
        .await
        .unwrap();
    let plan = manager.plan().await.unwrap();
    manager.remove_demand(&demand_id("chat")).await.unwrap();
    let error = manager
        .apply(plan, OperationKind::Apply, ME, &How::default())
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::Stale, "{error}");
    assert!(pool.truth().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_being_served_is_not_served_twice() {
    let pool = Pool::of("demo").await;
    let manager = pool.composer();
    manager
        .add_demand(crate::stories::kit::spec(gpus("chat", "h100-pcie-80gb", 4)))
        .await
        .unwrap();
    let plan = manager.plan().await.unwrap();
    let change = manager
        .apply(plan.clone(), OperationKind::Apply, ME, &How::default())
        .await
        .unwrap();
    // Other GPUs would be there, but somebody sees to it already.
    while !pool.store.open_operations().await.unwrap().is_empty() {
        assert!(manager.plan().await.unwrap().changes_nothing());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let because = manager.why(&demand_id("chat")).await.unwrap().because;
    assert!(because.iter().any(|why| why.starts_with("holds")), "{because:?}");
    pool.done(&change).await;
    assert_eq!(pool.truth().len(), 4);
    pool.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_silent_keeps_what_it_had() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
    let (before, count) = (pool.shown().await, pool.snapshot().await.topology.gpus.len());
    pool.silence("box-2");
    let snapshot = pool.composer().discover(&()).await.unwrap();
    assert_eq!(snapshot.topology.gpus.len(), count);
    assert_eq!(pool.shown().await, before);
    let faults = &snapshot.faults;
    assert!(
        faults
            .iter()
            .any(|f| f.source == "box-2" && f.kind == Seen::Timeout),
        "{faults:?}"
    );
    let checks = pool.composer().doctor().await.unwrap();
    let endpoint = checks
        .iter()
        .find(|check| check.name == "endpoint box-2")
        .unwrap();
    assert_eq!(endpoint.result, CheckResult::Problem);
    assert!(endpoint.hint.as_ref().unwrap().contains("endpoint test box-2"));

    pool.emulation.clear_faults();
    let checks = pool.composer().doctor().await.unwrap();
    assert!(
        checks.iter().all(|check| check.result == CheckResult::Ok),
        "{checks:?}"
    );
    assert!(pool.snapshot().await.faults.is_empty());
    pool.all_is_well().await;
}

/// Fault 17: a binding that is gone is told.
#[tokio::test(start_paused = true)]
async fn a_binding_that_vanished_is_told() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 4)).await;
    let (gpu, port) = pool.truth().into_iter().next().unwrap();
    pool.unbind_by_others(&gpu);
    let checks = pool.composer().doctor().await.unwrap();
    let bindings = checks.iter().find(|check| check.name == "bindings").unwrap();
    assert_eq!(bindings.result, CheckResult::Problem);
    let id = pool.gpu(&gpu).await.id;
    assert!(bindings.message.contains(id.as_str()) && bindings.message.contains("bound to nothing"));
    assert_eq!(
        pool.gpu(&gpu).await.state,
        GpuState::Dirty,
        "it was in a host, and not reset since"
    );
    // It is nobody else's, and it goes with the rest.
    let error = pool
        .compose(gpus("rest", "h100-pcie-80gb", 21))
        .await
        .unwrap_err();
    assert!(error.message.contains("20 are free"), "{error}");
    pool.released("chat").await;
    pool.all_is_free().await;

    // One that was put elsewhere meanwhile is not touched, and named.
    pool.composed(gpus("chat", "h100-pcie-80gb", 4)).await;
    let (gpu, _) = pool.truth().into_iter().next().unwrap();
    pool.unbind_by_others(&gpu);
    let other = if port.ends_with("port-1") {
        port.replace("port-1", "port-2")
    } else {
        port.replace("port-2", "port-1")
    };
    let rack = pool.emulation.rack().clone();
    let of = rack.box_of(pool.gpu_ix(&gpu)).unwrap();
    let elsewhere = rack[of]
        .ports
        .iter()
        .map(|at| rack.port_name(*at))
        .find(|name| *name != port && *name != other);
    pool.bind_by_others(&gpu, &elsewhere.clone().unwrap());
    pool.composer().discover(&()).await.unwrap();
    let error = pool.release("chat").await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Conflict, "{error}");
    assert_eq!(pool.demands().await, ["chat"], "nothing has changed");
    assert_eq!(pool.truth()[&gpu], elsewhere.unwrap());
}

#[tokio::test(start_paused = true)]
async fn why_says_why() {
    let pool = Pool::of("demo").await;
    let manager = pool.composer();
    pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
    manager
        .add_demand(crate::stories::kit::spec(gpus("search", "h100-pcie-80gb", 8)))
        .await
        .unwrap();
    manager
        .add_demand(crate::stories::kit::spec(gpus("little", "h100-pcie-80gb", 4)))
        .await
        .unwrap();
    let why = async |id: &str| manager.why(&demand_id(id)).await.unwrap();
    let served = why("chat").await;
    assert!(served.wanted_now && served.holds.len() > 1);
    assert!(served.because.iter().any(|line| line.starts_with("holds")));
    let waits = why("search").await.because.join("\n");
    assert!(
        waits.contains("4 are free") && waits.contains("what helps"),
        "{waits}"
    );
    let could = why("little").await.because.join("\n");
    assert!(could.contains("could be served now"), "{could}");
    let change = pool.compose(gpus("new", "l40s-48gb", 1)).await.unwrap();
    let now = why("new").await.because.join("\n");
    assert!(
        now.contains(change.operation.as_ref().unwrap().id.as_str()),
        "{now}"
    );
    pool.done(&change).await;
    assert_eq!(
        manager.why(&demand_id("nobody")).await.unwrap_err().code,
        ErrorCode::NotFound
    );
}

#[tokio::test(start_paused = true)]
async fn a_gpu_in_use_is_not_pulled_unless_somebody_says_why() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 4)).await;
    pool.until("its host sees it", async || pool.truth().len() == 4)
        .await;
    let gpu = pool.gpu_ix(pool.truth().keys().next().unwrap());
    let job = Job {
        pid: 4711,
        command: "python train.py".into(),
    };
    pool.emulation
        .with(|state, now| state.start_job(gpu, job, now))
        .unwrap();
    let change = pool.release("chat").await.unwrap();
    let ended = pool.ended(&change).await;
    assert_eq!(ended.state, OperationState::RolledBack);
    assert!(
        ended.error().unwrap().contains("python train.py"),
        "{:?}",
        ended.error()
    );
    // All is as before: it is wanted, and held.
    assert_eq!(pool.demands().await, ["chat"]);
    assert_eq!(pool.truth().len(), 4);
    pool.all_is_well().await;
    assert!(pool.composer().plan().await.unwrap().changes_nothing());

    let force = How {
        force: Some("the tenant has left".into()),
        ..How::default()
    };
    let what = Release::Demand(demand_id("chat"));
    // Pulled: the job does not survive it.
    let change = pool.composer().release(what, ME, &force).await.unwrap();
    let ended = pool.ended(&change).await;
    assert_eq!(ended.state, OperationState::Completed, "{:?}", ended.error());
    pool.all_is_free().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_cancelled_was_never_wanted() {
    let pool = Pool::of("demo").await;
    let manager = pool.composer();
    let change = pool.compose(gpus("chat", "h100-pcie-80gb", 4)).await.unwrap();
    let id = change.operation.as_ref().unwrap().id.clone();
    let error = pool.release("chat").await.unwrap_err();
    assert_eq!(error.operation.as_deref(), Some(id.as_str()), "{error}");
    pool.until("something is bound", async || !pool.truth().is_empty())
        .await;
    manager.cancel(&id, ME, "a mistake").await.unwrap();
    assert_eq!(pool.ended(&change).await.state, OperationState::Cancelled);
    assert!(pool.demands().await.is_empty() && pool.truth().is_empty());
    pool.all_is_free().await;
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_holds_both_ends_until_somebody_looks() {
    let pool = Pool::of("demo").await;
    let manager = pool.composer();
    // The bind has its effect, and from then on the box is silent.
    pool.fault(
        Fault::new(FaultKind::TimeOutAfter)
            .on("PATCH", "/redfish/v1/Fabrics/*/Zones/*")
            .times(1),
    );
    let change = pool.compose(gpus("chat", "h100-pcie-80gb", 1)).await.unwrap();
    pool.until("it is bound", async || pool.truth().len() == 1).await;
    let box_of = |name: &str| name.split('/').next().unwrap().to_owned();
    pool.silence(&box_of(pool.truth().keys().next().unwrap()));
    let id = change.operation.as_ref().unwrap().id.clone();
    pool.until("nobody knows", async || {
        manager.operation(&id).await.unwrap().state == OperationState::Indeterminate
    })
    .await;
    let error = manager.wait(&id, Duration::from_secs(60)).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Timeout, "{error}");
    let doctor = manager.doctor().await.unwrap();
    let operations = doctor.iter().find(|check| check.name == "operations").unwrap();
    assert!(operations.message.contains(id.as_str()));
    assert_eq!(pool.demands().await, ["chat"], "it is not given up");
    assert!(
        manager.plan().await.unwrap().changes_nothing(),
        "and not served elsewhere"
    );
    let error = manager
        .resolve(&id, Resolution::Accept, ME, "?")
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::Indeterminate, "{error}");

    pool.emulation.clear_faults();
    let ended = manager.wait(&id, FOREVER).await.unwrap();
    assert_eq!(ended.state, OperationState::Completed, "{:?}", ended.error());
    pool.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn what_an_operator_accepts_is_settled() {
    let pool = Pool::of("demo").await;
    let manager = pool.composer();
    pool.composed(gpus("chat", "l40s-48gb", 2)).await;
    // Unbinds time out before they have an effect, and then the box says nothing more.
    pool.fault(Fault::new(FaultKind::TimeOutBefore).on("PATCH", "/redfish/v1/Fabrics/*/Zones/*"));
    let change = pool.release("chat").await.unwrap();
    let id = change.operation.as_ref().unwrap().id.clone();
    let asked = |step: &StepRecord| step.step.verb == Verb::Unbind && step.attempts > 0;
    pool.until("an unbind was asked for", async || {
        manager.operation(&id).await.unwrap().steps.iter().any(asked)
    })
    .await;
    pool.silence("box-2");
    pool.until("nobody knows", async || {
        manager.operation(&id).await.unwrap().state == OperationState::Indeterminate
    })
    .await;
    pool.emulation.clear_faults();
    let resolved = manager.resolve(&id, Resolution::Accept, ME, "looked").await;
    // It may have gone on by itself just before; then there is nothing to accept.
    let ended = manager.wait(&id, FOREVER).await.unwrap();
    assert_eq!(
        resolved.is_ok(),
        ended.state == OperationState::Failed,
        "{resolved:?}"
    );
    if !pool.recorded().await.is_empty() {
        // A binding that was accepted keeps its demand: release it.
        assert_eq!(pool.demands().await, ["chat"]);
        pool.released("chat").await;
    }
    pool.until("its end was seen to", async || pool.demands().await.is_empty())
        .await;
    pool.all_is_free().await;
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_at_work_can_not_be_removed() {
    let pool = Pool::of("demo").await;
    let manager = pool.composer();
    let box_2 = ControlEndpointId::new("box-2").unwrap();
    let change = pool.compose(gpus("chat", "l40s-48gb", 2)).await.unwrap();
    let error = manager.remove_endpoint(&box_2).await.unwrap_err();
    assert!(error.message.contains("works at"), "{error}");
    pool.done(&change).await;
    let error = manager.remove_endpoint(&box_2).await.unwrap_err();
    assert!(error.message.contains("holds GPUs"), "{error}");
    pool.released("chat").await;
    manager.remove_endpoint(&box_2).await.unwrap();
    manager.discover(&()).await.unwrap();
    assert_eq!(pool.snapshot().await.topology.gpus.len(), 16);
    assert_eq!(
        pool.compose(json!({"id": "x", "kind": "l40s-48gb", "gpus": 1}))
            .await
            .unwrap_err()
            .code,
        ErrorCode::Unplaced
    );
    pool.add_endpoint("box-2").await;
    pool.composed(gpus("chat", "l40s-48gb", 2)).await;
    pool.all_is_well().await;
}
