//! A store whose commits are told to somebody: who keeps in memory what was written need not read it again.

use crate::{Batch, Committed, Document, Event, JournalLine, Order, Store, StoreError, Write};
use async_trait::async_trait;
use poolwright_model::id::OperationId;
use std::sync::Arc;

/// What became of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// All of it is committed, under this revision.
    Committed(u64),
    Refused,
    /// Nobody knows: the store did not answer, or whoever asked went away before.
    InDoubt,
}

/// Is told of the commits that are made through a [`Watched`] store, in whatever order they are answered.
pub trait Watcher: Send + Sync {
    /// A commit that writes documents begins; [`Watcher::ended`] follows.
    fn begun(&self);

    fn ended(&self, writes: &[Write], fate: Fate);
}

/// See the module.
pub struct Watched {
    store: Arc<dyn Store>,
    watcher: Arc<dyn Watcher>,
}

impl Watched {
    pub fn new(store: Arc<dyn Store>, watcher: Arc<dyn Watcher>) -> Self {
        Self { store, watcher }
    }
}

/// A commit that was begun. Whoever waits for its answer may be gone before it comes.
struct Begun<'a> {
    watcher: &'a dyn Watcher,
    writes: Vec<Write>,
    fate: Fate,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.watcher.ended(&self.writes, self.fate);
    }
}

#[async_trait]
impl Store for Watched {
    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        if batch.writes.is_empty() {
            return self.store.commit(batch).await;
        }
        self.watcher.begun();
        let mut begun = Begun {
            watcher: &*self.watcher,
            writes: batch.writes.clone(),
            fate: Fate::InDoubt,
        };
        let answer = self.store.commit(batch).await;
        begun.fate = match &answer {
            Ok(committed) => Fate::Committed(committed.revision),
            Err(StoreError::Unavailable { .. }) => Fate::InDoubt,
            Err(_) => Fate::Refused,
        };
        answer
    }

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

    async fn revision(&self) -> Result<u64, StoreError> {
        self.store.revision().await
    }

    async fn restored(&self) -> Result<Option<String>, StoreError> {
        self.store.restored().await
    }

    async fn cluster(&self) -> Result<Option<String>, StoreError> {
        self.store.cluster().await
    }

    fn silence(&self) -> Option<String> {
        self.store.silence()
    }

    fn unwritable(&self) -> Option<String> {
        self.store.unwritable()
    }

    fn is_remote(&self) -> bool {
        self.store.is_remote()
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
