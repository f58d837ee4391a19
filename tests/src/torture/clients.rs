//! What people and programs ask of the manager, by chance.

use super::invariants::Invariant;
use super::world::World;
use poolwright_executor::StepState;
use poolwright_model::id::{DemandId, GpuId, OperationId};
use poolwright_service::demand::DemandSpec;
use poolwright_service::schedule::ScheduleSpec;
use poolwright_service::{
    Change, Composer, ErrorCode, How, Operation, OperationState, Release, Resolution, ServiceError,
};
use poolwright_store::Store;
use serde_json::json;

pub const CLIENT: &str = "client";

/// What a client was told.
pub enum Told {
    Begun {
        what: String,
        operation: OperationId,
        key: Option<String>,
        demand: Option<DemandId>,
    },
    /// Nothing was to be done for it.
    Nothing {
        what: String,
    },
    Refused {
        what: String,
        why: String,
    },
}

/// What a client asks for.
pub struct Asked {
    what: String,
    key: Option<String>,
    demand: Option<DemandId>,
    partial_ok: bool,
}

impl Asked {
    pub fn new(what: String) -> Self {
        Self {
            what,
            key: None,
            demand: None,
            partial_ok: false,
        }
    }

    /// Of some a part is enough.
    pub fn perhaps_in_part(mut self, world: &mut World) -> Self {
        self.partial_ok = world.rng.u32(0..3) == 0;
        if self.partial_ok {
            self.what.push_str(", or some of them");
        }
        self
    }
}

/// A client's request, in a task of its own: the world goes on while it waits.
pub fn request<F>(world: &mut World, asked: Asked, ask: impl FnOnce(Composer, How) -> F)
where
    F: Future<Output = Result<Change, ServiceError>> + Send + 'static,
{
    let Some(manager) = world.manager().cloned() else {
        return;
    };
    let Asked {
        what,
        key,
        demand,
        partial_ok,
    } = asked;
    world.trace.add(&format_args!("ask: {what}"));
    let how = How {
        key: key.clone(),
        partial_ok,
        ..How::default()
    };
    let asking = ask(manager, how);
    world.clients.spawn(async move {
        match asking.await.map(|change| change.operation) {
            Ok(Some(operation)) => Told::Begun {
                what,
                operation: operation.id,
                key,
                demand,
            },
            Ok(None) => Told::Nothing { what },
            Err(error) => Told::Refused {
                what,
                why: error.message,
            },
        }
    });
}

/// Takes note of what clients were told since the last time.
pub fn hear_some(world: &mut World) {
    while let Some(told) = world.clients.try_join_next() {
        hear_one(world, told);
    }
}

/// Waits for the answers to all requests.
pub async fn hear_all(world: &mut World) {
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(3600);
    let end = tokio::time::Instant::now() + PATIENCE;
    while !world.clients.is_empty() {
        match tokio::time::timeout_at(end, world.clients.join_next()).await {
            Ok(Some(told)) => hear_one(world, told),
            Ok(None) => return,
            Err(_) => {
                let wrong = format!("{} requests are not answered", world.clients.len());
                world.checks(Invariant::EveryOperationEnds, Some(wrong));
                world.clients.abort_all();
                while world.clients.join_next().await.is_some() {}
            }
        }
    }
}

fn hear_one(world: &mut World, told: Result<Told, tokio::task::JoinError>) {
    match told {
        Ok(told) => hear(world, told),
        Err(error) if error.is_panic() => {
            let wrong = format!("a request panicked: {error}");
            world.checks(Invariant::NothingForgotten, Some(wrong));
        }
        Err(_) => {}
    }
}

pub fn hear(world: &mut World, told: Told) {
    match told {
        Told::Begun {
            what,
            operation,
            key,
            demand,
        } => {
            world.trace.add(&format_args!("{what}: begun as {operation}"));
            if let Some(key) = key {
                let first = world
                    .keys
                    .entry(key.clone())
                    .or_insert_with(|| operation.clone())
                    .clone();
                let wrong = format!("key {key} stood for {first}, and now stands for {operation}");
                world.checks(Invariant::OneEffectAKey, (first != operation).then_some(wrong));
            }
            if let Some(demand) = demand {
                world.demands.insert(demand, Some(operation.clone()));
            }
            world.acknowledged.insert(operation);
        }
        Told::Nothing { what } => world.trace.add(&format_args!("{what}: nothing to do")),
        Told::Refused { what, why } => world.trace.add(&format_args!("{what}: refused: {why}")),
    }
}

fn some_kind(world: &mut World) -> String {
    let gpu = world.some_gpu();
    world.emulation.rack()[gpu].kind.name.clone()
}

pub fn compose(world: &mut World) {
    let kind = some_kind(world);
    let name = format!("d{}", world.next_name);
    world.next_name += 1;
    let count = world.rng.u32(1..4);
    let tenant = ["red", "blue"][world.rng.usize(0..2)];
    let spec = json!({"id": name, "kind": kind, "gpus": count, "tenant": tenant});
    let Ok(spec) = serde_json::from_value::<DemandSpec>(spec) else {
        panic!("a demand of {count} {kind} can't be said");
    };
    world.demands.insert(spec.id.clone(), None);
    let key = world.rng.bool().then(|| format!("key-{name}"));
    let asked = Asked {
        key: key.clone(),
        demand: Some(spec.id.clone()),
        ..Asked::new(format!("compose {name}: {count} {kind}"))
    };
    let asked = asked.perhaps_in_part(world);
    if let Some(key) = key {
        world.sent.push((key, spec.clone(), asked.partial_ok));
    }
    send_compose(world, asked, spec);
}

/// A client that can't know whether its request arrived sends it again.
pub fn send_again(world: &mut World) {
    if world.sent.is_empty() {
        return;
    }
    // The last ones most often.
    let back = world.rng.usize(0..world.sent.len().min(4));
    let (key, spec, partial_ok) = world.sent[world.sent.len() - 1 - back].clone();
    let asked = Asked {
        key: Some(key),
        demand: Some(spec.id.clone()),
        partial_ok,
        ..Asked::new(format!("compose {} again", spec.id))
    };
    send_compose(world, asked, spec);
}

fn send_compose(world: &mut World, asked: Asked, spec: DemandSpec) {
    request(world, asked, |manager, how| async move {
        manager.compose(spec, CLIENT, &how).await
    });
}

pub fn release(world: &mut World) {
    let at = world.rng.usize(0..world.demands.len().max(1));
    let Some(demand) = world.demands.keys().nth(at).cloned() else {
        return;
    };
    world.let_go.insert(demand.clone());
    let asked = Asked::new(format!("release {demand}"));
    request(world, asked, |manager, how| async move {
        manager.release(Release::Demand(demand), CLIENT, &how).await
    });
}

/// Every composition is released.
pub async fn release_all(world: &mut World) {
    let compositions = world
        .ask(|manager| async move { manager.compositions().await })
        .await;
    for composition in compositions.and_then(Result::ok).unwrap_or_default() {
        world.let_go.extend(composition.demand.clone());
        let id = composition.id;
        let asked = Asked::new(format!("release {id}"));
        request(world, asked, |manager, how| async move {
            manager.release(Release::Composition(id), CLIENT, &how).await
        });
    }
    hear_all(world).await;
}

/// A few GPUs of the pool.
pub fn some_gpus(world: &mut World) -> Vec<GpuId> {
    let count = world.rng.usize(1..3);
    let all: Vec<_> = world.names.keys().cloned().collect();
    let mut some: Vec<_> = (0..count.min(all.len()))
        .map(|_| all[world.rng.usize(0..all.len())].clone())
        .collect();
    some.sort();
    some.dedup();
    some
}

pub async fn attach(world: &mut World) {
    let gpus = some_gpus(world);
    let Some(host) = world.some_host().await else {
        return;
    };
    let asked = Asked::new(format!("attach {gpus:?} to {host}")).perhaps_in_part(world);
    request(world, asked, |manager, how| async move {
        manager.attach(&gpus, &host, CLIENT, &how).await
    });
}

pub fn detach(world: &mut World) {
    let gpus = some_gpus(world);
    let asked = Asked::new(format!("detach {gpus:?}")).perhaps_in_part(world);
    request(world, asked, |manager, how| async move {
        manager.detach(&gpus, CLIENT, &how).await
    });
}

pub fn undo(world: &mut World) {
    let at = world.rng.usize(0..world.acknowledged.len().max(1));
    let Some(id) = world.acknowledged.iter().nth(at).cloned() else {
        return;
    };
    // What it composed is withdrawn.
    let composed = world.demands.iter().filter(|(_, by)| by.as_ref() == Some(&id));
    let composed: Vec<DemandId> = composed.map(|(demand, _)| demand.clone()).collect();
    world.let_go.extend(composed);
    let asked = Asked::new(format!("undo {id}"));
    request(world, asked, |manager, how| async move {
        manager.undo_operation(&id, CLIENT, &how).await
    });
}

pub async fn cancel(world: &mut World) {
    let Ok(open) = world.store.open_operations().await else {
        return;
    };
    if open.is_empty() {
        return;
    }
    let id = open[world.rng.usize(0..open.len())].clone();
    let wanted = id.clone();
    let asked = world.ask(|manager| async move { manager.cancel(&wanted, CLIENT, "by chance").await });
    let cancelled = asked.await.map(|cancelled| cancelled.is_ok());
    world.trace.add(&format_args!("cancel {id}: {cancelled:?}"));
}

/// A schedule comes, goes, is paused or goes on.
pub async fn schedule(world: &mut World) {
    let some = world.schedules.iter().next().cloned();
    match (some, world.rng.u32(0..3)) {
        (None, _) | (Some(_), 0) if world.schedules.len() < 2 => add_schedule(world).await,
        (Some(id), 1) => {
            let paused = world.rng.bool();
            let wanted = id.clone();
            let asked = world.ask(|manager| async move { manager.pause_schedule(&wanted, paused).await });
            let done = asked.await.map(|done| done.is_ok());
            world.trace.add(&format_args!("pause {id} {paused}: {done:?}"));
        }
        (Some(id), _) => remove_schedule(world, id).await,
        (None, _) => {}
    }
}

async fn add_schedule(world: &mut World) {
    let kind = some_kind(world);
    let name = format!("s{}", world.next_name);
    world.next_name += 1;
    let spec = json!({
        "id": name,
        // Ten minutes in twenty.
        "window": {"opens": "*/20 * * * *", "closes": "10-59/20 * * * *"},
        "demands": [{"id": format!("of-{name}"), "kind": kind, "gpus": world.rng.u32(1..3)}],
        "suspends": [],
    });
    let Ok(spec) = serde_json::from_value::<ScheduleSpec>(spec) else {
        panic!("a schedule for {kind} can't be said");
    };
    world.schedules.insert(spec.id.clone());
    let added = world
        .ask(|manager| async move { manager.add_schedule(spec).await })
        .await;
    let said = added.map(|added| added.map(|_| ()).map_err(|error| error.message));
    world
        .trace
        .add(&format_args!("schedule {name} for {kind}: {said:?}"));
}

async fn remove_schedule(world: &mut World, id: poolwright_model::id::ScheduleId) {
    let wanted = id.clone();
    let removed = world
        .ask(|manager| async move { manager.remove_schedule(&wanted).await })
        .await;
    // It is there for as long as nobody says that it is gone: a refusal (the disk is full) has changed nothing,
    // and where the answer was lost it may be gone already.
    let gone = match &removed {
        Some(Ok(())) => true,
        Some(Err(error)) => error.code == ErrorCode::NotFound,
        None => false,
    };
    let said = removed.map(|removed| removed.map_err(|error| error.message));
    world.trace.add(&format_args!("remove schedule {id}: {said:?}"));
    if gone {
        world.schedules.remove(&id);
    }
}

pub async fn remove_schedules(world: &mut World) {
    for id in world.schedules.clone() {
        remove_schedule(world, id).await;
    }
}

pub async fn discover(world: &mut World) {
    let seen = world
        .ask(|manager| async move { manager.discover(&()).await })
        .await;
    let faults = seen.map(|seen| {
        seen.map(|snapshot| snapshot.faults.len())
            .map_err(|error| error.message)
    });
    world.trace.add(&format_args!("a look: faults {faults:?}"));
    world.learn_names().await;
}

/// Somebody looks after what needs somebody. `hard`: until it is over.
pub async fn resolve(world: &mut World, hard: bool) {
    let Ok(open) = world.store.open_operations().await else {
        return;
    };
    for id in open {
        let wanted = id.clone();
        let found = world
            .ask(|manager| async move { manager.operation(&wanted).await })
            .await;
        let Some(Ok(operation)) = found else { continue };
        let tries: &[Resolution] = match (operation.state, hard) {
            (OperationState::Quarantined, false) => &[Resolution::Retry],
            (OperationState::Quarantined | OperationState::Indeterminate, true) => {
                &[Resolution::Accept, seen_by_operator(world, &operation)]
            }
            _ => &[],
        };
        for &way in tries {
            let wanted = id.clone();
            let asked =
                world.ask(|manager| async move { manager.resolve(&wanted, way, CLIENT, "looked").await });
            let said = asked
                .await
                .map(|said| said.map(|_| ()).map_err(|error| error.message));
            world
                .trace
                .add(&format_args!("resolve {id} by {way:?}: {said:?}"));
            if matches!(said, Some(Ok(()))) {
                // An operator lets go of what was to be kept, too.
                let composed = world.demands.iter().filter(|(_, by)| by.as_ref() == Some(&id));
                let composed: Vec<DemandId> = composed.map(|(demand, _)| demand.clone()).collect();
                world.let_go.extend(composed);
                break;
            }
        }
    }
}

/// What an operator who looks at the hardware says of the GPUs that an operation could not read.
fn seen_by_operator(world: &World, operation: &Operation) -> Resolution {
    let unsure = operation.steps.iter().filter(|record| {
        matches!(
            record.state,
            StepState::Running | StepState::Indeterminate | StepState::Undoing
        )
    });
    let units: Vec<_> = unsure.map(|record| &record.step.target.unit).collect();
    let gpus = world.units.iter().filter(|(_, unit)| units.contains(unit));
    let mut gpus = gpus.map(|(gpu, _)| *gpu);
    match gpus.any(|gpu| world.emulation.with(|state, _| state.bound_to(gpu).is_some())) {
        true => Resolution::AcceptBound,
        false => Resolution::AcceptFree,
    }
}

/// A job of the queue, which runs until it is said to be done.
pub fn submit_job(world: &mut World) {
    let Some(manager) = world.manager().cloned() else {
        return;
    };
    let kind = some_kind(world);
    let name = format!("j{}", world.next_name);
    world.next_name += 1;
    let count = world.rng.u32(1..3);
    let spec = json!({"id": name, "kind": kind, "gpus": count, "queue": {}});
    let Ok(spec) = serde_json::from_value::<DemandSpec>(spec) else {
        panic!("a job of {count} {kind} can't be said");
    };
    world.jobs.insert(spec.id.clone());
    let what = format!("submit job {name}: {count} {kind}");
    world.trace.add(&format_args!("ask: {what}"));
    world.clients.spawn(async move {
        match manager.add_demand(spec).await {
            Ok(_) => Told::Nothing { what },
            Err(error) => Told::Refused {
                what,
                why: error.message,
            },
        }
    });
}

/// Just after another job was submitted, one is said to be done and deleted within milliseconds.
pub fn end_job_at_once(world: &mut World) {
    let at = world.rng.usize(0..world.jobs.len().max(1));
    let job = world.jobs.iter().nth(at).cloned();
    submit_job(world);
    let (Some(manager), Some(job)) = (world.manager().cloned(), job) else {
        return;
    };
    let pause = std::time::Duration::from_millis(world.rng.u64(0..60));
    let what = format!("end job {job}, and delete it after {pause:?}");
    world.trace.add(&format_args!("ask: {what}"));
    world.clients.spawn(async move {
        let ended = manager.job_done(&job).await;
        tokio::time::sleep(pause).await;
        match ended.map(drop).and(manager.remove_demand(&job).await) {
            Ok(()) => Told::Nothing { what },
            Err(error) => Told::Refused {
                what,
                why: error.message,
            },
        }
    });
}

/// Every job is deleted; one that runs is ended by that.
pub async fn end_jobs(world: &mut World) {
    for job in world.jobs.clone() {
        let wanted = job.clone();
        let removed = world
            .ask(|manager| async move { manager.remove_demand(&wanted).await })
            .await;
        if matches!(&removed, Some(Err(error)) if error.code == ErrorCode::NotFound) {
            world.jobs.remove(&job);
        }
        let said = removed.map(|removed| removed.map_err(|error| error.message));
        world.trace.add(&format_args!("delete job {job}: {said:?}"));
    }
}
