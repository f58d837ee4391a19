//! Wrong passwords, and `account unlock` on the manager's machine.

use crate::support::{Manager, run};
use serde_json::json;
use std::net::IpAddr;

/// Fault 84: while the manager runs, and without a login.
#[tokio::test]
async fn an_account_is_unlocked_on_the_managers_machine_while_the_manager_runs() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let manager = Manager::start(folder.path(), &[]).await;
    drop(rustls::crypto::ring::default_provider().install_default());
    let ca = reqwest::Certificate::from_pem(&std::fs::read(manager.ca()).unwrap()).unwrap();
    // At its own address a right password is remembered for a while, and not delayed.
    let elsewhere = IpAddr::from([127, 0, 0, 2]);
    let client = reqwest::Client::builder().tls_certs_only([ca]);
    let client = client.local_address(elsewhere).build().unwrap();
    let longest = client
        .patch(format!("{}/redfish/v1/AccountService", manager.server.url))
        .basic_auth("admin", Some(manager.password()))
        .json(&json!({ "AccountLockoutDuration": 86400 }));
    assert_eq!(longest.send().await.unwrap().status(), 200);

    let wrong = folder.path().join("wrong-password");
    std::fs::write(&wrong, "a wrong password").unwrap();
    for _ in 0..6 {
        let refused = manager.run_as("admin", &wrong, "account list").await;
        refused.refused(4, &["the name or the password is wrong"]);
    }
    let locked = manager.run("account list").await;
    locked.refused(4, &["admin is locked until ", "account unlock admin"]);
    let unlock = format!("account unlock admin --data-dir {dir}");
    run(&unlock).await.expect(0, &["admin is unlocked"]);
    manager.run("account list").await.expect(0, &["admin"]);

    let unknown = run(&format!("account unlock unknown --data-dir {dir}")).await;
    unknown.refused(3, &["no account \"unknown\""]);
    manager.server.terminate().await;
    run(&unlock).await.expect(0, &["admin is unlocked"]);
    let nowhere = run(&format!("account unlock admin --data-dir {dir}/none")).await;
    nowhere.refused(3, &["there is no such file"]);
}
