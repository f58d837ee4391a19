//! What runs by the clock: looks at the hardware, and recompositions when a window opens or closes.
//!
//! Whatever woke it, the runner asks what is wanted *now*, plans, and applies: an opening that was missed is
//! made up for at the next chance, and one that was done already finds nothing to do. An operation that
//! fails is tried again a bounded number of times, and told.

use crate::composer::{Composer, How};
use crate::error::ServiceError;
use crate::schedule::next_change;
use jiff::Timestamp;
use poolwright_executor::{OperationKind, OperationState};
use poolwright_model::id::{OperationId, ScheduleId};
use poolwright_store::{Batch, Stored};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Tries of one recomposition before it waits for the next change.
const TRIES: u32 = 5;
/// The longest that one recomposition may take before it is told as late. It goes on.
const PATIENCE: Duration = Duration::from_secs(1800);
/// Between two tries, in real time.
const BETWEEN_TRIES: Duration = Duration::from_secs(2);

/// One recomposition by the clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleRun {
    pub id: String,
    pub at: Timestamp,
    /// Whose windows were open.
    pub open: Vec<ScheduleId>,
    pub operation: Option<OperationId>,
    /// For people.
    pub outcome: String,
    pub succeeded: bool,
}

impl Stored for ScheduleRun {
    const KIND: &'static str = "schedule-run";
    fn id(&self) -> &str {
        &self.id
    }
}

/// Runs until it is stopped.
pub async fn run(composer: Composer, stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = recompose(&composer) => {}
        () = poll(&composer) => {}
    }
}

async fn poll(composer: &Composer) {
    let Some(every) = composer.options().poll else {
        return std::future::pending().await;
    };
    loop {
        tokio::time::sleep(every).await;
        if let Err(error) = composer.discover(&()).await {
            tracing::warn!("the pool can't be looked at: {error}");
        }
    }
}

async fn recompose(composer: &Composer) {
    // Before the first wait: what was missed while nobody ran.
    let mut due = true;
    loop {
        if due {
            for attempt in 1..=TRIES {
                match composer.recompose_now().await {
                    Ok(()) => break,
                    Err(error) => {
                        tracing::warn!(attempt, "the scheduled recomposition did not succeed: {error}")
                    }
                }
                tokio::time::sleep(BETWEEN_TRIES * attempt).await;
            }
        }
        due = wait_for_change(composer).await;
    }
}

/// Waits until a window opens or closes (true), or until somebody changed what is wanted (true as well, if
/// there is any schedule).
async fn wait_for_change(composer: &Composer) -> bool {
    let calendars = composer.calendars().await.unwrap_or_else(|error| {
        tracing::error!("no schedule can be read, so none runs: {error}");
        Vec::new()
    });
    let before = composer.clock().now();
    let Some(next) = next_change(&calendars, before) else {
        composer.calendar_changed.notified().await;
        return true;
    };
    loop {
        tokio::select! {
            () = composer.clock().sleep_until(next) => {
                if composer.clock().now() >= next {
                    return true;
                }
            }
            () = composer.calendar_changed.notified() => return true,
        }
    }
}

impl Composer {
    /// Makes what is wanted by schedules so, and waits until it is.
    async fn recompose_now(&self) -> Result<(), ServiceError> {
        let calendars = self.calendars().await?;
        if calendars.is_empty()
            && !self
                .demands()
                .await?
                .iter()
                .any(|demand| demand.schedule.is_some())
        {
            return Ok(());
        }
        let at = self.clock().now();
        let plan = self.plan().await?;
        if plan.steps.is_empty() {
            return Ok(());
        }
        let open: Vec<ScheduleId> = calendars
            .iter()
            .filter(|calendar| calendar.window.is_open(at))
            .map(|calendar| calendar.id.clone())
            .collect();
        let applied = self
            .apply(plan, OperationKind::Schedule, "schedule", &How::default())
            .await;
        let run = |operation: Option<OperationId>, outcome: String, succeeded: bool| ScheduleRun {
            id: uuid::Uuid::now_v7().simple().to_string(),
            at,
            open: open.clone(),
            operation,
            outcome,
            succeeded,
        };
        let change = match applied {
            Ok(change) => change,
            Err(error) => {
                self.note(&run(None, error.to_string(), false)).await?;
                return Err(error);
            }
        };
        let Some(operation) = change.operation else {
            return Ok(());
        };
        let summary = change.plan.summary().to_string();
        let ended = self.wait(&operation.id, PATIENCE).await?;
        let succeeded = ended.state == OperationState::Completed;
        let outcome = match ended.error() {
            None => summary,
            Some(error) => format!("{}: {error}", ended.state),
        };
        self.note(&run(Some(operation.id), outcome.clone(), succeeded))
            .await?;
        if succeeded {
            return Ok(());
        }
        Err(ServiceError::new(crate::error::ErrorCode::Internal, outcome))
    }

    async fn note(&self, run: &ScheduleRun) -> Result<(), ServiceError> {
        let mut batch = Batch::new();
        batch.put(run)?;
        self.store().commit(batch).await?;
        Ok(())
    }

    /// What ran by the clock, the latest last.
    pub async fn schedule_runs(&self) -> Result<Vec<ScheduleRun>, ServiceError> {
        let found = poolwright_store::read_all(self.store().as_ref()).await?;
        Ok(found.into_iter().map(|found| found.value).collect())
    }
}
