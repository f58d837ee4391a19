//! What changed between two snapshots.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

use poolwright_inventory::{Snapshot, SnapshotDiff};
use poolwright_model::fault::{Fault, FaultKind};
use poolwright_model::topology::Topology;

fn snapshot(gpus: serde_json::Value, faults: Vec<Fault>) -> Snapshot {
    let topology: Topology =
        serde_json::from_value(serde_json::json!({"gpus": gpus, "hosts": [], "fabrics": []})).unwrap();
    Snapshot {
        taken_at: jiff::Timestamp::UNIX_EPOCH,
        topology,
        endpoints: vec![],
        faults,
        requests: 1,
        elapsed_ms: 2,
        contested: false,
    }
}

fn gpu(id: &str, state: &str) -> serde_json::Value {
    serde_json::json!({
        "id": id, "vendor": null, "model": null, "memory_bytes": null, "uuid": null, "serial": null,
        "pci_ids": null, "chassis": null, "slot": null, "functions": [], "partitions": [], "ports": [],
        "unit": id, "composable": true, "why_not": null, "host": null, "host_port": null,
        "state": state, "health": "ok"
    })
}

#[test]
fn appeared_vanished_and_changed_are_told_apart() {
    let fault = Fault::new("box-1", FaultKind::Timeout, "slow");
    let before = snapshot(
        serde_json::json!([gpu("a", "free"), gpu("b", "free")]),
        vec![fault.clone()],
    );
    let after = snapshot(serde_json::json!([gpu("b", "bound"), gpu("c", "free")]), vec![]);
    let diff = SnapshotDiff::between(&before, &after);
    assert_eq!(diff.gpus.appeared, ["c"]);
    assert_eq!(diff.gpus.vanished, ["a"]);
    assert_eq!(diff.gpus.changed.len(), 1);
    assert_eq!(diff.gpus.changed[0].member, "state");
    assert_eq!(diff.gpus.changed[0].after, "bound");
    assert_eq!(diff.gone_faults, [fault]);
    assert!(!diff.is_empty());
}

#[test]
fn a_snapshot_differs_from_itself_in_nothing_and_survives_being_saved() {
    let one = snapshot(serde_json::json!([gpu("a", "free")]), vec![]);
    let text = serde_json::to_string(&one).unwrap();
    let mut saved: Snapshot = serde_json::from_str(&text).unwrap();
    assert_eq!(saved, one);
    saved.elapsed_ms = 99;
    assert!(SnapshotDiff::between(&one, &saved).is_empty());
}
