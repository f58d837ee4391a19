//! Every kind of document that the executor keeps, by its name: so that what was written by earlier versions can be held
//! against what is read today.

use crate::event::Event;
use crate::key::KeyRecord;
use crate::line::Noted;
use crate::operation::Operation;
use crate::order::Order;
use crate::pause::Pause;
use crate::record::{Claim, CompositionRecord, GpuRecord, PlanRecord};
use poolwright_store::Stored;
use serde::{Serialize, de::DeserializeOwned};

/// What is kept beside documents, and has a format all the same.
pub use crate::unreadable::ORIGINAL as UNREADABLE;
pub use poolwright_store::JOURNAL;
pub const EVENT: &str = "event";

/// The names of all kinds.
pub const KINDS: &[&str] = &[
    Operation::KIND,
    PlanRecord::KIND,
    Claim::KIND,
    GpuRecord::KIND,
    CompositionRecord::KIND,
    KeyRecord::KIND,
    Pause::KIND,
    Order::KIND,
    JOURNAL,
    EVENT,
];

/// A text of a kind, read as what it is and written again; `None` for a kind that is not the executor's.
pub fn reread(kind: &str, json: &str) -> Option<serde_json::Result<String>> {
    Some(match kind {
        Operation::KIND => again::<Operation>(json),
        PlanRecord::KIND => again::<PlanRecord>(json),
        Claim::KIND => again::<Claim>(json),
        GpuRecord::KIND => again::<GpuRecord>(json),
        CompositionRecord::KIND => again::<CompositionRecord>(json),
        KeyRecord::KIND => again::<KeyRecord>(json),
        Pause::KIND => again::<Pause>(json),
        Order::KIND => again::<Order>(json),
        JOURNAL => again::<Noted>(json),
        EVENT => again::<Event>(json),
        _ => return None,
    })
}

/// Reads and writes one.
pub fn again<T: Serialize + DeserializeOwned>(json: &str) -> serde_json::Result<String> {
    serde_json::from_str::<T>(json).and_then(|value| serde_json::to_string(&value))
}
