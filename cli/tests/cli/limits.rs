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
    manager
        .run("limits set --hold 2h")
        .await
        .refused(2, &["3600 s at most"]);
    manager.run("limits set --hold 10m").await.expect(0, &["600"]);
    let limits = manager.run("limits -o json").await.expect(0, &[]).json();
    assert_eq!(
        (&limits["per_hour"], &limits["per_host"], &limits["per_plan"]),
        (&200.into(), &20.into(), &256.into())
    );
    assert_eq!(limits["moved"], 0);
    assert_eq!(manager.server.terminate().await, 0);
}

#[tokio::test]
async fn a_tenant_holds_what_is_attached_by_name_for_it_and_no_more_than_it_may() {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::start(folder.path(), &["--rack", "demo"]).await;
    manager.run("tenant set lab --most 1").await.expect(0, &["lab"]);
    let gpus = manager.run("get gpus -o json").await.expect(0, &[]).json();
    let composable = gpus.as_array().unwrap().iter();
    let free: Vec<&str> = composable
        .filter(|gpu| gpu["composable"] == true && gpu["state"] == "free")
        .map(|gpu| gpu["id"].as_str().unwrap())
        .collect();
    let hosts = manager.run("get hosts -o json").await.expect(0, &[]).json();
    let host = hosts[0]["id"].as_str().unwrap();
    let attach = |gpu: &str| format!("attach {gpu} --host {host} --tenant lab");
    manager.run(&attach(free[0])).await.expect(0, &[]);
    manager
        .run(&attach(free[1]))
        .await
        .refused(5, &["tenant lab holds 1 GPU", "may hold 1 at most"]);
    let tenants = manager.run("tenant list -o json").await.expect(0, &[]).json();
    assert_eq!(tenants[0]["holds"], 1, "{tenants}");
    assert_eq!(manager.server.terminate().await, 0);
}
