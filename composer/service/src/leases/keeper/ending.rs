//! How leases end, and what a dead manager had at an endpoint.

use super::super::record::{Lease, ManagerRecord};
use super::{Leases, Mine, Takeover, lease_of};
use jiff::Timestamp;
use poolwright_store::{Batch, StoreError, Stored, read};
use tokio::time::Instant;

impl Leases {
    /// Ends this manager's life in order: what it was in charge of is anybody's at once. Only for one of which
    /// nothing is on its way any more.
    pub async fn give_back(&self, now: Timestamp) -> Result<(), StoreError> {
        let _turn = self.turn.lock().await;
        let (mine, beat) = {
            let mut state = self.state();
            state.over = true;
            (std::mem::take(&mut state.mine), state.beat.take())
        };
        let Some((_, me)) = beat else { return Ok(()) };
        let mut batch = Batch::new();
        for (id, Mine { revision, epoch, .. }) in mine {
            batch.expect(Lease::KIND, &id, Some(revision)).put(&Lease {
                id,
                epoch: epoch + 1,
                manager: None,
                after: None,
                since: now,
            })?;
        }
        batch.delete(ManagerRecord::KIND, &me.who.id);
        match self.store.commit(batch).await {
            // Somebody took over in the meantime.
            Err(StoreError::Conflict { .. }) => Ok(()),
            result => result.map(drop),
        }
    }

    /// The sessions of the manager before are ended at an endpoint that was taken over, or it has none: from
    /// here on only what was on its way then may still come.
    pub fn cut_off(&self, taken: &Takeover) {
        let mut state = self.state();
        if let Some(mine) = state.mine.get_mut(&lease_of(&taken.endpoint))
            && mine.epoch == taken.epoch
        {
            mine.cutting = None;
            mine.from = Some(Instant::now() + taken.write_deadline);
        }
    }

    /// The endpoint is not kept any more, so nothing is sent there and nobody need be in charge of it. What the manager
    /// before may have left there is not forgotten: should the endpoint be added again, whoever takes its lease ends that
    /// first.
    pub async fn abandon(&self, taken: &Takeover, now: Timestamp) -> Result<(), StoreError> {
        let _turn = self.turn.lock().await;
        let id = lease_of(&taken.endpoint);
        let mine = self.state().mine.get(&id).cloned();
        let Some(mine) = mine.filter(|mine| mine.epoch == taken.epoch) else {
            return Ok(());
        };
        let found = read::<Lease>(&*self.store, &id).await?;
        if let Some(found) = found.filter(|found| found.revision == mine.revision) {
            let mut batch = Batch::new();
            batch.expect(Lease::KIND, &id, Some(mine.revision)).put(&Lease {
                epoch: mine.epoch + 1,
                manager: None,
                since: now,
                ..found.value
            })?;
            match self.store.commit(batch).await {
                // Somebody took over in the meantime.
                Ok(_) | Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.state().mine.remove(&id);
        Ok(())
    }
}
