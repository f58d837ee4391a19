//! Requests that are repeated, and those whose answer is lost on the way.

use crate::stories::kit::{ME, Pool, demand_id, gpus, spec};
use poolwright_emulator::Rack;
use poolwright_model::id::OperationId;
use poolwright_service::{Change, ErrorCode, How, Release, ServiceError};
use poolwright_store::{Batch, Committed, Layer, SqliteStore, Store, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn keyed(key: &str) -> How {
    How {
        key: Some(key.to_owned()),
        ..How::default()
    }
}

fn operation(change: &Change) -> OperationId {
    change.operation.as_ref().unwrap().id.clone()
}

/// The key was used for this before; the error says what to do.
fn is_refused(error: &ServiceError, before: &str) {
    assert_eq!(error.code, ErrorCode::Conflict, "{error}");
    assert!(error.message.contains("the key \"k\""), "{error}");
    assert!(error.message.contains(before), "{error}");
    assert!(error.hint.as_ref().unwrap().contains("new key"), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_key_is_for_one_request_and_no_other() {
    let pool = Pool::of("demo").await;
    let manager = pool.composer();
    let key = keyed("k");
    let compose = async |count| {
        manager
            .compose(spec(gpus("chat", "l40s-48gb", count)), ME, &key)
            .await
    };
    let first = compose(2).await.unwrap();
    assert!(!first.replayed);
    pool.done(&first).await;
    let again = compose(2).await.unwrap();
    assert!(again.replayed);
    assert_eq!(
        (operation(&again), again.plan),
        (operation(&first), first.plan.clone())
    );

    is_refused(
        &compose(3).await.unwrap_err(),
        "compose demand chat (operation op-",
    );
    let what = || Release::Demand(demand_id("chat"));
    let error = manager.release(what(), ME, &key).await.unwrap_err();
    is_refused(&error, "compose demand chat");
    let forced = How {
        force: Some("it hangs".to_owned()),
        ..key.clone()
    };
    let error = manager
        .compose(spec(gpus("chat", "l40s-48gb", 2)), ME, &forced)
        .await;
    is_refused(&error.unwrap_err(), "compose demand chat");
    assert_eq!(pool.truth().len(), 2, "nothing of it was done");

    // Another account's key of the same words is another key, and tells nothing of the first.
    let theirs = spec(gpus("theirs", "l40s-48gb", 1));
    let theirs = manager.compose(theirs, "somebody else", &key).await.unwrap();
    assert!(!theirs.replayed);
    pool.done(&theirs).await;

    // A dry run has no effect to be had once.
    let dry = How {
        dry_run: true,
        ..key.clone()
    };
    assert!(!manager.release(what(), ME, &dry).await.unwrap().replayed);

    // GPUs in another order are the same request.
    let free = pool.gpu_ids(&["box-1/gpu-15", "box-1/gpu-16"]).await;
    let host = pool.host_id("host-6").await;
    let attached = manager.attach(&free, &host, ME, &keyed("a")).await.unwrap();
    pool.done(&attached).await;
    let turned = [free[1].clone(), free[0].clone()];
    let again = manager.attach(&turned, &host, ME, &keyed("a")).await.unwrap();
    assert!(again.replayed);
    for odd in ["", &"x".repeat(300)] {
        let error = manager.detach(&free, ME, &keyed(odd)).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::BadRequest, "{error}");
    }
    pool.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_found_nothing_to_do_is_kept_too() {
    let mut pool = Pool::of("demo").await;
    let waits = spec(gpus("waits", "l40s-48gb", 1));
    pool.composer().add_demand(waits.clone()).await.unwrap();
    let key = keyed("k");
    let release = async |pool: &Pool| {
        let what = Release::Demand(demand_id("waits"));
        pool.composer().release(what, ME, &key).await
    };
    let first = release(&pool).await.unwrap();
    assert!(first.operation.is_none() && !first.replayed);
    assert!(pool.demands().await.is_empty());

    // Somebody wants it again; the request of before is not done a second time, not after a restart either.
    pool.composer().add_demand(waits).await.unwrap();
    pool.restart().await;
    let again = release(&pool).await.unwrap();
    assert!(again.replayed && again.operation.is_none());
    assert_eq!(again.plan, first.plan);
    assert_eq!(pool.demands().await, ["waits"]);
    let error = pool
        .composer()
        .detach(&pool.gpu_ids(&["box-1/gpu-1"]).await, ME, &key)
        .await;
    is_refused(
        &error.unwrap_err(),
        "release demand waits (there was nothing to do)",
    );
}

/// A store that commits the beginning of an operation, and then says that it can't be used.
struct Late {
    store: SqliteStore,
    lie: AtomicBool,
    /// Nor does it answer any more.
    silent: AtomicBool,
}

impl Late {
    fn refused() -> StoreError {
        StoreError::Unavailable {
            reason: "the disk took too long".to_owned(),
            hint: "try again",
        }
    }

    fn answers(&self) -> Result<(), StoreError> {
        match self.silent.load(Ordering::SeqCst) {
            true => Err(Self::refused()),
            false => Ok(()),
        }
    }
}

impl Layer for Late {
    fn below(&self) -> &dyn Store {
        &self.store
    }

    async fn read<T: Send>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.answers()?;
        call.await
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        self.answers()?;
        let committed = self.store.commit(batch).await?;
        if self.lie.load(Ordering::SeqCst) && !self.store.open_operations().await?.is_empty() {
            self.silent.store(true, Ordering::SeqCst);
            return Err(Self::refused());
        }
        Ok(committed)
    }
}

async fn pool_on_a_late_store() -> (Pool, Arc<Late>) {
    let store = Arc::new(Late {
        store: SqliteStore::in_memory().unwrap(),
        lie: AtomicBool::new(false),
        silent: AtomicBool::new(false),
    });
    let mut pool = Pool::bare(Rack::builtin("demo").unwrap(), store.clone());
    pool.open().await;
    pool.add_all_endpoints().await;
    (pool, store)
}

/// The operation was begun although whoever asked saw an error: its demand hangs on it, whatever comes.
#[tokio::test(start_paused = true)]
async fn what_was_begun_although_the_store_said_no_is_followed_to_its_end() {
    for restarted in [false, true] {
        let (mut pool, store) = pool_on_a_late_store().await;
        for (verb, left) in [("compose", vec!["chat"]), ("release", vec![])] {
            let ask = async |pool: &Pool| match verb {
                "compose" => {
                    let chat = spec(gpus("chat", "l40s-48gb", 2));
                    pool.composer().compose(chat, ME, &keyed("c")).await
                }
                _ => {
                    let what = Release::Demand(demand_id("chat"));
                    pool.composer().release(what, ME, &keyed("r")).await
                }
            };
            store.lie.store(true, Ordering::SeqCst);
            let error = ask(&pool).await.unwrap_err();
            assert_eq!(error.code, ErrorCode::Indeterminate, "{error}");
            let begun: OperationId = error.operation.unwrap().parse().unwrap();
            store.lie.store(false, Ordering::SeqCst);
            if restarted {
                pool.crash().await;
                store.silent.store(false, Ordering::SeqCst);
                pool.open().await;
            } else {
                tokio::time::sleep(Duration::from_secs(100)).await;
                store.silent.store(false, Ordering::SeqCst);
                assert_eq!(pool.demands().await, ["chat"], "neither forgotten nor released");
                tokio::time::sleep(Duration::from_secs(100)).await;
            }
            pool.quiet().await;
            let again = ask(&pool).await.unwrap();
            assert!(again.replayed);
            assert_eq!(operation(&again), begun);
            assert_eq!(pool.demands().await, left);
            assert_eq!(pool.truth().len(), 2 * left.len());
            pool.all_is_well().await;
        }
    }
}
