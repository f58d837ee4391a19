//! Taking a GPU that failed out of use, and back: what failed is given to nobody before a burn-in has passed, whoever it
//! was that noticed. The scheduler is told by the hook `quarantine`, the burn-in is the hook `burn-in`; both are the
//! operator's, and know the GPU by its name.
//!
//! A job that uses it keeps it until it ends: a GPU in use is not pulled. Whoever wants GPUs gets another one with the
//! next plan.

use super::Composer;
use super::lending::run_to_limit;
use super::telling::{Thing, Turn, tell};
use crate::error::{ErrorCode, ServiceError};
use crate::hooks::{HookCall, HookEnd, HookName, HowItEnded, Occasion};
use crate::identity;
use crate::quarantine::{
    BurnIn, Cause, Evidence, Failure, GpuHistory, History, Quarantine, Replacement, Strike,
};
use crate::suspicion::Suspicion;
use jiff::{SignedDuration, Timestamp};
use poolwright_executor::{Claim, GpuRecord};
use poolwright_model::id::{GpuId, HostId};
use poolwright_model::topology::Gpu;
use poolwright_store::{Batch, StoreError, Stored, Versioned, read, read_all};
use std::sync::Arc;
use std::time::Duration;

const TELLS: &str = "quarantine";
const BURNS_IN: &str = "burn-in";
/// For telling the scheduler.
const TELLING: Duration = Duration::from_secs(60);
/// For a burn-in, at most.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// What is told of a failure, at most.
const MOST_WORDS: usize = 500;
/// Where others note something of the same GPU in the same moment.
const TRIES: usize = 20;

impl Composer {
    /// Those that are out of use, by their names.
    #[crate::boxed]
    pub async fn quarantined(&self) -> Result<Vec<Quarantine>, ServiceError> {
        self.books.refresh(self.store.as_ref()).await?;
        Ok(self.books.pages().quarantined.values().cloned().collect())
    }

    /// Takes a GPU out of use. One that is already counts the failure, and stays where it is.
    #[crate::boxed]
    pub async fn quarantine_gpu(
        &self,
        id: &GpuId,
        failure: &Failure,
        by: &str,
    ) -> Result<Quarantine, ServiceError> {
        self.quarantine_gpu_at(id, failure, by, None).await
    }

    /// The same, where a host tells of it: it failed there, wherever it may be by now.
    pub(super) async fn quarantine_gpu_at(
        &self,
        id: &GpuId,
        failure: &Failure,
        by: &str,
        host: Option<&HostId>,
    ) -> Result<Quarantine, ServiceError> {
        let cause = failure.cause;
        let says: String = failure
            .says
            .chars()
            .filter(|c| !c.is_control())
            .take(MOST_WORDS)
            .collect();
        let gpu = self.known_gpu(id).await?;
        let now = self.clock.now();
        let seen = Evidence::of(&gpu);
        let evidence = Evidence {
            firmware: self.firmware_of(failure, &gpu).await?,
            says,
            host: host.cloned().or(seen.host),
            ..seen
        };
        let (mut history, found) = self.gpu_history_of(id).await?;
        let known = read::<Quarantine>(self.store.as_ref(), id.as_str()).await?;
        let counted = failure.event.as_deref().is_some_and(|event| history.knows(event));
        if let Some(known) = known.as_ref().filter(|_| counted) {
            return Ok(known.value.clone());
        }
        let revision = known.as_ref().map(|known| known.revision);
        let is_new = known.is_none();
        let quarantine = known.map(|known| known.value).unwrap_or_else(|| Quarantine {
            gpu: id.clone(),
            since: now,
            by: by.to_owned(),
            cause,
            evidence: evidence.clone(),
            told: None,
            burn_in: None,
        });
        let mut batch = Batch::new();
        batch
            .expect(Quarantine::KIND, id.as_str(), revision)
            .put(&quarantine)?;
        history.strike(Strike {
            at: now,
            cause,
            evidence,
            event: failure.event.clone(),
        });
        batch.expect(GpuHistory::KIND, id.as_str(), found).put(&history)?;
        self.tell_of_gpu(&mut batch, &gpu, now)?;
        self.store.commit(batch).await?;
        if is_new {
            tracing::warn!(gpu = %id, %by, "out of use: {cause}");
            self.tell_the_scheduler(&quarantine);
            self.see_to_light(id);
        }
        Ok(quarantine)
    }

    /// Has a GPU burnt in, beside everything else; it is back in use once that passed.
    #[crate::boxed]
    pub async fn return_gpu(
        &self,
        id: &GpuId,
        limit: Duration,
        by: &str,
    ) -> Result<Quarantine, ServiceError> {
        let Versioned { mut value, revision } = self.kept_quarantine(id).await?;
        let hook = self.own_hook(BURNS_IN).ok_or_else(|| {
            let message = format!("this manager has no hook {BURNS_IN}, and a GPU is back only after a burn-in");
            ServiceError::new(ErrorCode::Conflict, message).with_hint(
                "name the command that burns a GPU in as burn-in in the file of poolwright serve --hooks; it finds the \
                 GPU in POOLWRIGHT_GPU",
            )
        })?;
        if limit.is_zero() || limit > LONGEST {
            let message = format!(
                "a burn-in takes some time, and {} h at most",
                LONGEST.as_secs() / 3600
            );
            return Err(ServiceError::bad_request(message));
        }
        let now = self.clock.now();
        if let Some(running) = value
            .burn_in
            .as_ref()
            .filter(|last| last.ended.is_none() && now < last.until)
        {
            let message = format!(
                "GPU {id} is being burnt in since {}, for {}",
                running.began, running.by
            );
            return Err(ServiceError::new(ErrorCode::Conflict, message)
                .with_hint(format!("see how it goes: poolwright gpu history {id}")));
        }
        // The hook is ended at its limit; a while later nobody runs it any more.
        let over = SignedDuration::try_from(limit + TELLING).unwrap_or(SignedDuration::MAX);
        value.burn_in = Some(BurnIn {
            began: now,
            by: by.to_owned(),
            until: now.saturating_add(over).unwrap_or(Timestamp::MAX),
            ended: None,
        });
        let mut batch = Batch::new();
        batch
            .expect(Quarantine::KIND, id.as_str(), Some(revision))
            .put(&value)?;
        self.store.commit(batch).await?;
        let call = self.call_for(hook, Occasion::BurnIn, limit, &value);
        self.run_beside(call, value.clone());
        Ok(value)
    }

    /// Another GPU came in the place of one that failed: each history names the other.
    #[crate::boxed]
    pub async fn replace_gpu(&self, old: &GpuId, new: &GpuId, by: &str) -> Result<History, ServiceError> {
        if old == new {
            return Err(ServiceError::bad_request(format!(
                "GPU {old} can't replace itself"
            )));
        }
        self.known_gpu(new).await?;
        let (mut before, before_at) = self.gpu_history_of(old).await?;
        if before_at.is_none() {
            self.known_gpu(old).await?;
        }
        let (mut after, after_at) = self.gpu_history_of(new).await?;
        for (history, other) in [(&before.replaced_by, new), (&after.replaces, old)] {
            if let Some(known) = history.as_ref().filter(|known| known.gpu != *other) {
                let message = format!(
                    "GPU {old} or {new} was replaced before: {} at {}",
                    known.gpu, known.at
                );
                return Err(ServiceError::new(ErrorCode::Conflict, message)
                    .with_hint(format!("see both: poolwright gpu history {old}")));
            }
        }
        let at = self.clock.now();
        let replacement = |gpu: &GpuId| {
            Some(Replacement {
                gpu: gpu.clone(),
                at,
                by: by.to_owned(),
            })
        };
        before.replaced_by = replacement(new);
        after.replaces = replacement(old);
        let mut batch = Batch::new();
        batch
            .expect(GpuHistory::KIND, old.as_str(), before_at)
            .put(&before)?;
        batch
            .expect(GpuHistory::KIND, new.as_str(), after_at)
            .put(&after)?
            // The link of a replaced GPU needs no inspection.
            .delete(Suspicion::KIND, old.as_str());
        self.store.commit(batch).await?;
        self.see_to_light(old);
        self.gpu_history(new).await
    }

    /// What a GPU has gone through, seen or not.
    #[crate::boxed]
    pub async fn gpu_history(&self, id: &GpuId) -> Result<History, ServiceError> {
        // Before the history: the end of a quarantine is one commit with the entry in the history that explains it.
        let quarantine = read::<Quarantine>(self.store.as_ref(), id.as_str()).await?;
        let (of, kept) = self.gpu_history_of(id).await?;
        let seen = self.known_gpu(id).await;
        let light = self.light_kept(id).await?;
        if kept.is_none() && light.is_none() {
            seen.as_ref().map_err(Clone::clone)?;
        }
        let here = seen.ok().map(|gpu| Evidence::of(&gpu));
        let last = of.strikes.last().map(|strike| strike.evidence.clone());
        let place = here.filter(|here| here.place().is_some()).or(last);
        let mut strikes_of_slot = 0;
        if let Some(place) = place.as_ref().and_then(Evidence::place) {
            let all = read_all::<GpuHistory>(self.store.as_ref()).await?;
            let strikes = all.iter().flat_map(|found| &found.value.strikes);
            strikes_of_slot = strikes
                .filter(|strike| strike.evidence.place() == Some(place))
                .count();
        }
        Ok(History {
            of,
            quarantine: quarantine.map(|found| found.value),
            light,
            strikes_of_slot,
        })
    }

    /// Firmware version from the failure report, else from the GPU box, else from the GPU's last host.
    async fn firmware_of(&self, failure: &Failure, gpu: &Gpu) -> Result<Option<String>, ServiceError> {
        if let Some(known) = failure.firmware.as_ref().or(gpu.firmware.as_ref()) {
            return Ok(Some(known.clone()));
        }
        let record = read::<GpuRecord>(self.store.as_ref(), gpu.id.as_str()).await?;
        Ok(record.and_then(|record| record.value.learned?.firmware))
    }

    pub(super) async fn known_gpu(&self, id: &GpuId) -> Result<Gpu, ServiceError> {
        let snapshot = self.snapshot().await?;
        let gpu = snapshot.topology.gpus.iter().find(|gpu| gpu.id == *id);
        gpu.cloned()
            .ok_or_else(|| ServiceError::not_found("GPU", id.as_str()))
    }

    async fn kept_quarantine(&self, id: &GpuId) -> Result<Versioned<Quarantine>, ServiceError> {
        let found = read::<Quarantine>(self.store.as_ref(), id.as_str()).await?;
        found.ok_or_else(|| {
            let message = format!("GPU {id} is not quarantined");
            ServiceError::new(ErrorCode::NotFound, message).with_hint("poolwright gpu list shows which are")
        })
    }

    pub(super) async fn gpu_history_of(&self, id: &GpuId) -> Result<(GpuHistory, Option<u64>), ServiceError> {
        let found = read::<GpuHistory>(self.store.as_ref(), id.as_str()).await?;
        Ok(match found {
            Some(Versioned { value, revision }) => (value, Some(revision)),
            None => (GpuHistory::of(id), None),
        })
    }

    fn tell_of_gpu(&self, batch: &mut Batch, gpu: &Gpu, at: Timestamp) -> Result<(), StoreError> {
        let (id, chassis) = (gpu.id.clone(), gpu.chassis.clone());
        tell(batch, at, Thing::Gpu { id, chassis }, Turn::Changed)
    }

    fn own_hook(&self, name: &str) -> Option<HookName> {
        let hook: HookName = name.parse().ok()?;
        self.options.hooks.knows(&hook).then_some(hook)
    }

    fn call_for(&self, hook: HookName, occasion: Occasion, limit: Duration, of: &Quarantine) -> HookCall {
        let began = self.clock.now();
        HookCall {
            hook,
            occasion,
            schedule: None,
            gpu: Some(of.gpu.clone()),
            attempt: 1,
            limit,
            began,
            ends: began,
            due: None,
            borrowers: Vec::new(),
            lenders: Vec::new(),
            why: of.tell(),
        }
    }

    fn tell_the_scheduler(&self, quarantine: &Quarantine) {
        if let Some(hook) = self.own_hook(TELLS) {
            let call = self.call_for(hook, Occasion::Quarantine, TELLING, quarantine);
            self.run_beside(call, quarantine.clone());
        }
    }

    fn run_beside(&self, call: HookCall, of: Quarantine) {
        let (parts, hooks) = (Arc::downgrade(&self.parts), self.options.hooks.clone());
        self.go_on(async move {
            let end = run_to_limit(hooks.as_ref(), &call).await;
            let Some(composer) = Self::within(&parts) else { return };
            let noted = match call.occasion {
                Occasion::BurnIn => composer.note_burn_in(&of, end).await,
                _ => composer.note_told(&of, end).await,
            };
            if let Err(error) = noted {
                tracing::warn!(gpu = %of.gpu, hook = %call.hook, "how it ended can't be written down: {error}");
            }
        });
    }

    async fn note_told(&self, of: &Quarantine, end: HookEnd) -> Result<(), ServiceError> {
        if !end.is_success() {
            tracing::warn!(gpu = %of.gpu, "the scheduler may not know that it is out of use: {end}");
        }
        self.change_quarantine(of, |value| value.told = Some(end.clone()))
            .await
    }

    /// What passed ends the quarantine, unless it failed again meanwhile.
    async fn note_burn_in(&self, of: &Quarantine, end: HookEnd) -> Result<(), ServiceError> {
        if !end.is_success() {
            tracing::warn!(gpu = %of.gpu, "its burn-in did not pass: {end}");
            return self.end_burn_in(of, end).await;
        }
        for _ in 0..TRIES {
            match self.try_to_return(of).await {
                // Something else was noted of it just now.
                Err(StoreError::Conflict { .. }) => {}
                done => return done?,
            }
        }
        // As a rule an operation has another GPU in hand that is taken for this one.
        tracing::info!(gpu = %of.gpu, "its burn-in passed: it is in use again once nothing moves what it was taken for");
        self.end_burn_in(of, end).await
    }

    /// Gives back to use those whose burn-in passed while something else was noted of them: by what is read back now.
    pub(super) async fn return_what_passed(&self) -> Result<(), ServiceError> {
        let passed = |of: &Quarantine| {
            let ended = of.burn_in.as_ref().and_then(|burn_in| burn_in.ended.as_ref());
            ended.is_some_and(HookEnd::is_success)
        };
        for of in self.quarantined().await?.into_iter().filter(passed) {
            match self.try_to_return(&of).await {
                // It still is so; at the next look again.
                Err(StoreError::Conflict { .. }) => {}
                done => done??,
            }
        }
        Ok(())
    }

    async fn try_to_return(&self, of: &Quarantine) -> Result<Result<(), ServiceError>, StoreError> {
        let began = began_of(of);
        let found = read::<Quarantine>(self.store.as_ref(), of.gpu.as_str()).await?;
        let Some(found) = found.filter(|found| began_of(&found.value) == began) else {
            // Another burn-in says whether it is well.
            return Ok(Ok(()));
        };
        let kept = read::<GpuHistory>(self.store.as_ref(), of.gpu.as_str()).await?;
        let at = kept.as_ref().map(|kept| kept.revision);
        let mut history = kept.map_or_else(|| GpuHistory::of(&of.gpu), |kept| kept.value);
        if history.strikes.iter().any(|strike| Some(strike.at) > began) {
            let because = "it failed again while it was burnt in".to_owned();
            let end = HookEnd::new(HowItEnded::NotRun { because }, "");
            return Ok(self.end_burn_in(of, end).await);
        }
        let now = self.clock.now();
        history.passed(now);
        let mut batch = Batch::new();
        batch
            .expect(Quarantine::KIND, of.gpu.as_str(), Some(found.revision))
            .delete(Quarantine::KIND, of.gpu.as_str())
            // The inspection covered the link.
            .delete(Suspicion::KIND, of.gpu.as_str());
        batch
            .expect(GpuHistory::KIND, of.gpu.as_str(), at)
            .put(&history)?;
        if let Ok(gpu) = self.known_gpu(&of.gpu).await {
            self.tell_of_gpu(&mut batch, &gpu, now)?;
        }
        match of.cause {
            Cause::Identity => self.settle_identity(&of.gpu, &mut batch).await?,
            _ => self.settle_left(&of.gpu, &mut batch).await?,
        }
        self.store.commit(batch).await?;
        self.lock_measured().forget(&of.gpu);
        tracing::info!(gpu = %of.gpu, "its burn-in passed: it is in use again");
        self.see_to_light(&of.gpu);
        Ok(Ok(()))
    }

    /// Somebody has looked at it: it is who it was seen to be last.
    async fn settle_identity(&self, gpu: &GpuId, batch: &mut Batch) -> Result<(), StoreError> {
        let found = read_all::<GpuRecord>(self.store.as_ref()).await?;
        for settled in identity::looked_at(gpu, found.iter().map(|found| &found.value)) {
            let known = found.iter().find(|found| found.value.gpu == settled.gpu);
            batch
                .expect(Claim::KIND, settled.unit.as_str(), None)
                .expect(
                    GpuRecord::KIND,
                    settled.gpu.as_str(),
                    known.map(|known| known.revision),
                )
                .put(&settled)?;
        }
        Ok(())
    }

    /// Somebody has looked at it: nothing is left of what its last host had set.
    async fn settle_left(&self, gpu: &GpuId, batch: &mut Batch) -> Result<(), StoreError> {
        let found = read::<GpuRecord>(self.store.as_ref(), gpu.as_str()).await?;
        if let Some(Versioned { mut value, revision }) = found.filter(|found| !found.value.left.is_empty()) {
            value.left.clear();
            batch
                .expect(Claim::KIND, value.unit.as_str(), None)
                .expect(GpuRecord::KIND, gpu.as_str(), Some(revision))
                .put(&value)?;
        }
        Ok(())
    }

    /// Notes how this burn-in ended, and of no other.
    async fn end_burn_in(&self, of: &Quarantine, end: HookEnd) -> Result<(), ServiceError> {
        let began = began_of(of);
        self.change_quarantine(of, |value| {
            if let Some(burn_in) = value.burn_in.as_mut().filter(|known| Some(known.began) == began) {
                burn_in.ended = Some(end.clone());
            }
        })
        .await
    }

    async fn change_quarantine(
        &self,
        of: &Quarantine,
        change: impl Fn(&mut Quarantine),
    ) -> Result<(), ServiceError> {
        for _ in 0..TRIES {
            let Some(found) = read::<Quarantine>(self.store.as_ref(), of.gpu.as_str()).await? else {
                return Ok(());
            };
            // Another one, by now.
            if found.value.since != of.since {
                return Ok(());
            }
            let mut value = found.value;
            change(&mut value);
            let mut batch = Batch::new();
            batch
                .expect(Quarantine::KIND, of.gpu.as_str(), Some(found.revision))
                .put(&value)?;
            match self.store.commit(batch).await {
                Err(StoreError::Conflict { .. }) => {}
                done => return Ok(done.map(drop)?),
            }
        }
        Err(noted_too_often(of))
    }
}

/// When the burn-in began that it is in.
fn began_of(of: &Quarantine) -> Option<Timestamp> {
    of.burn_in.as_ref().map(|burn_in| burn_in.began)
}

fn noted_too_often(of: &Quarantine) -> ServiceError {
    let message = format!("others note something of GPU {} again and again", of.gpu);
    ServiceError::new(ErrorCode::Unavailable, message).with_hint("have it burnt in once more")
}
