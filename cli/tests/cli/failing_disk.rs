//! A manager whose disk can't flush, or can't be written to: EIO, EROFS and ENOSPC, as the system gives them. A small
//! library is preloaded into the real program, so that neither root nor a device of its own is needed.

use crate::support::Manager;
use crate::unwritable::Unwritable;
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

/// A disk that fails as a file says, for as long as that is there.
struct Failing {
    story: Unwritable,
    log: PathBuf,
    sign: PathBuf,
}

impl Failing {
    async fn new() -> Self {
        let story = Unwritable::new().await;
        let [log, sign] = ["log", "the-disk-fails"].map(|name| story.folder.path().join(name));
        Self { story, log, sign }
    }

    /// One that writes to it.
    async fn manager(&self) -> Manager {
        let folder = self.story.folder.path();
        let preloaded = library(folder);
        let environment = [
            ("LD_PRELOAD", preloaded.to_str().unwrap()),
            ("POOLWRIGHT_DISK_FAILS", self.sign.to_str().unwrap()),
        ];
        Manager::start_logging_with(folder, &self.log, &environment).await
    }

    fn fails(&self, how: &str) {
        std::fs::write(&self.sign, how).unwrap();
    }

    fn works(&self) {
        std::fs::remove_file(&self.sign).unwrap();
    }
}

/// Fault 55: a flush that ends with EIO. Nothing is acknowledged, and the database is opened anew and checked before
/// anything is written again.
#[tokio::test]
async fn a_flush_that_fails_is_no_commit_and_what_is_there_is_checked_before_the_next() {
    let disk = Failing::new().await;
    let manager = disk.manager().await;
    let said = || std::fs::read_to_string(&disk.log).unwrap();
    disk.story.compose_first(&manager).await;

    disk.fails("flush");
    disk.story.nothing_is_changed(&manager).await;
    assert!(!said().contains("is sound"), "{}", said());

    disk.works();
    disk.story.goes_on(manager).await;
    assert!(
        said().contains("the database was opened anew, and is sound"),
        "{}",
        said()
    );
}

/// Fault 55: a file system that was made read-only, a disk that fails on write, and a full one, under the real program.
/// Reads go on, and say so; the probe and `doctor` say why; and once it can be written to again all that is over by
/// itself, without anybody writing.
#[tokio::test]
async fn what_can_not_be_written_to_is_told_by_the_probe_by_doctor_and_by_every_read_until_it_can() {
    let disk = Failing::new().await;
    let manager = disk.manager().await;
    disk.story.compose_first(&manager).await;
    let bound = disk.story.rack.bindings();
    manager.until_probe(true, &[]).await;

    for (error, words) in [
        ("EROFS", "look at the disk"),
        ("EIO", "look at the disk"),
        ("ENOSPC", "free some space"),
    ] {
        disk.fails(error);
        manager
            .run("compose --gpus 1 --name more")
            .await
            .refused(10, &["the store can't be used", words, "nothing was changed"]);
        assert_eq!(
            disk.story.rack.bindings(),
            bound,
            "nothing is done without a commit"
        );
        manager.until_probe(false, &["can't be written to", words]).await;
        let doctor = manager.run("doctor").await;
        doctor.expect(1, &["store", "can't be written to", words]);
        let read = manager.run("get compositions").await.expect(0, &["web"]);
        assert!(read.err.contains("can't be written to"), "{error}: {read:?}");

        disk.works();
        manager.until_probe(true, &["can be read and written"]).await;
        let read = manager.run("get compositions").await.expect(0, &["web"]);
        assert!(!read.err.contains("can't be written to"), "{error}: {read:?}");
    }
    disk.story.goes_on(manager).await;
}
