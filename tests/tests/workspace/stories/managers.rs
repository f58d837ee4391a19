//! Several managers on one store and one rack.

use crate::stories::kit::{FOREVER, ME, Pool, gpus, spec};
use async_trait::async_trait;
use jiff::SignedDuration;
use poolwright_driver::DriverError;
use poolwright_emulator::fault::{Fault, FaultKind};
use poolwright_executor::{Line, Operation};
use poolwright_model::id::{GpuId, HostId, OperationId};
use poolwright_service::endpoint::{Connected, Connector, EndpointSpec, Standing};
use poolwright_service::leases::{Lease, ManagerRecord, Sharing, TokioClock};
use poolwright_service::{
    Composer, ErrorCode, How, OperationState, Options, Paused, Resolution, ServiceError,
};
use poolwright_store::{Batch, Stored, read};
use poolwright_tests::stopped::{Gate, StoppableLine, StoppableStore};
use poolwright_tests::torture::clock::JumpingClock;
use poolwright_tests::torture::line::spec_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The product's.
pub const TERM: Duration = Duration::from_secs(12);
/// All requests of a manager are over so long after they were sent.
pub const WRITE: Duration = Duration::from_secs(80);

/// A manager, and the gate at which it can be stopped.
pub struct Manager {
    pub composer: Composer,
    pub gate: Gate,
}

pub async fn manager(pool: &Pool, name: &str) -> Manager {
    manager_over(pool, name, pool.line()).await
}

/// The same, with this way to the rack.
pub async fn manager_over(pool: &Pool, name: &str, line: Arc<dyn Connector>) -> Manager {
    manager_at(pool, (name, name), line).await.unwrap()
}

/// The same, with a data directory that has this id.
pub async fn manager_at(
    pool: &Pool,
    (name, home): (&str, &str),
    line: Arc<dyn Connector>,
) -> Result<Manager, ServiceError> {
    let gate = Gate::open();
    let sharing = Sharing {
        id: format!("id-of-{name}"),
        clock: Arc::new(TokioClock::default()),
        ..Sharing::new(home.to_owned(), name.to_owned(), WRITE)
    };
    assert_eq!(sharing.term, TERM);
    let composer = Composer::open(
        Arc::new(StoppableStore(pool.store.clone(), gate.clone())),
        Arc::new(StoppableLine(line, gate.clone())),
        pool.managers_clock.clone(),
        Options {
            sharing: Some(sharing),
            ..pool.options.clone()
        },
    );
    Ok(Manager {
        composer: composer.await?,
        gate,
    })
}

/// A pool whose endpoints are kept, with two managers; the first is in charge.
pub async fn two(rack: &str) -> (Pool, Manager, Manager) {
    let mut pool = Pool::of(rack).await;
    pool.composer().close().await;
    pool.crash().await;
    let a = manager(&pool, "a").await;
    let b = manager(&pool, "b").await;
    (pool, a, b)
}

/// Nothing goes on any more, and everybody says the same as the rack.
pub async fn all_is_well(pool: &mut Pool, managers: &[&Manager]) {
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
            let what = poolwright_service::Release::Demand(crate::stories::kit::demand_id("chat"));
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

impl Manager {
    /// So many free GPUs of a box, all of one kind.
    pub async fn free(&self, of_box: &str, count: usize) -> Vec<GpuId> {
        let snapshot = self.composer.snapshot().await.unwrap();
        let gpus = snapshot.topology.gpus.iter().filter(|gpu| gpu.host.is_none());
        let gpus = gpus.filter(|gpu| gpu.control.iter().any(|at| at.endpoint.as_str() == of_box));
        let gpus: Vec<_> = gpus.collect();
        let alike = gpus.iter().filter(|gpu| gpu.model == gpus[0].model);
        alike.take(count).map(|gpu| gpu.id.clone()).collect()
    }

    pub async fn host(&self, name: &str) -> HostId {
        let snapshot = self.composer.snapshot().await.unwrap();
        let mut hosts = snapshot.topology.hosts.iter();
        hosts.find(|host| host.name == name).unwrap().id.clone()
    }

    pub async fn attach(&self, gpus: &[GpuId], host: &str) -> OperationId {
        let host = self.host(host).await;
        let change = self
            .composer
            .attach(gpus, &host, ME, &How::default())
            .await
            .unwrap();
        change.operation.unwrap().id
    }

    async fn operation(&self, id: &OperationId) -> Operation {
        self.composer.operation(id).await.unwrap()
    }
}

/// Whatever is asked for there, a pause stops it within a second.
#[tokio::test(start_paused = true)]
async fn a_pause_holds_at_a_manager_that_is_busy_with_what_others_ask_of_it() {
    let (mut pool, a, b) = two("demo").await;
    pool.fault(Fault::new(FaultKind::TimeOutBefore).at("box-2").on("PATCH", "**"));
    let stuck = a.attach(&a.free("box-2", 4).await, "host-1").await;
    pool.until("it is held", async || {
        a.operation(&stuck).await.state == OperationState::Indeterminate
    })
    .await;
    // Each of its units is read in vain, for 15 s.
    pool.silence("box-2");
    let slow = Fault::new(FaultKind::Slow {
        by: Duration::from_secs(5),
    });
    pool.fault(slow.at("box-1").on("PATCH", "**"));
    let goes_on = a.attach(&a.free("box-1", 4).await, "host-2").await;
    pool.until("one is bound", async || pool.truth().len() == 1).await;
    let (asker, id) = (b.composer.clone(), stuck.clone());
    let resolved =
        tokio::spawn(async move { asker.resolve(&id, Resolution::AcceptFree, ME, "I looked").await });
    // A second and a little before the answer to the first bind, after which the next would begin.
    tokio::time::sleep(Duration::from_secs(3)).await;
    b.composer
        .pause(Paused::All, ME, "the rack is moved")
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!resolved.is_finished(), "it is being carried out");
    let waits = a.operation(&goes_on).await.waits().join("; ");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(pool.truth().len(), 1, "nothing was sent any more: {waits}");
    resolved.await.unwrap().unwrap();
    assert_eq!(a.operation(&stuck).await.state, OperationState::Failed);

    pool.emulation.clear_faults();
    b.composer.resume(&Paused::All, ME).await.unwrap();
    let ended = b.composer.wait(&goes_on, FOREVER).await.unwrap();
    assert_eq!(ended.state, OperationState::Completed, "{:?}", ended.error());
    all_is_well(&mut pool, &[&a, &b]).await;
}

/// The endpoint is that manager's from now on.
async fn give(pool: &Pool, endpoint: &str, to: &str) {
    let lease = read::<Lease>(&*pool.store, &format!("endpoint/{endpoint}")).await;
    let lease = lease.unwrap().unwrap();
    let manager = read::<ManagerRecord>(&*pool.store, &format!("id-of-{to}")).await;
    let given = Lease {
        epoch: lease.value.epoch + 1,
        manager: Some(manager.unwrap().unwrap().value.who),
        ..lease.value
    };
    let mut batch = Batch::new();
    batch.expect(Lease::KIND, given.id(), Some(lease.revision));
    batch.put(&given).unwrap();
    pool.store.commit(batch).await.unwrap();
    tokio::time::sleep(TERM).await;
}

/// Whatever goes on at one of its endpoints, and be it for days.
#[tokio::test(start_paused = true)]
async fn an_operation_at_the_endpoints_of_two_managers_has_its_turn() {
    let (mut pool, a, b) = two("demo").await;
    give(&pool, "box-2", "b").await;
    pool.fault(
        Fault::new(FaultKind::TimeOutAfter)
            .at("box-2")
            .on("PATCH", "**")
            .times(1),
    );
    let stuck = b.attach(&b.free("box-2", 1).await, "host-1").await;
    pool.until("it is bound", async || pool.truth().len() == 1).await;
    let unit_at = b.operation(&stuck).await.steps[0].step.target.unit_at.clone();
    pool.fault(Fault::new(FaultKind::TimeOutBefore).on("GET", unit_at.address));
    pool.until("nobody can say", async || {
        b.operation(&stuck).await.state == OperationState::Indeterminate
    })
    .await;

    let asked = Instant::now();
    let gpus = [a.free("box-1", 1).await, a.free("box-2", 1).await].concat();
    let both = a.attach(&gpus, "host-2").await;
    for manager in [&a, &b] {
        let waits = manager.operation(&both).await.waits().join("; ");
        let each = "manager a is in charge of box-1, manager b is in charge of box-2";
        assert!(waits.contains(each), "{waits}");
    }
    let ended = b.composer.wait(&both, FOREVER).await.unwrap();
    assert_eq!(ended.state, OperationState::Completed, "{:?}", ended.error());
    assert!(asked.elapsed() < Duration::from_secs(90), "{:?}", asked.elapsed());
    assert_eq!(a.operation(&stuck).await.state, OperationState::Indeterminate);
    pool.emulation.clear_faults();
    let ended = b.composer.wait(&stuck, FOREVER).await.unwrap();
    assert_eq!(ended.state, OperationState::Completed, "{:?}", ended.error());
    all_is_well(&mut pool, &[&a, &b]).await;
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
    assert_eq!(
        (served, pool.truth().len()),
        (6, 24),
        "nobody is refused while there are GPUs, because another one was quicker at those that it had chosen"
    );
    all_is_well(&mut pool, &[&a, &b]).await;
}

/// Fault 57: what its operations wrote down last is told, and not what was once read.
#[tokio::test(start_paused = true)]
async fn a_manager_whose_database_is_silent_tells_all_that_it_knew() {
    let (mut pool, a, b) = two("demo").await;
    assert!(a.composer.compositions().await.unwrap().is_empty());
    let demand = spec(gpus("chat", "h100-pcie-80gb", 3));
    let change = a.composer.compose(demand, ME, &How::default()).await.unwrap();
    let id = change.operation.unwrap().id;
    a.composer.wait(&id, FOREVER).await.unwrap();
    a.gate.cut_off_the_store();
    // Longer than a beat, of which nobody knows then whether it was written.
    tokio::time::sleep(TERM).await;
    assert_eq!(a.composer.compositions().await.unwrap().len(), 1);
    let bound = a.composer.snapshot().await.unwrap();
    let bound = bound.topology.gpus.iter().filter(|gpu| gpu.host.is_some());
    assert_eq!(bound.count(), 3);
    // What is seen meanwhile can't be written down, and is shown.
    let (gpu, port) = pool.truth().pop_first().unwrap();
    let beside = format!("{}/gpu-8", gpu.split('/').next().unwrap());
    pool.bind_by_others(&beside, &port);
    a.composer.discover(&()).await.unwrap();
    let seen = a.composer.snapshot().await.unwrap();
    let seen = seen.topology.gpus.iter().filter(|gpu| gpu.host.is_some());
    assert_eq!(seen.count(), 4);
    let demand = spec(gpus("more", "h100-pcie-80gb", 1));
    let refused = a.composer.compose(demand, ME, &How::default()).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Unavailable, "{refused}");
    a.gate.go_on();
    tokio::time::sleep(TERM * 3).await;
    pool.unbind_by_others(&beside);
    all_is_well(&mut pool, &[&a, &b]).await;
}

/// Fault 9: the one that removes an endpoint does not see yet what another one begins there.
#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_removed_and_used_at_once_is_one_or_the_other() {
    for first in [0, 1, 2, 3, 5, 8] {
        let (mut pool, a, b) = two("demo").await;
        let boxes = a.composer.endpoints().await.unwrap();
        let boxes: Vec<_> = boxes.into_iter().map(|kept| kept.spec.id).collect();
        let at = boxes.iter().find(|id| id.as_str().starts_with("box-1")).unwrap();
        let gpu = a.composer.snapshot().await.unwrap();
        let gpu = gpu
            .topology
            .gpus
            .iter()
            .find(|gpu| gpu.control.iter().any(|c| c.endpoint == *at));
        let gpus = [gpu.unwrap().id.clone()];
        let host = a.composer.snapshot().await.unwrap().topology.hosts[0].id.clone();
        let remove = async {
            for _ in 0..first {
                tokio::task::yield_now().await;
            }
            b.composer.remove_endpoint(at).await
        };
        let how = How::default();
        let (attached, removed) = tokio::join!(a.composer.attach(&gpus, &host, ME, &how), remove);
        let ended = match &attached {
            Ok(change) => {
                let id = change.operation.as_ref().unwrap().id.clone();
                Some(a.composer.wait(&id, FOREVER).await.unwrap().state)
            }
            Err(_) => None,
        };
        match removed {
            Ok(()) => assert_eq!(pool.truth().len(), 0, "{attached:?}"),
            Err(error) => {
                assert_eq!(error.code, ErrorCode::Conflict, "{error}");
                let kept = b.composer.endpoint(at).await.unwrap();
                assert_eq!(kept.standing, Standing::Adopted, "it stays as it was");
                if ended == Some(OperationState::Completed) {
                    assert_eq!(pool.truth().len(), 1);
                }
            }
        }
        pool.quiet().await;
        all_is_well(&mut pool, &[&a, &b]).await;
    }
}

/// A way to the rack on which box-2 can't be reached, while it is cut.
struct Way {
    line: Arc<dyn Connector>,
    is_cut: AtomicBool,
}

#[async_trait]
impl Connector for Way {
    async fn connect(&self, spec: &EndpointSpec) -> Result<Connected, DriverError> {
        match self.is_cut.load(Ordering::SeqCst) && spec.id.as_str() == "box-2" {
            true => Err(DriverError::no_effect("the way to box-2 is cut")),
            false => self.line.connect(spec).await,
        }
    }
}

/// A take-over that can't be finished, because its endpoint can't be reached, ends with the endpoint.
#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_removed_while_it_is_taken_over_is_in_nobodys_hands() {
    let mut pool = Pool::of("demo").await;
    pool.composer().close().await;
    pool.crash().await;
    let a = manager(&pool, "a").await;
    let way = Arc::new(Way {
        line: pool.line(),
        is_cut: AtomicBool::new(true),
    });
    let b = manager_over(&pool, "b", way.clone()).await;
    let id = "box-2".parse().unwrap();
    let lease = async || {
        let lease = read::<Lease>(&*pool.store, "endpoint/box-2").await.unwrap();
        lease.unwrap().value.manager.map(|manager| manager.id)
    };
    a.gate.stop();
    pool.until("the other has taken over", async || {
        lease().await.as_deref() == Some("id-of-b")
    })
    .await;
    b.composer.remove_endpoint(&id).await.unwrap();
    pool.until("nobody has it", async || lease().await.is_none())
        .await;
    tokio::time::sleep(TERM * 4).await;
    assert_eq!(lease().await, None, "nor tries on");

    // The way there is mended, and it is added again.
    way.is_cut.store(false, Ordering::SeqCst);
    let added = b.composer.add_endpoint(spec_of("box-2"), Standing::Adopted);
    added.await.unwrap();
    let attached = b.attach(&b.free("box-2", 1).await, "host-1").await;
    let ended = b.composer.wait(&attached, FOREVER).await.unwrap();
    assert_eq!(ended.state, OperationState::Completed, "{:?}", ended.error());
    a.gate.go_on();
    tokio::time::sleep(TERM).await;
    all_is_well(&mut pool, &[&a, &b]).await;
}

/// Nobody gets all of its endpoints in time: it ends as if somebody had cancelled it, with the reason.
#[tokio::test(start_paused = true)]
async fn an_operation_that_waits_for_managers_beyond_its_deadline_is_given_up() {
    let (mut pool, a, b) = two("demo").await;
    give(&pool, "box-2", "b").await;
    let gpus = [a.free("box-1", 1).await, a.free("box-2", 1).await].concat();
    let host = a.host("host-2").await;
    let how = How {
        // Sooner than a lease changes hands.
        deadline_s: Some(1),
        ..How::default()
    };
    let change = a.composer.attach(&gpus, &host, ME, &how).await.unwrap();
    let id = change.operation.unwrap().id;
    for manager in [&a, &b] {
        let ended = manager.composer.wait(&id, FOREVER).await.unwrap();
        assert_eq!(ended.state, OperationState::RolledBack, "{:?}", ended.waits());
        let stop = ended.stop.unwrap();
        assert!(stop.message.contains("it was not done by"), "{}", stop.message);
    }
    assert!(pool.truth().is_empty());
    all_is_well(&mut pool, &[&a, &b]).await;
}

/// Fault 53: an hour forth and back, several times; whoever is in charge stays so, and what goes on goes on.
#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_is_set_changes_nothing_about_who_is_in_charge() {
    let mut pool = Pool::of("demo").await;
    pool.composer().close().await;
    pool.crash().await;
    let clock = Arc::new(JumpingClock::new());
    pool.managers_clock = clock.clone();
    let a = manager(&pool, "a").await;
    let b = manager(&pool, "b").await;
    let slow = Fault::new(FaultKind::Slow {
        by: Duration::from_secs(5),
    });
    pool.fault(slow.on("PATCH", "/redfish/v1/Fabrics/*/Zones/*"));
    let at_work = a.attach(&a.free("box-1", 4).await, "host-1").await;
    let hour = SignedDuration::from_hours(1);
    for by in [hour, -hour, -hour, hour] {
        clock.jump(by);
        tokio::time::sleep(TERM).await;
        for endpoint in ["box-1", "box-2"] {
            let lease = read::<Lease>(&*pool.store, &format!("endpoint/{endpoint}")).await;
            let holder = lease.unwrap().unwrap().value.manager.unwrap();
            assert_eq!(holder.id, "id-of-a", "{endpoint}");
        }
    }
    let ended = b.composer.wait(&at_work, FOREVER).await.unwrap();
    assert_eq!(ended.state, OperationState::Completed, "{:?}", ended.error());
    let lines = pool.store.journal(&at_work, 0).await.unwrap();
    let adopted = lines.iter().filter(|line| line.json.get().contains("adopted"));
    assert_eq!(adopted.count(), 0, "nobody took it over");
    all_is_well(&mut pool, &[&a, &b]).await;
}
