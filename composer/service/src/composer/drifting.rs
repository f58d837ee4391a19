//! What is recorded against what the last look found.

use super::Composer;
use crate::drift::{Drift, Recorded, drift};
use crate::error::ServiceError;
use poolwright_inventory::Snapshot;
use poolwright_model::id::{ControlEndpointId, UnitId};
use std::collections::{BTreeMap, BTreeSet};

impl Composer {
    /// Every GPU that is not where our compositions have it, and what is bound beside them. Changes nothing, and
    /// nothing is changed by itself because of it.
    pub async fn drift(&self) -> Result<Vec<Drift>, ServiceError> {
        let snapshot = self.snapshot().await?;
        self.drift_in(&snapshot).await
    }

    pub(super) async fn drift_in(&self, snapshot: &Snapshot) -> Result<Vec<Drift>, ServiceError> {
        let claims = self.executor.claims().await?;
        let in_hand: BTreeSet<UnitId> = claims.into_iter().map(|claim| claim.unit).collect();
        let compositions = self.compositions().await?;
        let observed = self.observed().await?;
        let silent: BTreeMap<ControlEndpointId, String> = self
            .silent()
            .into_iter()
            .map(|silent| (silent.endpoint, silent.because))
            .collect();
        Ok(drift(
            snapshot,
            &Recorded {
                compositions: &compositions,
                in_hand: &in_hand,
                silent: &silent,
                observed: &observed,
            },
        ))
    }
}
