//! What is forgotten of the past, so that it does not grow for ever: operations and keys as the executor says,
//! what ran by the clock, what was turned away, jobs and sessions that are over, the audit log's beginning.
//!
//! The machine's clock may be wrong, and what is forgotten is gone. So the time up to which the past is forgotten is
//! kept, and comes nearer to the clock no faster than twice as fast as managers run.

use super::Composer;
use super::keeping::DemandOf;
use crate::error::ServiceError;
use crate::job::JobRun;
use crate::runner::ScheduleRun;
use jiff::{SignedDuration, Timestamp};
use poolwright_store::{Batch, Order, Stored, read, written};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What ran by the clock, and through the queue, is kept for as long as operations are.
const RUNS_KEPT: SignedDuration = SignedDuration::from_hours(90 * 24);
/// And not more than these: some three years of a schedule that opens and closes by day and by night.
const MOST_RUNS: u64 = 5_000;
/// Documents in one commit.
const AT_ONCE: u32 = 100;
/// Between two times, in real time.
const HOURLY: Duration = Duration::from_secs(3600);
/// Between two times at which what was turned away is written down.
const MINUTELY: Duration = Duration::from_secs(60);

/// By which time ages are reckoned of what may be forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reckoned {
    at: Timestamp,
}

impl Stored for Reckoned {
    const KIND: &'static str = "reckoned";
    fn id(&self) -> &'static str {
        "pruning"
    }
}

impl Composer {
    /// Forgets what is over and was kept for long enough.
    #[crate::boxed]
    pub async fn prune(&self, now: Timestamp) -> Result<(), ServiceError> {
        // What operations have decided about demands is written down before they are forgotten.
        self.settle_demands().await?;
        let pruned = self.executor.prune(now, &[DemandOf::KIND]).await?;
        let runs = self
            .prune_runs::<ScheduleRun>(now, |run| run.last_at.unwrap_or(run.at))
            .await?;
        let jobs = self.prune_runs::<JobRun>(now, |run| run.ended).await?;
        let turned_away = self.prune_turned_away(now).await?;
        let sessions = self.sessions().prune(now).await?;
        let audited = self.audit.prune(now).await?;
        tracing::debug!(
            pruned.operations,
            pruned.keys,
            runs,
            turned_away,
            jobs,
            sessions,
            audited,
            "forgotten, for they are old"
        );
        Ok(())
    }

    async fn prune_runs<T: Stored>(
        &self,
        now: Timestamp,
        ran: impl Fn(&T) -> Timestamp,
    ) -> Result<u64, ServiceError> {
        let store = self.store.as_ref();
        let mut left = store.count(T::KIND).await?;
        let mut forgotten = 0;
        loop {
            let page = written::<T>(store, Order::EarliestFirst { after: 0 }, AT_ONCE).await?;
            let mut batch = Batch::new();
            let mut old = 0;
            for found in &page {
                if now.duration_since(ran(&found.value)) <= RUNS_KEPT && left <= MOST_RUNS {
                    break;
                }
                batch.delete(T::KIND, found.value.id());
                (left, old) = (left.saturating_sub(1), old + 1);
            }
            if old == 0 {
                return Ok(forgotten);
            }
            store.commit(batch).await?;
            forgotten += old;
        }
    }

    /// Forgets what is old, for as long as somebody waits for it.
    pub(crate) async fn keep_pruning(&self) {
        loop {
            for _ in 0..HOURLY.as_secs() / MINUTELY.as_secs() {
                tokio::time::sleep(MINUTELY).await;
                self.write_turned_away().await;
                self.audit.write_denials().await;
            }
            if let Err(error) = self.prune_after(HOURLY).await {
                tracing::warn!("what is old is kept for another hour: {error}");
            }
        }
    }

    /// Forgets what is old after the manager has run for so long since it did so last.
    async fn prune_after(&self, ran: Duration) -> Result<(), ServiceError> {
        let now = self.clock.now();
        let known = read::<Reckoned>(self.store.as_ref(), Reckoned { at: now }.id()).await?;
        let nearer = |known: Timestamp| known.saturating_add(ran * 2).unwrap_or(Timestamp::MAX);
        let reckoned = Reckoned {
            at: known
                .as_ref()
                .map_or(now, |known| now.min(nearer(known.value.at))),
        };
        let mut batch = Batch::new();
        batch
            .expect(
                Reckoned::KIND,
                reckoned.id(),
                known.as_ref().map(|known| known.revision),
            )
            .put(&reckoned)?;
        self.store.commit(batch).await?;
        match known {
            Some(_) => self.prune(reckoned.at).await,
            // A clock that is right all this while comes first.
            None => Ok(()),
        }
    }
}
