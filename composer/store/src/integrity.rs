//! Checksums of documents and journal lines, verified whenever a row is read.
//!
//! The file system and SQLite return a flipped bit as if it had been written, and a flipped bit in an address of a
//! composition unbinds the GPU of another one. So nothing of a row is used before its checksum is verified. The migration
//! that adds the checksums computes those of existing rows: from then on a row without one is damaged.
//!
//! A checksum also tells how a row was before one of its bits flipped: each bit is tried.

use crate::document::{Damaged, Document, JournalLine, Json};
use poolwright_model::id::OperationId;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

/// The checksum of a document.
pub(crate) fn of_document(kind: &[u8], id: &[u8], revision: u64, doc: &[u8]) -> i64 {
    checksum(&[DOCUMENT, kind, id], revision, doc)
}

/// The checksum of a journal line.
pub(crate) fn of_line(operation: &[u8], seq: u64, line: &[u8]) -> i64 {
    checksum(&[LINE, operation], seq, line)
}

const DOCUMENT: &[u8] = b"document";
const LINE: &[u8] = b"line";

fn checksum(keys: &[&[u8]], number: u64, content: &[u8]) -> i64 {
    let mut digest = Sha256::new();
    feed(keys, number, content, |piece| digest.update(piece));
    first_of(digest)
}

/// Each key follows its length, so that no two lists of keys have the same bytes.
fn feed(keys: &[&[u8]], number: u64, content: &[u8], mut take: impl FnMut(&[u8])) {
    for key in keys {
        take(&(key.len() as u64).to_be_bytes());
        take(key);
    }
    take(&number.to_be_bytes());
    take(content);
}

/// The first 64 bits of a digest.
fn first_of(digest: Sha256) -> i64 {
    let first = digest
        .finalize()
        .iter()
        .take(8)
        .fold(0_u64, |n, byte| n << 8 | u64::from(*byte));
    // SQL has signed numbers only.
    first.cast_signed()
}

/// Longest row in which a flipped bit is looked for, in bytes. The time grows with the square of the length: some seconds for
/// this one.
const SEARCHED: usize = 32 << 10;

/// The bytes of a checksum as they were before one bit of the row flipped; `None` if no single bit explains the checksum.
fn before_flip(keys: &[&[u8]], number: u64, content: &[u8], stored: i64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    feed(keys, number, content, |piece| bytes.extend_from_slice(piece));
    if (checksum(keys, number, content) ^ stored).count_ones() != 1 {
        if bytes.len() > SEARCHED {
            return None;
        }
        let (at, bit) = flipped_bit(&bytes, stored)?;
        bytes[at] ^= bit;
    }
    Some(bytes)
}

fn flipped_bit(bytes: &[u8], stored: i64) -> Option<(usize, u8)> {
    let mut before = Sha256::new();
    for (at, byte) in bytes.iter().enumerate() {
        for bit in (0..8).map(|bit| 1 << bit) {
            let mut digest = before.clone();
            digest.update([byte ^ bit]);
            digest.update(&bytes[at + 1..]);
            if first_of(digest) == stored {
                return Some((at, bit));
            }
        }
        before.update([*byte]);
    }
    None
}

/// Reads the bytes of a checksum.
struct Fed<'b>(&'b [u8]);

impl Fed<'_> {
    fn bytes(&mut self, count: usize) -> Option<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let bytes = self.bytes(size_of::<u64>())?;
        Some(u64::from_be_bytes(bytes.try_into().ok()?))
    }

    fn key(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        String::from_utf8(self.bytes(length)?.to_vec()).ok()
    }

    fn content(self) -> Option<Json> {
        RawValue::from_string(String::from_utf8(self.0.to_vec()).ok()?).ok()
    }
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

    /// Also of a number that is never written.
    fn bits(self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(number),
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

    /// The document as it was before one bit of its row flipped. `None` also if it had another name: while it had this one, it
    /// may have been deleted under the other.
    pub fn before_flip(&self) -> Option<Original> {
        let keys = [DOCUMENT, self.kind.text()?, self.id.text()?];
        let revision = self.revision.bits()?.cast_unsigned();
        let bytes = before_flip(&keys, revision, self.doc.text()?, self.checksum.bits()?)?;
        let mut fed = Fed(&bytes);
        let (_, kind, id) = (fed.key()?, fed.key()?, fed.key()?);
        let is_named = (kind.as_bytes(), id.as_bytes()) == (self.kind.text()?, self.id.text()?);
        let document = Document {
            kind,
            id,
            revision: fed.number()?,
            json: fed.content()?,
        };
        let found = self.revision.number().unwrap_or(u64::MAX);
        is_named.then_some(Original::Document { document, found })
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

    /// The line as it was before one bit of its row flipped. `None` also if it had another operation or number: that one may
    /// have been written again since. `operation`: as in [`LineRow::damage`].
    pub fn before_flip(&self, operation: Column<'_>) -> Option<Original> {
        let keys = [LINE, operation.text()?];
        let seq = self.seq.bits()?.cast_unsigned();
        let bytes = before_flip(&keys, seq, self.line.text()?, self.checksum.bits()?)?;
        let mut fed = Fed(&bytes);
        let (_, name, seq) = (fed.key()?, fed.key()?, fed.number()?);
        let is_named = name.as_bytes() == operation.text()? && Some(seq) == self.seq.number();
        let line = JournalLine {
            operation: OperationId::new(name).ok()?,
            seq,
            json: fed.content()?,
        };
        is_named.then_some(Original::Line(line))
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

/// A row as it was before one bit of it flipped.
#[derive(Debug, Clone)]
pub enum Original {
    /// `found`: the revision that its row has now.
    Document {
        document: Document,
        found: u64,
    },
    Line(JournalLine),
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
        assert_eq!(of_document(b"composition", b"web-1", 7, b"{}"), DOCUMENT_SUM);
        assert_eq!(of_line(b"op-1", 2, b"{}"), LINE_SUM);
    }

    const DOCUMENT_SUM: i64 = 2_790_328_642_792_406_122;
    const LINE_SUM: i64 = -5_842_741_391_946_010_312;

    #[test]
    fn a_document_is_damaged_if_any_column_changed() {
        let sum = Column::Number(DOCUMENT_SUM);
        let sound = row("composition", "web-1", 7, "{}", sum);
        assert_eq!(sound.verified().unwrap().revision, 7);
        let damaged = [
            row("compositio~", "web-1", 7, "{}", sum),
            row("composition", "web-0", 7, "{}", sum),
            row("composition", "web-1", 6, "{}", sum),
            row("composition", "web-1", -7, "{}", sum),
            row("composition", "web-1", 7, "[]", sum),
            row("composition", "web-1", 7, "{}", Column::Number(DOCUMENT_SUM ^ 1)),
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

    /// Fault 99: every bit.
    #[test]
    fn one_flipped_bit_is_found_and_two_are_not() {
        let sound = row("composition", "web-1", 7, "{}", Column::Number(DOCUMENT_SUM));
        let repaired = |row: DocumentRow<'_>| match row.before_flip() {
            Some(Original::Document { document, .. }) => {
                let Document {
                    kind,
                    id,
                    revision,
                    json,
                } = document;
                assert_eq!(
                    (kind.as_str(), id.as_str(), revision, json.get()),
                    ("composition", "web-1", 7, "{}")
                );
            }
            other => panic!("{row:?}: {other:?}"),
        };
        for bit in 0.."{}".len() * 8 {
            let mut doc = b"{}".to_vec();
            doc[bit / 8] ^= 1 << (bit % 8);
            let doc = Column::Text(&doc);
            repaired(DocumentRow { doc, ..sound });
        }
        for bit in 0..64 {
            let revision = Column::Number(7 ^ (1 << bit));
            repaired(DocumentRow { revision, ..sound });
            let checksum = Column::Number(DOCUMENT_SUM ^ (1 << bit));
            repaired(DocumentRow { checksum, ..sound });
        }
        let sum = Column::Number(DOCUMENT_SUM);
        let other_name = row("composition", "web-0", 7, "{}", sum);
        let two = row("composition", "web-1", 7, "xy", sum);
        for row in [other_name, two] {
            assert!(row.before_flip().is_none(), "{row:?}");
        }
        let line = LineRow {
            seq: Column::Number(2),
            line: Column::Text(b"{|"),
            checksum: Column::Number(LINE_SUM),
        };
        let Some(Original::Line(before)) = line.before_flip(Column::Text(b"op-1")) else {
            panic!("{line:?}")
        };
        assert_eq!((before.seq, before.json.get()), (2, "{}"));
        let (seq, content) = (Column::Number(3), Column::Text(b"{}"));
        let other_number = LineRow {
            seq,
            line: content,
            ..line
        };
        assert!(other_number.before_flip(Column::Text(b"op-1")).is_none());
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
