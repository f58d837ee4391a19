//! What people ask to be changed: compose, release, attach, detach. Each is a plan, made and begun in one
//! turn. Either the change begins, or nothing is different: what becomes of the demand is written down in the same
//! commit as the first line of the operation.

use super::Composer;
use super::keeping::there_is_one_already;
use super::planning::{How, Wanted};
use super::requests::{Change, Request};
use super::wanting::refuse_queue;
use crate::demand::{DemandRecord, DemandSpec, Pending};
use crate::error::{ErrorCode, ServiceError};
use crate::identity;
use poolwright_executor::OperationKind;
use poolwright_model::id::{CompositionId, DemandId, GpuId, HostId};
use poolwright_planner::direct::{self, Purpose};
use poolwright_planner::{Composition, Demand, Plan, PlanInput};
use poolwright_sizing::calibration::CALIBRATED;
use poolwright_store::{Batch, Stored, read};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// What to let go of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Release {
    /// A demand, with all that it holds.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    Demand(DemandId),
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    Composition(CompositionId),
}

/// Plans that other managers may be ahead of. Each time one of them has begun something.
const OUTRUN: usize = 20;

impl Composer {
    /// Serves one demand now, as well as what is served already. If it can't be served whole it is not kept.
    /// What is stale is given only where nothing else would do, and after another look at it.
    #[crate::boxed]
    pub async fn compose(&self, spec: DemandSpec, by: &str, how: &How) -> Result<Change, ServiceError> {
        let done = self.compose_or_look(&spec, by, how).await;
        if let (Err(refused), false) = (&done, how.dry_run) {
            self.note_refused(&spec, refused).await;
        }
        done
    }

    async fn compose_or_look(&self, spec: &DemandSpec, by: &str, how: &How) -> Result<Change, ServiceError> {
        let mut looked = false;
        for _ in 0..OUTRUN {
            match self.compose_now(spec.clone(), by, how).await {
                Err(refused) if self.was_outrun(&refused) => {}
                Err(refused)
                    if !looked && (self.looked_again(&refused).await || self.met_new(&refused).await?) =>
                {
                    looked = true;
                }
                done => return done,
            }
        }
        self.compose_now(spec.clone(), by, how).await
    }

    /// Whether another manager took meanwhile what this one had planned to take: then another plan may do.
    fn was_outrun(&self, refused: &ServiceError) -> bool {
        self.options.sharing.is_some() && refused.taken
    }

    async fn compose_now(&self, spec: DemandSpec, by: &str, how: &How) -> Result<Change, ServiceError> {
        let what = format!("compose demand {}", spec.id);
        let request = Request::new(OperationKind::Compose, what, &spec, by, how)?;
        let _turn = self.turn.lock().await;
        if let Some(done) = self.answered_before(&request).await? {
            return Ok(done);
        }
        let known = self.find_demand(&spec.id).await?;
        if known.is_some_and(|known| !known.dropped) {
            return Err(there_is_one_already(&spec.id));
        }
        refuse_queue(&spec, "is composed now")?;
        let mut record = match self.record_of(spec, None).await {
            Ok(record) => record,
            Err(error) => return Err(self.beside_observed(self.beside_silence(error)).await),
        };
        if let Some(course) = record
            .course
            .as_ref()
            .filter(|course| course.at(self.clock.now()).is_none())
        {
            let message = format!(
                "demand {} can't be composed now: {}",
                record.spec.id,
                course.tell(self.clock.now())
            );
            return Err(ServiceError::bad_request(message).with_hint(
                "keep it, and it is served by the clock: poolwright demand add NAME --phases FILE",
            ));
        }
        record.set_up_by = Some(by.to_owned());
        let id = record.demand.id.clone();
        let mut basis = self.basis(Wanted::Only(&record.demand)).await?;
        let taken_up = self.take_up_kept(&mut basis, &record.demand).await?;
        let whole = basis.clone();
        let left_out = self.leave_out_stale(&mut basis);
        let mut plan = self.plan_beside_returns(&basis, Some(&record)).await?;
        if left_out && plan.unplaced.iter().any(|unplaced| unplaced.demand == id) {
            plan = self.plan_beside_returns(&whole, Some(&record)).await?;
        }
        self.may_carry_out(request.kind, &plan).await?;
        if plan.composes.is_empty() {
            self.may_want([&record.spec])?;
        }
        if let Some(unplaced) = plan.unplaced.iter().find(|unplaced| unplaced.demand == id) {
            let error = ServiceError::new(ErrorCode::Unplaced, unplaced.shortfall());
            let help = unplaced
                .help()
                .unwrap_or_else(|| "name the GPUs that it needs".to_owned());
            let error = error.with_hint(help).with_details(unplaced.alternatives());
            return Err(self.beside_observed(self.beside_silence(error)).await);
        }
        let mut advice = self.advice_for(&record.demand, &plan).await?;
        advice.extend(self.at_closed_hosts(&plan.composes).await?);
        if how.dry_run {
            return Ok(Change {
                advice,
                ..self.would_do(plan)?
            });
        }
        let mut with = Batch::new();
        if let Some(taken_up) = taken_up {
            taken_up.add_to(&mut with)?;
        }
        if record.course.is_some() {
            self.note_calendar(&mut with, &[]).await?;
        }
        // It may hold already what it needs: what was left of one of its name.
        if plan.steps.is_empty() {
            self.add_to(&mut with, &record).await?;
            let done = self.nothing_to_do(request, plan, with).await?;
            // Its next phase begins by the clock.
            self.calendar_changed.notify_one();
            return Ok(Change { advice, ..done });
        }
        let operation = self.new_operation();
        record.pending = Some(Pending::Composing(operation.clone()));
        self.hang(&mut with, &record).await?;
        let change = self.submit(request, operation, plan, with).await?;
        Ok(Change { advice, ..change })
    }

    /// What to know when the demand's job is started on what the plan gives it, and what its size was corrected by.
    async fn advice_for(&self, demand: &Demand, plan: &Plan) -> Result<Vec<String>, ServiceError> {
        let given = plan
            .composes
            .iter()
            .filter(|c| c.demand.as_ref() == Some(&demand.id));
        let gpus: Vec<&GpuId> = given.flat_map(Composition::gpus).collect();
        let snapshot = self.snapshot().await?;
        let kind = gpus
            .first()
            .and_then(|gpu| snapshot.topology.gpu(gpu)?.profile.as_deref());
        let count = u32::try_from(gpus.len()).unwrap_or(u32::MAX);
        let need = &demand.need;
        let calibrated = need
            .explanation
            .iter()
            .filter(|line| line.starts_with(CALIBRATED));
        let advice = need.advice_on(kind, count).into_iter();
        Ok(advice.map(str::to_owned).chain(calibrated.cloned()).collect())
    }

    /// Lets go of a demand or of one composition. By force also where some of it is gone: that is given up.
    #[crate::boxed]
    pub async fn release(&self, what: Release, by: &str, how: &How) -> Result<Change, ServiceError> {
        self.release_as(OperationKind::Release, what, by, how).await
    }

    /// The same, as an operation of a kind of its own.
    pub(super) async fn release_as(
        &self,
        kind: OperationKind,
        what: Release,
        by: &str,
        how: &How,
    ) -> Result<Change, ServiceError> {
        let request = Request::new(kind, what.to_string(), &what, by, how)?;
        let mut holding = BTreeSet::new();
        if how.force.is_some() {
            // What is back by now is not given up.
            holding = self.endpoints_that_hold(&what).await?;
            self.look_again(&holding).await?;
        }
        let _turn = self.turn.lock().await;
        if let Some(done) = self.answered_before(&request).await? {
            return Ok(done);
        }
        let mut basis = self.basis(Wanted::Named).await?;
        let (composition, demand) = match what {
            Release::Demand(id) => {
                let first = basis.held.iter().find(|c| c.demand.as_ref() == Some(&id));
                (first.map(|c| c.id.clone()), Some(id))
            }
            Release::Composition(id) => {
                let named = basis.held.iter().find(|c| c.id == id);
                let demand = named.and_then(|c| c.demand.clone());
                (Some(id), demand)
            }
        };
        let record = match &demand {
            Some(id) => self.find_demand(id).await?,
            None => None,
        };
        let named = |c: &&Composition| {
            Some(&c.id) == composition.as_ref() || c.demand.is_some() && c.demand == demand
        };
        self.may_let_go(record.as_ref(), basis.held.iter().filter(named))
            .await?;
        if let Some(record) = &record {
            may_be_withdrawn(record)?;
            self.is_composed_by_none(record).await?;
        }
        let mut with = Batch::new();
        let before: BTreeSet<CompositionId> = basis.held.iter().filter(named).map(|c| c.id.clone()).collect();
        let given_up = match &composition {
            Some(id) if how.force.is_some() => self.give_up_lost(&mut basis, id, &mut with).await?,
            _ => Vec::new(),
        };
        let stands = |c: &&Composition| {
            Some(&c.id) == composition.as_ref() || c.demand.is_some() && c.demand == demand
        };
        let standing = basis.held.iter().find(stands).map(|c| c.id.clone());
        // One that nobody knows is refused by its name.
        let standing = standing.or_else(|| composition.filter(|_| given_up.is_empty()));
        if let (Some(composition), Some(record)) = (&standing, &record)
            && how.force.is_none()
            && let Some(kept) = self.keep_in_place(&basis, composition).await?
        {
            let plan = poolwright_planner::plan(&self.input(&basis.standing()));
            let advice = vec![kept.told()];
            if how.dry_run {
                return Ok(Change {
                    advice,
                    ..self.would_do(plan)?
                });
            }
            self.delete_record(&mut with, record, &kept.ids()).await?;
            kept.add_to(&mut with)?;
            let done = self.nothing_to_do(request, plan, with).await?;
            return Ok(Change { advice, ..done });
        }
        let plan = match (&standing, &demand) {
            (Some(composition), _) => direct::release(composition, &self.input(&basis))?,
            // It holds nothing, or nothing any more: nothing changes but what is written down.
            _ if record.is_some() || !given_up.is_empty() => {
                poolwright_planner::plan(&self.input(&basis.clone().standing()))
            }
            (None, Some(id)) => return Err(ServiceError::not_found("demand", id.as_str())),
            (None, None) => return Err(ServiceError::bad_request("name a demand or a composition")),
        };
        if how.dry_run {
            return Ok(Change {
                given_up,
                ..self.would_do(plan)?
            });
        }
        let done = if plan.steps.is_empty() {
            if let Some(record) = &record {
                // `give_up_lost` took these compositions out of the basis; this commit deletes them.
                let mut leaving = before;
                leaving.retain(|id| basis.held.iter().all(|c| c.id != *id));
                self.delete_record(&mut with, record, &leaving).await?;
            }
            self.nothing_to_do(request, plan, with).await?
        } else {
            let operation = self.new_operation();
            if let Some(record) = record {
                let pending = Some(Pending::Releasing(operation.clone()));
                self.hang(&mut with, &DemandRecord { pending, ..record }).await?;
            }
            self.submit(request, operation, plan, with).await?
        };
        if !given_up.is_empty() {
            let reason = how.force.as_deref().unwrap_or_default();
            tracing::warn!(?given_up, by, reason, "given up: not where they were put");
            // What was written of them is not newer than what they are.
            self.look_again(&holding).await?;
        }
        Ok(Change { given_up, ..done })
    }

    /// Deletes the record of a demand that is released, unless it is gone or something else is held for it.
    async fn delete_record(
        &self,
        with: &mut Batch,
        record: &DemandRecord,
        leaving: &BTreeSet<CompositionId>,
    ) -> Result<(), ServiceError> {
        match read::<DemandRecord>(self.store.as_ref(), record.id()).await? {
            Some(found) => self.delete_demand(with, &found, leaving).await,
            None => Ok(()),
        }
    }

    /// A demand that was there before its plan is named by no mark of the operation: what that builds would be left
    /// without a demand.
    async fn is_composed_by_none(&self, record: &DemandRecord) -> Result<(), ServiceError> {
        let id = record.demand.id.clone();
        match self.underway().await?.serving.remove(&id) {
            Some(operation) => Err(in_hand(&id, &Pending::Composing(operation))),
            None => Ok(()),
        }
    }

    /// Attaches GPUs by name to a host.
    #[crate::boxed]
    pub async fn attach(
        &self,
        gpus: &[GpuId],
        host: &HostId,
        by: &str,
        how: &How,
    ) -> Result<Change, ServiceError> {
        self.attach_for(gpus, host, &Purpose::default(), by, how).await
    }

    /// The same, in a composition that says what it is for. A tenant holds no more than it may.
    #[crate::boxed]
    pub async fn attach_for(
        &self,
        gpus: &[GpuId],
        host: &HostId,
        purpose: &Purpose,
        by: &str,
        how: &How,
    ) -> Result<Change, ServiceError> {
        let gpus = in_order(&self.meant(gpus).await?);
        let mut what = format!("attach {} to {host}", names(&gpus));
        if let Some(label) = &purpose.label {
            what += &format!(" for {label}");
        }
        if let Some(tenant) = &purpose.tenant {
            what += &format!(" for tenant {tenant}");
        }
        let request = || {
            let asked = (&gpus, host, purpose);
            Request::new(OperationKind::Attach, what.clone(), &asked, by, how)
        };
        let done = self
            .by_name(request, |input| direct::attach_for(&gpus, host, purpose, input))
            .await;
        self.told_who_has_them(done, &gpus).await
    }

    /// Attaches GPUs by name as a part of what was attached by name before.
    #[crate::boxed]
    pub async fn extend(
        &self,
        gpus: &[GpuId],
        composition: &CompositionId,
        by: &str,
        how: &How,
    ) -> Result<Change, ServiceError> {
        let gpus = in_order(&self.meant(gpus).await?);
        let what = format!("add {} to {composition}", names(&gpus));
        let request = || {
            Request::new(
                OperationKind::Attach,
                what.clone(),
                &(&gpus, composition),
                by,
                how,
            )
        };
        let done = self
            .by_name(request, |input| direct::extend(&gpus, composition, input))
            .await;
        self.told_who_has_them(done, &gpus).await
    }

    /// Exchanges GPUs of a composition that was attached by name: attaches `gains` and detaches `gives`, all or
    /// nothing.
    #[crate::boxed]
    pub async fn exchange(
        &self,
        gains: &[GpuId],
        gives: &[GpuId],
        composition: &CompositionId,
        by: &str,
        how: &How,
    ) -> Result<Change, ServiceError> {
        let (gains, gives) = (
            in_order(&self.meant(gains).await?),
            in_order(&self.meant(gives).await?),
        );
        let what = format!("give {composition} {} for {}", names(&gains), names(&gives));
        let asked = (&gains, &gives, composition);
        let request = || Request::new(OperationKind::Move, what.clone(), &asked, by, how);
        let plan = |input: &PlanInput<'_>| direct::exchange(&gains, &gives, composition, input);
        let done = self.by_name(request, plan).await;
        self.told_who_has_them(done, &gains).await
    }

    /// Detaches GPUs by name.
    #[crate::boxed]
    pub async fn detach(&self, gpus: &[GpuId], by: &str, how: &How) -> Result<Change, ServiceError> {
        let gpus = in_order(&self.meant(gpus).await?);
        let what = format!("detach {}", names(&gpus));
        let request = || Request::new(OperationKind::Detach, what.clone(), &gpus, by, how);
        self.by_name(request, |input| direct::detach(&gpus, input)).await
    }

    /// The answer to a detach that was made before under the same key: by now its GPUs may be elsewhere.
    #[crate::boxed]
    pub async fn detached_before(
        &self,
        gpus: &[GpuId],
        by: &str,
        how: &How,
    ) -> Result<Option<Change>, ServiceError> {
        let gpus = in_order(&self.meant(gpus).await?);
        let what = format!("detach {}", names(&gpus));
        self.answered_before(&Request::new(OperationKind::Detach, what, &gpus, by, how)?)
            .await
    }

    /// Moves GPUs that were attached by name to another host, all of them or none.
    #[crate::boxed]
    pub async fn move_to(
        &self,
        gpus: &[GpuId],
        host: &HostId,
        by: &str,
        how: &How,
    ) -> Result<Change, ServiceError> {
        let gpus = in_order(&self.meant(gpus).await?);
        let what = format!("move {} to {host}", names(&gpus));
        let request = || Request::new(OperationKind::Move, what.clone(), &(&gpus, host), by, how);
        self.by_name(request, |input| direct::move_to(&gpus, host, input))
            .await
    }

    /// GPUs by their ids, where somebody has named them by UUID or serial number, as hosts do.
    async fn meant(&self, gpus: &[GpuId]) -> Result<Vec<GpuId>, ServiceError> {
        let snapshot = self.snapshot().await?;
        let all = &snapshot.topology.gpus;
        let named: BTreeSet<&GpuId> = gpus.iter().collect();
        let known = all.iter().map(|gpu| &gpu.id).filter(|id| named.contains(id));
        let known: BTreeSet<&GpuId> = known.collect();
        let meant = |wanted: &GpuId| {
            if known.contains(wanted) {
                return Ok(wanted.clone());
            }
            let called = all.iter().filter(|gpu| identity::is_called(gpu, wanted.as_str()));
            let called: Vec<&str> = called.map(|gpu| gpu.id.as_str()).collect();
            match called[..] {
                // Who there is not is told by whoever plans.
                [] => Ok(wanted.clone()),
                [one] => Ok(GpuId::from_lossy(one)),
                _ => {
                    let message = format!("{wanted} may be {}", called.join(" or "));
                    Err(ServiceError::bad_request(message).with_hint("name it as `poolwright get gpus` does"))
                }
            }
        };
        gpus.iter().map(meant).collect()
    }

    async fn told_who_has_them(
        &self,
        done: Result<Change, ServiceError>,
        gpus: &[GpuId],
    ) -> Result<Change, ServiceError> {
        match done {
            Err(refused) => Err(self.or_who_has_them(refused, gpus).await),
            done => done,
        }
    }

    /// What is asked for by the names of GPUs; once more where it rests on what is stale, and that was looked at again.
    async fn by_name<'a>(
        &self,
        request: impl Fn() -> Result<Request<'a>, ServiceError>,
        plan: impl Fn(&PlanInput<'_>) -> Result<Plan, direct::Refusal>,
    ) -> Result<Change, ServiceError> {
        let mut done = self.by_name_now(request()?, &plan).await;
        for _ in 0..OUTRUN {
            match &done {
                // Others took something across the same uplinks meanwhile, where there may be room still.
                Err(refused) if self.was_outrun(refused) && self.has_uplinks() => {
                    done = self.by_name_now(request()?, &plan).await;
                }
                _ => break,
            }
        }
        match done {
            Err(refused) if self.looked_again(&refused).await => self.by_name_now(request()?, &plan).await,
            done => done,
        }
    }

    async fn by_name_now(
        &self,
        request: Request<'_>,
        plan: impl Fn(&PlanInput<'_>) -> Result<Plan, direct::Refusal>,
    ) -> Result<Change, ServiceError> {
        let turn = self.turn.lock().await;
        if let Some(done) = self.answered_before(&request).await? {
            return Ok(done);
        }
        let basis = self.basis(Wanted::Named).await?;
        let plan = match plan(&self.input(&basis)) {
            Ok(plan) => plan,
            Err(refused) => return Err(self.or_retired(refused).await),
        };
        self.may_carry_out(request.kind, &plan).await?;
        self.within_what_tenants_may_hold(&plan).await?;
        self.spares_owed(&basis, &plan).await?;
        // Whoever asks the same again under its key waits for the answer; and what a tenant may hold is counted of what was
        // written down.
        let counts = plan.composes.iter().any(|composed| composed.tenant.is_some());
        if request.how.dry_run || plan.steps.is_empty() || request.how.key.is_some() || counts {
            return self.begin(request, plan).await;
        }
        let operation = self.new_operation();
        let _kept = self.keep_for(&operation, &request, &plan);
        drop(turn);
        self.submit(request, operation, plan, Batch::new()).await
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Demand(id) => write!(f, "release demand {id}"),
            Self::Composition(id) => write!(f, "release composition {id}"),
        }
    }
}

/// Named twice, or in another order, it is the same request.
fn in_order(gpus: &[GpuId]) -> Vec<GpuId> {
    let set: BTreeSet<&GpuId> = gpus.iter().collect();
    set.into_iter().cloned().collect()
}

fn names(gpus: &[GpuId]) -> String {
    let names: Vec<&str> = gpus.iter().map(GpuId::as_str).collect();
    names.join(", ")
}

/// Whether somebody may take a demand back just now.
pub(super) fn may_be_withdrawn(record: &DemandRecord) -> Result<(), ServiceError> {
    let id = &record.spec.id;
    if let Some(schedule) = record.schedule.as_ref().filter(|_| !record.dropped) {
        return Err(ServiceError::new(
            ErrorCode::Conflict,
            format!("demand {id} belongs to schedule {schedule}"),
        )
        .with_hint(format!(
            "remove or pause the schedule: poolwright schedule pause {schedule}"
        )));
    }
    record
        .pending
        .as_ref()
        .map_or(Ok(()), |pending| Err(in_hand(id, pending)))
}

pub(super) fn in_hand(demand: &DemandId, pending: &Pending) -> ServiceError {
    let operation = pending.operation();
    let (doing, hint) = match pending {
        Pending::Composing(_) => ("composing", format!("poolwright ops cancel {operation}")),
        Pending::Releasing(_) => ("releasing", format!("poolwright ops wait {operation}")),
    };
    let message = format!("operation {operation} is {doing} demand {demand}");
    ServiceError {
        operation: Some(operation.to_string()),
        ..ServiceError::new(ErrorCode::Conflict, message).with_hint(hint)
    }
}
