//! A store that loses, doubles or keeps what it should not.

use super::super::gate::unpoisoned;
use super::Plant;
use poolwright_executor::{Claim, CompositionRecord, KeyRecord, Operation};
use poolwright_model::id::CompositionId;
use poolwright_service::demand::DemandRecord;
use poolwright_store::{Batch, Committed, Layer, Store, StoreError, Stored, read_all};
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
            Plant::OrphansCompositions => {
                for held in read_all::<CompositionRecord>(&*self.store).await? {
                    if let Some(demand) = &held.value.composition.demand {
                        batch.delete(DemandRecord::KIND, demand.as_str());
                    }
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
            | Plant::DreamsOfBinds
            | Plant::IgnoresIdentity => return Ok(()),
        }
        self.store.commit(batch).await.map(|_| ())
    }

    async fn claims(&self) -> Result<Vec<Claim>, StoreError> {
        let claims = read_all::<Claim>(&*self.store).await?;
        Ok(claims.into_iter().map(|claim| claim.value).collect())
    }
}

impl Layer for BadStore {
    fn below(&self) -> &dyn Store {
        &*self.store
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        let claims = self.claims().await?;
        let committed = self.store.commit(batch).await?;
        self.spoil(claims).await?;
        Ok(committed)
    }
}
