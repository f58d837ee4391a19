//! Which demands are kept, where an operation decides it.
//!
//! A demand that is composed is kept only if it could be served; one that is released is kept if it could not
//! be let go of. Its record names the operation ([`Pending`]) and is committed with its beginning. What becomes of
//! it then follows from how the operation ended: nothing is to be repaired after a crash, nor where the store did
//! not say whether it has begun.

use super::Composer;
use crate::demand::{DemandRecord, Pending};
use crate::error::{ErrorCode, ServiceError};
use poolwright_executor::{Operation, OperationState};
use poolwright_model::id::{DemandId, OperationId};
use poolwright_store::{Batch, StoreError, Stored, Versioned, read, read_all};
use serde::{Deserialize, Serialize};

/// What an operation has decided about a demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kept,
    /// It goes on.
    Open,
    /// As if it had never been asked for; a job that was to begin, or was stopped, waits again.
    Gone,
}

impl Pending {
    /// `None`: the operation was never begun.
    fn fate(&self, operation: Option<OperationState>) -> Fate {
        use OperationState as S;
        match (self, operation) {
            (_, Some(state)) if !state.has_ended() => Fate::Open,
            (Self::Composing(_), Some(S::Completed)) => Fate::Kept,
            (Self::Composing(_), _) => Fate::Gone,
            (Self::Releasing(_), Some(S::Completed | S::Failed)) => Fate::Gone,
            (Self::Releasing(_), _) => Fate::Kept,
        }
    }
}

/// The demand that an operation decides about, as it was when the operation began: kept for as long as the
/// operation is (its id is the operation's), so that it can be undone.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct DemandOf {
    operation: OperationId,
    pub record: DemandRecord,
}

impl DemandOf {
    /// Of a record that names an operation.
    pub fn of(record: &DemandRecord) -> Option<Self> {
        Some(Self {
            operation: record.pending.as_ref()?.operation().clone(),
            record: record.clone(),
        })
    }
}

impl Stored for DemandOf {
    const KIND: &'static str = "operation-demand";
    fn id(&self) -> &str {
        self.operation.as_str()
    }
}

impl Composer {
    /// All demands that are kept, and those that running operations compose or release.
    pub async fn demands(&self) -> Result<Vec<DemandRecord>, ServiceError> {
        let mut demands = Vec::new();
        for found in read_all::<DemandRecord>(self.store.as_ref()).await? {
            demands.extend(self.as_decided(found.value).await?);
        }
        Ok(demands)
    }

    pub async fn demand(&self, id: &DemandId) -> Result<DemandRecord, ServiceError> {
        self.find_demand(id)
            .await?
            .ok_or_else(|| ServiceError::not_found("demand", id.as_str()))
    }

    pub(super) async fn find_demand(&self, id: &DemandId) -> Result<Option<DemandRecord>, ServiceError> {
        match read::<DemandRecord>(self.store.as_ref(), id.as_str()).await? {
            Some(found) => self.as_decided(found.value).await,
            None => Ok(None),
        }
    }

    /// Writes what operations have decided into the records.
    pub(super) async fn settle_demands(&self) -> Result<(), ServiceError> {
        // Nobody is between the record and the beginning of its operation.
        let _turn = self.turn.lock().await;
        for found in read_all::<DemandRecord>(self.store.as_ref()).await? {
            self.settle(found).await?;
        }
        Ok(())
    }

    /// The same for the one demand that hung on an operation, if one did.
    pub(super) async fn settle_demand_of(&self, operation: &OperationId) -> Result<(), ServiceError> {
        let Some(of) = read::<DemandOf>(self.store.as_ref(), operation.as_str()).await? else {
            return Ok(());
        };
        let _turn = self.turn.lock().await;
        match read::<DemandRecord>(self.store.as_ref(), of.value.record.id()).await? {
            Some(found) => self.settle(found).await,
            None => Ok(()),
        }
    }

    /// Writes into one record what its operation has decided; the record is as it was read.
    pub(super) async fn settle(&self, found: Versioned<DemandRecord>) -> Result<(), ServiceError> {
        let Versioned { value, revision } = found;
        let mut batch = Batch::new();
        batch.expect(DemandRecord::KIND, value.id(), Some(revision));
        match self.as_decided(value.clone()).await? {
            Some(decided) if decided == value => return Ok(()),
            Some(decided) => {
                batch.put(&decided)?;
            }
            None => {
                batch.delete(DemandRecord::KIND, value.id());
            }
        }
        match self.store.commit(batch).await {
            // Another manager was faster.
            Err(StoreError::Conflict { .. }) => Ok(()),
            result => Ok(result.map(drop)?),
        }
    }

    /// Puts a new demand into the batch; refused where there is one of its name.
    pub(super) async fn add_to(&self, batch: &mut Batch, record: &DemandRecord) -> Result<(), ServiceError> {
        let found = read::<DemandRecord>(self.store.as_ref(), record.id()).await?;
        let mut revision = None;
        if let Some(found) = found {
            revision = Some(found.revision);
            if self.as_decided(found.value).await?.is_some() {
                return Err(there_is_one_already(&record.spec.id));
            }
        }
        batch
            .expect(DemandRecord::KIND, record.id(), revision)
            .put(record)?;
        Ok(())
    }

    /// Writes a demand that hangs on the operation that its record names; refused where somebody changed it.
    pub(super) async fn hang(&self, batch: &mut Batch, record: &DemandRecord) -> Result<(), ServiceError> {
        let found = read::<DemandRecord>(self.store.as_ref(), record.id()).await?;
        batch
            .expect(DemandRecord::KIND, record.id(), found.map(|found| found.revision))
            .put(record)?;
        if let Some(of) = DemandOf::of(record) {
            batch.put(&of)?;
        }
        Ok(())
    }

    pub(super) async fn unkeep(&self, demand: &DemandId) -> Result<(), ServiceError> {
        let mut batch = Batch::new();
        batch.delete(DemandRecord::KIND, demand.as_str());
        self.store.commit(batch).await?;
        Ok(())
    }

    /// A demand as its operation decided; `None` where it is not kept.
    async fn as_decided(&self, record: DemandRecord) -> Result<Option<DemandRecord>, ServiceError> {
        let Some(pending) = &record.pending else {
            return Ok(Some(record));
        };
        match self.executor.get(pending.operation()).await {
            Ok(operation) => Ok(decided(record, operation.as_ref())),
            // Left alone until somebody has looked into it; the others go on.
            Err(StoreError::Malformed { .. }) => Ok(Some(record)),
            Err(error) => Err(error.into()),
        }
    }
}

/// A demand as the operation on which it hangs has decided; `None` where it is not kept.
fn decided(mut record: DemandRecord, operation: Option<&Operation>) -> Option<DemandRecord> {
    let Some(pending) = record.pending.clone() else {
        return Some(record);
    };
    let fate = pending.fate(operation.map(|operation| operation.state));
    if fate == Fate::Open {
        return Some(record);
    }
    record.pending = None;
    let job = record.job.as_mut();
    match (fate, &pending, job) {
        (Fate::Open | Fate::Kept, Pending::Composing(_), Some(job)) => {
            operation.into_iter().for_each(|by| job.began(by));
        }
        (Fate::Open | Fate::Kept, Pending::Releasing(_), Some(job)) => job.failed(operation),
        (Fate::Open | Fate::Kept, _, None) => {}
        (Fate::Gone, Pending::Composing(_), Some(job)) => {
            job.waits_again();
            job.failed(operation);
        }
        (Fate::Gone, Pending::Releasing(_), Some(job)) if job.stopping.is_some() => job.waits_again(),
        (Fate::Gone, ..) => return None,
    }
    Some(record)
}

pub(super) fn there_is_one_already(id: &DemandId) -> ServiceError {
    ServiceError::new(ErrorCode::Conflict, format!("there is a demand {id} already")).with_hint(format!(
        "choose another name, or release it: poolwright release {id}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use OperationState as S;

    #[test]
    fn what_was_asked_for_is_so_once_it_is_done_and_not_before() {
        let operation = OperationId::new("op").unwrap();
        let (composing, releasing) = (
            Pending::Composing(operation.clone()),
            Pending::Releasing(operation),
        );
        for (ended, composed, released) in [
            (None, Fate::Gone, Fate::Kept),
            (Some(S::Running), Fate::Open, Fate::Open),
            (Some(S::Quarantined), Fate::Open, Fate::Open),
            (Some(S::Completed), Fate::Kept, Fate::Gone),
            (Some(S::RolledBack), Fate::Gone, Fate::Kept),
            (Some(S::Cancelled), Fate::Gone, Fate::Kept),
            (Some(S::Failed), Fate::Gone, Fate::Gone),
        ] {
            assert_eq!(composing.fate(ended), composed, "{ended:?}");
            assert_eq!(releasing.fate(ended), released, "{ended:?}");
        }
    }
}
