//! Stopping what changes hardware, and letting it go on: everything, what runs by itself, or one endpoint.
//!
//! A pause is on the disk before it is answered, so it outlives a restart. While it holds, operations that
//! are under way send nothing more and say what they wait for; new ones are refused.

use super::Composer;
use super::failing::MANAGER;
use super::planning::endpoints_of;
use super::requests::Request;
use crate::error::{ErrorCode, ServiceError};
use crate::schedule::Schedule;
use poolwright_executor::{Pause, Paused};
use poolwright_model::id::ControlEndpointId;
use poolwright_planner::Plan;
use poolwright_store::{Batch, StoreError, Stored, read, read_all};
use std::collections::BTreeMap;

impl Composer {
    /// What is paused, by its name. Whatever is told here holds, and nothing else does: also where the answer to a
    /// pause or its end was lost.
    #[crate::boxed]
    pub async fn pauses(&self) -> Result<Vec<Pause>, ServiceError> {
        self.books.refresh(self.store.as_ref()).await?;
        let damage = self.pauses_for_damage();
        let pages = self.books.pages();
        let pauses: Vec<Pause> = pages.pauses.values().cloned().chain(damage).collect();
        // While nobody can turn the page: what is older never comes after what is newer.
        self.executor.set_pauses(pauses.clone());
        Ok(pauses)
    }

    /// The same, and the schedules that are paused: they hold nothing that has begun, and are somebody's pauses too.
    #[crate::boxed]
    pub async fn all_pauses(&self) -> Result<Vec<Pause>, ServiceError> {
        let mut pauses = self.pauses().await?;
        let schedules = read_all::<Schedule>(self.store.as_ref()).await?;
        pauses.extend(schedules.iter().filter_map(|found| found.value.pause()));
        Ok(pauses)
    }

    /// Stops something; what is on its way is answered and read back. What was paused before stays as it was,
    /// with who did it. Returns all that is paused.
    #[crate::boxed]
    pub async fn pause(&self, what: Paused, by: &str, reason: &str) -> Result<Vec<Pause>, ServiceError> {
        self.may_pause(&what).await?;
        match &what {
            Paused::Endpoint(endpoint) => self.endpoint(endpoint).await.map(drop)?,
            Paused::Restored => {
                let message = "whether the store was restored is known, and not for anybody to say";
                let error = ServiceError::new(ErrorCode::BadRequest, message);
                return Err(error.with_hint("to stop every change: poolwright pause --all"));
            }
            Paused::Damaged(_) => {
                let message = "only the manager pauses for a damaged document";
                let error = ServiceError::new(ErrorCode::BadRequest, message);
                return Err(error.with_hint("to stop every change: poolwright pause --all"));
            }
            Paused::Schedule(schedule) => {
                self.switch_schedule(schedule, true, by, reason).await?;
                return self.all_pauses().await;
            }
            Paused::All | Paused::Automation => {}
        }
        let _pausing = self.pausing.lock().await;
        let paused = self.pauses().await?.iter().any(|pause| pause.what == what);
        if !paused {
            let pause = Pause::new(what, by, reason, self.clock.now());
            let mut batch = Batch::new();
            batch.expect(Pause::KIND, pause.id(), None).put(&pause)?;
            self.store.commit(batch).await?;
            tracing::warn!("{pause}");
            self.pauses().await?;
        }
        self.all_pauses().await
    }

    /// Lets it go on. Other pauses stay: they are returned.
    #[crate::boxed]
    pub async fn resume(&self, what: &Paused, by: &str) -> Result<Vec<Pause>, ServiceError> {
        self.may_pause(what).await?;
        if let Paused::Damaged(document) = what {
            self.repair_damaged(document, by).await?;
            return self.go_on_after_damage().await;
        }
        if let Paused::Schedule(schedule) = what {
            // The calendar's turn is never waited for with the lock of pauses.
            is_among(&self.all_pauses().await?, what)?;
            self.switch_schedule(schedule, false, by, "").await?;
            return self.all_pauses().await;
        }
        let _pausing = self.pausing.lock().await;
        is_among(&self.all_pauses().await?, what)?;
        let mut batch = Batch::new();
        batch.delete(Pause::KIND, &what.to_string());
        if *what == Paused::Automation {
            // What failed so far counts no more.
            let mut automatic = self.automatic().await?;
            automatic.forgive();
            automatic.put_into(&mut batch)?;
        }
        if *what == Paused::Restored {
            batch.accept_restored();
        }
        self.store.commit(batch).await?;
        tracing::warn!("{what} goes on: resumed by {by}");
        self.pauses().await?;
        self.calendar_changed.notify_one();
        self.queue_changed.notify_one();
        self.all_pauses().await
    }

    /// Discards a damaged document that can't be repaired. Returns all that is paused then.
    #[crate::boxed]
    pub async fn discard(&self, document: &str, by: &str) -> Result<Vec<Pause>, ServiceError> {
        self.may_pause(&Paused::Damaged(document.to_owned())).await?;
        self.discard_damaged(document, by).await?;
        self.go_on_after_damage().await
    }

    async fn go_on_after_damage(&self) -> Result<Vec<Pause>, ServiceError> {
        self.pauses().await?;
        // Those that could not be read without this document.
        self.take_up_operations().await?;
        self.calendar_changed.notify_one();
        self.queue_changed.notify_one();
        self.all_pauses().await
    }

    /// What was paused before a restart is paused still; so is everything, where the store is an older state than
    /// the one that managers acted by. To be called before anything goes on.
    pub(super) async fn recall_pauses(&self) -> Result<(), ServiceError> {
        let mut told = self.pausing.lock().await;
        match self.store.restored().await? {
            Some(why) => {
                let pause = Pause::new(Paused::Restored, "the manager", &why, self.clock.now());
                self.keep_restored(&pause).await?;
                if told.as_ref() != Some(&why) {
                    tracing::warn!("{pause}");
                    *told = Some(why);
                }
            }
            None => *told = None,
        }
        // A pause must not wait while all documents are read.
        drop(told);
        self.poll_damage().await?;
        self.pauses().await.map(drop)
    }

    /// The endpoints that somebody paused, each with its pause. Where everything is paused, no endpoint is worse than
    /// another.
    pub(super) async fn paused_endpoints(&self) -> Result<BTreeMap<ControlEndpointId, Pause>, ServiceError> {
        let pauses = self.pauses().await?.into_iter();
        let at_one = pauses.filter_map(|pause| match &pause.what {
            Paused::Endpoint(endpoint) => Some((endpoint.clone(), pause)),
            Paused::All
            | Paused::Automation
            | Paused::Restored
            | Paused::Damaged(_)
            | Paused::Schedule(_) => None,
        });
        Ok(at_one.collect())
    }

    /// Writes it down, unless somebody accepts in this moment what the store says.
    async fn keep_restored(&self, pause: &Pause) -> Result<(), ServiceError> {
        let known = read::<Pause>(self.store.as_ref(), pause.id()).await?;
        if known
            .as_ref()
            .is_some_and(|known| known.value.reason == pause.reason)
        {
            return Ok(());
        }
        let mut batch = Batch::new();
        let revision = known.map(|known| known.revision);
        batch.expect(Pause::KIND, pause.id(), revision).put(pause)?;
        let committed = match self.store.commit(batch).await {
            // Another manager was faster, with this or with the end of it; the next look tells.
            Err(StoreError::Conflict { .. }) => return Ok(()),
            committed => committed?,
        };
        if self.store.restored().await?.is_some() {
            return Ok(());
        }
        // It was accepted after we looked.
        let mut batch = Batch::new();
        batch
            .expect(Pause::KIND, pause.id(), Some(committed.revision))
            .delete(Pause::KIND, pause.id());
        match self.store.commit(batch).await {
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Nothing holds what is written at an endpoint beside operations.
    pub(super) async fn may_change(&self, endpoint: &ControlEndpointId) -> Result<(), ServiceError> {
        let pauses = self.pauses().await?;
        let holds = |pause: &&Pause| match &pause.what {
            Paused::All | Paused::Restored | Paused::Damaged(_) => true,
            // Pausing an endpoint for another's mark must not keep anybody from taking it over.
            Paused::Automation => false,
            Paused::Endpoint(paused) => paused == endpoint && pause.by != MANAGER,
            Paused::Schedule(_) => false,
        };
        match pauses.iter().find(holds) {
            Some(pause) => Err(held_by(pause)),
            None => Ok(()),
        }
    }

    /// Nothing holds a change that is about to begin.
    pub(super) async fn may_begin(&self, request: &Request<'_>, plan: &Plan) -> Result<(), ServiceError> {
        let endpoints = endpoints_of(plan);
        let pauses = self.pauses().await?;
        let held = pauses.iter().find(|pause| {
            let mut at = endpoints.iter();
            at.any(|endpoint| pause.holds(request.kind, endpoint))
        });
        held.map_or(Ok(()), |pause| Err(held_by(pause)))
    }
}

/// Refuses to let go on what is not paused, with all that is.
fn is_among(paused: &[Pause], what: &Paused) -> Result<(), ServiceError> {
    if paused.iter().any(|pause| pause.what == *what) {
        return Ok(());
    }
    let others: Vec<String> = paused.iter().map(ToString::to_string).collect();
    let hint = match others.is_empty() {
        true => "nothing is paused".to_owned(),
        false => others.join("; "),
    };
    Err(ServiceError::not_found("pause", &what.to_string()).with_hint(hint))
}

pub(super) fn held_by(pause: &Pause) -> ServiceError {
    let hint = match &pause.what {
        Paused::Damaged(_) => "nothing changed; poolwright doctor lists the recovery steps".to_owned(),
        what => format!("nothing was begun; let it go on first: {}", what.resume()),
    };
    ServiceError::new(ErrorCode::Conflict, pause.to_string()).with_hint(hint)
}
