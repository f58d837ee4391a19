//! Operations whose first commit is on its way. What they take is nobody else's from now on, so that the next plan need
//! not wait for the disk.
//!
//! The commit itself is what counts: it expects that each unit is free. Where it fails, what was kept for it was kept a
//! moment too long.

use super::Composer;
use super::planning::endpoints_of;
use super::requests::Request;
use poolwright_executor::Claim;
use poolwright_model::id::{ControlEndpointId, OperationId};
use poolwright_planner::Plan;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// See the module.
#[derive(Default)]
pub(super) struct Beginning(Mutex<BTreeMap<OperationId, Ahead>>);

/// What an operation will have in hand.
struct Ahead {
    claims: Vec<Claim>,
    endpoints: BTreeSet<ControlEndpointId>,
}

/// Kept for an operation until it has begun, or can't.
pub(super) struct Kept<'a> {
    beginning: &'a Beginning,
    operation: OperationId,
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.beginning.all().remove(&self.operation);
    }
}

impl Beginning {
    pub fn claims(&self) -> Vec<Claim> {
        self.all()
            .values()
            .flat_map(|ahead| ahead.claims.clone())
            .collect()
    }

    /// The operation that is about to begin at an endpoint.
    pub fn at(&self, endpoint: &ControlEndpointId) -> Option<OperationId> {
        let all = self.all();
        let at = all.iter().find(|(_, ahead)| ahead.endpoints.contains(endpoint));
        at.map(|(operation, _)| operation.clone())
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<OperationId, Ahead>> {
        // Each use is one call on it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Composer {
    /// Keeps what a plan takes. To be called with the turn, which may end then.
    pub(super) fn keep_for(&self, operation: &OperationId, request: &Request<'_>, plan: &Plan) -> Kept<'_> {
        let since = self.clock.now();
        let claims = plan.moves().into_iter().map(|(unit, goes_to)| Claim {
            unit: unit.clone(),
            operation: operation.clone(),
            kind: request.kind,
            by: request.by.to_owned(),
            since,
            host_port: goes_to.cloned(),
        });
        let ahead = Ahead {
            claims: claims.collect(),
            endpoints: endpoints_of(plan),
        };
        self.beginning.all().insert(operation.clone(), ahead);
        Kept {
            beginning: &self.beginning,
            operation: operation.clone(),
        }
    }
}
