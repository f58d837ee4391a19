//! A store that is like the disks of the world: full now and then, or slow, and each flush counts.

use poolwright_store::{Batch, Committed, Layer, SqliteStore, Store, StoreError};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

#[derive(Clone)]
pub struct Disk {
    store: Arc<SqliteStore>,
    pub full: Arc<AtomicBool>,
    /// Answers come late: after what they tell of.
    pub slow_ms: Arc<AtomicU64>,
    pub commits: Arc<AtomicUsize>,
    /// The next commit is made, and said not to be.
    pub lie_once: Arc<AtomicBool>,
    /// So is the commit after so many.
    pub lie_after: Arc<AtomicUsize>,
    /// Since a lie no read is answered, until then.
    silent: Arc<Mutex<Option<Instant>>>,
    silent_ms: Arc<AtomicU64>,
}

impl Disk {
    pub fn new() -> Self {
        Self {
            store: Arc::new(SqliteStore::in_memory().unwrap()),
            full: Arc::default(),
            slow_ms: Arc::default(),
            commits: Arc::default(),
            lie_once: Arc::default(),
            lie_after: Arc::new(AtomicUsize::new(usize::MAX)),
            silent: Arc::default(),
            silent_ms: Arc::default(),
        }
    }

    /// After the next lie no read is answered for so many milliseconds.
    pub fn silent_for(&self, milliseconds: u64) {
        self.silent_ms.store(milliseconds, Ordering::SeqCst);
    }

    fn unavailable() -> StoreError {
        StoreError::Unavailable {
            reason: "disk full".to_owned(),
            hint: "free some space",
        }
    }

    async fn take_time(&self) {
        let slow = Duration::from_millis(self.slow_ms.load(Ordering::SeqCst));
        if !slow.is_zero() {
            tokio::time::sleep(slow).await;
        }
    }
}

impl Layer for Disk {
    fn below(&self) -> &dyn Store {
        &*self.store
    }

    async fn read<T: Send>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        if self
            .silent
            .lock()
            .unwrap()
            .is_some_and(|until| Instant::now() < until)
        {
            return Err(Self::unavailable());
        }
        let answer = call.await;
        self.take_time().await;
        answer
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        if self.full.load(Ordering::SeqCst) {
            return Err(Self::unavailable());
        }
        let before = self.commits.fetch_add(1, Ordering::SeqCst);
        let committed = self.store.commit(batch).await;
        self.take_time().await;
        let lies_now = before == self.lie_after.load(Ordering::SeqCst);
        if self.lie_once.swap(false, Ordering::SeqCst) || lies_now {
            let silent = Duration::from_millis(self.silent_ms.load(Ordering::SeqCst));
            *self.silent.lock().unwrap() = Some(Instant::now() + silent);
            return Err(Self::unavailable());
        }
        committed
    }
}
