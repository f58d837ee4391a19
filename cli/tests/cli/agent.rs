//! `agent`: the host's side, on trees of files as a kernel writes them.

use crate::support::{Ran, run, run_in};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A host with one GPU that found no room for its registers.
fn host() -> TempDir {
    let root = TempDir::new().unwrap();
    let write = |path: &str, text: &[u8]| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(
        "proc/sys/kernel/random/boot_id",
        b"8f7f6a1e-0c7e-4c5e-9d5e-0a2b3c4d5e6f\n",
    );
    let gpu = "sys/bus/pci/devices/0000:41:00.0";
    for (name, text) in [
        ("vendor", "0x10de"),
        ("device", "0x2330"),
        ("subsystem_vendor", "0x10de"),
        ("subsystem_device", "0x16c1"),
        ("class", "0x030200"),
    ] {
        write(&format!("{gpu}/{name}"), text.as_bytes());
    }
    write(&format!("{gpu}/resource"), "0x0 0x0 0x0\n".repeat(13).as_bytes());
    let mut config = vec![0; 64];
    config[..4].copy_from_slice(&[0xde, 0x10, 0x30, 0x23]);
    config[0x14] = 0x0c;
    write(&format!("{gpu}/config"), &config);
    write("proc/1/maps", b"");
    fs::create_dir(root.path().join("proc/1/fd")).unwrap();
    root
}

async fn inventory(root: &Path, form: &str) -> Ran {
    run(&format!("agent inventory --root {} {form}", root.display())).await
}

#[tokio::test]
async fn a_gpu_without_room_is_shown_as_one_that_can_not_be_used() {
    let host = host();
    let words = ["0000:41:00.0", "10de:2330", "unusable: no room for its BARs"];
    inventory(host.path(), "").await.expect(0, &words);
    let said = inventory(host.path(), "-o json").await.expect(0, &[]).json();
    assert_eq!(said["host"]["boot_id"], "8f7f6a1e-0c7e-4c5e-9d5e-0a2b3c4d5e6f");
    assert_eq!(said["gpus"][0]["ids"]["device"], "2330");
    assert_eq!(said["gpus"][0]["class"], "030200");
    assert_eq!(said["gpus"][0]["bars_without_room"][0], 1);
    assert_eq!(said["faults"].as_array().unwrap().len(), 0);
}

#[tokio::test]
async fn a_host_without_a_gpu_is_healthy_and_a_folder_that_is_no_host_is_told() {
    let empty = TempDir::new().unwrap();
    inventory(empty.path(), "")
        .await
        .expect(2, &["holds no folder sys", "--root"]);
    fs::create_dir_all(empty.path().join("sys/bus/pci/devices")).unwrap();
    inventory(empty.path(), "").await.expect(0, &["no GPU"]);
    // The machine that this runs on, whatever it has.
    inventory(Path::new("/"), "-o json").await.expect(0, &["boot_id"]);
}

#[tokio::test]
async fn who_holds_a_gpu_is_named_with_pid_and_command() {
    let host = host();
    let root = host.path();
    let holders = async |form: &str| {
        run(&format!(
            "agent holders 0000:41:00.0 --root {} {form}",
            root.display()
        ))
        .await
    };
    holders("").await.expect(0, &["no holder found"]);
    fs::create_dir_all(root.join("proc/driver/nvidia/gpus/0000:41:00.0")).unwrap();
    fs::write(
        root.join("proc/driver/nvidia/gpus/0000:41:00.0/information"),
        "Device Minor: \t 0\n",
    )
    .unwrap();
    fs::create_dir_all(root.join("proc/77/fd")).unwrap();
    fs::write(root.join("proc/77/cmdline"), "train\0--all\0").unwrap();
    fs::write(root.join("proc/77/maps"), "").unwrap();
    std::os::unix::fs::symlink("/dev/nvidia0", root.join("proc/77/fd/5")).unwrap();
    holders("")
        .await
        .expect(5, &["open", "/dev/nvidia0", "77", "train --all"]);
    let said = holders("-o json").await.expect(5, &[]).json();
    assert_eq!(
        (&said["holders"][0]["pid"], &said["unseen"]),
        (&77.into(), &0.into())
    );
    let other = format!("agent holders 0000:42:00.0 --root {}", root.display());
    run(&other)
        .await
        .expect(3, &["no function 0000:42:00.0", "agent inventory"]);
}

#[tokio::test]
async fn what_came_and_what_could_come_is_checked_point_by_point() {
    let host = host();
    let root = host.path().display();
    let verify = format!("agent verify 0000:41:00.0 --ids 10de:2331 --link 32x16 --root {root}");
    let words = [
        "10de:2330, and 10de:2331 is expected",
        "no room was found for register 1",
        "cannot-tell",
    ];
    run(&verify).await.expect(5, &words);
    let preflight = format!("agent preflight 0000:40:01.0 --bar 128GiB --root {root}");
    run(&preflight)
        .await
        .expect(5, &["this host has no port 0000:40:01.0"]);
    for (line, words) in [
        ("verify 41:00", "such as 0000:41:00.0"),
        ("verify 0000:41:00.0 --link 32", "such as 32x16"),
        ("verify 0000:41:00.0 --ids h100", "such as 10de:2330"),
        ("preflight 0000:40:01.0 --bar much", "much"),
    ] {
        run(&format!("agent {line}")).await.expect(2, &[words]);
    }
}

#[tokio::test]
async fn what_a_host_needs_is_computed_told_and_not_done() {
    let host = host();
    let prepare = format!("agent prepare --bar 64GiB --root {}", host.path().display());
    // A bridge that hands nothing on.
    let bridge = host.path().join("sys/bus/pci/devices/0000:40:01.0");
    fs::create_dir_all(&bridge).unwrap();
    fs::write(bridge.join("class"), "0x060400\n").unwrap();
    run(&prepare)
        .await
        .expect(5, &["firmware", "Above 4G Decoding on"]);
    let said = run(&format!("{prepare} -o json")).await.expect(5, &[]).json();
    assert_eq!(
        said["kernel_line"],
        "pci=realloc,hpmmioprefsize=128G,hpmmiosize=32M"
    );
    run("agent prepare --bar lots").await.expect(2, &["lots"]);
}

#[tokio::test]
async fn a_watch_ends_when_it_is_told_to() {
    run("agent watch --for 50ms").await.expect(0, &["listening"]);
    run("agent watch --for 50ms -o csv").await.expect(2, &["-o json"]);
    run("agent watch --for 0s").await.expect(2, &["no time at all"]);
}

/// Fault 92: here by `LD_LIBRARY_PATH`.
#[tokio::test]
async fn the_library_of_the_driver_is_found_by_the_dynamic_loader() {
    let (host, folder) = (host(), TempDir::new().unwrap());
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(folder.path().join("libnvidia-ml.so.1"))
        .arg(format!("-DROOT=\"{}\"", host.path().display()))
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../fabric/pcie/tests/nvml.c"
        ))
        .status();
    assert!(compiled.unwrap().success());
    let path = folder.path().to_str().unwrap();
    let said = run_in("agent inventory -o json", &[("LD_LIBRARY_PATH", path)]).await;
    let said = said.expect(0, &[]).json();
    assert_eq!(
        (&said["nvml"]["state"], &said["nvml"]["driver"]),
        (&"ready".into(), &"570.00".into())
    );
}

/// Fault 93: an init that can't be read is named.
#[tokio::test]
async fn a_process_that_can_not_be_read_is_named_and_nothing_is_called_free() {
    let host = host();
    let maps = host.path().join("proc/1/maps");
    fs::remove_file(&maps).unwrap();
    fs::create_dir(&maps).unwrap();
    fs::write(host.path().join("proc/1/comm"), "init\n").unwrap();
    let line = format!("agent holders 0000:41:00.0 --root {}", host.path().display());
    run(&line)
        .await
        .expect(8, &["cannot tell", "process 1 (init): ", "CAP_SYS_PTRACE"]);
    let said = run(&format!("{line} -o json")).await.expect(8, &[]).json();
    assert_eq!(
        (&said["unseen"], &said["unreadable"][0]["pid"]),
        (&1.into(), &1.into())
    );
}

/// The recorded host; `None` if the recordings are absent.
fn recording() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let shared = std::env::var_os("POOLWRIGHT_SHARED").map_or(beside, PathBuf::from);
    let root = shared.join("cases/agent/h200/root");
    if root.is_dir() {
        return Some(root);
    }
    eprintln!(
        "{} is not there (POOLWRIGHT_SHARED): nothing tested",
        root.display()
    );
    None
}

/// Copies a recorded host, and restores the links of sysfs, which are recorded as text files.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let place = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &place);
            continue;
        }
        // Git stores no empty folder.
        if entry.file_name() == ".gitkeep" {
            continue;
        }
        let bytes = match fs::read_link(entry.path()) {
            Ok(target) => target.into_os_string().into_encoded_bytes(),
            Err(_) => fs::read(entry.path()).unwrap(),
        };
        match std::str::from_utf8(&bytes)
            .ok()
            .filter(|text| text.starts_with("../"))
        {
            Some(target) => symlink(target.trim_end(), place).unwrap(),
            None => fs::write(place, &bytes).unwrap(),
        }
    }
}

/// A virtual machine with one H200 and no bridges; its driver was not recorded, and neither were its processes.
///
/// Fault 92: nothing is claimed about a driver that was not asked.
#[tokio::test]
async fn a_recorded_h200_is_shown_without_claims_about_what_was_not_asked() {
    let Some(recorded) = recording() else { return };
    let host = TempDir::new().unwrap();
    copy(&recorded, host.path());
    let root = host.path();
    let shown = inventory(root, "")
        .await
        .expect(0, &["0000:00:06.0", "10de:2335", "NVML not asked"]);
    assert!(
        !shown.out.contains("not visible") && !shown.err.contains("NVIDIA"),
        "{shown:?}"
    );
    let said = inventory(root, "-o json").await.expect(0, &[]).json();
    assert_eq!(said["gpus"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&said["nvml"]["state"], &said["nvml_fault"]),
        (&"not-asked".into(), &Value::Null)
    );
    assert_eq!(
        (&said["gpus"][0]["driver"], &said["gpus"][0]["driver_says"]),
        (&"nvidia".into(), &Value::Null)
    );

    for ids in ["", "--ids 10de:2335"] {
        let prepare = format!("agent prepare {ids} -o json --root {}", root.display());
        let said = run(&prepare).await.expect(8, &[]).json();
        let advice = said["advice"].as_array().unwrap();
        let verdict = |check: &str| {
            let of = advice.iter().find(|advice| advice["check"] == check);
            of.unwrap()["verdict"].clone()
        };
        assert_eq!(verdict("persistence"), "cannot-tell");
        assert_eq!(verdict("firmware"), "not-applicable");
        assert_eq!(verdict("driver"), "good");
    }
    let holders = format!("agent holders 0000:00:06.0 --root {}", root.display());
    run(&holders).await.expect(8, &["cannot tell"]);
}
