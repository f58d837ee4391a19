//! A job is told before it is stopped, where it names a hook for that: once, by the manager that decided it, after that
//! was kept. Whether the hook succeeds changes nothing; how it ended is kept with the job.

use super::Composer;
use super::lending::run_to_limit;
use crate::demand::DemandRecord;
use crate::error::ServiceError;
use crate::hooks::{HookCall, HookEnd, Occasion};
use crate::ladder::TELLING;
use jiff::Timestamp;
use poolwright_model::id::DemandId;
use poolwright_store::{Batch, StoreError, Stored, read};
use std::sync::Arc;

/// Tries to write down how a hook ended, while others change its job.
const TRIES: usize = 5;

impl Composer {
    /// Has the hook of a job run that is to be stopped, beside everything else.
    pub(super) fn tell_of_stop(&self, record: &DemandRecord) {
        let (Some(spec), Some(job)) = (&record.spec.queue, &record.job) else {
            return;
        };
        let (Some(hook), Some(stopping)) = (&spec.notify, &job.stopping) else {
            return;
        };
        let job_id = record.spec.id.clone();
        let call = HookCall {
            hook: hook.clone(),
            occasion: Occasion::Notice,
            schedule: None,
            attempt: 1,
            limit: TELLING,
            began: job.begun.unwrap_or(job.submitted),
            ends: stopping.at,
            due: None,
            borrowers: vec![job_id.clone()],
            lenders: Vec::new(),
            why: format!("it is stopped at {} for {}", stopping.at, stopping.r#for),
        };
        let (parts, hooks) = (Arc::downgrade(&self.parts), self.options.hooks.clone());
        self.go_on(async move {
            let end = run_to_limit(hooks.as_ref(), &call).await;
            let Some(composer) = Self::within(&parts) else {
                return;
            };
            if let Err(error) = composer.note_told(&job_id, call.ends, end).await {
                tracing::warn!(job = %job_id, hook = %call.hook, "how it ended can't be written down: {error}");
            }
        });
    }

    async fn note_told(&self, id: &DemandId, stops: Timestamp, end: HookEnd) -> Result<(), ServiceError> {
        for tries in 1.. {
            let _turn = self.turn.lock().await;
            let Some(mut found) = read::<DemandRecord>(self.store.as_ref(), id.as_str()).await? else {
                return Ok(());
            };
            let job = found.value.job.as_mut();
            let stopping = job.and_then(|job| job.stopping.as_mut());
            // What comes after it was stopped tells nothing new.
            let Some(stopping) = stopping.filter(|stopping| stopping.at == stops) else {
                return Ok(());
            };
            stopping.told = Some(end.clone());
            let mut batch = Batch::new();
            batch
                .expect(DemandRecord::KIND, id.as_str(), Some(found.revision))
                .put(&found.value)?;
            match self.store.commit(batch).await {
                Err(StoreError::Conflict { .. }) if tries < TRIES => {}
                done => return Ok(done.map(drop)?),
            }
        }
        Ok(())
    }
}
