//! A manager that is made anew from a backup: what it knows is older than the hardware.

use crate::support::{Manager, Rack, run, slow_rack};
use serde_json::Value;
use std::path::Path;

/// What was on its way at a kill is waited for as long as it may take.
const SOON: &[&str] = &["--request-deadline", "4s"];

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Fault 58: the real program.
#[tokio::test]
async fn a_restored_manager_changes_nothing_until_the_difference_is_accepted() {
    let (rack, folder) = (
        Rack::start(&slow_rack("700ms")).await,
        tempfile::tempdir().unwrap(),
    );
    let path = |name: &str| folder.path().join(name);
    // It finds nothing on its way, so its own requests may take as long as they like.
    let manager = Manager::start(&path("first"), &[]).await;
    manager.adopt(&rack).await;
    manager
        .run("compose --gpus 1 --name web")
        .await
        .expect(0, &["done"]);
    let gpus = async || manager.run("get gpus -o json").await.expect(0, &[]).json();
    let id_of = |gpu: &Value| gpu["id"].as_str().unwrap().to_owned();
    let served = gpus().await;
    let served = served
        .as_array()
        .unwrap()
        .iter()
        .find(|gpu| gpu["host"].is_string());
    let (served, host) = (id_of(served.unwrap()), served.unwrap()["host"].clone());
    let hosts = manager.run("get hosts -o json").await.json();
    let other = hosts.as_array().unwrap().iter().find(|other| other["id"] != host);
    let other = other.unwrap()["id"].as_str().unwrap().to_owned();
    let begun = manager
        .run("compose --gpus 3 --name lab --no-wait -o json")
        .await
        .expect(0, &[])
        .json();
    let id = begun["operation"]["id"].as_str().unwrap().to_owned();
    let backup = format!(
        "backup --data-dir {} --out {}",
        text(&path("first")),
        text(&path("copy"))
    );
    run(&backup).await.expect(0, &["commit"]);
    run(&backup).await.refused(5, &["is there already"]);
    // What comes after it is not in it: this operation's end, and all of these.
    manager
        .run(&format!("ops wait {id} --timeout 110s"))
        .await
        .expect(0, &["completed"]);
    let unused = gpus().await;
    let unused = unused
        .as_array()
        .unwrap()
        .iter()
        .find(|gpu| gpu["host"].is_null());
    let unused = id_of(unused.unwrap());
    for name in ["web", "lab"] {
        manager
            .run(&format!("release {name} --yes"))
            .await
            .expect(0, &["done"]);
    }
    manager
        .run(&format!("attach {served} {unused} --host {other}"))
        .await
        .expect(0, &["done"]);
    manager.server.kill().await;
    let bound = rack.bindings();
    assert_eq!(bound.len(), 2);

    let restore = format!(
        "restore {} --data-dir {}",
        text(&path("copy")),
        text(&path("second"))
    );
    run(&restore)
        .await
        .expect(0, &["resume --restored", "poolwright diff"]);
    run(&restore).await.refused(5, &["is there already"]);
    // Its accounts are those of the backup; what opens its secrets was kept apart from it.
    for kept in ["initial-admin-password", "secret-key"] {
        std::fs::copy(path("first").join(kept), path("second").join(kept)).unwrap();
    }
    for _ in 0..2 {
        let manager = Manager::start(&path("second"), SOON).await;
        manager
            .run("compose --gpus 1 --name other")
            .await
            .refused(5, &["restored from", "resume --restored"]);
        manager.run("release web --yes").await.refused(5, &["is seen at"]);
        manager
            .run("doctor")
            .await
            .expect(1, &["restored from", "poolwright resume --restored", &served]);
        manager
            .run("diff")
            .await
            .expect(1, &["elsewhere", &served, "foreign", &unused]);
        // What is recorded is not shown as if all were well.
        let elsewhere = manager.run("get gpus").await.expect(0, &["not as recorded"]);
        let line = elsewhere.out.lines().find(|line| line.contains(&served));
        assert!(line.unwrap().contains("elsewhere"), "{elsewhere:?}");
        for shown in ["get compositions", "plan"] {
            manager
                .run(shown)
                .await
                .expect(0, &["1 GPU not as recorded", &served]);
        }
        manager
            .run(&format!("ops show {id}"))
            .await
            .expect(0, &["resume --restored"]);
        let shown = manager.run("get gpus -o json").await.expect(0, &[]).json();
        let shown = shown.as_array().unwrap().iter().find(|gpu| gpu["id"] == *unused);
        assert_eq!(shown.unwrap()["state"], "foreign");
        manager.run("ops list --unfinished").await.expect(0, &[&id]);
        manager
            .run("pause --restored")
            .await
            .refused(2, &["poolwright pause --all"]);
        assert_eq!(manager.server.terminate().await, 0);
        assert_eq!(rack.bindings(), bound, "nothing was done");
    }

    let manager = Manager::start(&path("second"), SOON).await;
    manager
        .run("resume --restored")
        .await
        .expect(0, &["nothing is paused"]);
    let ended = manager
        .run(&format!("ops wait {id} --timeout 110s -o json"))
        .await;
    assert!(
        ["completed", "rolled-back", "failed"].contains(&ended.json()["state"].as_str().unwrap()),
        "{ended:?}"
    );
    rack.check_single_owners();
    for (gpu, port) in &bound {
        assert!(
            rack.bindings().contains(&(gpu.clone(), port.clone())),
            "{gpu} was bound by nobody that it knows, and stays"
        );
    }
    assert_eq!(manager.server.terminate().await, 0);
    let manager = Manager::start(&path("second"), SOON).await;
    assert_eq!(
        manager.run("get pauses -o json").await.json(),
        Value::Array(vec![])
    );
}

#[tokio::test]
async fn what_is_no_backup_is_refused_and_nothing_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let data = path("data");
    let restore = format!("restore {} --data-dir {}", text(&path("file")), text(&data));
    run(&restore).await.refused(3, &["no such file"]);
    std::fs::write(path("file"), "a note, and no database at all, but of some length").unwrap();
    run(&restore).await.refused(2, &["is no backup of Poolwright"]);
    // Nor is it a damaged one for being short.
    std::fs::write(path("file"), "a = 1\n").unwrap();
    run(&restore).await.refused(2, &["is no backup of Poolwright"]);
    assert!(!data.exists());
    std::fs::create_dir(&data).unwrap();
    let backup = format!("backup --data-dir {} --out {}", text(&data), text(&path("copy")));
    run(&backup).await.refused(3, &["no such file", "pg_dump"]);
    assert!(!path("copy").exists());
}

/// Whoever lost the data directory has lost the file with the password as well.
#[tokio::test]
async fn after_a_restore_an_administrator_gets_in_with_a_new_password() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (first, second) = (path("first"), path("second"));
    let manager = Manager::start(&first, &[]).await;
    let old = manager.password();
    let backup = format!("backup --data-dir {} --out {}", text(&first), text(&path("copy")));
    run(&backup).await.expect(0, &["commit"]);
    assert_eq!(manager.server.terminate().await, 0);
    std::fs::remove_dir_all(&first).unwrap();

    let restore = format!("restore {} --data-dir {}", text(&path("copy")), text(&second));
    run(&restore)
        .await
        .expect(0, &["serve --new-admin-password", "tls/ca.pem"]);
    let file = second.join("initial-admin-password");
    let manager = Manager::start(&second, &[]).await;
    assert!(!file.exists(), "a password is not made anew unasked");
    assert_eq!(manager.server.terminate().await, 0);

    let anew = ["--new-admin-password"];
    let manager = Manager::start(&second, &anew).await;
    let new = manager.password();
    assert_ne!(new, old);
    manager.run("get pauses").await.expect(0, &["restored"]);
    assert_eq!(manager.server.terminate().await, 0);
    // One that holds stays, be it asked for at every start; and the old one opens nothing any more.
    let manager = Manager::start(&second, &anew).await;
    assert_eq!(manager.password(), new);
    std::fs::write(&file, &old).unwrap();
    manager.run("get pauses").await.refused(4, &[]);
    assert_eq!(manager.server.terminate().await, 0);
    let manager = Manager::start(&second, &anew).await;
    assert!(![&new, &old].contains(&&manager.password()));
    manager.run("get pauses").await.expect(0, &["restored"]);
}

#[tokio::test]
async fn a_backup_in_which_one_byte_is_otherwise_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let manager = Manager::start(&path("data"), &["--rack", "zones"]).await;
    let backup = format!(
        "backup --data-dir {} --out {}",
        text(&path("data")),
        text(&path("copy"))
    );
    run(&backup).await.expect(0, &["commit"]);
    assert_eq!(manager.server.terminate().await, 0);
    let restore = |file: &str| format!("restore {} --data-dir {}", text(&path(file)), text(&path("new")));

    // Within a text, where every page stays as sound as it was.
    let mut bytes = std::fs::read(path("copy")).unwrap();
    let word = b"rack/password";
    let at = bytes.windows(word.len()).position(|bytes| bytes == word).unwrap();
    bytes[at] = b'X';
    std::fs::write(path("changed"), &bytes).unwrap();
    run(&restore("changed")).await.refused(1, &["checksum"]);
    assert!(!path("new").exists());
    run(&restore("copy")).await.expect(0, &["resume --restored"]);
}
