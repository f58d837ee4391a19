//! Two managers whose PostgreSQL can't be reached, by one of them or by both, while they are at work.

use crate::database::{Cable, Database};
use crate::support::{Manager, Rack, cluster_key};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Two hosts are wanted, and more GPUs than are bound at a time: when it is cut off, some steps have not begun.
const SLOW: &str = r#"
name = "slow"
style = "zones"

[latency]
bind = "4s"
unbind = "200ms"
enumeration = "100ms"
reset = "200ms"

[[box]]
gpus = [{ kind = "h100-pcie-80gb", count = 24 }]

[[host]]
count = 3
slots = 8
"#;

const GPUS: usize = 16;
const PATIENCE: Duration = Duration::from_secs(110);

struct Pair {
    first: Manager,
    second: Manager,
    /// What the first is in the middle of.
    operation: String,
}

impl Pair {
    /// The first is in charge of all, and binds the first GPUs of a demand.
    async fn at_work(cables: [&Cable; 2], rack: &Rack, folder: &Path) -> Self {
        let key = cluster_key(folder);
        let start = async |name: &str, cable: &Cable| {
            let options = [
                "--store",
                &cable.url,
                "--cluster-key-file",
                &key,
                "--request-deadline",
                "8s",
            ];
            Manager::start(&folder.join(name), &options).await
        };
        let first = start("first", cables[0]).await;
        first.adopt(rack).await;
        // It is in charge of what it was given by the next beat.
        first
            .run("compose --gpus 1 --name before")
            .await
            .expect(0, &["done"]);
        let second = start("second", cables[1]).await.beside(&first);
        // What was never asked for can't be told from memory.
        second.run("get compositions -o json").await.expect(0, &[]);
        let line = format!("compose --gpus {GPUS} --name web --no-wait -o json");
        let started = first.run(&line).await.expect(0, &[]).json();
        let operation = started["operation"]["id"].as_str().unwrap().to_owned();
        let is_binding = |operation: &Value| {
            let mut steps = operation["steps"].as_array().unwrap().iter();
            steps.any(|step| step["verb"] == "bind" && step["state"] == "running")
        };
        first
            .until(&format!("ops show {operation} -o json"), is_binding)
            .await;
        Self {
            first,
            second,
            operation,
        }
    }
}

/// The head of the answer to a change that is asked for over HTTPS.
fn answer_to_a_change(manager: &Manager) -> String {
    let mut curl = Command::new("curl");
    curl.args([
        "--silent",
        "--show-error",
        "--include",
        "--max-time",
        "60",
        "--cacert",
    ]);
    curl.arg(manager.ca())
        .args(["--user", &format!("admin:{}", manager.password())]);
    curl.args(["--header", "Content-Type: application/json", "--data"]);
    curl.arg(r#"{"demand": {"id": "more", "kind": "h100-pcie-80gb", "gpus": 1}}"#);
    let ran = curl
        .arg(format!("{}/api/v1/compose", manager.server.url))
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    String::from_utf8(ran.stdout).unwrap().to_lowercase()
}

/// A change is refused with 503 and a time to ask again; a list is told as it was, and says so.
async fn knows_that_it_is_cut_off(manager: &Manager) {
    let head = answer_to_a_change(manager);
    assert!(head.contains(" 503"), "{head}");
    assert!(head.contains("retry-after: "), "{head}");
    manager
        .run("compose --gpus 1 --name more")
        .await
        .refused(10, &["the database"]);
    let told = manager.run("get compositions -o json").await;
    let told = told.expect(0, &["may be old: told from memory", "the database"]);
    assert!(!told.json().as_array().unwrap().is_empty(), "{told:?}");
}

/// How many bindings were intended in the journal, which the database has whatever the managers see of it.
fn intended(database: &Database, operation: &str) -> usize {
    let lines = database.sql(
        &database.name,
        &format!("SELECT line FROM journal WHERE operation = '{operation}'"),
    );
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let begun = lines.filter(|line| line["line"] == "step" && line["state"] == "running");
    let steps: std::collections::BTreeSet<u64> = begun.map(|line| line["index"].as_u64().unwrap()).collect();
    steps.len()
}

async fn ends_well(manager: &Manager, operation: &str) {
    let line = format!("ops wait {operation} --timeout {}s", PATIENCE.as_secs());
    manager.run(&line).await.expect(0, &["completed"]);
}

#[tokio::test]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
async fn of_two_managers_on_postgres_one_that_is_cut_off_leaves_its_work_to_the_other() {
    let (database, rack) = (Database::new("one"), Rack::start(SLOW).await);
    let folder = tempfile::tempdir().unwrap();
    let (cable, other) = (Cable::to(&database).await, Cable::to(&database).await);
    let pair = Pair::at_work([&cable, &other], &rack, folder.path()).await;
    cable.cut();
    knows_that_it_is_cut_off(&pair.first).await;
    ends_well(&pair.second, &pair.operation).await;
    assert_eq!(rack.bindings().len(), GPUS + 1);
    rack.check_single_owners();
    let bound = rack.bindings();

    cable.mend();
    // It goes on with what is so now, and changes nothing by itself.
    pair.first
        .until("get compositions -o json", |all| {
            all.as_array().unwrap().len() == 3
        })
        .await;
    assert_eq!(rack.bindings(), bound);
    let back = async { while pair.first.run("release before --yes").await.code != 0 {} };
    tokio::time::timeout(PATIENCE, back).await.unwrap();
    assert_eq!(rack.bindings().len(), GPUS);
    assert!(rack.bindings().iter().all(|left| bound.contains(left)));
}

#[tokio::test]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
async fn two_managers_on_postgres_that_falls_silent_begin_nothing_until_it_speaks_again() {
    let (database, rack) = (Database::new("both"), Rack::start(SLOW).await);
    let folder = tempfile::tempdir().unwrap();
    let (cable, other) = (Cable::to(&database).await, Cable::to(&database).await);
    let pair = Pair::at_work([&cable, &other], &rack, folder.path()).await;
    cable.fall_silent();
    other.fall_silent();
    // What was committed before is done, at most; it is on its way to the rack by now.
    for manager in [&pair.first, &pair.second] {
        knows_that_it_is_cut_off(manager).await;
    }
    let (bound, intended) = (rack.bindings(), intended(&database, &pair.operation));
    assert!(
        intended < GPUS,
        "it was cut off too late to show anything: {intended}"
    );
    assert!(
        bound.len() <= intended + 1,
        "{} bound, {intended} intended",
        bound.len()
    );
    for manager in [&pair.first, &pair.second] {
        manager
            .run("release before --yes")
            .await
            .refused(10, &["the database"]);
    }
    assert_eq!(rack.bindings(), bound, "nothing is done without a commit");

    cable.mend();
    other.mend();
    let back = async {
        while pair
            .second
            .run(&format!("ops show {} -o json", pair.operation))
            .await
            .code
            != 0
        {}
    };
    tokio::time::timeout(PATIENCE, back).await.unwrap();
    ends_well(&pair.second, &pair.operation).await;
    assert_eq!(rack.bindings().len(), GPUS + 1);
    rack.check_single_owners();
    pair.first
        .until(&format!("ops show {} -o json", pair.operation), |seen| {
            seen["state"] == "completed"
        })
        .await;
}
