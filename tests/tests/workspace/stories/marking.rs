//! Whose an endpoint is: two managers of different clusters on one rack.

use crate::stories::calendar::Clockwork;
use crate::stories::kit::{ME, Pool, gpus};
use poolwright_emulator::Rack;
use poolwright_model::composable::WhyNotKind;
use poolwright_model::id::ControlEndpointId;
use poolwright_service::endpoint::Standing;
use poolwright_service::{ErrorCode, How, Pause, Paused, ServiceError};
use poolwright_store::{SqliteStore, Store};
use poolwright_tests::torture::line::spec_of;
use std::sync::Arc;
use std::time::Duration;

const KIND: &str = "h100-pcie-80gb";
/// That of a manager which nobody here runs.
const ANOTHER: &str = "poolwright:4f8f0b3e-0d0c-4a53-9d4c-6f6b1b1f2a77";

fn id(name: &str) -> ControlEndpointId {
    ControlEndpointId::from_lossy(name)
}

fn store_of(cluster: &str) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::in_memory_of(cluster).unwrap())
}

/// A manager of a cluster of its own; it knows no endpoint yet.
async fn manager(rack: Rack) -> Pool {
    let mut pool = Pool::bare(rack, store_of("first"));
    pool.open().await;
    pool
}

async fn demo() -> Pool {
    manager(Rack::builtin("demo").unwrap()).await
}

impl Pool {
    /// Another manager on the same rack, with this store.
    async fn beside(&self, store: Arc<dyn Store>) -> Pool {
        let mut other = Pool::bare(Rack::builtin("demo").unwrap(), store);
        other.emulation = self.emulation.clone();
        other.clock = self.clock.clone();
        other.managers_clock = self.managers_clock.clone();
        other.open().await;
        other
    }

    async fn own_mark(&self) -> String {
        format!("poolwright:{}", self.store.cluster().await.unwrap().unwrap())
    }

    /// What stands at an endpoint.
    fn mark_at(&self, endpoint: &str) -> Option<String> {
        self.emulation
            .with(|state, _| state.mark(endpoint).map(str::to_owned))
    }

    fn mark_by_others(&self, endpoint: &str, mark: &str) {
        self.emulation.with(|state, _| state.set_mark(endpoint, mark));
    }

    async fn look(&self) {
        self.composer().discover(&()).await.unwrap();
    }

    async fn take(&self, endpoint: &str, take_over: Option<&str>) -> Result<(), ServiceError> {
        let manager = self.composer();
        let how = How::default();
        let adopting = manager.adopt_endpoint(&id(endpoint), ME, &how, take_over).await?;
        if adopting.change.operation.is_some() {
            self.done(&adopting.change).await;
        }
        Ok(())
    }

    async fn pause_of(&self, endpoint: &str) -> Option<Pause> {
        let what = Paused::Endpoint(id(endpoint));
        let pauses = self.composer().pauses().await.unwrap();
        pauses.into_iter().find(|pause| pause.what == what)
    }

    async fn why_not(&self, gpu: &str) -> Option<WhyNotKind> {
        self.gpu(gpu).await.composability.0.map(|why| why.kind)
    }
}

#[tokio::test(start_paused = true)]
async fn what_another_cluster_has_adopted_is_refused() {
    let first = demo().await;
    first.add_all_endpoints().await;
    let mark = first.own_mark().await;
    for endpoint in ["box-1", "box-2", "host-1-bmc"] {
        assert_eq!(first.mark_at(endpoint).as_ref(), Some(&mark), "{endpoint}");
    }
    let second = first.beside(store_of("second")).await;
    second.add_endpoint_as("box-1", Standing::Observed).await;
    assert_eq!(second.why_not("box-1/gpu-1").await, Some(WhyNotKind::Marked));
    for dry_run in [true, false] {
        let how = How {
            dry_run,
            ..How::default()
        };
        let manager = second.composer();
        let refused = manager
            .adopt_endpoint(&id("box-1"), ME, &how, None)
            .await
            .unwrap_err();
        assert_eq!(refused.code, ErrorCode::Conflict);
        assert!(refused.message.contains(&mark), "it says whose: {refused}");
        assert!(refused.hint.unwrap().contains("--take-over"));
    }
    let added = second
        .composer()
        .add_endpoint(spec_of("box-2"), Standing::Adopted)
        .await;
    assert_eq!(added.unwrap_err().code, ErrorCode::Conflict);
    assert_eq!(
        second.composer().endpoints().await.unwrap().len(),
        1,
        "it is not kept"
    );
    assert_eq!(first.mark_at("box-1"), Some(mark));
    first.composed(gpus("chat", KIND, 2)).await;
    first.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_taken_over_is_paused_at_the_one_that_had_it_until_it_is_given_back() {
    let mut first = demo().await;
    first.add_all_endpoints().await;
    let composed = first.composed(gpus("chat", KIND, 2)).await;
    let held_at = composed.steps[0].step.target.unit_at.endpoint.to_string();
    let other_box = if held_at == "box-1" { "box-2" } else { "box-1" };
    let second = first.beside(store_of("second")).await;
    second.add_endpoint_as(&held_at, Standing::Observed).await;
    second.take(&held_at, Some("the first is gone")).await.unwrap();
    assert_eq!(first.mark_at(&held_at), Some(second.own_mark().await));

    first.look().await;
    let pause = first.pause_of(&held_at).await.unwrap();
    assert_eq!(pause.by, "the manager");
    assert!(pause.reason.contains(&second.own_mark().await), "{pause}");
    assert_eq!(first.pause_of(other_box).await, None);
    let refused = first.release("chat").await.unwrap_err();
    assert!(refused.message.contains("mark of another manager"), "{refused}");
    let snapshot = first.snapshot().await;
    let there = snapshot.topology.gpus.iter().filter(|gpu| {
        let is_free = gpu.host_port.is_none();
        is_free && gpu.control.iter().any(|at| at.endpoint == id(&held_at))
    });
    let why_not: Vec<_> = there
        .map(|gpu| gpu.composability.0.as_ref().map(|why| why.kind))
        .collect();
    assert!(!why_not.is_empty() && why_not.iter().all(|why| *why == Some(WhyNotKind::Marked)));
    first.restart().await;
    assert!(first.pause_of(&held_at).await.is_some());

    // It is taken back.
    first
        .take(&held_at, Some("the second was a mistake"))
        .await
        .unwrap();
    assert_eq!(first.mark_at(&held_at), Some(first.own_mark().await));
    assert_eq!(first.pause_of(&held_at).await, None);
    first.released("chat").await;
    second.look().await;
    assert!(second.pause_of(&held_at).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn an_operation_under_way_sends_nothing_more_once_another_mark_is_seen() {
    let mut first = Pool::bare(Rack::builtin("demo").unwrap(), store_of("first"));
    // So that most of it stands in a queue.
    first.options.execute.per_endpoint = 2;
    first.open().await;
    first.add_all_endpoints().await;
    let change = first.compose(gpus("chat", KIND, 16)).await.unwrap();
    while first.truth().len() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for endpoint in first.composer().endpoints().await.unwrap() {
        first.mark_by_others(endpoint.spec.id.as_str(), ANOTHER);
    }
    first.look().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let then = first.truth();
    assert!(then.len() < 16, "it was not over: {}", then.len());
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(first.truth(), then);
    let operation = &change.operation.as_ref().unwrap().id;
    let waits = first
        .composer()
        .operation(operation)
        .await
        .unwrap()
        .waits()
        .join("; ");
    assert!(waits.contains("mark of another manager"), "{waits}");

    for endpoint in first.composer().endpoints().await.unwrap() {
        first.mark_by_others(endpoint.spec.id.as_str(), "");
    }
    first.look().await;
    first.done(&change).await;
    first.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn managers_of_one_cluster_have_one_mark() {
    let first = demo().await;
    first.add_all_endpoints().await;
    let other = first.beside(first.store.clone()).await;
    other.look().await;
    assert!(other.composer().pauses().await.unwrap().is_empty());
    other.take("box-1", None).await.unwrap();
    assert_eq!(other.why_not("box-1/gpu-1").await, None);
}

#[tokio::test(start_paused = true)]
async fn what_is_removed_carries_our_mark_no_more_and_keeps_that_of_others() {
    let pool = demo().await;
    pool.add_all_endpoints().await;
    pool.mark_by_others("box-2", ANOTHER);
    for endpoint in ["box-1", "box-2"] {
        pool.composer().remove_endpoint(&id(endpoint)).await.unwrap();
    }
    assert_eq!(pool.mark_at("box-1"), None);
    assert_eq!(pool.mark_at("box-2").as_deref(), Some(ANOTHER));
}

#[tokio::test(start_paused = true)]
async fn what_can_carry_no_mark_or_says_something_else_is_adopted_without() {
    let pool = demo().await;
    pool.mark_by_others("box-1", "row 7, rack 3");
    pool.add_all_endpoints().await;
    assert_eq!(
        pool.mark_at("box-1").as_deref(),
        Some("row 7, rack 3"),
        "it is left alone"
    );
    pool.composed(gpus("chat", KIND, 16)).await;

    let mut rack = Rack::builtin("demo").unwrap();
    rack.options.owner_mark = false;
    let plain = manager(rack).await;
    plain.add_all_endpoints().await;
    assert_eq!(plain.mark_at("box-1"), None);
    plain.composed(gpus("chat", KIND, 2)).await;
}

#[tokio::test(start_paused = true)]
async fn another_mark_is_seen_by_the_clock_and_so_is_that_it_is_gone() {
    let mut pool = Pool::bare(Rack::builtin("demo").unwrap(), store_of("first"));
    pool.options.poll = Some(Duration::from_secs(30));
    pool.open().await;
    pool.add_all_endpoints().await;
    let clockwork = Clockwork::of(&pool);
    let own = pool.own_mark().await;
    pool.mark_by_others("box-1", ANOTHER);
    pool.until("it is paused", async || pool.pause_of("box-1").await.is_some())
        .await;
    pool.mark_by_others("box-1", &own);
    pool.until("it goes on", async || pool.pause_of("box-1").await.is_none())
        .await;
    clockwork.stop().await;
}

/// A mark is a change of the hardware: none is written, and none taken away, where changes are held; whatever holds
/// them, and whoever asks.
#[tokio::test(start_paused = true)]
async fn no_mark_is_written_or_taken_away_while_changes_are_held() {
    let pool = demo().await;
    pool.add_endpoint("box-1").await;
    pool.add_endpoint_as("box-2", Standing::Observed).await;
    let (own, manager) = (pool.own_mark().await, pool.composer());
    for (what, elsewhere) in [(Paused::All, false), (Paused::Endpoint(id("box-2")), true)] {
        manager
            .pause(what.clone(), ME, "the rack is moved")
            .await
            .unwrap();
        for take_over in [None, Some("it is ours")] {
            let refused = pool.take("box-2", take_over).await.unwrap_err();
            assert!(refused.message.contains("the rack is moved"), "{refused}");
        }
        let removed = manager.remove_endpoint(&id("box-2")).await;
        assert!(removed.unwrap_err().message.contains("the rack is moved"));
        assert_eq!(pool.mark_at("box-2"), None);
        // Where it is paused as a whole nothing else is marked or unmarked, either.
        let added = manager
            .add_endpoint(spec_of("host-1-bmc"), Standing::Adopted)
            .await;
        assert_eq!(added.is_ok(), elsewhere, "{added:?}");
        let marked = pool.mark_at("host-1-bmc");
        assert_eq!(marked.is_some(), elsewhere, "{marked:?}");
        if !elsewhere {
            manager.remove_endpoint(&id("box-1")).await.unwrap_err();
        }
        assert_eq!(
            pool.mark_at("box-1").as_ref(),
            Some(&own),
            "it keeps the one that it had"
        );
        manager.resume(&what, ME).await.unwrap();
    }
    // What was held goes on.
    pool.take("box-2", None).await.unwrap();
    assert_eq!(pool.mark_at("box-2"), Some(own));
}

/// A store that says that it is an older state, until somebody accepts that.
fn restored(from: &std::path::Path) -> (Arc<SqliteStore>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    poolwright_store::restore(from, dir.path(), "restored from last week's backup").unwrap();
    (Arc::new(SqliteStore::open(dir.path()).unwrap()), dir)
}

#[tokio::test]
async fn no_mark_is_written_by_a_manager_whose_store_is_an_older_state() {
    let (before, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let backup = kept.path().join("backup.db");
    drop(SqliteStore::open(before.path()).unwrap());
    poolwright_store::backup(before.path(), &backup).unwrap();
    let (store, _dir) = restored(&backup);
    let mut pool = Pool::bare(Rack::builtin("demo").unwrap(), store);
    pool.open().await;
    pool.add_endpoint_as("box-1", Standing::Observed).await;
    let refused = pool.take("box-1", Some("it is ours")).await.unwrap_err();
    assert!(
        refused.message.contains("restored from last week's backup"),
        "{refused}"
    );
    let added = pool
        .composer()
        .add_endpoint(spec_of("box-2"), Standing::Adopted)
        .await;
    added.unwrap_err();
    // Nor by what goes on by itself.
    pool.look().await;
    pool.restart().await;
    pool.look().await;
    assert_eq!((pool.mark_at("box-1"), pool.mark_at("box-2")), (None, None));
    pool.composer().resume(&Paused::Restored, ME).await.unwrap();
    pool.take("box-1", None).await.unwrap();
    assert_eq!(pool.mark_at("box-1"), Some(pool.own_mark().await));
}
