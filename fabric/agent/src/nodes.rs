//! The files under `/dev` through which a function is used.

use poolwright_pcie::Address;
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};

/// What leads to a function. Files that all GPUs share, such as `/dev/nvidiactl`, lead to none in particular.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Nodes {
    /// Files that a process opens: `/dev/nvidia0`, `/dev/dri/card0`, `/dev/vfio/17`.
    pub files: Vec<String>,
    /// Names of block devices, partitions among them: `nvme0n1p1`.
    pub blocks: Vec<String>,
}

/// Reads which those are, from what sysfs and the NVIDIA driver say.
pub(crate) fn of(root: &Path, function: Address) -> Nodes {
    let device = root.join("sys/bus/pci/devices").join(function.to_string());
    let mut nodes = Nodes::default();
    nodes.files.extend(nvidia(root, function));
    nodes.files.extend(
        names(&device.join("drm"))
            .into_iter()
            .map(|name| format!("/dev/dri/{name}")),
    );
    if link(&device.join("driver")).as_deref() == Some("vfio-pci") {
        nodes
            .files
            .extend(link(&device.join("iommu_group")).map(|group| format!("/dev/vfio/{group}")));
    }
    for controller in names(&device.join("nvme")) {
        nodes.files.push(format!("/dev/{controller}"));
        for block in names(&device.join("nvme").join(&controller)) {
            if block.starts_with(&controller) {
                nodes.add_block(root, block);
            }
        }
    }
    nodes
}

impl Nodes {
    fn add_block(&mut self, root: &Path, block: String) {
        let parts = names(&root.join("sys/class/block").join(&block));
        for name in parts
            .into_iter()
            .filter(|part| part.starts_with(&block))
            .chain([block.clone()])
        {
            self.files.push(format!("/dev/{name}"));
            self.blocks.push(name);
        }
    }
}

/// `/dev/nvidiaN`, where N is the minor number that the driver gave it.
fn nvidia(root: &Path, function: Address) -> Option<String> {
    let place = root.join("proc/driver/nvidia/gpus").join(function.to_string());
    let text = fs::read_to_string(place.join("information")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Device Minor:"))?;
    let minor: u32 = line.trim().parse().ok()?;
    Some(format!("/dev/nvidia{minor}"))
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

fn link(path: &PathBuf) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_str()?.to_owned())
}
