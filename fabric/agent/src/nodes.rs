//! The device nodes through which a function is used.
//!
//! A node is known by its device number: a process may see it under another name, as in a container whose `--device`
//! renames it, or after it was renamed or deleted.

use crate::module::NVIDIA_DRIVER;
use poolwright_pcie::Address;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use std::fs;
use std::path::Path;

/// The major number of NVIDIA's devices, where `/proc/devices` names none.
const NVIDIA_MAJOR: u32 = 195;

/// The number of a device node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number {
    is_block: bool,
    major: u32,
    minor: u32,
}

impl Number {
    /// As sysfs and mountinfo write it: `226:128`.
    pub fn parse(text: &str, is_block: bool) -> Option<Self> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(Self {
            is_block,
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    }
}

/// What a process has open or mapped, by the link that procfs shows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opened {
    Device(Number),
    /// A file that is no device.
    Other,
    /// The link can't be followed: only its name is known.
    Unknown,
}

impl Opened {
    pub fn behind(link: &Path) -> Self {
        // Not synchronised: a file system whose server is gone would block it.
        let Ok(found) = statx(CWD, link, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE) else {
            return Self::Unknown;
        };
        let is_block = match FileType::from_raw_mode(found.stx_mode.into()) {
            FileType::BlockDevice => true,
            FileType::CharacterDevice => false,
            _ => return Self::Other,
        };
        Self::Device(Number {
            is_block,
            major: found.stx_rdev_major,
            minor: found.stx_rdev_minor,
        })
    }
}

/// A device node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    /// Its usual path on the host: `/dev/nvidia0`.
    pub path: String,
    /// `None`: not in sysfs.
    pub number: Option<Number>,
}

/// The nodes of a device's functions. Files that all GPUs share, such as `/dev/nvidiactl`, lead to none in particular.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Nodes {
    /// Nodes that a process opens: `/dev/nvidia0`, `/dev/dri/card0`, `/dev/vfio/17`; block devices among them.
    pub files: Vec<Node>,
    /// Block devices, partitions among them: `/dev/nvme0n1p1`.
    pub blocks: Vec<Node>,
    /// Files that name a node and could not be read, as where a container masks `/proc/driver`.
    pub unread: Vec<String>,
}

/// Reads them from sysfs and the NVIDIA driver's files in procfs.
pub(crate) fn of(root: &Path, functions: &[Address]) -> Nodes {
    let mut nodes = Nodes::default();
    for function in functions {
        nodes.add_function(root, *function);
    }
    nodes
}

impl Nodes {
    fn add_function(&mut self, root: &Path, function: Address) {
        let device = root.join("sys/bus/pci/devices").join(function.to_string());
        let driver = link(&device.join("driver"));
        match nvidia(root, function) {
            Some(node) => self.files.push(node),
            None if driver.as_deref() == Some(NVIDIA_DRIVER) => {
                self.unread.push(format!("/{}", information(function)))
            }
            None => {}
        }
        self.add_all(&device.join("drm"), "/dev/dri");
        if driver.as_deref() == Some("vfio-pci") {
            if let Some(group) = link(&device.join("iommu_group")) {
                self.add(
                    &root.join("sys/class/vfio").join(&group),
                    format!("/dev/vfio/{group}"),
                );
            }
            // By IOMMUFD each device has a node of its own.
            self.add_all(&device.join("vfio-dev"), "/dev/vfio/devices");
        }
        self.add_all(&device.join("nvme"), "/dev");
        for controller in names(&device.join("nvme")) {
            for block in names(&device.join("nvme").join(&controller)) {
                if block.starts_with(&controller) {
                    self.add_block(root, block);
                }
            }
        }
    }

    /// The node that a process has open or mapped; by its name where there is no number to compare.
    pub fn find(&self, opened: Opened, name: &str) -> Option<&Node> {
        self.files.iter().find(|node| match (opened, node.number) {
            (Opened::Device(number), Some(own)) => number == own,
            (Opened::Other, _) => false,
            (Opened::Device(_), None) | (Opened::Unknown, _) => node.path == name,
        })
    }

    /// The block device that a file system or a swap area is on.
    pub fn find_block(&self, number: Option<Number>, path: &str) -> Option<&Node> {
        let is_it = |node: &&Node| node.path == path || (number.is_some() && node.number == number);
        self.blocks.iter().find(is_it)
    }

    /// The node of a folder of sysfs.
    fn add(&mut self, folder: &Path, path: String) {
        let number = number(folder, false);
        self.files.push(Node { path, number });
    }

    /// The nodes of all folders in a folder of sysfs.
    fn add_all(&mut self, folder: &Path, below: &str) {
        for name in names(folder) {
            self.add(&folder.join(&name), format!("{below}/{name}"));
        }
    }

    fn add_block(&mut self, root: &Path, block: String) {
        let all = root.join("sys/class/block");
        let parts = names(&all.join(&block));
        for name in parts
            .into_iter()
            .filter(|part| part.starts_with(&block))
            .chain([block.clone()])
        {
            let node = Node {
                path: format!("/dev/{name}"),
                number: number(&all.join(&name), true),
            };
            self.files.push(node.clone());
            self.blocks.push(node);
        }
    }
}

/// `/dev/nvidiaN`, where N is the minor number that the driver gave it.
fn nvidia(root: &Path, function: Address) -> Option<Node> {
    let text = fs::read_to_string(root.join(information(function))).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Device Minor:"))?;
    let minor: u32 = line.trim().parse().ok()?;
    Some(Node {
        path: format!("/dev/nvidia{minor}"),
        number: Some(Number {
            is_block: false,
            major: nvidia_major(root).unwrap_or(NVIDIA_MAJOR),
            minor,
        }),
    })
}

/// The driver's description of a GPU.
fn information(function: Address) -> String {
    format!("proc/driver/nvidia/gpus/{function}/information")
}

/// Older drivers call themselves `nvidia-frontend`.
fn nvidia_major(root: &Path) -> Option<u32> {
    let text = fs::read_to_string(root.join("proc/devices")).ok()?;
    let majors = text.lines().filter_map(|line| line.trim().split_once(' '));
    let mut its = majors.filter(|(_, name)| matches!(*name, "nvidia" | "nvidia-frontend"));
    its.find_map(|(major, _)| major.parse().ok())
}

/// The number in a folder of sysfs.
fn number(folder: &Path, is_block: bool) -> Option<Number> {
    Number::parse(&fs::read_to_string(folder.join("dev")).ok()?, is_block)
}

/// What a folder holds; nothing where there is none.
fn names(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

fn link(path: &Path) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_str()?.to_owned())
}
