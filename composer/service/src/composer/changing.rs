//! What people ask to be changed: compose, release, attach, detach. Each is a plan, made and begun in one
//! turn. Either the change begins, or nothing is different.

use super::Composer;
use super::keeping::there_is_one_already;
use super::planning::{Change, How, Wanted, new_operation};
use crate::demand::{DemandRecord, DemandSpec, Pending};
use crate::error::{ErrorCode, ServiceError};
use poolwright_executor::OperationKind;
use poolwright_model::id::{CompositionId, DemandId, GpuId, HostId};
use poolwright_planner::{Plan, direct};
use poolwright_store::Batch;
use serde::{Deserialize, Serialize};

/// What to let go of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Release {
    /// A demand, with all that it holds.
    Demand(DemandId),
    Composition(CompositionId),
}

impl Composer {
    /// Serves one demand now, as well as what is served already. If it can't be served whole it is not kept.
    pub async fn compose(&self, spec: DemandSpec, by: &str, how: &How) -> Result<Change, ServiceError> {
        let _turn = self.turn.lock().await;
        if let Some(done) = self.done_before(OperationKind::Compose, how).await? {
            return Ok(done);
        }
        if self.find_demand(&spec.id).await?.is_some() {
            return Err(there_is_one_already(&spec.id));
        }
        let mut record = self.record_of(spec, None).await?;
        let id = record.demand.id.clone();
        let basis = self.basis(Wanted::Only(&record.demand)).await?;
        let plan = poolwright_planner::plan(&self.input(&basis));
        if let Some(unplaced) = plan.unplaced.iter().find(|unplaced| unplaced.demand == id) {
            return Err(ServiceError::new(ErrorCode::Unplaced, unplaced.to_string()));
        }
        if how.dry_run {
            return Ok(Change::none(plan));
        }
        // It may hold already what it needs: what was left of one of its name.
        let changes = !plan.steps.is_empty();
        let operation = new_operation();
        record.pending = changes.then(|| Pending::Composing(operation.clone()));
        let mut batch = Batch::new();
        self.add_to(&mut batch, &record).await?;
        self.store.commit(batch).await?;
        if !changes {
            return Ok(Change::none(plan));
        }
        let begun = self
            .submit(operation, plan, OperationKind::Compose, by, how)
            .await;
        if begun.is_err() {
            self.unkeep(&id).await?;
        }
        begun
    }

    /// Lets go of a demand or of one composition.
    pub async fn release(&self, what: Release, by: &str, how: &How) -> Result<Change, ServiceError> {
        let _turn = self.turn.lock().await;
        if let Some(done) = self.done_before(OperationKind::Release, how).await? {
            return Ok(done);
        }
        let basis = self.basis(Wanted::Named).await?;
        let (composition, demand) = match what {
            Release::Demand(id) => {
                let first = basis.held.iter().find(|c| c.demand.as_ref() == Some(&id));
                (first.map(|c| c.id.clone()), Some(id))
            }
            Release::Composition(id) => {
                let named = basis.held.iter().find(|c| c.id == id);
                let demand = named.and_then(|c| c.demand.clone());
                (Some(id), demand)
            }
        };
        let record = match &demand {
            Some(id) => self.find_demand(id).await?,
            None => None,
        };
        if let Some(record) = &record {
            may_be_withdrawn(record)?;
        }
        let plan = match (&composition, &demand) {
            (Some(composition), _) => direct::release(composition, &self.input(&basis))?,
            // It waits for GPUs and holds none: nothing changes but that it is wanted.
            (None, Some(_)) if record.is_some() => poolwright_planner::plan(&self.input(&basis.standing())),
            (None, Some(id)) => return Err(ServiceError::not_found("demand", id.as_str())),
            (None, None) => return Err(ServiceError::bad_request("name a demand or a composition")),
        };
        if how.dry_run {
            return Ok(Change::none(plan));
        }
        if plan.steps.is_empty() {
            if let Some(record) = &record {
                self.unkeep(&record.spec.id).await?;
            }
            return Ok(Change::none(plan));
        }
        let operation = new_operation();
        if let Some(record) = &record {
            let pending = Some(Pending::Releasing(operation.clone()));
            let record = DemandRecord {
                pending,
                ..record.clone()
            };
            self.rewrite(&record).await?;
        }
        let begun = self
            .submit(operation, plan, OperationKind::Release, by, how)
            .await;
        if let (Err(_), Some(record)) = (&begun, &record) {
            self.rewrite(record).await?;
        }
        begun
    }

    /// Attaches GPUs by name to a host.
    pub async fn attach(
        &self,
        gpus: &[GpuId],
        host: &HostId,
        by: &str,
        how: &How,
    ) -> Result<Change, ServiceError> {
        let _turn = self.turn.lock().await;
        if let Some(done) = self.done_before(OperationKind::Attach, how).await? {
            return Ok(done);
        }
        let basis = self.basis(Wanted::Named).await?;
        let plan = direct::attach(gpus, host, &self.input(&basis))?;
        self.begin(plan, OperationKind::Attach, by, how).await
    }

    /// Detaches GPUs by name.
    pub async fn detach(&self, gpus: &[GpuId], by: &str, how: &How) -> Result<Change, ServiceError> {
        let _turn = self.turn.lock().await;
        if let Some(done) = self.done_before(OperationKind::Detach, how).await? {
            return Ok(done);
        }
        let basis = self.basis(Wanted::Named).await?;
        let plan = direct::detach(gpus, &self.input(&basis))?;
        self.begin(plan, OperationKind::Detach, by, how).await
    }

    async fn begin(
        &self,
        plan: Plan,
        kind: OperationKind,
        by: &str,
        how: &How,
    ) -> Result<Change, ServiceError> {
        if how.dry_run || plan.steps.is_empty() {
            return Ok(Change::none(plan));
        }
        self.submit(new_operation(), plan, kind, by, how).await
    }
}

/// Whether somebody may take a demand back just now.
pub(super) fn may_be_withdrawn(record: &DemandRecord) -> Result<(), ServiceError> {
    let id = &record.spec.id;
    if let Some(schedule) = &record.schedule {
        return Err(ServiceError::new(
            ErrorCode::Conflict,
            format!("demand {id} belongs to schedule {schedule}"),
        )
        .with_hint(format!(
            "remove or pause the schedule: poolwright schedule pause {schedule}"
        )));
    }
    let Some(pending) = &record.pending else {
        return Ok(());
    };
    let operation = pending.operation();
    let (doing, hint) = match pending {
        Pending::Composing(_) => ("composing", format!("poolwright ops cancel {operation}")),
        Pending::Releasing(_) => ("releasing", format!("poolwright ops wait {operation}")),
    };
    let message = format!("operation {operation} is {doing} demand {id}");
    Err(ServiceError {
        operation: Some(operation.to_string()),
        ..ServiceError::new(ErrorCode::Conflict, message).with_hint(hint)
    })
}
