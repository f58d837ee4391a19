//! The tables: whose are they, which version.

use super::connect::{Connections, no_connection, told, unusable};
use super::sql::{self, numbered, signed};
use crate::OpenError;
use crate::cluster::{CLUSTER, Found, LEAP, RESTORED, Remembered, belonging, new_name, went_back};
use crate::format::{self, DOCUMENT_FORMAT, FORMAT};
use crate::migrations::{CHECKSUMS, MIGRATIONS};
use crate::statements::{ADVANCE, FORGET_UNKNOWN, LAST_REVISION, MARK, MARKED, REPAIR_COUNTERS};
use deadpool_postgres::Transaction;
use std::time::Duration;

/// "Plwr": one manager at a time makes the tables.
const LOCK: i64 = 0x506c_7772;
/// The marker that holds the number of migrations applied.
const VERSION: &str = "schema-version";
/// The marker that says where these tables were when a manager opened them last.
const HOME: &str = "home";
/// How long this or another manager may take to make the tables, or to compute the checksums of a large store.
const PATIENCE: Duration = Duration::from_secs(600);

/// Makes the tables, or brings them up to date. Tells the name of the cluster, and the number of its last commit.
pub(super) async fn migrate(
    connections: &Connections,
    remembered: Option<&Remembered>,
) -> Result<Remembered, OpenError> {
    match tokio::time::timeout(PATIENCE, apply_missing(connections, remembered)).await {
        Ok(applied) => applied,
        Err(_) => Err(unusable(
            &connections.name,
            format!("its tables were not ready within {} s", PATIENCE.as_secs()),
        )),
    }
}

/// The name of the cluster, if its tables are of this version. Changes nothing.
pub(super) async fn check(
    connections: &Connections,
    remembered: Option<&Remembered>,
) -> Result<String, OpenError> {
    let name = &connections.name;
    let failed = |error: tokio_postgres::Error| unusable(name, told(&error));
    let mut client = connections.get().await.map_err(|e| no_connection(name, &e))?;
    let transaction = client.transaction().await.map_err(failed)?;
    let (known, applied) = (MIGRATIONS.len() as u32, version(&transaction, name).await?);
    if applied != known {
        return Err(match applied > known {
            true => newer(name, applied),
            false => OpenError::Older { place: name.clone() },
        });
    }
    let format = marked(&transaction, FORMAT).await.map_err(failed)?;
    format::judge(name, format.as_deref())?;
    let found = found(&transaction, applied).await.map_err(failed)?;
    Ok(belonging(name, remembered, &found)?.unwrap_or_default())
}

fn newer(name: &str, found: u32) -> OpenError {
    OpenError::Newer {
        place: name.to_owned(),
        what: "schema",
        found,
        known: MIGRATIONS.len() as u32,
    }
}

/// One transaction: what is refused is left as it was.
async fn apply_missing(
    connections: &Connections,
    remembered: Option<&Remembered>,
) -> Result<Remembered, OpenError> {
    let name = &connections.name;
    let failed = |error: tokio_postgres::Error| unusable(name, told(&error));
    let mut client = connections.get().await.map_err(|e| no_connection(name, &e))?;
    let transaction = client.transaction().await.map_err(failed)?;
    transaction
        .execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK])
        .await
        .map_err(failed)?;
    let known = MIGRATIONS.len() as u32;
    let applied = version(&transaction, name).await?;
    if applied > known {
        return Err(newer(name, applied));
    }
    if applied > 0 {
        let mut repaired = 0;
        for statement in REPAIR_COUNTERS {
            repaired += transaction.execute(statement, &[]).await.map_err(failed)?;
        }
        if repaired > 0 {
            tracing::error!(
                database = name,
                "counters damaged; repaired from documents and events"
            );
        }
    }
    let found = found(&transaction, applied).await.map_err(failed)?;
    let was = match found.revision {
        Some(_) => {
            let format = marked(&transaction, FORMAT).await.map_err(failed)?;
            format::judge(name, format.as_deref())?;
            marked(&transaction, HOME).await.map_err(failed)?
        }
        None => None,
    };
    let cluster = belonging(name, remembered, &found)?.unwrap_or_else(new_name);
    for text in MIGRATIONS.iter().skip(applied as usize) {
        // Ids are compared byte by byte, as SQLite does, whatever the language of the database.
        let text = text.replace(" TEXT ", " TEXT COLLATE \"C\" ");
        transaction.batch_execute(&text).await.map_err(failed)?;
    }
    if (1..CHECKSUMS).contains(&applied) {
        sql::add_checksums(&transaction).await.map_err(failed)?;
    }
    let unknown = transaction.execute(FORGET_UNKNOWN, &[]).await.map_err(failed)?;
    if unknown > 0 {
        tracing::error!(database = name, unknown, "names of open operations damaged");
    }
    let (schema, format) = (known.to_string(), DOCUMENT_FORMAT.to_string());
    for (marker, value) in [(VERSION, &schema), (FORMAT, &format), (CLUSTER, &cluster)] {
        transaction
            .execute(&numbered(MARK), &[&marker, value])
            .await
            .map_err(failed)?;
    }
    let mut revision = found.revision.unwrap_or(0);
    let home = home(&transaction).await.map_err(failed)?;
    let moved = was
        .filter(|was| *was != home)
        .map(|_| "it was written in another database, and copied or restored from there".to_owned());
    if let Some(why) = moved.or_else(|| went_back(remembered, &found)) {
        tracing::warn!(database = name, why, "the store may be an older state");
        let seen = remembered.map_or(0, |remembered| remembered.revision);
        let leap = seen.saturating_sub(revision) + LEAP;
        transaction
            .execute(&numbered(MARK), &[&RESTORED, &why])
            .await
            .map_err(failed)?;
        transaction
            .execute(&numbered(ADVANCE), &[&"revision", &signed(leap)])
            .await
            .map_err(failed)?;
        revision += leap;
    }
    transaction
        .execute(&numbered(MARK), &[&HOME, &home])
        .await
        .map_err(failed)?;
    transaction.commit().await.map_err(failed)?;
    Ok(Remembered { cluster, revision })
}

/// Where these tables are: another server, database or table is another place, and so is a table that was made
/// anew from a dump.
async fn home(transaction: &Transaction<'_>) -> Result<String, tokio_postgres::Error> {
    let text = "SELECT concat_ws('/', (SELECT system_identifier FROM pg_control_system()),
                (SELECT oid FROM pg_database WHERE datname = current_database()), 'counter'::regclass::oid)";
    Ok(transaction.query_one(text, &[]).await?.get(0))
}

async fn marked(
    transaction: &Transaction<'_>,
    marker: &str,
) -> Result<Option<String>, tokio_postgres::Error> {
    let row = transaction.query_opt(&numbered(MARKED), &[&marker]).await?;
    Ok(row.map(|row| row.get(0)))
}

/// What the database says of itself.
async fn found(transaction: &Transaction<'_>, applied: u32) -> Result<Found, tokio_postgres::Error> {
    if applied == 0 {
        return Ok(Found::default());
    }
    // Behind whoever commits just now, and before whoever comes next: an older manager finds that this one has come.
    let locked = format!("{LAST_REVISION} FOR UPDATE");
    let revision = transaction.query_one(&locked, &[]).await?;
    Ok(Found {
        cluster: marked(transaction, CLUSTER).await?,
        revision: Some(revision.get::<_, i64>(0).unsigned_abs()),
        unclean: false,
    })
}

/// Migrations applied so far. An error where the database holds tables of somebody else.
async fn version(transaction: &Transaction<'_>, name: &str) -> Result<u32, OpenError> {
    let failed = |error: tokio_postgres::Error| unusable(name, told(&error));
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
    let found = marked(transaction, VERSION).await.map_err(failed)?;
    found
        .as_deref()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| foreign(format!("its version reads {found:?}")))
}
