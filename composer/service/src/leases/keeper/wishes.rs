//! Leases that operations at several endpoints wait for: asked for here, and given way to there.

use super::super::record::Wish;
use super::{Found, Leases, endpoint_of, lease_of};
use poolwright_model::id::ControlEndpointId;
use poolwright_store::{Batch, StoreError, Stored};
use std::time::Duration;

impl Leases {
    /// What runs at an endpoint when somebody begins to wait for it has so long before it is paused. With the beats in
    /// which it is asked for, seen, given up and taken (five thirds of a term) nobody waits for 30 s with the product's
    /// term, but for what was sent.
    fn fair_turn(&self) -> Duration {
        self.sharing.pause() * 2
    }

    /// The endpoints that somebody else has waited for so long that what runs there is to pause.
    pub fn overdue(&self) -> Vec<ControlEndpointId> {
        let (now, fair_turn) = (self.sharing.clock.now(), self.fair_turn());
        let state = self.state();
        let overdue = state
            .wished
            .iter()
            .filter(|(_, since)| now.saturating_sub(**since) >= fair_turn);
        overdue.filter_map(|(id, _)| endpoint_of(id)).collect()
    }

    /// Takes note of what managers that live wait for, of what this one has.
    pub(super) fn note_wishes(&self, found: &Found) {
        let now = self.sharing.clock.now();
        let me = self.me().map(|me| me.id);
        let mut state = self.state();
        let before = std::mem::take(&mut state.wished);
        let wishes = found.wishes.iter().filter(|(id, wish)| {
            let manager = &wish.value.manager;
            state.mine.contains_key(*id)
                && Some(manager) != me.as_ref()
                && found.managers.contains_key(manager)
        });
        let wished = wishes
            .map(|(id, _)| (id.clone(), *before.get(id).unwrap_or(&now)))
            .collect();
        state.wished = wished;
    }

    /// Asks for what operations here wait for. Of an operation at several endpoints, the manager in charge of the
    /// first collects the others: so no two wait for each other.
    pub(super) async fn wish(&self, found: &Found) -> Result<(), StoreError> {
        let Some(me) = self.me() else { return Ok(()) };
        let wanted = std::mem::take(&mut self.state().wanted);
        for endpoints in wanted {
            let mut leases = endpoints.iter().map(lease_of);
            let first = leases.next();
            let collects = first.is_some_and(|first| self.state().mine.contains_key(&first));
            if !collects {
                continue;
            }
            for id in leases {
                let held = self.state().mine.contains_key(&id);
                if held || found.wishes.contains_key(&id) {
                    continue;
                }
                let wish = Wish {
                    id: id.clone(),
                    manager: me.id.clone(),
                };
                let mut batch = Batch::new();
                batch.expect(Wish::KIND, &id, None).put(&wish)?;
                match self.store.commit(batch).await {
                    Ok(_) | Err(StoreError::Conflict { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}
