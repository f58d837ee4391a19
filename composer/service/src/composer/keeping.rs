//! Which demands are kept, where an operation decides it.
//!
//! A demand that is composed is kept only if it could be served; one that is released is kept if it could not
//! be let go of. Its record names the operation ([`Pending`]) and is committed with its beginning. What becomes of
//! it then follows from how the operation ended: nothing is to be repaired after a crash, nor where the store did
//! not say whether it has begun.
//!
//! A composition names its demand, so the record is deleted only by a commit that confirms that the last composition
//! is gone. Each operation that composes for a standing demand writes its record anew: of two commits at two
//! managers, one that composes for a demand and one that deletes it, the second is refused.

use super::Composer;
use super::changing::in_hand;
use crate::demand::{DemandRecord, Pending};
use crate::error::{ErrorCode, ServiceError};
use poolwright_executor::{Operation, OperationState};
use poolwright_model::id::{CompositionId, DemandId, OperationId};
use poolwright_planner::Composition;
use poolwright_store::{Batch, StoreError, Stored, Versioned, read, read_all};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

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
    #[crate::boxed]
    pub async fn demands(&self) -> Result<Vec<DemandRecord>, ServiceError> {
        let mut demands = Vec::new();
        for found in read_all::<DemandRecord>(self.store.as_ref()).await? {
            demands.extend(self.as_decided(found.value).await?);
        }
        Ok(demands)
    }

    #[crate::boxed]
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
            // A new demand replaces a dropped one of its id, and takes over its compositions.
            if self
                .as_decided(found.value)
                .await?
                .is_some_and(|record| !record.dropped)
            {
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

    /// Deletes the record of a demand, as it was read, with this batch. Refused while a composition holds GPUs for it,
    /// other than those that the batch itself takes from it (`leaving`), or an operation composes for it. To be called
    /// with the turn.
    pub(super) async fn delete_demand(
        &self,
        batch: &mut Batch,
        found: &Versioned<DemandRecord>,
        leaving: &BTreeSet<CompositionId>,
    ) -> Result<(), ServiceError> {
        let id = &found.value.spec.id;
        // In this order: the compositions of an operation are in one of the two.
        if let Some(operation) = self.underway().await?.serving.remove(id) {
            return Err(in_hand(id, &Pending::Composing(operation)));
        }
        let held = self.held().await?;
        let of_it = |c: &&Composition| c.demand.as_ref() == Some(id) && !leaving.contains(&c.id);
        if let Some(composition) = held.iter().find(of_it) {
            return Err(still_held(&found.value, composition));
        }
        batch
            .expect(DemandRecord::KIND, id.as_str(), Some(found.revision))
            .delete(DemandRecord::KIND, id.as_str());
        Ok(())
    }

    /// Deletes the record of a demand that holds nothing. To be called with the turn.
    pub(super) async fn delete_unheld(&self, id: &DemandId) -> Result<(), ServiceError> {
        let found = read::<DemandRecord>(self.store.as_ref(), id.as_str()).await?;
        let found = found.ok_or_else(|| ServiceError::not_found("demand", id.as_str()))?;
        let mut batch = Batch::new();
        self.delete_demand(&mut batch, &found, &BTreeSet::new()).await?;
        match self.store.commit(batch).await {
            Err(error) if error.is_conflict() => {
                let message = format!("demand {id} was changed while it was to be deleted");
                Err(ServiceError::new(ErrorCode::Conflict, message)
                    .with_hint("see what it holds, then ask again: poolwright get demands"))
            }
            done => Ok(done.map(drop)?),
        }
    }

    /// A schedule no longer has this demand: its record is deleted with this batch; where it holds GPUs it is marked, and
    /// deleted once the runner has released them. To be called with the turn.
    pub(super) async fn drop_demand(&self, batch: &mut Batch, id: &DemandId) -> Result<(), ServiceError> {
        let Some(found) = read::<DemandRecord>(self.store.as_ref(), id.as_str()).await? else {
            return Ok(());
        };
        match self.delete_demand(batch, &found, &BTreeSet::new()).await {
            Err(refused) if refused.code == ErrorCode::Conflict => {
                let record = DemandRecord {
                    dropped: true,
                    ..found.value
                };
                batch
                    .expect(DemandRecord::KIND, record.id(), Some(found.revision))
                    .put(&record)?;
                Ok(())
            }
            deleted => deleted,
        }
    }

    /// Deletes the dropped demands that hold nothing any more. Returns whether none is left.
    pub(crate) async fn delete_dropped(&self) -> Result<bool, ServiceError> {
        let _turn = self.turn.lock().await;
        let mut all = true;
        for found in read_all::<DemandRecord>(self.store.as_ref()).await? {
            if !found.value.dropped {
                continue;
            }
            let mut batch = Batch::new();
            match self.delete_demand(&mut batch, &found, &BTreeSet::new()).await {
                Ok(()) => {}
                Err(refused) if refused.code == ErrorCode::Conflict => {
                    all = false;
                    continue;
                }
                Err(error) => return Err(error),
            }
            match self.store.commit(batch).await {
                // The record was changed meanwhile.
                Err(StoreError::Conflict { .. }) => all = false,
                done => drop(done?),
            }
        }
        Ok(all)
    }

    /// Writes the records of these demands anew, for which the batch begins to hold GPUs: a commit that deletes one of
    /// them meanwhile is refused, or this one is.
    pub(super) async fn hold_for(
        &self,
        batch: &mut Batch,
        demands: BTreeSet<DemandId>,
    ) -> Result<(), ServiceError> {
        for id in demands {
            if batch.writes(DemandRecord::KIND, id.as_str()) {
                continue;
            }
            if let Some(found) = read::<DemandRecord>(self.store.as_ref(), id.as_str()).await? {
                batch
                    .expect(DemandRecord::KIND, id.as_str(), Some(found.revision))
                    .put(&found.value)?;
            }
        }
        Ok(())
    }

    /// A demand as its operation decided; `None` where it is not kept.
    async fn as_decided(&self, record: DemandRecord) -> Result<Option<DemandRecord>, ServiceError> {
        let Some(pending) = &record.pending else {
            return Ok(Some(record));
        };
        let operation = match self.executor.get(pending.operation()).await {
            Ok(operation) => operation,
            // Left alone until somebody has looked into it; the others go on.
            Err(error) if error.is_unreadable() => return Ok(Some(record)),
            Err(error) => return Err(error.into()),
        };
        if let Some(kept) = decided(record.clone(), operation.as_ref(), false) {
            return Ok(Some(kept));
        }
        let held = self.held().await?;
        let is_held = held.iter().any(|c| c.demand.as_ref() == Some(&record.spec.id));
        Ok(decided(record, operation.as_ref(), is_held))
    }
}

/// Applies the result of the pending operation to a demand; `None`: its record is deleted. The record stays while
/// GPUs are held for the demand (`is_held`).
fn decided(mut record: DemandRecord, operation: Option<&Operation>, is_held: bool) -> Option<DemandRecord> {
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
        (Fate::Gone, _, Some(job)) if is_held => job.failed(operation),
        (Fate::Gone, _, None) if is_held => {}
        (Fate::Gone, ..) => return None,
    }
    Some(record)
}

fn still_held(record: &DemandRecord, composition: &Composition) -> ServiceError {
    let (id, held, gpus) = (&record.spec.id, &composition.id, gpus_of(composition));
    let message = format!(
        "demand {id} holds {gpus} on {} (composition {held})",
        composition.host
    );
    let hint = match record.job.as_ref().is_some_and(|job| job.ended.is_some()) {
        true => "the job has ended; wait until its GPUs are released: poolwright queue".to_owned(),
        false => format!("release them; that deletes the demand, too: poolwright release {id}"),
    };
    ServiceError::new(ErrorCode::Conflict, message).with_hint(hint)
}

/// The number of its GPUs, such as `2 GPUs`.
pub(super) fn gpus_of(composition: &Composition) -> String {
    match composition.gpu_count() {
        1 => "1 GPU".to_owned(),
        count => format!("{count} GPUs"),
    }
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

    /// Fault 73: an operation that was undone, or ended by an operator, may have left GPUs held.
    #[test]
    fn a_demand_for_which_gpus_are_held_is_kept_whatever_its_operation_decided() {
        let record: DemandRecord = serde_json::from_value(serde_json::json!({
            "spec": {"id": "chat", "gpus": 1},
            "demand": {
                "id": "chat", "tenant": "default", "priority": 0, "created": "2026-03-02T12:00:00Z",
                "need": poolwright_sizing::need::Need::of_kind("l40s-48gb", 1),
            },
            "pending": {"composing": "op"},
        }))
        .unwrap();
        assert_eq!(decided(record.clone(), None, false), None);
        let kept = decided(record.clone(), None, true);
        assert_eq!(
            kept,
            Some(DemandRecord {
                pending: None,
                ..record
            })
        );
    }
}
