//! The fabric is changed behind the manager's back: it is seen by the next look, told as wanted against found,
//! and nothing is done about it by itself.

use crate::stories::calendar::*;
use crate::stories::kit::{Pool, gpus};
use poolwright_emulator::Rack;
use poolwright_emulator::rack::BoxIx;
use poolwright_model::id::GpuId;
use poolwright_model::lifecycle::GpuState;
use poolwright_service::{CheckResult, Drift, DriftKind};
use poolwright_store::SqliteStore;
use std::sync::Arc;
use std::time::Duration;

const POLL: Duration = Duration::from_secs(30);

/// A pool that is looked at every 30 s, with what runs by the clock.
async fn polled() -> (Pool, Clockwork) {
    let rack = Rack::builtin("demo").unwrap();
    let mut pool = Pool::bare(rack, Arc::new(SqliteStore::in_memory().unwrap()));
    pool.options.poll = Some(POLL);
    pool.open().await;
    pool.add_all_endpoints().await;
    let clockwork = Clockwork::of(&pool);
    (pool, clockwork)
}

impl Pool {
    async fn drift(&self) -> Vec<Drift> {
        self.composer().drift().await.unwrap()
    }

    /// What is told once the next look is over.
    async fn drift_after_a_poll(&self) -> Vec<Drift> {
        tokio::time::sleep(POLL + Duration::from_secs(5)).await;
        self.drift().await
    }

    fn asked(&self) -> (u64, u64) {
        let tally = self.emulation.with(|state, _| state.tally());
        (tally.binds, tally.unbinds)
    }

    /// What the rack calls a GPU that is held.
    async fn a_held_gpu(&self) -> (String, GpuId) {
        let name = self.truth().into_keys().next().unwrap();
        let id = self.gpu(&name).await.id;
        (name, id)
    }
}

fn kinds(drifts: &[Drift]) -> Vec<DriftKind> {
    drifts.iter().map(|drift| drift.kind).collect()
}

/// Fault 17: told, and left so.
#[tokio::test(start_paused = true)]
async fn row_17_a_fabric_that_restarts_empty_is_told_and_nothing_is_bound_again() {
    let (pool, clockwork) = polled().await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
    pool.schedule(night()).await;
    assert!(pool.drift().await.is_empty());
    let held = pool.truth().len();
    pool.emulation.with(|state, now| {
        state.lose_bindings(BoxIx(0), now);
        state.lose_bindings(BoxIx(1), now);
    });
    let asked = pool.asked();
    let drifts = pool.drift_after_a_poll().await;
    assert_eq!(kinds(&drifts), vec![DriftKind::Unbound; held]);
    let first = &drifts[0];
    assert_eq!(first.demand.as_ref().unwrap().as_str(), "chat");
    assert!(first.wanted.is_some() && first.found.is_none(), "{first}");
    let doctor = pool.composer().doctor().await.unwrap();
    let bindings = doctor.iter().find(|check| check.name == "bindings").unwrap();
    assert_eq!(bindings.result, CheckResult::Problem);
    assert!(bindings.hint.as_ref().unwrap().contains("poolwright diff"));

    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(pool.asked(), asked, "nobody binds them again");
    assert!(pool.composer().plan().await.unwrap().steps.is_empty());
    assert_eq!(pool.operations().await, 1);
    // Whoever lets go of it, and asks again, has it again.
    pool.released("chat").await;
    assert!(pool.drift_after_a_poll().await.is_empty());
    pool.composed(gpus("chat", "h100-pcie-80gb", 20)).await;
    assert!(pool.drift_after_a_poll().await.is_empty());
    pool.all_is_well().await;
    clockwork.stop().await;
}

/// Fault 18: back and forth three times, and elsewhere.
#[tokio::test(start_paused = true)]
async fn row_18_what_another_tool_changes_is_told_and_never_fought_over() {
    let (pool, clockwork) = polled().await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 2)).await;
    pool.schedule(night()).await;
    let (name, gpu) = pool.a_held_gpu().await;
    let home = pool.truth()[&name].clone();
    let operations = pool.operations().await;
    for _ in 0..3 {
        pool.unbind_by_others(&name);
        let drifts = pool.drift_after_a_poll().await;
        assert_eq!(kinds(&drifts), [DriftKind::Unbound]);
        assert_eq!(drifts[0].gpu, gpu);
        pool.bind_by_others(&name, &home);
        assert!(pool.drift_after_a_poll().await.is_empty(), "it is back");
    }
    pool.unbind_by_others(&name);
    let of_box = pool.emulation.rack().box_of(pool.gpu_ix(&name)).unwrap();
    let rack = pool.emulation.rack().clone();
    let ports = rack[of_box].ports.iter().map(|port| rack.port_name(*port));
    let elsewhere = ports.into_iter().find(|port| *port != home).unwrap();
    pool.bind_by_others(&name, &elsewhere);
    let drifts = pool.drift_after_a_poll().await;
    assert_eq!(kinds(&drifts), [DriftKind::Elsewhere]);
    assert_ne!(drifts[0].wanted, drifts[0].found);
    let before = pool.truth();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(pool.truth(), before, "left where somebody put it");
    assert_eq!(pool.operations().await, operations, "nothing was begun");

    // One that nobody of ours holds.
    let free = pool
        .snapshot()
        .await
        .topology
        .gpus
        .iter()
        .find(|gpu| gpu.host.is_none())
        .cloned();
    let serial = free.unwrap().serial.unwrap();
    let at = rack.gpus.iter().position(|gpu| gpu.serial == serial).unwrap();
    let at = poolwright_emulator::rack::GpuIx(at);
    let port = rack.port_name(rack[rack.box_of(at).unwrap()].ports[1]);
    pool.bind_by_others(&rack.gpu_name(at), &port);
    let mut found = kinds(&pool.drift_after_a_poll().await);
    found.sort();
    assert_eq!(found, [DriftKind::Elsewhere, DriftKind::Foreign]);
    clockwork.stop().await;
}

/// Fault 42: a free one and a held one.
#[tokio::test(start_paused = true)]
async fn row_42_a_gpu_that_is_pulled_is_gone_with_the_next_look() {
    let (pool, clockwork) = polled().await;
    pool.composed(gpus("chat", "h100-pcie-80gb", 2)).await;
    let (name, held) = pool.a_held_gpu().await;
    let free = pool.snapshot().await;
    let free = free.topology.gpus.iter().find(|gpu| gpu.host.is_none()).unwrap();
    let rack = pool.emulation.rack().clone();
    let at = rack
        .gpus
        .iter()
        .position(|gpu| Some(&gpu.serial) == free.serial.as_ref());
    let at = poolwright_emulator::rack::GpuIx(at.unwrap());
    let taken = pool.gpu_ix(&name);
    pool.emulation.with(|state, now| {
        state.vanish(at, now);
        state.vanish(taken, now);
    });
    let drifts = pool.drift_after_a_poll().await;
    assert_eq!(kinds(&drifts), [DriftKind::Missing]);
    assert_eq!(drifts[0].gpu, held);
    let is_missing = async || {
        let snapshot = pool.snapshot().await;
        snapshot.topology.gpu(&free.id).unwrap().state == GpuState::Missing
    };
    assert!(is_missing().await, "the free one is no drift");
    pool.emulation.with(|state, _| state.reappear(at));
    tokio::time::sleep(POLL + Duration::from_secs(5)).await;
    assert!(!is_missing().await, "and back under its name");
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_box_that_is_silent_is_told_as_nobody_knows() {
    let (pool, clockwork) = polled().await;
    let composed = pool.composed(gpus("chat", "h100-pcie-80gb", 2)).await;
    let endpoint = composed.steps[0].step.target.unit_at.endpoint.clone();
    pool.silence(endpoint.as_str());
    pool.composer().discover(&()).await.unwrap();
    assert_eq!(kinds(&pool.drift().await), [DriftKind::Unreadable; 2]);
    pool.emulation.clear_faults();
    pool.composer().discover(&()).await.unwrap();
    assert!(pool.drift().await.is_empty());
    clockwork.stop().await;
}
