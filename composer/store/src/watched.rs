//! A store whose commits are told to somebody: who keeps in memory what was written need not read it again.

use crate::{Batch, Committed, Layer, Store, StoreError, Write};
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

impl Layer for Watched {
    fn below(&self) -> &dyn Store {
        &*self.store
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        if !batch.changes_documents() {
            return self.store.commit(batch).await;
        }
        self.watcher.begun();
        let mut begun = Begun {
            watcher: &*self.watcher,
            writes: batch.writes.clone(),
            fate: Fate::InDoubt,
        };
        let discards = !batch.discarded.is_empty();
        let answer = self.store.commit(batch).await;
        begun.fate = match &answer {
            // Memory may have it from before it was damaged.
            Ok(_) if discards => Fate::InDoubt,
            Ok(committed) => Fate::Committed(committed.revision),
            Err(StoreError::Unavailable { .. }) => Fate::InDoubt,
            Err(_) => Fate::Refused,
        };
        answer
    }
}
