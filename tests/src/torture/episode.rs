//! The course of an episode: some actions, a rest at which everything must be in order, and the end, at which
//! everything is let go.

use super::world::World;
use super::{clients, incidents, invariants, operators};
use invariants::Invariant;
use poolwright_store::Store;
use std::time::Duration;

/// Before everything comes to rest.
const ACTIONS: u32 = 80;
/// Within so long all has come to rest.
const REST: Duration = Duration::from_secs(3 * 3600);
/// Between two looks at whether it has.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// So often something may begin just when all has come to rest.
const RESTS: u32 = 20;
/// What can end by itself has ended after so many looks.
const BY_ITSELF: u32 = 30;

pub async fn run(world: &mut World) {
    for _ in 0..ACTIONS {
        act(world).await;
        if world.gate().is_some_and(super::gate::Gate::is_dead) {
            world.kill().await;
        }
        clients::hear_some(world);
        invariants::at_every_step(world).await;
        if !world.violations.is_empty() {
            return;
        }
    }
    check_at_rest(world).await;
    if !world.violations.is_empty() {
        return;
    }
    incidents::repair(world);
    // A composition may be held back by another.
    for _ in 0..4 {
        clients::release_all(world).await;
        rest(world).await;
    }
    check_at_rest(world).await;
    invariants::at_the_end(world).await;
}

async fn check_at_rest(world: &mut World) {
    for _ in 0..RESTS {
        rest(world).await;
        if invariants::at_rest(world).await || !world.violations.is_empty() {
            return;
        }
    }
    let wrong = format!("something begins by itself, after {RESTS} rests still");
    world.checks(Invariant::EveryOperationEnds, Some(wrong));
}

async fn act(world: &mut World) {
    if world.manager().is_none() && world.rng.u32(0..3) > 0 {
        let dies_in = (world.rng.u32(0..4) == 0).then(|| world.rng.u32(0..150));
        world.start(dies_in).await;
    }
    match world.rng.u32(0..120) {
        0..24 => clients::compose(world),
        24..38 => clients::release(world),
        38..45 => clients::attach(world).await,
        45..50 => clients::detach(world),
        50..54 => clients::undo(world),
        54..57 => clients::cancel(world).await,
        57..60 => clients::schedule(world).await,
        60..63 => clients::discover(world).await,
        63..65 => clients::resolve(world, false).await,
        65..70 => clients::send_again(world),
        70..72 => crash(world).await,
        72..75 => crash_soon(world),
        75..83 => incidents::fault(world),
        83..85 => incidents::clear(world),
        85..87 => incidents::disk(world),
        87 => incidents::endpoint_restarts(world),
        88..90 => incidents::meddle(world).await,
        90..92 => incidents::vanish(world),
        92 => incidents::host(world),
        93..96 => incidents::work(world),
        96 => incidents::clock(world),
        97..101 => operators::move_to(world).await,
        101..103 => operators::apply(world).await,
        103..105 => operators::pause(world).await,
        105..107 => operators::endpoint(world).await,
        107 => operators::repair_policy(world).await,
        108 => incidents::renumber(world),
        109 => incidents::exchange(world).await,
        110 => incidents::flip(world).await,
        111..114 => operators::resume_all(world).await,
        114..117 => clients::submit_job(world),
        117..120 => clients::end_job_at_once(world),
        _ => {}
    }
    let pause = match world.rng.u32(0..3) {
        0 => Duration::from_millis(world.rng.u64(0..300)),
        1 => Duration::from_secs(world.rng.u64(0..10)),
        _ => Duration::from_secs(world.rng.u64(0..300)),
    };
    tokio::time::sleep(pause).await;
}

async fn crash(world: &mut World) {
    world.kill().await;
    tokio::time::sleep(Duration::from_millis(world.rng.u64(0..5000))).await;
}

/// The manager is killed at one of the next moments at which that would make a difference.
fn crash_soon(world: &mut World) {
    let passes = world.rng.u32(0..200);
    if let Some(gate) = world.gate() {
        gate.dies_in(Some(passes));
        world
            .trace
            .add(&format_args!("the manager dies at the {passes}th call from now"));
    }
}

/// Nothing goes wrong any more, and everything comes to an end.
async fn rest(world: &mut World) {
    incidents::calm(world);
    if let Some(gate) = world.gate() {
        gate.dies_in(None);
    }
    if world.manager().is_none() {
        world.start(None).await;
    }
    operators::resume_all(world).await;
    clients::hear_all(world).await;
    if operators::is_held_by_damage(world).await {
        world.kill().await;
        world.start(None).await;
    }
    // A client may have paused it again meanwhile.
    operators::resume_all(world).await;
    clients::remove_schedules(world).await;
    clients::end_jobs(world).await;
    let end = tokio::time::Instant::now() + REST;
    let (mut looks, mut quiet) = (0, 0);
    // Twice, so that whoever follows an end has begun what follows from it.
    while quiet < 2 {
        let open = world.store.open_operations().await.unwrap_or_default();
        quiet = if open.is_empty() { quiet + 1 } else { 0 };
        if !open.is_empty() && tokio::time::Instant::now() >= end {
            let wrong = format!(
                "{} operations do not end: {}",
                open.len(),
                invariants::waits(world, &open).await
            );
            world.checks(Invariant::EveryOperationEnds, Some(wrong));
            break;
        }
        looks += 1;
        clients::resolve(world, looks > BY_ITSELF).await;
        clients::end_jobs(world).await;
        invariants::at_every_step(world).await;
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    operators::put_back(world).await;
    clients::discover(world).await;
}
