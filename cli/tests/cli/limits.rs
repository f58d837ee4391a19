//! Limits of what runs by itself, from the command line.

use crate::support::Manager;

#[tokio::test]
async fn limits_are_shown_and_set() {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::start(folder.path(), &["--rack", "zones"]).await;
    manager
        .run("limits")
        .await
        .expect(0, &["per-plan", "256", "per-gpu", "SO FAR"]);
    manager.run("limits set").await.refused(2, &["--per-hour"]);
    manager
        .run("limits set --per-hour 0")
        .await
        .refused(2, &["pause --automation"]);
    manager
        .run("limits set --per-hour 200 --per-host 20")
        .await
        .expect(0, &["200", "20"]);
    let limits = manager.run("limits -o json").await.expect(0, &[]).json();
    assert_eq!(
        (&limits["per_hour"], &limits["per_host"], &limits["per_plan"]),
        (&200.into(), &20.into(), &256.into())
    );
    assert_eq!(limits["moved"], 0);
    assert_eq!(manager.server.terminate().await, 0);
}
