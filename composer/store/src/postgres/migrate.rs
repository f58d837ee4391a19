//! The tables: whose are they, which version.

use super::connect::{Connections, causes, unusable};
use super::sql::numbered;
use crate::OpenError;
use crate::migrations::MIGRATIONS;
use crate::statements::{MARK, MARKED};
use deadpool_postgres::Transaction;
use std::time::Duration;

/// "Plwr": one manager at a time makes the tables.
const LOCK: i64 = 0x506c_7772;
/// The marker that holds the number of migrations applied.
const VERSION: &str = "schema-version";
/// How long another manager may take to make the tables.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn migrate(connections: &Connections) -> Result<(), OpenError> {
    match tokio::time::timeout(PATIENCE, apply_missing(connections)).await {
        Ok(applied) => applied,
        Err(_) => Err(unusable(
            &connections.name,
            format!("its tables were not ready within {} s", PATIENCE.as_secs()),
        )),
    }
}

async fn apply_missing(connections: &Connections) -> Result<(), OpenError> {
    let failed =
        |error: tokio_postgres::Error| unusable(&connections.name, format!("{error} ({})", causes(&error)));
    let mut client = connections
        .get()
        .await
        .map_err(|error| unusable(&connections.name, format!("{error} ({})", causes(&error))))?;
    let transaction = client.transaction().await.map_err(failed)?;
    transaction
        .execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK])
        .await
        .map_err(failed)?;
    let known = MIGRATIONS.len() as u32;
    let found = version(&transaction, &connections.name).await?;
    if found > known {
        return Err(OpenError::Newer {
            place: connections.name.clone(),
            found,
            known,
        });
    }
    for text in MIGRATIONS.iter().skip(found as usize) {
        // Ids are compared byte by byte, as SQLite does, whatever the language of the database.
        let text = text.replace(" TEXT ", " TEXT COLLATE \"C\" ");
        transaction.batch_execute(&text).await.map_err(failed)?;
    }
    transaction
        .execute(&numbered(MARK), &[&VERSION, &known.to_string()])
        .await
        .map_err(failed)?;
    transaction.commit().await.map_err(failed)
}

/// Migrations applied so far. An error where the database holds tables of somebody else.
async fn version(transaction: &Transaction<'_>, name: &str) -> Result<u32, OpenError> {
    let failed = |error: tokio_postgres::Error| unusable(name, format!("{error} ({})", causes(&error)));
    let tables = "SELECT count(*), count(*) FILTER (WHERE table_name = 'marker')
                  FROM information_schema.tables WHERE table_schema = current_schema()";
    let row = transaction.query_one(tables, &[]).await.map_err(failed)?;
    let (tables, markers): (i64, i64) = (row.get(0), row.get(1));
    if tables == 0 {
        return Ok(0);
    }
    let foreign = |reason: String| OpenError::Foreign {
        place: name.to_owned(),
        reason,
    };
    if markers == 0 {
        return Err(foreign(format!("it holds {tables} tables of somebody else")));
    }
    let row = transaction
        .query_opt(&numbered(MARKED), &[&VERSION])
        .await
        .map_err(failed)?;
    let found = row.map(|row| row.get::<_, String>(0));
    found
        .as_deref()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| foreign(format!("its version reads {found:?}")))
}
