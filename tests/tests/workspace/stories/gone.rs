//! A GPU that is pulled out of its box while somebody holds it.

use crate::stories::kit::{ME, Pool, demand_id, gpus};
use poolwright_emulator::rack::GpuIx;
use poolwright_model::fault::{Fault, FaultKind as Seen};
use poolwright_model::id::ControlEndpointId;
use poolwright_model::lifecycle::GpuState;
use poolwright_service::{Change, ErrorCode, How, Release, ServiceError};

const KIND: &str = "h100-pcie-80gb";

impl Pool {
    async fn vanish(&self, gpu: &str) {
        let gpu = self.gpu_ix(gpu);
        self.emulation.with(|state, now| state.vanish(gpu, now));
        self.composer().discover(&()).await.unwrap();
    }

    async fn reappear(&self, gpu: &str) {
        let gpu = self.gpu_ix(gpu);
        self.emulation.with(|state, _| state.reappear(gpu));
        self.composer().discover(&()).await.unwrap();
    }

    async fn release_by_force(&self, demand: &str) -> Result<Change, ServiceError> {
        let how = How {
            force: Some("its box caught fire".to_owned()),
            ..How::default()
        };
        let what = Release::Demand(demand_id(demand));
        self.composer().release(what, ME, &how).await
    }

    /// The names of the GPUs that are bound, in order.
    fn bound(&self) -> Vec<String> {
        self.truth().into_keys().collect()
    }
}

/// Fault 43: missing, with its holder.
#[tokio::test(start_paused = true)]
async fn a_gpu_that_vanished_is_shown_as_missing_with_its_holder() {
    let mut pool = Pool::of("demo").await;
    pool.composed(gpus("two", KIND, 2)).await;
    let held = pool.bound().remove(0);
    let names = (0..).map(|at| pool.emulation.rack().gpu_name(GpuIx(at)));
    let free = names.take(20).find(|gpu| !pool.bound().contains(gpu)).unwrap();
    let count = pool.snapshot().await.topology.gpus.len();
    pool.vanish(&held).await;
    pool.vanish(&free).await;
    let told = async |pool: &Pool, gpu: &str| {
        let gpu = pool.gpu(gpu).await;
        assert_eq!(gpu.state, GpuState::Missing);
        assert!(gpu.host.is_none() && !gpu.composability.is_composable());
        let faults = &pool.snapshot().await.faults;
        let of = |fault: &&Fault| fault.kind == Seen::Missing && fault.message.contains(gpu.id.as_str());
        let found: Vec<String> = faults
            .iter()
            .filter(of)
            .map(|fault| fault.message.clone())
            .collect();
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].clone()
    };
    assert!(told(&pool, &held).await.contains("holds it for demand two"));
    assert!(!told(&pool, &free).await.contains("holds"));
    assert_eq!(pool.snapshot().await.topology.gpus.len(), count);
    let why = pool.composer().why(&demand_id("two")).await.unwrap().because;
    assert!(
        why.iter()
            .any(|why| why.contains("of these is missing: not seen since")),
        "{why:?}"
    );
    let plan = pool.composer().plan().await.unwrap();
    assert!(
        plan.changes_nothing(),
        "nobody else is given less, and nothing is moved"
    );

    // Whoever comes later knows what is held, and was never told of the other.
    pool.restart().await;
    assert!(told(&pool, &held).await.contains("since the manager started"));
    assert_eq!(pool.snapshot().await.topology.gpus.len(), count - 1);
    let plan = pool.composer().plan().await.unwrap();
    assert!(plan.changes_nothing() && plan.deferred.is_empty(), "{plan:?}");

    // A box that is silent, or is removed, is missing nothing.
    let other = match held.starts_with("box-2/") {
        true => "box-1",
        false => "box-2",
    };
    let missing = async |pool: &Pool| {
        let snapshot = pool.composer().discover(&()).await.unwrap();
        let gpus = snapshot.topology.gpus.iter();
        gpus.filter(|gpu| gpu.state == GpuState::Missing).count()
    };
    assert_eq!(missing(&pool).await, 1);
    pool.silence(other);
    assert_eq!(missing(&pool).await, 1);
    pool.emulation.clear_faults();
    let other = ControlEndpointId::new(other).unwrap();
    pool.composer().remove_endpoint(&other).await.unwrap();
    assert_eq!(missing(&pool).await, 1);

    pool.reappear(&held).await;
    assert_eq!(missing(&pool).await, 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_composition_is_not_trapped_with_a_gpu_that_is_gone() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("two", KIND, 2)).await;
    let gone = pool.bound().remove(0);
    let id = pool.gpu(&gone).await.id;
    pool.vanish(&gone).await;

    let refused = pool.release("two").await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict);
    let hint = refused.hint.unwrap();
    assert!(
        hint.contains("--force") && !hint.contains("wait for the operation"),
        "{hint}"
    );

    let change = pool.release_by_force("two").await.unwrap();
    assert_eq!(change.given_up, [id]);
    assert_eq!(change.plan.summary().gpus_unbound, 1);
    pool.done(&change).await;
    assert!(pool.demands().await.is_empty());
    pool.all_is_free().await;

    // It comes back, and nobody gets it as it is.
    pool.reappear(&gone).await;
    assert_eq!(pool.gpu(&gone).await.state, GpuState::Dirty);
    pool.composed(gpus("all", KIND, 24)).await;
    let tally = pool.emulation.with(|state, _| state.tally());
    assert_eq!(tally.bound_dirty, 0);
    pool.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_composition_that_is_gone_altogether_is_ended_without_an_operation() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("one", KIND, 1)).await;
    let gone = pool.bound().remove(0);
    pool.vanish(&gone).await;
    let operations = pool.composer().operations().await.unwrap().len();

    let change = pool.release_by_force("one").await.unwrap();
    assert!(change.operation.is_none() && change.given_up.len() == 1);
    assert_eq!(pool.composer().operations().await.unwrap().len(), operations);
    assert!(pool.demands().await.is_empty());
    pool.all_is_free().await;
    assert_eq!(
        pool.release_by_force("one").await.unwrap_err().code,
        ErrorCode::NotFound
    );
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_has_bound_elsewhere_is_left_to_them() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("two", KIND, 2)).await;
    let (taken, at) = pool.truth().pop_first().unwrap();
    pool.unbind_by_others(&taken);
    let others = match at.contains("host-1") {
        true => at.replace("host-1", "host-2"),
        false => at.replacen(&at[..6], "host-1", 1),
    };
    pool.bind_by_others(&taken, &others);
    pool.composer().discover(&()).await.unwrap();
    assert!(
        pool.release("two")
            .await
            .unwrap_err()
            .hint
            .unwrap()
            .contains("--force")
    );
    let change = pool.release_by_force("two").await.unwrap();
    pool.done(&change).await;
    assert_eq!(pool.gpu(&taken).await.state, GpuState::Foreign);
    assert_eq!(pool.bound(), [taken]);
    pool.all_is_well().await;
}

/// Force is for what is gone: what is back, or was there all along, is let go of as ever.
#[tokio::test(start_paused = true)]
async fn what_is_back_is_not_given_up() {
    let pool = Pool::of("demo").await;
    pool.composed(gpus("two", KIND, 2)).await;
    let gone = pool.bound().remove(0);
    pool.vanish(&gone).await;
    let gpu = pool.gpu_ix(&gone);
    pool.emulation.with(|state, _| state.reappear(gpu));
    let change = pool.release_by_force("two").await.unwrap();
    assert!(change.given_up.is_empty());
    pool.done(&change).await;
    pool.all_is_free().await;
}
