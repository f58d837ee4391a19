//! A GPU is taken from its host, and given back; one that is in use is not.

use super::asked::{Pool, pool};
use super::kernel::{Kernel, Mood};
use super::{LONG, SERIAL, serving, target};
use crate::tree::{GPU, PORT};
use poolwright_driver::{Confirmation, ErrorKind, HostSide, HostTarget};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

fn it() -> HostTarget {
    target(Some("10"), &[SERIAL])
}

/// Firmware handles what comes and goes.
fn without_pciehp(pool: &Pool) {
    let port = pool.host.root.path().join(format!("sys/bus/pci/devices/{PORT}"));
    fs::remove_dir_all(port.join(format!("{PORT}:pcie004"))).unwrap();
}

/// Each hook writes a line.
fn hook(pool: &Pool) -> PathBuf {
    let log = pool.folder.path().join("log");
    let command = |word: &str| {
        format!(
            r#"["/bin/sh", "-c", "echo {word} $POOLWRIGHT_GPUS in $POOLWRIGHT_SLOT >>{}"]"#,
            log.display()
        )
    };
    let text = format!(
        "before-detach = {}\ndetach-undone = {}\n",
        command("stop"),
        command("go on")
    );
    fs::write(pool.folder.path().join("hooks.toml"), text).unwrap();
    log
}

/// A process has the GPU open; gives its folder.
fn works(pool: &Pool) -> PathBuf {
    let root = pool.host.root.path();
    fs::create_dir_all(root.join(format!("proc/driver/nvidia/gpus/{GPU}"))).unwrap();
    let said = root.join(format!("proc/driver/nvidia/gpus/{GPU}/information"));
    fs::write(said, "Device Minor: \t 0\n").unwrap();
    let process = root.join("proc/77");
    fs::create_dir_all(process.join("fd")).unwrap();
    fs::write(process.join("cmdline"), "train\0").unwrap();
    fs::write(process.join("maps"), "").unwrap();
    symlink("/dev/nvidia0", process.join("fd/3")).unwrap();
    process
}

fn kept(pool: &Pool) -> bool {
    pool.folder.path().join("drain-gpu-1.json").exists()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_goes_from_its_driver_and_its_host_and_comes_back_in_both_kinds_of_slots() {
    for native in [true, false] {
        let pool = pool().await;
        if !native {
            without_pciehp(&pool);
        }
        let (kernel, log) = (Kernel::of(&pool.host, Mood::Willing), hook(&pool));
        pool.manager.drain(&it(), LONG).await.unwrap();
        assert!(!kernel.is_there() && kept(&pool));
        // Twice is as good as once.
        pool.manager.drain(&it(), LONG).await.unwrap();
        let gone = pool.manager.verify(&it(), LONG).await.unwrap();
        assert!(matches!(gone, Confirmation::NotSeen { .. }), "{gone:?}");
        pool.manager.undrain(&it(), LONG).await.unwrap();
        assert!(kernel.is_bound() && !kept(&pool), "native: {native}");
        let back = pool.manager.verify(&it(), LONG).await.unwrap();
        assert!(matches!(back, Confirmation::Seen { .. }), "{back:?}");
        let log = fs::read_to_string(log).unwrap();
        assert_eq!(log, "stop gpu-1 in 10\ngo on gpu-1 in 10\n");
        // Nothing is left to undo.
        pool.manager.undrain(&it(), LONG).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_in_use_stays_and_new_work_goes_on() {
    let pool = pool().await;
    let (kernel, log) = (Kernel::of(&pool.host, Mood::Willing), hook(&pool));
    works(&pool);
    let error = pool.manager.drain(&it(), LONG).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoEffect, "{error}");
    assert!(
        error
            .message
            .contains("in use: gpu-1 by train (has open /dev/nvidia0) (process 77)"),
        "{error}"
    );
    assert!(kernel.is_bound() && !kept(&pool));
    assert_eq!(
        fs::read_to_string(log).unwrap(),
        "stop gpu-1 in 10\ngo on gpu-1 in 10\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_hook_ends_holds_nothing_up() {
    let pool = pool().await;
    let kernel = Kernel::of(&pool.host, Mood::Willing);
    let ends = format!(
        r#"before-detach = ["/bin/rm", "-r", "{}"]"#,
        works(&pool).display()
    );
    fs::write(pool.folder.path().join("hooks.toml"), ends).unwrap();
    assert_eq!(pool.manager.holders(&it(), LONG).await.unwrap().len(), 1);
    pool.manager.drain(&it(), LONG).await.unwrap();
    assert!(!kernel.is_there());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_fails_or_makes_no_sense_stops_the_drain() {
    let pool = pool().await;
    let kernel = Kernel::of(&pool.host, Mood::Willing);
    for (text, words) in [
        (
            r#"before-detach = ["/bin/false"]"#,
            "hook before-detach (/bin/false) ended with 1",
        ),
        (r#"before-detach = "rm -rf /""#, "hooks.toml"),
    ] {
        fs::write(pool.folder.path().join("hooks.toml"), text).unwrap();
        let error = pool.manager.drain(&it(), LONG).await.unwrap_err();
        assert!(error.message.contains(words), "{error}");
        assert!(kernel.is_bound() && !kept(&pool));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_was_killed_in_the_middle_undoes_what_it_had_done() {
    let pool = pool().await;
    let kernel = Kernel::of(&pool.host, Mood::Willing);
    pool.manager.drain(&it(), LONG).await.unwrap();
    pool.agent.stop().await;
    let again = serving(pool.host.root.path(), &pool.folder).await;
    let manager = super::manager(&pool.authority, &pool.authority.manager(), again.address);
    manager.undrain(&it(), LONG).await.unwrap();
    assert!(kernel.is_bound() && !kept_at(&pool.folder));
}

fn kept_at(folder: &poolwright_agent::folder::Folder) -> bool {
    folder.path().join("drain-gpu-1.json").exists()
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_start_of_the_host_nothing_is_left_to_undo_but_the_hook() {
    let pool = pool().await;
    let (kernel, log) = (Kernel::of(&pool.host, Mood::Willing), hook(&pool));
    pool.manager.drain(&it(), LONG).await.unwrap();
    let boot_id = pool.host.root.path().join("proc/sys/kernel/random/boot_id");
    fs::write(boot_id, "11111111-2222-4333-8444-555555555555\n").unwrap();
    pool.manager.undrain(&it(), LONG).await.unwrap();
    assert!(!kernel.is_there(), "the kernel that starts looks by itself");
    assert!(!kept(&pool));
    assert!(fs::read_to_string(log).unwrap().ends_with("go on gpu-1 in 10\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kernel_that_does_not_let_go_leaves_the_outcome_unknown_and_it_can_be_undone() {
    let pool = pool().await;
    let stubborn = Kernel::of(&pool.host, Mood::Keeps);
    let error = pool.manager.drain(&it(), LONG).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::OutcomeUnknown, "{error}");
    assert!(
        error.message.contains(&format!("{GPU} gone is not so")),
        "{error}"
    );
    assert!(!stubborn.is_bound() && kept(&pool));
    pool.manager.undrain(&it(), LONG).await.unwrap();
    assert!(stubborn.is_bound() && !kept(&pool));
}
