//! `gpu`: a GPU that failed, out of use and back, as an operator does it.

use crate::support::{Manager, run};
use serde_json::Value;

#[tokio::test]
async fn a_gpu_goes_out_of_use_and_comes_back_by_a_burn_in() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let hooks = folder.path().join("hooks.toml");
    let well = folder.path().join("well");
    let burn_in = format!("burn-in = [\"/usr/bin/test\", \"-e\", {well:?}]\n");
    std::fs::write(&hooks, burn_in + "quarantine = [\"/usr/bin/env\"]\n").unwrap();
    let options = ["--rack", "demo", "--hooks", hooks.to_str().unwrap()];
    let manager = Manager::start(data.path(), &options).await;
    manager
        .run("compose --gpus 2 --kind h100-pcie-80gb --name chat")
        .await
        .expect(0, &[]);
    manager.run("gpu list -o json").await.expect(0, &["[]"]);
    let compositions = manager
        .run("get compositions -o json")
        .await
        .expect(0, &[])
        .json();
    let gpu = compositions[0]["held"][0]["gpus"][0].as_str().unwrap().to_owned();
    let history = format!("gpu history {gpu}");
    manager.run(&history).await.expect(0, &["it never failed"]);

    let fails = format!("gpu quarantine {gpu} --xid 79 --reason dropped");
    manager
        .run(&fails)
        .await
        .expect(0, &["Xid 79", "dropped", "poolwright plan"]);
    manager
        .run(&history)
        .await
        .expect(0, &["out of use: Xid 79 (dropped)", "it failed 1 time;"]);
    let told = |said: &Value| {
        said["quarantine"]["told"]["output"]
            .as_str()
            .is_some_and(|env| env.contains(&gpu))
    };
    manager.until(&format!("{history} -o json"), told).await;
    let plan = manager.run("plan").await.expect(0, &[]).out;
    assert!(plan.contains("1 to bind, 1 to unbind"), "{plan}");

    let lit = |said: &Value| said["light"]["lit"] == true && said["light"]["failed"].is_null();
    manager.until(&format!("{history} -o json"), lit).await;
    manager
        .run(&history)
        .await
        .expect(0, &["its locator is lit since"]);
    let out = format!("gpu locate {gpu} --off");
    manager
        .run(&out)
        .await
        .expect(0, &["its locator was put out at", "by admin"]);
    // A look that began before it shows it as it was.
    let out = |shown: &Value| shown["locator"]["lit"] == false && shown["firmware"].is_string();
    manager.until(&format!("describe gpu {gpu} -o json"), out).await;
    manager
        .run("gpu locate gpu-nobody")
        .await
        .expect(3, &["gpu-nobody"]);
    let audit = manager.run("audit --after 0 -o json").await.expect(0, &[]).out;
    assert!(audit.contains(&format!("/gpus/{gpu}/locate")), "{audit}");

    let back = format!("gpu return {gpu}");
    manager
        .run(&back)
        .await
        .expect(1, &["did not pass: it ended with 1"]);
    std::fs::write(&well, "").unwrap();
    manager
        .run(&back)
        .await
        .expect(0, &["it is in use again", "burnt in last at"]);
    manager.run("gpu list -o json").await.expect(0, &["[]"]);

    manager
        .run("gpu history gpu-nobody")
        .await
        .expect(3, &["gpu-nobody"]);
    manager
        .run(&format!("gpu replace {gpu} {gpu}"))
        .await
        .expect(2, &["can't replace itself"]);
    run("gpu quarantine x --xid 79 --gone")
        .await
        .expect(2, &["cannot be used with"]);
}
