//! What can go wrong with the store.

use crate::document::Damaged;

/// Why something was not read or not committed. Nothing that ended in an error was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Somebody else was faster. For the journal, `expected` and `found` are the last line's numbers.
    #[error("{kind} {id} changed in between: expected {}, found {}", revision(*.expected), revision(*.found))]
    Conflict {
        kind: String,
        id: String,
        expected: Option<u64>,
        found: Option<u64>,
    },
    /// The disk is full or read-only, or the database does not answer: a later try may succeed. Or it is damaged: see
    /// [`StoreError::is_damage`].
    #[error("the store can't be used{}: {reason}; nothing was changed, {hint}", just_now(.hint))]
    Unavailable { reason: String, hint: &'static str },
    /// A document is not what its kind should be: written by another version, or by hand.
    #[error("{kind} {id} can't be read or written as what it should be: {reason}")]
    Malformed {
        kind: String,
        id: String,
        reason: String,
    },
    /// A document or a journal line does not match its checksum.
    #[error("damaged document {kind}/{id}: {reason}")]
    Damaged {
        kind: String,
        id: String,
        reason: String,
    },
}

impl From<Damaged> for StoreError {
    fn from(damaged: Damaged) -> Self {
        let Damaged { kind, id, reason } = damaged;
        Self::Damaged { kind, id, reason }
    }
}

/// The hint for a damaged database.
pub(crate) const RESTORE: &str = "restore a backup";

fn just_now(hint: &str) -> &'static str {
    match hint {
        RESTORE => "",
        _ => " just now",
    }
}

impl StoreError {
    pub(crate) fn malformed(kind: &str, id: &str, reason: &dyn std::fmt::Display) -> Self {
        Self::Malformed {
            kind: kind.to_owned(),
            id: id.to_owned(),
            reason: reason.to_string(),
        }
    }

    /// Whether the database is damaged, so that a retry does not help.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Unavailable { hint, .. } if *hint == RESTORE)
    }

    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }

    /// Another version wrote the document, or it is damaged: trying again does not help.
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Self::Malformed { .. } | Self::Damaged { .. })
    }
}

fn revision(revision: Option<u64>) -> String {
    revision.map_or_else(|| "none".to_owned(), |n| n.to_string())
}

/// Why a store can't be opened. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{place} is in use by another process ({holder})")]
    Locked { place: String, holder: String },
    #[error("{place} is not a Poolwright database ({reason})")]
    Foreign { place: String, reason: String },
    #[error(
        "{place} was written by a newer Poolwright ({what} {found}, this one knows {known}): install that version again, or restore a backup that this one made"
    )]
    Newer {
        place: String,
        /// The `schema` of its tables, or its `documents`.
        what: &'static str,
        found: u32,
        known: u32,
    },
    #[error("{place} has the tables of an earlier version")]
    Older { place: String },
    #[error("{place} is damaged ({reason}): restore a backup")]
    Damaged { place: String, reason: String },
    #[error(
        "{place} holds the journal of another cluster ({found}) than this data directory belongs to ({expected}): give each its own, or choose another --data-dir"
    )]
    OtherCluster {
        place: String,
        found: String,
        expected: String,
    },
    #[error(
        "{place} is empty, and was not: this data directory's manager has seen {revision} commits there; restore a backup, or choose another --data-dir to begin anew"
    )]
    Lost { place: String, revision: u64 },
    #[error("{place} is there already: nothing was written")]
    Occupied { place: String },
    #[error("{place} can't be used like that: {reason}")]
    Options { place: String, reason: String },
    #[error("{place} can't be reached: {reason}")]
    Unreachable { place: String, reason: String },
    #[error("{place} refuses the account: {reason}")]
    Denied { place: String, reason: String },
    #[error("{place} is not there: {reason}")]
    Missing { place: String, reason: String },
    #[error("{place} can't be opened: {reason}")]
    Io { place: String, reason: String },
}
