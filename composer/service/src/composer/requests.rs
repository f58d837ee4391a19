//! A request for a change, from whoever asks to the operation that makes it.
//!
//! A request may carry a key. What came of it is kept under the key, together with a digest of what was asked:
//! the same request again is told what became of the first one, another one is refused.

use super::Composer;
use super::following::Tell;
use super::planning::{How, Seen};
use crate::error::{ErrorCode, ServiceError};
use jiff::{SignedDuration, Timestamp};
use poolwright_executor::{
    CompositionRecord, Drivers, Key, KeyAnswer, KeyRecord, Operation, OperationKind, PlanRecord, Submission,
};
use poolwright_model::id::{CompositionId, GpuId, OperationId};
use poolwright_model::step::Verb;
use poolwright_planner::Plan;
use poolwright_store::{Batch, Stored, read};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Longer than anything that makes keys makes them.
const LONGEST_KEY: usize = 255;

/// What would be changed, and the operation that changes it; no operation for a dry run, and none where
/// nothing is to be changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Change {
    pub plan: Plan,
    pub operation: Option<Operation>,
    /// It was asked for before under the same key: this is what came of it then.
    #[serde(default)]
    pub replayed: bool,
    /// GPUs that are gone, and on which the claim ended without anything being asked of the hardware.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given_up: Vec<GpuId>,
    /// Advice for the start of the job, and the corrections of its size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<String>,
    /// Of a dry run: the steps of the plan that will be skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<SkippedStep>,
}

/// A step that only the host can carry out, and nothing that speaks for the host can be asked to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SkippedStep {
    /// The step's `index` in the plan.
    pub index: u32,
    pub reason: String,
}

impl Change {
    pub(super) fn none(plan: Plan) -> Self {
        Self {
            plan,
            operation: None,
            replayed: false,
            given_up: Vec::new(),
            advice: Vec::new(),
            skipped: Vec::new(),
        }
    }
}

/// Who asks for which kind of change, and how.
pub(super) struct Request<'a> {
    pub kind: OperationKind,
    pub by: &'a str,
    pub how: &'a How,
    /// `None` for a dry run too: it changes nothing, and is asked as often as somebody likes.
    key: Option<Key>,
    /// What is reserved in this one's name may be taken.
    pub reservation: Option<&'a str>,
}

impl<'a> Request<'a> {
    /// `what` is for people, such as `release demand chat`; `body` is all that was asked for.
    pub fn new(
        kind: OperationKind,
        what: String,
        body: &impl Serialize,
        by: &'a str,
        how: &'a How,
    ) -> Result<Self, ServiceError> {
        if how.partial_ok && !kind.may_be_partial() {
            let message =
                format!("to {what} is done as a whole or not at all: ask for it without partial_ok");
            return Err(ServiceError::bad_request(message));
        }
        let key = match &how.key {
            Some(key) if key.is_empty() || key.len() > LONGEST_KEY => {
                let message = format!("a key has 1 to {LONGEST_KEY} bytes, this one has {}", key.len());
                return Err(ServiceError::bad_request(message));
            }
            Some(key) if !how.dry_run => {
                let asked = (body, &how.force);
                // What is kept under keys of before there was more to ask for stays what it is.
                let key = match (how.partial_ok, how.deadline_s, how.allow_stale) {
                    (false, None, false) => Key::new(key, kind, what, &asked)?,
                    (true, None, false) => Key::new(key, kind, what, &(body, &how.force, "partial"))?,
                    more => Key::new(key, kind, what, &(asked, more))?,
                };
                Some(key.of(by))
            }
            _ => None,
        };
        Ok(Self {
            kind,
            by,
            how,
            key,
            reservation: None,
        })
    }
}

/// Refuses a plan that detaches more GPUs than the client allows. This is the plan that will run; an earlier dry run may
/// have shown another one.
fn check_max_detach(how: &How, plan: &Plan) -> Result<(), ServiceError> {
    let detached = plan.summary().gpus_unbound;
    match how.max_detach {
        Some(max) if detached > usize::try_from(max).unwrap_or(usize::MAX) => {
            let message = format!(
                "the change would detach {detached} GPUs, and at most {max} are allowed: nothing was changed"
            );
            Err(ServiceError::new(ErrorCode::Conflict, message)
                .with_hint("look at its dry run again, or allow more with max_detach (--max-detach)"))
        }
        _ => Ok(()),
    }
}

impl Composer {
    /// What came of the request, if it was made before under its key. Who may not ask in that way is refused first.
    pub(super) async fn answered_before(
        &self,
        request: &Request<'_>,
    ) -> Result<Option<Change>, ServiceError> {
        self.may_force(request.how)?;
        let Some(key) = &request.key else { return Ok(None) };
        let Some(known) = KeyRecord::find(self.store.as_ref(), &key.id).await? else {
            return Ok(None);
        };
        Ok(Some(match known.answer_to(key)? {
            KeyAnswer::Operation(id) => self.replayed(&id).await?,
            KeyAnswer::NothingToDo(plan) => Change {
                replayed: true,
                ..Change::none(*plan)
            },
        }))
    }

    /// The result of an account's release under a key. The released composition no longer exists to be looked up.
    #[crate::boxed]
    pub async fn released_under(&self, by: &str, key: &str) -> Result<Option<Change>, ServiceError> {
        let known = KeyRecord::find(self.store.as_ref(), &Key::id_of(by, key)).await?;
        let Some(KeyAnswer::Operation(id)) = known.map(|known| known.answer) else {
            return Ok(None);
        };
        match self.operation(&id).await? {
            operation if operation.kind == OperationKind::Release => self.replayed(&id).await.map(Some),
            _ => Ok(None),
        }
    }

    async fn replayed(&self, id: &OperationId) -> Result<Change, ServiceError> {
        let operation = self.operation(id).await?;
        Ok(Change {
            replayed: true,
            operation: Some(operation.clone()),
            ..Change::none(self.plan_of(&operation).await?)
        })
    }

    /// Begins the operation, with all that hangs on it, unless that is paused, or too much of what
    /// runs by itself. To be called with the turn.
    pub(super) async fn submit(
        &self,
        request: Request<'_>,
        id: OperationId,
        plan: Plan,
        mut with: Batch,
    ) -> Result<Change, ServiceError> {
        check_max_detach(request.how, &plan)?;
        self.keep_what_was_seen().await?;
        let automatic = request.kind.is_automatic();
        if automatic {
            self.pause_after_failures().await?;
        }
        self.may_begin(&request, &plan).await?;
        self.are_adopted(request.kind, &plan, &mut with).await?;
        self.is_fresh(&request, &plan)?;
        self.is_named_so(&plan, &mut with).await?;
        self.spares_reserved(&plan, request.reservation, &mut with)
            .await?;
        self.spares_retired_hosts(&plan, &mut with).await?;
        self.spares_closed(&plan, &mut with).await?;
        self.within_uplinks(&plan, request.reservation, &mut with).await?;
        let composed = plan.composes.iter().filter_map(|c| c.demand.clone());
        let composed = composed.collect();
        self.hold_for(&mut with, composed).await?;
        if let Some(seen) = &request.how.seen {
            self.is_as_seen(seen, &mut with).await?;
        }
        if automatic {
            self.is_believed(&plan)?;
            self.within_limits(&id, request.kind, &plan, &mut with).await?;
            self.note_beginning(&id, request.kind, request.by, &plan).await?;
        }
        let submission = Submission {
            id: id.clone(),
            plan: plan.clone(),
            kind: request.kind,
            tenant: None,
            by: request.by.to_owned(),
            key: request.key,
            force: request.how.force.clone(),
            deadline: self.deadline(request.how)?,
            allow_stale: request.how.allow_stale,
            partial_ok: request.how.partial_ok,
            with,
        };
        let begun = self.executor.submit(submission).await?;
        if begun != id {
            return self.replayed(&begun).await;
        }
        self.follow(id.clone(), Tell::UnlessTheRunnerWaits);
        Ok(Change {
            operation: Some(self.operation(&id).await?),
            ..Change::none(plan)
        })
    }

    /// A composition as it is now, for who shows it to a client before that client changes it.
    #[crate::boxed]
    pub async fn seen(&self, composition: &CompositionId) -> Result<Option<Seen>, ServiceError> {
        let found = read::<CompositionRecord>(self.store.as_ref(), composition.as_str()).await?;
        Ok(found.map(|found| Seen {
            composition: composition.clone(),
            revision: found.revision,
        }))
    }

    /// It is still so, no operation changes it just now, and it is written anew by the commit: of two who saw the same,
    /// the second is refused.
    async fn is_as_seen(&self, seen: &Seen, with: &mut Batch) -> Result<(), ServiceError> {
        let id = &seen.composition;
        let now = read::<CompositionRecord>(self.store.as_ref(), id.as_str()).await?;
        let Some(now) = now.filter(|now| now.revision == seen.revision) else {
            let text = format!("composition {id} was changed meanwhile");
            return Err(
                ServiceError::new(ErrorCode::Stale, text).with_hint("read it again, then repeat the change")
            );
        };
        if let Some(operation) = self.what_changes(id).await? {
            let text = format!("composition {id} is being changed by operation {operation}");
            return Err(
                ServiceError::new(ErrorCode::Stale, text).with_hint("read it again when that has ended")
            );
        }
        with.expect(CompositionRecord::KIND, id.as_str(), Some(seen.revision))
            .put(&now.value)?;
        Ok(())
    }

    /// The operation under way that changes a composition.
    async fn what_changes(&self, id: &CompositionId) -> Result<Option<OperationId>, ServiceError> {
        let claims = self.claims().await?.into_iter();
        let operations: BTreeSet<OperationId> = claims.map(|claim| claim.operation).collect();
        for operation in operations {
            let plan = self.plan_underway(&operation).await?;
            let changes = |plan: &Plan| {
                let mut changed = plan.releases.iter().chain(&plan.composes);
                changed.any(|one| one.id == *id)
            };
            if plan.is_some_and(|plan| changes(&plan)) {
                return Ok(Some(operation));
            }
        }
        Ok(None)
    }

    fn deadline(&self, how: &How) -> Result<Option<Timestamp>, ServiceError> {
        let Some(seconds) = how.deadline_s else {
            return Ok(None);
        };
        if seconds == 0 {
            return Err(
                ServiceError::bad_request("deadline_s is 0, and nothing is done in no time")
                    .with_hint("give the seconds after which it is undone, or none"),
            );
        }
        let deadline = self
            .clock
            .now()
            .checked_add(SignedDuration::from_secs(i64::from(seconds)));
        deadline
            .map(Some)
            .map_err(|error| ServiceError::bad_request(format!("deadline_s {seconds}: {error}")))
    }

    /// Begins the operation, unless only its plan is wanted or nothing is to be done.
    pub(super) async fn begin(&self, request: Request<'_>, plan: Plan) -> Result<Change, ServiceError> {
        if request.how.dry_run {
            return self.would_do(plan);
        }
        if plan.steps.is_empty() {
            return self.nothing_to_do(request, plan, Batch::new()).await;
        }
        let operation = self.new_operation();
        self.submit(request, operation, plan, Batch::new()).await
    }

    /// The answer to a dry run. A plan beside a damaged document may lack GPUs that are held.
    pub(super) fn would_do(&self, plan: Plan) -> Result<Change, ServiceError> {
        self.refuse_while_damaged()?;
        let at_host = plan
            .steps
            .iter()
            .filter(|step| matches!(step.verb, Verb::Drain | Verb::Ready));
        let skipped = at_host.filter(|step| self.connections.drains_at(&step.target.host).is_none());
        let skipped = skipped.map(|step| {
            let unchecked = match step.verb {
                Verb::Drain => ", use not checked",
                _ => "",
            };
            SkippedStep {
                index: step.index,
                reason: format!("no agent on {}{unchecked}", step.target.host),
            }
        });
        Ok(Change {
            skipped: skipped.collect(),
            ..Change::none(plan)
        })
    }

    /// Commits what is different although no operation is needed for it, and keeps that under the key.
    pub(super) async fn nothing_to_do(
        &self,
        request: Request<'_>,
        plan: Plan,
        mut with: Batch,
    ) -> Result<Change, ServiceError> {
        self.refuse_while_damaged()?;
        if let Some(Seen {
            composition,
            revision,
        }) = &request.how.seen
        {
            with.expect(CompositionRecord::KIND, composition.as_str(), Some(*revision));
        }
        if let Some(key) = &request.key {
            let answer = KeyAnswer::NothingToDo(Box::new(plan.clone()));
            KeyRecord::new(key, answer, self.clock.now()).add_to(&mut with)?;
        }
        self.store.commit(with).await?;
        Ok(Change::none(plan))
    }

    pub(super) async fn plan_of(&self, operation: &Operation) -> Result<Plan, ServiceError> {
        let found = read::<PlanRecord>(self.store.as_ref(), operation.id.as_str()).await?;
        let missing = || {
            let message = format!("plan {} of {} is gone", operation.plan, operation.id);
            ServiceError::new(ErrorCode::Internal, message)
        };
        found.map(|found| found.value.plan).ok_or_else(missing)
    }
}
