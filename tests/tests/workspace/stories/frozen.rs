//! A manager of this version takes over the database of an earlier one.

use crate::stories::kit::{Pool, at, gpus};
use poolwright_emulator::Rack;
use poolwright_service::clock::FastClock;
use poolwright_service::{CheckResult, OperationState};
use poolwright_store::SqliteStore;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The rack of that manager, as it was bound.
fn rack() -> Rack {
    let mut rack = Rack::builtin("zones").unwrap();
    let bound = [
        ("box-1/gpu-4", "host-2/port-2"),
        ("box-2/gpu-3", "host-2/port-1"),
        ("box-2/gpu-4", "host-2/port-1"),
    ];
    for (gpu, port) in bound {
        let gpu = rack.gpu_named(gpu).unwrap();
        let port = rack.port_named(port).unwrap();
        rack.prebound.push((gpu, port));
    }
    rack
}

/// Fault 101: it was killed while it composed.
#[tokio::test]
async fn the_database_of_an_earlier_version_is_taken_over_with_its_open_operation() {
    let dir = tempfile::tempdir().unwrap();
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("../composer/store/tests/frozen/store-0001.sql");
    let text = std::fs::read_to_string(text).unwrap();
    rusqlite::Connection::open(dir.path().join("poolwright.db"))
        .unwrap()
        .execute_batch(&text)
        .unwrap();
    // The file beside the database: without it the manager waits for an operator, as after a restore.
    let cluster = r#"{"cluster":"16b47c47-aeaa-4a33-a205-09a0c8810404","revision":94}"#;
    std::fs::write(dir.path().join("cluster.json"), cluster).unwrap();
    let store = Arc::new(SqliteStore::open(dir.path()).unwrap());
    let mut pool = Pool::bare(rack(), store);
    pool.managers_clock = Arc::new(FastClock::starting_at(at("2026-11-27T22:10:00Z"), 1.0));
    // The request of that manager may still come true for so long.
    pool.options.execute.act_deadline = Duration::from_secs(1);
    pool.open().await;
    pool.quiet().await;

    let composer = pool.composer();
    let operations = composer.operations().await.unwrap();
    let states: Vec<_> = operations.iter().map(|operation| operation.state).collect();
    assert_eq!(states, [OperationState::Completed; 5]);
    let compositions = composer.compositions().await.unwrap();
    let held: BTreeSet<_> = compositions
        .iter()
        .map(|held| held.demand.as_ref().unwrap().as_str())
        .collect();
    assert_eq!(held, BTreeSet::from(["open", "train", "web"]));
    let truth = pool.truth();
    let new = ("box-1/gpu-1".to_owned(), "host-2/port-2".to_owned());
    assert_eq!(
        (truth.len(), truth.get_key_value(&new.0)),
        (5, Some((&new.0, &new.1)))
    );
    let checks = composer.doctor().await.unwrap();
    let documents = checks.iter().find(|check| check.name == "documents").unwrap();
    assert_eq!(documents.result, CheckResult::Ok);

    pool.released("open").await;
    pool.composed(gpus("next", "a100-pcie-80gb", 1)).await;
}
