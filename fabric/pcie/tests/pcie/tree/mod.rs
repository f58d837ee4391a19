//! A host as trees of files, the way Linux writes them: for the tests of this crate and of whoever reads through it.
#![allow(dead_code, reason = "each crate that includes it uses another part")]

use poolwright_pcie::{Look, Machine};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;
pub const NOTHING: &str = "0x0000000000000000 0x0000000000000000 0x0000000000000000";

/// `sys/devices` with functions in each other, as bridges hold them, and the folders that list them.
pub struct Host {
    pub root: TempDir,
}

impl Host {
    pub fn new() -> Self {
        let root = TempDir::new().unwrap();
        fs::create_dir_all(root.path().join("sys/bus/pci/devices")).unwrap();
        // Without init the list of processes counts as unreadable.
        fs::create_dir_all(root.path().join("proc/1/fd")).unwrap();
        fs::write(root.path().join("proc/1/maps"), "").unwrap();
        Self { root }
    }

    /// A function at a path of addresses, from the root bus down.
    pub fn add(&self, path: &[&str], class: &str, resources: &[String], config: &[u8]) -> PathBuf {
        let place = self
            .root
            .path()
            .join("sys/devices/pci0000:00")
            .join(path.join("/"));
        fs::create_dir_all(&place).unwrap();
        for (name, text) in [
            ("vendor", "0x10de"),
            ("device", "0x2330"),
            ("subsystem_vendor", "0x10de"),
            ("subsystem_device", "0x16c1"),
            ("class", class),
            ("numa_node", "-1"),
        ] {
            fs::write(place.join(name), format!("{text}\n")).unwrap();
        }
        fs::write(place.join("resource"), resources.join("\n") + "\n").unwrap();
        fs::write(place.join("config"), config).unwrap();
        let name = path.last().unwrap();
        let link = self.root.path().join("sys/bus/pci/devices").join(name);
        symlink(
            Path::new("../../../devices/pci0000:00").join(path.join("/")),
            link,
        )
        .unwrap();
        place
    }

    pub fn slot(&self, name: &str, address: &str, power: &str) {
        let place = self.root.path().join("sys/bus/pci/slots").join(name);
        fs::create_dir_all(&place).unwrap();
        for (file, text) in [("address", address), ("power", power), ("adapter", power)] {
            fs::write(place.join(file), format!("{text}\n")).unwrap();
        }
    }

    pub fn look(&self) -> Look {
        Machine::at(self.root.path()).look()
    }
}

pub fn range(start: u64, bytes: u64, flags: u64) -> String {
    format!("{start:#018x} {:#018x} {flags:#018x}", start + bytes - 1)
}

/// Six registers, a ROM, six of virtual functions and, of a bridge, four windows.
pub fn lines(bars: &[(usize, String)], windows: Option<[String; 2]>) -> Vec<String> {
    let mut lines = vec![NOTHING.to_string(); 13];
    for (index, line) in bars {
        lines[*index] = line.clone();
    }
    if let Some([memory, prefetch]) = windows {
        lines.extend([NOTHING.to_string(), memory, prefetch, NOTHING.to_string()]);
    }
    lines
}

/// Config space of an H100: three registers, a PCI Express capability, a serial number.
pub fn gpu_config() -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    bytes[..4].copy_from_slice(&[0xde, 0x10, 0x30, 0x23]);
    (bytes[0x06], bytes[0x34], bytes[0x40]) = (0x10, 0x40, 0x10);
    bytes[0x10..0x14].copy_from_slice(&0xfd00_0000_u32.to_le_bytes());
    (bytes[0x14], bytes[0x1c]) = (0x0c, 0x0c);
    bytes[0x100..0x104].copy_from_slice(&0x0001_0003_u32.to_le_bytes());
    bytes[0x104..0x10c].copy_from_slice(&0x4825_2d00_0a3b_11c7_u64.to_le_bytes());
    bytes
}

/// Of a port of a switch with a hot-plug slot, number 10.
pub fn port_config() -> Vec<u8> {
    let mut bytes = vec![0; 256];
    bytes[..4].copy_from_slice(&[0x4c, 0x10, 0x33, 0x82]);
    (bytes[0x06], bytes[0x0e], bytes[0x34], bytes[0x40]) = (0x10, 0x01, 0x40, 0x10);
    bytes[0x42..0x44].copy_from_slice(&0x0162_u16.to_le_bytes());
    bytes[0x54..0x58].copy_from_slice(&(10_u32 << 19 | 0b110_0011).to_le_bytes());
    bytes
}

pub const PORT: &str = "0000:00:1c.0";
pub const GPU: &str = "0000:01:00.0";

/// A port with a slot and room for 256 GiB, and a GPU in it.
pub fn host(gpu: &[u8]) -> (Host, PathBuf) {
    let host = Host::new();
    let windows = [
        range(0xfd00_0000, 64 * MIB, 0x200),
        range(256 * GIB, 256 * GIB, 0x10_2200),
    ];
    let port = host.add(&[PORT], "0x060400", &lines(&[], Some(windows)), &port_config());
    fs::write(port.join("secondary_bus_number"), "1\n").unwrap();
    fs::write(port.join("subordinate_bus_number"), "8\n").unwrap();
    fs::create_dir_all(port.join(format!("{PORT}:pcie004/driver"))).unwrap();
    let bars = [
        (0, range(0xfd00_0000, 16 * MIB, 0x200)),
        (1, range(256 * GIB, 128 * GIB, 0x10_2200)),
        (3, range(384 * GIB, 32 * MIB, 0x10_2200)),
    ];
    let place = host.add(&[PORT, GPU], "0x030200", &lines(&bars, None), gpu);
    for (name, text) in [
        ("current_link_speed", "2.5 GT/s PCIe"),
        ("current_link_width", "16"),
        ("max_link_speed", "32.0 GT/s PCIe"),
        ("max_link_width", "16"),
        ("aer_dev_correctable", "RxErr 3\nTOTAL_ERR_COR 3"),
        ("aer_dev_nonfatal", "TOTAL_ERR_NONFATAL 0"),
        ("aer_dev_fatal", "TOTAL_ERR_FATAL 0"),
    ] {
        fs::write(place.join(name), format!("{text}\n")).unwrap();
    }
    symlink("../../../../bus/pci/drivers/nvidia", place.join("driver")).unwrap();
    let driver = host.root.path().join(format!("proc/driver/nvidia/gpus/{GPU}"));
    fs::create_dir_all(&driver).unwrap();
    fs::write(driver.join("information"), "Device Minor: \t 0\n").unwrap();
    symlink("../../../../kernel/iommu_groups/17", place.join("iommu_group")).unwrap();
    host.slot("10", "0000:01:00", "1");
    (host, place)
}

/// Puts a stand-in for the library of the NVIDIA driver into the tree; it shows the GPUs there.
pub fn library(host: &Host) -> PathBuf {
    let folder = host.root.path().join("usr/lib/x86_64-linux-gnu");
    fs::create_dir_all(&folder).unwrap();
    let library = folder.join("libnvidia-ml.so.1");
    let root = format!("-DROOT=\"{}\"", host.root.path().display());
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../pcie/tests/nvml.c");
    let compiler = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wall", &root, "-o"])
        .arg(&library)
        .arg(source)
        .status();
    assert!(compiler.unwrap().success());
    library
}
