//! What runs by the clock: looks at the hardware, and recompositions when a window opens or closes.
//!
//! Whatever woke it, the runner asks what is wanted *now*, plans, and applies: an opening that was missed is
//! made up for at the next chance, and one that was done already finds nothing to do. An operation that
//! fails is tried again, less and less often, and told. One that takes long is not waited for when the
//! calendar goes on: what it has in hand is left alone, and the rest is seen to.

use crate::composer::{Change, Composer, How, Tell};
use crate::error::{ErrorCode, ServiceError};
use crate::schedule::{Calendar, next_change};
use jiff::Timestamp;
use poolwright_executor::{OperationKind, OperationState};
use poolwright_model::id::{OperationId, ScheduleId};
use poolwright_planner::{Plan, Unplaced};
use poolwright_store::{Batch, Stored};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The longest that one recomposition may take before it is told as late. It goes on.
const PATIENCE: Duration = Duration::from_secs(1800);
/// Between two tries, in real time; as often as was tried.
const AT_FIRST: Duration = Duration::from_secs(2);
/// So many tries come quickly one after the other.
const QUICK_TRIES: u32 = 5;
/// Then they come so much later, twice as late each time, until they come as seldom as this.
const LATER: Duration = Duration::from_secs(120);
const SELDOM: Duration = Duration::from_secs(1800);

/// What failed is not left for the night, because a box may be back in a minute; but whatever fails each time
/// is not asked of the hardware hundreds of times.
fn pause_after(failures: u32) -> Duration {
    if failures < QUICK_TRIES {
        return AT_FIRST * failures;
    }
    let doubled = (failures - QUICK_TRIES).min(10);
    (LATER * (1 << doubled)).min(SELDOM)
}

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
    let mut runner = Runner {
        composer: &composer,
        last_told: None,
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = runner.recompose() => {}
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

struct Runner<'a> {
    composer: &'a Composer,
    /// What was noted last of demands that could not be served: once is enough.
    last_told: Option<String>,
}

impl Runner<'_> {
    async fn recompose(&mut self) {
        let mut failures = 0;
        // Before the first wait: what was missed while nobody ran.
        loop {
            match self.recompose_now().await {
                Ok(()) => failures = 0,
                Err(error) => {
                    failures += 1;
                    tracing::warn!(failures, "the scheduled recomposition did not succeed: {error}");
                }
            }
            let calendars = self.composer.calendars().await.unwrap_or_else(|error| {
                tracing::error!("no schedule can be read, so none runs: {error}");
                Vec::new()
            });
            tokio::select! {
                () = self.next_change(&calendars) => failures = 0,
                // Somebody changed what is wanted, or what there is.
                () = self.composer.calendar_changed.notified() => {}
                () = tokio::time::sleep(pause_after(failures)), if failures > 0 => {}
            }
        }
    }

    /// Returns when a window opens or closes.
    async fn next_change(&self, calendars: &[Calendar]) {
        let clock = self.composer.clock();
        let Some(next) = next_change(calendars, clock.now()) else {
            return std::future::pending().await;
        };
        while clock.now() < next {
            clock.sleep_until(next).await;
        }
    }

    /// Makes what is wanted by schedules so, and waits until it is.
    async fn recompose_now(&mut self) -> Result<(), ServiceError> {
        let change = self.composer.calendar_change().await?;
        let calendars = self.composer.calendars().await?;
        if calendars.is_empty() && change.is_none() {
            return Ok(());
        }
        let at = self.composer.clock().now();
        let open = calendars.iter().filter(|calendar| calendar.window.is_open(at));
        let open: Vec<ScheduleId> = open.map(|calendar| calendar.id.clone()).collect();
        let plan = self.composer.plan().await?;
        let unserved = self.unserved(&plan).await?;
        let done = if plan.steps.is_empty() {
            self.tell_once(at, open, &unserved).await?;
            true
        } else {
            self.change(plan, &calendars, (at, open), &unserved).await?
        };
        match change {
            Some(change) if done => self.composer.calendar_followed(&change).await,
            _ => Ok(()),
        }
    }

    /// Applies a plan, waits for it, and notes how it went. Whether it is done: it may be late.
    async fn change(
        &mut self,
        plan: Plan,
        calendars: &[Calendar],
        (at, open): (Timestamp, Vec<ScheduleId>),
        unserved: &[String],
    ) -> Result<bool, ServiceError> {
        let run = |operation, outcome, succeeded| ScheduleRun {
            id: uuid::Uuid::now_v7().simple().to_string(),
            at,
            open,
            operation,
            outcome,
            succeeded,
        };
        let applied = self
            .composer
            .apply(plan, OperationKind::Schedule, "schedule", &How::default())
            .await;
        let (plan, operation) = match applied {
            Ok(Change {
                plan,
                operation: Some(operation),
            }) => (plan, operation.id),
            Ok(_) => return Ok(true),
            Err(error) => {
                self.note(&run(None, error.to_string(), false)).await?;
                return Err(error);
            }
        };
        let ended = tokio::select! {
            ended = self.composer.wait(&operation, PATIENCE) => ended,
            () = self.next_change(calendars) => {
                let now = self.composer.operation(&operation).await?;
                let waits = now.waits().join("; ");
                let late = format!("it is still {} ({waits}) when the calendar goes on", now.state);
                Err(ServiceError::new(ErrorCode::Timeout, late))
            }
        };
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => {
                // It goes on, and what it has in hand is left alone. At its end we look again.
                self.composer.follow(operation.clone(), Tell::HoweverItEnds);
                self.note(&run(Some(operation), error.to_string(), false)).await?;
                return Ok(false);
            }
        };
        let outcome = match ended.error() {
            None => [vec![plan.summary().to_string()], unserved.to_vec()]
                .concat()
                .join("; "),
            Some(error) => format!("{}: {error}", ended.state),
        };
        let done = ended.state == OperationState::Completed;
        self.last_told = Some(unserved.join("; "));
        self.note(&run(
            Some(operation),
            outcome.clone(),
            done && unserved.is_empty(),
        ))
        .await?;
        match done {
            true => Ok(true),
            false => Err(ServiceError::new(ErrorCode::Internal, outcome)),
        }
    }

    /// Why demands of schedules are not served although their windows are open.
    async fn unserved(&self, plan: &Plan) -> Result<Vec<String>, ServiceError> {
        if plan.unplaced.is_empty() {
            return Ok(Vec::new());
        }
        let demands = self.composer.demands().await?;
        let scheduled: BTreeSet<_> = demands
            .iter()
            .filter(|record| record.schedule.is_some())
            .map(|record| &record.demand.id)
            .collect();
        let unserved = plan.unplaced.iter().filter(|no| scheduled.contains(&no.demand));
        Ok(unserved.map(Unplaced::to_string).collect())
    }

    /// Notes what could not be served, where nothing else is to be done.
    async fn tell_once(
        &mut self,
        at: Timestamp,
        open: Vec<ScheduleId>,
        unserved: &[String],
    ) -> Result<(), ServiceError> {
        let outcome = unserved.join("; ");
        if self.last_told.as_ref() == Some(&outcome) {
            return Ok(());
        }
        if !unserved.is_empty() {
            let run = ScheduleRun {
                id: uuid::Uuid::now_v7().simple().to_string(),
                at,
                open,
                operation: None,
                outcome: outcome.clone(),
                succeeded: false,
            };
            self.note(&run).await?;
        }
        self.last_told = Some(outcome);
        Ok(())
    }

    async fn note(&self, run: &ScheduleRun) -> Result<(), ServiceError> {
        let mut batch = Batch::new();
        batch.put(run)?;
        self.composer.store().commit(batch).await?;
        Ok(())
    }
}

impl Composer {
    /// What ran by the clock, the latest last.
    pub async fn schedule_runs(&self) -> Result<Vec<ScheduleRun>, ServiceError> {
        let found = poolwright_store::read_all(self.store().as_ref()).await?;
        Ok(found.into_iter().map(|found| found.value).collect())
    }
}
