//! A manager that keeps everything in PostgreSQL. The tests against a server need one: `tests/run postgres` starts
//! it, and says where it is.

use crate::database::{Cable, Database};
use crate::support::{KeptAddress, Manager, Rack, cluster_key, run_with, slow_rack};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

#[tokio::test]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
async fn what_a_manager_keeps_in_postgresql_is_there_at_its_next_start() {
    let database = Database::new("kept");
    let account = format!("guarded_{}", database.name);
    database.sql(
        &database.name,
        &format!(
            "CREATE ROLE {account} LOGIN PASSWORD 'quite secret' IN ROLE guarded; GRANT CREATE ON SCHEMA public TO {account}"
        ),
    );
    let folder = tempfile::tempdir().unwrap();
    let (data, password) = (folder.path().join("data"), folder.path().join("password"));
    std::fs::write(&password, "quite secret\n").unwrap();
    let (url, password) = (database.url(&account), password.to_str().unwrap());
    let ca = std::env::var("POOLWRIGHT_TEST_POSTGRES_CA").unwrap();
    let options = [
        "--rack",
        "zones",
        "--store",
        &url,
        "--store-password-file",
        password,
        "--store-ca",
        &ca,
    ];

    let manager = Manager::start(&data, &options).await;
    manager
        .run("compose --gpus 2 --name web")
        .await
        .expect(0, &["done"]);
    assert!(
        !data.join("poolwright.db").exists(),
        "the folder holds no database"
    );
    let kept = database.sql(
        &database.name,
        "SELECT count(*) FROM object WHERE kind = 'composition'",
    );
    assert_eq!(kept, "1");
    // One data directory serves one manager, whatever the store.
    let dir = data.to_str().unwrap();
    let again = ["serve", "--data-dir", dir, "--listen", "127.0.0.1:0"];
    run_with(again.into_iter().chain(options))
        .await
        .refused(5, &["in use by another process"]);
    let unlock = ["account", "unlock", "admin", "--data-dir", dir];
    let unlock = unlock.into_iter().chain(options.into_iter().skip(2));
    run_with(unlock).await.expect(0, &["admin is unlocked"]);
    manager.server.kill().await;

    let manager = Manager::start(&data, &options).await;
    let found = manager
        .run("get compositions -o json")
        .await
        .expect(0, &[])
        .json();
    assert_eq!(found.as_array().unwrap().len(), 1);
    manager.run("release web --yes").await.expect(0, &["done"]);
    assert_eq!(manager.server.terminate().await, 0);
}

#[tokio::test]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
async fn a_database_that_can_not_be_used_is_refused_with_the_reason() {
    let database = Database::new("refused");
    let account = format!("guarded_{}", database.name);
    database.sql(
        &database.name,
        &format!("CREATE ROLE {account} LOGIN PASSWORD 'right' IN ROLE guarded"),
    );
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(file("wrong"), "not this one\n").unwrap();
    let data = file("data");
    let serve = async |url: &str, more: &[&str]| {
        let start = [
            "serve",
            "--data-dir",
            &data,
            "--listen",
            "127.0.0.1:0",
            "--store",
            url,
        ];
        run_with(start.into_iter().chain(more.iter().copied())).await
    };

    serve(
        &database.url(&account),
        &["--store-password-file", &file("wrong")],
    )
    .await
    .refused(4, &["refuses the account", &account, "--store-password-file"]);
    serve(&format!("{}x", database.url("poolwright")), &[])
        .await
        .refused(3, &["is not there", &database.name, "createdb"]);
    database.sql(&database.name, "CREATE TABLE invoices (id int)");
    serve(&database.url("poolwright"), &[])
        .await
        .refused(2, &["not a Poolwright database", "somebody else"]);
    database.sql(&database.name, "DROP TABLE invoices");

    let manager = Manager::start(
        folder.path().join("first").as_path(),
        &["--store", &database.url("poolwright")],
    )
    .await;
    assert_eq!(manager.server.terminate().await, 0);
    database.sql(
        &database.name,
        "UPDATE marker SET value = '999' WHERE name = 'schema-version'",
    );
    serve(&database.url("poolwright"), &[])
        .await
        .refused(1, &["newer Poolwright", "schema 999"]);
}

/// Fault 57: cut off, and back.
#[tokio::test]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
async fn while_the_database_is_cut_off_reads_are_marked_and_changes_refused_until_it_is_back() {
    let database = Database::new("cut");
    let cable = Cable::to(&database).await;
    let (rack, folder) = (Rack::start("zones").await, tempfile::tempdir().unwrap());
    let manager = Manager::start(folder.path(), &["--store", &cable.url]).await;
    manager.adopt(&rack).await;
    manager
        .run("compose --gpus 1 --name web")
        .await
        .expect(0, &["done"]);
    let bound = rack.bindings();
    let gpus = manager.run("get gpus -o json").await.expect(0, &[]);
    assert!(!gpus.err.contains("from memory"), "{gpus:?}");

    cable.cut();
    for list in ["gpus", "hosts", "compositions", "demands", "endpoints"] {
        let told = manager.run(&format!("get {list} -o json")).await;
        let told = told.expect(0, &["may be old: told from memory", "the database"]);
        assert!(
            told.json().as_array().is_some_and(|list| !list.is_empty()),
            "{list}: {told:?}"
        );
    }
    manager
        .run("compose --gpus 1 --name more")
        .await
        .refused(10, &["the database", "tried again"]);
    assert_eq!(rack.bindings(), bound, "nothing is done without a commit");

    cable.mend();
    let back = async { while manager.run("compose --gpus 1 --name more").await.code != 0 {} };
    tokio::time::timeout(Duration::from_secs(60), back).await.unwrap();
    let gpus = manager.run("get gpus -o json").await.expect(0, &[]);
    assert!(!gpus.err.contains("from memory"), "{gpus:?}");
    assert_eq!(rack.bindings().len(), bound.len() + 1);
}

#[tokio::test]
async fn an_address_that_can_not_be_right_is_refused_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let serve = async |more: &[&str]| {
        let start = [
            "serve",
            "--data-dir",
            data.to_str().unwrap(),
            "--listen",
            "127.0.0.1:0",
        ];
        run_with(start.into_iter().chain(more.iter().copied())).await
    };
    let with_password = serve(&["--store", "postgres://me:hush@127.0.0.1/pool"]).await;
    assert!(!with_password.err.contains("hush"), "{with_password:?}");
    with_password.refused(2, &["a file of its own", "--store-password-file"]);
    serve(&["--store", "postgres://me@db.example/pool"])
        .await
        .refused(2, &["db.example/pool", "certificate authority", "--store-ca"]);
    serve(&["--store", "mysql://me@db.example/pool"])
        .await
        .refused(2, &["postgres://USER@HOST/DATABASE"]);
    serve(&[
        "--store",
        "postgres://me@127.0.0.1/pool",
        "--store-password-file",
        "no-such-file",
    ])
    .await
    .refused(3, &["no-such-file"]);
    serve(&["--store-password-file", "pw"])
        .await
        .refused(2, &["--store <URL>"]);
    let nobody = KeptAddress::new();
    assert!(!data.exists());
    serve(&["--store", &format!("postgres://me@{}/pool", nobody.address)])
        .await
        .refused(10, &["can't be reached", "127.0.0.1"]);
}

fn is_binding(operation: &Value) -> bool {
    let steps = operation["steps"].as_array().unwrap();
    steps
        .iter()
        .any(|step| step["verb"] == "bind" && step["state"] == "running")
}

/// Two managers on one database and one rack, the first in charge and in the middle of a compose.
async fn two_at_work(database: &Database, rack: &Rack, folder: &Path) -> (Manager, Manager, String) {
    let url = database.url("poolwright");
    let key = cluster_key(folder);
    let options = [
        "--store",
        &url,
        "--cluster-key-file",
        &key,
        "--request-deadline",
        "8s",
    ];
    let first = Manager::start(&folder.join("first"), &options).await;
    first.adopt(rack).await;
    // It is in charge of what it was given by the next beat.
    first
        .run("compose --gpus 1 --name before")
        .await
        .expect(0, &["done"]);
    let second = Manager::start(&folder.join("second"), &options)
        .await
        .beside(&first);
    let started = first
        .run("compose --gpus 7 --name web --no-wait -o json")
        .await
        .expect(0, &[])
        .json();
    let id = started["operation"]["id"].as_str().unwrap().to_owned();
    first.until(&format!("ops show {id} -o json"), is_binding).await;
    (first, second, id)
}

/// Fault 1: kill -9 of the real program; another one adopts.
#[tokio::test]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
async fn of_two_managers_the_second_finishes_what_the_first_was_killed_at() {
    let (database, rack) = (Database::new("killed"), Rack::start(&slow_rack("1500ms")).await);
    let folder = tempfile::tempdir().unwrap();
    let (first, second, id) = two_at_work(&database, &rack, folder.path()).await;
    // Whoever names both is answered by the one that is left.
    let both = format!("--server {},{}", first.server.url, second.server.url);
    first.server.kill().await;
    second.run(&format!("get gpus {both}")).await.expect(0, &["h100"]);
    second
        .run(&format!("ops wait {id} --timeout 110s {both}"))
        .await
        .expect(0, &["completed"]);
    assert_eq!(rack.bindings().len(), 8);
    rack.check_single_owners();
    second.run("release web --yes").await.expect(0, &["done"]);
    assert_eq!(rack.bindings().len(), 1);
    assert_eq!(second.server.terminate().await, 0);
}

/// A manager believes in its leases for so long.
const TERM: Duration = Duration::from_secs(12);

/// Fault 8: two real processes, SIGSTOP for ten terms, and SIGCONT.
#[tokio::test]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
async fn of_two_managers_one_that_was_stopped_for_long_changes_nothing_when_it_goes_on() {
    let (database, rack) = (Database::new("stopped"), Rack::start(&slow_rack("1500ms")).await);
    let folder = tempfile::tempdir().unwrap();
    let (first, second, id) = two_at_work(&database, &rack, folder.path()).await;
    first.server.signal("STOP").await;
    let stopped = Instant::now();
    second
        .run(&format!("ops wait {id} --timeout 110s"))
        .await
        .expect(0, &["completed"]);
    let bound = rack.bindings();
    assert_eq!(bound.len(), 8);
    tokio::time::sleep((TERM * 10).saturating_sub(stopped.elapsed())).await;
    first.server.signal("CONT").await;
    // It goes on, learns what became of its operation, and serves: the second does what it is asked for.
    first
        .until(&format!("ops show {id} -o json"), |operation| {
            operation["state"] == "completed"
        })
        .await;
    first.run("release before --yes").await.expect(0, &["done"]);
    assert_eq!(rack.bindings().len(), 7);
    rack.check_single_owners();
    assert!(
        rack.bindings().iter().all(|left| bound.contains(left)),
        "nothing else has moved"
    );
    assert_eq!(first.server.terminate().await, 0);
    assert_eq!(second.server.terminate().await, 0);
}
