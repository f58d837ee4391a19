//! The log of a manager without options: operations and endpoints.

use crate::support::{Manager, Rack, slow_rack};

/// Fault 76: lost hardware is logged, and none of its GPUs counts as composable.
/// Fault 77: operations are logged.
#[tokio::test]
async fn a_manager_that_lost_all_hardware_logs_it_and_is_not_ready() {
    let (rack, folder) = (
        Rack::start(&slow_rack("20ms")).await,
        tempfile::tempdir().unwrap(),
    );
    let (data, log) = (folder.path().join("data"), folder.path().join("log"));
    let manager = Manager::start_logging(&data, &log).await;
    manager.adopt(&rack).await;
    manager
        .run("compose --gpus 1 --name web")
        .await
        .expect(0, &["done"]);
    manager.until_probe(true, &["8 composable, 7 free"]).await;
    rack.server.kill().await;
    let counted = "0 composable, 0 free; 8 unreachable since ";
    manager.run("doctor").await.expect(1, &[counted]);
    manager.until_probe(false, &[counted]).await;

    let said = std::fs::read_to_string(&log).unwrap();
    let has = |words: &[&str]| {
        said.lines()
            .any(|line| words.iter().all(|word| line.contains(word)))
    };
    let span = "operation{id=op-";
    for words in [
        [span, "operation started", "units=1"],
        [span, "operation ended", "state=completed"],
        ["WARN", "endpoint lost", "endpoint=box-1"],
    ] {
        assert!(has(&words), "{words:?}: {said}");
    }
    assert_eq!(manager.server.terminate().await, 0);
}
