//! Jobs at the command line: they come into the queue, are told there, and are done.

use crate::support::Manager;

#[tokio::test]
async fn a_job_is_told_while_it_waits_and_while_it_runs() {
    let data = tempfile::tempdir().unwrap();
    let manager = Manager::start(data.path(), &["--rack", "demo"]).await;
    let add = "demand add first --gpus 24 --kind h100-pcie-80gb --queue --runs-for 6h --at-most 2d";
    manager.run(add).await.expect(0, &["poolwright queue"]);
    let file = data.path().join("jobs.toml");
    let second = "[[demands]]\nid = \"second\"\ngpus = 4\nkind = \"h100-pcie-80gb\"\nqueue = { runs_for = \"90m\", at_most = \"1d 6h\" }\n";
    std::fs::write(&file, second).unwrap();
    let apply = format!("apply -f {}", file.display());
    manager.run(&apply).await.expect(0, &["kept"]);
    let refused = "demand add never --gpus 4000 --kind h100-pcie-80gb --queue";
    manager
        .run(refused)
        .await
        .refused(5, &["would wait for ever", "4000"]);
    manager
        .run("demand add odd --gpus 1 --runs-for 6h")
        .await
        .refused(2, &["--queue"]);
    manager
        .run("tenant set lab --guaranteed 4000")
        .await
        .refused(2, &["can't be guaranteed"]);
    manager
        .run("tenant set lab --guaranteed 4 --weight 2 -o csv")
        .await
        .expect(0, &["lab,4,,2,0,0"]);

    let mut begun = false;
    for _ in 0..600 {
        let queue = manager.run("queue -o json").await.expect(0, &[]).json();
        begun = queue["running"][0]["gpus"] == 24
            && queue["running"][0]["state"].as_str().unwrap().starts_with("runs");
        if begun {
            assert_eq!(queue["waiting"][0]["demand"], "second", "{queue}");
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert!(begun, "the first never began");
    manager
        .run("queue")
        .await
        .expect(0, &["first", "runs, until", "second: "]);
    manager
        .run("why demand/second")
        .await
        .expect(0, &["waits at place 1 of 1"]);
    manager
        .run("demand done second")
        .await
        .refused(5, &["has not begun"]);
    // A waiting job has no GPUs to release.
    let waited = manager.run("demand remove second --yes").await;
    let waited = waited.expect(0, &["demand second is forgotten"]);
    assert_eq!(waited.err, "");
    manager
        .run("demand done first")
        .await
        .refused(2, &["24 GPUs to detach: ", "demand first", "--yes"]);
    manager
        .run("demand done first --yes --max-detach 23")
        .await
        .refused(5, &["24 GPUs would be detached"]);
    manager
        .run("demand done first --yes")
        .await
        .expect(0, &["poolwright queue"]);
}

#[tokio::test]
async fn a_job_that_preempts_begins_with_what_others_of_lower_priority_leave() {
    let data = tempfile::tempdir().unwrap();
    let manager = Manager::start(data.path(), &["--rack", "demo"]).await;
    manager
        .run("compose --gpus 30 --least-gpus 31 --name odd")
        .await
        .refused(2, &["least_gpus of 31"]);
    let composed = manager
        .run("compose --gpus 20 --least-gpus 4 --kind h100-pcie-80gb --name train")
        .await
        .expect(0, &["for train"]);
    // An impossible check is reported once a host, and not for each of its GPUs.
    let lines = composed.err.lines().filter(|line| line.contains("not-possible"));
    let mut hosts: Vec<&str> = lines
        .filter_map(|line| line.split_once(" ready on ")?.1.split_once(':'))
        .map(|(host, _)| host)
        .collect();
    assert!(!hosts.is_empty(), "{composed:?}");
    let told = hosts.len();
    hosts.sort_unstable();
    hosts.dedup();
    assert_eq!(hosts.len(), told, "{composed:?}");
    let kind = "--kind h100-pcie-80gb --queue --runs-for 6h";
    let runs = |id: &'static str| {
        move |queue: &serde_json::Value| {
            let running = queue["running"].as_array().unwrap();
            running.iter().any(|job| job["demand"] == id && job["gpus"] == 4)
        }
    };
    let low = format!("demand add low --gpus 4 --may-stop {kind}");
    manager.run(&low).await.expect(0, &["low"]);
    manager.until("queue -o json", runs("low")).await;
    let urgent = format!("demand add urgent --gpus 9 --least-gpus 3 --priority 5 --preempts --yes {kind}");
    manager.run(&urgent).await.expect(0, &["3 to 9 x h100-pcie-80gb"]);
    let queue = manager.until("queue -o json", runs("urgent")).await;
    assert_eq!(queue["waiting"][0]["demand"], "low", "{queue}");
    assert_eq!(queue["waiting"][0]["stopped"], 1, "{queue}");
    // The GPUs of a running job are released at once, without a plan.
    let removed = manager.run("demand remove urgent --yes").await;
    assert!(!removed.err.contains("poolwright apply"), "{removed:?}");
    removed.expect(0, &["its GPUs are being released"]);
}
