//! A box that renumbers its GPUs, and cards that are exchanged: a release reaches the named GPU or none.

use crate::stories::kit::{ME, Pool};
use poolwright_emulator::Rack;
use poolwright_model::id::{CompositionId, GpuId};
use poolwright_service::{Change, DriftKind, How, OperationState, ServiceError};
use std::collections::BTreeMap;

const ONE: &str = "box-1/gpu-1";
const OTHER: &str = "box-1/gpu-3";

/// A pool with both GPUs attached, each in a composition of its own, to these hosts.
async fn attached(style: &str, hosts: [&str; 2]) -> Pool {
    let pool = Pool::of(style).await;
    for (gpu, host) in [ONE, OTHER].into_iter().zip(hosts) {
        let change = pool.attach(gpu, host).await;
        let done = pool.done(&change).await;
        assert_eq!(done.state, OperationState::Completed, "{:?}", done.error());
    }
    assert_eq!(pool.which_are_bound(), [ONE, OTHER]);
    pool
}

impl Pool {
    async fn attach(&self, gpu: &str, host: &str) -> Change {
        let (gpu, host) = (self.gpu(gpu).await.id, self.host_id(host).await);
        let attached = self.composer().attach(&[gpu], &host, ME, &How::default()).await;
        attached.unwrap()
    }

    fn renumber(&self) {
        let (one, other) = (self.gpu_ix(ONE), self.gpu_ix(OTHER));
        self.emulation.with(|state, _| state.renumber(one, other));
    }

    /// Those of the two that are bound.
    fn which_are_bound(&self) -> Vec<String> {
        let bound = self.truth().into_keys();
        bound.filter(|gpu| gpu == ONE || gpu == OTHER).collect()
    }

    /// Unbinds and resets so far.
    fn effects(&self) -> (u64, u64) {
        let tally = self.emulation.with(|state, _| state.tally());
        (tally.unbinds, tally.resets)
    }

    async fn looks(&self) {
        self.composer().discover(&()).await.unwrap();
    }

    /// Of GPUs that compositions hold.
    async fn drifts(&self) -> Vec<DriftKind> {
        let drifts = self.composer().drift().await.unwrap().into_iter();
        let held = drifts.filter(|drift| drift.composition.is_some());
        held.map(|drift| drift.kind).collect()
    }

    async fn holds(&self) -> BTreeMap<GpuId, CompositionId> {
        let all = self.composer().compositions().await.unwrap();
        let held = all
            .iter()
            .flat_map(|c| c.gpus().map(|gpu| (gpu.clone(), c.id.clone())));
        held.collect()
    }

    async fn detach(&self, gpu: &str) -> Result<Change, ServiceError> {
        let gpu = self.gpu(gpu).await.id;
        self.composer().detach(&[gpu], ME, &How::default()).await
    }
}

impl Pool {
    async fn refuses_to_detach(&self, gpu: &str) {
        let change = self.detach(gpu).await.unwrap();
        let ended = self.ended(&change).await;
        assert_eq!(ended.state, OperationState::RolledBack);
        let error = ended.error().unwrap();
        assert!(error.contains("identity changed"), "{error}");
    }
}

/// Fault 72: before the manager has seen the new addresses it sends nothing; then it uses them.
#[tokio::test(start_paused = true)]
async fn the_gpu_that_was_named_is_detached_whatever_its_address_is() {
    for style in ["zones", "connections", "blocks"] {
        let pool = attached(style, ["host-1", "host-1"]).await;
        let before = pool.truth();
        let (unbinds, resets) = pool.effects();
        pool.renumber();
        pool.refuses_to_detach(ONE).await;
        assert_eq!(
            (pool.truth(), pool.effects()),
            (before, (unbinds, resets)),
            "{style}"
        );

        pool.looks().await;
        assert_eq!(pool.drifts().await, [DriftKind::Moved; 2], "{style}");
        pool.done(&pool.detach(ONE).await.unwrap()).await;
        assert_eq!(pool.which_are_bound(), [OTHER], "{style}");
        assert_eq!(pool.holds().await.len(), 1);
        pool.done(&pool.detach(OTHER).await.unwrap()).await;
        assert!(
            pool.which_are_bound().is_empty() && pool.holds().await.is_empty(),
            "{style}"
        );
        // Both can be had again at their new addresses.
        pool.done(&pool.attach(ONE, "host-2").await).await;
        assert_eq!(pool.which_are_bound(), [ONE], "{style}");
    }
}

/// Fault 72: the recorded address is now that of a GPU that was pulled, so it shows none.
#[tokio::test(start_paused = true)]
async fn a_gpu_is_not_detached_at_the_address_of_one_that_was_pulled() {
    for style in ["zones", "connections", "blocks"] {
        let pool = attached(style, ["host-1", "host-1"]).await;
        let pulled = pool.gpu_ix(OTHER);
        pool.emulation.with(|state, now| state.vanish(pulled, now));
        pool.renumber();
        let effects = pool.effects();
        pool.refuses_to_detach(ONE).await;
        assert_eq!(pool.effects(), effects, "{style}");
        assert_eq!(pool.which_are_bound(), [ONE], "{style}");

        pool.looks().await;
        pool.done(&pool.detach(ONE).await.unwrap()).await;
        assert!(pool.which_are_bound().is_empty(), "{style}");
    }
}

/// On two hosts the old addresses show each GPU at the other's host.
#[tokio::test(start_paused = true)]
async fn gpus_that_had_each_others_addresses_for_a_while_can_be_released() {
    let pool = attached("zones", ["host-1", "host-2"]).await;
    let before = pool.truth();
    pool.renumber();
    // It may be refused at once, or be rolled back.
    if let Ok(change) = pool.detach(ONE).await {
        assert_eq!(pool.ended(&change).await.state, OperationState::RolledBack);
    }
    assert_eq!(pool.truth(), before);
    pool.renumber();
    pool.looks().await;
    assert!(pool.drifts().await.is_empty());
    for gpu in [ONE, OTHER] {
        pool.done(&pool.detach(gpu).await.unwrap()).await;
    }
    assert!(pool.which_are_bound().is_empty() && pool.holds().await.is_empty());
}

/// A technician exchanges the cards: the host has another GPU in the same slot.
#[tokio::test(start_paused = true)]
async fn a_card_in_another_ones_slot_is_not_taken_for_it() {
    let pool = Pool::with(Rack::builtin("zones").unwrap()).await;
    pool.done(&pool.attach(ONE, "host-1").await).await;
    let (one, other) = (pool.gpu_ix(ONE), pool.gpu_ix(OTHER));
    pool.emulation.with(|state, now| state.exchange(one, other, now));
    let there = pool.truth();
    assert_eq!(pool.which_are_bound(), [OTHER]);
    let change = pool.detach(ONE).await.unwrap();
    let ended = pool.ended(&change).await;
    assert!(
        ended.error().unwrap_or_default().contains("identity changed"),
        "{:?}",
        ended.error()
    );
    assert_eq!(pool.truth(), there);

    // After a discovery it is held and unbound, so it can be released; the binding of the other one is foreign.
    pool.looks().await;
    pool.done(&pool.detach(ONE).await.unwrap()).await;
    assert_eq!(pool.truth(), there);
    assert!(pool.holds().await.is_empty());
}
