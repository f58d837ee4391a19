//! Documents and the journal, committed together.
//!
//! The store knows documents of (kind, id, revision, JSON), the journal of operations, and an outbox of
//! events. What a document means is its owner's business: see [`Stored`]. Everything that must be true
//! together goes into one [`Batch`], which is committed as a whole or not at all:
//!
//! * expectations: "this document still has the revision that I read" (compare and swap);
//! * documents put and deleted;
//! * journal lines, numbered by their writer, so that two writers of one operation collide;
//! * events for the outbox.
//!
//! Invariants: an acknowledged commit survives kill -9 and a power cut. What was not acknowledged may be
//! tried again. A revision is never given twice, not even to a document that was deleted and made anew.
//! Whoever wants to be fenced puts an expectation on its lease into each batch. A damaged document is
//! never returned: reading it is an error with its name, lists are without it, and [`Store::damaged`] has it.
//!
//! [`SqliteStore`] is the store of a single manager, [`PostgresStore`] that of several.

mod batch;
mod cluster;
mod data_dir;
mod document;
mod error;
mod format;
mod integrity;
mod layer;
mod migrations;
mod quarantine;
mod remembering;
mod statements;
mod typed;
mod unwritable;
mod watched;

mod postgres;
mod sqlite;

pub use batch::{Batch, Committed, Expectation, Write};
pub use document::{Damaged, Document, Event, JournalLine, Json};
pub use error::{OpenError, StoreError};
pub use format::DOCUMENT_FORMAT;
pub use integrity::{INDEX, JOURNAL, Original};
pub use layer::Layer;
pub use postgres::{PostgresOptions, PostgresStore};
pub use remembering::Remembering;
pub use sqlite::{Copied, SqliteStore, backup, restore};
pub use typed::{Stored, Versioned, read, read_all, written};
pub use watched::{Fate, Watched, Watcher};

use async_trait::async_trait;
use poolwright_model::id::OperationId;

/// In which order documents are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    LatestFirst,
    /// Only those with a revision above `after`: page by page, for kinds of which a commit writes one.
    EarliestFirst {
        after: u64,
    },
}

/// Where documents, the journal and events are kept. Reads see every commit acknowledged before them.
#[async_trait]
pub trait Store: Send + Sync {
    /// One document, or nothing. [`StoreError::Damaged`] if it does not match its checksum.
    async fn get(&self, kind: &str, id: &str) -> Result<Option<Document>, StoreError>;

    /// All documents of a kind, in the order of their ids, without damaged ones. Look at [`Store::damaged`] afterwards, before
    /// a change that rests on the list.
    async fn list(&self, kind: &str) -> Result<Vec<Document>, StoreError>;

    /// At most `limit` documents of a kind, in the order in which they were written last. What it costs depends
    /// on `limit`, and not on how many there are.
    async fn written(&self, kind: &str, order: Order, limit: u32) -> Result<Vec<Document>, StoreError>;

    /// How many documents of a kind there are.
    async fn count(&self, kind: &str) -> Result<u64, StoreError>;

    /// Commits all of it or nothing. [`StoreError::Conflict`] where an expectation does not hold.
    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError>;

    /// The number of the last commit that wrote or deleted a document; 0 where there was none. Cheap: whoever
    /// keeps what it made of documents asks whether it still stands.
    async fn revision(&self) -> Result<u64, StoreError>;

    /// Why this may be an older state than the one that managers acted by: it came from a backup, or its last commits
    /// are gone. Until that was accepted ([`Batch::accept_restored`]) nothing must be done by what it says.
    /// Revisions have made a leap then: none that was given after the backup comes again.
    async fn restored(&self) -> Result<Option<String>, StoreError>;

    /// The name of the cluster that it belongs to; `None` where it has none, as one in memory.
    async fn cluster(&self) -> Result<Option<String>, StoreError> {
        Ok(None)
    }

    /// Why documents are told from memory just now, and since when; `None` where they are as in the store.
    fn silence(&self) -> Option<String> {
        None
    }

    /// Why nothing can be committed just now, and since when, while what is read is as in the store: a disk that is
    /// full or read-only. `None` where the last commit succeeded. It is tried again every few seconds, whether
    /// anybody writes or not.
    fn unwritable(&self) -> Option<String> {
        None
    }

    /// Documents that were found damaged and were not written again since. Reads nothing.
    fn damaged(&self) -> Vec<Damaged> {
        Vec::new()
    }

    /// Verifies every document, as the start does, and returns the damaged ones: [`Store::damaged`] has them from then on.
    async fn verify(&self) -> Result<Vec<Damaged>, StoreError>;

    /// The damaged document or journal lines of this name as they were before one bit of each row flipped; `None` if that does
    /// not explain the damage, if the name itself is damaged, or if a row is too long to try each bit.
    async fn before_flip(&self, kind: &str, id: &str) -> Result<Option<Vec<Original>>, StoreError>;

    /// Whether it is on the other side of a network, and may fall silent while whoever asks goes on: worth
    /// [`Remembering`].
    fn is_remote(&self) -> bool {
        false
    }

    /// Ends the store, whoever still has a hand on it: what was handed over is committed, and nothing after it. Where
    /// nobody calls it that happens with the last hand.
    async fn close(&self) {}

    /// The lines of an operation with a number above `after`, in order.
    async fn journal(&self, operation: &OperationId, after: u64) -> Result<Vec<JournalLine>, StoreError>;

    /// Operations whose last line is not written yet, in the order of their ids.
    async fn open_operations(&self) -> Result<Vec<OperationId>, StoreError>;

    /// At most `limit` events with a number above `seq`, in order. The oldest are forgotten some day
    /// ([`Batch::keep_events`]): then it begins with the first that is left.
    async fn events_after(&self, seq: u64, limit: u32) -> Result<Vec<Event>, StoreError>;
}
