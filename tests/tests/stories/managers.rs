//! Several managers on one store and one rack.

use crate::kit::{FOREVER, ME, Pool, gpus, spec};
use crate::stopped::{Gate, StoppableLine, StoppableStore};
use poolwright_emulator::fault::{Fault, FaultKind};
use poolwright_executor::Line;
use poolwright_service::leases::{Sharing, TokioClock};
use poolwright_service::{Composer, How, OperationState, Options};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const TERM: Duration = Duration::from_secs(9);
/// All requests of a manager are over so long after they were sent.
const WRITE: Duration = Duration::from_secs(80);

/// A manager, and the gate at which it can be stopped.
struct Manager {
    composer: Composer,
    gate: Gate,
}

async fn manager(pool: &Pool, name: &str) -> Manager {
    let gate = Gate::open();
    let sharing = Sharing {
        id: format!("id-of-{name}"),
        home: name.to_owned(),
        name: name.to_owned(),
        term: TERM,
        write_deadline: WRITE,
        clock: Arc::new(TokioClock::default()),
    };
    let composer = Composer::open(
        Arc::new(StoppableStore(pool.store.clone(), gate.clone())),
        Arc::new(StoppableLine(pool.line(), gate.clone())),
        pool.managers_clock.clone(),
        Options {
            sharing: Some(sharing),
            ..pool.options.clone()
        },
    );
    Manager {
        composer: composer.await.unwrap(),
        gate,
    }
}

/// A pool whose endpoints are kept, with two managers; the first is in charge.
async fn two(rack: &str) -> (Pool, Manager, Manager) {
    let mut pool = Pool::of(rack).await;
    pool.composer().close().await;
    pool.crash().await;
    let a = manager(&pool, "a").await;
    let b = manager(&pool, "b").await;
    (pool, a, b)
}

/// Nothing goes on any more, and everybody says the same as the rack.
async fn all_is_well(pool: &mut Pool, managers: &[&Manager]) {
    pool.quiet().await;
    for manager in managers {
        manager.composer.close().await;
    }
    pool.restart().await;
    pool.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn who_asks_either_manager_is_served() {
    let (mut pool, a, b) = two("demo").await;
    for (asked, name) in [(&a, "chat"), (&b, "search")] {
        let demand = spec(gpus(name, "h100-pcie-80gb", 4));
        let change = asked.composer.compose(demand, ME, &How::default()).await.unwrap();
        let id = change.operation.unwrap().id;
        let ended = asked.composer.wait(&id, FOREVER).await.unwrap();
        assert_eq!(ended.state, OperationState::Completed, "{:?}", ended.error());
        // Ownership reads are the same everywhere, at once.
        for manager in [&a, &b] {
            let compositions = manager.composer.compositions().await.unwrap();
            assert!(
                compositions
                    .iter()
                    .any(|c| c.demand.as_ref().is_some_and(|d| d.as_str() == name))
            );
        }
    }
    assert_eq!(pool.truth().len(), 8);
    all_is_well(&mut pool, &[&a, &b]).await;
}

#[tokio::test(start_paused = true)]
async fn what_another_manager_works_at_can_be_cancelled_here() {
    let (mut pool, a, b) = two("demo").await;
    let slow = Fault::new(FaultKind::Slow {
        by: Duration::from_secs(5),
    });
    pool.fault(slow.on("PATCH", "/redfish/v1/Fabrics/*/Zones/*"));
    let demand = spec(gpus("chat", "h100-pcie-80gb", 8));
    let change = a.composer.compose(demand, ME, &How::default()).await.unwrap();
    let id = change.operation.unwrap().id;
    pool.until("something is bound", async || !pool.truth().is_empty())
        .await;
    let cancelled = b.composer.cancel(&id, ME, "changed our mind").await.unwrap();
    assert!(cancelled.stop.is_some(), "{cancelled:?}");
    let ended = b.composer.wait(&id, FOREVER).await.unwrap();
    assert_eq!(ended.state, OperationState::Cancelled);
    assert!(
        b.composer
            .cancel(&id, ME, "again")
            .await
            .unwrap_err()
            .message
            .contains("already")
    );
    assert!(pool.truth().is_empty());
    all_is_well(&mut pool, &[&a, &b]).await;
}

/// The first manager is stopped between its last look at its lease and the request, or a little later; the second
/// adopts within 30 s what it was at, and finishes it once nothing of the first can come. The first goes on ten
/// terms later, and changes nothing.
async fn stopped_in_the_middle(verb: &str, after: Duration) {
    let (mut pool, a, b) = two("demo").await;
    if verb == "unbind" {
        let demand = spec(gpus("chat", "h100-pcie-80gb", 4));
        let change = a.composer.compose(demand, ME, &How::default()).await.unwrap();
        a.composer
            .wait(&change.operation.unwrap().id, FOREVER)
            .await
            .unwrap();
    }
    let slow = Fault::new(FaultKind::Slow {
        by: Duration::from_secs(2),
    });
    pool.fault(slow.on("PATCH", "/redfish/v1/Fabrics/*/Zones/*"));
    let change = match verb {
        "bind" => {
            let demand = spec(gpus("chat", "h100-pcie-80gb", 4));
            a.composer.compose(demand, ME, &How::default()).await.unwrap()
        }
        _ => {
            let what = poolwright_service::Release::Demand(crate::kit::demand_id("chat"));
            a.composer.release(what, ME, &How::default()).await.unwrap()
        }
    };
    let id = change.operation.unwrap().id;
    tokio::time::sleep(after).await;
    a.gate.stop();
    let stopped = Instant::now();

    pool.until("the other manager adopts it", async || {
        let lines = pool.store.journal(&id, 0).await.unwrap();
        lines.iter().any(|line| {
            serde_json::from_str::<poolwright_executor::Noted>(line.json.get())
                .unwrap()
                .line
                == Line::Adopted
        })
    })
    .await;
    assert!(
        stopped.elapsed() < Duration::from_secs(30),
        "adopted after {:?}",
        stopped.elapsed()
    );
    let ended = b.composer.wait(&id, FOREVER).await.unwrap();
    assert_eq!(ended.state, OperationState::Completed, "{:?}", ended.error());
    let before = pool.truth();
    assert_eq!(before.len(), if verb == "bind" { 4 } else { 0 });

    tokio::time::sleep((TERM * 10).saturating_sub(stopped.elapsed())).await;
    a.gate.go_on();
    tokio::time::sleep(TERM * 3).await;
    assert_eq!(pool.truth(), before, "what came late changed nothing");
    let seen = a.composer.operation(&id).await.unwrap();
    assert_eq!(seen.state, OperationState::Completed, "and it tells the truth");
    all_is_well(&mut pool, &[&a, &b]).await;
}

/// Fault 8: stopped before, in and after a bind, for ten terms.
#[tokio::test(start_paused = true)]
async fn a_manager_stopped_while_it_binds_is_replaced() {
    for after in [0, 100, 700, 1_500, 3_100] {
        stopped_in_the_middle("bind", Duration::from_millis(after)).await;
    }
}

/// Fault 8: and around an unbind.
#[tokio::test(start_paused = true)]
async fn a_manager_stopped_while_it_unbinds_is_replaced() {
    for after in [0, 100, 700, 1_500, 3_100] {
        stopped_in_the_middle("unbind", Duration::from_millis(after)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_ends_in_order_leaves_its_work_to_the_other() {
    let (mut pool, a, b) = two("demo").await;
    let slow = Fault::new(FaultKind::Slow {
        by: Duration::from_secs(2),
    });
    pool.fault(slow.on("PATCH", "/redfish/v1/Fabrics/*/Zones/*"));
    let demand = spec(gpus("chat", "h100-pcie-80gb", 8));
    let change = a.composer.compose(demand, ME, &How::default()).await.unwrap();
    let id = change.operation.unwrap().id;
    pool.until("something is bound", async || !pool.truth().is_empty())
        .await;
    a.composer.close().await;
    let closed = Instant::now();
    let bound = pool.truth().len();
    pool.until("the other goes on", async || pool.truth().len() > bound)
        .await;
    assert!(
        closed.elapsed() < TERM * 2,
        "{:?}: nothing had to be waited for",
        closed.elapsed()
    );
    let ended = b.composer.wait(&id, FOREVER).await.unwrap();
    assert_eq!(ended.state, OperationState::Completed, "{:?}", ended.error());
    all_is_well(&mut pool, &[&b]).await;
}

/// Fault 10: asked at two managers.
#[tokio::test(start_paused = true)]
async fn many_at_both_managers_get_each_gpu_once() {
    let (mut pool, a, b) = two("demo").await;
    let mut asked = Vec::new();
    for n in 0..16 {
        let composer = if n % 2 == 0 {
            a.composer.clone()
        } else {
            b.composer.clone()
        };
        asked.push(tokio::spawn(async move {
            let demand = spec(gpus(&format!("d{n}"), "h100-pcie-80gb", 4));
            let change = composer.compose(demand, ME, &How::default()).await.ok()?;
            let ended = composer.wait(&change.operation?.id, FOREVER).await.ok()?;
            (ended.state == OperationState::Completed).then_some(())
        }));
    }
    let mut served = 0;
    for asked in asked {
        served += usize::from(asked.await.unwrap().is_some());
    }
    assert!(served > 0);
    assert_eq!(
        pool.truth().len(),
        served * 4,
        "whoever was served has what it asked for"
    );
    all_is_well(&mut pool, &[&a, &b]).await;
}
