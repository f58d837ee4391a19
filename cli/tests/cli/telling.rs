//! What a command says is what happened, and what to do about it.

use crate::support::{Manager, Rack, slow_rack};

#[tokio::test]
async fn an_operation_that_failed_is_not_told_as_done() {
    let (rack, folder) = (Rack::start(&slow_rack("5s")).await, tempfile::tempdir().unwrap());
    let manager = Manager::start(folder.path(), &[]).await;
    manager.adopt(&rack).await;
    let late = manager.run("compose --gpus 1 --name web --deadline 1s").await;
    assert_ne!(late.code, 0, "{late:?}");
    assert!(
        late.out.starts_with("operation op-") && late.out.contains(" is rolled-back"),
        "{late:?}"
    );
    assert!(!late.out.contains("compose web"), "{late:?}");
    assert_eq!(manager.server.terminate().await, 0);
}

#[tokio::test]
async fn what_is_only_observed_gives_nothing_and_adopting_it_says_so() {
    let (rack, folder) = (
        Rack::start(&slow_rack("20ms")).await,
        tempfile::tempdir().unwrap(),
    );
    let manager = Manager::start(folder.path(), &[]).await;
    let add = format!("endpoint add --from {} -o json", rack.file("endpoints.json"));
    let added = manager
        .run(&add)
        .await
        .expect(0, &["only observed for now"])
        .json();
    let boxed = added
        .as_array()
        .unwrap()
        .iter()
        .find(|added| added["endpoint"] == "box-1");
    assert_eq!(
        (&boxed.unwrap()["gpus"], &boxed.unwrap()["composable"]),
        (&8.into(), &0.into())
    );
    let hint = "poolwright endpoint adopt ";
    for compose in ["compose 8B --name web", "compose --gpus 1 --name web"] {
        manager.run(compose).await.refused(5, &["only observed", hint]);
    }
    for _ in 0..2 {
        let adopted = manager.run("endpoint adopt box-1 --yes").await;
        let adopted = adopted.expect(0, &["endpoint box-1 is adopted"]);
        assert!(!adopted.out.contains("nothing to change"), "{adopted:?}");
    }
    let tested = manager
        .run("endpoint test box-1 -o json")
        .await
        .expect(0, &[])
        .json();
    assert_eq!(tested["composable"], 8);
    assert_eq!(manager.server.terminate().await, 0);
}

/// The files of its rack lie elsewhere then; the rack is the same.
#[tokio::test]
async fn a_data_directory_that_was_moved_goes_on_with_its_rack() {
    let folder = tempfile::tempdir().unwrap();
    let (before, after) = (folder.path().join("before"), folder.path().join("after"));
    let manager = Manager::start(&before, &["--rack", "zones"]).await;
    manager
        .run("compose --gpus 1 --name web")
        .await
        .expect(0, &["done"]);
    assert_eq!(manager.server.terminate().await, 0);
    std::fs::rename(&before, &after).unwrap();

    let manager = Manager::start(&after, &["--rack", "zones"]).await;
    manager
        .run("compose --gpus 1 --name more")
        .await
        .expect(0, &["done"]);
    let endpoints = manager.run("endpoint list -o json").await.json();
    let files = endpoints
        .as_array()
        .unwrap()
        .iter()
        .map(|endpoint| &endpoint["password_file"]);
    assert!(files.clone().count() > 0);
    for file in files {
        assert!(
            file.as_str().unwrap().starts_with(after.to_str().unwrap()),
            "{file}"
        );
    }
    assert_eq!(manager.server.terminate().await, 0);
}

/// An operation waits for a box that is dead, the manager is asked to end, and ends in order.
#[tokio::test]
async fn a_manager_that_waits_for_a_dead_endpoint_closes_its_store_well() {
    let (rack, folder) = (Rack::start(&slow_rack("2s")).await, tempfile::tempdir().unwrap());
    let data = folder.path().join("data");
    let manager = Manager::start(&data, &[]).await;
    manager.adopt(&rack).await;
    let begun = manager.run("compose --gpus 2 --name web --no-wait -o json").await;
    let id = begun.expect(0, &[]).json()["operation"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let show = format!("ops show {id} -o json");
    let is_sent = |operation: &serde_json::Value| {
        let mut steps = operation["steps"].as_array().unwrap().iter();
        steps.any(|record| record["verb"] == "bind" && record["state"] == "running")
    };
    manager.until(&show, is_sent).await;
    rack.server.kill().await;
    let waits = |operation: &serde_json::Value| operation["state"] == "indeterminate";
    manager.until(&show, waits).await;
    assert_eq!(manager.server.terminate().await, 0);

    let log = folder.path().join("log");
    let manager = Manager::start_logging(&data, &log).await;
    manager.run(&show).await.expect(0, &[]);
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(!said.contains("was not closed well"), "{said}");
    assert!(!data.join("cluster.json.new").exists());
}

#[tokio::test]
async fn whoever_asks_the_doctor_of_services_that_hang_is_told_what_is_waited_for() {
    let (rack, folder) = (
        Rack::start(&slow_rack("20ms")).await,
        tempfile::tempdir().unwrap(),
    );
    let manager = Manager::start(folder.path(), &[]).await;
    manager.adopt(&rack).await;
    rack.server.signal("STOP").await;
    manager.run("doctor").await.expect(
        1,
        &[
            "looking at every endpoint for 5 s so far",
            "PROBLEM",
            "do next: poolwright endpoint test",
        ],
    );
    rack.server.signal("CONT").await;
    assert_eq!(manager.server.terminate().await, 0);
}
