//! How an operation begins: the claims, the plan, the idempotency key, whatever else hangs on it and the
//! first journal line, in one commit.

use crate::context::Context;
use crate::event::Event;
use crate::gpus::{self, Change, Gpus};
use crate::key::{Key, KeyAnswer, KeyRecord, KeyUsed};
use crate::line::{Line, Noted};
use crate::live::Live;
use crate::operation::{Operation, OperationKind, StepRecord};
use crate::record::{Claim, CompositionRecord, GpuRecord, PlanRecord};
use crate::state::OperationState;
use jiff::Timestamp;
use poolwright_model::id::{CompositionId, ControlEndpointId, GpuId, OperationId, TenantId, UnitId};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::step::{Target, Verb};
use poolwright_planner::reads::Standing;
use poolwright_planner::{Composition, Held, Plan};
use poolwright_store::{Batch, StoreError, Stored, read};
use std::collections::{BTreeMap, BTreeSet};

/// How often it is tried anew when something changed in between.
const TRIES: u32 = 8;

/// What somebody wants done.
#[derive(Debug, Clone)]
pub struct Submission {
    /// New for each submission: the caller has the randomness.
    pub id: OperationId,
    pub kind: OperationKind,
    pub plan: Plan,
    /// For whom, where it is for one tenant.
    pub tenant: Option<TenantId>,
    /// Who asks: a user, or the name of a schedule.
    pub by: String,
    /// The same request under the same key again is the same operation.
    pub key: Option<Key>,
    /// Why GPUs may be pulled although they are in use. `None`: they are not.
    pub force: Option<String>,
    /// What is not done by then is undone. `None`: it has all the time.
    pub deadline: Option<Timestamp>,
    /// Whether it rests on what was seen some time ago; it is kept with the operation.
    pub allow_stale: bool,
    /// Whether it goes on without what fails.
    pub partial_ok: bool,
    /// What is committed with it, or not at all: documents of the caller that hang on the operation, and
    /// what the caller expects of them.
    pub with: Batch,
}

/// Why nothing was begun. Nothing was changed, but for [`SubmitError::Unknown`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// Another operation has the unit in hand.
    #[error(
        "unit {unit} is in the hands of operation {operation}: wait for it (`poolwright ops wait {operation}`), or cancel it"
    )]
    Claimed { unit: UnitId, operation: OperationId },
    /// The GPU is in a state from which this can't begin.
    #[error("{gpu} is {state}, so it can't be {wanted}: make a new plan")]
    GpuState {
        gpu: GpuId,
        state: GpuState,
        /// `bound` or `released`.
        wanted: &'static str,
    },
    /// The unit is closed to this tenant.
    #[error("unit {unit}: {reason}: reset it first")]
    NotClean { unit: UnitId, reason: String },
    /// A composition is not as the plan takes it to be.
    #[error("composition {composition} is not as the plan saw it ({reason}): make a new plan")]
    Stale {
        composition: CompositionId,
        reason: String,
    },
    #[error("plan {plan} can't be run: {reason}")]
    BadPlan { plan: String, reason: String },
    #[error(transparent)]
    KeyUsed(#[from] KeyUsed),
    #[error("the manager is shutting down: try again once it is back")]
    Closing,
    /// The store did not say whether it committed the beginning. If it did, the operation goes on as soon as
    /// the store tells; nothing may be taken back on a guess.
    #[error("nobody knows yet whether operation {operation} was begun: {error}")]
    Unknown {
        operation: OperationId,
        error: StoreError,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A new operation, or the one that has this key already.
pub(crate) enum Submitted {
    New(Box<Live>),
    Known(OperationId),
}

pub(crate) async fn submit(cx: &Context, submission: Submission) -> Result<Submitted, SubmitError> {
    check(&submission.plan)?;
    let mut tries = 0;
    loop {
        tries += 1;
        match attempt(cx, &submission).await {
            // Somebody was faster: the next look names who.
            Err(SubmitError::Store(error @ StoreError::Conflict { .. })) if tries < TRIES => {
                tracing::debug!(%error, "something changed while an operation was submitted");
            }
            result => return result,
        }
    }
}

async fn attempt(cx: &Context, submission: &Submission) -> Result<Submitted, SubmitError> {
    let Submission { id, plan, .. } = submission;
    let at = cx.clock.now();
    let mut batch = submission.with.clone();
    if let Some(key) = &submission.key {
        if let Some(known) = KeyRecord::find(&*cx.store, &key.id).await? {
            return match known.answer_to(key)? {
                KeyAnswer::Operation(id) => Ok(Submitted::Known(id)),
                // Who asked in between was told so; whoever asks again is told as well.
                KeyAnswer::NothingToDo(plan) => Err(SubmitError::BadPlan {
                    plan: plan.id.to_string(),
                    reason: "the same request found nothing to do a moment ago".to_owned(),
                }),
            };
        }
        KeyRecord::new(key, KeyAnswer::Operation(id.clone()), at).add_to(&mut batch)?;
    }
    let mut operation = operation(submission, at);
    operation.hosts_at = hosts_at(cx, submission);
    claim(cx, &operation, plan, &mut batch).await?;
    let gpus = take(cx, &operation, plan, &mut batch).await?;
    compositions_stand(cx, plan, &mut batch).await?;
    let record = PlanRecord {
        operation: id.clone(),
        plan: plan.clone(),
    };
    batch.put(&record)?.put(&operation)?;
    let line = Noted {
        at,
        line: Line::Submitted,
    };
    batch.line(id, 1, &line)?;
    batch.event(&Event::operation(at, &operation))?;
    cx.store.commit(batch).await.map_err(|error| match error {
        StoreError::Unavailable { .. } => SubmitError::Unknown {
            operation: id.clone(),
            error,
        },
        refused => refused.into(),
    })?;
    Ok(Submitted::New(Box::new(Live::new(
        cx,
        operation,
        plan.clone(),
        gpus,
    ))))
}

fn operation(submission: &Submission, at: Timestamp) -> Operation {
    let plan = &submission.plan;
    let compositions = plan.releases.iter().chain(&plan.composes);
    let tenants: BTreeMap<_, _> = compositions.map(|c| (&c.id, c.tenant.clone())).collect();
    let steps = plan.steps.iter().map(|step| {
        let of_composition = step.composition.as_ref().and_then(|id| tenants.get(id).cloned());
        StepRecord::new(
            step.clone(),
            of_composition.unwrap_or_else(|| submission.tenant.clone()),
        )
    });
    Operation {
        id: submission.id.clone(),
        kind: submission.kind,
        plan: plan.id.clone(),
        tenant: submission.tenant.clone(),
        by: submission.by.clone(),
        key: submission.key.as_ref().map(|key| key.key.clone()),
        force: submission.force.clone(),
        deadline: submission.deadline,
        allow_stale: submission.allow_stale,
        partial_ok: submission.partial_ok,
        created: at,
        ended: None,
        state: OperationState::Pending,
        since: Some(at),
        stop: None,
        left_out: Vec::new(),
        alarm: None,
        waiting_for: None,
        steps: steps.collect(),
        hosts_at: BTreeSet::new(),
        clean_ups: Vec::new(),
        seq: 1,
    }
}

/// Where hosts may have to let go of GPUs, on the way there or back.
fn hosts_at(cx: &Context, submission: &Submission) -> BTreeSet<ControlEndpointId> {
    // Whoever is alone is in charge of everything; and what is taken over is only looked at.
    if !cx.charge.is_shared() || submission.kind == OperationKind::Adopt {
        return BTreeSet::new();
    }
    let steps = submission.plan.steps.iter();
    let drained = steps.filter(|step| matches!(step.verb, Verb::Bind | Verb::Drain));
    let at = drained.filter_map(|step| cx.metal.drains_at(&step.target.host));
    at.filter(|endpoint| cx.charge.keeps(endpoint)).collect()
}

/// What the run takes for granted about a plan.
fn check(plan: &Plan) -> Result<(), SubmitError> {
    let bad = |reason: String| SubmitError::BadPlan {
        plan: plan.id.to_string(),
        reason,
    };
    let mut gpus_of: BTreeMap<&UnitId, &Vec<GpuId>> = BTreeMap::new();
    for (place, step) in plan.steps.iter().enumerate() {
        if step.index as usize != place {
            return Err(bad(format!("step {} stands at place {place}", step.index)));
        }
        if let Some(after) = step.after.iter().find(|after| **after >= step.index) {
            return Err(bad(format!(
                "step {place} comes after step {after}, which does not come before it"
            )));
        }
        let Target {
            unit,
            gpus,
            unit_at,
            port_at,
            ..
        } = &step.target;
        if gpus.is_empty() {
            return Err(bad(format!("step {place} names no GPU")));
        }
        if unit_at.endpoint != port_at.endpoint {
            let (unit_at, port_at) = (&unit_at.endpoint, &port_at.endpoint);
            return Err(bad(format!(
                "in step {place} the unit is at {unit_at} and the host port at {port_at}"
            )));
        }
        if *gpus_of.entry(unit).or_insert(gpus) != gpus {
            return Err(bad(format!(
                "unit {unit} has other GPUs in step {place} than before"
            )));
        }
    }
    Ok(())
}

/// Claims every unit, or says who has it.
async fn claim(
    cx: &Context,
    operation: &Operation,
    plan: &Plan,
    batch: &mut Batch,
) -> Result<(), SubmitError> {
    for (unit, goes_to) in plan.moves() {
        if let Some(claim) = read::<Claim>(&*cx.store, unit.as_str()).await? {
            return Err(SubmitError::Claimed {
                unit: unit.clone(),
                operation: claim.value.operation,
            });
        }
        let claim = Claim::of(operation, unit, goes_to);
        batch.expect(Claim::KIND, unit.as_str(), None).put(&claim)?;
    }
    Ok(())
}

/// Reads the GPUs' records, and reserves those that are taken from the pool.
async fn take(
    cx: &Context,
    operation: &Operation,
    plan: &Plan,
    batch: &mut Batch,
) -> Result<Gpus, SubmitError> {
    let mut records = Vec::new();
    for target in first_targets(plan).values() {
        for gpu in &target.gpus {
            let known = read::<GpuRecord>(&*cx.store, gpu.as_str()).await?;
            let revision = known.as_ref().map(|known| known.revision);
            batch.expect(GpuRecord::KIND, gpu.as_str(), revision);
            records.push(known.map_or_else(|| first_seen(operation, plan, target, gpu), |known| known.value));
        }
    }
    let mut gpus: Gpus = records.into_iter().collect();
    let adopts = operation.kind == OperationKind::Adopt;
    for (unit, target) in first_targets(plan) {
        let takes = operation.takes(unit);
        for record in gpus.of_unit(unit) {
            let may = match record.state {
                // Whatever we knew of it: it is bound now, as the plan says, or it is not taken over.
                state if adopts => !matches!(state, GpuState::Quarantined | GpuState::Indeterminate),
                GpuState::Free | GpuState::Dirty => {
                    // Somebody may have unbound what a composition holds: it can be let go of all the same.
                    takes || only_resets(plan, unit) || releases(plan, unit)
                }
                GpuState::Bound | GpuState::Attached => !takes,
                // An earlier operation found a foreign binding. The plan rests on a later observation, which shows the GPU
                // at its recorded port. The step reads the binding again before it sends anything.
                GpuState::Foreign => releases(plan, unit),
                _ => false,
            };
            if !may {
                return Err(SubmitError::GpuState {
                    gpu: record.gpu.clone(),
                    state: record.state,
                    wanted: if takes { "bound" } else { "released" },
                });
            }
        }
        if takes && !adopts {
            closed_to_others(cx, operation, &gpus, unit)?;
            let of = gpus::Context {
                operation: &operation.id,
                composition: None,
                tenant: None,
                at: operation.created,
            };
            for record in gpus.change(target, Change::Reserve, &of) {
                batch.put(&record)?;
            }
        }
    }
    Ok(gpus)
}

/// A unit that another tenant held last is not begun with, unless it is reset first.
fn closed_to_others(
    cx: &Context,
    operation: &Operation,
    gpus: &Gpus,
    unit: &UnitId,
) -> Result<(), SubmitError> {
    let of_unit = operation.steps.iter().filter(|r| r.step.target.unit == *unit);
    let first = of_unit
        .into_iter()
        .find(|r| matches!(r.step.verb, Verb::Bind | Verb::Reset));
    match first {
        Some(record) if record.step.verb == Verb::Bind => {
            match gpus.not_clean_for(unit, record.tenant.as_ref(), cx.options.reuse_without_reset) {
                Some(reason) => Err(SubmitError::NotClean {
                    unit: unit.clone(),
                    reason,
                }),
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// A GPU that no operation wrote about yet, as the plan's snapshot showed it.
fn first_seen(operation: &Operation, plan: &Plan, target: &Target, gpu: &GpuId) -> GpuRecord {
    let state = match plan.reads.units.get(&target.unit) {
        Some(Standing::Free) => GpuState::Free,
        Some(Standing::Dirty) => GpuState::Dirty,
        Some(Standing::Bound { .. }) => GpuState::Bound,
        Some(Standing::Other { state, .. }) => *state,
        // The plan didn't say; the first step reads it from the fabric before anything is sent.
        None if operation.takes(&target.unit) => GpuState::Free,
        None => GpuState::Bound,
    };
    let bound = state == GpuState::Bound;
    GpuRecord {
        gpu: gpu.clone(),
        unit: target.unit.clone(),
        state,
        was_attached: false,
        clean: state == GpuState::Free,
        host: bound.then(|| target.host.clone()),
        host_port: bound.then(|| target.host_port.clone()),
        composition: None,
        tenant: None,
        operation: None,
        since: operation.created,
        learned: None,
        learned_before: None,
        left: Vec::new(),
    }
}

fn first_targets(plan: &Plan) -> BTreeMap<&UnitId, &Target> {
    let mut first = BTreeMap::new();
    for step in &plan.steps {
        first.entry(&step.target.unit).or_insert(&step.target);
    }
    first
}

fn releases(plan: &Plan, unit: &UnitId) -> bool {
    let mut held = plan.releases.iter().flat_map(|composition| &composition.held);
    held.any(|held| held.unit == *unit)
}

fn only_resets(plan: &Plan, unit: &UnitId) -> bool {
    let mut steps = plan.steps.iter().filter(|step| step.target.unit == *unit);
    steps.all(|step| step.verb == Verb::Reset)
}

/// The compositions that the plan changes are as it takes them to be, and stay so until it is submitted.
async fn compositions_stand(cx: &Context, plan: &Plan, batch: &mut Batch) -> Result<(), SubmitError> {
    let mut standing: BTreeMap<&CompositionId, Option<Composition>> = BTreeMap::new();
    for Composition { id, .. } in plan.releases.iter().chain(&plan.composes) {
        if !standing.contains_key(id) {
            let known = read::<CompositionRecord>(&*cx.store, id.as_str()).await?;
            let revision = known.as_ref().map(|known| known.revision);
            batch.expect(CompositionRecord::KIND, id.as_str(), revision);
            standing.insert(id, known.map(|known| known.value.composition));
        }
    }
    let stale = |composition: &Composition, reason: String| SubmitError::Stale {
        composition: composition.id.clone(),
        reason,
    };
    for released in &plan.releases {
        let Some(Some(known)) = standing.get(&released.id) else {
            return Err(stale(released, "it is gone".to_owned()));
        };
        let is_known = |held: &Held| known.held.iter().any(|known| known.is_same(held));
        if let Some(gone) = released.held.iter().find(|held| !is_known(held)) {
            return Err(stale(
                released,
                format!("it does not hold {} like this", gone.unit),
            ));
        }
    }
    for composed in &plan.composes {
        let goes_on = plan.keeps.contains(&composed.id);
        let released = plan.releases.iter().any(|released| released.id == composed.id);
        let stands = matches!(standing.get(&composed.id), Some(Some(_)));
        match (goes_on || released, stands) {
            (true, false) => return Err(stale(composed, "it is gone".to_owned())),
            (false, true) => return Err(stale(composed, "there is one of this name already".to_owned())),
            _ => {}
        }
    }
    Ok(())
}
