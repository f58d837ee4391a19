//! What must hold: some of it always, all of it when everything is at rest.

use super::world::World;
use poolwright_emulator::rack::{GpuIx, PortIx};
use poolwright_executor::{Claim, CompositionRecord, GpuRecord, Operation, OperationState};
use poolwright_model::fault::FaultKind;
use poolwright_model::id::OperationId;
use poolwright_model::lifecycle::GpuState;
use poolwright_service::Snapshot;
use poolwright_store::{Store, Stored, read_all};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Invariant {
    /// No GPU is in two compositions, and so bound to two hosts.
    OneOwner,
    /// What a client was told of is known for ever, and was not dropped.
    NothingForgotten,
    /// Whatever is sent to the metal, an open operation has claimed its unit.
    ClaimsCoverEffects,
    /// An operation that has ended holds nothing.
    EndedHoldsNothing,
    /// Every operation comes to an end, or is held, and says for what.
    EveryOperationEnds,
    /// At rest the compositions, what is shown, and the hardware say the same.
    RecordedIsTrue,
    /// Nothing is bound that nobody knows of.
    NothingLeaked,
    /// What others bound stays bound.
    NothingForeignTouched,
    /// One key, one operation.
    OneEffectAKey,
    /// No GPU is pulled while somebody works on it, or hit by a reset while somebody has it.
    NothingInUsePulled,
    /// What is recorded as clean was reset after it was held last.
    CleanMeansClean,
    /// A request reaches the GPU that it is meant for, whatever address that has.
    RightGpu,
    /// Every GPU that is held has a listed owner: the demand that its composition names.
    HeldHasAnOwner,
}

impl Invariant {
    pub const ALL: [Self; 13] = [
        Self::OneOwner,
        Self::NothingForgotten,
        Self::ClaimsCoverEffects,
        Self::EndedHoldsNothing,
        Self::EveryOperationEnds,
        Self::RecordedIsTrue,
        Self::NothingLeaked,
        Self::NothingForeignTouched,
        Self::OneEffectAKey,
        Self::NothingInUsePulled,
        Self::CleanMeansClean,
        Self::RightGpu,
        Self::HeldHasAnOwner,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::OneOwner => "one-owner",
            Self::NothingForgotten => "nothing-forgotten",
            Self::ClaimsCoverEffects => "claims-cover-effects",
            Self::EndedHoldsNothing => "ended-holds-nothing",
            Self::EveryOperationEnds => "every-operation-ends",
            Self::RecordedIsTrue => "recorded-is-true",
            Self::NothingLeaked => "nothing-leaked",
            Self::NothingForeignTouched => "nothing-foreign-touched",
            Self::OneEffectAKey => "one-effect-a-key",
            Self::NothingInUsePulled => "nothing-in-use-pulled",
            Self::CleanMeansClean => "clean-means-clean",
            Self::RightGpu => "right-gpu",
            Self::HeldHasAnOwner => "held-has-an-owner",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

pub async fn at_every_step(world: &mut World) {
    one_owner(world).await;
    effects_were_claimed(world);
    held_by_open_operations(world).await;
    holds_say_what_for(world).await;
    nothing_in_use_is_pulled(world);
    what_others_bound_stays(world);
    what_was_acknowledged_is_known(world).await;
    clean_means_clean(world).await;
    trace(world).await;
}

/// What the rack and the store are now goes into the hash.
async fn trace(world: &mut World) {
    let bound = format!("{:?}", bindings(world));
    world.trace.hash_only(bound.as_bytes());
    while let Ok(events) = world.store.events_after(world.events, 1000).await {
        let Some(last) = events.last() else { break };
        world.events = last.seq;
        for event in &events {
            world.trace.hash_only(event.json.get().as_bytes());
            if world.trace.is_loud() {
                eprintln!("    {}", event.json.get());
            }
        }
    }
}

fn bindings(world: &World) -> BTreeMap<GpuIx, PortIx> {
    let all = |state: &mut poolwright_emulator::state::State, _| {
        state
            .bindings()
            .map(|(gpu, binding)| (gpu, binding.port))
            .collect()
    };
    world.emulation.with(all)
}

async fn one_owner(world: &mut World) {
    let fabric = world.emulation.with(|state, _| state.check());
    let Ok(compositions) = read_all::<CompositionRecord>(&*world.store).await else {
        return;
    };
    let mut owners = BTreeMap::new();
    let mut wrong = fabric.err();
    for record in &compositions {
        let composition = &record.value.composition;
        for held in &composition.held {
            if let Some(other) = owners.insert(held.unit.clone(), &composition.id) {
                wrong = Some(format!("{} is in {other} and in {}", held.unit, composition.id));
            }
        }
    }
    world.checks(Invariant::OneOwner, wrong);
}

fn effects_were_claimed(world: &mut World) {
    let seen = world.witness.take();
    let wrong = seen.unclaimed.into_iter().next();
    world.checks_often(Invariant::ClaimsCoverEffects, seen.effects, wrong);
    let wrong = seen.misdirected.into_iter().next();
    world.checks_often(Invariant::RightGpu, seen.effects, wrong);
}

async fn held_by_open_operations(world: &mut World) {
    let Ok(claims) = read_all::<Claim>(&*world.store).await else {
        return;
    };
    let Ok(open) = world.store.open_operations().await else {
        return;
    };
    let open: BTreeSet<OperationId> = open.into_iter().collect();
    let left = claims.iter().find(|claim| !open.contains(&claim.value.operation));
    let wrong = left.map(|claim| {
        format!(
            "{} holds {}, and is over",
            claim.value.operation, claim.value.unit
        )
    });
    world.checks(Invariant::EndedHoldsNothing, wrong);
}

/// What is held for an outcome or for an operator says so.
async fn holds_say_what_for(world: &mut World) {
    let Ok(open) = world.store.open_operations().await else {
        return;
    };
    for id in open {
        let wanted = id.clone();
        let asked = world
            .ask(|manager| async move { manager.operation(&wanted).await })
            .await;
        let Some(Ok(operation)) = asked else { continue };
        let held = matches!(
            operation.state,
            OperationState::Indeterminate | OperationState::Quarantined
        );
        let silent = held && operation.waits().is_empty() && operation.error().is_none();
        let wrong = silent.then(|| format!("{id} is {} and does not say why", operation.state));
        world.checks(Invariant::EveryOperationEnds, wrong);
    }
}

/// What operations wait for, for whoever reads that they do not end.
pub async fn waits(world: &World, open: &[OperationId]) -> String {
    let mut told = Vec::new();
    for id in open {
        let wanted = id.clone();
        let asked = world
            .ask(|manager| async move { manager.operation(&wanted).await })
            .await;
        told.push(match asked {
            Some(Ok(operation)) => format!("{id} is {}: {:?}", operation.state, operation.waits()),
            other => format!("{id}: {:?}", other.map(|other| other.err())),
        });
    }
    told.join("; ")
}

fn nothing_in_use_is_pulled(world: &mut World) {
    let pulled = world.emulation.with(|state, _| state.tally().pulled_in_use) - world.pulled_by_others;
    let wrong = (pulled > 0).then(|| format!("{pulled} GPUs were pulled while a job ran on them"));
    let reset = world.emulation.with(|state, _| state.tally().resets_in_use);
    let wrong = match reset {
        0 => wrong,
        reset => Some(format!("{reset} resets came while their GPUs were bound")),
    };
    world.checks(Invariant::NothingInUsePulled, wrong);
}

fn what_others_bound_stays(world: &mut World) {
    let bound = bindings(world);
    let moved = world
        .foreign
        .iter()
        .find(|(gpu, port)| bound.get(gpu) != Some(port));
    let wrong = moved.map(|(gpu, port)| {
        format!(
            "{}, which others bound to {port:?}, is at {:?}",
            world.name(*gpu),
            bound.get(gpu)
        )
    });
    world.checks(Invariant::NothingForeignTouched, wrong);
}

async fn what_was_acknowledged_is_known(world: &mut World) {
    let mut forgotten = None;
    for id in &world.acknowledged {
        if !matches!(world.store.get(Operation::KIND, id.as_str()).await, Ok(Some(_))) {
            forgotten = Some(format!("{id} was acknowledged, and nobody knows it"));
        }
    }
    let times = world.acknowledged.len() as u64;
    world.checks_often(Invariant::NothingForgotten, times, forgotten);
}

async fn clean_means_clean(world: &mut World) {
    let Ok(records) = read_all::<GpuRecord>(&*world.store).await else {
        return;
    };
    let Ok(claims) = read_all::<Claim>(&*world.store).await else {
        return;
    };
    let claimed: BTreeSet<_> = claims.into_iter().map(|claim| claim.value.unit).collect();
    let mut wrong = None;
    for record in records {
        let record = record.value;
        let Some(gpu) = world.names.get(&record.gpu) else {
            continue;
        };
        let dirty = world.emulation.with(|state, _| state.dirty(*gpu)) && !world.meddled.contains(gpu);
        if record.state == GpuState::Free && record.clean && dirty && !claimed.contains(&record.unit) {
            wrong = Some(format!("{} is recorded as clean, and was not reset", record.gpu));
        }
    }
    world.checks(Invariant::CleanMeansClean, wrong);
}

/// Nothing goes on: the rack, what the manager shows, and its compositions say the same. False where something has
/// begun meanwhile, and nothing can be said: what could not be done before, the manager tries again by itself.
pub async fn at_rest(world: &mut World) -> bool {
    at_every_step(world).await;
    let snapshot = world.snapshot().await;
    if world
        .store
        .open_operations()
        .await
        .is_ok_and(|open| !open.is_empty())
    {
        return false;
    }
    let Some(snapshot) = snapshot else {
        let wrong = "the manager shows nothing".to_owned();
        world.checks(Invariant::RecordedIsTrue, Some(wrong));
        return true;
    };
    let truth = bindings(world);
    let ports = ports_by_id(world, &snapshot);
    shown_is_true(world, &snapshot, &ports, &truth);
    recorded_is_true(world, &ports, &truth).await;
    all_have_ended(world).await;
    demands_are_kept(world).await;
    held_has_an_owner(world).await;
    one_operation_a_key(world).await;
    true
}

type Ports = BTreeMap<String, PortIx>;

fn shown_is_true(world: &mut World, snapshot: &Snapshot, ports: &Ports, truth: &BTreeMap<GpuIx, PortIx>) {
    let mut shown = BTreeMap::new();
    let mut truth = truth.clone();
    let missing = snapshot
        .faults
        .iter()
        .filter(|fault| fault.kind == FaultKind::Missing);
    let disbelieved: BTreeSet<&str> = missing.map(|fault| fault.source.as_str()).collect();
    for gpu in &snapshot.topology.gpus {
        let Some(at) = world.names.get(&gpu.id) else {
            continue;
        };
        // That so many are gone at once is not believed: all there is shown as it was, and says so.
        let mut endpoints = gpu.control.iter().map(|at| at.endpoint.as_str());
        if endpoints.any(|endpoint| disbelieved.contains(endpoint)) {
            truth.remove(at);
            continue;
        }
        let port = gpu.host_port.as_ref().and_then(|port| ports.get(port.as_str()));
        shown.extend(port.map(|port| (*at, *port)));
    }
    let wrong = (shown != truth).then(|| format!("shown is {shown:?}, true is {truth:?}"));
    world.checks(Invariant::RecordedIsTrue, wrong);
}

async fn recorded_is_true(world: &mut World, ports: &Ports, truth: &BTreeMap<GpuIx, PortIx>) {
    let Ok(records) = read_all::<CompositionRecord>(&*world.store).await else {
        return;
    };
    let mut recorded = BTreeMap::new();
    for held in records.iter().flat_map(|record| &record.value.composition.held) {
        for gpu in &held.gpus {
            if let (Some(at), Some(port)) = (world.names.get(gpu), ports.get(held.host_port.as_str())) {
                recorded.insert(*at, *port);
            }
        }
    }
    let not_ours = |gpu: &GpuIx| world.foreign.contains_key(gpu) || world.perhaps_adopted.contains_key(gpu);
    let mut ours = truth.iter().filter(|(gpu, _)| !not_ours(gpu));
    let leaked = ours.find(|(gpu, port)| recorded.get(gpu) != Some(port));
    let leaked =
        leaked.map(|(gpu, port)| format!("{} is bound to {port:?}, and nobody holds it", world.name(*gpu)));
    // What was pulled by hand is still recorded: its owner is to be told, not the record be lost.
    let mut kept = recorded
        .iter()
        .filter(|(gpu, _)| !world.vanished.contains(gpu) && !world.pulled.contains(gpu));
    let missing = kept.find(|(gpu, port)| truth.get(gpu) != Some(port));
    let missing = missing.map(|(gpu, port)| {
        format!(
            "{} is recorded at {port:?}, and is not bound there",
            world.name(*gpu)
        )
    });
    world.checks(Invariant::NothingLeaked, leaked);
    world.checks(Invariant::RecordedIsTrue, missing);
}

async fn all_have_ended(world: &mut World) {
    let mut unended = None;
    for id in &world.acknowledged {
        if let Some(operation) = world.stored(id).await
            && !operation.state.has_ended()
        {
            unended = Some(format!("{id} is {} while nothing goes on", operation.state));
        }
    }
    let times = world.acknowledged.len() as u64;
    world.checks_often(Invariant::EveryOperationEnds, times, unended);
}

/// A demand that was composed is kept until somebody wants it gone.
async fn demands_are_kept(world: &mut World) {
    let kept = world.ask(|manager| async move { manager.demands().await }).await;
    let Some(Ok(kept)) = kept else { return };
    let kept: BTreeSet<_> = kept.into_iter().map(|record| record.demand.id).collect();
    for (demand, operation) in world.demands.clone() {
        let Some(operation) = operation.filter(|_| !world.let_go.contains(&demand)) else {
            continue;
        };
        let composed = world.stored(&operation).await;
        let composed = composed.is_some_and(|composed| composed.state == OperationState::Completed);
        let lost = composed && !kept.contains(&demand);
        let wrong = lost.then(|| format!("{demand} was composed by {operation}, and is not kept"));
        world.checks(Invariant::NothingForgotten, wrong);
    }
}

/// The demand of each composition is listed. A composition of GPUs that were attached by name has none.
async fn held_has_an_owner(world: &mut World) {
    let Ok(records) = read_all::<CompositionRecord>(&*world.store).await else {
        return;
    };
    let listed = world.ask(|manager| async move { manager.demands().await }).await;
    let Some(Ok(listed)) = listed else { return };
    let listed: BTreeSet<_> = listed.into_iter().map(|record| record.spec.id).collect();
    let mut compositions = records.iter().map(|record| &record.value.composition);
    let orphan = compositions.find(|c| c.demand.as_ref().is_some_and(|id| !listed.contains(id)));
    let wrong = orphan.map(|orphan| {
        format!(
            "{} holds {} GPUs for demand {:?}, which is not listed",
            orphan.id,
            orphan.gpu_count(),
            orphan.demand
        )
    });
    world.checks(Invariant::HeldHasAnOwner, wrong);
}

async fn one_operation_a_key(world: &mut World) {
    let Ok(operations) = read_all::<Operation>(&*world.store).await else {
        return;
    };
    let mut begun = BTreeMap::new();
    let mut wrong = None;
    for operation in &operations {
        let operation = &operation.value;
        let Some(key) = &operation.key else { continue };
        if let Some(other) = begun.insert(key, &operation.id) {
            wrong = Some(format!("key {key} has begun {other} and {}", operation.id));
        }
    }
    let times = begun.len() as u64;
    world.checks_often(Invariant::OneEffectAKey, times, wrong);
}

/// Everything was let go: what is bound is what others bound.
pub async fn at_the_end(world: &mut World) {
    let mut bound = bindings(world);
    bound.retain(|gpu, port| world.perhaps_adopted.get(gpu) != Some(port));
    let wrong =
        (bound != world.foreign).then(|| format!("left is {bound:?}, others have {:?}", world.foreign));
    world.checks(Invariant::NothingLeaked, wrong);
}

fn ports_by_id(world: &World, snapshot: &Snapshot) -> Ports {
    let rack = world.emulation.rack();
    let by_uuid: BTreeMap<String, PortIx> = (0..rack.ports.len())
        .map(|at| (rack.ports[at].uuid.to_string(), PortIx(at)))
        .collect();
    let ports = snapshot.topology.hosts.iter().flat_map(|host| &host.ports);
    ports
        .filter_map(|port| Some((port.id.to_string(), *by_uuid.get(port.uuid.as_deref()?)?)))
        .collect()
}
