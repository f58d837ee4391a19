//! Checksums of documents and journal lines, verified whenever a row is read.
//!
//! The file system and SQLite return a flipped bit as if it had been written, and a flipped bit in an address of a
//! composition unbinds the GPU of another one. So nothing of a row is used before its checksum is verified. The migration
//! that adds the checksums computes those of existing rows: from then on a row without one is damaged.

use crate::document::{Damaged, Document, JournalLine, Json};
use poolwright_model::id::OperationId;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// The checksum of a document.
pub(crate) fn of_document(kind: &[u8], id: &[u8], revision: u64, doc: &[u8]) -> i64 {
    checksum(&[b"document", kind, id], revision, doc)
}

/// The checksum of a journal line.
pub(crate) fn of_line(operation: &[u8], seq: u64, line: &[u8]) -> i64 {
    checksum(&[b"line", operation], seq, line)
}

/// The first 64 bits of a SHA-256 digest. Each key follows its length, so that no two lists of keys have the same bytes.
fn checksum(keys: &[&[u8]], number: u64, content: &[u8]) -> i64 {
    let mut digest = Sha256::new();
    for key in keys {
        digest.update((key.len() as u64).to_be_bytes());
        digest.update(key);
    }
    digest.update(number.to_be_bytes());
    digest.update(content);
    let first = digest
        .finalize()
        .iter()
        .take(8)
        .fold(0_u64, |n, byte| n << 8 | u64::from(*byte));
    // SQL has signed numbers only.
    first.cast_signed()
}

/// A column as the database returns it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Column<'r> {
    Text(&'r [u8]),
    Number(i64),
    /// Neither text nor a whole number: no such value is ever written.
    Other,
}

impl<'r> Column<'r> {
    fn text(self) -> Option<&'r [u8]> {
        match self {
            Self::Text(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub fn number(self) -> Option<u64> {
        match self {
            Self::Number(number) => u64::try_from(number).ok(),
            _ => None,
        }
    }

    /// The text for people to read and to type: bytes that can't be shown are replaced.
    pub fn name(self) -> String {
        let text = String::from_utf8_lossy(self.text().unwrap_or(b"?"));
        text.replace(char::is_control, "\u{fffd}")
    }

    fn is(self, checksum: i64) -> bool {
        matches!(self, Self::Number(number) if number == checksum)
    }
}

/// A row of documents that is not verified yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DocumentRow<'r> {
    pub kind: Column<'r>,
    pub id: Column<'r>,
    pub revision: Column<'r>,
    pub doc: Column<'r>,
    pub checksum: Column<'r>,
}

impl DocumentRow<'_> {
    pub fn verified(&self) -> Result<Document, Damaged> {
        self.read().map_err(|reason| Damaged {
            kind: self.kind.name(),
            id: self.id.name(),
            reason: reason.to_owned(),
        })
    }

    /// The checksum that belongs to the other columns; `None` if one of them has a type that is never written.
    pub fn expected(&self) -> Option<i64> {
        let (kind, id, doc) = (self.kind.text()?, self.id.text()?, self.doc.text()?);
        Some(of_document(kind, id, self.revision.number()?, doc))
    }

    fn read(&self) -> Result<Document, &'static str> {
        let expected = self.expected().ok_or(OTHER_TYPE)?;
        if !self.checksum.is(expected) {
            return Err(OTHER_CONTENT);
        }
        Ok(Document {
            kind: text(self.kind)?,
            id: text(self.id)?,
            revision: self.revision.number().ok_or(OTHER_TYPE)?,
            json: json(self.doc)?,
        })
    }
}

/// A row of the journal that is not verified yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LineRow<'r> {
    pub seq: Column<'r>,
    pub line: Column<'r>,
    pub checksum: Column<'r>,
}

impl LineRow<'_> {
    /// `after`: the number of the line before it. A line whose operation or number changed on the disk is missing here.
    pub fn verified(&self, operation: &OperationId, after: u64) -> Result<JournalLine, Damaged> {
        self.read(operation, after).map_err(|reason| Damaged {
            kind: JOURNAL.to_owned(),
            id: operation.to_string(),
            reason: format!("line {}: {reason}", after + 1),
        })
    }

    /// Its damage, if it is verified under the name that its row has: that of a line whose operation changed on the disk.
    pub fn damage(&self, operation: Column<'_>) -> Option<Damaged> {
        let expected = operation.text().and_then(|name| self.expected(name));
        let is_sound = expected.is_some_and(|expected| self.checksum.is(expected));
        (!is_sound).then(|| Damaged {
            kind: JOURNAL.to_owned(),
            id: operation.name(),
            reason: OTHER_CONTENT.to_owned(),
        })
    }

    /// See [`DocumentRow::expected`].
    pub fn expected(&self, operation: &[u8]) -> Option<i64> {
        Some(of_line(operation, self.seq.number()?, self.line.text()?))
    }

    fn read(&self, operation: &OperationId, after: u64) -> Result<JournalLine, &'static str> {
        let expected = self.expected(operation.as_str().as_bytes()).ok_or(OTHER_TYPE)?;
        let seq = self.seq.number().ok_or(OTHER_TYPE)?;
        if seq != after + 1 {
            return Err("it is missing");
        }
        if !self.checksum.is(expected) {
            return Err(OTHER_CONTENT);
        }
        Ok(JournalLine {
            operation: operation.clone(),
            seq,
            json: json(self.line)?,
        })
    }
}

/// The kind of damage in a journal.
pub const JOURNAL: &str = "journal";
/// The kind of damage in an index, which may hide documents.
pub const INDEX: &str = "index";

const OTHER_CONTENT: &str = "its content does not match its checksum";
const OTHER_TYPE: &str = "a column has a type that is never written";

fn text(column: Column<'_>) -> Result<String, &'static str> {
    let bytes = column.text().ok_or(OTHER_TYPE)?;
    String::from_utf8(bytes.to_vec()).map_err(|_| "it is not UTF-8")
}

fn json(column: Column<'_>) -> Result<Json, &'static str> {
    RawValue::from_string(text(column)?).map_err(|_| "its content is not JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row<'r>(
        kind: &'r str,
        id: &'r str,
        revision: i64,
        doc: &'r str,
        checksum: Column<'r>,
    ) -> DocumentRow<'r> {
        DocumentRow {
            kind: Column::Text(kind.as_bytes()),
            id: Column::Text(id.as_bytes()),
            revision: Column::Number(revision),
            doc: Column::Text(doc.as_bytes()),
            checksum,
        }
    }

    /// Stored databases hold these numbers: they never change.
    #[test]
    fn checksums_stay_as_they_were_written() {
        assert_eq!(of_document(b"composition", b"web-1", 7, b"{}"), DOCUMENT);
        assert_eq!(of_line(b"op-1", 2, b"{}"), LINE);
    }

    const DOCUMENT: i64 = 2_790_328_642_792_406_122;
    const LINE: i64 = -5_842_741_391_946_010_312;

    #[test]
    fn a_document_is_damaged_if_any_column_changed() {
        let sum = Column::Number(DOCUMENT);
        let sound = row("composition", "web-1", 7, "{}", sum);
        assert_eq!(sound.verified().unwrap().revision, 7);
        let damaged = [
            row("compositio~", "web-1", 7, "{}", sum),
            row("composition", "web-0", 7, "{}", sum),
            row("composition", "web-1", 6, "{}", sum),
            row("composition", "web-1", -7, "{}", sum),
            row("composition", "web-1", 7, "[]", sum),
            row("composition", "web-1", 7, "{}", Column::Number(DOCUMENT ^ 1)),
            row("composition", "web-1", 7, "{}", Column::Other),
            // The end of one key is not taken for the beginning of the next.
            row("compositionw", "eb-1", 7, "{}", sum),
            DocumentRow {
                doc: Column::Other,
                ..sound
            },
            DocumentRow {
                kind: Column::Other,
                ..sound
            },
        ];
        for row in damaged {
            assert!(row.verified().is_err(), "{row:?}");
        }
        let damaged = row("composition", "web-\u{11}", 7, "{}", sum);
        let damaged = damaged.verified().unwrap_err();
        assert_eq!(
            (damaged.kind.as_str(), damaged.id.as_str()),
            ("composition", "web-\u{fffd}")
        );
    }

    /// The checksum is of the bytes as they were written, not of the JSON that they stand for.
    #[test]
    fn a_document_may_have_any_key_order_numbers_and_characters() {
        for doc in [
            r#"{"b":1,"a":2}"#,
            r#"{"a":1.0,"b":1e3,"c":-0}"#,
            r#"{"a":"ä ✓ \u00e4"}"#,
            r#"{ "a" : [ 1 ] }"#,
        ] {
            let sum = of_document(b"note", "Ä".as_bytes(), 1, doc.as_bytes());
            let read = row("note", "Ä", 1, doc, Column::Number(sum)).verified().unwrap();
            assert_eq!((read.id.as_str(), read.json.get()), ("Ä", doc));
        }
    }
}
