//! How long what was lent takes to come back, as recompositions by the clock were measured.

use super::Composer;
use crate::error::ServiceError;
use crate::returns::{Returns, Took};
use crate::schedule::Schedule;
use poolwright_executor::{Line, Noted, Operation, StepState};
use poolwright_model::id::{ControlEndpointId, DemandId};
use poolwright_planner::Composition;
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
