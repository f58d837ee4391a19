//! A batch and a row, as SQLite has them.

use crate::batch::Write;
use crate::cluster::RESTORED;
use crate::document::Json;
use crate::error::RESTORE;
use crate::statements::{
    ADVANCE, APPEND, DELETE, EARLIEST, END, EVENTS, FORGET, FORGET_EVENTS, GET, HOW_MANY, IS_OPEN, LAST_LINE,
    LAST_REVISION, LATEST, LINES, LIST, MARKED, OPEN, OPEN_OPERATIONS, PUT, REVISION, TELL, UNMARK,
};
use crate::{Batch, Committed, Document, Event, JournalLine, Order, StoreError};
use poolwright_model::id::OperationId;
use rusqlite::types::Type;
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
    let revision = advance(connection, "revision", u64::from(!batch.writes.is_empty()))?;
    for write in &batch.writes {
        put(connection, write, revision)?;
    }
    for line in &batch.lines {
        append(connection, line)?;
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
        .query_row([kind, id], |row| number(row, 0))
        .optional()
}

pub(super) fn last_revision(connection: &Connection) -> rusqlite::Result<u64> {
    connection
        .prepare_cached(LAST_REVISION)?
        .query_row([], |row| number(row, 0))
}

fn put(connection: &Connection, write: &Write, revision: u64) -> rusqlite::Result<()> {
    let Write { kind, id, json } = write;
    match json {
        Some(json) => {
            connection
                .prepare_cached(PUT)?
                .execute(params![kind, id, signed(revision), json.get()])?
        }
        None => connection.prepare_cached(DELETE)?.execute([kind, id])?,
    };
    Ok(())
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
    connection
        .prepare_cached(APPEND)?
        .execute(params![operation, signed(line.seq), line.json.get()])?;
    if last == 0 {
        connection.prepare_cached(OPEN)?.execute([operation])?;
    }
    Ok(())
}

/// What the store says of itself under this name.
pub(super) fn marked(connection: &Connection, name: &str) -> rusqlite::Result<Option<String>> {
    connection
        .prepare_cached(MARKED)?
        .query_row([name], |row| row.get(0))
        .optional()
}

pub(super) fn get(connection: &Connection, kind: &str, id: &str) -> rusqlite::Result<Option<Document>> {
    connection
        .prepare_cached(GET)?
        .query_row([kind, id], document)
        .optional()
}

pub(super) fn list(connection: &Connection, kind: &str) -> rusqlite::Result<Vec<Document>> {
    connection
        .prepare_cached(LIST)?
        .query_map([kind], document)?
        .collect()
}

pub(super) fn written(
    connection: &Connection,
    kind: &str,
    order: Order,
    limit: u32,
) -> rusqlite::Result<Vec<Document>> {
    match order {
        Order::LatestFirst => connection
            .prepare_cached(LATEST)?
            .query_map(params![kind, limit], document)?
            .collect(),
        Order::EarliestFirst { after } => connection
            .prepare_cached(EARLIEST)?
            .query_map(params![kind, signed(after), limit], document)?
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
) -> rusqlite::Result<Vec<JournalLine>> {
    connection
        .prepare_cached(LINES)?
        .query_map(params![operation.as_str(), signed(after)], |row| {
            Ok(JournalLine {
                operation: operation.clone(),
                seq: number(row, 0)?,
                json: json(row, 1)?,
            })
        })?
        .collect()
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

fn document(row: &Row<'_>) -> rusqlite::Result<Document> {
    Ok(Document {
        kind: row.get(0)?,
        id: row.get(1)?,
        revision: number(row, 2)?,
        json: json(row, 3)?,
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
