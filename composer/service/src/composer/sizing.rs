//! How large a job is.

use super::Composer;
use crate::demand::PoolKind;
use crate::error::ServiceError;
use crate::size::{Site, SizeAnswer, SizeRequest};
use poolwright_inventory::Snapshot;
use poolwright_model::topology::Gpu;
use std::collections::BTreeMap;

impl Composer {
    /// How much memory a job takes, and which sets of GPUs hold it. Nothing is changed by it.
    ///
    /// # Errors
    ///
    /// What is asked for is not known, or can't be; or so many ask that this one did not get its turn.
    #[crate::boxed]
    pub async fn size(&self, request: SizeRequest) -> Result<SizeAnswer, ServiceError> {
        let (pool, host_slots) = match request.pool {
            true => self.pool().await?,
            false => (Vec::new(), None),
        };
        let calibration = self.options.calibration.clone();
        let work = move || {
            request.answer(&Site {
                pool: &pool,
                host_slots,
                calibration: &calibration,
            })
        };
        self.sizing.work(work).await
    }

    /// The kinds that can be had, and how many GPUs the largest host takes.
    pub(super) async fn pool(&self) -> Result<(Vec<PoolKind>, Option<u32>), ServiceError> {
        let snapshot = self.snapshot().await?;
        Ok((pool_kinds(&snapshot), most_slots(&snapshot)))
    }
}

/// The kinds of movable GPUs in the pool, how many of each there are, in use or not, and how many are joined.
pub fn pool_kinds(snapshot: &Snapshot) -> Vec<PoolKind> {
    let mut kinds: BTreeMap<&str, Vec<&Gpu>> = BTreeMap::new();
    let gpus = snapshot.topology.gpus.iter();
    for gpu in gpus.filter(|gpu| gpu.composability.is_composable()) {
        if let Some(kind) = gpu.profile.as_deref() {
            kinds.entry(kind).or_default().push(gpu);
        }
    }
    let of = |(kind, gpus): (&str, Vec<&Gpu>)| PoolKind {
        kind: kind.to_owned(),
        count: u32::try_from(gpus.len()).unwrap_or(u32::MAX),
        island: snapshot.topology.largest_island(&gpus),
    };
    kinds.into_iter().map(of).collect()
}

/// GPUs that the largest host takes; `None` where no host is known.
pub fn most_slots(snapshot: &Snapshot) -> Option<u32> {
    snapshot
        .topology
        .hosts
        .iter()
        .map(|host| host.ports.iter().map(|port| port.slots).sum())
        .max()
}
