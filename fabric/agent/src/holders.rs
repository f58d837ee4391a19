//! The holders of a function: processes with one of its files open or mapped, mounts, and block devices built on it.
//!
//! The kernel refuses no detach of what is in use: a mounted NVMe goes, and its writer gets errors. So it has to be asked
//! before. The answer is complete only if all processes can be read: each unreadable one is named, and a function is not
//! free while one of them may hold it.

use crate::nodes::{self, Node, Nodes, Number, Opened};
use poolwright_pcie::{Address, NvmlGpu};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

/// More files and mappings than the processes of a host have: where there are more, not all were looked at.
const MOST: usize = 4_000_000;
/// At most this many unreadable processes are named.
const MOST_NAMED: usize = 10;
/// The types of this many mapped files are cached: bounds the memory of a search.
const MOST_CACHED: usize = 65_536;
/// Runs as long as the host does.
const INIT: u32 = 1;

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
    /// The held file, such as `/dev/nvidia0`, and the name by which the process holds it if that differs.
    pub what: String,
    /// Of a process.
    pub pid: Option<u32>,
    /// Its command, or where it is mounted, or what is built.
    pub by: String,
}

/// A process, or the driver's list of processes, that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// Of a process; `None` for the list of the driver.
    pub pid: Option<u32>,
    /// Its command.
    pub by: String,
    pub why: String,
    /// `false`: the driver lists the processes that use the GPU, and this one is not among them.
    pub may_hold: bool,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by, why, .. } = self;
        match self.pid {
            Some(pid) => write!(f, "process {pid} ({by}): {why}"),
            None => write!(f, "{by}: {why}"),
        }
    }
}

/// The holders of a function, and the processes that could not be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Holders {
    pub holders: Vec<Holder>,
    /// How many may hold it and could not be read: only root reads the processes of others.
    pub unseen: usize,
    /// The first ten of them, and an unreadable init that the driver's list clears.
    pub unreadable: Vec<Unreadable>,
}

impl Holders {
    /// Nothing holds it, and everything that may hold it was read.
    pub fn is_free(&self) -> bool {
        self.holders.is_empty() && self.unseen == 0
    }

    fn add_unreadable(&mut self, unreadable: Unreadable) {
        self.unseen += usize::from(unreadable.may_hold);
        if self.unreadable.len() < MOST_NAMED {
            self.unreadable.push(unreadable);
        }
    }

    /// A GPU whose driver does not list its processes is not free.
    fn computing(&mut self, root: &Path, gpu: Option<&NvmlGpu>) {
        let Some(gpu) = gpu else { return };
        let what = gpu.uuid.clone().unwrap_or_default();
        let Some(processes) = &gpu.processes else {
            return self.add_unreadable(Unreadable {
                pid: None,
                by: "NVML".to_owned(),
                why: format!("does not list the processes that use {what}"),
                may_hold: true,
            });
        };
        self.holders.extend(processes.iter().map(|process| Holder {
            how: How::Computing,
            what: what.clone(),
            pid: Some(process.pid),
            by: command(&root.join("proc").join(process.pid.to_string())),
        }));
    }
}

/// Searches all processes and mounts of the host under a root for the functions of one device. `gpu` is the driver's record
/// of it.
pub fn holders(root: &Path, functions: &[Address], gpu: Option<&NvmlGpu>) -> Holders {
    let nodes = nodes::of(root, functions);
    let mut found = Holders::default();
    found.computing(root, gpu);
    for file in &nodes.unread {
        found.add_unreadable(Unreadable {
            pid: None,
            by: "NVIDIA driver".to_owned(),
            why: format!("{file} does not show the GPU's device node"),
            may_hold: true,
        });
    }
    let mut search = Search {
        nodes: &nodes,
        left: MOST,
        mapped: HashMap::new(),
    };
    let mut init_is_listed = false;
    for (pid, place) in processes(root) {
        init_is_listed |= pid == INIT;
        match search.held_by(&place) {
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
            Err(error) if pid != INIT && is_gone(&error) => {}
            Err(error) => found.add_unreadable(Unreadable {
                pid: Some(pid),
                by: command(&place),
                why: error.to_string(),
                may_hold: !is_cleared(pid, gpu),
            }),
        }
    }
    if !init_is_listed {
        found.add_unreadable(Unreadable {
            pid: Some(INIT),
            by: "?".to_owned(),
            why: "not listed in /proc: procfs is missing, or hides processes (hidepid)".to_owned(),
            may_hold: true,
        });
    }
    found.holders.extend(mounts(root, &nodes));
    found.holders.extend(swaps(root, &nodes));
    found.holders.extend(built_on(root, &nodes));
    found.holders.sort();
    found
}

/// In a sandbox init has more rights than the agent, and so can be read at no release. The driver's list is trusted for init
/// alone: another process may have the GPU open without computing on it.
fn is_cleared(pid: u32, gpu: Option<&NvmlGpu>) -> bool {
    let listed = gpu.and_then(|gpu| gpu.processes.as_ref());
    pid == INIT && listed.is_some_and(|listed| listed.iter().all(|process| process.pid != INIT))
}

fn is_gone(error: &io::Error) -> bool {
    // ESRCH: what procfs answers of a process that is ending.
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(3)
}

fn processes(root: &Path) -> impl Iterator<Item = (u32, std::path::PathBuf)> {
    let entries = root.join("proc").read_dir().into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
}

/// A search of the processes for a device's nodes.
struct Search<'a> {
    nodes: &'a Nodes,
    /// Files and mappings that may still be read.
    left: usize,
    /// The types of mapped files, by file system and inode: most are mapped by many processes.
    mapped: HashMap<(String, u64), Opened>,
}

impl Search<'_> {
    /// The nodes that a process has open or mapped, each once. A mapped one may have been closed.
    fn held_by(&mut self, process: &Path) -> io::Result<BTreeSet<(How, String)>> {
        let mut held = BTreeSet::new();
        for entry in process.join("fd").read_dir()? {
            self.count()?;
            let link = entry?.path();
            // A file that was closed meanwhile has no link any more; pipes and sockets have no path.
            let Some(target) = fs::read_link(&link).ok().filter(|target| target.is_absolute()) else {
                continue;
            };
            let name = target.to_string_lossy();
            if let Some(node) = self.nodes.find(Opened::behind(&link), &name) {
                held.insert((How::Open, held_as(node, &name)));
            }
        }
        for line in BufReader::new(File::open(process.join("maps"))?).split(b'\n') {
            self.count()?;
            let line = line?;
            let Some(mapping) = Mapping::read(&String::from_utf8_lossy(&line)) else {
                continue;
            };
            let opened = self.behind(process, &mapping);
            if let Some(node) = self.nodes.find(opened, &mapping.name) {
                held.insert((How::Mapped, held_as(node, &mapping.name)));
            }
        }
        Ok(held)
    }

    fn count(&mut self) -> io::Result<()> {
        let left = self.left.checked_sub(1);
        self.left = left.ok_or_else(|| io::Error::other(format!("more than {MOST} files and mappings")))?;
        Ok(())
    }

    fn behind(&mut self, process: &Path, mapping: &Mapping) -> Opened {
        if let Some(known) = self.mapped.get(&mapping.inode) {
            return *known;
        }
        let opened = Opened::behind(&process.join("map_files").join(&mapping.range));
        if opened != Opened::Unknown && self.mapped.len() < MOST_CACHED {
            self.mapped.insert(mapping.inode.clone(), opened);
        }
        opened
    }
}

/// A line of `maps` that maps a file.
struct Mapping {
    /// As `map_files` names it: without the zeros with which `maps` pads low addresses.
    range: String,
    /// Its file system, and its number there.
    inode: (String, u64),
    name: String,
}

impl Mapping {
    fn read(line: &str) -> Option<Self> {
        let (before, name) = line.split_once('/')?;
        let mut words = before.split_ascii_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let [from, to] = [from, to].map(|address| address.trim_start_matches('0'));
        let device = words.nth(2)?.to_owned();
        let inode = words.next()?.parse().ok()?;
        Some(Self {
            range: format!("{from}-{to}"),
            inode: (device, inode),
            name: format!("/{name}"),
        })
    }
}

/// A node, and the name by which it is held if that differs.
fn held_as(node: &Node, name: &str) -> String {
    match node.path == name {
        true => name.to_owned(),
        false => format!("{} as {}", node.path, one_line(name)),
    }
}

/// What a process was started as, at most 200 characters of it; its name where it has no arguments.
fn command(process: &Path) -> String {
    let read = |name: &str| {
        let mut bytes = Vec::new();
        let file = File::open(process.join(name)).ok()?;
        file.take(800).read_to_end(&mut bytes).ok()?;
        let text = one_line(&String::from_utf8_lossy(&bytes));
        (!text.is_empty()).then_some(text)
    };
    read("cmdline")
        .or_else(|| read("comm"))
        .unwrap_or_else(|| "?".to_owned())
}

/// At most 200 characters, without control characters, which could move a terminal's cursor.
fn one_line(text: &str) -> String {
    let shown = text
        .chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter });
    let shown: String = shown.collect();
    shown.trim().chars().take(200).collect()
}

/// The mounts in init's namespace. They match by device number; btrfs has numbers of its own, and matches by name.
fn mounts(root: &Path, nodes: &Nodes) -> Vec<Holder> {
    let read = |process: &str| fs::read_to_string(root.join("proc").join(process).join("mountinfo"));
    let text = read("1").or_else(|_| read("self"));
    let of = |line: &str| {
        let (mount, source) = line.split_once(" - ")?;
        let mut words = mount.split(' ').skip(2);
        let number = Number::parse(words.next()?, true);
        let at = words.nth(1)?;
        held_block(nodes, number, source.split(' ').nth(1)?, How::Mounted, at)
    };
    text.unwrap_or_default().lines().filter_map(of).collect()
}

fn swaps(root: &Path, nodes: &Nodes) -> Vec<Holder> {
    let text = fs::read_to_string(root.join("proc/swaps")).unwrap_or_default();
    let of = |line: &str| {
        held_block(
            nodes,
            None,
            line.split_ascii_whitespace().next()?,
            How::Swap,
            "swap",
        )
    };
    text.lines().filter_map(of).collect()
}

fn held_block(nodes: &Nodes, number: Option<Number>, path: &str, how: How, by: &str) -> Option<Holder> {
    let node = nodes.find_block(number, path)?;
    Some(Holder {
        how,
        what: held_as(node, path),
        pid: None,
        by: by.to_owned(),
    })
}

fn built_on(root: &Path, nodes: &Nodes) -> Vec<Holder> {
    let mut found = Vec::new();
    for block in &nodes.blocks {
        let name = block.path.trim_start_matches("/dev/");
        let folder = root.join("sys/class/block").join(name).join("holders");
        for entry in folder.read_dir().into_iter().flatten().flatten() {
            let by = entry.file_name().to_string_lossy().into_owned();
            found.push(Holder {
                how: How::BuiltOn,
                what: block.path.clone(),
                pid: None,
                by,
            });
        }
    }
    found
}
