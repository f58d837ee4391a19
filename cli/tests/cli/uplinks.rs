//! What uplinks carry, from the command line.

use crate::support::Manager;

#[tokio::test]
async fn uplinks_are_listed_said_kept_to_and_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::start(folder.path(), &["--rack", "demo"]).await;
    let list = manager.run("uplink list -o json").await.expect(0, &[]).json();
    let ids: Vec<&str> = (list.as_array().unwrap().iter())
        .map(|status| status["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids.len(), 4, "{list}");
    let set = |what: &str| format!("uplink set {what}");
    manager
        .run(&set("elsewhere/switch-1 --gpus 1"))
        .await
        .refused(3, &["no switch elsewhere/switch-1", ids[0]]);
    manager.run(&set(ids[0])).await.refused(2, &["--gpus"]);
    manager
        .run(&set(&format!("{} --gpus=-1", ids[0])))
        .await
        .refused(2, &["-1"]);
    manager
        .run(&set(&format!("{} --gpus 2000000", ids[0])))
        .await
        .refused(2, &["2000000 GPUs are refused"]);
    for id in &ids {
        manager
            .run(&set(&format!("{id} --gpus 0")))
            .await
            .expect(0, &[id, "0"]);
    }
    let gpus = manager.run("get gpus -o json").await.expect(0, &[]).json();
    let hosts = manager.run("get hosts -o json").await.expect(0, &[]).json();
    let at = |gpu: &serde_json::Value| {
        (
            gpu["ports"][0]["fabric"].clone(),
            gpu["ports"][0]["switch"].clone(),
        )
    };
    let host = &hosts[0];
    let far = gpus.as_array().unwrap().iter().find(|gpu| {
        let mut ports = host["ports"].as_array().unwrap().iter();
        let (fabric, switch) = at(gpu);
        ports.any(|port| port["fabric"] == fabric && port["switch"] != switch)
    });
    let (far, host) = (far.unwrap()["id"].as_str().unwrap(), host["id"].as_str().unwrap());
    manager.run(&format!("attach {far} --host {host}")).await.refused(
        5,
        &[
            "may carry 0 GPUs and carry 0: with these it would be 1",
            "poolwright uplink set",
        ],
    );
    for id in &ids {
        manager
            .run(&format!("uplink remove {id} --yes"))
            .await
            .expect(0, &[id]);
    }
    manager
        .run(&format!("attach {far} --host {host}"))
        .await
        .expect(0, &[]);
    manager
        .run(&set(&format!("{} --gpus 0", ids[0])))
        .await
        .expect(0, &[]);
    manager
        .run(&format!("uplink remove {} --yes", ids[1]))
        .await
        .refused(3, &["has no uplink capacity"]);
    let audit = manager.run("audit --after 0 -o json").await.expect(0, &[]).out;
    assert!(audit.contains("uplinks"), "{audit}");
    assert_eq!(manager.server.terminate().await, 0);
}
