//! Each request to the rack goes wrong once, in each way, in each style of control: a compose and a release
//! end as they should, and afterwards the rack and the manager say the same.

use crate::stories::kit::{Bindings, FOREVER, ME, Pool, gpus};
use poolwright_emulator::fault::{Fault, FaultKind};
use poolwright_service::{Change, OperationState, Resolution};
use std::collections::BTreeMap;

/// How a request goes wrong.
const WAYS: [&str; 8] = [
    "refused",
    "server error",
    "no answer, no effect",
    "no answer, but its effect",
    "says yes, does nothing",
    "garbage",
    "the GPU vanishes",
    "all bindings are lost",
];

fn fault(way: &str, gpu: &str) -> FaultKind {
    let status = |code| FaultKind::Status {
        code,
        retry_after: None,
    };
    match way {
        "refused" => status(503),
        "server error" => status(500),
        "no answer, no effect" => FaultKind::TimeOutBefore,
        "no answer, but its effect" => FaultKind::TimeOutAfter,
        "says yes, does nothing" => FaultKind::NoEffect,
        "garbage" => FaultKind::Garbage,
        "the GPU vanishes" => FaultKind::Vanish { gpu: gpu.to_owned() },
        "all bindings are lost" => FaultKind::LoseBindings,
        _ => unreachable!("no such way"),
    }
}

/// A rack in one of the styles, and the kind of GPU that there are some free of.
const RACKS: [(&str, &str); 3] = [
    ("zones", "a100-pcie-80gb"),
    ("connections", "l40s-48gb"),
    ("blocks", "h100-nvl-94gb"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Compose,
    Release,
}

async fn prepared(rack: &str, kind: &str, doing: Doing) -> Pool {
    let pool = Pool::of(rack).await;
    if doing == Doing::Release {
        pool.composed(gpus("it", kind, 2)).await;
    }
    // What an earlier operation left is looked at before the requests are counted.
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    pool
}

async fn begin(pool: &Pool, kind: &str, doing: Doing) -> Change {
    match doing {
        Doing::Compose => pool.compose(gpus("it", kind, 2)).await.unwrap(),
        Doing::Release => pool.release("it").await.unwrap(),
    }
}

/// The GPUs that it is about, and how many requests it takes if nothing goes wrong.
async fn undisturbed(rack: &str, kind: &str, doing: Doing) -> (Vec<String>, u32) {
    let pool = prepared(rack, kind, doing).await;
    let (before, held) = (pool.emulation.requests(), pool.truth());
    let change = begin(&pool, kind, doing).await;
    pool.done(&change).await;
    let requests = u32::try_from(pool.emulation.requests() - before).unwrap();
    let after = pool.truth();
    let moved = held.keys().chain(after.keys());
    let moved = moved.filter(|gpu| held.contains_key(*gpu) != after.contains_key(*gpu));
    (moved.cloned().collect(), requests)
}

/// How often operations ended how.
type Ends = BTreeMap<OperationState, u32>;

/// One request goes wrong: what becomes of the operation, and of the rack.
async fn one(rack: &str, kind: &str, doing: Doing, way: &str, nth: u32, gpu: &str) -> OperationState {
    let case = format!("{rack}, {doing:?}, request {nth}: {way}");
    let pool = prepared(rack, kind, doing).await;
    let before = pool.emulation.requests();
    pool.fault(Fault::new(fault(way, gpu)).after(nth).times(1));
    let change = begin(&pool, kind, doing).await;
    let id = change.operation.as_ref().unwrap().id.clone();
    let manager = pool.composer();
    pool.until(&case, async || {
        let state = manager.operation(&id).await.unwrap().state;
        // A fault that passes leaves nothing unknown; a GPU that is gone can't be asked.
        let stuck = state == OperationState::Indeterminate && way == "the GPU vanishes";
        state.has_ended() || state == OperationState::Quarantined || stuck
    })
    .await;
    let state = manager.operation(&id).await.unwrap().state;
    if !state.has_ended() {
        assert!(
            way == "the GPU vanishes" || way == "all bindings are lost",
            "{case}: {state}"
        );
        assert_eq!(pool.demands().await, ["it"], "{case}: it is not given up");
        manager
            .resolve(&id, Resolution::AcceptFree, ME, "looked")
            .await
            .unwrap();
        let ended = manager.wait(&id, FOREVER).await.unwrap();
        assert_eq!(ended.state, OperationState::Failed, "{case}");
    }
    assert!(
        pool.emulation.requests() - before > nth.into(),
        "{case}: nothing was hit"
    );
    as_it_should_be(&pool, &id, doing, &case).await;
    state
}

async fn as_it_should_be(pool: &Pool, id: &poolwright_model::id::OperationId, doing: Doing, case: &str) {
    let manager = pool.composer();
    pool.quiet().await;
    manager.discover(&()).await.unwrap();
    let (truth, shown, recorded) = (pool.truth(), pool.shown().await, pool.recorded().await);
    assert_eq!(shown, truth, "{case}: shown (left) and truth (right)");
    let operation = manager.operation(id).await.unwrap();
    let kept = !pool.demands().await.is_empty();
    let lost = case.ends_with("the GPU vanishes") || case.ends_with("all bindings are lost");
    let rack = pool.emulation.rack();
    let foreign: Bindings = rack
        .prebound
        .iter()
        .map(|(gpu, port)| (rack.gpu_name(*gpu), rack.port_name(*port)))
        .collect();
    for (gpu, port) in &truth {
        let known = recorded.get(gpu) == Some(port) || foreign.get(gpu) == Some(port);
        assert!(
            known,
            "{case}: {gpu} is bound to {port}, and nobody holds it ({operation:?})"
        );
    }
    if !lost {
        for (gpu, port) in &recorded {
            assert_eq!(
                truth.get(gpu),
                Some(port),
                "{case}: {gpu} is recorded and not bound"
            );
        }
        let done = match (doing, operation.state) {
            (_, OperationState::Completed) => true,
            (_, OperationState::RolledBack) => false,
            (_, other) => panic!("{case}: ended as {other}: {:?}", operation.error()),
        };
        assert_eq!(kept, done == (doing == Doing::Compose), "{case}");
        assert_eq!(recorded.len(), if kept { 2 } else { 0 }, "{case}");
        pool.all_is_well().await;
    }
    let tally = pool.emulation.with(|state, _| state.tally());
    assert_eq!(tally.pulled_in_use, 0, "{case}");
}

async fn fail_at_every_step(rack: &str, kind: &str) {
    let mut ends = Ends::new();
    for doing in [Doing::Compose, Doing::Release] {
        let (moved, requests) = undisturbed(rack, kind, doing).await;
        assert!(moved.len() == 2 && requests >= 10, "{moved:?}, {requests}");
        for way in WAYS {
            for nth in 0..requests {
                let state = one(rack, kind, doing, way, nth, &moved[0]).await;
                *ends.entry(state).or_default() += 1;
            }
        }
    }
    // If nothing failed, nothing was hit.
    assert!(
        ends[&OperationState::Completed] > 20 && ends[&OperationState::RolledBack] > 20,
        "{ends:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn fail_at_every_step_in_zones() {
    fail_at_every_step(RACKS[0].0, RACKS[0].1).await;
}

#[tokio::test(start_paused = true)]
async fn fail_at_every_step_with_connections() {
    fail_at_every_step(RACKS[1].0, RACKS[1].1).await;
}

#[tokio::test(start_paused = true)]
async fn fail_at_every_step_of_resource_blocks() {
    fail_at_every_step(RACKS[2].0, RACKS[2].1).await;
}
