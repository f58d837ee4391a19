//! Several managers on one store call everything the same, in whatever order they learn of it: records name GPUs and
//! hosts, and whoever called one otherwise would write it off, or give it away twice.

use crate::stories::kit::{FOREVER, ME, Pool, gpus, spec};
use crate::stories::managers::{Manager, manager};
use poolwright_emulator::Rack;
use poolwright_emulator::fault::{Fault, FaultKind};
use poolwright_service::endpoint::Standing;
use poolwright_service::{How, OperationState, Release};
use poolwright_store::SqliteStore;
use poolwright_tests::torture::line::spec_of;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A rack of which nobody knows anything, and two managers.
async fn two_that_know_nothing() -> (Pool, Manager, Manager) {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    let pool = Pool::bare(Rack::builtin("demo").unwrap(), store);
    let (a, b) = (manager(&pool, "a").await, manager(&pool, "b").await);
    (pool, a, b)
}

impl Manager {
    async fn add(&self, endpoint: &str) {
        let added = self
            .composer
            .add_endpoint(spec_of(endpoint), Standing::Adopted)
            .await;
        added.unwrap();
    }

    async fn look(&self) {
        self.composer.discover(&()).await.unwrap();
    }

    /// What this manager calls everything, by what stays of it.
    async fn names(&self) -> BTreeMap<String, String> {
        let snapshot = self.composer.snapshot().await.unwrap();
        let mut names = BTreeMap::new();
        for gpu in &snapshot.topology.gpus {
            let name = gpu.serial.clone().or(gpu.uuid.clone()).unwrap();
            names.insert(name, format!("{} of unit {}", gpu.id, gpu.unit));
        }
        for host in &snapshot.topology.hosts {
            names.insert(host.uuid.clone().unwrap(), host.id.to_string());
            for port in host.ports.iter().filter(|port| port.control.is_some()) {
                names.insert(port.uuid.clone().unwrap(), port.id.to_string());
            }
        }
        names
    }
}

/// Fault 9: one of them sees the fabric with what was bound meanwhile, and the BMC of the host later.
#[tokio::test(start_paused = true)]
async fn a_host_that_two_managers_learn_of_in_another_order_has_one_name() {
    let (pool, a, b) = two_that_know_nothing().await;
    a.add("box-1").await;
    b.look().await;
    assert_eq!(a.names().await, b.names().await, "made of its UUID at both");
    a.add("host-1-bmc").await;
    let gpu = a.free("box-1", 1).await;
    let id = a.attach(&gpu, "host-1").await;
    let ended = a.composer.wait(&id, FOREVER).await.unwrap();
    assert_eq!(ended.state, OperationState::Completed, "{:?}", ended.error());

    pool.silence("host-1-bmc");
    b.look().await;
    assert_eq!(a.names().await, b.names().await);
    pool.emulation.clear_faults();
    for manager in [&b, &a] {
        manager.look().await;
        assert_eq!(a.names().await, b.names().await);
        assert_eq!(manager.composer.drift().await.unwrap(), []);
    }
    let held = b.composer.compositions().await.unwrap();
    assert_eq!(b.host("host-1").await, held[0].host);
    let what = Release::Composition(held[0].id.clone());
    let change = b.composer.release(what, ME, &How::default()).await.unwrap();
    let id = change.operation.unwrap().id;
    let ended = b.composer.wait(&id, FOREVER).await.unwrap();
    assert_eq!(ended.state, OperationState::Completed, "{:?}", ended.error());
    assert!(pool.truth().is_empty());
}

/// Fault 9: at one manager a GPU is known by the serial number that its box shows, before the other one learns its
/// UUID from the host.
#[tokio::test(start_paused = true)]
async fn a_gpu_that_one_manager_knows_by_its_box_and_the_other_by_its_host_has_one_name() {
    let (pool, a, b) = two_that_know_nothing().await;
    a.add("box-1").await;
    pool.bind_by_others("box-1/gpu-1", "host-1/port-1");
    pool.silence("box-1");
    a.add("host-1-bmc").await;
    b.look().await;
    let (at_a, at_b) = (a.names().await, b.names().await);
    assert!(!at_b.is_empty());
    for (thing, name) in &at_b {
        assert_eq!(at_a.get(thing), Some(name), "{thing}");
    }
    pool.emulation.clear_faults();
    for manager in [&b, &a, &b] {
        manager.look().await;
        assert_eq!(a.names().await, b.names().await);
    }
}

/// Fault 9: both at once, and one of them sees less than the other: it comes to an end.
#[tokio::test(start_paused = true)]
async fn managers_that_name_a_rack_at_once_agree_and_write_no_more() {
    let (pool, a, b) = two_that_know_nothing().await;
    for endpoint in ["box-1", "box-2", "host-1-bmc", "host-2-bmc"] {
        tokio::join!(a.add(endpoint), b.look());
        tokio::join!(a.look(), b.look());
        let (at_a, at_b) = tokio::join!(a.names(), b.names());
        assert_eq!(at_a, at_b, "{endpoint}");
    }
    let demand = spec(gpus("chat", "h100-pcie-80gb", 3));
    let change = b.composer.compose(demand, ME, &How::default()).await.unwrap();
    let ended = b
        .composer
        .wait(&change.operation.unwrap().id, FOREVER)
        .await
        .unwrap();
    assert_eq!(ended.state, OperationState::Completed, "{:?}", ended.error());
    a.names().await;
    b.names().await;

    let named = async || pool.store.get("ids", "pool").await.unwrap().unwrap().revision;
    let before = named().await;
    pool.silence("box-2");
    b.look().await;
    pool.emulation.clear_faults();
    for _ in 0..5 {
        a.look().await;
        b.names().await;
        b.look().await;
        a.names().await;
    }
    assert_eq!(named().await, before, "nothing was named that had a name");
}

/// A host keeps the provisional name under which something is on its way to it, until nothing goes by it.
#[tokio::test(start_paused = true)]
async fn a_host_that_something_goes_to_keeps_its_name_when_its_bmc_is_learned_elsewhere() {
    let (pool, a, b) = two_that_know_nothing().await;
    a.add("box-1").await;
    b.look().await;
    let host = {
        let snapshot = b.composer.snapshot().await.unwrap();
        snapshot.topology.hosts[0].clone()
    };
    let gpu = b.free("box-1", 1).await;
    let slow = Fault::new(FaultKind::Slow {
        by: Duration::from_secs(5),
    });
    pool.fault(slow.on("PATCH", "/redfish/v1/Fabrics/*/Zones/*"));
    let change = b
        .composer
        .attach(&gpu, &host.id, ME, &How::default())
        .await
        .unwrap();
    assert!(pool.truth().is_empty(), "it is on its way");
    for bmc in ["host-1-bmc", "host-2-bmc"] {
        a.add(bmc).await;
    }
    let id = change.operation.unwrap().id;
    let ended = a.composer.wait(&id, FOREVER).await.unwrap();
    assert_eq!(ended.state, OperationState::Completed, "{:?}", ended.error());
    pool.emulation.clear_faults();
    for manager in [&a, &b] {
        manager.look().await;
        assert_eq!(manager.composer.drift().await.unwrap(), []);
    }
    assert_eq!(a.names().await, b.names().await);
    assert_eq!(a.names().await[&host.uuid.unwrap()], host.id.as_str());
}
