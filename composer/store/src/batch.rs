//! What is committed together.

use crate::document::{JournalLine, Json};
use crate::integrity::Original;
use crate::{StoreError, Stored};
use poolwright_model::id::OperationId;
use serde::Serialize;
use serde_json::value::to_raw_value;

/// That a document still is as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    pub kind: String,
    pub id: String,
    /// `None`: that there is no such document.
    pub revision: Option<u64>,
}

/// A document to be written; `json` is `None` for one to be deleted.
#[derive(Debug, Clone)]
pub struct Write {
    pub kind: String,
    pub id: String,
    pub json: Option<Json>,
}

/// All that is committed as a whole or not at all.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    pub(crate) expectations: Vec<Expectation>,
    pub(crate) writes: Vec<Write>,
    /// Kind and id of damaged documents, as [`Store::damaged`](crate::Store::damaged) names them.
    pub(crate) discarded: Vec<(String, String)>,
    /// In the place of discarded ones.
    pub(crate) restored: Vec<Original>,
    pub(crate) lines: Vec<JournalLine>,
    pub(crate) reopened: Vec<OperationId>,
    pub(crate) ended: Vec<OperationId>,
    pub(crate) events: Vec<Json>,
    pub(crate) forgotten: Vec<OperationId>,
    pub(crate) kept_events: Option<u64>,
    pub(crate) accepts_restored: bool,
}

/// What a commit was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The revision that all documents of this batch have now.
    pub revision: u64,
    /// The number of the last event in the outbox.
    pub last_event: u64,
}

impl Batch {
    pub fn new() -> Self {
        Self::default()
    }

    /// The document must have this revision, or must not be there (`None`); else nothing is committed.
    pub fn expect(&mut self, kind: &str, id: &str, revision: Option<u64>) -> &mut Self {
        self.expectations.push(Expectation {
            kind: kind.to_owned(),
            id: id.to_owned(),
            revision,
        });
        self
    }

    /// Writes a document, whatever was there before; [`Batch::expect`] says what may have been there.
    pub fn put<T: Stored>(&mut self, value: &T) -> Result<&mut Self, StoreError> {
        let json = to_raw_value(value).map_err(|e| StoreError::malformed(T::KIND, value.id(), &e))?;
        Ok(self.put_json(T::KIND, value.id(), json))
    }

    /// [`Batch::put`] for JSON at hand.
    pub fn put_json(&mut self, kind: &str, id: &str, json: Json) -> &mut Self {
        self.writes.push(Write {
            kind: kind.to_owned(),
            id: id.to_owned(),
            json: Some(json),
        });
        self
    }

    /// Deletes a document; nothing happens where there is none.
    pub fn delete(&mut self, kind: &str, id: &str) -> &mut Self {
        self.writes.push(Write {
            kind: kind.to_owned(),
            id: id.to_owned(),
            json: None,
        });
        self
    }

    /// Whether it writes or deletes this document.
    pub fn writes(&self, kind: &str, id: &str) -> bool {
        self.writes
            .iter()
            .any(|write| write.kind == kind && write.id == id)
    }

    /// Deletes a damaged document, by its name in [`Store::damaged`](crate::Store::damaged). A sound one stays.
    pub fn discard(&mut self, kind: &str, id: &str) -> &mut Self {
        self.discarded.push((kind.to_owned(), id.to_owned()));
        self
    }

    /// Writes what [`Store::before_flip`](crate::Store::before_flip) returned in the place of the damaged document or lines of
    /// this name. Nothing is committed if the document was written since.
    pub fn restore(&mut self, kind: &str, id: &str, originals: Vec<Original>) -> &mut Self {
        self.discard(kind, id);
        for original in originals {
            match original {
                Original::Document { document, found } => {
                    self.expect(kind, id, Some(found))
                        .put_json(kind, id, document.json);
                }
                Original::Line(_) => self.restored.push(original),
            }
        }
        self
    }

    /// As [`Batch::restore`], with the revision of before: for a kind whose documents are read in the order of their commits.
    /// A reader that asks only for later revisions does not see it.
    pub fn restore_in_order(&mut self, kind: &str, id: &str, originals: Vec<Original>) -> &mut Self {
        self.discard(kind, id);
        for original in &originals {
            if let Original::Document { found, .. } = original {
                self.expect(kind, id, Some(*found));
            }
        }
        self.restored.extend(originals);
        self
    }

    /// Whether it changes documents: then its commit has a revision of its own.
    pub(crate) fn changes_documents(&self) -> bool {
        !self.writes.is_empty() || !self.discarded.is_empty()
    }

    /// Adds a journal line. `seq` must follow the operation's last line (1 is the first, and opens the
    /// operation); else somebody else wrote in between, and nothing is committed.
    pub fn line(
        &mut self,
        operation: &OperationId,
        seq: u64,
        line: &impl Serialize,
    ) -> Result<&mut Self, StoreError> {
        let json =
            to_raw_value(line).map_err(|e| StoreError::malformed("journal", operation.as_str(), &e))?;
        self.lines.push(JournalLine {
            operation: operation.clone(),
            seq,
            json,
        });
        Ok(self)
    }

    /// Lists an operation that has not ended among the open ones again.
    pub fn reopen(&mut self, operation: &OperationId) -> &mut Self {
        self.reopened.push(operation.clone());
        self
    }

    /// Ends the operation: it is open no more.
    pub fn end(&mut self, operation: &OperationId) -> &mut Self {
        self.ended.push(operation.clone());
        self
    }

    /// Adds an event to the outbox.
    pub fn event(&mut self, event: &impl Serialize) -> Result<&mut Self, StoreError> {
        let json = to_raw_value(event).map_err(|e| StoreError::malformed("outbox", "event", &e))?;
        self.events.push(json);
        Ok(self)
    }

    /// Forgets the journal of an operation that has ended; that of an open one stays.
    pub fn forget(&mut self, operation: &OperationId) -> &mut Self {
        self.forgotten.push(operation.clone());
        self
    }

    /// Somebody has looked at what became of the hardware since: [`Store::restored`](crate::Store::restored)
    /// tells nothing any more.
    pub fn accept_restored(&mut self) -> &mut Self {
        self.accepts_restored = true;
        self
    }

    /// Keeps only so many of the newest events. Numbers go on from where they are.
    pub fn keep_events(&mut self, newest: u64) -> &mut Self {
        self.kept_events = Some(newest);
        self
    }
}
