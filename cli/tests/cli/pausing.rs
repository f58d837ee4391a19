//! Pausing a manager, adopting what was there, and seeing what is not as recorded, from the command line.

use crate::support::Manager;
use serde_json::Value;

#[tokio::test]
async fn a_manager_is_paused_and_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::start(folder.path(), &["--rack", "zones"]).await;
    manager.run("pause").await.refused(2, &["--all"]);
    manager
        .run("pause --all --automation")
        .await
        .refused(2, &["--automation"]);
    manager
        .run("pause --endpoint boxx-1")
        .await
        .refused(3, &["boxx-1", "box-1"]);
    manager
        .run("pause --all --reason moved")
        .await
        .expect(0, &["all", "admin", "moved", "1 pause"]);
    manager.run("compose --gpus 1 --name web").await.refused(
        5,
        &[
            "everything is paused by admin",
            "moved",
            "poolwright resume --all",
        ],
    );
    manager.run("compose --gpus 1 --name web --dry-run").await.expect(
        0,
        &["bind ", "can't be done just now: everything is paused by admin"],
    );
    let paused = manager.run("get pauses -o json").await.expect(0, &[]).json();
    assert_eq!(
        (&paused[0]["what"], &paused[0]["by"]),
        (&Value::from("all"), &Value::from("admin"))
    );
    manager
        .run("doctor")
        .await
        .expect(0, &["everything is paused", "do next: poolwright resume --all"]);
    manager
        .run("resume --all")
        .await
        .expect(0, &["nothing is paused"]);
    manager
        .run("resume --all")
        .await
        .refused(3, &["all", "nothing is paused"]);
    manager
        .run("compose --gpus 1 --name web")
        .await
        .expect(0, &["done"]);
    // One is bound from the start, by somebody else.
    manager
        .run("diff --look")
        .await
        .expect(1, &["foreign", "1 GPU not as recorded"]);
    let adopted = manager.run("endpoint adopt box-1 --yes -o json").await;
    assert_eq!(adopted.expect(0, &[]).json()["operation"]["kind"], "adopt");
    manager
        .run("diff -o json")
        .await
        .expect(0, &["[]", "as recorded"]);
    assert_eq!(manager.server.terminate().await, 0);
}
