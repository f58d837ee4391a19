//! Which standing demands an open window has put aside: they are the clock's business until they are back.
//!
//! A window that is closed has put nothing aside. So it is written down, before a recomposition begins, which
//! demands open windows suspend, and forgotten once the pool is as the calendar wants it without them.

use super::Composer;
use crate::error::{ErrorCode, ServiceError};
use crate::schedule::Schedule;
use poolwright_model::id::DemandId;
use poolwright_store::{Batch, Stored, read, read_all};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Demands that open windows suspend, or have suspended, and that are not back yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PutAside(BTreeSet<DemandId>);

impl PutAside {
    const ID: &'static str = "now";
}

impl Stored for PutAside {
    const KIND: &'static str = "put-aside";
    fn id(&self) -> &str {
        Self::ID
    }
}

impl Composer {
    pub(super) async fn put_aside(&self) -> Result<BTreeSet<DemandId>, ServiceError> {
        let kept = read::<PutAside>(self.store.as_ref(), PutAside::ID).await?;
        Ok(kept.map(|kept| kept.value.0).unwrap_or_default())
    }

    /// Adds the demands that windows suspend which are open now, and returns those.
    pub(super) async fn note_put_aside(&self) -> Result<BTreeSet<DemandId>, ServiceError> {
        let now = self.clock.now();
        let calendars = self.calendars().await?;
        let open = calendars.into_iter().filter(|calendar| calendar.is_open(now));
        let suspended: BTreeSet<DemandId> = open.flat_map(|calendar| calendar.suspends).collect();
        let before = self.put_aside().await?;
        let all = before.union(&suspended).cloned().collect();
        self.keep_put_aside(&before, all).await?;
        Ok(suspended)
    }

    /// The pool is as the calendar wants it while these are suspended: all others are back.
    pub(crate) async fn all_back_but(&self, suspended: &BTreeSet<DemandId>) -> Result<(), ServiceError> {
        let before = self.put_aside().await?;
        let still = before.intersection(suspended).cloned().collect();
        self.keep_put_aside(&before, still).await
    }

    async fn keep_put_aside(
        &self,
        before: &BTreeSet<DemandId>,
        now: BTreeSet<DemandId>,
    ) -> Result<(), ServiceError> {
        if *before == now {
            return Ok(());
        }
        let mut batch = Batch::new();
        batch.put(&PutAside(now))?;
        self.store.commit(batch).await?;
        Ok(())
    }

    /// Refuses to forget a demand that a schedule suspends: its next window would let go of what the demand
    /// holds, though that is to wait for a plan.
    pub(super) async fn is_suspended_by_none(&self, id: &DemandId) -> Result<(), ServiceError> {
        let schedules = read_all::<Schedule>(self.store.as_ref()).await?;
        let suspends = |schedule: &Schedule| schedule.spec.suspends.contains(id);
        let Some(by) = schedules.into_iter().find(|found| suspends(&found.value)) else {
            return Ok(());
        };
        let schedule = by.value.spec.id;
        let message = format!("schedule {schedule} suspends demand {id}");
        Err(ServiceError::new(ErrorCode::Conflict, message).with_hint(format!(
            "remove the schedule first (poolwright schedule remove {schedule}), or let go of what the demand holds \
             at once: poolwright release {id}"
        )))
    }
}
