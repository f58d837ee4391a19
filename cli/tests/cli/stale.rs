//! What is known of an endpoint is too old: no change rests on it, unless somebody says so.

use crate::support::{Manager, Rack};

/// Fault 23: exit code 6, and what to do about it.
#[tokio::test]
async fn what_rests_on_old_knowledge_is_refused_with_exit_code_6_unless_it_is_allowed() {
    let (rack, folder) = (Rack::start("small").await, tempfile::tempdir().unwrap());
    let manager = Manager::start(folder.path(), &[]).await;
    manager.adopt(&rack).await;
    assert_eq!(manager.server.terminate().await, 0);
    // After a restart the pool is shown as it was, and nobody answers.
    rack.server.signal("STOP").await;
    let manager = Manager::start(folder.path(), &[]).await;
    manager.run("get gpus").await.expect(0, &["h100"]);
    let gpus = manager.run("get gpus -o json").await.expect(0, &[]).json();
    assert!(gpus.as_array().unwrap().iter().all(|gpu| gpu["stale"] == true));
    manager
        .run("compose --gpus 1 --name late")
        .await
        .refused(6, &["--allow-stale"]);
    let dry = manager
        .run("compose --gpus 1 --name late --allow-stale --dry-run")
        .await;
    dry.expect(0, &["bind"]);
    assert!(rack.bindings().is_empty());
    rack.server.signal("CONT").await;
    manager
        .run("compose --gpus 1 --name late")
        .await
        .expect(0, &["done"]);
    assert_eq!(rack.bindings().len(), 1);
    assert_eq!(manager.server.terminate().await, 0);
}
