//! A manager whose data directory can't be written to.

use crate::support::{Manager, Rack};
use std::process::Command;

/// The largest file that the manager may write from now on.
fn limit(manager: &Manager, bytes: &str) {
    let pid = manager.server.pid().to_string();
    let set = Command::new("prlimit")
        .args(["--pid", &pid, &format!("--fsize={bytes}:")])
        .status();
    assert!(set.unwrap().success());
}

/// Fault 55: the real program, whose files can not grow.
#[tokio::test]
async fn what_can_not_be_written_is_refused_and_all_goes_on_once_it_can() {
    let (rack, folder) = (Rack::start("zones").await, tempfile::tempdir().unwrap());
    // Its messages go to a file, which can't grow either.
    let log = folder.path().join("log");
    let manager = Manager::start_logging(folder.path(), &log).await;
    manager.adopt(&rack).await;
    manager
        .run("compose --gpus 1 --name web")
        .await
        .expect(0, &["done"]);
    let bound = rack.bindings();

    limit(&manager, "1");
    for change in ["compose --gpus 1 --name more", "release web --yes"] {
        manager
            .run(change)
            .await
            .refused(10, &["the store can't be used", "nothing was changed"]);
    }
    for list in ["gpus", "compositions", "demands", "ops"] {
        let told = manager.run(&format!("get {list} -o json")).await.expect(0, &[]);
        assert!(!told.json().as_array().unwrap().is_empty(), "{told:?}");
    }
    assert_eq!(rack.bindings(), bound, "nothing is done without a commit");

    limit(&manager, "unlimited");
    manager
        .run("compose --gpus 1 --name more")
        .await
        .expect(0, &["done"]);
    assert_eq!(rack.bindings().len(), bound.len() + 1);
    manager.server.kill().await;
    let manager = Manager::start(folder.path(), &[]).await;
    let kept = manager.run("get compositions -o json").await.json();
    assert_eq!(kept.as_array().unwrap().len(), 2);
}
