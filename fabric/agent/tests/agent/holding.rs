//! Who uses a function, on trees of files as a kernel writes them.

use poolwright_agent::{Holder, Holders, How, holders};
use poolwright_pcie::{Address, NvmlGpu, Process};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const GPU: &str = "0000:41:00.0";
/// The other function of the GPU's device.
const AUDIO: &str = "0000:41:00.1";
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
        host.process(1, "init\0", &[], "");
        host.write("proc/1/mountinfo", "22 1 0:21 / /proc rw - proc proc rw\n");
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
            &format!("00007f00-00007f01 rw-s 0 00:05 12   {mapped}\n"),
        );
        let files = self.root.path().join(&place).join("fd");
        fs::create_dir_all(&files).unwrap();
        for (number, file) in open.iter().enumerate() {
            symlink(file, files.join(number.to_string())).unwrap();
        }
    }

    /// The link in `map_files` to a mapped file.
    fn maps_to(&self, pid: u32, mapped: &Path) {
        let place = self.root.path().join(format!("proc/{pid}/map_files"));
        fs::create_dir_all(&place).unwrap();
        symlink(mapped, place.join("7f00-7f01")).unwrap();
    }

    /// A name that leads to another file.
    fn renamed(&self, name: &str, file: &str) -> PathBuf {
        let place = self.root.path().join(name);
        symlink(file, &place).unwrap();
        place
    }

    fn holders(&self, function: &str) -> Holders {
        holders(self.root.path(), &[function.parse().unwrap()], None)
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
    host.write("sys/class/block/nvme1n1p1/dev", "259:1\n");
    host.write(
        "proc/1/mountinfo",
        "22 1 0:21 / /proc rw - proc proc rw\n\
         30 1 0:40 / /pool rw,noatime shared:1 - btrfs /dev/nvme1n1p1 rw\n\
         31 1 259:1 / /data rw - ext4 /dev/renamed rw\n\
         32 1 259:9 / /other rw - ext4 /dev/nvme11n1 rw\n",
    );
    host.write(
        "proc/swaps",
        "Filename Type Size Used Priority\n/dev/nvme1n1 partition 1 0 -2\n",
    );
    host.write("sys/class/block/nvme1n1p1/holders/dm-0/dev", "253:0\n");
    let expected = [
        holder(How::Mounted, "/dev/nvme1n1p1", None, "/pool"),
        holder(How::Mounted, "/dev/nvme1n1p1 as /dev/renamed", None, "/data"),
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

/// Fault 93: found by its device number, under any name.
#[test]
fn a_renamed_device_node_is_found_by_its_number() {
    let host = Host::new();
    // The GPU gets the number of /dev/null: a test without root can create no node.
    host.write(
        "proc/devices",
        "Character devices:\n  1 mem\n  1 nvidia\n\nBlock devices:\n  1 sd\n",
    );
    let opened = host.renamed("gpu", "/dev/null");
    let opened = opened.to_str().unwrap();
    host.process(12, "train\0", &[opened, "/dev/zero", "pipe:[77]"], "");
    host.process(13, "infer\0", &[], "/dev/gpu (deleted)");
    host.maps_to(13, Path::new("/dev/null"));
    let expected = [
        holder(How::Open, &format!("/dev/nvidia3 as {opened}"), 12, "train"),
        holder(How::Mapped, "/dev/nvidia3 as /dev/gpu (deleted)", 13, "infer"),
    ];
    assert_eq!(host.holders(GPU).holders, expected);
}

/// Fault 93: a container's `--device` gives one device the usual name of another.
#[test]
fn a_device_that_has_the_name_of_another_in_a_container_is_not_taken_for_it() {
    let host = Host::new();
    let node = format!("sys/bus/pci/devices/{NVME}/nvme/zero/dev");
    host.write(&node, "1:3\n");
    host.process(12, "train\0", &["/dev/zero"], "");
    host.process(13, "infer\0", &[], "/dev/zero");
    host.maps_to(13, Path::new("/dev/zero"));
    assert!(host.holders(NVME).is_free(), "its number is 1:5");
    host.write(&node, "1:5\n");
    let expected = [
        holder(How::Open, "/dev/zero", 12, "train"),
        holder(How::Mapped, "/dev/zero", 13, "infer"),
    ];
    assert_eq!(host.holders(NVME).holders, expected);
}

/// The host hands a GPU to a guest: the group of VFIO, and the device of IOMMUFD.
#[test]
fn a_gpu_of_a_guest_is_held_through_vfio() {
    let host = Host::new();
    let device = host.root.path().join("sys/bus/pci/devices").join(GPU);
    symlink("../../../drivers/vfio-pci", device.join("driver")).unwrap();
    symlink("../../../kernel/iommu_groups/17", device.join("iommu_group")).unwrap();
    host.write("sys/class/vfio/17/dev", "1:3\n");
    host.write(&format!("sys/bus/pci/devices/{GPU}/vfio-dev/vfio0/dev"), "1:5\n");
    host.process(12, "qemu\0", &["/dev/null"], "");
    host.process(13, "qemu\0", &["/dev/zero"], "");
    let expected = [
        holder(How::Open, "/dev/vfio/17 as /dev/null", 12, "qemu"),
        holder(How::Open, "/dev/vfio/devices/vfio0 as /dev/zero", 13, "qemu"),
    ];
    assert_eq!(host.holders(GPU).holders, expected);
}

/// Replaces `maps` by a directory, which not even root can read as a file.
fn unreadable(host: &Host, pid: u32) {
    let maps = host.root.path().join(format!("proc/{pid}/maps"));
    fs::remove_file(&maps).unwrap();
    fs::create_dir(maps).unwrap();
}

/// Fault 93: an unreadable init is named, and prevents a release only if the driver lists no processes.
#[test]
fn an_unreadable_init_is_named_and_cleared_by_the_driver_s_list_and_no_other_process_is() {
    let host = Host::new();
    unreadable(&host, 1);
    let listed = |pids: &[u32]| NvmlGpu {
        uuid: Some("GPU-1".to_owned()),
        processes: Some(
            pids.iter()
                .map(|pid| Process {
                    pid: *pid,
                    memory_bytes: None,
                })
                .collect(),
        ),
        ..NvmlGpu::default()
    };
    let functions: [Address; 2] = [GPU, AUDIO].map(|function| function.parse().unwrap());
    let with = |gpu: Option<&NvmlGpu>| holders(host.root.path(), &functions, gpu);

    let found = with(None);
    assert_eq!((found.is_free(), found.unseen), (false, 1));
    assert!(
        found.unreadable[0].to_string().starts_with("process 1 (init): "),
        "{found:?}"
    );

    let found = with(Some(&listed(&[])));
    assert!(found.is_free(), "{found:?}");
    let [init] = &found.unreadable[..] else {
        panic!("{found:?}")
    };
    assert_eq!(
        (init.pid, init.by.as_str(), init.may_hold),
        (Some(1), "init", false)
    );

    assert_eq!(
        with(Some(&listed(&[1]))).holders,
        [holder(How::Computing, "GPU-1", 1, "init")]
    );
    host.process(12, "train\0", &[], "");
    unreadable(&host, 12);
    let found = with(Some(&listed(&[])));
    assert_eq!(
        (found.is_free(), found.unseen, found.unreadable.len()),
        (false, 1, 2)
    );
}

#[test]
fn without_a_list_of_processes_nothing_is_called_free() {
    let host = Host::new();
    fs::remove_dir_all(host.root.path().join("proc/1")).unwrap();
    let found = host.holders(GPU);
    assert_eq!((found.is_free(), found.unseen), (false, 1));
    assert!(
        found.unreadable[0].why.contains("not listed in /proc"),
        "{found:?}"
    );
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
    let found = holders(host.root.path(), &[GPU.parse().unwrap()], Some(&gpu));
    assert_eq!(
        found.holders,
        [holder(How::Computing, "GPU-1", 12, "python3 train.py")]
    );
    let silent = NvmlGpu {
        processes: None,
        ..gpu
    };
    let found = holders(host.root.path(), &[GPU.parse().unwrap()], Some(&silent));
    assert!(!found.is_free() && found.unreadable[0].by == "NVML", "{found:?}");
}
