//! A store that loses, doubles or keeps what it should not.

use super::super::gate::unpoisoned;
use super::Plant;
use async_trait::async_trait;
use poolwright_executor::{Claim, CompositionRecord, KeyRecord, Operation};
use poolwright_model::id::{CompositionId, OperationId};
use poolwright_store::{
    Batch, Committed, Document, Event, JournalLine, Order, Store, StoreError, Stored, read_all,
};
use std::sync::{Arc, Mutex};

/// After so many commits a store that hangs does.
const HANGS_AFTER: u32 = 100;

pub struct BadStore {
    pub plant: Plant,
    pub store: Arc<dyn Store>,
    pub commits: Mutex<u32>,
}

impl BadStore {
    /// Does what the bug does after a good commit.
    async fn spoil(&self, claims: Vec<Claim>) -> Result<(), StoreError> {
        let mut batch = Batch::new();
        match self.plant {
            Plant::LosesOperations => {
                // An open one is missed by everybody at once.
                let all = read_all::<Operation>(&*self.store).await?;
                for ended in all.iter().filter(|found| found.value.state.has_ended()) {
                    batch.delete(Operation::KIND, ended.value.id());
                }
            }
            Plant::DropsClaims => {
                for claim in claims {
                    batch.delete(Claim::KIND, claim.id());
                }
            }
            Plant::KeepsClaims => {
                for claim in claims {
                    batch.put(&claim)?;
                }
            }
            Plant::ForgetsKeys => {
                for key in read_all::<KeyRecord>(&*self.store).await? {
                    batch.delete(KeyRecord::KIND, key.value.id());
                }
            }
            Plant::DoublesCompositions => {
                let first = read_all::<CompositionRecord>(&*self.store).await?.pop();
                if let Some(mut twin) = first.map(|found| found.value) {
                    twin.composition.id = CompositionId::from_lossy("twin");
                    batch.put(&twin)?;
                }
            }
            Plant::Hangs => {
                let commits = {
                    let mut commits = unpoisoned(&self.commits);
                    *commits += 1;
                    *commits
                };
                if commits == HANGS_AFTER {
                    return std::future::pending().await;
                }
                return Ok(());
            }
            Plant::PullsInUse
            | Plant::TakesForeign
            | Plant::Leaks
            | Plant::SkipsResets
            | Plant::DreamsOfBinds => return Ok(()),
        }
        self.store.commit(batch).await.map(|_| ())
    }

    async fn claims(&self) -> Result<Vec<Claim>, StoreError> {
        let claims = read_all::<Claim>(&*self.store).await?;
        Ok(claims.into_iter().map(|claim| claim.value).collect())
    }
}

#[async_trait]
impl Store for BadStore {
    async fn get(&self, kind: &str, id: &str) -> Result<Option<Document>, StoreError> {
        self.store.get(kind, id).await
    }
    async fn list(&self, kind: &str) -> Result<Vec<Document>, StoreError> {
        self.store.list(kind).await
    }
    async fn written(&self, kind: &str, order: Order, limit: u32) -> Result<Vec<Document>, StoreError> {
        self.store.written(kind, order, limit).await
    }
    async fn count(&self, kind: &str) -> Result<u64, StoreError> {
        self.store.count(kind).await
    }
    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        let claims = self.claims().await?;
        let committed = self.store.commit(batch).await?;
        self.spoil(claims).await?;
        Ok(committed)
    }
    async fn revision(&self) -> Result<u64, StoreError> {
        self.store.revision().await
    }
    async fn restored(&self) -> Result<Option<String>, StoreError> {
        self.store.restored().await
    }
    async fn journal(&self, operation: &OperationId, after: u64) -> Result<Vec<JournalLine>, StoreError> {
        self.store.journal(operation, after).await
    }
    async fn open_operations(&self) -> Result<Vec<OperationId>, StoreError> {
        self.store.open_operations().await
    }
    async fn events_after(&self, seq: u64, limit: u32) -> Result<Vec<Event>, StoreError> {
        self.store.events_after(seq, limit).await
    }
}
