//! What operators do to the pool as a whole, by chance: plans are applied, everything is paused, endpoints are removed,
//! come back and are adopted, and lost bindings are repaired or not.

use super::clients::{Asked, CLIENT, request, some_gpus};
use super::line::spec_of;
use super::world::World;
use poolwright_model::id::ControlEndpointId;
use poolwright_service::endpoint::{Repair, Standing};
use poolwright_service::{ErrorCode, OperationKind, Paused, ServiceError};

/// What was said to somebody who waits for the answer; nothing where the manager is down.
fn hear<T>(world: &mut World, what: &str, said: Option<Result<T, ServiceError>>) -> Option<T> {
    let said = said?;
    let told = said.as_ref().map(|_| ()).map_err(|error| &error.message);
    world.trace.add(&format_args!("{what}: {told:?}"));
    said.ok()
}

pub async fn move_to(world: &mut World) {
    let gpus = some_gpus(world);
    let Some(host) = world.some_host().await else {
        return;
    };
    let asked = Asked::new(format!("move {gpus:?} to {host}")).perhaps_in_part(world);
    request(world, asked, |manager, how| async move {
        manager.move_to(&gpus, &host, CLIENT, &how).await
    });
}

/// What is wanted is planned, and the plan applied some time later.
pub async fn apply(world: &mut World) {
    let planned = world.ask(|manager| async move { manager.plan().await }).await;
    let Some(plan) = hear(world, "plan", planned) else {
        return;
    };
    request(
        world,
        Asked::new("apply a plan".to_owned()),
        |manager, how| async move {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            manager.apply(plan, OperationKind::Apply, CLIENT, &how).await
        },
    );
}

/// Something is paused, or goes on.
pub async fn pause(world: &mut World) {
    if world.rng.bool() {
        return resume_all(world).await;
    }
    let what = match world.rng.u32(0..3) {
        0 => Paused::All,
        1 => Paused::Automation,
        _ => Paused::Endpoint(some_box(world)),
    };
    let told = format!("pause {what}");
    let paused = world
        .ask(|manager| async move { manager.pause(what, CLIENT, "by chance").await })
        .await;
    hear(world, &told, paused);
}

pub async fn resume_all(world: &mut World) {
    let pauses = world.ask(|manager| async move { manager.pauses().await }).await;
    for pause in pauses.and_then(Result::ok).unwrap_or_default() {
        let told = format!("resume {}", pause.what);
        let (what, asked) = (pause.what.clone(), pause.what);
        let resumed = world
            .ask(|manager| async move { manager.resume(&asked, CLIENT).await })
            .await;
        let is_beyond_repair = matches!(&resumed, Some(Err(error)) if error.code == ErrorCode::Conflict);
        hear(world, &told, resumed);
        if let (Paused::Damaged(document), true) = (what, is_beyond_repair) {
            let told = format!("discard {document}");
            let discarded = world
                .ask(|manager| async move { manager.discard(&document, CLIENT).await })
                .await;
            hear(world, &told, discarded);
        }
    }
}

/// Whether a damaged document holds everything up. One that the start could not read takes another start.
pub async fn is_held_by_damage(world: &World) -> bool {
    let pauses = world.ask(|manager| async move { manager.pauses().await }).await;
    let pauses = pauses.and_then(Result::ok).unwrap_or_default();
    pauses
        .iter()
        .any(|pause| matches!(pause.what, Paused::Damaged(_)))
}

/// An endpoint is removed, comes back and is adopted: whatever is next.
pub async fn endpoint(world: &mut World) {
    let id = some_box(world);
    match standing(world, &id).await {
        Some(Standing::Adopted) => {
            let (told, wanted) = (format!("remove {id}"), id.clone());
            let removed = world.ask(|manager| async move { manager.remove_endpoint(&wanted).await });
            let removed = removed.await;
            hear(world, &told, removed);
        }
        Some(Standing::Observed) => adopt(world, id),
        None => add(world, &id).await,
    }
}

async fn add(world: &mut World, id: &ControlEndpointId) {
    let spec = spec_of(id.as_str());
    let added = world
        .ask(|manager| async move { manager.add_endpoint(spec, Standing::Observed).await })
        .await;
    hear(world, &format!("add {id}"), added);
    world.learn_names().await;
}

/// What others have bound there becomes ours.
fn adopt(world: &mut World, id: ControlEndpointId) {
    let rack = world.emulation.rack().clone();
    let Some(of_box) = rack.box_named(id.as_str()) else {
        return;
    };
    for gpu in rack.gpus_of_box(of_box) {
        if let Some(port) = world.foreign.remove(&gpu) {
            world.perhaps_adopted.insert(gpu, port);
        }
    }
    let asked = Asked::new(format!("adopt {id}"));
    request(world, asked, |manager, how| async move {
        let adopting = manager.adopt_endpoint(&id, CLIENT, &how, None).await?;
        Ok(adopting.change)
    });
}

/// Whatever was removed is there again, and driven.
pub async fn put_back(world: &mut World) {
    let rack = world.emulation.rack().clone();
    for at in rack.box_ixs() {
        let id = ControlEndpointId::from_lossy(&rack[at].name);
        if standing(world, &id).await.is_none() {
            add(world, &id).await;
        }
        let is_observed = standing(world, &id).await == Some(Standing::Observed);
        if is_observed || world.is_damaged {
            adopt(world, id);
        }
    }
    world.is_damaged = false;
    super::clients::hear_all(world).await;
}

/// What is done about bindings that are lost.
pub async fn repair_policy(world: &mut World) {
    let id = some_box(world);
    let policy = [Repair::Report, Repair::Rebind][world.rng.usize(0..2)];
    let told = format!("{id}: {policy:?} what is lost");
    let set = world
        .ask(|manager| async move { manager.set_repair(&id, policy).await })
        .await;
    hear(world, &told, set);
}

fn some_box(world: &mut World) -> ControlEndpointId {
    let rack = world.emulation.rack().clone();
    let at = world.rng.usize(0..rack.boxes.len());
    ControlEndpointId::from_lossy(&rack.boxes[at].name)
}

/// `None`: the manager has no such endpoint, or does not say.
async fn standing(world: &World, id: &ControlEndpointId) -> Option<Standing> {
    let id = id.clone();
    let found = world
        .ask(|manager| async move { manager.endpoint(&id).await })
        .await;
    Some(found?.ok()?.standing)
}
