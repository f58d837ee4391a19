//! What the store keeps: documents, journal lines, events.

use poolwright_model::id::OperationId;

/// JSON text that was checked to be JSON. Deserialise it from `json.get()`.
pub type Json = Box<serde_json::value::RawValue>;

/// A document as it was read.
#[derive(Debug, Clone)]
pub struct Document {
    pub kind: String,
    pub id: String,
    /// The number of the commit that wrote it last.
    pub revision: u64,
    pub json: Json,
}

/// A document whose row changed on the disk since it was written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Damaged {
    /// As in the row: kind and id may be damaged, too.
    pub kind: String,
    pub id: String,
    pub reason: String,
}

/// A line of an operation's journal.
#[derive(Debug, Clone)]
pub struct JournalLine {
    pub operation: OperationId,
    /// 1, 2, 3 … without gaps within the operation.
    pub seq: u64,
    pub json: Json,
}

/// An event of the outbox.
#[derive(Debug, Clone)]
pub struct Event {
    /// 1, 2, 3 … without gaps within the store.
    pub seq: u64,
    pub json: Json,
}
