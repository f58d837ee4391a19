//! What a fabric lost is bound again where that is the policy: a few at a time, never what is somebody else's, and
//! never for ever.

use crate::stories::calendar::Clockwork;
use crate::stories::kit::{ME, Pool, gpus};
use poolwright_emulator::Rack;
use poolwright_emulator::fault::{Fault, FaultKind};
use poolwright_emulator::rack::BoxIx;
use poolwright_model::id::ControlEndpointId;
use poolwright_service::endpoint::Repair;
use poolwright_service::limits::NewLimits;
use poolwright_service::{CheckResult, DriftKind, OperationKind, OperationState, Paused};
use poolwright_store::SqliteStore;
use std::sync::Arc;
use std::time::Duration;

const POLL: Duration = Duration::from_secs(30);
const KIND: &str = "h100-pcie-80gb";

fn boxes() -> [ControlEndpointId; 2] {
    ["box-1".parse().unwrap(), "box-2".parse().unwrap()]
}

pub async fn repairing() -> (Pool, Clockwork) {
    let rack = Rack::builtin("demo").unwrap();
    let mut pool = Pool::bare(rack, Arc::new(SqliteStore::in_memory().unwrap()));
    pool.options.poll = Some(POLL);
    pool.open().await;
    pool.add_all_endpoints().await;
    pool.let_repair().await;
    let clockwork = Clockwork::of(&pool);
    (pool, clockwork)
}

impl Pool {
    async fn let_repair(&self) {
        for id in boxes() {
            let set = self.composer().set_repair(&id, Repair::Rebind).await.unwrap();
            assert_eq!(set.repair, Repair::Rebind);
        }
    }

    async fn repairs(&self) -> usize {
        let all = self.composer().operations().await.unwrap();
        let repairs = all
            .iter()
            .filter(|operation| operation.kind == OperationKind::Repair);
        let done = |operation: &&poolwright_service::Operation| operation.state == OperationState::Completed;
        repairs
            .inspect(|operation| assert_eq!(operation.by, "repair"))
            .filter(done)
            .count()
    }

    async fn drifting(&self) -> Vec<DriftKind> {
        let drifts = self.composer().drift().await.unwrap();
        drifts.iter().map(|drift| drift.kind).collect()
    }
}

/// Fault 18: what is unbound again after three repairs is left alone.
#[tokio::test(start_paused = true)]
async fn what_a_fabric_lost_is_bound_again_and_what_is_unbound_time_and_again_is_left_alone() {
    let (pool, clockwork) = repairing().await;
    pool.composed(gpus("chat", KIND, 2)).await;
    let truth = pool.truth();
    let name = truth.keys().next().unwrap();
    let home = name.split_once('/').unwrap().0.parse().unwrap();
    for times in 1..=3 {
        pool.unbind_by_others(name);
        pool.until("it is bound again", async || pool.truth() == truth)
            .await;
        pool.quiet().await;
        assert_eq!(pool.repairs().await, times);
        assert!(pool.drifting().await.is_empty());
        pool.all_is_well().await;
    }
    pool.unbind_by_others(name);
    tokio::time::sleep(Duration::from_secs(2 * 3600)).await;
    assert_eq!(
        (pool.repairs().await, pool.truth().len()),
        (3, 1),
        "it is fought over no more"
    );
    let drifts = pool.composer().drift().await.unwrap();
    assert_eq!((drifts.len(), drifts[0].kind), (1, DriftKind::Unbound));
    let why = drifts[0].detail.as_ref().unwrap();
    assert!(
        why.contains("3 times within an hour")
            && why.contains(&format!("endpoint set {home} --repair rebind")),
        "{why}"
    );
    let checks = pool.composer().doctor().await.unwrap();
    let repairs = checks.iter().find(|check| check.name == "repairs").unwrap();
    assert_eq!(repairs.result, CheckResult::Problem);

    // Somebody found out who did it.
    pool.composer().set_repair(&home, Repair::Rebind).await.unwrap();
    pool.until("it is bound again", async || pool.truth() == truth)
        .await;
    pool.quiet().await;
    // Seldom is not time and again.
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_secs(1800)).await;
        pool.unbind_by_others(name);
        pool.until("it is bound again", async || pool.truth() == truth)
            .await;
        pool.quiet().await;
    }
    pool.all_is_well().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_somebody_bound_elsewhere_is_theirs_and_a_pause_holds_repairs() {
    let (pool, clockwork) = repairing().await;
    pool.composed(gpus("chat", KIND, 2)).await;
    let truth = pool.truth();
    let (name, home) = truth.iter().next().unwrap();
    let rack = pool.emulation.rack().clone();
    let of_box = rack.box_of(pool.gpu_ix(name)).unwrap();
    let mut ports = rack[of_box].ports.iter().map(|port| rack.port_name(*port));
    let elsewhere = ports.find(|port| port != home).unwrap();
    pool.unbind_by_others(name);
    pool.bind_by_others(name, &elsewhere);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(pool.drifting().await, [DriftKind::Elsewhere]);
    assert_eq!((pool.repairs().await, &pool.truth()[name]), (0, &elsewhere));

    pool.composer()
        .pause(Paused::Automation, ME, "the rack is moved")
        .await
        .unwrap();
    pool.unbind_by_others(name);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(
        (pool.drifting().await, pool.repairs().await),
        (vec![DriftKind::Unbound], 0)
    );
    pool.composer().resume(&Paused::Automation, ME).await.unwrap();
    pool.until("it is bound again", async || pool.truth() == truth)
        .await;
    pool.quiet().await;
    for id in boxes() {
        pool.composer().set_repair(&id, Repair::Report).await.unwrap();
    }
    pool.unbind_by_others(name);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(pool.repairs().await, 1, "told, and nothing else");
    clockwork.stop().await;
}

/// Repairs that are refused are no sign that somebody unbinds it again.
#[tokio::test(start_paused = true)]
async fn what_a_fabric_will_not_bind_for_a_while_is_tried_again_and_not_left_alone() {
    let (pool, clockwork) = repairing().await;
    // Each failure would pause automation soon.
    let patient = NewLimits {
        failures: Some(100),
        ..NewLimits::default()
    };
    pool.composer().set_limits(&patient).await.unwrap();
    pool.composed(gpus("chat", KIND, 2)).await;
    let truth = pool.truth();
    let name = truth.keys().next().unwrap();
    pool.unbind_by_others(name);
    let refused = Fault::new(FaultKind::Status {
        code: 503,
        retry_after: None,
    });
    pool.fault(refused.on("PATCH", "/redfish/v1/Fabrics/*/Zones/*"));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let tried = pool.operations().await - 1;
    assert!(
        (4..=8).contains(&tried),
        "{tried} repairs in an hour, later each time"
    );
    assert_eq!(pool.truth().len(), 1);
    pool.emulation.clear_faults();
    pool.until("it is bound again", async || pool.truth() == truth)
        .await;
    pool.quiet().await;
    // And what is unbound by somebody time and again is left alone as ever.
    for _ in 0..2 {
        pool.unbind_by_others(name);
        pool.until("it is bound again", async || pool.truth() == truth)
            .await;
        pool.quiet().await;
    }
    pool.unbind_by_others(name);
    tokio::time::sleep(Duration::from_secs(2 * 3600)).await;
    assert_eq!((pool.repairs().await, pool.truth().len()), (3, 1));
    clockwork.stop().await;
}

/// Fault 17: a few at a time, and only where that is the policy.
#[tokio::test(start_paused = true)]
async fn a_fabric_that_restarted_empty_is_repaired_a_few_at_a_time() {
    let (pool, clockwork) = repairing().await;
    pool.composed(gpus("chat", KIND, 20)).await;
    let truth = pool.truth();
    let lose = || {
        pool.emulation.with(|state, now| {
            state.lose_bindings(BoxIx(0), now);
            state.lose_bindings(BoxIx(1), now);
        });
    };
    let binds = || pool.emulation.with(|state, _| state.tally().binds);
    let (before, mut last, mut most) = (binds(), binds(), 0);
    lose();
    for _ in 0..60 {
        tokio::time::sleep(POLL).await;
        most = most.max(binds() - last);
        last = binds();
        if pool.truth() == truth {
            break;
        }
    }
    assert_eq!(pool.truth(), truth);
    assert_eq!(binds() - before, truth.len() as u64, "each once");
    assert!(most <= 8, "{most} of two boxes between two polls");
    pool.quiet().await;
    pool.all_is_well().await;
    clockwork.stop().await;
}
