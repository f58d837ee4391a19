//! A batch and a row, as PostgreSQL has them.

use super::connect::told;
use crate::batch::Write;
use crate::cluster::RESTORED;
use crate::document::{Document, JournalLine, Json};
use crate::error::RESTORE;
use crate::statements::{
    ADVANCE, APPEND, DELETE, END, FORGET, FORGET_EVENTS, IS_OPEN, LAST_LINE, OPEN, PUT, REVISION, TELL,
    UNMARK,
};
use crate::{Batch, Committed, StoreError};
use deadpool_postgres::{GenericClient, PoolError};
use poolwright_model::id::OperationId;
use serde_json::value::RawValue;
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// Why a batch was not applied.
pub(super) enum NotApplied {
    /// Something that it expects is not so: the batch is at fault, the others are not.
    Refused(StoreError),
    /// The database failed: nothing of the group is committed.
    Failed(tokio_postgres::Error),
}

impl From<tokio_postgres::Error> for NotApplied {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Failed(error)
    }
}

/// A shared statement with PostgreSQL's parameters.
pub(super) fn numbered(text: &str) -> String {
    text.replace('?', "$")
}

/// Applies a batch within a transaction that holds the lock on the counter.
pub(super) async fn apply(client: &impl GenericClient, batch: &Batch) -> Result<Committed, NotApplied> {
    for expected in &batch.expectations {
        let found = one(client, REVISION, &[&expected.kind, &expected.id]).await?;
        if found != expected.revision {
            return Err(NotApplied::Refused(StoreError::Conflict {
                kind: expected.kind.clone(),
                id: expected.id.clone(),
                expected: expected.revision,
                found,
            }));
        }
    }
    let revision = advance(client, "revision", u64::from(!batch.writes.is_empty())).await?;
    for write in &batch.writes {
        put(client, write, revision).await?;
    }
    for line in &batch.lines {
        append(client, line).await?;
    }
    for operation in &batch.ended {
        execute(client, END, &[&operation.as_str()]).await?;
    }
    let last_event = advance(client, "event", batch.events.len() as u64).await?;
    for (seq, event) in (last_event + 1 - batch.events.len() as u64..).zip(&batch.events) {
        execute(client, TELL, &[&signed(seq), &event.get()]).await?;
    }
    for operation in &batch.forgotten {
        execute(client, FORGET, &[&operation.as_str()]).await?;
    }
    if let Some(newest) = batch.kept_events {
        execute(
            client,
            FORGET_EVENTS,
            &[&signed(last_event.saturating_sub(newest))],
        )
        .await?;
    }
    if batch.accepts_restored {
        execute(client, UNMARK, &[&RESTORED]).await?;
    }
    Ok(Committed { revision, last_event })
}

async fn put(client: &impl GenericClient, write: &Write, revision: u64) -> Result<(), tokio_postgres::Error> {
    let Write { kind, id, json } = write;
    match json {
        Some(json) => execute(client, PUT, &[kind, id, &signed(revision), &json.get()]).await,
        None => execute(client, DELETE, &[kind, id]).await,
    }
}

/// Adds a line that must follow the operation's last one.
async fn append(client: &impl GenericClient, line: &JournalLine) -> Result<(), NotApplied> {
    let operation = line.operation.as_str();
    let last = one(client, LAST_LINE, &[&operation]).await?.unwrap_or(0);
    let statement = client.prepare_cached(&numbered(IS_OPEN)).await?;
    let open = client.query_opt(&statement, &[&operation]).await?.is_some();
    if line.seq != last + 1 || (last > 0 && !open) {
        return Err(NotApplied::Refused(StoreError::Conflict {
            kind: "journal".to_owned(),
            id: operation.to_owned(),
            expected: line.seq.checked_sub(1),
            found: Some(last),
        }));
    }
    execute(client, APPEND, &[&operation, &signed(line.seq), &line.json.get()]).await?;
    if last == 0 {
        execute(client, OPEN, &[&operation]).await?;
    }
    Ok(())
}

/// Moves a counter on, and says where it stands.
async fn advance(client: &impl GenericClient, name: &str, by: u64) -> Result<u64, tokio_postgres::Error> {
    Ok(one(client, ADVANCE, &[&name, &signed(by)]).await?.unwrap_or(0))
}

async fn one(
    client: &impl GenericClient,
    text: &str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<Option<u64>, tokio_postgres::Error> {
    let statement = client.prepare_cached(&numbered(text)).await?;
    let row = client.query_opt(&statement, values).await?;
    Ok(row.map(|row| row.get::<_, i64>(0)).map(i64::unsigned_abs))
}

async fn execute(
    client: &impl GenericClient,
    text: &str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<(), tokio_postgres::Error> {
    let statement = client.prepare_cached(&numbered(text)).await?;
    client.execute(&statement, values).await.map(|_| ())
}

pub(super) fn document(row: &Row) -> Result<Document, StoreError> {
    Ok(Document {
        kind: row.get(0),
        id: row.get(1),
        revision: number(row, 2)?,
        json: json(row, 3)?,
    })
}

pub(super) fn operation(row: &Row) -> Result<OperationId, StoreError> {
    let text: String = row.get(0);
    OperationId::new(text.clone()).map_err(|e| StoreError::malformed("operation", &text, &e))
}

pub(super) fn json(row: &Row, column: usize) -> Result<Json, StoreError> {
    RawValue::from_string(row.get(column)).map_err(|e| StoreError::malformed("row", "of the database", &e))
}

/// SQL knows signed numbers only; ours count from 0 and never come near the limit.
pub(super) fn number(row: &Row, column: usize) -> Result<u64, StoreError> {
    let value: i64 = row.get(column);
    u64::try_from(value).map_err(|e| StoreError::malformed("row", "of the database", &e))
}

pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// What an error on the way to the database means for whoever asked.
pub(super) fn unavailable(error: &PoolError) -> StoreError {
    let reason = told(error);
    let state = match error {
        PoolError::Backend(error) => error.code().map(tokio_postgres::error::SqlState::code),
        _ => None,
    };
    let hint = match state.map(|code| (code, &code[..2])) {
        Some((_, "53")) => "the database is out of disk, memory or connections: look at its server",
        Some((_, "28")) => "the database refuses the account: look at its name and password",
        // data_corrupted, index_corrupted
        Some(("XX001" | "XX002", _)) => RESTORE,
        Some(("25006", _)) => "the database is read-only: it may be a standby; look at its server",
        _ => "look at whether the database is up and can be reached; it is tried again",
    };
    StoreError::Unavailable {
        reason: format!("the database: {reason}"),
        hint,
    }
}

pub(super) fn silent(waited: Duration) -> StoreError {
    StoreError::Unavailable {
        reason: format!("the database gave no answer within {} s", waited.as_secs()),
        hint: "look at whether the database is up and can be reached",
    }
}
