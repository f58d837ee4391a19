//! A batch and a row, as PostgreSQL has them.

use super::connect::told;
use crate::batch::Write;
use crate::cluster::RESTORED;
use crate::document::{Damaged, JournalLine, Json};
use crate::error::RESTORE;
use crate::integrity::{Column, DocumentRow, JOURNAL, LineRow, Original, of_document, of_line};
use crate::quarantine::Verified;
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
use tokio_postgres::types::{FromSql, ToSql, Type};

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
    let revision = advance(client, "revision", u64::from(batch.changes_documents())).await?;
    discard(client, &batch.discarded).await?;
    for original in &batch.restored {
        match original {
            Original::Document { document, .. } => {
                put_document(
                    client,
                    &document.kind,
                    &document.id,
                    document.revision,
                    &document.json,
                )
                .await?;
            }
            Original::Line(line) => insert_line(client, line).await?,
        }
    }
    for write in &batch.writes {
        put(client, write, revision).await?;
    }
    for line in &batch.lines {
        append(client, line).await?;
    }
    for operation in &batch.reopened {
        execute(client, OPEN, &[&operation.as_str()]).await?;
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
        Some(json) => put_document(client, kind, id, revision, json).await,
        None => execute(client, DELETE, &[kind, id]).await,
    }
}

async fn put_document(
    client: &impl GenericClient,
    kind: &str,
    id: &str,
    revision: u64,
    json: &Json,
) -> Result<(), tokio_postgres::Error> {
    let sum = of_document(kind.as_bytes(), id.as_bytes(), revision, json.get().as_bytes());
    execute(client, PUT, &[&kind, &id, &signed(revision), &json.get(), &sum]).await
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
    insert_line(client, line).await?;
    if last == 0 {
        execute(client, OPEN, &[&operation]).await?;
    }
    Ok(())
}

async fn insert_line(client: &impl GenericClient, line: &JournalLine) -> Result<(), tokio_postgres::Error> {
    let (operation, json) = (line.operation.as_str(), line.json.get());
    let sum = of_line(operation.as_bytes(), line.seq, json.as_bytes());
    execute(client, APPEND, &[&operation, &signed(line.seq), &json, &sum]).await
}

/// Moves a counter on, and says where it stands.
async fn advance(client: &impl GenericClient, name: &str, by: u64) -> Result<u64, NotApplied> {
    let advanced = one(client, ADVANCE, &[&name, &signed(by)]).await?;
    advanced.ok_or_else(|| {
        NotApplied::Refused(StoreError::Unavailable {
            reason: format!("the counter {name} is missing in the database"),
            hint: "restart the manager, which repairs it",
        })
    })
}

async fn one(
    client: &impl GenericClient,
    text: &str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<Option<u64>, tokio_postgres::Error> {
    let statement = client.prepare_cached(&numbered(text)).await?;
    let row = client.query_opt(&statement, values).await?;
    // A damaged revision matches no expectation.
    Ok(row.map(|row| u64::try_from(row.get::<_, i64>(0)).unwrap_or(u64::MAX)))
}

async fn execute(
    client: &impl GenericClient,
    text: &str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<(), tokio_postgres::Error> {
    let statement = client.prepare_cached(&numbered(text)).await?;
    client.execute(&statement, values).await.map(|_| ())
}

fn document_row(row: &Row) -> DocumentRow<'_> {
    DocumentRow {
        kind: text(row, 0),
        id: text(row, 1),
        revision: whole(row, 2),
        doc: text(row, 3),
        checksum: whole(row, 4),
    }
}

pub(super) fn document(row: &Row) -> Verified {
    document_row(row).verified()
}

fn line_row(row: &Row) -> LineRow<'_> {
    LineRow {
        seq: whole(row, 0),
        line: text(row, 1),
        checksum: whole(row, 2),
    }
}

/// The lines of an operation after a number.
pub(super) fn lines(rows: &[Row], operation: &OperationId, after: u64) -> Result<Vec<JournalLine>, Damaged> {
    let follows = (after..).zip(rows);
    follows
        .map(|(after, row)| line_row(row).verified(operation, after))
        .collect()
}

/// Text as the server sends it: that of a damaged row may not be UTF-8.
struct Bytes<'r>(&'r [u8]);

impl<'r> FromSql<'r> for Bytes<'r> {
    fn from_sql(_: &Type, raw: &'r [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(raw))
    }

    fn accepts(of: &Type) -> bool {
        <&str as FromSql<'_>>::accepts(of)
    }
}

fn text(row: &Row, index: usize) -> Column<'_> {
    match row.try_get::<_, Bytes<'_>>(index) {
        Ok(Bytes(bytes)) => Column::Text(bytes),
        Err(_) => Column::Other,
    }
}

fn whole(row: &Row, index: usize) -> Column<'_> {
    row.try_get(index).map_or(Column::Other, Column::Number)
}

/// A cursor over every row of a table, and what is damaged in a row. The last column is the row's place in the table.
const ALL: &str =
    "DECLARE everything CURSOR FOR SELECT kind, id, revision, doc, checksum, ctid::text FROM object";
const ALL_LINES: &str =
    "DECLARE everything CURSOR FOR SELECT seq, line, checksum, operation, ctid::text FROM journal";
/// The statement, the damage in a row of it, and that row before one bit flipped.
type Table = (&'static str, fn(&Row) -> Option<Damaged>, BeforeFlip);
pub(super) type BeforeFlip = fn(&Row) -> Option<Original>;
pub(super) const TABLES: [Table; 2] = [
    (
        ALL,
        |row| document(row).err(),
        |row| document_row(row).before_flip(),
    ),
    (ALL_LINES, line_damage, |row| {
        line_row(row).before_flip(text(row, 3))
    }),
];

fn line_damage(row: &Row) -> Option<Damaged> {
    line_row(row).damage(text(row, 3))
}

pub(super) const NEXT: &str = "FETCH 200 FROM everything";

/// Deletes damaged documents. Reads the names of all: those of a damaged one may be bytes that are not text. The contents are
/// not read, for other managers wait for this commit.
async fn discard(
    client: &impl GenericClient,
    names: &[(String, String)],
) -> Result<(), tokio_postgres::Error> {
    const NAMES: &str = "DECLARE names CURSOR FOR SELECT kind, id, ctid::text FROM object";
    const ROW: &str = "SELECT kind, id, revision, doc, checksum FROM object WHERE ctid = $1::text::tid";
    if names.is_empty() {
        return Ok(());
    }
    let mut places: Vec<String> = Vec::new();
    client.batch_execute(NAMES).await?;
    loop {
        let rows = client.query("FETCH 10000 FROM names", &[]).await?;
        if rows.is_empty() {
            break;
        }
        let named = |row: &&Row| names.contains(&(text(row, 0).name(), text(row, 1).name()));
        places.extend(rows.iter().filter(named).map(|row| row.get::<_, String>(2)));
    }
    client.batch_execute("CLOSE names").await?;
    for place in places {
        let row = client.query_one(ROW, &[&place]).await?;
        if document(&row).is_err() {
            let delete = "DELETE FROM object WHERE ctid = $1::text::tid";
            client.execute(delete, &[&place]).await?;
        }
    }
    discard_lines(client, names).await
}

/// Deletes damaged journal lines.
async fn discard_lines(
    client: &impl GenericClient,
    names: &[(String, String)],
) -> Result<(), tokio_postgres::Error> {
    const LINES: &str = "SELECT seq, line, checksum, operation, ctid::text FROM journal WHERE operation = $1";
    for (_, operation) in names.iter().filter(|(kind, _)| kind == JOURNAL) {
        for row in client.query(LINES, &[operation]).await? {
            if line_damage(&row).is_some() {
                let delete = "DELETE FROM journal WHERE ctid = $1::text::tid";
                client.execute(delete, &[&row.get::<_, String>(4)]).await?;
            }
        }
    }
    Ok(())
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

/// Computes the checksums of all rows, none of which has one yet.
pub(super) async fn add_checksums(client: &impl GenericClient) -> Result<(), tokio_postgres::Error> {
    client.batch_execute(ALL).await?;
    let document = |row: &Row| document_row(row).expected();
    set_checksums(client, "object", 5, document).await?;
    client.batch_execute("CLOSE everything").await?;
    client.batch_execute(ALL_LINES).await?;
    let line = |row: &Row| match text(row, 3) {
        Column::Text(operation) => line_row(row).expected(operation),
        _ => None,
    };
    set_checksums(client, "journal", 4, line).await?;
    client.batch_execute("CLOSE everything").await
}

/// Sets the checksum of each row of a cursor; a column of it has the row's place in the table.
async fn set_checksums(
    client: &impl GenericClient,
    table: &str,
    place: usize,
    checksum: impl Fn(&Row) -> Option<i64>,
) -> Result<(), tokio_postgres::Error> {
    let set = format!(
        "UPDATE {table} SET checksum = given.checksum
         FROM unnest($1::text[], $2::bigint[]) AS given(place, checksum)
         WHERE {table}.ctid = given.place::tid"
    );
    loop {
        let rows = client.query(NEXT, &[]).await?;
        if rows.is_empty() {
            return Ok(());
        }
        let places: Vec<String> = rows.iter().map(|row| row.get(place)).collect();
        let sums: Vec<Option<i64>> = rows.iter().map(&checksum).collect();
        client.execute(set.as_str(), &[&places, &sums]).await?;
    }
}
