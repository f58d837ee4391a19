//! What a manager that starts looks at before it may be asked: what it knows nothing of, and that not for long.
//! Everything else is shown as it was, marked as such, until the clock comes round to it; a change reads again what it
//! rests on, and an operation that is carried on what it needs.

use super::Composer;
use crate::error::ServiceError;
use poolwright_executor::Paused;
use std::time::Duration;

/// For a look at what nothing is known of.
const FIRST: Duration = Duration::from_secs(10);
/// Between two looks at how far the first looks are.
const PAUSE: Duration = Duration::from_millis(100);

impl Composer {
    pub(super) async fn look_first(&self) -> Result<(), ServiceError> {
        // Where nobody looks by the clock, or a restored store is held against the hardware, nothing can wait.
        let restored = self
            .pauses()
            .await?
            .iter()
            .any(|pause| pause.what == Paused::Restored);
        if self.options.poll.is_none() || restored {
            return self.discover(&()).await.map(drop);
        }
        let unknown = self.recall_walks().await?;
        // With that it is known who speaks for whom.
        self.snapshot().await?;
        match tokio::time::timeout(FIRST, self.look_again(&unknown)).await {
            Ok(looked) => looked,
            Err(_) => {
                let after = FIRST.as_secs();
                tracing::warn!(
                    "what is not known of {} endpoints is not waited for after {after} s",
                    unknown.len()
                );
                Ok(())
            }
        }
    }

    /// Waits until every endpoint was looked at since the start, or one look's time is over: what the calendar does rests
    /// on all of them.
    pub(crate) async fn has_looked_at_all(&self) {
        let all = async {
            while self.not_looked_at().0 > 0 {
                tokio::time::sleep(PAUSE).await;
            }
        };
        if tokio::time::timeout(self.options.collect.endpoint_deadline, all)
            .await
            .is_err()
        {
            let (left, all) = self.not_looked_at();
            tracing::warn!(
                "{left} of {all} endpoints were not looked at yet; the calendar is followed without them"
            );
        }
    }
}
