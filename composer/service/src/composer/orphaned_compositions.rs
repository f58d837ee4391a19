//! Compositions whose demand has no record. Nothing releases them by itself, and no list of demands shows the
//! holder of their GPUs: the log names each of them once, and `doctor` for as long as it stands.

use super::Composer;
use super::asking::Check;
use super::keeping::gpus_of;
use crate::demand::DemandRecord;
use crate::error::ServiceError;
use poolwright_model::id::{CompositionId, DemandId};
use poolwright_planner::Composition;
use poolwright_store::read_all;
use std::collections::BTreeSet;
use std::time::Duration;

/// Between two sweeps.
const SWEEP: Duration = Duration::from_secs(60);

impl Composer {
    /// The compositions that name a demand without a record, and that no operation has in hand.
    #[crate::boxed]
    pub async fn orphaned_compositions(&self) -> Result<Vec<Composition>, ServiceError> {
        let touched = self.underway().await?.touched;
        let held = self.held().await?;
        let listed = read_all::<DemandRecord>(self.store.as_ref()).await?;
        let listed: BTreeSet<&DemandId> = listed.iter().map(|found| &found.value.spec.id).collect();
        let has_no_owner = |c: &&Composition| {
            let demand = c.demand.as_ref();
            demand.is_some_and(|id| !touched.contains(id) && !listed.contains(id))
        };
        let mut orphaned: Vec<Composition> = held.iter().filter(has_no_owner).cloned().collect();
        if orphaned.is_empty() || self.hides_demands().is_some() {
            return Ok(Vec::new());
        }
        // A demand may have ended in between, and its composition with it.
        let still = self.held().await?;
        orphaned.retain(|orphan| {
            let now = still.iter().find(|c| c.id == orphan.id);
            now.is_some_and(|now| now.demand == orphan.demand)
        });
        Ok(orphaned)
    }

    /// Names each orphaned composition in the log, once.
    pub(crate) async fn keep_reporting_orphans(&self) {
        let mut reported: BTreeSet<CompositionId> = BTreeSet::new();
        loop {
            match self.orphaned_compositions().await {
                Ok(orphaned) => {
                    for orphan in orphaned.iter().filter(|orphan| !reported.contains(&orphan.id)) {
                        tracing::warn!(
                            composition = %orphan.id,
                            demand = orphan.demand.as_ref().map_or("", DemandId::as_str),
                            host = %orphan.host,
                            gpus = orphan.gpu_count(),
                            "composition without an owner; {}",
                            release(orphan)
                        );
                    }
                    reported = orphaned.into_iter().map(|orphan| orphan.id).collect();
                }
                Err(error) => tracing::debug!(%error, "orphaned compositions not looked for"),
            }
            tokio::time::sleep(SWEEP).await;
        }
    }

    pub(super) async fn owners_check(&self) -> Result<Check, ServiceError> {
        let orphaned = self.orphaned_compositions().await?;
        if let Some(damaged) = self.hides_demands() {
            let hint = "recover the damaged documents, then repeat: poolwright doctor";
            return Ok(Check::warning(
                "owners",
                format!("unknown while {damaged} is damaged"),
                hint,
            ));
        }
        let Some(first) = orphaned.first() else {
            return Ok(Check::ok("owners", "every composition has its owner"));
        };
        let named: Vec<String> = orphaned.iter().map(described).collect();
        Ok(Check::problem("owners", named.join("; "), release(first)))
    }
}

fn described(orphan: &Composition) -> String {
    let gpus = gpus_of(orphan);
    let demand = orphan.demand.as_ref().map_or("", DemandId::as_str);
    format!(
        "composition {} holds {gpus} on {} for demand {demand}, which does not exist",
        orphan.id, orphan.host
    )
}

fn release(orphan: &Composition) -> String {
    format!(
        "add the demand again, or release it: poolwright release composition/{}",
        orphan.id
    )
}
