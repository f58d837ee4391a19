//! A bit that flips in the database file.

use crate::support::{Manager, Rack, slow_rack};
use std::path::Path;

const ONE: u8 = 1;
/// More than is repaired.
const TWO: u8 = 3;

/// Flips bits of the last character of the id in a document's content.
fn flip_in_content(dir: &Path, kind: &str, id: &str, bits: u8) {
    // In a row of the table the content follows kind, id and revision.
    const REVISION: usize = 8;
    let file = dir.join("poolwright.db");
    let mut bytes = std::fs::read(&file).unwrap();
    let (name, content) = (format!("{kind}{id}"), format!("{{\"id\":\"{id}"));
    let content_after = |at: usize| {
        let near = at + name.len()..at + name.len() + REVISION;
        let mut near = near.filter(|at| bytes[*at..].starts_with(content.as_bytes()));
        near.next()
    };
    let at: Vec<usize> = (0..bytes.len() - name.len() - REVISION)
        .filter(|at| bytes[*at..].starts_with(name.as_bytes()))
        .filter_map(content_after)
        .collect();
    assert!(!at.is_empty(), "{kind}/{id} is not in the file");
    for at in at {
        bytes[at + content.len() - 1] ^= bits;
    }
    std::fs::write(file, bytes).unwrap();
}

/// Faults 98 and 99: the real program, from the flip to the recovery.
#[tokio::test]
async fn a_flipped_bit_in_the_file_of_a_manager_changes_no_hardware_and_is_recovered() {
    let (rack, folder) = (
        Rack::start(&slow_rack("10ms")).await,
        tempfile::tempdir().unwrap(),
    );
    let dir = folder.path();
    let manager = Manager::start(dir, &[]).await;
    manager.adopt(&rack).await;
    manager
        .run("compose --gpus 2 --name web")
        .await
        .expect(0, &["done"]);
    let held = manager.run("get compositions -o json").await.json();
    let id = held[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(manager.server.terminate().await, 0);
    let bound = rack.bindings();

    flip_in_content(dir, "composition", &id, ONE);
    let document = format!("composition/{id}");
    let named = format!("damaged document {document}");
    let resume = format!("resume --damaged {document}");
    let manager = Manager::start(dir, &[]).await;
    manager.until_probe(false, &[&named]).await;
    manager
        .run("doctor")
        .await
        .expect(1, &[&named, "restore a backup", &format!("poolwright {resume}")]);
    for command in [
        "compose --gpus 1 --name lab",
        "release web --yes",
        "release web --dry-run",
        "diff",
    ] {
        manager
            .run(command)
            .await
            .refused(5, &[&named, "poolwright doctor"]);
    }
    manager.run("why web").await.expect(0, &[&named]);
    assert_eq!(rack.bindings(), bound);

    manager
        .run("resume --damaged composition/other --yes")
        .await
        .refused(3, &["composition/other", "poolwright doctor"]);
    manager
        .run(&format!("{resume} --discard"))
        .await
        .refused(2, &[&document, "--yes"]);
    manager.run(&resume).await.expect(0, &["is recovered"]);
    manager.until_probe(true, &[]).await;
    let again = manager.run("get compositions -o json").await.json();
    let gpus: usize = again
        .as_array()
        .unwrap()
        .iter()
        .map(|composition| composition["held"].as_array().unwrap().len())
        .sum();
    assert_eq!((gpus, again[0]["id"].as_str()), (2, Some(id.as_str())), "{again}");
    assert_eq!(rack.bindings(), bound);
    manager.run("doctor").await.expect(0, &[]);
}

/// Fault 99: an endpoint of the manager's own rack. The manager starts, for the recovery.
#[tokio::test]
async fn a_manager_starts_although_an_endpoint_of_its_own_rack_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, options) = (folder.path(), ["--rack", "zones"]);
    let manager = Manager::start(dir, &options).await;
    let endpoints = manager.run("get endpoints -o json").await.json();
    let id = endpoints[0]["id"].as_str().unwrap();
    assert_eq!(manager.server.terminate().await, 0);

    flip_in_content(dir, "endpoint", id, ONE);
    let document = format!("endpoint/{id}");
    let manager = Manager::start(dir, &options).await;
    let named = format!("damaged document {document}");
    manager.until_probe(false, &[&named]).await;
    let resume = format!("resume --damaged {document}");
    manager.run(&resume).await.expect(0, &["is recovered"]);
    manager.until_probe(true, &[]).await;
    manager
        .run("compose --gpus 1 --name web")
        .await
        .expect(0, &["done"]);
    assert_eq!(manager.server.terminate().await, 0);

    // Discarded, it is added again once nothing is paused.
    flip_in_content(dir, "endpoint", id, TWO);
    let manager = Manager::start(dir, &options).await;
    manager.until_probe(false, &[&named]).await;
    manager
        .run(&format!("{resume} --discard --yes"))
        .await
        .expect(0, &["was discarded"]);
    assert_eq!(manager.server.terminate().await, 0);
    let manager = Manager::start(dir, &options).await;
    manager.run("resume --all --yes").await.expect(0, &[]);
    assert_eq!(manager.server.terminate().await, 0);
    let manager = Manager::start(dir, &options).await;
    let again = manager.run("get endpoints -o json").await.json();
    let ids = |endpoints: &serde_json::Value| -> Vec<String> {
        let all = endpoints.as_array().unwrap().iter();
        all.map(|endpoint| endpoint["id"].to_string()).collect()
    };
    assert_eq!(ids(&again), ids(&endpoints));
    // The rack has one of another owner from the start.
    let drifts = manager.run("diff -o json").await.json();
    assert_eq!(drifts.as_array().unwrap().len(), 1, "{drifts}");
}
