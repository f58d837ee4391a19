//! The store in a PostgreSQL database, for several managers.
//!
//! One task owns the connection that writes (see [`writer`]) and commits what waits together; reads have
//! a pool of their own. The row of the counter of revisions is locked first in every transaction: commits
//! of all managers happen one after the other, and what a batch expects is looked at with that lock held.
//!
//! Invariants: the isolation of a transaction does not matter, because of that lock. A commit whose answer
//! was lost is looked up (`pg_xact_status`) before anything else is written; nobody is told a guess.

mod connect;
mod migrate;
mod sql;
mod writer;

pub use connect::PostgresOptions;

use crate::cluster::{CLUSTER, RESTORED};
use crate::data_dir::{DataDir, unusable};
use crate::{
    Batch, Committed, Document, Event, JournalLine, OpenError, Order, Store, StoreError, statements,
};
use async_trait::async_trait;
use connect::Connections;
use poolwright_model::id::OperationId;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// How long a read may take, waiting for a connection included.
const READ: Duration = Duration::from_secs(10);

/// Documents, the journal and the outbox in a PostgreSQL database.
pub struct PostgresStore {
    connections: Arc<Connections>,
    writer: writer::Writer,
}

impl PostgresStore {
    /// Connects, and makes the tables where they are not there yet. `dir` is the manager's own folder, for it
    /// alone: what it remembers of the database is held against what is found there.
    pub async fn open(dir: &Path, options: PostgresOptions) -> Result<Self, OpenError> {
        let connections = Arc::new(Connections::new(options)?);
        let dir = DataDir::open(dir)?;
        let known = migrate::migrate(&connections, dir.remembered()?.as_ref()).await?;
        dir.remember(&known).map_err(|e| unusable(&dir.file(""), &e))?;
        Ok(Self {
            writer: writer::Writer::start(Arc::clone(&connections), Some(dir), known.cluster),
            connections,
        })
    }

    /// Connects for one command, also while the manager of the directory runs.
    pub async fn beside(dir: &Path, options: PostgresOptions) -> Result<Self, OpenError> {
        let connections = Arc::new(Connections::new(options)?);
        let known = migrate::check(&connections, DataDir::remembered_by(dir)?.as_ref()).await?;
        Ok(Self {
            writer: writer::Writer::start(Arc::clone(&connections), None, known),
            connections,
        })
    }

    async fn rows(&self, text: &'static str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, StoreError> {
        let read = async {
            let client = self.connections.get().await?;
            let statement = client.prepare_cached(&sql::numbered(text)).await?;
            Ok(client.query(&statement, values).await?)
        };
        match tokio::time::timeout(READ, read).await {
            Ok(rows) => rows.map_err(|error| sql::unavailable(&error)),
            Err(_) => Err(sql::silent(READ)),
        }
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn get(&self, kind: &str, id: &str) -> Result<Option<Document>, StoreError> {
        let rows = self.rows(statements::GET, &[&kind, &id]).await?;
        rows.first().map(sql::document).transpose()
    }

    async fn list(&self, kind: &str) -> Result<Vec<Document>, StoreError> {
        let rows = self.rows(statements::LIST, &[&kind]).await?;
        rows.iter().map(sql::document).collect()
    }

    async fn written(&self, kind: &str, order: Order, limit: u32) -> Result<Vec<Document>, StoreError> {
        let limit = i64::from(limit);
        let rows = match order {
            Order::LatestFirst => self.rows(statements::LATEST, &[&kind, &limit]).await?,
            Order::EarliestFirst { after } => {
                let after = sql::signed(after);
                self.rows(statements::EARLIEST, &[&kind, &after, &limit]).await?
            }
        };
        rows.iter().map(sql::document).collect()
    }

    async fn count(&self, kind: &str) -> Result<u64, StoreError> {
        let rows = self.rows(statements::HOW_MANY, &[&kind]).await?;
        rows.first().map_or(Ok(0), |row| sql::number(row, 0))
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        self.writer.commit(batch).await
    }

    async fn revision(&self) -> Result<u64, StoreError> {
        let rows = self.rows(statements::LAST_REVISION, &[]).await?;
        rows.first().map_or(Ok(0), |row| sql::number(row, 0))
    }

    async fn restored(&self) -> Result<Option<String>, StoreError> {
        let rows = self.rows(statements::MARKED, &[&RESTORED]).await?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    async fn cluster(&self) -> Result<Option<String>, StoreError> {
        let rows = self.rows(statements::MARKED, &[&CLUSTER]).await?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    fn is_remote(&self) -> bool {
        true
    }

    async fn journal(&self, operation: &OperationId, after: u64) -> Result<Vec<JournalLine>, StoreError> {
        let rows = self
            .rows(statements::LINES, &[&operation.as_str(), &sql::signed(after)])
            .await?;
        let line = |row: &Row| {
            Ok(JournalLine {
                operation: operation.clone(),
                seq: sql::number(row, 0)?,
                json: sql::json(row, 1)?,
            })
        };
        rows.iter().map(line).collect()
    }

    async fn open_operations(&self) -> Result<Vec<OperationId>, StoreError> {
        let rows = self.rows(statements::OPEN_OPERATIONS, &[]).await?;
        rows.iter().map(sql::operation).collect()
    }

    async fn events_after(&self, seq: u64, limit: u32) -> Result<Vec<Event>, StoreError> {
        let rows = self
            .rows(statements::EVENTS, &[&sql::signed(seq), &i64::from(limit)])
            .await?;
        let event = |row: &Row| {
            Ok(Event {
                seq: sql::number(row, 0)?,
                json: sql::json(row, 1)?,
            })
        };
        rows.iter().map(event).collect()
    }
}
