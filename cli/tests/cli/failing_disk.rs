//! A manager whose disk can't flush, or can't be written to: EIO, EROFS and ENOSPC, as the system gives them. A small
//! library is preloaded into the real program, so that neither root nor a device of its own is needed.

use crate::support::{Manager, Rack};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles what lets flushes fail.
fn library(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("failing_disk.c"), folder.join("failing_disk.so"));
    std::fs::write(&source, include_str!("failing_disk.c")).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]);
    let ran = cc.arg(&library).arg(&source).args(["-ldl"]).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    library
}

/// Fault 55: a flush that ends with EIO. Nothing is acknowledged, and the database is opened anew and checked before
/// anything is written again.
#[tokio::test]
async fn a_flush_that_fails_is_no_commit_and_what_is_there_is_checked_before_the_next() {
    let (rack, folder) = (Rack::start("zones").await, tempfile::tempdir().unwrap());
    let (log, sign) = (folder.path().join("log"), folder.path().join("the-disk-fails"));
    let preloaded = library(folder.path());
    let environment = [
        ("LD_PRELOAD", preloaded.to_str().unwrap()),
        ("POOLWRIGHT_DISK_FAILS", sign.to_str().unwrap()),
    ];
    let manager = Manager::start_logging_with(folder.path(), &log, &environment).await;
    let said = || std::fs::read_to_string(&log).unwrap();
    manager.adopt(&rack).await;
    manager
        .run("compose --gpus 1 --name web")
        .await
        .expect(0, &["done"]);
    let bound = rack.bindings();

    std::fs::write(&sign, "flush").unwrap();
    for change in ["compose --gpus 1 --name more", "release web --yes"] {
        manager
            .run(change)
            .await
            .refused(10, &["the store can't be used", "nothing was changed"]);
    }
    for list in ["gpus", "compositions", "demands", "ops"] {
        let told = manager.run(&format!("get {list} -o json")).await.expect(0, &[]);
        assert!(!told.json().as_array().unwrap().is_empty(), "{told:?}");
    }
    assert_eq!(rack.bindings(), bound, "nothing is done without a commit");
    assert!(!said().contains("is sound"), "{}", said());

    std::fs::remove_file(&sign).unwrap();
    manager
        .run("compose --gpus 1 --name more")
        .await
        .expect(0, &["done"]);
    assert_eq!(rack.bindings().len(), bound.len() + 1);
    assert!(
        said().contains("the database was opened anew, and is sound"),
        "{}",
        said()
    );
    manager.server.kill().await;
    let manager = Manager::start(folder.path(), &[]).await;
    let kept = manager.run("get compositions -o json").await.json();
    assert_eq!(kept.as_array().unwrap().len(), 2);
}

/// Fault 55: a file system that was made read-only, a disk that fails on write, and a full one, under the real program.
/// Reads go on, and say so; the probe and `doctor` say why; and once it can be written to again all that is over by
/// itself, without anybody writing.
#[tokio::test]
async fn what_can_not_be_written_to_is_told_by_the_probe_by_doctor_and_by_every_read_until_it_can() {
    let (rack, folder) = (Rack::start("zones").await, tempfile::tempdir().unwrap());
    let (log, sign) = (folder.path().join("log"), folder.path().join("the-disk-fails"));
    let preloaded = library(folder.path());
    let environment = [
        ("LD_PRELOAD", preloaded.to_str().unwrap()),
        ("POOLWRIGHT_DISK_FAILS", sign.to_str().unwrap()),
    ];
    let manager = Manager::start_logging_with(folder.path(), &log, &environment).await;
    manager.adopt(&rack).await;
    manager
        .run("compose --gpus 1 --name web")
        .await
        .expect(0, &["done"]);
    let bound = rack.bindings();
    manager.until_probe(true, &[]).await;

    for (error, words) in [
        ("EROFS", "look at the disk"),
        ("EIO", "look at the disk"),
        ("ENOSPC", "free some space"),
    ] {
        std::fs::write(&sign, error).unwrap();
        manager
            .run("compose --gpus 1 --name more")
            .await
            .refused(10, &["the store can't be used", words, "nothing was changed"]);
        assert_eq!(rack.bindings(), bound, "nothing is done without a commit");
        manager.until_probe(false, &["can't be written to", words]).await;
        let doctor = manager.run("doctor").await;
        doctor.expect(1, &["store", "can't be written to", words]);
        let read = manager.run("get compositions").await.expect(0, &["web"]);
        assert!(read.err.contains("can't be written to"), "{error}: {read:?}");

        std::fs::remove_file(&sign).unwrap();
        manager.until_probe(true, &["can be read and written"]).await;
        let read = manager.run("get compositions").await.expect(0, &["web"]);
        assert!(!read.err.contains("can't be written to"), "{error}: {read:?}");
    }
    manager
        .run("compose --gpus 1 --name more")
        .await
        .expect(0, &["done"]);
    manager.server.kill().await;
    let manager = Manager::start(folder.path(), &[]).await;
    let kept = manager.run("get compositions -o json").await.json();
    assert_eq!(kept.as_array().unwrap().len(), 2);
}
