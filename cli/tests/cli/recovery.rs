//! A manager that is killed in the middle of an operation: the next one finishes it or undoes it.

use crate::support::{Manager, Rack, Ran, slow_rack};
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinHandle;

fn at_work(operation: &Value) -> bool {
    let steps = operation["steps"].as_array().unwrap();
    let binding = |step: &&Value| step["verb"] == "bind" && step["state"] == "running";
    operation["state"] == "running" && steps.iter().any(|step| binding(&step))
}

/// A rack, and a manager that is in charge of it and keeps all in the folder.
async fn managed() -> (Rack, TempDir, Manager) {
    let (rack, folder) = (
        Rack::start(&slow_rack("700ms")).await,
        tempfile::tempdir().unwrap(),
    );
    let manager = Manager::start(folder.path(), &[]).await;
    manager.adopt(&rack).await;
    (rack, folder, manager)
}

/// Begins an operation, and waits until it is at work.
async fn begun(manager: &Manager, compose: &str) -> String {
    let started = manager.run(&format!("{compose} --no-wait -o json")).await;
    let started = started.expect(0, &["ops wait"]).json();
    let id = started["operation"]["id"].as_str().unwrap().to_owned();
    manager.until(&format!("ops show {id} -o json"), at_work).await;
    id
}

/// Begins a command that waits for its operation, and waits until that is at work.
async fn waited_for(manager: &Manager, compose: &str) -> JoinHandle<Ran> {
    let waiting = manager.begin(compose);
    manager
        .until("ops -o json", |operations| {
            operations.as_array().unwrap().iter().any(at_work)
        })
        .await;
    waiting
}

/// The operation that a message says how to wait for.
fn named_in(message: &str) -> String {
    let id = message.split("poolwright ops wait ").nth(1).unwrap();
    id.trim().to_owned()
}

/// Fault 1: kill -9 of the real program.
#[tokio::test]
async fn what_was_begun_is_finished_or_undone() {
    let (rack, folder, manager) = managed().await;
    let id = begun(&manager, "compose --gpus 4 --name web").await;
    manager.server.kill().await;
    rack.check_single_owners();

    let manager = Manager::start(folder.path(), &[]).await;
    let ended = manager
        .run(&format!("ops wait {id} --timeout 110s -o json"))
        .await;
    let state = ended.json()["state"].as_str().unwrap().to_owned();
    rack.check_single_owners();
    let bound = rack.bindings();
    match state.as_str() {
        "completed" => {
            assert_eq!((ended.code, bound.len()), (0, 4), "{bound:?}");
            let first = &bound[0].1;
            assert!(
                bound.iter().all(|(_, port)| port == first),
                "on one host: {bound:?}"
            );
            assert_eq!(
                manager.run("compositions -o json").await.json()[0]["demand"],
                "web"
            );
        }
        "rolled-back" => assert_eq!((ended.code, bound.len()), (1, 0), "{bound:?} {ended:?}"),
        other => panic!("{other}: {ended:?}"),
    }
    manager.run("doctor").await.expect(0, &[]);
    if state == "completed" {
        manager.run("release web --yes").await.expect(0, &[]);
    }
    assert!(rack.bindings().is_empty());
}

#[tokio::test]
async fn a_manager_that_is_asked_to_stop_leaves_its_operation_to_the_next() {
    let (rack, folder, manager) = managed().await;
    let id = begun(&manager, "compose --gpus 8 --name web").await;
    assert_eq!(manager.server.terminate().await, 0);

    let manager = Manager::start(folder.path(), &[]).await;
    manager
        .run(&format!("ops wait {id} --timeout 110s"))
        .await
        .expect(0, &["completed"]);
    assert_eq!(rack.bindings().len(), 8);
    rack.check_single_owners();
}

/// Fault 12: the operation goes on without the command. Fault 94: Ctrl-C.
#[tokio::test]
async fn who_interrupts_a_wait_is_told_how_to_go_on() {
    let (rack, _folder, manager) = managed().await;
    let ran = manager.interrupt("compose --gpus 2 --name web", "started").await;
    let ran = ran.expect(
        130,
        &[
            "no longer waiting",
            "goes on",
            "poolwright ops cancel op-",
            "poolwright ops wait op-",
        ],
    );
    let id = named_in(&ran.err);
    manager
        .run(&format!("ops wait {id}"))
        .await
        .expect(0, &["completed"]);
    assert_eq!(rack.bindings().len(), 2);
}

#[tokio::test]
async fn a_wait_that_ends_too_early_names_the_operation() {
    let (rack, _folder, manager) = managed().await;
    // While the rack stands still no operation ends, however long the commands take.
    rack.server.signal("STOP").await;
    let late = manager
        .run("compose --gpus 2 --name web --timeout 100ms")
        .await
        .expect(7, &["goes on", "ops wait"]);
    rack.server.signal("CONT").await;
    let id = named_in(&late.err);
    manager
        .run(&format!("ops wait {id}"))
        .await
        .expect(0, &["completed"]);

    rack.server.signal("STOP").await;
    let begun = manager
        .run("compose --gpus 4 --name more --no-wait -o json")
        .await;
    let begun = begun.expect(0, &["ops wait"]).json();
    let id = begun["operation"]["id"].as_str().unwrap();
    manager
        .run_with(["ops", "cancel", id, "--reason", "changed our mind", "--yes"])
        .await
        .expect(0, &[]);
    rack.server.signal("CONT").await;
    manager
        .run(&format!("ops wait {id}"))
        .await
        .expect(1, &["cancelled", "changed our mind"]);
    assert_eq!(rack.bindings().len(), 2);
}

#[tokio::test]
async fn who_waits_hears_the_end_from_the_manager_that_comes_after() {
    let (rack, folder, manager) = managed().await;
    let waiting = waited_for(&manager, "compose --gpus 8 --name web").await;
    let address = manager.server.url.trim_start_matches("https://").to_owned();
    manager.server.kill().await;
    // It may be back before whoever waits has asked again.
    let _after = Manager::start_at(folder.path(), &address, &[]).await;

    let ran = waiting.await.unwrap().expect(0, &["completed"]);
    assert!(ran.out.contains("web"), "{ran:?}");
    assert_eq!(rack.bindings().len(), 8);
    rack.check_single_owners();
}

#[tokio::test]
async fn who_waits_for_a_manager_that_never_comes_back_is_told_what_goes_on_without_it() {
    let (_rack, _folder, manager) = managed().await;
    let waiting = waited_for(&manager, "compose --gpus 8 --name web").await;
    manager.server.kill().await;
    let ran = waiting.await.unwrap();
    ran.expect(
        10,
        &[
            "could not be asked within 30 s",
            "in the journal",
            "poolwright ops wait op-",
        ],
    );
}
