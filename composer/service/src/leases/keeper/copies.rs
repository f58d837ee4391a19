//! Two managers whose data directories are copies of one another: the second refuses to serve.

use super::super::record::ManagerRecord;
use super::{Leases, longest_silence};
use jiff::Timestamp;
use poolwright_store::{StoreError, read_all};
use std::time::Duration;

/// Between two reads of the other managers' beats.
const READ: Duration = Duration::from_secs(1);

impl Leases {
    /// Another manager that is alive and has the id of this one's data directory. Waits until the beat of each such
    /// record changes or is overdue, except for earlier instances of this directory. To be called before the
    /// first round: this manager beats meanwhile, so that of two that start at the same time at least one finds the other.
    pub async fn living_copy(&self, now: Timestamp) -> Result<Option<ManagerRecord>, StoreError> {
        let mut beaten: Option<Duration> = None;
        loop {
            let at = self.sharing.clock.now();
            if beaten.is_none_or(|beaten| at.saturating_sub(beaten) >= self.sharing.pause()) {
                let _turn = self.turn.lock().await;
                self.beat(now).await?;
                beaten = Some(at);
            }
            let mut undecided = false;
            for found in read_all::<ManagerRecord>(&*self.store).await? {
                let (id, revision) = (found.value.who.id.clone(), found.revision);
                if found.value.who.home != self.sharing.home || self.has_ended_here(&id) {
                    continue;
                }
                // The first round continues to wait from this observation.
                let (first, since) = *self.state().beats.entry(id).or_insert((revision, at));
                if first != revision {
                    return Ok(Some(found.value));
                }
                undecided |= at.saturating_sub(since) <= longest_silence(&found.value);
            }
            if !undecided {
                return Ok(None);
            }
            tokio::time::sleep(READ).await;
        }
    }
}
