//! Who uses a function, on trees of files as a kernel writes them.
#![expect(clippy::unwrap_used, reason = "tests may panic")]

use poolwright_agent::{Holder, Holders, How, holders};
use poolwright_pcie::{NvmlGpu, Process};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use tempfile::TempDir;

const GPU: &str = "0000:41:00.0";
const NVME: &str = "0000:42:00.0";

struct Host {
    root: TempDir,
}

impl Host {
    /// A GPU that the NVIDIA driver knows as the third, and an NVMe with one partition.
    fn new() -> Self {
        let host = Self {
            root: TempDir::new().unwrap(),
        };
        host.write(
            &format!("proc/driver/nvidia/gpus/{GPU}/information"),
            "Model: \t\t NVIDIA H100\nDevice Minor: \t 3\n",
        );
        host.write(
            &format!("sys/bus/pci/devices/{GPU}/drm/renderD130/dev"),
            "226:130\n",
        );
        host.write(
            &format!("sys/bus/pci/devices/{NVME}/nvme/nvme1/nvme1n1/size"),
            "1\n",
        );
        host.write("sys/class/block/nvme1n1/nvme1n1p1/size", "1\n");
        host.write("proc/mounts", "proc /proc proc rw 0 0\n");
        host
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A process with files open and mapped.
    fn process(&self, pid: u32, command: &str, open: &[&str], mapped: &str) {
        let place = format!("proc/{pid}");
        self.write(&format!("{place}/cmdline"), command);
        self.write(&format!("{place}/comm"), "python3\n");
        self.write(
            &format!("{place}/maps"),
            &format!("7f00-7f01 rw-s 0 00:05 12   {mapped}\n"),
        );
        let files = self.root.path().join(&place).join("fd");
        fs::create_dir_all(&files).unwrap();
        for (number, file) in open.iter().enumerate() {
            symlink(file, files.join(number.to_string())).unwrap();
        }
    }

    fn holders(&self, function: &str) -> Holders {
        holders(self.root.path(), function.parse().unwrap(), None)
    }
}

fn holder(how: How, what: &str, pid: impl Into<Option<u32>>, by: &str) -> Holder {
    Holder {
        how,
        what: what.to_owned(),
        pid: pid.into(),
        by: by.to_owned(),
    }
}

#[test]
fn a_gpu_is_held_by_whoever_has_its_file_open_or_mapped() {
    let host = Host::new();
    assert!(host.holders(GPU).is_free());
    host.process(
        12,
        "python3\0train.py\0",
        &["/dev/null", "/dev/nvidia3", "/dev/nvidia3"],
        "",
    );
    host.process(13, "", &["/dev/nvidia30", "/dev/nvidiactl"], "/dev/nvidia3");
    host.process(14, "Xorg\0", &["/dev/dri/renderD130"], "");
    host.process(
        15,
        "other\0",
        &["/dev/nvidia0", "/dev/nvidia-uvm"],
        "/usr/lib/libc.so.6",
    );
    let expected = [
        holder(How::Open, "/dev/dri/renderD130", 14, "Xorg"),
        holder(How::Open, "/dev/nvidia3", 12, "python3 train.py"),
        holder(How::Mapped, "/dev/nvidia3", 13, "python3"),
    ];
    let found = host.holders(GPU);
    assert_eq!((&found.holders[..], found.unseen), (&expected[..], 0));
}

#[test]
fn a_disk_is_held_where_it_is_mounted_swapped_to_or_built_on() {
    let host = Host::new();
    assert!(host.holders(NVME).is_free());
    host.write(
        "proc/1/mounts",
        "proc /proc proc rw 0 0\n/dev/nvme1n1p1 /data ext4 rw 0 0\n/dev/nvme11n1 /other ext4 rw 0 0\n",
    );
    host.process(1, "init\0", &[], "");
    host.write(
        "proc/swaps",
        "Filename Type Size Used Priority\n/dev/nvme1n1 partition 1 0 -2\n",
    );
    host.write("sys/class/block/nvme1n1p1/holders/dm-0/dev", "253:0\n");
    let expected = [
        holder(How::Mounted, "/dev/nvme1n1p1", None, "/data"),
        holder(How::Swap, "/dev/nvme1n1", None, "swap"),
        holder(How::BuiltOn, "/dev/nvme1n1p1", None, "dm-0"),
    ];
    assert_eq!(host.holders(NVME).holders, expected);
}

#[test]
fn who_can_not_be_looked_into_is_counted_and_nothing_is_called_free() {
    let host = Host::new();
    host.process(12, "secret\0", &["/dev/nvidia3"], "");
    let files = host.root.path().join("proc/12/fd");
    fs::set_permissions(&files, fs::Permissions::from_mode(0o0)).unwrap();
    let found = host.holders(GPU);
    // Root sees everybody.
    assert_eq!(found.holders.len() + found.unseen, 1, "{found:?}");
    assert!(!found.is_free());
    fs::set_permissions(&files, fs::Permissions::from_mode(0o755)).unwrap();

    // One whose mappings vanish has ended.
    fs::remove_file(host.root.path().join("proc/12/maps")).unwrap();
    assert!(host.holders(GPU).is_free());
}

#[test]
fn a_command_is_one_line_whatever_it_holds() {
    let host = Host::new();
    host.process(12, "a\nb\x1b[31m\0c", &["/dev/nvidia3"], "");
    assert_eq!(host.holders(GPU).holders[0].by, "a b [31m c");
}

#[test]
fn who_computes_on_a_gpu_is_named_and_a_driver_that_can_not_say_leaves_it_held() {
    let host = Host::new();
    host.process(12, "python3\0train.py\0", &[], "");
    let process = Process {
        pid: 12,
        memory_bytes: None,
    };
    let gpu = NvmlGpu {
        uuid: Some("GPU-1".to_owned()),
        processes: Some(vec![process]),
        ..NvmlGpu::default()
    };
    let found = holders(host.root.path(), GPU.parse().unwrap(), Some(&gpu));
    assert_eq!(
        found.holders,
        [holder(How::Computing, "GPU-1", 12, "python3 train.py")]
    );
    let silent = NvmlGpu {
        processes: None,
        ..gpu
    };
    assert!(!holders(host.root.path(), GPU.parse().unwrap(), Some(&silent)).is_free());
}
