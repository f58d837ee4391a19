//! What running operations have in hand, and what will stand once they are done.

use super::Composer;
use crate::error::ServiceError;
use poolwright_executor::{Claim, OperationState, PlanRecord};
use poolwright_model::id::{DemandId, OperationId};
use poolwright_planner::{Composition, Plan, Reserved};
use poolwright_store::read;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What running operations have in hand.
pub(super) struct Underway {
    pub reserved: Vec<Reserved>,
    /// Demands that they are serving.
    pub serving: BTreeMap<DemandId, OperationId>,
    /// Demands that they are serving or letting go of.
    pub touched: BTreeSet<DemandId>,
    /// What they build or add to.
    pub composes: Vec<Composition>,
}

impl Underway {
    /// The units alone.
    pub fn of(claims: Vec<Claim>) -> Self {
        let reserved = claims.into_iter().map(|claim| Reserved {
            unit: claim.unit,
            host_port: claim.host_port,
        });
        Self {
            reserved: reserved.collect(),
            serving: BTreeMap::new(),
            touched: BTreeSet::new(),
            composes: Vec::new(),
        }
    }
}

impl Composer {
    /// What stands once these are done; of what is being undone, what stood before.
    pub(super) async fn held_once_done(
        &self,
        mut held: Arc<Vec<Composition>>,
        claims: &[Claim],
    ) -> Result<Arc<Vec<Composition>>, ServiceError> {
        let operations: BTreeSet<&OperationId> = claims.iter().map(|claim| &claim.operation).collect();
        for id in operations {
            let operation = match self.executor.get(id).await {
                // Nobody can tell what becomes of it.
                Err(error) if error.is_unreadable() => None,
                found => found?,
            };
            let goes_on = |state| matches!(state, OperationState::Pending | OperationState::Running);
            if operation.is_some_and(|operation| goes_on(operation.state))
                && let Some(plan) = self.plan_underway(id).await?
            {
                held = Arc::new(plan.after(&held));
            }
        }
        Ok(held)
    }

    pub(super) async fn underway(&self) -> Result<Underway, ServiceError> {
        let claims = self.claims().await?;
        let operations: BTreeSet<OperationId> = claims.iter().map(|claim| claim.operation.clone()).collect();
        let mut underway = Underway::of(claims);
        for id in operations {
            let Some(plan) = self.plan_underway(&id).await? else {
                // What it has in hand is reserved; more can't be said of it.
                continue;
            };
            let released = plan.releases.iter().filter_map(|c| c.demand.clone());
            let composed = plan.composes.iter().filter_map(|c| c.demand.clone());
            let composed: BTreeSet<DemandId> = composed.collect();
            underway.touched.extend(released.chain(composed.iter().cloned()));
            let serving = composed.into_iter().map(|demand| (demand, id.clone()));
            underway.serving.extend(serving);
            underway.composes.extend(plan.composes.iter().cloned());
        }
        Ok(underway)
    }

    pub(super) async fn claims(&self) -> Result<Vec<Claim>, ServiceError> {
        // In this order: what begins while we read is in one of them.
        let mut claims = self.beginning.claims();
        self.books.refresh(self.store.as_ref()).await?;
        let pages = self.books.pages();
        claims.retain(|ahead| !pages.claims.contains_key(ahead.unit.as_str()));
        claims.extend(pages.claims.values().cloned());
        Ok(claims)
    }

    /// The plan of an operation that has something in hand: from memory where this manager works at it, for there may
    /// be a thousand of them.
    pub(super) async fn plan_underway(&self, id: &OperationId) -> Result<Option<Arc<Plan>>, ServiceError> {
        if let Some(plan) = self.executor.plan(id) {
            return Ok(Some(plan));
        }
        let operation = match self.executor.get(id).await {
            Ok(Some(operation)) => operation,
            Ok(None) => return Ok(None),
            Err(error) if error.is_unreadable() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        match read::<PlanRecord>(self.store.as_ref(), id.as_str()).await {
            Ok(Some(found)) => Ok(Some(Arc::new(found.value.plan))),
            Ok(None) => Ok(Some(Arc::new(self.plan_of(&operation).await?))),
            Err(error) if error.is_unreadable() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
