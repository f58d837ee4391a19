//! A manager on an emulated rack, from its first start to its last stop.

use crate::support::{Manager, Rack};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;

#[tokio::test]
async fn a_manager_serves_composes_and_lets_go() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let manager = Manager::start(dir, &["--rack", "zones"]).await;
    for (file, mode) in [
        ("tls/server.pem", 0o600),
        ("initial-admin-password", 0o600),
        ("tls/ca.pem", 0o644),
    ] {
        assert_eq!(
            std::fs::metadata(dir.join(file)).unwrap().permissions().mode() & 0o777,
            mode,
            "{file}"
        );
    }

    let gpus = manager.run("gpus -o json").await.expect(0, &[]).json();
    assert_eq!(
        gpus,
        manager.run("get gpus -o json").await.json(),
        "a noun alone is asked for"
    );
    assert_eq!(manager.run("doctor").await.expect(0, &["answers at"]).err, "");

    let plan = manager
        .run("compose --gpus 2 --name web --dry-run -o json")
        .await
        .expect(0, &[])
        .json();
    assert_eq!(plan["operation"], Value::Null);
    assert_eq!(plan["plan"]["composes"][0]["held"].as_array().unwrap().len(), 2);

    let composed = manager
        .run("compose --gpus 2 --name web --key once -o json")
        .await
        .expect(0, &["room for 2 GPUs: done", "bind "])
        .json();
    assert_eq!(composed["operation"]["state"], "completed");
    let again = manager
        .run("compose --gpus 2 --name web --key once -o json")
        .await
        .expect(0, &[])
        .json();
    assert_eq!(
        again["operation"]["id"], composed["operation"]["id"],
        "the same key is the same operation"
    );
    let id = composed["operation"]["id"].as_str().unwrap();
    manager
        .run("compose --gpus 2 --name web --key once")
        .await
        .expect(0, &["already done by operation", id]);
    manager
        .run("compose --gpus 1 --name web --key once")
        .await
        .refused(5, &["\"once\"", "compose demand web", "new key"]);
    for (list, listed) in [
        ("ops list", 1),
        ("ops list --all", 1),
        ("ops list --unfinished", 0),
    ] {
        let found = manager
            .run(&format!("{list} -o json"))
            .await
            .expect(0, &[])
            .json();
        assert_eq!(found.as_array().unwrap().len(), listed, "{list}");
    }
    // As much of an id as tells which one is meant.
    manager
        .run(&format!("ops show {}", &id[..id.len() - 1]))
        .await
        .expect(0, &[id, "bind"]);
    manager
        .run(&format!("ops undo {} --dry-run", &id[..id.len() - 1]))
        .await
        .expect(0, &["unbind ", "dry run"]);
    manager
        .run(&format!("ops undo {id} --yes"))
        .await
        .expect(0, &["started"]);
    let undone = manager.run("ops list -o json").await.expect(0, &[]).json();
    assert_eq!(
        (undone[0]["kind"].as_str(), undone[1]["id"].as_str()),
        (Some("undo"), Some(id))
    );
    let undo = undone[0]["id"].as_str().unwrap();
    manager
        .run("ops show op-")
        .await
        .refused(2, &["the ids of 2 operations begin with op-", id, undo]);
    manager
        .run("ops show no-such")
        .await
        .refused(3, &["no-such", "get ops"]);
    manager
        .run(&format!("ops undo {undo} --yes"))
        .await
        .expect(0, &[]);
    manager
        .run(&format!("ops undo {id} --yes"))
        .await
        .refused(5, &["can't be undone", "has changed composition"]);
    manager
        .run("compose --gpus 1 --name web")
        .await
        .refused(5, &["web", "already"]);

    let held = manager
        .run("get compositions -o json")
        .await
        .expect(0, &[])
        .json();
    assert_eq!(held[0]["demand"], "web");
    let host = held[0]["host"].as_str().unwrap();
    let bound: Vec<Value> = manager
        .run("get gpus -o json")
        .await
        .json()
        .as_array()
        .unwrap()
        .clone();
    let on_host = bound
        .iter()
        .filter(|gpu| gpu["host"] == host && gpu["state"] == "attached")
        .count();
    assert_eq!(on_host, 2, "{bound:?}");
    manager.run("why demand/web").await.expect(0, &["holds 2 GPUs"]);
    // Who holds a GPU is shown to people, and all that is known of it to programs, as it is.
    manager
        .run("get gpus")
        .await
        .expect(0, &["HOLDER", "web", "KIND", "GPUs not composable: soldered"]);
    let csv = manager.run("get gpus -o csv").await.expect(0, &[]).out;
    let memory = bound[0]["memory_bytes"].as_u64().unwrap().to_string();
    let uuid = bound[0]["uuid"].as_str().unwrap();
    let line = csv.lines().find(|line| line.contains(uuid)).unwrap();
    assert!(csv.starts_with("id,kind,vendor,model,memory_bytes,"), "{csv}");
    assert!(
        line.contains(&format!(",{memory},")) && !csv.contains("GiB"),
        "{line}"
    );
    assert_eq!(
        csv.lines().filter(|line| line.contains(",web,")).count(),
        2,
        "{csv}"
    );
    let ops = manager.run("get ops -o csv").await.expect(0, &[]).out;
    let created = composed["operation"]["created"].as_str().unwrap();
    assert!(
        ops.starts_with("id,kind,state,steps_done,steps,by,created,ended") && ops.contains(created),
        "{ops}"
    );
    manager.run("describe demand web").await.expect(0, &["id: web"]);
    manager
        .run(&format!("describe host {host} -o csv"))
        .await
        .expect(0, &["name,value"]);

    let released = manager
        .run("release web --yes -o json")
        .await
        .expect(0, &["unbind ", "reset "])
        .json();
    assert_eq!(released["operation"]["state"], "completed");
    assert_eq!(
        manager
            .run("get compositions -o csv")
            .await
            .expect(0, &[])
            .out
            .lines()
            .count(),
        1
    );
    let ops = manager.run("ops -o json").await.expect(0, &[]).json();
    assert_eq!(
        ops.as_array().unwrap().len(),
        4,
        "composed, undone, undone again, released"
    );
    let operation = ops[0]["id"].as_str().unwrap();
    manager
        .run(&format!("ops wait {operation}"))
        .await
        .expect(0, &["completed"]);
    manager
        .run(&format!("ops show {operation} -o csv"))
        .await
        .expect(0, &["step,what,state"]);
    assert_eq!(manager.server.terminate().await, 0);
}

#[tokio::test]
async fn what_is_wanted_is_planned_saved_and_applied_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::start(folder.path(), &["--rack", "connections"]).await;
    let file = folder.path().join("plan.json");
    let file = file.to_str().unwrap();
    manager
        .run("demand add one --gpus 1")
        .await
        .expect(0, &["poolwright plan"]);
    manager.run("demand add all --gpus 60000").await.expect(8, &[]);
    manager
        .run(&format!("plan --out {file}"))
        .await
        .expect(0, &["compose one", "all", "poolwright apply"]);
    manager
        .run(&format!("apply {file}"))
        .await
        .expect(0, &["completed"]);
    manager
        .run(&format!("apply {file}"))
        .await
        .refused(6, &["no longer fits", "poolwright plan"]);
    manager.run("why all").await.expect(0, &["holds 0 GPUs", "60000"]);
    manager
        .run("demand remove one --yes")
        .await
        .refused(5, &["demand one holds 1 GPU on", "poolwright release one"]);
    manager
        .run("release one --yes --no-wait")
        .await
        .expect(0, &["poolwright ops wait"]);
    let operation = manager.run("get ops -o json").await.json();
    for operation in operation.as_array().unwrap() {
        let id = operation["id"].as_str().unwrap();
        manager
            .run(&format!("ops wait {id}"))
            .await
            .expect(0, &["completed"]);
    }
    // What is left to do is nothing, and that is said.
    manager
        .run(&format!("plan --out {file}"))
        .await
        .expect(0, &["all"]);
    manager
        .run(&format!("apply {file}"))
        .await
        .expect(0, &["nothing to do", "no operation was started"]);
    manager
        .until("get gpus -o json", |gpus| {
            gpus.as_array()
                .unwrap()
                .iter()
                .all(|gpu| gpu["state"] != "attached")
        })
        .await;
    let removed = manager.run("demand remove all --yes -o json").await;
    let removed = removed.expect(0, &[]).json();
    assert_eq!(removed, serde_json::json!({"removed": "demand", "id": "all"}));
}

#[tokio::test]
async fn gpus_are_attached_and_detached_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::start(folder.path(), &["--rack", "small"]).await;
    let gpus = manager.run("gpus -o json").await.expect(0, &[]).json();
    let (first, second) = (gpus[0]["id"].as_str().unwrap(), gpus[1]["id"].as_str().unwrap());
    manager
        .run(&format!("attach {first} {second} --host host-1"))
        .await
        .expect(0, &["completed", "attach host-1-"]);
    let table = manager.run("get gpus").await.expect(0, &["attached"]).out;
    assert!(
        table.lines().all(|line| line.chars().count() <= 100),
        "it fits 100 columns: {table}"
    );
    manager
        .run(&format!("attach {first} --host host-1"))
        .await
        .refused(5, &[first, &format!("poolwright detach {first}")]);
    manager
        .run(&format!("attach {second}x --host host-1"))
        .await
        .refused(3, &[&format!("did you mean {second}?"), "poolwright get gpus"]);
    manager
        .run(&format!("attach {second} --host host-9"))
        .await
        .refused(5, &[second]);
    manager
        .run(&format!("detach {first} --yes"))
        .await
        .expect(0, &["completed"]);
    let held = manager.run("compositions -o json").await.expect(0, &[]).json();
    assert_eq!(held[0]["held"][0]["gpus"][0], second);
    manager
        .run(&format!("detach {first} --yes"))
        .await
        .refused(5, &[first]);
}

#[tokio::test]
async fn a_schedule_is_kept_shown_paused_and_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::start(folder.path(), &["--rack", "small"]).await;
    let file = folder.path().join("nights.toml");
    let schedule = "id = \"nights\"\nwindow = { opens = \"0 20 * * *\", closes = \"30 7 * * *\", zone = \"Europe/Berlin\" }\n\
        [[demands]]\nid = \"train\"\ngpus = 2\n";
    std::fs::write(&file, schedule).unwrap();
    // In the middle of the night it would take effect at once.
    manager
        .run(&format!("schedule add --file {}", file.display()))
        .await
        .expect(0, &["nights", "Europe/Berlin"]);
    let shown = manager
        .run("schedule pause nights --yes -o json")
        .await
        .expect(0, &[])
        .json();
    assert_eq!(
        (&shown["paused"], &shown["open"]),
        (&Value::Bool(true), &Value::Bool(false))
    );
    manager
        .run("schedule show nights")
        .await
        .expect(0, &["0 20 * * *"]);
    manager.run("schedules -o csv").await.expect(0, &["paused"]);
    manager.run("schedule runs").await.expect(0, &[]);
    manager.run("schedule remove nights --yes").await.expect(0, &[]);
    assert_eq!(
        manager.run("schedules -o json").await.json(),
        Value::Array(Vec::new())
    );
    std::fs::write(&file, schedule.replace("demands", "demand")).unwrap();
    manager
        .run(&format!("schedule add --file {}", file.display()))
        .await
        .refused(2, &["nights.toml", "demand"]);
}

#[tokio::test]
async fn endpoints_come_and_go() {
    let (rack, folder) = (Rack::start("small").await, tempfile::tempdir().unwrap());
    let manager = Manager::start(folder.path(), &[]).await;
    manager
        .run("doctor")
        .await
        .expect(1, &["PROBLEM", "poolwright endpoint add"]);
    let listing = rack.file("endpoints.json");
    let added = manager
        .run(&format!("endpoint add --adopt --from {listing} -o json"))
        .await
        .expect(0, &[])
        .json();
    assert_eq!(added.as_array().unwrap().len(), 2);
    manager
        .run(&format!("endpoint add --adopt --from {listing}"))
        .await
        .refused(
            8,
            &[
                "2 endpoints not added",
                "there is an endpoint box-1 already",
                "already; there is an endpoint",
                "remove existing endpoints from the list",
            ],
        );
    manager.run("endpoint test box-1").await.expect(0, &["box-1"]);
    let (wrong, another) = (folder.path().join("wrong"), Rack::start("small").await);
    std::fs::write(&wrong, "not the password").unwrap();
    manager
        .run(&format!(
            "endpoint add other --url {} --endpoint-username admin --endpoint-password-file {} --endpoint-ca {}",
            another.server.url,
            wrong.display(),
            another.file("ca.pem")
        ))
        .await
        .refused(4, &["credentials"]);
    manager
        .run("endpoint remove box-1 --yes")
        .await
        .expect(0, &["forgotten"]);
    manager
        .run(&format!("endpoint add --from {listing}"))
        .await
        .expect(8, &["only observed", "endpoint adopt"]);
    manager
        .run("compose --gpus 1 --name web")
        .await
        .refused(5, &["observe"]);
    manager
        .run("endpoint adopt boxx-1")
        .await
        .refused(3, &["boxx-1", "box-1"]);
    manager
        .run("endpoint adopt box-1")
        .await
        .expect(0, &["nothing is bound there", "--yes"]);
    manager.run("endpoints").await.expect(0, &["observed", "adopted"]);
    manager
        .run("endpoint adopt box-1 --yes")
        .await
        .expect(0, &["endpoint box-1 is adopted", "no operation was started"]);
    manager
        .run("endpoint adopt box-1")
        .await
        .expect(0, &["it is adopted already"]);
    manager
        .run("endpoints")
        .await
        .expect(0, &[&rack.server.url, "emulated (Poolwright"]);
    manager.run("compose --gpus 1 --name web").await.expect(0, &[]);
    manager
        .run("endpoint remove box-1 --yes")
        .await
        .refused(5, &["box-1", "release"]);
    manager.run("release web --yes").await.expect(0, &[]);
    manager.run("endpoint remove box-1 --yes").await.expect(0, &[]);
    // The host's BMC may show for a moment what it had.
    manager
        .until("gpus -o json", |gpus| *gpus == Value::Array(Vec::new()))
        .await;
}

#[tokio::test]
async fn a_service_is_not_added_under_a_second_name() {
    let (rack, folder) = (Rack::start("small").await, tempfile::tempdir().unwrap());
    let manager = Manager::start(folder.path(), &[]).await;
    let listing = rack.file("endpoints.json");
    manager
        .run(&format!("endpoint add --from {listing}"))
        .await
        .expect(0, &["box-1"]);
    let text = std::fs::read_to_string(&listing).unwrap();
    let endpoints: serde_json::Value = serde_json::from_str(&text).unwrap();
    let endpoints = endpoints["endpoints"].as_array().unwrap();
    let box_1 = endpoints
        .iter()
        .find(|endpoint| endpoint["name"] == "box-1")
        .unwrap();
    let url = box_1["url"].as_str().unwrap();
    // By its address, and by another address that leads to it.
    for url in [url.to_owned(), url.replace("127.0.0.1", "localhost")] {
        manager
            .run(&format!(
                "endpoint add again --url {url} --endpoint-username admin --endpoint-password-file {} --endpoint-ca {}",
                rack.file("password"),
                rack.file("ca.pem")
            ))
            .await
            .refused(5, &["is endpoint box-1 already", "endpoint remove box-1"]);
    }
    // Nor the manager itself, which shows all of it once more.
    let password = folder.path().join("admin-password");
    std::fs::write(&password, manager.password()).unwrap();
    let ours = format!(
        "endpoint add ours --url {} --endpoint-username admin --endpoint-password-file {} --endpoint-ca {}",
        manager.server.url,
        password.display(),
        manager.ca().display()
    );
    manager.run(&ours).await.refused(5, &["is this manager itself"]);
    // A manager of the same boxes refuses this one, too: no manager could compose GPUs that both bind.
    let elsewhere = tempfile::tempdir().unwrap();
    let other = Manager::start(elsewhere.path(), &[]).await;
    other
        .run(&format!("endpoint add --from {listing}"))
        .await
        .expect(0, &["box-1"]);
    other.run(&ours).await.refused(
        5,
        &[
            "binds GPUs that others bind already",
            "of box-1",
            "endpoint remove box-1",
        ],
    );
    let known = manager.run("endpoint list -o json").await.json();
    assert_eq!(known.as_array().unwrap().len(), endpoints.len());

    // Nor under two names at once.
    let twice = serde_json::json!({
        "username": "admin", "password_file": rack.file("password"), "ca": rack.file("ca.pem"),
        "endpoints": [{"name": "one", "url": url}, {"name": "other", "url": url}],
    });
    let listing = folder.path().join("twice.json");
    std::fs::write(&listing, twice.to_string()).unwrap();
    manager.run("endpoint remove box-1 --yes").await.expect(0, &[]);
    manager
        .run(&format!("endpoint add --from {}", listing.display()))
        .await
        .expect(8, &["1 endpoint not added, 1 added", "already"]);
    let known = manager.run("endpoint list -o json").await.json();
    assert_eq!(known.as_array().unwrap().len(), endpoints.len());
    let name = known
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["url"] == url)
        .unwrap();
    let name = name["id"].as_str().unwrap();
    manager
        .run(&format!("endpoint remove {name} --yes"))
        .await
        .expect(0, &[]);
    manager
        .run(&format!("endpoint add --from {}", rack.file("endpoints.json")))
        .await
        .expect(8, &["already"]);

    // Once its rack is gone, what is shown is told to be old, also after a restart.
    drop(rack);
    manager.run("doctor").await;
    let gpus = manager.run("get gpus -o json").await;
    assert_eq!(gpus.json().as_array().unwrap().len(), 8);
    assert!(gpus.err.contains("box-1 has not answered since 20"), "{gpus:?}");
    manager
        .run("plan")
        .await
        .expect(0, &["box-1 has not answered since 20"]);
    let known = manager.run("endpoint list -o json").await.json();
    assert!(known[0]["silent"]["last_answer"].is_string(), "{known}");
    manager.server.terminate().await;
    let manager = Manager::start(folder.path(), &[]).await;
    manager
        .until("endpoint list -o json", |known| known[0]["silent"].is_object())
        .await;
    let gpus = manager.run("get gpus -o json").await;
    assert_eq!(gpus.json().as_array().unwrap().len(), 8);
    assert!(
        gpus.err
            .contains("box-1 has not answered since the manager started"),
        "{gpus:?}"
    );
    manager
        .run("compose 8B")
        .await
        .refused(5, &["do not answer (", "box-1", "poolwright doctor"]);
}
