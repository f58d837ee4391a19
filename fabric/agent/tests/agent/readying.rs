//! A GPU that came is made ready through the host's own commands, and what went wrong is told and undone.

use super::asked::pool;
use super::kernel::{Kernel, Mood};
use super::{LONG, SERIAL, target};
use poolwright_driver::{ErrorKind, HostSide};
use std::fs;
use tokio::task::JoinSet;

fn hooks(folder: &std::path::Path, health: &str, after: &str) -> std::path::PathBuf {
    let log = folder.join("log");
    let command = |word: &str, end: &str| {
        format!(
            r#"["/bin/sh", "-c", "echo {word} $POOLWRIGHT_GPUS >>{}; {end}"]"#,
            log.display()
        )
    };
    let text = format!(
        "health-check = {}\nafter-attach = {}\nbefore-detach = {}\n",
        command("look", health),
        command("come", after),
        command("go", "exit 0")
    );
    fs::write(folder.join("hooks.toml"), text).unwrap();
    log
}

#[tokio::test(flavor = "multi_thread")]
async fn its_health_is_checked_before_the_hosts_software_is_told() {
    let pool = pool().await;
    let it = target(Some("10"), &[SERIAL]);
    assert!(pool.manager.can_make_ready());
    let log = hooks(pool.folder.path(), "exit 0", "exit 0");
    let said = pool.manager.make_ready(&it, LONG).await.unwrap();
    for words in [
        "agent agent-host-1",
        "health-check passed",
        "after-attach has run",
    ] {
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(fs::read_to_string(&log).unwrap(), "look gpu-1\ncome gpu-1\n");
    pool.manager.unready(&it, LONG).await.unwrap();
    assert!(
        fs::read_to_string(&log).unwrap().ends_with("go gpu-1\n"),
        "who was told is told again"
    );
    pool.manager.unready(&it, LONG).await.unwrap();
    assert!(
        fs::read_to_string(&log)
            .unwrap()
            .ends_with("come gpu-1\ngo gpu-1\n"),
        "and once only"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_fails_has_it_undone() {
    let pool = pool().await;
    let it = target(Some("10"), &[SERIAL]);
    for (health, after, words, told) in [
        (
            "exit 3",
            "exit 0",
            "hook health-check (/bin/sh) ended with 3",
            "look gpu-1\n",
        ),
        (
            "exit 0",
            "echo no scheduler; exit 4",
            "hook after-attach (/bin/sh) ended with 4: no scheduler",
            "look gpu-1\ncome gpu-1\ngo gpu-1\n",
        ),
    ] {
        let log = hooks(pool.folder.path(), health, after);
        let error = pool.manager.make_ready(&it, LONG).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoEffect, "{error}");
        assert!(error.message.contains(words), "{error}");
        assert_eq!(fs::read_to_string(&log).unwrap(), told);
        assert!(!pool.folder.path().join("ready-gpu-1.json").exists());
        fs::remove_file(log).unwrap();
    }
}

/// More of them than the looks that an agent makes at a time.
#[tokio::test(flavor = "multi_thread")]
async fn many_that_are_slow_to_be_made_ready_hold_up_no_look() {
    let pool = pool().await;
    let gate = pool.folder.path().join("gate");
    let wait = format!("until [ -e {} ]; do sleep 0.02; done", gate.display());
    let log = hooks(pool.folder.path(), &wait, "exit 0");
    let it = target(Some("10"), &[SERIAL]);
    let mut all = JoinSet::new();
    for _ in 0..5 {
        let (manager, it) = (pool.manager.clone(), it.clone());
        all.spawn(async move { manager.make_ready(&it, LONG).await });
    }
    let told = || fs::read_to_string(&log).unwrap_or_default();
    while told().is_empty() {
        tokio::task::yield_now().await;
    }
    // By the last of these all five have come.
    for _ in 0..20 {
        assert_eq!(pool.manager.holders(&it, LONG).await.unwrap(), []);
    }
    assert_eq!(told(), "look gpu-1\n", "the first goes on");
    fs::write(&gate, "").unwrap();
    for ready in all.join_all().await {
        ready.unwrap();
    }
    assert_eq!(
        told(),
        "look gpu-1\ncome gpu-1\n".repeat(5),
        "one after the other"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_not_there_is_not_made_ready() {
    let pool = pool().await;
    let other = target(Some("10"), &["0123456789"]);
    let error = pool
        .manager
        .make_ready(&target(Some("77"), &[SERIAL]), LONG)
        .await
        .unwrap_err();
    assert!(error.message.contains("no slot 77"), "{error}");
    let said = pool.manager.make_ready(&other, LONG).await;
    // Its names can't be compared: its place alone says that it is the one.
    assert!(said.is_ok(), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_done_to_one_that_went_is_not_undone_unless_it_is_given_back() {
    let pool = pool().await;
    let (it, _kernel) = (
        target(Some("10"), &[SERIAL]),
        Kernel::of(&pool.host, Mood::Willing),
    );
    let log = hooks(pool.folder.path(), "exit 0", "exit 0");
    let told = || fs::read_to_string(&log).unwrap();
    pool.manager.make_ready(&it, LONG).await.unwrap();
    pool.manager.drain(&it, LONG).await.unwrap();
    let gone = "look gpu-1\ncome gpu-1\ngo gpu-1\n";
    assert_eq!(told(), gone, "before it goes");
    pool.manager.unready(&it, LONG).await.unwrap();
    assert_eq!(told(), gone, "nothing here is to be undone any more");

    pool.manager.undrain(&it, LONG).await.unwrap();
    pool.manager.unready(&it, LONG).await.unwrap();
    assert_eq!(
        told(),
        format!("{gone}go gpu-1\n"),
        "it is here, and the host's software knows of it"
    );
    assert!(!pool.folder.path().join("ready-gpu-1.json").exists());

    // It comes anew.
    pool.manager.make_ready(&it, LONG).await.unwrap();
    pool.manager.drain(&it, LONG).await.unwrap();
    pool.manager.undrain(&it, LONG).await.unwrap();
    pool.manager.drain(&it, LONG).await.unwrap();
    fs::remove_file(&log).unwrap();
    pool.manager.unready(&it, LONG).await.unwrap();
    assert!(!log.exists());
}
