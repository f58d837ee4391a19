//! A batch and a row, as SQLite has them.

use crate::batch::Write;
use crate::cluster::RESTORED;
use crate::document::{Damaged, Json};
use crate::error::RESTORE;
use crate::integrity::{Column, DocumentRow, JOURNAL, LineRow, Original, of_document, of_line};
use crate::quarantine::Verified;
use crate::statements::{
    ADVANCE, APPEND, DELETE, EARLIEST, END, EVENTS, FORGET, FORGET_EVENTS, FOUND_REVISION, GET, HOW_MANY,
    IS_OPEN, LAST_LINE, LAST_REVISION, LATEST, LINES, LIST, MARKED, OPEN, OPEN_OPERATIONS, PUT, REVISION,
    TELL, UNMARK,
};
use crate::{Batch, Committed, Event, JournalLine, Order, StoreError};
use poolwright_model::id::OperationId;
use rusqlite::types::{Type, ValueRef};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, params};
use serde_json::value::RawValue;

/// Why a batch is not applied: its own fault, or the database's.
pub(super) enum NotApplied {
    Refused(StoreError),
    Failed(rusqlite::Error),
}

impl From<rusqlite::Error> for NotApplied {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error)
    }
}

/// Applies a batch within the open transaction.
pub(super) fn apply(connection: &Connection, batch: &Batch) -> Result<Committed, NotApplied> {
    for expected in &batch.expectations {
        let found = revision(connection, &expected.kind, &expected.id)?;
        if found != expected.revision {
            return Err(NotApplied::Refused(StoreError::Conflict {
                kind: expected.kind.clone(),
                id: expected.id.clone(),
                expected: expected.revision,
                found,
            }));
        }
    }
    let revision = advance(connection, "revision", u64::from(batch.changes_documents()))?;
    discard(connection, &batch.discarded)?;
    for original in &batch.restored {
        match original {
            Original::Document { document, .. } => {
                put_document(
                    connection,
                    &document.kind,
                    &document.id,
                    document.revision,
                    &document.json,
                )?;
            }
            Original::Line(line) => insert_line(connection, line)?,
        }
    }
    for write in &batch.writes {
        put(connection, write, revision)?;
    }
    for line in &batch.lines {
        append(connection, line)?;
    }
    for operation in &batch.reopened {
        connection.prepare_cached(OPEN)?.execute([operation.as_str()])?;
    }
    for operation in &batch.ended {
        connection.prepare_cached(END)?.execute([operation.as_str()])?;
    }
    let last_event = advance(connection, "event", batch.events.len() as u64)?;
    let mut insert = connection.prepare_cached(TELL)?;
    for (seq, event) in (last_event + 1 - batch.events.len() as u64..).zip(&batch.events) {
        insert.execute(params![signed(seq), event.get()])?;
    }
    for operation in &batch.forgotten {
        connection.prepare_cached(FORGET)?.execute([operation.as_str()])?;
    }
    if let Some(newest) = batch.kept_events {
        connection
            .prepare_cached(FORGET_EVENTS)?
            .execute([signed(last_event.saturating_sub(newest))])?;
    }
    if batch.accepts_restored {
        connection.prepare_cached(UNMARK)?.execute([RESTORED])?;
    }
    Ok(Committed { revision, last_event })
}

/// Moves a counter on, and says where it stands.
pub(super) fn advance(connection: &Connection, name: &str, by: u64) -> rusqlite::Result<u64> {
    connection
        .prepare_cached(ADVANCE)?
        .query_row(params![name, signed(by)], |row| number(row, 0))
}

fn revision(connection: &Connection, kind: &str, id: &str) -> rusqlite::Result<Option<u64>> {
    connection
        .prepare_cached(REVISION)?
        // A damaged revision matches no expectation: an error would refuse every batch of the group.
        .query_row([kind, id], |row| Ok(column(row, 0)?.number().unwrap_or(u64::MAX)))
        .optional()
}

/// The number of the last commit; of the documents that are there, if its counter is lost.
pub(super) fn found_revision(connection: &Connection) -> rusqlite::Result<u64> {
    connection.query_row(FOUND_REVISION, [], |row| number(row, 0))
}

pub(super) fn last_revision(connection: &Connection) -> rusqlite::Result<u64> {
    connection
        .prepare_cached(LAST_REVISION)?
        .query_row([], |row| number(row, 0))
}

fn put(connection: &Connection, write: &Write, revision: u64) -> rusqlite::Result<()> {
    let Write { kind, id, json } = write;
    match json {
        Some(json) => put_document(connection, kind, id, revision, json),
        None => connection.prepare_cached(DELETE)?.execute([kind, id]).map(drop),
    }
}

fn put_document(
    connection: &Connection,
    kind: &str,
    id: &str,
    revision: u64,
    json: &Json,
) -> rusqlite::Result<()> {
    let sum = of_document(kind.as_bytes(), id.as_bytes(), revision, json.get().as_bytes());
    connection
        .prepare_cached(PUT)?
        .execute(params![kind, id, signed(revision), json.get(), sum])
        .map(drop)
}

/// Adds a line that must follow the operation's last one.
fn append(connection: &Connection, line: &JournalLine) -> Result<(), NotApplied> {
    let operation = line.operation.as_str();
    let last = connection
        .prepare_cached(LAST_LINE)?
        .query_row([operation], |row| number(row, 0))?;
    let open = connection.prepare_cached(IS_OPEN)?.exists([operation])?;
    if line.seq != last + 1 || (last > 0 && !open) {
        return Err(NotApplied::Refused(StoreError::Conflict {
            kind: "journal".to_owned(),
            id: operation.to_owned(),
            expected: line.seq.checked_sub(1),
            found: Some(last),
        }));
    }
    insert_line(connection, line)?;
    if last == 0 {
        connection.prepare_cached(OPEN)?.execute([operation])?;
    }
    Ok(())
}

fn insert_line(connection: &Connection, line: &JournalLine) -> rusqlite::Result<()> {
    let (operation, json) = (line.operation.as_str(), line.json.get());
    let sum = of_line(operation.as_bytes(), line.seq, json.as_bytes());
    let mut insert = connection.prepare_cached(APPEND)?;
    insert
        .execute(params![operation, signed(line.seq), json, sum])
        .map(drop)
}

/// What the store says of itself under this name.
pub(super) fn marked(connection: &Connection, name: &str) -> rusqlite::Result<Option<String>> {
    connection
        .prepare_cached(MARKED)?
        .query_row([name], |row| row.get(0))
        .optional()
}

pub(super) fn get(connection: &Connection, kind: &str, id: &str) -> rusqlite::Result<Option<Verified>> {
    connection
        .prepare_cached(GET)?
        .query_row([kind, id], verified)
        .optional()
}

pub(super) fn list(connection: &Connection, kind: &str) -> rusqlite::Result<Vec<Verified>> {
    connection
        .prepare_cached(LIST)?
        .query_map([kind], verified)?
        .collect()
}

pub(super) fn written(
    connection: &Connection,
    kind: &str,
    order: Order,
    limit: u32,
) -> rusqlite::Result<Vec<Verified>> {
    match order {
        Order::LatestFirst => connection
            .prepare_cached(LATEST)?
            .query_map(params![kind, limit], verified)?
            .collect(),
        Order::EarliestFirst { after } => connection
            .prepare_cached(EARLIEST)?
            .query_map(params![kind, signed(after), limit], verified)?
            .collect(),
    }
}

pub(super) fn count(connection: &Connection, kind: &str) -> rusqlite::Result<u64> {
    connection
        .prepare_cached(HOW_MANY)?
        .query_row([kind], |row| number(row, 0))
}

pub(super) fn journal(
    connection: &Connection,
    operation: &OperationId,
    after: u64,
) -> rusqlite::Result<Result<Vec<JournalLine>, Damaged>> {
    let mut lines = connection.prepare_cached(LINES)?;
    let mut rows = lines.query(params![operation.as_str(), signed(after)])?;
    let mut read = Vec::new();
    while let Some(row) = rows.next()? {
        match line(row)?.verified(operation, after + read.len() as u64) {
            Ok(line) => read.push(line),
            Err(damaged) => return Ok(Err(damaged)),
        }
    }
    Ok(Ok(read))
}

/// Verifies every document, every journal line, and the indices.
pub(super) fn verify(connection: &Connection) -> rusqlite::Result<Verdict> {
    let mut all = connection.prepare(ALL)?;
    let mut rows = all.query([])?;
    let mut damaged = Vec::new();
    while let Some(row) = rows.next()? {
        damaged.extend(document(row)?.verified().err());
    }
    let mut all = connection.prepare(ALL_LINES)?;
    let mut rows = all.query([])?;
    while let Some(row) = rows.next()? {
        damaged.extend(line(row)?.damage(column(row, 3)?));
    }
    let indices: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    Ok(Verdict {
        damaged,
        indices: Some(indices).filter(|verdict| verdict != "ok"),
    })
}

/// The result of [`verify`].
pub(super) struct Verdict {
    pub damaged: Vec<Damaged>,
    /// The first complaint about the indices, or about the pages of the file.
    pub indices: Option<String>,
}

/// Through no index: one that is damaged hides documents.
const ALL: &str = "SELECT kind, id, revision, doc, checksum, rowid FROM object NOT INDEXED";

const ALL_LINES: &str = "SELECT seq, line, checksum, operation, rowid FROM journal NOT INDEXED";

pub(super) const REINDEX: &str = "REINDEX";

/// Computes the checksums of all rows, none of which has one yet.
pub(super) fn add_checksums(connection: &Connection) -> rusqlite::Result<()> {
    let mut set = connection.prepare("UPDATE object SET checksum = ?2 WHERE rowid = ?1")?;
    let mut all = connection.prepare(ALL)?;
    let mut rows = all.query([])?;
    while let Some(row) = rows.next()? {
        set.execute(params![row.get::<_, i64>(5)?, document(row)?.expected()])?;
    }
    let mut set = connection.prepare("UPDATE journal SET checksum = ?2 WHERE rowid = ?1")?;
    let mut all = connection.prepare(ALL_LINES)?;
    let mut rows = all.query([])?;
    while let Some(row) = rows.next()? {
        if let Column::Text(operation) = column(row, 3)? {
            set.execute(params![row.get::<_, i64>(4)?, line(row)?.expected(operation)])?;
        }
    }
    Ok(())
}

/// See [`SqliteStore::flip_bit`](super::SqliteStore::flip_bit).
pub(super) fn flip_bit(connection: &Connection, kind: &str, id: &str, bit: usize) -> rusqlite::Result<()> {
    let (content, table, name) = match kind {
        JOURNAL => ("line", "journal", "?1 = 'journal' AND operation = ?2 AND seq = 1"),
        _ => ("doc", "object", "kind = ?1 AND id = ?2"),
    };
    let get = format!("SELECT CAST({content} AS BLOB) FROM {table} WHERE {name}");
    let set = format!("UPDATE {table} SET {content} = CAST(?3 AS TEXT) WHERE {name}");
    let mut bytes: Vec<u8> = connection.query_row(&get, [kind, id], |row| row.get(0))?;
    let bit = bit % (bytes.len() * 8);
    bytes[bit / 8] ^= 1 << (bit % 8);
    connection.execute(&set, params![kind, id, bytes]).map(drop)
}

/// Deletes damaged documents and journal lines. Reads every row: the names may be of bytes that are not text, and the indices
/// may not lead to them.
fn discard(connection: &Connection, names: &[(String, String)]) -> Result<(), NotApplied> {
    if names.is_empty() {
        return Ok(());
    }
    // Other batches of the group are committed even if a damaged name collides with another.
    connection
        .execute_batch(REINDEX)
        .map_err(|error| NotApplied::Refused(unavailable(&error)))?;
    let is_named = |damaged: Damaged| names.contains(&(damaged.kind, damaged.id));
    let mut found = Vec::new();
    let mut all = connection.prepare(ALL)?;
    let mut rows = all.query([])?;
    while let Some(row) = rows.next()? {
        if document(row)?.verified().err().is_some_and(is_named) {
            found.push(("DELETE FROM object WHERE rowid = ?1", row.get::<_, i64>(5)?));
        }
    }
    let mut all = connection.prepare(ALL_LINES)?;
    let mut rows = all.query([])?;
    while let Some(row) = rows.next()? {
        if line(row)?.damage(column(row, 3)?).is_some_and(is_named) {
            found.push(("DELETE FROM journal WHERE rowid = ?1", row.get(4)?));
        }
    }
    for (delete, row) in found {
        connection.execute(delete, [row])?;
    }
    Ok(())
}

/// The damaged rows of this name as they were before one bit of each flipped; `None` if that does not explain all of them.
pub(super) fn before_flip(
    connection: &Connection,
    name: &(String, String),
) -> rusqlite::Result<Option<Vec<Original>>> {
    let is_named = |damaged: Damaged| (damaged.kind, damaged.id) == *name;
    let mut found = Vec::new();
    let mut all = connection.prepare(ALL)?;
    let mut rows = all.query([])?;
    while let Some(row) = rows.next()? {
        let row = document(row)?;
        if row.verified().err().is_some_and(is_named) {
            found.push(row.before_flip());
        }
    }
    let mut all = connection.prepare(ALL_LINES)?;
    let mut rows = all.query([])?;
    while let Some(row) = rows.next()? {
        let (line, operation) = (line(row)?, column(row, 3)?);
        if line.damage(operation).is_some_and(is_named) {
            found.push(line.before_flip(operation));
        }
    }
    Ok(found.into_iter().collect())
}

pub(super) fn open_operations(connection: &Connection) -> rusqlite::Result<Vec<OperationId>> {
    connection
        .prepare_cached(OPEN_OPERATIONS)?
        .query_map([], |row| {
            let text: String = row.get(0)?;
            OperationId::new(text).map_err(|e| unreadable(0, e))
        })?
        .collect()
}

pub(super) fn events_after(connection: &Connection, seq: u64, limit: u32) -> rusqlite::Result<Vec<Event>> {
    connection
        .prepare_cached(EVENTS)?
        .query_map(params![signed(seq), limit], |row| {
            Ok(Event {
                seq: number(row, 0)?,
                json: json(row, 1)?,
            })
        })?
        .collect()
}

fn document<'r>(row: &'r Row<'_>) -> rusqlite::Result<DocumentRow<'r>> {
    Ok(DocumentRow {
        kind: column(row, 0)?,
        id: column(row, 1)?,
        revision: column(row, 2)?,
        doc: column(row, 3)?,
        checksum: column(row, 4)?,
    })
}

fn verified(row: &Row<'_>) -> rusqlite::Result<Verified> {
    Ok(document(row)?.verified())
}

fn line<'r>(row: &'r Row<'_>) -> rusqlite::Result<LineRow<'r>> {
    Ok(LineRow {
        seq: column(row, 0)?,
        line: column(row, 1)?,
        checksum: column(row, 2)?,
    })
}

fn column<'r>(row: &'r Row<'_>, index: usize) -> rusqlite::Result<Column<'r>> {
    Ok(match row.get_ref(index)? {
        ValueRef::Text(bytes) => Column::Text(bytes),
        ValueRef::Integer(number) => Column::Number(number),
        ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => Column::Other,
    })
}

fn json(row: &Row<'_>, column: usize) -> rusqlite::Result<Json> {
    RawValue::from_string(row.get(column)?).map_err(|e| unreadable(column, e))
}

/// SQL knows signed numbers only; ours count from 0 and never come near the limit.
fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|e| unreadable(column, e))
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn unreadable(column: usize, error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error))
}

/// Whether the disk failed, so that what is shown may not be what it holds.
pub(super) fn is_of_the_disk(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::SystemIoFailure | ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}

/// What the database's error means for whoever asked.
pub(super) fn unavailable(error: &rusqlite::Error) -> StoreError {
    let hint = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "free some space on the disk that holds the data directory",
        Some(ErrorCode::ReadOnly) => "make the data directory writable",
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => {
            "look at the disk that holds the data directory"
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => RESTORE,
        _ => "try again",
    };
    StoreError::Unavailable {
        reason: error.to_string(),
        hint,
    }
}
