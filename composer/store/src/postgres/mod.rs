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
use crate::quarantine::Quarantine;
use crate::{
    Batch, Committed, Damaged, Document, Event, JournalLine, OpenError, Order, Original, Store, StoreError,
    statements,
};
use async_trait::async_trait;
use connect::Connections;
use deadpool_postgres::PoolError;
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
    quarantine: Quarantine,
}

impl PostgresStore {
    /// Connects, and makes the tables where they are not there yet. `dir` is the manager's own folder, for it
    /// alone: what it remembers of the database is held against what is found there.
    pub async fn open(dir: &Path, options: PostgresOptions) -> Result<Self, OpenError> {
        let connections = Arc::new(Connections::new(options)?);
        let dir = DataDir::open(dir)?;
        let known = migrate::migrate(&connections, dir.remembered()?.as_ref()).await?;
        dir.remember(&known).map_err(|e| unusable(&dir.file(""), &e))?;
        let store = Self::of(connections, Some(dir), known.cluster);
        let verified = store.verify().await;
        verified.map_err(|error| connect::unusable(&store.connections.name, error))?;
        Ok(store)
    }

    /// Connects for one command, also while the manager of the directory runs.
    pub async fn beside(dir: &Path, options: PostgresOptions) -> Result<Self, OpenError> {
        let connections = Arc::new(Connections::new(options)?);
        let known = migrate::check(&connections, DataDir::remembered_by(dir)?.as_ref()).await?;
        Ok(Self::of(connections, None, known))
    }

    fn of(connections: Arc<Connections>, dir: Option<DataDir>, cluster: String) -> Self {
        Self {
            writer: writer::Writer::start(Arc::clone(&connections), dir, cluster),
            connections,
            quarantine: Quarantine::default(),
        }
    }

    /// Verifies every document and every journal line, some at a time: a large store may take long, and each step of it may not.
    /// Returns each damage with its row, which is for the function beside it.
    async fn read_all(&self) -> Result<Vec<(Damaged, Row, sql::BeforeFlip)>, StoreError> {
        let mut client = in_time(self.connections.get()).await?;
        let transaction = in_time(client.transaction()).await?;
        let mut damaged = Vec::new();
        for (all, damage, before_flip) in sql::TABLES {
            in_time(transaction.batch_execute(all)).await?;
            loop {
                let rows = in_time(transaction.query(sql::NEXT, &[])).await?;
                if rows.is_empty() {
                    break;
                }
                let damage = |row| damage(&row).map(|damage| (damage, row, before_flip));
                damaged.extend(rows.into_iter().filter_map(damage));
            }
            in_time(transaction.batch_execute("CLOSE everything")).await?;
        }
        in_time(transaction.rollback()).await?;
        Ok(damaged)
    }

    async fn rows(&self, text: &'static str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, StoreError> {
        in_time(async {
            let client = self.connections.get().await?;
            let statement = client.prepare_cached(&sql::numbered(text)).await?;
            Ok::<_, PoolError>(client.query(&statement, values).await?)
        })
        .await
    }
}

async fn in_time<T, E: Into<PoolError>>(read: impl Future<Output = Result<T, E>>) -> Result<T, StoreError> {
    match tokio::time::timeout(READ, read).await {
        Ok(read) => read.map_err(|error| sql::unavailable(&error.into())),
        Err(_) => Err(sql::silent(READ)),
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn get(&self, kind: &str, id: &str) -> Result<Option<Document>, StoreError> {
        let rows = self.rows(statements::GET, &[&kind, &id]).await?;
        self.quarantine.one(rows.first().map(sql::document))
    }

    async fn list(&self, kind: &str) -> Result<Vec<Document>, StoreError> {
        let rows = self.rows(statements::LIST, &[&kind]).await?;
        Ok(self.quarantine.several(rows.iter().map(sql::document).collect()))
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
        Ok(self.quarantine.several(rows.iter().map(sql::document).collect()))
    }

    async fn count(&self, kind: &str) -> Result<u64, StoreError> {
        let rows = self.rows(statements::HOW_MANY, &[&kind]).await?;
        rows.first().map_or(Ok(0), |row| sql::number(row, 0))
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        let is_touched = self.quarantine.is_touched_by(&batch);
        let committed = self.writer.commit(batch).await;
        if is_touched
            && committed.is_ok()
            && let Err(error) = self.verify().await
        {
            tracing::warn!(%error, "documents not verified");
        }
        committed
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

    fn damaged(&self) -> Vec<Damaged> {
        self.quarantine.all()
    }

    async fn verify(&self) -> Result<Vec<Damaged>, StoreError> {
        let damaged = self.read_all().await?.into_iter();
        self.quarantine
            .replace(damaged.map(|(damaged, ..)| damaged).collect());
        Ok(self.quarantine.all())
    }

    async fn before_flip(&self, kind: &str, id: &str) -> Result<Option<Vec<Original>>, StoreError> {
        let mut damaged = self.read_all().await?;
        damaged.retain(|(damaged, ..)| (damaged.kind.as_str(), damaged.id.as_str()) == (kind, id));
        let search = move || {
            damaged
                .iter()
                .map(|(_, row, before_flip)| before_flip(row))
                .collect()
        };
        let searched = tokio::task::spawn_blocking(search).await;
        searched.map_err(|_| sql::silent(READ))
    }

    fn is_remote(&self) -> bool {
        true
    }

    async fn journal(&self, operation: &OperationId, after: u64) -> Result<Vec<JournalLine>, StoreError> {
        let rows = self
            .rows(statements::LINES, &[&operation.as_str(), &sql::signed(after)])
            .await?;
        Ok(sql::lines(&rows, operation, after)?)
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
