//! What is known of an endpoint grows old: that is told, and no change rests on it unless somebody says so.

use crate::stories::calendar::Clockwork;
use crate::stories::kit::{ME, Pool, gpus};
use poolwright_emulator::Rack;
use poolwright_model::composable::WhyNotKind;
use poolwright_service::{Change, ErrorCode, How, OperationKind, OperationState, ServiceError};
use poolwright_store::SqliteStore;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

const POLL: Duration = Duration::from_secs(30);
const TEN_MINUTES: Duration = Duration::from_secs(600);
/// Only box-2 has it.
const RARE: &str = "l40s-48gb";
/// Both boxes have it.
const COMMON: &str = "h100-pcie-80gb";

async fn polled() -> (Pool, Clockwork) {
    let rack = Rack::builtin("demo").unwrap();
    let mut pool = Pool::bare(rack, Arc::new(SqliteStore::in_memory().unwrap()));
    pool.options.poll = Some(POLL);
    pool.open().await;
    pool.add_all_endpoints().await;
    let clockwork = Clockwork::of(&pool);
    (pool, clockwork)
}

fn stale_allowed() -> How {
    How {
        allow_stale: true,
        ..How::default()
    }
}

impl Pool {
    async fn compose_as(&self, demand: Value, how: &How) -> Result<Change, ServiceError> {
        self.composer()
            .compose(crate::stories::kit::spec(demand), ME, how)
            .await
    }
}

fn is_stale(refused: &ServiceError, endpoint: &str) {
    assert_eq!(refused.code, ErrorCode::Stale, "{refused}");
    let named: Vec<&str> = refused.stale.iter().map(|id| id.as_str()).collect();
    assert_eq!(named, [endpoint]);
    assert!(
        refused
            .message
            .contains(&format!("{endpoint} was read last at 2026-03-02T12:")),
        "{refused}"
    );
    let hint = refused.hint.as_ref().unwrap();
    assert!(
        hint.contains("--allow-stale") && hint.contains(&format!("endpoint test {endpoint}")),
        "{hint}"
    );
}

/// Fault 23: shown as stale, and refused with exit code 6 unless it is allowed.
#[tokio::test(start_paused = true)]
async fn row_23_what_a_silent_endpoint_had_is_not_given_away() {
    let (pool, clockwork) = polled().await;
    let gpus_of = async |endpoint: &str| {
        let gpus = pool.composer().gpus().await.unwrap().into_iter();
        let mut of = gpus.filter(|gpu| gpu.what.control.iter().any(|at| at.endpoint.as_str() == endpoint));
        of.next().unwrap()
    };
    assert!(!gpus_of("box-2").await.stale);
    pool.silence("box-2");
    tokio::time::sleep(TEN_MINUTES).await;
    let (old, new) = (gpus_of("box-2").await, gpus_of("box-1").await);
    assert!(old.stale && !new.stale);
    assert!(old.observed_at.unwrap() < new.observed_at.unwrap());
    let endpoint = pool.composer().endpoint(&"box-2".parse().unwrap()).await.unwrap();
    assert!(endpoint.stale && endpoint.observed_at == old.observed_at);

    let refused = pool.compose(gpus("rare", RARE, 1)).await.unwrap_err();
    is_stale(&refused, "box-2");
    assert!(pool.demands().await.is_empty() && pool.truth().is_empty());
    // What the others have is given as ever, and what is there alike is not looked for at the silent one.
    for demand in ["one", "two"] {
        pool.composed(gpus(demand, COMMON, 8)).await;
    }
    assert!(pool.truth().keys().all(|gpu| gpu.starts_with("box-1/")));
    is_stale(&pool.compose(gpus("more", COMMON, 1)).await.unwrap_err(), "box-2");
    // A plan for all that is wanted serves what it can, and says why not the rest.
    pool.composer()
        .add_demand(crate::stories::kit::spec(gpus("rare", RARE, 1)))
        .await
        .unwrap();
    let plan = pool.composer().plan().await.unwrap();
    assert!(plan.changes_nothing() && plan.unplaced.len() == 1);
    let why = pool
        .composer()
        .why(&"rare".parse().unwrap())
        .await
        .unwrap()
        .because;
    assert!(why.join("\n").contains("can't be moved"), "{why:?}");
    pool.composer()
        .remove_demand(&"rare".parse().unwrap())
        .await
        .unwrap();

    // It goes as far as the read-back lets it.
    let change = pool
        .compose_as(gpus("rare", RARE, 1), &stale_allowed())
        .await
        .unwrap();
    assert!(change.operation.as_ref().unwrap().allow_stale);
    let ended = pool.ended(&change).await;
    assert_ne!(ended.state, OperationState::Completed);
    assert!(
        ended.allow_stale && ended.error().unwrap().contains("nothing was sent"),
        "{:?}",
        ended.error()
    );

    // Back again, and nobody has polled it yet: it is looked at before anything is refused.
    pool.emulation.clear_faults();
    pool.composed(gpus("rare", RARE, 1)).await;
    assert!(!gpus_of("box-2").await.stale);
    for demand in ["rare", "one", "two"] {
        pool.released(demand).await;
    }
    pool.all_is_free().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_given_to_a_host_whose_bmc_is_silent_and_what_it_has_is_let_go_of() {
    let (pool, clockwork) = polled().await;
    pool.composed(gpus("held", COMMON, 1)).await;
    let holder = pool.composer().compositions().await.unwrap().remove(0).host;
    let bmc = pool
        .snapshot()
        .await
        .topology
        .host(&holder)
        .unwrap()
        .bmc
        .clone()
        .unwrap();
    pool.silence(bmc.as_str());
    tokio::time::sleep(TEN_MINUTES).await;
    let free = pool.snapshot().await;
    let free = free
        .topology
        .gpus
        .iter()
        .find(|gpu| gpu.host.is_none() && gpu.composability.is_composable());
    let free = free.unwrap().id.clone();
    let attach = async |how: &How| {
        pool.composer()
            .attach(std::slice::from_ref(&free), &holder, ME, how)
            .await
    };
    is_stale(&attach(&How::default()).await.unwrap_err(), bmc.as_str());
    let dry = How {
        dry_run: true,
        ..How::default()
    };
    assert!(
        !attach(&dry).await.unwrap().plan.steps.is_empty(),
        "what would be done may be seen"
    );
    pool.composed(gpus("elsewhere", COMMON, 2)).await;
    let hosts = pool.composer().compositions().await.unwrap();
    assert!(
        hosts
            .iter()
            .filter(|c| c.demand.as_ref().unwrap().as_str() == "elsewhere")
            .all(|c| c.host != holder)
    );
    // Letting go rests on nothing that was seen before.
    let released = pool.release("held").await.unwrap();
    assert_eq!(released.operation.unwrap().kind, OperationKind::Release);
    pool.emulation.clear_faults();
    pool.quiet().await;
    clockwork.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_nobody_read_for_long_is_read_before_it_is_given_away() {
    let rack = Rack::builtin("demo").unwrap();
    let mut pool = Pool::bare(rack, Arc::new(SqliteStore::in_memory().unwrap()));
    pool.options.poll = Some(POLL);
    pool.open().await;
    pool.add_all_endpoints().await;
    // Nothing runs by the clock here.
    tokio::time::sleep(POLL * 3).await;
    let gpu = pool.snapshot().await.topology.gpus[0].clone();
    let stale = async || {
        let gpus = pool.composer().gpus().await.unwrap();
        gpus.iter().filter(|gpu| gpu.stale).count()
    };
    assert_eq!(stale().await, 32, "all of them");
    pool.composed(gpus("rare", RARE, 1)).await;
    assert!(stale().await < 32, "what it touched was looked at");
    assert_ne!(
        gpu.composability.0.map(|why| why.kind),
        Some(WhyNotKind::Stale),
        "it is as it was shown"
    );
}
