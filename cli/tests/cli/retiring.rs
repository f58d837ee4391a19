//! Hosts out of service for good, at the command line.

use crate::support::Manager;
use tempfile::TempDir;

#[tokio::test]
async fn a_host_is_carried_elsewhere_or_stays() {
    let folder = TempDir::new().unwrap();
    let manager = Manager::start(folder.path(), &["--rack", "demo"]).await;
    let run = async |line: &str| manager.run(line).await;
    run("host move host-1").await.refused(2, &["--to", "--done"]);
    run("host move host-1 --to rack-7").await.expect(
        0,
        &[
            "host-1 is moved to rack-7",
            "from box-1:PCIe",
            "leaves for rack-7",
        ],
    );
    let shown = run("describe host host-1 -o json").await.expect(0, &[]).json();
    assert_eq!(shown["closure"]["reason"], "it is moved to rack-7", "{shown}");
    run("host retire host-1 --yes")
        .await
        .refused(5, &["is moved to rack-7", "--cancel"]);
    run("host move host-1 --cancel")
        .await
        .expect(0, &["stays where it is"]);
    run("host move host-1 --done")
        .await
        .refused(5, &["is not being moved"]);
    run("host move host-1 --to rack-8").await.expect(0, &[]);
    run("host move host-1 --done")
        .await
        .expect(0, &["moved to rack-8: from box-1:PCIe"]);
    run("host move host-77 --to rack-8")
        .await
        .refused(3, &["host-77"]);
    assert_eq!(manager.server.terminate().await, 0);
}

#[tokio::test]
async fn a_host_is_retired_replaced_and_taken_back() {
    let folder = TempDir::new().unwrap();
    let manager = Manager::start(folder.path(), &["--rack", "demo"]).await;
    let run = async |line: &str| manager.run(line).await;
    let gpus = run("get gpus -o json").await.expect(0, &[]).json();
    let gpu = gpus[0]["id"].as_str().unwrap();
    let attach = format!("attach {gpu} --host host-1");
    run(&attach).await.expect(0, &[]);
    run("host retire host-1")
        .await
        .refused(2, &["not a terminal", "--yes"]);
    run("host retire host-1 --yes")
        .await
        .refused(5, &["it holds", gpu, &format!("poolwright detach {gpu}")]);
    run("host retire host-11 --yes")
        .await
        .refused(3, &["host-11", "did you mean"]);
    run(&format!("detach {gpu} --yes")).await.expect(0, &[]);
    run("host retire host-1 --reason sold --yes")
        .await
        .expect(0, &["host-1 is retired since", "by admin", "retired: sold"]);
    run("host retired").await.expect(0, &["host-1", "sold"]);
    run(&attach).await.refused(
        5,
        &["host host-1 is retired since", "(sold)", "host reinstate host-1"],
    );
    run("host reinstate host-1")
        .await
        .expect(0, &["host-1 is in service", "back in service"]);
    run("host replace host-1 host-2 --yes")
        .await
        .expect(0, &["host-2 is in service", "replaces host-1"]);
    let history = run("host history host-1 -o json").await.expect(0, &[]).json();
    let turns: Vec<&str> = history["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["what"].as_str().unwrap())
        .collect();
    assert_eq!(turns, ["retired", "reinstated", "retired", "replaced-by"]);
    assert_eq!(history["events"][3]["host"], "host-2");
    assert_eq!(history["retired"]["by"], "admin");
    let audit = run("audit --after 0 -o json").await.expect(0, &[]).out;
    for word in ["/hosts/host-1/retire", "reinstate", "replaced"] {
        assert!(audit.contains(word), "{word}: {audit}");
    }
    assert_eq!(manager.server.terminate().await, 0);
}
