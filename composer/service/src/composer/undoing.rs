//! Taking back an operation that is completed, by a new one that does the contrary: only where everything is
//! as it left it. Its demand goes with it: what it composed is withdrawn, what it released is wanted again.

use super::Composer;
use super::changing::may_be_withdrawn;
use super::keeping::{DemandOf, there_is_one_already};
use super::planning::{How, Wanted, endpoints_of};
use super::requests::{Change, Request};
use crate::demand::{DemandRecord, Pending};
use crate::error::{ErrorCode, ServiceError};
use crate::schedule::Schedule;
use poolwright_executor::{CompositionRecord, Operation, OperationKind, OperationState};
use poolwright_model::id::{DemandId, OperationId};
use poolwright_planner::undo::{Refusal, undo};
use poolwright_planner::{Composition, Plan};
use poolwright_store::{Batch, read, read_all};
use std::collections::BTreeSet;

impl Composer {
    /// Takes an operation back: what it bound is unbound, what it unbound is bound again where it was.
    #[crate::boxed]
    pub async fn undo_operation(
        &self,
        id: &OperationId,
        by: &str,
        how: &How,
    ) -> Result<Change, ServiceError> {
        match self.undo_now(id, by, how).await {
            Err(refused) if self.looked_again(&refused).await => self.undo_now(id, by, how).await,
            done => done,
        }
    }

    async fn undo_now(&self, id: &OperationId, by: &str, how: &How) -> Result<Change, ServiceError> {
        let request = Request::new(OperationKind::Undo, format!("undo operation {id}"), id, by, how)?;
        if let Some(done) = self.answered_before(&request).await? {
            return Ok(done);
        }
        let operation = self.operation(id).await?;
        may_be_undone(&operation)?;
        let done = self.plan_of(&operation).await?;
        let done = done.without(&operation.units_left_out());
        self.look_again(&endpoints_of(&done)).await?;
        let _turn = self.turn.lock().await;
        if let Some(done) = self.answered_before(&request).await? {
            return Ok(done);
        }
        self.left_alone_since(id, &done).await?;
        self.not_by_the_clock(&operation, &done).await?;
        let basis = self.basis(Wanted::Named).await?;
        let plan = undo(&done, &self.input(&basis)).map_err(|refusal| changed(id, &refusal))?;
        self.may_carry_out(request.kind, &plan).await?;
        let operation = self.new_operation();
        let mut with = Batch::new();
        let comes_back = self.undo_demand(id, &operation, &mut with).await?;
        self.are_wanted(id, &done.releases, comes_back.as_ref()).await?;
        if how.dry_run {
            return self.would_do(plan);
        }
        self.submit(request, operation, plan, with).await
    }

    /// Nobody else has written about the compositions since.
    async fn left_alone_since(&self, id: &OperationId, done: &Plan) -> Result<(), ServiceError> {
        for Composition { id: composition, .. } in done.composes.iter().chain(&done.releases) {
            let found = read::<CompositionRecord>(self.store.as_ref(), composition.as_str()).await?;
            if let Some(later) = found.map(|found| found.value.operation).filter(|by| by != id) {
                let what = format!("operation {later} has changed composition {composition} since");
                return Err(
                    cannot(id, &what).with_hint(format!("undo that first: poolwright ops undo {later}"))
                );
            }
        }
        Ok(())
    }

    /// No schedule that runs would do it again at once.
    async fn not_by_the_clock(&self, operation: &Operation, done: &Plan) -> Result<(), ServiceError> {
        let id = &operation.id;
        let demands: BTreeSet<&DemandId> = demands_of(done.composes.iter().chain(&done.releases)).collect();
        for found in read_all::<Schedule>(self.store.as_ref()).await? {
            let Schedule { spec, .. } = &found.value;
            let concerned = demands.iter().find(|demand| found.value.concerns(demand));
            if let (false, Some(demand)) = (spec.paused, concerned) {
                let what = format!(
                    "schedule {} decides about demand {demand}, and would do it again",
                    spec.id
                );
                let hint = format!("pause it first: poolwright schedule pause {}", spec.id);
                return Err(cannot(id, &what).with_hint(hint));
            }
        }
        if operation.kind == OperationKind::Queue {
            let hint =
                "end the job, or take it out of the queue: poolwright demand done, poolwright demand remove";
            return Err(cannot(id, "the queue decides about its job, and would do it again").with_hint(hint));
        }
        // Composing a demand with phases can be undone: it is gone then.
        if operation.kind != OperationKind::Schedule {
            return Ok(());
        }
        for demand in demands {
            let record = self.find_demand(demand).await?;
            if record.is_some_and(|record| record.course.is_some()) {
                let what = format!("the phases of demand {demand} decide about it, and would do it again");
                return Err(cannot(id, &what).with_hint(format!("let go of it: poolwright release {demand}")));
            }
        }
        Ok(())
    }

    /// The demand that the operation decided about is decided the other way. Returns one that comes back.
    async fn undo_demand(
        &self,
        done: &OperationId,
        undoing: &OperationId,
        with: &mut Batch,
    ) -> Result<Option<DemandId>, ServiceError> {
        let Some(found) = read::<DemandOf>(self.store.as_ref(), done.as_str()).await? else {
            return Ok(None);
        };
        let then = found.value.record;
        let id = then.spec.id.clone();
        let now = self.find_demand(&id).await?;
        match (&then.pending, now) {
            (Some(Pending::Composing(_)), Some(now)) if now.spec == then.spec => {
                may_be_withdrawn(&now)?;
                let pending = Some(Pending::Releasing(undoing.clone()));
                self.hang(with, &DemandRecord { pending, ..now }).await?;
                Ok(None)
            }
            (Some(Pending::Composing(_)), Some(_)) => {
                Err(cannot(done, &format!("demand {id} is another one by now")))
            }
            (Some(Pending::Releasing(_)), Some(_)) => Err(there_is_one_already(&id)),
            (Some(Pending::Releasing(_)), None) => {
                let pending = Some(Pending::Composing(undoing.clone()));
                let record = DemandRecord { pending, ..then };
                self.hang(with, &record).await?;
                Ok(Some(id))
            }
            (Some(Pending::Composing(_)) | None, _) => Ok(None),
        }
    }

    /// What is bound again is wanted by somebody: else the next plan would let go of it.
    async fn are_wanted(
        &self,
        id: &OperationId,
        again: &[Composition],
        comes_back: Option<&DemandId>,
    ) -> Result<(), ServiceError> {
        for demand in demands_of(again.iter()) {
            if comes_back != Some(demand) && self.find_demand(demand).await?.is_none() {
                return Err(
                    cannot(id, &format!("demand {demand}, for which it was held, is gone"))
                        .with_hint("add it again first: poolwright demand add"),
                );
            }
        }
        Ok(())
    }
}

fn demands_of<'a>(compositions: impl Iterator<Item = &'a Composition>) -> impl Iterator<Item = &'a DemandId> {
    compositions.filter_map(|composition| composition.demand.as_ref())
}

fn cannot(id: &OperationId, why: &str) -> ServiceError {
    ServiceError {
        operation: Some(id.to_string()),
        ..ServiceError::new(
            ErrorCode::Conflict,
            format!("operation {id} can't be undone: {why}"),
        )
    }
}

fn changed(id: &OperationId, refusal: &Refusal) -> ServiceError {
    let hint = match refusal {
        Refusal::Gone(refusal) => ServiceError::from(refusal.clone()).hint,
        _ => Some(
            "see what came after it: poolwright ops list; and what stands: poolwright get compositions"
                .to_owned(),
        ),
    };
    ServiceError {
        hint,
        ..cannot(id, &refusal.to_string())
    }
}

fn may_be_undone(operation: &Operation) -> Result<(), ServiceError> {
    let (id, state) = (&operation.id, operation.state);
    let (why, hint) = match state {
        OperationState::Completed if operation.kind == OperationKind::Adopt => (
            "it took over what was bound already, and moved nothing".to_owned(),
            Some("let go of what is not needed: poolwright release COMPOSITION".to_owned()),
        ),
        OperationState::Completed => return Ok(()),
        OperationState::RolledBack | OperationState::Cancelled => {
            (format!("it is {state}, so everything is as it was before"), None)
        }
        OperationState::Failed => (
            format!("it is {state}: somebody ended it with things as they were"),
            Some("release or detach what it left: poolwright get compositions".to_owned()),
        ),
        _ => (
            format!("it is {state}"),
            Some(format!(
                "stop it, and what it did is undone: poolwright ops cancel {id}"
            )),
        ),
    };
    let error = cannot(id, &why);
    Err(match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    })
}
