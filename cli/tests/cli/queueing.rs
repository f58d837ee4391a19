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
    manager.run("demand remove second --yes").await.expect(0, &[]);
    manager
        .run("demand done first")
        .await
        .expect(0, &["poolwright queue"]);
}
