//! From what is wanted to a plan, and from a plan to an operation.

use super::Composer;
use crate::demand::{DemandRecord, DemandSpec};
use crate::error::{ErrorCode, ServiceError};
use poolwright_executor::{KeyRecord, Operation, OperationKind, OperationState, Submission};
use poolwright_inventory::Snapshot;
use poolwright_model::id::{CompositionId, ControlEndpointId, DemandId, GpuId, HostId, OperationId, PlanId};
use poolwright_planner::{Composition, Cordoned, Demand, Plan, PlanInput, Reserved, World};
use poolwright_store::{Batch, Stored, read};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How a change is made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct How {
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
    /// The same key again is the same operation.
    #[serde(default)]
    pub key: Option<String>,
    /// Pull GPUs although they are in use, for this reason.
    #[serde(default)]
    pub force: Option<String>,
}

/// What would be changed, and the operation that changes it; no operation for a dry run, and none where
/// nothing is to be changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    pub plan: Plan,
    pub operation: Option<Operation>,
}

/// What to let go of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Release {
    /// A demand, with all that it holds.
    Demand(DemandId),
    Composition(CompositionId),
}

/// Everything that a plan is made of, read at one time.
struct Basis {
    snapshot: Arc<Snapshot>,
    held: Vec<Composition>,
    reserved: Vec<Reserved>,
    demands: Vec<Demand>,
    cordoned: Cordoned,
}

impl Basis {
    fn world(&self) -> World<'_> {
        World {
            snapshot: &self.snapshot,
            held: &self.held,
            reserved: &self.reserved,
            demands: &self.demands,
            cordoned: &self.cordoned,
        }
    }
}

impl Composer {
    /// What would be changed now so that everything wanted is served. Changes nothing.
    pub async fn plan(&self) -> Result<Plan, ServiceError> {
        let basis = self.basis(self.wanted_now().await?).await?;
        Ok(poolwright_planner::plan(&self.input(&basis)))
    }

    /// Does exactly what the plan says, if what it rests on still stands.
    pub async fn apply(
        &self,
        plan: Plan,
        kind: OperationKind,
        by: &str,
        how: &How,
    ) -> Result<Change, ServiceError> {
        let touched: BTreeSet<ControlEndpointId> = endpoints_of(&plan);
        self.look_again(&touched).await;
        let basis = self.basis(self.wanted_now().await?).await?;
        let stale = plan.stale(&basis.snapshot);
        if !stale.is_empty() {
            let what: Vec<String> = stale.iter().map(ToString::to_string).collect();
            return Err(ServiceError::new(
                ErrorCode::Stale,
                format!("plan {} no longer fits: {}", plan.id, what.join("; ")),
            )
            .with_hint("make a new plan: poolwright plan --out FILE"));
        }
        let wrong = poolwright_planner::check(&plan, &basis.world());
        if !wrong.is_empty() {
            let what: Vec<String> = wrong.iter().map(ToString::to_string).collect();
            return Err(ServiceError::new(
                ErrorCode::Stale,
                format!("plan {} may not be applied: {}", plan.id, what.join("; ")),
            )
            .with_hint("make a new plan: poolwright plan --out FILE"));
        }
        self.submit(plan, kind, by, how).await
    }

    /// Serves one demand now, as well as what is served already. If it can't be served whole it is not kept.
    pub async fn compose(&self, spec: DemandSpec, by: &str, how: &How) -> Result<Change, ServiceError> {
        if let Some(operation) = self.done_before(how).await? {
            return Ok(operation);
        }
        let record = self.record_of(spec, None).await?;
        let id = record.demand.id.clone();
        if self.demands().await?.iter().any(|kept| kept.demand.id == id) {
            return Err(
                ServiceError::new(ErrorCode::Conflict, format!("there is a demand {id} already")).with_hint(
                    format!("choose another name, or release it: poolwright release {id}"),
                ),
            );
        }
        // Only this one is to change anything: who waits for GPUs already goes on waiting.
        let mut demands = self.served(&self.compositions().await?).await?;
        demands.push(record.demand.clone());
        let basis = self.basis(demands).await?;
        let plan = poolwright_planner::plan(&self.input(&basis));
        if let Some(unplaced) = plan.unplaced.iter().find(|unplaced| unplaced.demand == id) {
            return Err(ServiceError::new(ErrorCode::Unplaced, unplaced.to_string()));
        }
        if how.dry_run {
            return Ok(Change {
                plan,
                operation: None,
            });
        }
        self.keep(&record).await?;
        let change = self.submit(plan, OperationKind::Compose, by, how).await;
        if change.is_err() {
            self.unkeep(&id).await?;
        }
        change
    }

    /// Lets go of a demand or of one composition.
    pub async fn release(&self, what: Release, by: &str, how: &How) -> Result<Change, ServiceError> {
        if let Some(operation) = self.done_before(how).await? {
            return Ok(operation);
        }
        let held = self.compositions().await?;
        let (first, demand) = match what {
            Release::Demand(id) => (
                held.iter()
                    .find(|c| c.demand.as_ref() == Some(&id))
                    .map(|c| c.id.clone()),
                Some(id),
            ),
            Release::Composition(id) => {
                let demand = held.iter().find(|c| c.id == id).and_then(|c| c.demand.clone());
                (Some(id), demand)
            }
        };
        let basis = self.basis(Vec::new()).await?;
        let plan = match (&first, &demand) {
            (Some(composition), _) => poolwright_planner::direct::release(composition, &self.input(&basis))?,
            // It waits for GPUs and holds none: there is nothing to change but that it is wanted.
            (None, Some(id)) => {
                self.demand(id).await?;
                poolwright_planner::plan(&self.input(&self.basis(self.served(&held).await?).await?))
            }
            (None, None) => return Err(ServiceError::bad_request("name a demand or a composition")),
        };
        if how.dry_run {
            return Ok(Change {
                plan,
                operation: None,
            });
        }
        if let Some(id) = demand {
            self.unkeep(&id).await?;
        }
        self.submit(plan, OperationKind::Release, by, how).await
    }

    /// Attaches GPUs by name to a host.
    pub async fn attach(
        &self,
        gpus: &[GpuId],
        host: &HostId,
        by: &str,
        how: &How,
    ) -> Result<Change, ServiceError> {
        if let Some(operation) = self.done_before(how).await? {
            return Ok(operation);
        }
        let basis = self.basis(Vec::new()).await?;
        let plan = poolwright_planner::direct::attach(gpus, host, &self.input(&basis))?;
        if how.dry_run {
            return Ok(Change {
                plan,
                operation: None,
            });
        }
        self.submit(plan, OperationKind::Attach, by, how).await
    }

    /// Detaches GPUs by name.
    pub async fn detach(&self, gpus: &[GpuId], by: &str, how: &How) -> Result<Change, ServiceError> {
        if let Some(operation) = self.done_before(how).await? {
            return Ok(operation);
        }
        let basis = self.basis(Vec::new()).await?;
        let plan = poolwright_planner::direct::detach(gpus, &self.input(&basis))?;
        if how.dry_run {
            return Ok(Change {
                plan,
                operation: None,
            });
        }
        self.submit(plan, OperationKind::Detach, by, how).await
    }

    /// The demands that hold something, wanted now or not: a change of one of them leaves the others alone.
    async fn served(&self, held: &[Composition]) -> Result<Vec<Demand>, ServiceError> {
        let holds = |record: &DemandRecord| held.iter().any(|c| c.demand.as_ref() == Some(&record.demand.id));
        Ok(self
            .demands()
            .await?
            .into_iter()
            .filter(holds)
            .map(|record| record.demand)
            .collect())
    }

    async fn basis(&self, demands: Vec<Demand>) -> Result<Basis, ServiceError> {
        Ok(Basis {
            snapshot: self.fresh_snapshot().await?,
            held: self.compositions().await?,
            reserved: self.reserved().await?,
            demands,
            cordoned: Cordoned::default(),
        })
    }

    fn input<'a>(&self, basis: &'a Basis) -> PlanInput<'a> {
        PlanInput {
            id: PlanId::from_lossy(&format!("plan-{}", uuid::Uuid::now_v7().simple())),
            parent: None,
            now: self.clock.now(),
            seed: 0,
            world: basis.world(),
        }
    }

    async fn submit(
        &self,
        plan: Plan,
        kind: OperationKind,
        by: &str,
        how: &How,
    ) -> Result<Change, ServiceError> {
        if how.dry_run || plan.steps.is_empty() {
            return Ok(Change {
                plan,
                operation: None,
            });
        }
        let submission = Submission {
            id: OperationId::from_lossy(&format!("op-{}", uuid::Uuid::now_v7().simple())),
            plan: plan.clone(),
            kind,
            tenant: None,
            by: by.to_owned(),
            key: how.key.clone(),
            force: how.force.clone(),
        };
        self.touch(self.touched_by(&plan));
        let id = self.executor.submit(submission).await?;
        let operation = self.operation(&id).await?;
        self.follow(&operation, &plan);
        Ok(Change {
            operation: Some(operation),
            plan,
        })
    }

    /// The operation that this key stands for, if it was asked for before.
    async fn done_before(&self, how: &How) -> Result<Option<Change>, ServiceError> {
        let Some(key) = &how.key else { return Ok(None) };
        let Some(known) = read::<KeyRecord>(self.store.as_ref(), key).await? else {
            return Ok(None);
        };
        let operation = self.operation(&known.value.operation).await?;
        let plan = self.plan_of(&operation).await?;
        Ok(Some(Change {
            plan,
            operation: Some(operation),
        }))
    }

    async fn keep(&self, record: &DemandRecord) -> Result<(), ServiceError> {
        let mut batch = Batch::new();
        batch.expect(DemandRecord::KIND, record.id(), None).put(record)?;
        self.store.commit(batch).await?;
        Ok(())
    }

    async fn unkeep(&self, demand: &DemandId) -> Result<(), ServiceError> {
        let mut batch = Batch::new();
        batch.delete(DemandRecord::KIND, demand.as_str());
        self.store.commit(batch).await?;
        Ok(())
    }

    /// Looks again at what an operation has changed, once it is over. A demand that was composed and could
    /// not be served is not kept.
    fn follow(&self, operation: &Operation, plan: &Plan) {
        let (composer, id, kind) = (self.clone(), operation.id.clone(), operation.kind);
        let composed: Vec<DemandId> = plan.composes.iter().filter_map(|c| c.demand.clone()).collect();
        self.tasks
            .spawn(async move { composer.follow_to_the_end(id, kind, composed).await });
    }

    async fn follow_to_the_end(self, id: OperationId, kind: OperationKind, composed: Vec<DemandId>) {
        let Ok(Some(ended)) = self.executor.wait(&id, A_YEAR).await else {
            return;
        };
        if kind == OperationKind::Compose && ended.state != OperationState::Completed {
            for demand in composed {
                if let Err(error) = self.unkeep(&demand).await {
                    tracing::warn!(%demand, "is still wanted although it could not be composed: {error}");
                }
            }
        }
        if let Err(error) = self.fresh_snapshot().await {
            tracing::warn!(operation = %id, "what it left could not be looked at: {error}");
        }
        self.calendar_changed.notify_one();
    }

    /// The management services at both ends of what a plan changes.
    fn touched_by(&self, plan: &Plan) -> BTreeSet<ControlEndpointId> {
        let speakers = plan
            .steps
            .iter()
            .filter_map(|step| self.connections.speaker(&step.target.host));
        speakers.chain(endpoints_of(plan)).collect()
    }
}

/// Longer than any operation; not so long that adding it to the time overflows.
const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// The management services that a plan speaks to.
fn endpoints_of(plan: &Plan) -> BTreeSet<ControlEndpointId> {
    plan.steps
        .iter()
        .map(|step| step.target.unit_at.endpoint.clone())
        .collect()
}
