//! Plans that avoid resources that are available but better left unused: paused endpoints, hosts that will be closed,
//! suspect GPUs.

use super::Composer;
use super::closing::beside_maintenance;
use super::planning::Basis;
use crate::error::ServiceError;
use poolwright_model::composable::WhyNotKind;
use poolwright_model::id::{ControlEndpointId, DemandId, GpuId};
use poolwright_planner::Plan;
use std::collections::{BTreeMap, BTreeSet};

impl Composer {
    /// A plan that gives away nothing at endpoints that are paused, unless more is served with what is there: such a
    /// plan waits for the pause to end, and says more than that there is nothing. Nor anything to hosts that close while
    /// it is wanted, nor GPUs that are suspect, unless more is served so.
    pub(super) async fn plan_beside_pauses(&self, basis: &Basis) -> Result<Plan, ServiceError> {
        Ok(self.plan_around(basis, &self.paused_endpoints().await?))
    }

    /// The same with what is paused, and why.
    pub(super) fn plan_around<R: ToString>(
        &self,
        basis: &Basis,
        paused: &BTreeMap<ControlEndpointId, R>,
    ) -> Plan {
        let whole = |basis: &Basis| poolwright_planner::plan(&self.input(basis));
        let beside_pauses = |basis: &Basis| {
            if paused.is_empty() {
                return whole(basis);
            }
            let mut open = basis.clone();
            open.close(WhyNotKind::Paused, paused);
            rather(whole(&open), || whole(basis))
        };
        let suspects: BTreeSet<GpuId> = self.books.pages().suspects.keys().cloned().collect();
        beside_maintenance(basis, |basis| {
            if suspects.is_empty() {
                return beside_pauses(basis);
            }
            let mut sound = basis.clone();
            sound.spare(&suspects);
            rather(beside_pauses(&sound), || beside_pauses(basis))
        })
    }
}

/// A plan that does without something; or the whole one, where that serves more.
pub(super) fn rather(mut without: Plan, whole: impl FnOnce() -> Plan) -> Plan {
    if without.unplaced.is_empty() {
        return without;
    }
    let whole = whole();
    if whole.unplaced.len() < without.unplaced.len() {
        return whole;
    }
    let names = |plan: &Plan| -> BTreeSet<DemandId> {
        let unplaced = plan.unplaced.iter();
        unplaced.map(|unplaced| unplaced.demand.clone()).collect()
    };
    if names(&whole) == names(&without) {
        // They can't be served either way, so what it does without is not why.
        without.unplaced = whole.unplaced;
    }
    without
}
