//! An endpoint that shows far less than before is not believed until somebody says that it is right.

use super::Composer;
use crate::error::{ErrorCode, ServiceError};
use crate::vanishing::{Shown, name_at};
use poolwright_model::id::{CompositionId, ControlEndpointId, DemandId, GpuId};
use poolwright_planner::Plan;
use poolwright_store::{Batch, read};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What an endpoint does not show any more, and is believed to have lost from now on; for a dry run, would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Accepting {
    pub endpoint: ControlEndpointId,
    pub accepted: bool,
    /// How many GPUs it shows still.
    pub left: usize,
    pub gone: Vec<Lost>,
}

/// A GPU that is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lost {
    /// Its UUID, its serial number, or its address at the endpoint.
    pub name: String,
    /// As the pool calls it; `None` where it was not seen since the manager started.
    pub gpu: Option<GpuId>,
    /// Who holds it.
    pub composition: Option<CompositionId>,
    pub demand: Option<DemandId>,
}

impl Composer {
    /// Looks at an endpoint anew and, where it still shows far less than before, believes it. What is gone is missing
    /// from then on, as if it had been pulled one by one; who holds it goes on holding it.
    #[crate::boxed]
    pub async fn accept_endpoint(
        &self,
        id: &ControlEndpointId,
        by: &str,
        dry_run: bool,
    ) -> Result<Accepting, ServiceError> {
        self.endpoint(id).await?;
        self.refuse_while_damaged()?;
        self.look_again(&BTreeSet::from([id.clone()])).await?;
        let Some(now) = self.disbelieved_at(id) else {
            let message = format!("endpoint {id} shows nothing that is not believed");
            return Err(ServiceError::new(ErrorCode::Conflict, message)
                .with_hint(format!("see how it is: poolwright endpoint test {id}")));
        };
        let accepting = Accepting {
            endpoint: id.clone(),
            accepted: !dry_run,
            left: now.gpus.len(),
            gone: self.lost(&now).await?,
        };
        if !dry_run {
            let mut batch = Batch::new();
            batch.put(&now)?;
            self.store.commit(batch).await?;
            self.believe(now);
            let gone = accepting.gone.len();
            tracing::warn!(endpoint = %id, gone, "{by} accepts that they are gone");
            self.calendar_changed.notify_one();
        }
        Ok(accepting)
    }

    async fn lost(&self, now: &Shown) -> Result<Vec<Lost>, ServiceError> {
        let snapshot = self.snapshot().await?;
        let compositions = self.compositions().await?;
        let lost = self.gone_since(now).into_iter().map(|name| {
            let mut gpus = snapshot.topology.gpus.iter();
            let gpu = gpus.find(|gpu| name_at(gpu, &now.endpoint).as_ref() == Some(&name));
            let gpu = gpu.map(|gpu| gpu.id.clone());
            let holder = compositions
                .iter()
                .find(|c| c.gpus().any(|held| gpu.as_ref() == Some(held)));
            Lost {
                composition: holder.map(|composition| composition.id.clone()),
                demand: holder.and_then(|composition| composition.demand.clone()),
                name,
                gpu,
            }
        });
        Ok(lost.collect())
    }

    /// Nothing that the plan changes by itself is at an endpoint that is not believed.
    pub(super) fn is_believed(&self, plan: &Plan) -> Result<(), ServiceError> {
        let endpoints = super::planning::endpoints_of(plan);
        let amiss = self.amiss();
        let mut disbelieved = amiss.disbelieved.iter();
        match disbelieved.find(|(endpoint, _)| endpoints.contains(*endpoint)) {
            None => Ok(()),
            Some((endpoint, why)) => {
                let message = format!("{endpoint}: {why}");
                Err(ServiceError::new(ErrorCode::Conflict, message))
            }
        }
    }

    /// To be called before these endpoints are walked: what other managers have accepted there counts here, too.
    pub(super) async fn recall_baselines(
        &self,
        endpoints: impl IntoIterator<Item = &ControlEndpointId>,
    ) -> Result<(), ServiceError> {
        let percent = self.kept_limits().await?.vanished;
        self.with_baselines(|baselines| baselines.allow(percent));
        for endpoint in endpoints {
            let kept = read::<Shown>(self.store.as_ref(), endpoint.as_str()).await?;
            self.with_baselines(|baselines| baselines.recall(endpoint, kept.map(|kept| kept.value)));
        }
        Ok(())
    }
}
