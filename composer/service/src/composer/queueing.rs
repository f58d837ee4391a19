//! The queue at work: jobs begin in their order, are stopped where they may be and are in the way, and let go of their
//! GPUs when they are over.
//!
//! What is decided about a job is committed with its demand, as the demand was read, before anything is done: with the
//! first line of the operation that does it, or as what is to be done next. So each is done once, whoever else looks at
//! the queue, and a manager that comes back goes on from what is written. What a job begins with is planned anew in its
//! turn: what the outlook tried is not what is applied.

use super::planning::{How, Wanted};
use super::queued::Line;
use super::requests::Request;
use super::{Composer, keeping::DemandOf};
use crate::demand::{DemandRecord, Pending};
use crate::error::{ErrorCode, ServiceError};
use crate::job::{Because, Ended, Job, JobRun};
use jiff::{SignedDuration, Timestamp};
use poolwright_executor::{OperationKind, Paused};
use poolwright_model::id::DemandId;
use poolwright_planner::engine::observed::{Chosen, Outlook, Reservation, Verdict};
use poolwright_planner::{Composition, direct};
use poolwright_store::{Batch, Stored, Versioned, read, read_all};
use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::time::Duration;
use tokio::time::Instant;

/// Between two looks at jobs, where nobody tells that something has changed, and nothing is due.
const LOOK: Duration = Duration::from_secs(120);
/// The same where other managers may have changed something.
const LOOK_FOR_OTHERS: Duration = Duration::from_secs(15);
/// What is due sooner than this is announced now.
pub(super) const SOON: SignedDuration = SignedDuration::from_secs(5);
/// By whom operations of the queue are.
const QUEUE: &str = "queue";

/// A job as it was read.
pub(super) type Found = Versioned<DemandRecord>;

impl Composer {
    /// Sees to the jobs for as long as somebody waits for it.
    pub(crate) async fn keep_queueing(&self) {
        self.has_looked_at_all().await;
        loop {
            let began = Instant::now();
            let (known, due) = self.see_to_jobs().await.unwrap_or_else(|error| {
                tracing::warn!("jobs wait until the next look: {error}");
                (true, None)
            });
            let pause = match (known, self.options.sharing.is_some()) {
                (_, true) => Some(LOOK_FOR_OTHERS),
                (true, false) => Some(LOOK),
                (false, false) => None,
            };
            // Where a look takes long, most of the time is for others.
            let pause = pause.map(|pause| pause.max(began.elapsed() * 10));
            tokio::select! {
                biased;
                () = self.queue_changed.notified() => {}
                () = self.is_due(due), if due.is_some() => {}
                () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
        }
    }

    async fn is_due(&self, at: Option<Timestamp>) {
        let Some(at) = at else { return };
        while self.clock.now() < at {
            self.clock.sleep_until(at).await;
        }
    }

    /// All that is to be done for jobs now. Says whether there are any, and when the next of it is due.
    async fn see_to_jobs(&self) -> Result<(bool, Option<Timestamp>), ServiceError> {
        if self.jobs_as_read().await?.is_empty() {
            return Ok((false, None));
        }
        if self.queue_is_paused().await?.is_some() {
            return Ok((true, None));
        }
        self.settle_jobs().await?;
        self.held_up
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
        for found in self.jobs_as_read().await? {
            if found.value.job.as_ref().is_some_and(|job| job.stopping.is_some()) {
                self.climb_down(&found.value.spec.id).await?;
            }
        }
        // Forecasts alone rest on it, so that it keeps no job from its end.
        if let Err(error) = self.expect_overruns().await {
            tracing::warn!(%error, "expected ends of overrunning jobs are not updated");
        }
        for found in self.jobs_as_read().await? {
            if let Err(error) = self.see_to_end(&found).await {
                self.is_held_up(&found.value.spec.id, &error);
            }
        }
        let line = self.line().await?;
        let Outlook { places, stops } = line.observed().outlook();
        for stop in &stops {
            self.announce_stop(stop).await?;
        }
        for place in places {
            match place.verdict {
                Verdict::Starts(chosen) => {
                    if let Err(error) = self.begin_job(&place.demand, &chosen).await {
                        self.is_held_up(&place.demand, &error);
                    }
                }
                Verdict::Waits { reserved, .. } => {
                    if let Some(Reservation { starts_by, .. }) = reserved
                        && let Err(error) = self.note_reservation(&place.demand, starts_by).await
                    {
                        tracing::debug!(job = %place.demand, %error, "its reservation is noted at the next look");
                    }
                }
            }
        }
        Ok((true, line.due()))
    }

    /// Writes down when a job starts at the latest, once a place is reserved for it.
    async fn note_reservation(&self, id: &DemandId, starts_by: Timestamp) -> Result<(), ServiceError> {
        let is_known = |job: &Job| !job.waits() || job.starts_by.is_some();
        let read = read::<DemandRecord>(self.store.as_ref(), id.as_str()).await?;
        if read.is_none_or(|found| found.value.job.as_ref().is_none_or(is_known)) {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        if let Some((mut found, mut job)) = self.settled_job(id).await?
            && !is_known(&job)
        {
            job.starts_by = Some(starts_by);
            found.value.job = Some(job);
            self.store.commit(hung(&found)?).await?;
        }
        Ok(())
    }

    /// Why no job begins by itself just now, if none does.
    pub(super) async fn queue_is_paused(&self) -> Result<Option<String>, ServiceError> {
        let stops = |paused: &Paused| !matches!(paused, Paused::Endpoint(_) | Paused::Schedule(_));
        let pauses = self.pauses().await?;
        Ok(pauses
            .iter()
            .find(|pause| stops(&pause.what))
            .map(ToString::to_string))
    }

    /// All jobs, the decisions of their operations not looked at.
    async fn jobs_as_read(&self) -> Result<Vec<Found>, ServiceError> {
        let mut found = read_all::<DemandRecord>(self.store.as_ref()).await?;
        found.retain(|found| found.value.job.is_some());
        Ok(found)
    }

    /// Writes down what operations have decided about jobs.
    async fn settle_jobs(&self) -> Result<(), ServiceError> {
        let _turn = self.turn.lock().await;
        for found in self.jobs_as_read().await? {
            if found.value.pending.is_some() {
                self.settle(found).await?;
            }
        }
        Ok(())
    }

    /// Jobs that run longer than expected get a new expected end.
    async fn expect_overruns(&self) -> Result<(), ServiceError> {
        let now = self.clock.now();
        let mut overdue = self.jobs_as_read().await?;
        overdue.retain(|found| found.value.job.as_ref().is_some_and(|job| job.is_overdue(now)));
        if overdue.is_empty() {
            return Ok(());
        }
        let runs = self.run_times().await?;
        let _turn = self.turn.lock().await;
        for Found { value: record, .. } in overdue {
            if let Some((mut found, mut job)) = self.settled_job(&record.spec.id).await?
                && job.overruns(&record.spec.tenant, &runs, now)
            {
                found.value.job = Some(job);
                self.store.commit(hung(&found)?).await?;
            }
        }
        Ok(())
    }

    /// A job whose time is up is over; one that is over, or is to be stopped by now, lets go of what it holds.
    async fn see_to_end(&self, found: &Found) -> Result<(), ServiceError> {
        let (record, now) = (&found.value, self.clock.now());
        let (Some(job), Some(spec)) = (&record.job, &record.spec.queue) else {
            return Ok(());
        };
        if record.pending.is_some() || job.not_before.is_some_and(|at| at > now && job.begun.is_some()) {
            return Ok(());
        }
        if job.ended.is_some()
            || job
                .stopping
                .as_ref()
                .is_some_and(|stopping| stopping.lets_go(now))
        {
            return self.let_go_of_job(&record.spec.id).await;
        }
        if job.limit(spec).is_some_and(|limit| limit <= now) {
            let _turn = self.turn.lock().await;
            return self.end_job(found, Because::TimeLimit).await;
        }
        Ok(())
    }

    /// Writes down that a job is over, as it was read: its GPUs are let go of next. To be called with the turn.
    pub(super) async fn end_job(&self, found: &Found, because: Because) -> Result<(), ServiceError> {
        let mut record = found.value.clone();
        let spec = record.spec.queue.clone().unwrap_or_default();
        let Some((job, begun)) = record
            .job
            .as_mut()
            .and_then(|job| job.begun.map(|begun| (job, begun)))
        else {
            return Ok(());
        };
        let at = self.clock.now();
        job.ended = Some(Ended { at, because });
        (job.failures, job.not_before, job.failure) = (0, None, None);
        let held = self.held_for(&record.spec.id).await?;
        let run = JobRun {
            id: self.new_id(),
            demand: record.spec.id.clone(),
            tenant: record.spec.tenant.clone(),
            gpus: held.iter().map(Composition::gpu_count).sum(),
            kind: self.kind_held(&held).await?,
            submitted: job.submitted,
            begun,
            ended: at,
            because,
            said_s: spec.runs_for.and_then(|said| u64::try_from(said.as_secs()).ok()),
            expected_s: job
                .planned(&spec)
                .and_then(|ends| u64::try_from(ends.duration_since(begun).as_secs()).ok()),
        };
        let mut batch = Batch::new();
        batch
            .expect(DemandRecord::KIND, record.id(), Some(found.revision))
            .put(&record)?
            .put(&run)?;
        self.store.commit(batch).await?;
        tracing::info!(job = %record.spec.id, %because, "a job is over");
        self.queue_changed.notify_one();
        Ok(())
    }

    async fn held_for(&self, demand: &DemandId) -> Result<Vec<Composition>, ServiceError> {
        let held = self.held().await?;
        Ok(held
            .iter()
            .filter(|c| c.demand.as_ref() == Some(demand))
            .cloned()
            .collect())
    }

    pub(super) async fn kind_held(&self, held: &[Composition]) -> Result<Option<String>, ServiceError> {
        let snapshot = self.snapshot().await?;
        let first = held.iter().flat_map(Composition::gpus).next();
        Ok(first.and_then(|gpu| snapshot.topology.gpu(gpu)?.profile.clone()))
    }

    /// Lets go of what a job holds that is over or is stopped; one that is over is forgotten then.
    async fn let_go_of_job(&self, id: &DemandId) -> Result<(), ServiceError> {
        let how = How::default();
        let _turn = self.turn.lock().await;
        let Some((mut found, job)) = self.settled_job(id).await? else {
            return Ok(());
        };
        if job.ended.is_none() && job.stopping.is_none() {
            return Ok(());
        }
        let request = Request::new(
            OperationKind::Queue,
            format!("end job {id}"),
            &found.value.spec,
            QUEUE,
            &how,
        )?;
        let basis = self.basis(Wanted::Named).await?;
        let first = basis.held.iter().find(|c| c.demand.as_ref() == Some(id));
        let Some(first) = first.map(|c| c.id.clone()) else {
            return self.has_let_go(found, job).await;
        };
        // What is stopped makes way for somebody.
        if job.ended.is_some()
            && let Some(kept) = self.keep_in_place(&basis, &first).await?
        {
            let mut with = Batch::new();
            kept.add_to(&mut with)?;
            self.delete_demand(&mut with, &found, &kept.ids()).await?;
            self.store.commit(with).await?;
            return Ok(());
        }
        let plan = direct::release(&first, &self.input(&basis))?;
        let operation = self.new_operation();
        found.value.pending = Some(Pending::Releasing(operation.clone()));
        let with = hung(&found)?;
        self.submit(request, operation, plan, with).await?;
        Ok(())
    }

    /// A job that holds nothing (any more).
    async fn has_let_go(&self, mut found: Found, mut job: Job) -> Result<(), ServiceError> {
        let mut batch = Batch::new();
        if job.ended.is_some() {
            self.delete_demand(&mut batch, &found, &BTreeSet::new()).await?;
        } else {
            job.waits_again();
            found.value.job = Some(job);
            batch
                .expect(DemandRecord::KIND, found.value.id(), Some(found.revision))
                .put(&found.value)?;
        }
        self.store.commit(batch).await?;
        Ok(())
    }

    /// A job that no operation has in hand, as it is now.
    pub(super) async fn settled_job(&self, id: &DemandId) -> Result<Option<(Found, Job)>, ServiceError> {
        let Some(found) = read::<DemandRecord>(self.store.as_ref(), id.as_str()).await? else {
            return Ok(None);
        };
        let job = found.value.job.clone().filter(|_| found.value.pending.is_none());
        Ok(job.map(|job| (found, job)))
    }

    /// Gives a job its GPUs, these, if it can have them all.
    async fn begin_job(&self, id: &DemandId, chosen: &Chosen) -> Result<(), ServiceError> {
        match self.begin_job_now(id, chosen).await {
            Err(refused) if self.looked_again(&refused).await => self.begin_job_now(id, chosen).await,
            done => done,
        }
    }

    async fn begin_job_now(&self, id: &DemandId, chosen: &Chosen) -> Result<(), ServiceError> {
        let how = How::default();
        let _turn = self.turn.lock().await;
        let Some((mut found, mut job)) = self.settled_job(id).await? else {
            return Ok(());
        };
        if !job.waits() {
            return Ok(());
        }
        let record = &mut found.value;
        let request = Request::new(
            OperationKind::Queue,
            format!("begin job {id}"),
            &record.spec,
            QUEUE,
            &how,
        )?;
        let mut basis = self.basis(Wanted::Only(&record.demand)).await?;
        self.leave_out_stale(&mut basis);
        basis.only(chosen);
        // What these are guaranteed was left to them when the GPUs were chosen.
        basis.promises.waiting.clear();
        let taken_up = self.take_up_kept(&mut basis, &record.demand).await?;
        let plan = self.plan_beside_pauses(&basis).await?;
        if let Some(unplaced) = plan.unplaced.iter().find(|unplaced| unplaced.demand == *id) {
            let shortfall = unplaced.shortfall();
            return Err(ServiceError::new(ErrorCode::Unplaced, shortfall));
        }
        job.begun = Some(self.clock.now());
        record.job = Some(job);
        if plan.steps.is_empty() {
            // What was kept, or left of one of its name, is what it needs.
            let mut with = hung(&found)?;
            if let Some(taken_up) = taken_up {
                taken_up.add_to(&mut with)?;
            }
            self.nothing_to_do(request, plan, with).await?;
        } else {
            let operation = self.new_operation();
            record.pending = Some(Pending::Composing(operation.clone()));
            let with = hung(&found)?;
            self.submit(request, operation, plan, with).await?;
        }
        Ok(())
    }

    /// Notes why something could not be done for a job; the next look tries again.
    fn is_held_up(&self, id: &DemandId, error: &ServiceError) {
        tracing::debug!(job = %id, "not now: {error}");
        let mut held_up = self.held_up.lock().unwrap_or_else(PoisonError::into_inner);
        held_up.insert(id.clone(), error.message.clone());
    }

    /// Why it could not be done when it was tried last.
    pub(super) fn held_up(&self, id: &DemandId) -> Option<String> {
        let held_up = self.held_up.lock().unwrap_or_else(PoisonError::into_inner);
        held_up.get(id).cloned()
    }

    async fn line(&self) -> Result<Line, ServiceError> {
        let jobs = self.demands().await?;
        self.line_of(jobs).await
    }
}

/// A demand with the operation that its record names, written as it was read: two managers don't both begin it.
fn hung(found: &Found) -> Result<Batch, ServiceError> {
    let mut batch = Batch::new();
    batch
        .expect(DemandRecord::KIND, found.value.id(), Some(found.revision))
        .put(&found.value)?;
    if let Some(of) = DemandOf::of(&found.value) {
        batch.put(&of)?;
    }
    Ok(batch)
}
