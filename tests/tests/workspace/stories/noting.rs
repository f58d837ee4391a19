//! What was seen is written down by one at a time: who comes meanwhile waits, without a copy of all of it. A store that
//! is slow for a while costs time then, and not the memory of as many pools as there are endpoints.

use crate::stories::kit::Pool;
use futures_util::future::try_join_all;
use poolwright_emulator::Rack;
use poolwright_store::{Batch, Committed, Layer, SqliteStore, Store, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// A store that takes a second for each commit, and counts those that wait.
struct Slow {
    store: SqliteStore,
    waiting: AtomicUsize,
    most: AtomicUsize,
}

impl Layer for Slow {
    fn below(&self) -> &dyn Store {
        &self.store
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        let waiting = self.waiting.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(waiting, SeqCst);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let committed = self.store.commit(batch).await;
        self.waiting.fetch_sub(1, SeqCst);
        committed
    }
}

#[tokio::test(start_paused = true)]
async fn many_who_look_at_once_write_one_after_another() {
    let store = Arc::new(Slow {
        store: SqliteStore::in_memory().unwrap(),
        waiting: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
    });
    let mut pool = Pool::bare(Rack::builtin("demo").unwrap(), store.clone());
    pool.open().await;
    pool.add_all_endpoints().await;
    store.most.store(0, SeqCst);
    let looks = (0..20).map(|_| pool.composer().discover(&()));
    let pools = try_join_all(looks).await.unwrap();
    assert!(
        pools
            .iter()
            .all(|seen| seen.topology.gpus.len() == pools[0].topology.gpus.len())
    );
    assert_eq!(store.most.load(SeqCst), 1, "nobody else's copy waits meanwhile");
    pool.all_is_well().await;
}
