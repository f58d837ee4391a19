//! The statements. Text that SQLite and PostgreSQL both understand.

use crate::batch::Write;
use crate::document::Json;
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
        connection
            .prepare_cached("DELETE FROM open_operation WHERE operation = ?1")?
            .execute([operation.as_str()])?;
    }
    let last_event = advance(connection, "event", batch.events.len() as u64)?;
    let mut insert = connection.prepare_cached("INSERT INTO outbox (seq, event) VALUES (?1, ?2)")?;
    for (seq, event) in (last_event + 1 - batch.events.len() as u64..).zip(&batch.events) {
        insert.execute(params![signed(seq), event.get()])?;
    }
    for operation in &batch.forgotten {
        connection
            .prepare_cached(
                "DELETE FROM journal WHERE operation = ?1
                 AND NOT EXISTS (SELECT 1 FROM open_operation WHERE operation = ?1)",
            )?
            .execute([operation.as_str()])?;
    }
    if let Some(newest) = batch.kept_events {
        connection
            .prepare_cached("DELETE FROM outbox WHERE seq <= ?1")?
            .execute([signed(last_event.saturating_sub(newest))])?;
    }
    Ok(Committed { revision, last_event })
}

/// Moves a counter on, and says where it stands.
fn advance(connection: &Connection, name: &str, by: u64) -> rusqlite::Result<u64> {
    connection
        .prepare_cached("UPDATE counter SET value = value + ?2 WHERE name = ?1 RETURNING value")?
        .query_row(params![name, signed(by)], |row| number(row, 0))
}

fn revision(connection: &Connection, kind: &str, id: &str) -> rusqlite::Result<Option<u64>> {
    connection
        .prepare_cached("SELECT revision FROM object WHERE kind = ?1 AND id = ?2")?
        .query_row([kind, id], |row| number(row, 0))
        .optional()
}

pub(super) fn last_revision(connection: &Connection) -> rusqlite::Result<u64> {
    connection
        .prepare_cached("SELECT value FROM counter WHERE name = 'revision'")?
        .query_row([], |row| number(row, 0))
}

fn put(connection: &Connection, write: &Write, revision: u64) -> rusqlite::Result<()> {
    let Write { kind, id, json } = write;
    match json {
        Some(json) => connection
            .prepare_cached(
                "INSERT INTO object (kind, id, revision, doc) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (kind, id) DO UPDATE SET revision = excluded.revision, doc = excluded.doc",
            )?
            .execute(params![kind, id, signed(revision), json.get()])?,
        None => connection
            .prepare_cached("DELETE FROM object WHERE kind = ?1 AND id = ?2")?
            .execute([kind, id])?,
    };
    Ok(())
}

/// Adds a line that must follow the operation's last one.
fn append(connection: &Connection, line: &JournalLine) -> Result<(), NotApplied> {
    let operation = line.operation.as_str();
    let last = connection
        .prepare_cached("SELECT coalesce(max(seq), 0) FROM journal WHERE operation = ?1")?
        .query_row([operation], |row| number(row, 0))?;
    let open = connection
        .prepare_cached("SELECT 1 FROM open_operation WHERE operation = ?1")?
        .exists([operation])?;
    if line.seq != last + 1 || (last > 0 && !open) {
        return Err(NotApplied::Refused(StoreError::Conflict {
            kind: "journal".to_owned(),
            id: operation.to_owned(),
            expected: line.seq.checked_sub(1),
            found: Some(last),
        }));
    }
    connection
        .prepare_cached("INSERT INTO journal (operation, seq, line) VALUES (?1, ?2, ?3)")?
        .execute(params![operation, signed(line.seq), line.json.get()])?;
    if last == 0 {
        connection
            .prepare_cached("INSERT INTO open_operation (operation) VALUES (?1)")?
            .execute([operation])?;
    }
    Ok(())
}

pub(super) fn get(connection: &Connection, kind: &str, id: &str) -> rusqlite::Result<Option<Document>> {
    connection
        .prepare_cached("SELECT kind, id, revision, doc FROM object WHERE kind = ?1 AND id = ?2")?
        .query_row([kind, id], document)
        .optional()
}

pub(super) fn list(connection: &Connection, kind: &str) -> rusqlite::Result<Vec<Document>> {
    connection
        .prepare_cached("SELECT kind, id, revision, doc FROM object WHERE kind = ?1 ORDER BY id")?
        .query_map([kind], document)?
        .collect()
}

pub(super) fn written(
    connection: &Connection,
    kind: &str,
    order: Order,
    limit: u32,
) -> rusqlite::Result<Vec<Document>> {
    let (after, direction) = match order {
        Order::LatestFirst => (0, "DESC"),
        Order::EarliestFirst { after } => (after, "ASC"),
    };
    // Those of one commit have one revision: their ids decide.
    connection
        .prepare_cached(&format!(
            "SELECT kind, id, revision, doc FROM object WHERE kind = ?1 AND revision > ?2
             ORDER BY revision {direction}, id LIMIT ?3"
        ))?
        .query_map(params![kind, signed(after), limit], document)?
        .collect()
}

pub(super) fn count(connection: &Connection, kind: &str) -> rusqlite::Result<u64> {
    connection
        .prepare_cached("SELECT count(*) FROM object WHERE kind = ?1")?
        .query_row([kind], |row| number(row, 0))
}

pub(super) fn journal(
    connection: &Connection,
    operation: &OperationId,
    after: u64,
) -> rusqlite::Result<Vec<JournalLine>> {
    connection
        .prepare_cached("SELECT seq, line FROM journal WHERE operation = ?1 AND seq > ?2 ORDER BY seq")?
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
        .prepare_cached("SELECT operation FROM open_operation ORDER BY operation")?
        .query_map([], |row| {
            let text: String = row.get(0)?;
            OperationId::new(text).map_err(|e| unreadable(0, e))
        })?
        .collect()
}

pub(super) fn events_after(connection: &Connection, seq: u64, limit: u32) -> rusqlite::Result<Vec<Event>> {
    connection
        .prepare_cached("SELECT seq, event FROM outbox WHERE seq > ?1 ORDER BY seq LIMIT ?2")?
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

/// What the database's error means for whoever asked.
pub(super) fn unavailable(error: &rusqlite::Error) -> StoreError {
    let hint = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "free some space on the disk that holds the data directory",
        Some(ErrorCode::ReadOnly) => "make the data directory writable",
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => {
            "look at the disk that holds the data directory"
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => "restore a backup",
        _ => "try again",
    };
    StoreError::Unavailable {
        reason: error.to_string(),
        hint,
    }
}
