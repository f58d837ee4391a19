//! A store that tells how long its commits take.

use async_trait::async_trait;
use poolwright_model::id::OperationId;
use poolwright_store::{Batch, Committed, Document, Event, JournalLine, Order, Store, StoreError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What was seen of commits since it was asked last.
#[derive(Debug, Default)]
pub struct Seen {
    /// How long each caller waited.
    pub commits: Vec<Duration>,
    /// In which at least one commit was under way: those that overlap count once.
    pub busy: Duration,
}

#[derive(Default)]
struct Meter {
    seen: Seen,
    under_way: usize,
    busy_since: Option<Instant>,
}

pub struct Metered {
    store: Arc<dyn Store>,
    meter: Mutex<Meter>,
}

impl Metered {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            meter: Mutex::default(),
        }
    }

    pub fn take(&self) -> Seen {
        let mut meter = self.lock();
        if let Some(since) = meter.busy_since {
            meter.seen.busy += since.elapsed();
            meter.busy_since = Some(Instant::now());
        }
        std::mem::take(&mut meter.seen)
    }

    fn begins(&self) {
        let mut meter = self.lock();
        meter.under_way += 1;
        meter.busy_since.get_or_insert_with(Instant::now);
    }

    fn ends(&self, took: Duration) {
        let mut meter = self.lock();
        meter.seen.commits.push(took);
        meter.under_way -= 1;
        if meter.under_way == 0
            && let Some(since) = meter.busy_since.take()
        {
            meter.seen.busy += since.elapsed();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Meter> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for Metered {
    async fn get(&self, kind: &str, id: &str) -> Result<Option<Document>, StoreError> {
        self.store.get(kind, id).await
    }
    async fn list(&self, kind: &str) -> Result<Vec<Document>, StoreError> {
        self.store.list(kind).await
    }
    async fn written(&self, kind: &str, order: Order, limit: u32) -> Result<Vec<Document>, StoreError> {
        self.store.written(kind, order, limit).await
    }
    async fn count(&self, kind: &str) -> Result<u64, StoreError> {
        self.store.count(kind).await
    }
    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        let began = Instant::now();
        self.begins();
        let committed = self.store.commit(batch).await;
        self.ends(began.elapsed());
        committed
    }
    async fn revision(&self) -> Result<u64, StoreError> {
        self.store.revision().await
    }
    async fn restored(&self) -> Result<Option<String>, StoreError> {
        self.store.restored().await
    }
    async fn journal(&self, operation: &OperationId, after: u64) -> Result<Vec<JournalLine>, StoreError> {
        self.store.journal(operation, after).await
    }
    async fn open_operations(&self) -> Result<Vec<OperationId>, StoreError> {
        self.store.open_operations().await
    }
    async fn events_after(&self, seq: u64, limit: u32) -> Result<Vec<Event>, StoreError> {
        self.store.events_after(seq, limit).await
    }
}
