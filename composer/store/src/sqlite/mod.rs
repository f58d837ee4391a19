//! The store in one SQLite file, for a single manager.
//!
//! One thread owns the only connection that writes (see [`writer`]); reads have connections of their own
//! and never wait for it (write-ahead log). A lock file keeps a second process away.

mod checksum;
mod copy;
mod open;
mod sql;
mod writer;

use crate::cluster::{CLUSTER, RESTORED};
use crate::integrity::INDEX;
use crate::quarantine::Quarantine;
use crate::{
    Batch, Committed, Damaged, Document, Event, JournalLine, OpenError, Order, Original, Store, StoreError,
};
pub use copy::{Copied, backup, restore};

use async_trait::async_trait;
use poolwright_model::id::OperationId;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Semaphore, oneshot};

/// Connections that read at the same time.
const READERS: usize = 4;

/// Documents, the journal and the outbox in `DIR/poolwright.db`.
pub struct SqliteStore {
    place: Place,
    quarantine: Quarantine,
}

enum Place {
    File {
        writer: writer::Writer,
        readers: Arc<Readers>,
    },
    /// Commits and reads happen at once, on the caller's thread: in memory, or in the file for one command.
    Here(Mutex<Connection>),
}

impl SqliteStore {
    /// Opens the store in this directory, and makes both where they are not there yet. Blocks on the
    /// disk: for the start of a process.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        let mut opened = open::open(dir)?;
        let quarantine = Quarantine::default();
        quarantine.replace(std::mem::take(&mut opened.damaged));
        let readers = Readers {
            path: opened.path.clone(),
            idle: Mutex::new(Vec::new()),
            permits: Semaphore::new(READERS),
        };
        Ok(Self {
            place: Place::File {
                writer: writer::Writer::start(opened)?,
                readers: Arc::new(readers),
            },
            quarantine,
        })
    }

    /// A store that is gone with its value: for tests and simulation, where the same calls in the same
    /// order must give the same results.
    pub fn in_memory() -> Result<Self, OpenError> {
        Ok(Self {
            place: Place::Here(Mutex::new(open::in_memory()?)),
            quarantine: Quarantine::default(),
        })
    }

    /// The same, of a cluster of this name.
    pub fn in_memory_of(cluster: &str) -> Result<Self, OpenError> {
        let connection = open::in_memory()?;
        open::mark(&connection, CLUSTER, cluster).map_err(|e| open::refused(Path::new(":memory:"), &e))?;
        Ok(Self {
            place: Place::Here(Mutex::new(connection)),
            quarantine: Quarantine::default(),
        })
    }

    /// Opens the store of a directory for one command, also while its manager runs. The manager reads the command's
    /// commits, but [`Store::revision`] does not count them there: only for documents that the manager never caches.
    /// Blocks on the disk.
    pub fn beside(dir: &Path) -> Result<Self, OpenError> {
        Ok(Self {
            place: Place::Here(Mutex::new(open::beside(dir)?)),
            quarantine: Quarantine::default(),
        })
    }

    /// Flips a bit of a document's content, or of the first line of a journal, as a failing disk does: for tests and simulation, of a store in memory alone.
    pub fn flip_bit(&self, kind: &str, id: &str, bit: usize) -> Result<(), StoreError> {
        let Place::Here(connection) = &self.place else {
            return Err(StoreError::Unavailable {
                reason: "the store is not in memory".to_owned(),
                hint: "",
            });
        };
        let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        sql::flip_bit(&connection, kind, id, bit).map_err(|e| sql::unavailable(&e))
    }

    async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        match &self.place {
            Place::Here(connection) => {
                let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
                query(&connection).map_err(|e| sql::unavailable(&e))
            }
            Place::File { readers, .. } => readers.read(query).await,
        }
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn get(&self, kind: &str, id: &str) -> Result<Option<Document>, StoreError> {
        let (of, named) = (kind.to_owned(), id.to_owned());
        let found = self
            .read(move |connection| sql::get(connection, &of, &named))
            .await?;
        self.quarantine.one(found)
    }

    async fn list(&self, kind: &str) -> Result<Vec<Document>, StoreError> {
        let kind = kind.to_owned();
        let found = self.read(move |connection| sql::list(connection, &kind)).await?;
        Ok(self.quarantine.several(found))
    }

    async fn written(&self, kind: &str, order: Order, limit: u32) -> Result<Vec<Document>, StoreError> {
        let kind = kind.to_owned();
        let found = self
            .read(move |connection| sql::written(connection, &kind, order, limit))
            .await?;
        Ok(self.quarantine.several(found))
    }

    async fn count(&self, kind: &str) -> Result<u64, StoreError> {
        let kind = kind.to_owned();
        self.read(move |connection| sql::count(connection, &kind)).await
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        let is_touched = self.quarantine.is_touched_by(&batch);
        let committed = match &self.place {
            Place::File { writer, .. } => writer.commit(batch).await,
            Place::Here(connection) => {
                let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
                let mut results = writer::commit_group(&connection, &[batch]);
                results.pop().unwrap_or_else(|| Err(writer::gone()))
            }
        };
        if is_touched
            && committed.is_ok()
            && let Err(error) = self.verify().await
        {
            tracing::warn!(%error, "documents not verified");
        }
        committed
    }

    async fn close(&self) {
        if let Place::File { writer, .. } = &self.place {
            writer.close().await;
        }
    }

    async fn revision(&self) -> Result<u64, StoreError> {
        if let Place::File { writer, .. } = &self.place
            && let Some(newest) = writer.newest()
        {
            return Ok(newest);
        }
        self.read(sql::last_revision).await
    }

    async fn restored(&self) -> Result<Option<String>, StoreError> {
        self.read(|connection| sql::marked(connection, RESTORED)).await
    }

    async fn cluster(&self) -> Result<Option<String>, StoreError> {
        self.read(|connection| sql::marked(connection, CLUSTER)).await
    }

    fn unwritable(&self) -> Option<String> {
        match &self.place {
            Place::File { writer, .. } => writer.unwritable(),
            Place::Here(_) => None,
        }
    }

    fn damaged(&self) -> Vec<Damaged> {
        self.quarantine.all()
    }

    async fn verify(&self) -> Result<Vec<Damaged>, StoreError> {
        let verdict = self.read(sql::verify).await?;
        let mut damaged = verdict.damaged;
        damaged.extend(verdict.indices.map(|reason| Damaged {
            kind: INDEX.to_owned(),
            id: "database".to_owned(),
            reason,
        }));
        self.quarantine.replace(damaged);
        Ok(self.quarantine.all())
    }

    async fn before_flip(&self, kind: &str, id: &str) -> Result<Option<Vec<Original>>, StoreError> {
        let name = (kind.to_owned(), id.to_owned());
        self.read(move |connection| sql::before_flip(connection, &name))
            .await
    }

    async fn journal(&self, operation: &OperationId, after: u64) -> Result<Vec<JournalLine>, StoreError> {
        let operation = operation.clone();
        let lines = self
            .read(move |connection| sql::journal(connection, &operation, after))
            .await?;
        Ok(lines?)
    }

    async fn open_operations(&self) -> Result<Vec<OperationId>, StoreError> {
        self.read(sql::open_operations).await
    }

    async fn events_after(&self, seq: u64, limit: u32) -> Result<Vec<Event>, StoreError> {
        self.read(move |connection| sql::events_after(connection, seq, limit))
            .await
    }
}

/// Read-only connections, opened when needed and kept.
struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
}

impl Readers {
    async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let readers = Arc::clone(self);
        // By itself: whoever asked and does not look for the answer just now must not keep others from reading.
        let read = tokio::spawn(async move {
            let _permit = readers.permits.acquire().await.map_err(|_| writer::gone())?;
            let at_work = Arc::clone(&readers);
            let read = tokio::task::spawn_blocking(move || at_work.with_connection(query));
            let result = read.await.map_err(|_| writer::gone())?;
            result.map_err(|e| sql::unavailable(&e))
        });
        read.await.map_err(|_| writer::gone())?
    }

    fn with_connection<T>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let idle = self.idle().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => open::read_only(&self.path)?,
        };
        let result = query(&connection);
        if result.is_ok() {
            self.idle().push(connection);
        }
        result
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for the answer of the writer.
async fn answered<T>(answer: oneshot::Receiver<Result<T, StoreError>>) -> Result<T, StoreError> {
    answer.await.unwrap_or_else(|_| Err(writer::gone()))
}
