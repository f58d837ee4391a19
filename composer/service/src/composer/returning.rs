//! What was lent on its way back: how long that takes, as recompositions by the clock were measured; what of it somebody
//! still uses, which is left where it is while all else goes back; and what the lenders lack.

use super::Composer;
use crate::error::ServiceError;
use crate::returns::{Returns, Took};
use crate::schedule::Schedule;
use poolwright_executor::{Line, Noted, Operation, StepState};
use poolwright_model::id::{ControlEndpointId, DemandId, UnitId};
use poolwright_planner::promise::width;
use poolwright_planner::{Composition, Plan};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What was measured, and who holds GPUs where.
pub(super) struct Measured {
    took: Vec<Took>,
    held: Arc<Vec<Composition>>,
}

impl Measured {
    /// Of what these demands hold now. Where they hold nothing, of all that was measured.
    pub fn of<'d>(&self, demands: impl IntoIterator<Item = &'d DemandId>) -> Returns {
        let demands: BTreeSet<&DemandId> = demands.into_iter().collect();
        let held = self.held.iter().filter(|c| {
            let demand = c.demand.as_ref();
            demand.is_some_and(|demand| demands.contains(demand))
        });
        let endpoints = held
            .flat_map(|c| &c.held)
            .map(|held| held.unit_at.endpoint.clone());
        Returns::at(&self.took, &endpoints.collect())
    }

    /// Of what a schedule lends: what the lenders hold, and the borrowers.
    pub fn of_schedule(&self, schedule: &Schedule) -> Returns {
        self.of(schedule.own_demands().chain(&schedule.spec.suspends))
    }
}

impl Composer {
    /// What recompositions by the clock took of late.
    pub(super) async fn measured(&self) -> Result<Measured, ServiceError> {
        let runs = self.schedule_runs().await?.into_iter();
        let took = runs.filter_map(|run| {
            Some(Took {
                in_all_s: run.took_s?,
                at_s: run.took_at_s,
            })
        });
        Ok(Measured {
            took: took.collect(),
            held: self.held().await?,
        })
    }

    /// Demands that were suspended, and are not any more, and have not all of it again.
    pub(super) async fn coming_back(
        &self,
        suspended: &BTreeSet<DemandId>,
    ) -> Result<BTreeSet<DemandId>, ServiceError> {
        let aside = self.put_aside().await?;
        Ok(aside.difference(suspended).cloned().collect())
    }

    /// Those of them that have some of it.
    pub(super) async fn some_is_back(
        &self,
        coming_back: &BTreeSet<DemandId>,
    ) -> Result<BTreeSet<DemandId>, ServiceError> {
        let held = self.held().await?;
        let holders = held.iter().filter_map(|c| c.demand.as_ref());
        Ok(holders
            .filter(|demand| coming_back.contains(*demand))
            .cloned()
            .collect())
    }

    /// What a plan would let go of, and somebody uses: the hosts are asked, before anything is begun.
    pub(super) async fn in_use_of(&self, plan: &Plan) -> BTreeMap<UnitId, String> {
        let going = plan.releases.iter();
        let going = going.flat_map(|c| c.held.iter().map(move |held| (held.target(&c.host), &held.unit)));
        let asked = going.map(|(target, unit)| async move {
            let by = self.executor.in_use_by(&target).await?;
            Some((unit.clone(), by))
        });
        let asked = futures_util::future::join_all(asked).await;
        asked.into_iter().flatten().collect()
    }

    /// How many GPUs each of these demands lacks of what it wants.
    pub(super) async fn lacking<'d>(
        &self,
        demands: impl IntoIterator<Item = &'d DemandId>,
    ) -> Result<BTreeMap<DemandId, u32>, ServiceError> {
        let held = self.held().await?;
        let mut lacking = BTreeMap::new();
        for id in demands {
            let Some(record) = self.find_demand(id).await? else {
                continue;
            };
            let has = held.iter().filter(|c| c.demand.as_ref() == Some(id));
            let has: u32 = has.map(Composition::gpu_count).sum();
            let missing = width(&record.demand).saturating_sub(has);
            if missing > 0 {
                lacking.insert(id.clone(), missing);
            }
        }
        Ok(lacking)
    }

    /// Seconds from the beginning of an operation until the last of it was done at each endpoint.
    pub(crate) async fn took_at(
        &self,
        operation: &Operation,
    ) -> Result<BTreeMap<ControlEndpointId, u32>, ServiceError> {
        let mut took = BTreeMap::new();
        for line in self.store.journal(&operation.id, 0).await? {
            // One that can't be read says nothing of how long it took.
            let Ok(Noted {
                at,
                line: Line::Step(step),
            }) = serde_json::from_str(line.json.get())
            else {
                continue;
            };
            let is_done = step.state == StepState::Done;
            if let Some(record) = operation.step(step.index).filter(|_| is_done) {
                let seconds = at.duration_since(operation.created).as_secs();
                let endpoint = record.step.target.unit_at.endpoint.clone();
                let latest: &mut u32 = took.entry(endpoint).or_default();
                *latest = (*latest).max(u32::try_from(seconds).unwrap_or_default());
            }
        }
        Ok(took)
    }
}
