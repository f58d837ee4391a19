//! Who uses a function: processes with one of its files open or mapped, what is mounted from it, what is built on it.
//!
//! The kernel refuses no detach of what is in use: a mounted NVMe goes, and its writer gets errors. So it has to be asked
//! before. The answer is only as whole as what may be read: whatever could not be looked into is counted, and nobody may
//! call a function free while it is not zero.

use crate::nodes::{self, Nodes};
use poolwright_pcie::{Address, NvmlGpu};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

/// More files and mappings than the processes of a host have: where there are more, not all were looked at.
const MOST: usize = 4_000_000;

/// How somebody holds a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// It computes on a GPU, as the driver says.
    Computing,
    Open,
    Mapped,
    Mounted,
    Swap,
    /// Another block device is built on it: LVM, RAID, dm-crypt.
    BuiltOn,
}

/// Somebody who uses a function.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Holder {
    pub how: How,
    /// The file that is held, such as `/dev/nvidia0`.
    pub what: String,
    /// Of a process.
    pub pid: Option<u32>,
    /// Its command, or where it is mounted, or what is built.
    pub by: String,
}

/// Who uses a function, and how much of the answer is missing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Holders {
    pub holders: Vec<Holder>,
    /// Processes that could not be looked into: only root sees those of others.
    pub unseen: usize,
}

impl Holders {
    /// Nobody holds it, and everybody was looked at.
    pub fn is_free(&self) -> bool {
        self.holders.is_empty() && self.unseen == 0
    }

    /// A driver that knows the GPU and not its processes counts as one that could not be looked into.
    fn computing(&mut self, root: &Path, gpu: Option<&NvmlGpu>) {
        let Some(gpu) = gpu else { return };
        let Some(processes) = &gpu.processes else {
            self.unseen += 1;
            return;
        };
        let what = gpu.uuid.clone().unwrap_or_default();
        self.holders.extend(processes.iter().map(|process| Holder {
            how: How::Computing,
            what: what.clone(),
            pid: Some(process.pid),
            by: command(&root.join("proc").join(process.pid.to_string())),
        }));
    }
}

/// Looks at all processes and mounts of the host under a root. `gpu` is what the driver says, where it knows the function.
pub fn holders(root: &Path, function: Address, gpu: Option<&NvmlGpu>) -> Holders {
    let nodes = nodes::of(root, function);
    let mut found = Holders::default();
    found.computing(root, gpu);
    let mut left = MOST;
    for (pid, place) in processes(root) {
        match held_by(&place, &nodes, &mut left) {
            Ok(held) if held.is_empty() => {}
            Ok(held) => {
                let by = command(&place);
                let holder = |(how, what)| Holder {
                    how,
                    what,
                    pid: Some(pid),
                    by: by.clone(),
                };
                found.holders.extend(held.into_iter().map(holder));
            }
            // It has ended meanwhile.
            Err(error) if is_gone(&error) => {}
            Err(_) => found.unseen += 1,
        }
    }
    found.holders.extend(mounts(root, &nodes));
    found.holders.extend(swaps(root, &nodes));
    found.holders.extend(built_on(root, &nodes));
    found.holders.sort();
    found
}

fn is_gone(error: &std::io::Error) -> bool {
    // ESRCH: what procfs answers of a process that is ending.
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(3)
}

fn processes(root: &Path) -> impl Iterator<Item = (u32, std::path::PathBuf)> {
    let entries = root.join("proc").read_dir().into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
}

/// The files of the function that a process has open or mapped, each once. One that is mapped may be open no more.
fn held_by(process: &Path, nodes: &Nodes, left: &mut usize) -> std::io::Result<BTreeSet<(How, String)>> {
    let mut held = BTreeSet::new();
    for entry in process.join("fd").read_dir()? {
        *left = left.checked_sub(1).ok_or(ErrorKind::OutOfMemory)?;
        // A file that was closed meanwhile has no link any more.
        let Ok(target) = fs::read_link(entry?.path()) else {
            continue;
        };
        if let Some(file) = nodes.files.iter().find(|file| target == Path::new(file)) {
            held.insert((How::Open, file.clone()));
        }
    }
    for line in BufReader::new(File::open(process.join("maps"))?).split(b'\n') {
        *left = left.checked_sub(1).ok_or(ErrorKind::OutOfMemory)?;
        let line = line?;
        if let Some(file) = nodes.files.iter().find(|file| line.ends_with(file.as_bytes())) {
            held.insert((How::Mapped, file.clone()));
        }
    }
    Ok(held)
}

/// What a process was started as, at most 200 characters of it; its name where it has no arguments.
fn command(process: &Path) -> String {
    let read = |name: &str| {
        let mut bytes = Vec::new();
        let file = File::open(process.join(name)).ok()?;
        file.take(800).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes).replace('\0', " ");
        let text: String = text
            .trim()
            .chars()
            .map(|letter| if letter.is_control() { ' ' } else { letter })
            .take(200)
            .collect();
        (!text.is_empty()).then_some(text)
    };
    read("cmdline")
        .or_else(|| read("comm"))
        .unwrap_or_else(|| "?".to_owned())
}

/// What is mounted, as the first process sees it.
fn mounts(root: &Path, nodes: &Nodes) -> Vec<Holder> {
    let text = fs::read_to_string(root.join("proc/1/mounts"))
        .or_else(|_| fs::read_to_string(root.join("proc/mounts")));
    let of = |line: &str| {
        let (device, rest) = line.split_once(' ')?;
        let at = rest.split(' ').next()?;
        held_block(nodes, device, How::Mounted, at)
    };
    text.unwrap_or_default().lines().filter_map(of).collect()
}

fn swaps(root: &Path, nodes: &Nodes) -> Vec<Holder> {
    let text = fs::read_to_string(root.join("proc/swaps")).unwrap_or_default();
    let of = |line: &str| held_block(nodes, line.split_ascii_whitespace().next()?, How::Swap, "swap");
    text.lines().filter_map(of).collect()
}

fn held_block(nodes: &Nodes, device: &str, how: How, by: &str) -> Option<Holder> {
    let block = device.strip_prefix("/dev/")?;
    let is_ours = nodes.blocks.iter().any(|name| name == block);
    is_ours.then(|| Holder {
        how,
        what: device.to_owned(),
        pid: None,
        by: by.to_owned(),
    })
}

fn built_on(root: &Path, nodes: &Nodes) -> Vec<Holder> {
    let mut found = Vec::new();
    for block in &nodes.blocks {
        let folder = root.join("sys/class/block").join(block).join("holders");
        for entry in folder.read_dir().into_iter().flatten().flatten() {
            let by = entry.file_name().to_string_lossy().into_owned();
            found.push(Holder {
                how: How::BuiltOn,
                what: format!("/dev/{block}"),
                pid: None,
                by,
            });
        }
    }
    found
}
