//! Commands that detach GPUs show them, ask for confirmation, obey a limit, and log unchecked use.

use crate::support::{Manager, Rack, slow_rack};
use serde_json::Value;
use tempfile::TempDir;

/// A manager of the small rack, and its folder.
async fn small() -> (TempDir, Manager) {
    let folder = tempfile::tempdir().unwrap();
    let manager = Manager::start(folder.path(), &["--rack", "small"]).await;
    (folder, manager)
}

/// Submits a job and waits until it holds GPUs.
async fn running(manager: &Manager, submit: &str) {
    manager.run(submit).await.expect(0, &[]);
    manager
        .until("get compositions -o json", |found| {
            found.as_array().is_some_and(|all| !all.is_empty())
        })
        .await;
}

/// Fault 79: a plan detaches GPUs.
#[tokio::test]
async fn a_plan_that_detaches_gpus_is_shown_confirmed_and_limited() {
    let (folder, manager) = small().await;
    let file = folder.path().join("plan.json");
    let file = file.to_str().unwrap();
    for line in ["compose --gpus 2 --name chat", "compose --gpus 4 --name web"] {
        manager.run(line).await.expect(0, &["completed"]);
    }
    // The demand shrinks: the next plan detaches its surplus.
    let wanted = folder.path().join("wanted.toml");
    std::fs::write(&wanted, "[[demands]]\nid = \"web\"\ngpus = 2\n").unwrap();
    let declare = format!("apply -f {}", wanted.display());
    manager.run(&declare).await.expect(0, &["kept"]);
    manager.run(&format!("plan --out {file}")).await.expect(0, &[]);
    let shown = "2 GPUs to detach: 2 from host-1 (demand web)";
    let unchecked = "use NOT checked: no agent on host-1";

    let skipped = manager.run(&format!("apply {file} --dry-run -o json")).await;
    let skipped = skipped.expect(0, &[]).json()["skipped"].clone();
    let reason = "no agent on host-1, use not checked";
    assert_eq!(skipped[0]["reason"], reason, "{skipped}");
    manager
        .run(&format!("apply {file} --dry-run -o csv"))
        .await
        .expect(0, &["skipped", reason]);
    let steps = manager.run(&format!("apply {file} --dry-run")).await;
    steps.expect(
        0,
        &[
            shown,
            unchecked,
            "unbind ",
            "(skipped: no agent on host-1, use not checked)",
            "dry run: nothing was done",
        ],
    );
    manager
        .run(&format!("apply {file}"))
        .await
        .refused(2, &[shown, unchecked, "not a terminal", "--yes"]);
    manager
        .run(&format!("apply {file} --yes --max-detach 1"))
        .await
        .refused(5, &["would detach 2 GPUs", "--max-detach"]);
    let held = manager
        .run("get compositions -o json")
        .await
        .expect(0, &[])
        .json();
    let held = held.as_array().unwrap().iter();
    let gpus: usize = held.map(|c| c["held"].as_array().unwrap().len()).sum();
    assert_eq!(gpus, 6, "nothing was detached");
    manager
        .run(&format!("apply {file} --yes --max-detach 2"))
        .await
        .expect(0, &[shown, unchecked, "completed"]);
    manager
        .run(&format!("apply {file} --dry-run"))
        .await
        .refused(6, &["no longer fits"]);
    // A plan that detaches nothing needs no confirmation.
    manager.run("demand add more --gpus 1").await.expect(0, &[]);
    manager.run(&format!("plan --out {file}")).await.expect(0, &[]);
    manager
        .run(&format!("apply {file}"))
        .await
        .expect(0, &["completed"]);
}

/// Fault 79: a release detaches GPUs.
#[tokio::test]
async fn a_release_shows_what_it_detaches_and_is_limited() {
    let (_folder, manager) = small().await;
    manager
        .run("compose --gpus 3 --name chat")
        .await
        .expect(0, &["completed"]);
    let shown = "3 GPUs to detach: 3 from host-1 (demand chat)";
    manager
        .run("release chat --dry-run")
        .await
        .expect(0, &[shown, "use NOT checked", "unbind "]);
    manager
        .run("release chat")
        .await
        .refused(2, &[shown, "use NOT checked", "not a terminal", "--yes"]);
    manager
        .run("release chat --dry-run --max-detach 2")
        .await
        .refused(5, &["3 GPUs would be detached", "--max-detach allows 2"]);
    manager
        .run("release chat --yes --max-detach 2")
        .await
        .refused(5, &["would detach 3 GPUs"]);
    let released = manager.run("release chat --yes --max-detach 3").await;
    let released = released.expect(0, &[shown, "use NOT checked: no agent on host-1"]);
    // Equal answers for the GPUs of a host share a line.
    let unchecked = released
        .err
        .lines()
        .filter(|line| line.contains("3 GPUs on host-1: use not checked"));
    assert_eq!(unchecked.count(), 1, "{released:?}");
}

/// Fault 79: on a terminal, where the user is asked. The answer is valid for the GPUs that were shown.
#[tokio::test]
async fn a_question_on_a_terminal_is_answered_and_covers_what_it_showed() {
    let (folder, manager) = small().await;
    manager
        .run("compose --gpus 2 --name chat")
        .await
        .expect(0, &["completed"]);
    let mut asked = manager.on_terminal("release chat");
    asked.until("release chat? [y/N]").await;
    assert!(
        asked
            .shown
            .contains("2 GPUs to detach: 2 from host-1 (demand chat)")
    );
    assert!(asked.shown.contains("use NOT checked: no agent on host-1"));
    asked.answer("n").await.expect(1, &["nothing was changed"]);

    let mut asked = manager.on_terminal("release chat");
    asked.until("release chat? [y/N]").await;
    let wanted = folder.path().join("wanted.toml");
    std::fs::write(&wanted, "[[demands]]\nid = \"chat\"\ngpus = 4\n").unwrap();
    manager
        .run(&format!("apply -f {} --serve", wanted.display()))
        .await
        .expect(0, &["completed"]);
    asked
        .answer("y")
        .await
        .expect(5, &["would detach 4 GPUs", "2 are allowed"]);

    let mut asked = manager.on_terminal("release chat");
    asked.until("4 GPUs to detach").await;
    asked.answer("y").await.expect(0, &["completed"]);
}

/// Fault 79: a job that preempts others, by a command and by a file.
#[tokio::test]
async fn a_job_that_may_preempt_others_is_confirmed() {
    let (folder, manager) = small().await;
    running(&manager, "demand add low --gpus 2 --queue --may-stop").await;
    let shown = "2 GPUs to detach: 2 from host-1 (demand low)";
    let urgent = "demand add urgent --gpus 2 --priority 50 --queue --preempts";
    manager
        .run(urgent)
        .await
        .refused(2, &[shown, "may stop", "--yes"]);
    manager
        .run(&format!("{urgent} --yes --max-detach 1"))
        .await
        .refused(5, &[shown, "--max-detach allows 1"]);
    let file = folder.path().join("wanted.toml");
    let text = "[[demands]]\nid = \"urgent\"\ngpus = 2\npriority = 50\nqueue = { preempts = true }\n";
    std::fs::write(&file, text).unwrap();
    let file = format!("apply -f {}", file.display());
    manager.run(&file).await.refused(2, &[shown, "--yes"]);
    manager
        .run(&format!("{file} --key k"))
        .await
        .refused(2, &["--key", "--serve"]);
    manager
        .run(&format!("{file} --yes"))
        .await
        .expect(0, &[shown, "kept"]);
    // One that preempts none of lower priority needs no confirmation.
    manager
        .run("demand add later --gpus 1 --priority -5 --queue --preempts")
        .await
        .expect(0, &[]);
}

/// Fault 79: a guarantee, for which jobs of others are stopped.
#[tokio::test]
async fn a_guarantee_that_may_stop_jobs_is_confirmed() {
    let (_folder, manager) = small().await;
    running(
        &manager,
        "demand add low --gpus 4 --tenant web --queue --may-stop",
    )
    .await;
    let guarantee = "tenant set lab --guaranteed 4";
    // None of its jobs waits.
    manager.run("tenant set lab --guaranteed 1").await.expect(0, &[]);
    let shown = "4 GPUs to detach: 4 from host-1 (demand low)";
    let submitted = "demand add train --gpus 8 --tenant lab --queue";
    manager
        .run(submitted)
        .await
        .refused(2, &[shown, "may stop", "--yes"]);
    manager
        .run(&format!("{submitted} --yes"))
        .await
        .expect(0, &[shown]);
    manager
        .run(guarantee)
        .await
        .refused(2, &[shown, "may stop", "--yes"]);
    manager
        .run(&format!("{guarantee} --yes --max-detach 3"))
        .await
        .refused(5, &[shown, "--max-detach allows 3"]);
    manager
        .run(&format!("{guarantee} --yes"))
        .await
        .expect(0, &[shown]);
    manager.run("tenant set lab --weight 2").await.expect(0, &[]);
}

/// Fault 79: an operation that waits because of a pause, and goes on after it.
#[tokio::test]
async fn resuming_operations_that_detach_gpus_is_confirmed() {
    // Long enough to be paused at it.
    let rack = slow_rack("10ms").replace("unbind = \"200ms\"", "unbind = \"20s\"");
    let (rack, folder) = (Rack::start(&rack).await, tempfile::tempdir().unwrap());
    let manager = Manager::start(folder.path(), &[]).await;
    manager.adopt(&rack).await;
    manager
        .run("compose --gpus 2 --name web")
        .await
        .expect(0, &["completed"]);
    let release = manager
        .run("release web --yes --no-wait -o json")
        .await
        .expect(0, &[])
        .json();
    manager.run("pause --all").await.expect(0, &[]);
    let shown = format!(
        "2 GPUs to detach: 2 from host-1 (operation {})",
        operation(&release)
    );
    manager.run("resume --all").await.refused(2, &[&shown, "--yes"]);
    manager
        .run("resume --all --yes --max-detach 1")
        .await
        .refused(5, &["--max-detach allows 1"]);
    manager.run("resume --all --yes").await.expect(0, &[&shown]);
}

/// Fault 79: a schedule that opened during the pause is followed after it.
#[tokio::test]
async fn resuming_automation_that_detaches_gpus_is_confirmed() {
    let (_folder, manager) = small().await;
    manager
        .run("compose --gpus 2 --name chat")
        .await
        .expect(0, &["completed"]);
    manager.run("pause --automation").await.expect(0, &[]);
    let always = [
        "schedule",
        "add",
        "always",
        "--weekly",
        "daily 00:00-24:00",
        "--suspends",
        "chat",
    ];
    manager
        .run_with(always.into_iter().chain(["--yes"]))
        .await
        .expect(0, &[]);
    let shown = "2 GPUs to detach: 2 from host-1 (demand chat)";
    manager
        .run("resume --automation")
        .await
        .refused(2, &[shown, "--yes"]);
    manager
        .run("resume --automation --yes --max-detach 1")
        .await
        .refused(5, &[shown, "--max-detach allows 1"]);
    manager.run("resume --automation --yes").await.expect(0, &[shown]);
    manager
        .until("get compositions -o json", |found| {
            found == &serde_json::json!([])
        })
        .await;
    // Nothing is left to detach.
    manager.run("pause --automation").await.expect(0, &[]);
    manager.run("resume --automation").await.expect(0, &[]);
}

/// Fault 79: the pool changes between a plan and its application.
#[tokio::test]
async fn a_file_is_served_by_a_new_plan_if_the_pool_changes_and_the_question_is_asked_again() {
    let (folder, manager) = small().await;
    manager
        .run("compose --gpus 3 --name chat")
        .await
        .expect(0, &["completed"]);
    let wanted = folder.path().join("wanted.toml");
    std::fs::write(&wanted, "[[demands]]\nid = \"chat\"\ngpus = 1\n").unwrap();
    let mut asked = manager.on_terminal(&format!("apply -f {} --serve", wanted.display()));
    asked.until("[y/N]").await;
    manager
        .run("compose --gpus 1 --name other")
        .await
        .expect(0, &["completed"]);
    asked.shown.clear();
    asked.type_in("y").await;
    asked.until("planned again").await;
    asked.until("[y/N]").await;
    asked.answer("y").await.expect(0, &["completed"]);
}

fn operation(change: &Value) -> &str {
    change["operation"]["id"].as_str().unwrap()
}

/// Fault 80: each command that takes a key is repeated with it.
#[tokio::test]
async fn every_change_replays_its_result_for_its_key() {
    let (folder, manager) = small().await;
    let twice = async |line: &str| {
        let first = manager.run(line).await.expect(0, &[]).json();
        let again = manager
            .run(line)
            .await
            .expect(0, &["already done by operation"])
            .json();
        assert_eq!(operation(&again), operation(&first), "{line}");
        first
    };
    // The key determines the generated name.
    let composed = twice("compose --gpus 2 --key compose-1 -o json").await;
    let demand = composed["plan"]["composes"][0]["demand"].as_str().unwrap();
    twice(&format!("release {demand} --yes --key release-1 -o json")).await;
    let gpus = manager.run("get gpus -o json").await.expect(0, &[]).json();
    let gpu = gpus[0]["id"].as_str().unwrap();
    let attach = format!("attach {gpu} --host host-1");
    let attached = twice(&format!("{attach} --key attach-1 -o json")).await;
    let composition = attached["plan"]["composes"][0]["id"].as_str().unwrap();
    twice(&format!("release {composition} --yes --key release-2 -o json")).await;
    manager.run(&attach).await.expect(0, &[]);
    let detached = twice(&format!("detach {gpu} --yes --key detach-1 -o json")).await;
    let undo = format!("ops undo {} --yes --key undo-1 -o json", operation(&detached));
    twice(&undo).await;
    // The key belongs to the release of another name.
    manager
        .run("release no-such --yes --key release-1")
        .await
        .refused(3, &["no-such"]);
    manager
        .run(&format!("apply -f {} --serve --key x", folder.path().display()))
        .await
        .refused(2, &["--key"]);
}

/// Fault 81: one line for each host of an operation, and not one for each GPU.
#[tokio::test]
async fn unchecked_use_is_logged_once_for_each_host_of_an_operation() {
    let rack = Rack::start("small").await;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let manager = Manager::start_logging(folder.path(), &log).await;
    manager.adopt(&rack).await;
    manager
        .run("compose --gpus 3 --name web")
        .await
        .expect(0, &["completed"]);
    manager.run("release web --yes").await.expect(0, &["completed"]);
    let log = std::fs::read_to_string(&log).unwrap();
    let unchecked: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("use not checked"))
        .collect();
    assert_eq!(unchecked.len(), 1, "{unchecked:?}");
    assert!(unchecked[0].contains("gpus=3"), "{unchecked:?}");
}
