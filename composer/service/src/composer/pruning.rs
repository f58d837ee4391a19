//! What is forgotten of the past, so that it does not grow for ever: operations and keys as the executor says,
//! what ran by the clock, and sessions that are over.

use super::Composer;
use super::keeping::DemandOf;
use crate::error::ServiceError;
use crate::runner::ScheduleRun;
use jiff::{SignedDuration, Timestamp};
use poolwright_store::{Batch, Order, Stored, written};
use std::time::Duration;

/// What ran by the clock is kept for as long as operations are.
const RUNS_KEPT: SignedDuration = SignedDuration::from_hours(90 * 24);
/// And not more than these: some three years of a schedule that opens and closes by day and by night.
const MOST_RUNS: u64 = 5_000;
/// Documents in one commit.
const AT_ONCE: u32 = 100;
/// Between two times, in real time.
const DAILY: Duration = Duration::from_secs(24 * 3600);

impl Composer {
    /// Forgets what is over and was kept for long enough.
    pub async fn prune(&self, now: Timestamp) -> Result<(), ServiceError> {
        // What operations have decided about demands is written down before they are forgotten.
        self.settle_demands().await?;
        let pruned = self.executor.prune(now, &[DemandOf::KIND]).await?;
        let runs = self.prune_runs(now).await?;
        let sessions = self.sessions().prune(now).await?;
        tracing::debug!(
            pruned.operations,
            pruned.keys,
            runs,
            sessions,
            "forgotten, for they are old"
        );
        Ok(())
    }

    async fn prune_runs(&self, now: Timestamp) -> Result<u64, ServiceError> {
        let store = self.store.as_ref();
        let mut left = store.count(ScheduleRun::KIND).await?;
        let mut forgotten = 0;
        loop {
            let page = written::<ScheduleRun>(store, Order::EarliestFirst { after: 0 }, AT_ONCE).await?;
            let mut batch = Batch::new();
            let mut old = 0;
            for found in &page {
                let ran = found.value.last_at.unwrap_or(found.value.at);
                if now.duration_since(ran) <= RUNS_KEPT && left <= MOST_RUNS {
                    break;
                }
                batch.delete(ScheduleRun::KIND, found.value.id());
                (left, old) = (left.saturating_sub(1), old + 1);
            }
            if old == 0 {
                return Ok(forgotten);
            }
            store.commit(batch).await?;
            forgotten += old;
        }
    }

    /// Forgets at once and then daily, for as long as somebody waits for it.
    pub(crate) async fn keep_pruning(&self) {
        loop {
            if let Err(error) = self.prune(self.clock.now()).await {
                tracing::warn!("what is old is kept until tomorrow: {error}");
            }
            tokio::time::sleep(DAILY).await;
        }
    }
}
