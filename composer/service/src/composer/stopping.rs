//! Jobs that make way: announced, told, asked and let go of, rung by rung ([`crate::stopping`]). Each rung is committed with
//! the job, as the job was read, before its hook is run; how the hook ended is kept with the job.

use super::Composer;
use super::lending::run_to_limit;
use super::queueing::{Found, SOON};
use crate::demand::DemandRecord;
use crate::error::ServiceError;
use crate::hooks::{HookCall, HookEnd, HookName, Occasion};
use crate::job::Job;
use crate::ladder::TELLING;
use crate::lend::{Asked, Next, Over};
use crate::stopping::Stopping;
use jiff::Timestamp;
use poolwright_model::id::DemandId;
use poolwright_planner::engine::observed::Stop;
use poolwright_store::{Batch, StoreError, Stored};
use std::sync::Arc;
use std::time::Duration;

/// Commits of one job in one look: a rung, its alert, its end, and some to spare.
const STEPS: usize = 6;
/// Tries to write down how a hook ended, while others change its job.
const TRIES: usize = 5;

impl Composer {
    /// Writes down that a job is to be stopped, once the time for its ladder has come.
    pub(super) async fn announce_stop(&self, stop: &Stop) -> Result<(), ServiceError> {
        let _turn = self.turn.lock().await;
        let Some((found, mut job)) = self.settled_job(&stop.demand).await? else {
            return Ok(());
        };
        let spec = found.value.spec.queue.clone().unwrap_or_default();
        let now = self.clock.now();
        let stopping = Stopping::new(&spec, now, stop.at, stop.label.clone());
        // No later than it could be told at the next look.
        let soon = now.saturating_add(spec.ladder().length() + SOON).unwrap_or(now);
        if !job.runs() || job.stopping.is_some() || stop.at > soon {
            return Ok(());
        }
        tracing::warn!(job = %stop.demand, at = %stopping.at, "a job is to be stopped for {}", stop.label);
        let why = stopping.to_string();
        job.stopping = Some(stopping);
        if self.keep_job(found, &job).await? {
            self.queue_changed.notify_one();
            let hook = spec.notify.map(|hook| (hook, TELLING));
            self.run_job_hook(&stop.demand, &job, hook, Occasion::Notice, 1, why);
        }
        Ok(())
    }

    /// Does what is due of the ladder of a job that is to be stopped.
    pub(super) async fn climb_down(&self, id: &DemandId) -> Result<(), ServiceError> {
        for _ in 0..STEPS {
            if !self.next_rung(id).await? {
                break;
            }
        }
        Ok(())
    }

    /// Whether something was kept, so that more may be due.
    async fn next_rung(&self, id: &DemandId) -> Result<bool, ServiceError> {
        // Reads many records: before the planning lock.
        let returns = self.measured().await?.of([id]).early();
        let _turn = self.turn.lock().await;
        let Some((found, mut job)) = self.settled_job(id).await? else {
            return Ok(false);
        };
        let spec = found.value.spec.queue.clone().unwrap_or_default();
        let now = self.clock.now();
        let again = job.not_before.zip(job.failure.as_deref());
        let runs = job.runs();
        let Some(stopping) = job.stopping.as_ref().filter(|_| runs) else {
            return Ok(false);
        };
        let late = stopping.will_be_late(&spec, again, returns, now);
        let next = stopping.next(&spec, returns, now);
        let Some(rungs) = job.stopping.as_mut().and_then(|stopping| stopping.rungs.as_mut()) else {
            return Ok(false);
        };
        let (occasion, attempt, hook, why) = match (late, next) {
            (Some(why), _) => {
                rungs.alerted = Some(now);
                tracing::warn!(job = %id, "it makes way late: {why}");
                let hook = spec.alert.map(|hook| (hook, TELLING));
                (Occasion::Alert, 1, hook, why)
            }
            (None, Next::Ask(attempt)) => {
                rungs.asked = Some(Asked {
                    attempt,
                    at: now,
                    ended: None,
                    refused: rungs.asked.as_ref().and_then(|asked| asked.refused),
                });
                let limit = spec.ladder().limit();
                let hook = spec.checkpoint.map(|hook| (hook, limit));
                (Occasion::Checkpoint, attempt, hook, String::new())
            }
            (None, Next::GiveUpAsking) => {
                if let Some(asked) = rungs.asked.as_mut() {
                    asked.cut_off(now);
                }
                return self.keep_job(found, &job).await;
            }
            (None, Next::End(because)) => {
                rungs.over = Some(Over { at: now, because });
                return self.keep_job(found, &job).await;
            }
            // It was told when it was announced.
            (None, Next::Wait(_) | Next::Notice) => return Ok(false),
        };
        let kept = self.keep_job(found, &job).await?;
        if kept {
            self.run_job_hook(id, &job, hook, occasion, attempt, why);
        }
        Ok(kept)
    }

    /// Keeps a job as it was read; `false` where another manager was faster.
    async fn keep_job(&self, mut found: Found, job: &Job) -> Result<bool, ServiceError> {
        found.value.job = Some(job.clone());
        let mut batch = Batch::new();
        batch
            .expect(DemandRecord::KIND, found.value.id(), Some(found.revision))
            .put(&found.value)?;
        match self.store.commit(batch).await {
            Err(StoreError::Conflict { .. }) => Ok(false),
            done => Ok(done.map(|_| true)?),
        }
    }

    /// Has a hook of a job run, if it names one, beside everything else.
    fn run_job_hook(
        &self,
        id: &DemandId,
        job: &Job,
        hook: Option<(HookName, Duration)>,
        occasion: Occasion,
        attempt: u32,
        why: String,
    ) {
        let rungs = job.stopping.as_ref().and_then(|stopping| stopping.rungs.as_ref());
        let (Some((hook, limit)), Some(rungs)) = (hook, rungs) else {
            return;
        };
        let call = HookCall {
            hook,
            occasion,
            schedule: None,
            gpu: None,
            attempt,
            limit,
            began: rungs.began,
            ends: rungs.ends,
            due: rungs.due,
            borrowers: vec![id.clone()],
            lenders: Vec::new(),
            why,
        };
        let (parts, hooks, id) = (
            Arc::downgrade(&self.parts),
            self.options.hooks.clone(),
            id.clone(),
        );
        self.go_on(async move {
            let end = run_to_limit(hooks.as_ref(), &call).await;
            let Some(composer) = Self::within(&parts) else {
                return;
            };
            if let Err(error) = composer.note_job_hook(&id, &call, end).await {
                tracing::warn!(job = %id, hook = %call.hook, "how it ended can't be written down: {error}");
            }
        });
    }

    async fn note_job_hook(&self, id: &DemandId, call: &HookCall, end: HookEnd) -> Result<(), ServiceError> {
        if call.occasion == Occasion::Alert && !end.is_success() {
            tracing::warn!(job = %id, hook = %call.hook, "nobody may have been told that it makes way late: {end}");
        }
        for _ in 0..TRIES {
            let _turn = self.turn.lock().await;
            let Some((found, mut job)) = self.settled_job(id).await? else {
                break;
            };
            let now = self.clock.now();
            let stopping = job.stopping.as_mut();
            // What comes after it was stopped tells nothing new.
            let Some(stopping) = stopping.filter(|stopping| stopping.is_of(call)) else {
                break;
            };
            if !stopping.note(call, end.clone(), now) || self.keep_job(found, &job).await? {
                break;
            }
        }
        self.queue_changed.notify_one();
        Ok(())
    }
}

impl Stopping {
    fn is_of(&self, call: &HookCall) -> bool {
        self.rungs.as_ref().is_some_and(|rungs| rungs.began == call.began)
    }

    /// Takes note of how a hook ended; whether that changed anything.
    fn note(&mut self, call: &HookCall, end: HookEnd, now: Timestamp) -> bool {
        match call.occasion {
            Occasion::Notice => self.told = Some(end),
            Occasion::Alert | Occasion::Quarantine | Occasion::BurnIn => return false,
            Occasion::Checkpoint => {
                let asked = self.rungs.as_mut().and_then(|rungs| rungs.asked.as_mut());
                // Whoever comes after it was given up tells nothing new.
                let asked = asked.filter(|asked| asked.attempt == call.attempt && asked.ended.is_none());
                let Some(asked) = asked else { return false };
                asked.end(now, end);
            }
        }
        true
    }
}
