//! A disk that loses what was not flushed.
//!
//! What a file system promises, and no more: the bytes of a file are there after a power cut once a flush of that
//! file, begun after they were written, has ended; a name in a folder once a flush of that folder has. Everything
//! else may be there or not, whatever came first, and a write may be there in some of its sectors. (Most file systems
//! promise more; whoever relies on less is right on all of them.)

use super::log::Record;
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// What a disk writes as a whole.
const SECTOR: usize = 512;

/// Which of what was not flushed the disk has after the cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survives {
    Nothing,
    /// All up to some moment, the last write torn: a disk that keeps the order.
    AllBefore,
    /// Some of it, in any order, sectors of it.
    Anything,
    /// All of it.
    All,
}

impl Survives {
    /// One of them by chance; most often the worst.
    pub fn any(rng: &mut Rng) -> Self {
        match rng.u32(0..10) {
            0..3 => Self::Nothing,
            3..5 => Self::AllBefore,
            5..9 => Self::Anything,
            _ => Self::All,
        }
    }
}

/// Flushes that the disk only pretends to do: bugs to be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Lie {
    /// Of files.
    Files,
    /// Of folders.
    Folders,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Node {
    File(usize),
    Folder(usize),
}

#[derive(Debug)]
enum Change<'a> {
    Write { at: usize, bytes: &'a [u8] },
    Truncate(usize),
    Name(&'a str, Node),
    NoName(&'a str),
    Move { from: &'a str, to: &'a str, node: Node },
}

/// What was done to one file or folder, and how much of it is flushed.
#[derive(Default)]
struct History<'a> {
    /// With the number of the record.
    changes: Vec<(usize, Change<'a>)>,
    flushed: usize,
}

/// Everything up to the cut.
pub struct Disk<'a> {
    files: Vec<History<'a>>,
    folders: Vec<History<'a>>,
    /// What is found where, by whoever looks while the power is on.
    names: BTreeMap<&'a str, Node>,
    inodes: BTreeMap<u64, Node>,
    under_way: BTreeMap<u64, (Node, usize)>,
    lie: Option<Lie>,
}

impl<'a> Disk<'a> {
    /// The first `records`, and then the cut.
    pub fn after(records: &'a [Record], lie: Option<Lie>) -> io::Result<Self> {
        let mut disk = Self {
            files: Vec::new(),
            folders: Vec::new(),
            names: BTreeMap::new(),
            inodes: BTreeMap::new(),
            under_way: BTreeMap::new(),
            lie,
        };
        for (number, record) in records.iter().enumerate() {
            disk.take(number, record)?;
        }
        Ok(disk)
    }

    fn take(&mut self, number: usize, record: &'a Record) -> io::Result<()> {
        match record {
            Record::Create {
                path,
                inode,
                is_folder,
            } => {
                // The root, which each process tells again.
                if *is_folder && self.names.contains_key(path.as_str()) {
                    return Ok(());
                }
                let (histories, node): (&mut Vec<_>, fn(usize) -> Node) = match is_folder {
                    true => (&mut self.folders, Node::Folder),
                    false => (&mut self.files, Node::File),
                };
                let node = node(histories.len());
                histories.push(History::default());
                self.inodes.insert(*inode, node);
                self.name(number, path, node)?;
            }
            Record::Write { inode, at, bytes } => {
                let (at, bytes) = (*at, bytes.as_slice());
                self.change(number, self.at(*inode)?, Change::Write { at, bytes });
            }
            Record::Truncate { inode, length } => {
                self.change(number, self.at(*inode)?, Change::Truncate(*length));
            }
            Record::SyncBegins { inode, number } => {
                let node = self.at(*inode)?;
                let so_far = self.history(node).changes.len();
                self.under_way.insert(*number, (node, so_far));
            }
            Record::SyncEnds { number } => {
                let (node, so_far) = self
                    .under_way
                    .remove(number)
                    .ok_or_else(|| unknown("a flush", number))?;
                let pretended = match node {
                    Node::File(_) => self.lie == Some(Lie::Files),
                    Node::Folder(_) => self.lie == Some(Lie::Folders),
                };
                if !pretended {
                    let history = self.history(node);
                    history.flushed = history.flushed.max(so_far);
                }
            }
            Record::Rename { from, to } => {
                let node = self
                    .names
                    .remove(from.as_str())
                    .ok_or_else(|| unknown("a file", from))?;
                self.names.insert(to, node);
                let (folder, from) = self.folder_of(from)?;
                let (other, to) = self.folder_of(to)?;
                if folder != other {
                    return Err(unknown("a move to another folder", to));
                }
                self.change(number, folder, Change::Move { from, to, node });
            }
            Record::Unlink { path } => {
                self.names.remove(path.as_str());
                let (folder, name) = self.folder_of(path)?;
                self.change(number, folder, Change::NoName(name));
            }
            Record::Link { from, to } => {
                let node = *self
                    .names
                    .get(from.as_str())
                    .ok_or_else(|| unknown("a file", from))?;
                self.name(number, to, node)?;
            }
        }
        Ok(())
    }

    fn name(&mut self, number: usize, path: &'a str, node: Node) -> io::Result<()> {
        self.names.insert(path, node);
        if path.is_empty() {
            return Ok(());
        }
        let (folder, name) = self.folder_of(path)?;
        self.change(number, folder, Change::Name(name, node));
        Ok(())
    }

    /// The folder that a path lies in, and its name there.
    fn folder_of<'p>(&self, path: &'p str) -> io::Result<(Node, &'p str)> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let node = self
            .names
            .get(folder)
            .ok_or_else(|| unknown("a folder", folder))?;
        Ok((*node, name))
    }

    fn at(&self, inode: u64) -> io::Result<Node> {
        self.inodes
            .get(&inode)
            .copied()
            .ok_or_else(|| unknown("a file", inode))
    }

    fn history(&mut self, node: Node) -> &mut History<'a> {
        match node {
            Node::File(at) => &mut self.files[at],
            Node::Folder(at) => &mut self.folders[at],
        }
    }

    fn change(&mut self, number: usize, node: Node, change: Change<'a>) {
        self.history(node).changes.push((number, change));
    }

    /// What a file holds while the power is on.
    pub fn now(&self, path: &str) -> Option<Vec<u8>> {
        match self.names.get(path)? {
            Node::File(at) => Some(content(
                self.files[*at].changes.iter().map(|(_, change)| (change, None)),
            )),
            Node::Folder(_) => None,
        }
    }

    /// All files that have a name while the power is on.
    pub fn paths(&self) -> BTreeSet<&'a str> {
        let files = self
            .names
            .iter()
            .filter(|(_, node)| matches!(node, Node::File(_)));
        files.map(|(path, _)| *path).collect()
    }

    /// Writes what the disk has after the cut into a folder, which is made.
    pub fn cut(&self, survives: Survives, rng: &mut Rng, into: &Path) -> io::Result<()> {
        let histories = || self.files.iter().chain(&self.folders);
        let pending = histories().flat_map(|history| &history.changes[history.flushed..]);
        let mut pending: Vec<usize> = pending.map(|(number, _)| *number).collect();
        pending.sort_unstable();
        let moment = match pending.len() {
            0 => 0,
            many => pending[rng.usize(0..many)],
        };
        let mut luck = Luck {
            survives,
            moment,
            // Also by file: often one is as it was, and another is not.
            share: [0.1, 0.5, 0.9][rng.usize(0..3)],
            rng,
        };
        self.write_folder(0, &mut luck, into)
    }

    fn write_folder(&self, folder: usize, luck: &mut Luck<'_>, into: &Path) -> io::Result<()> {
        std::fs::create_dir_all(into)?;
        let history = &self.folders[folder];
        let mut names = BTreeMap::new();
        for (at, (number, change)) in history.changes.iter().enumerate() {
            if at >= history.flushed && !luck.keeps(*number) {
                continue;
            }
            match change {
                Change::Name(name, node) => {
                    names.insert(*name, *node);
                }
                Change::NoName(name) => {
                    names.remove(name);
                }
                Change::Move { from, to, node } => {
                    names.remove(from);
                    names.insert(to, *node);
                }
                Change::Write { .. } | Change::Truncate(_) => {}
            }
        }
        for (name, node) in names {
            match node {
                Node::File(at) => std::fs::write(into.join(name), self.left_of(at, luck))?,
                Node::Folder(at) => self.write_folder(at, luck, &into.join(name))?,
            }
        }
        Ok(())
    }

    fn left_of(&self, file: usize, luck: &mut Luck<'_>) -> Vec<u8> {
        let history = &self.files[file];
        let mut left = Vec::new();
        for (at, (number, change)) in history.changes.iter().enumerate() {
            if at < history.flushed {
                left.push((change, None));
            } else if let Some(sectors) = luck.leaves(*number, change) {
                left.push((change, sectors));
            }
        }
        content(left.into_iter())
    }
}

/// What is left by chance.
struct Luck<'r> {
    survives: Survives,
    moment: usize,
    share: f64,
    rng: &'r mut Rng,
}

/// Which sectors of a write are left; `None` for all of them.
type Sectors = Option<Vec<bool>>;

impl Luck<'_> {
    fn keeps(&mut self, number: usize) -> bool {
        match self.survives {
            Survives::Nothing => false,
            Survives::All => true,
            Survives::AllBefore => number < self.moment,
            Survives::Anything => self.rng.f64() < self.share,
        }
    }

    fn leaves(&mut self, number: usize, change: &Change<'_>) -> Option<Sectors> {
        let torn = match self.survives {
            Survives::AllBefore => number == self.moment,
            Survives::Anything => self.rng.bool(),
            Survives::Nothing | Survives::All => false,
        };
        if torn && let Change::Write { at, bytes } = change {
            let sectors = (at + bytes.len()).div_ceil(SECTOR) - at / SECTOR;
            return Some(Some((0..sectors).map(|_| self.rng.bool()).collect()));
        }
        self.keeps(number).then_some(None)
    }
}

/// What changes to a file come to. What was never written between what was is zeros.
fn content<'c, 'a: 'c>(changes: impl Iterator<Item = (&'c Change<'a>, Sectors)>) -> Vec<u8> {
    let mut content = Vec::new();
    for (change, sectors) in changes {
        match (change, sectors) {
            (Change::Truncate(length), _) => content.resize(*length, 0),
            (Change::Write { at, bytes }, None) => put(&mut content, *at, bytes),
            (Change::Write { at, bytes }, Some(left)) => {
                // The first sector may begin before the write.
                let (mut at, mut rest) = (*at, *bytes);
                for is_left in left {
                    let (sector, after) = rest.split_at(rest.len().min(SECTOR - at % SECTOR));
                    if is_left {
                        put(&mut content, at, sector);
                    }
                    at += sector.len();
                    rest = after;
                }
            }
            (Change::Name(..) | Change::NoName(_) | Change::Move { .. }, _) => {}
        }
    }
    content
}

fn put(content: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[at..end].copy_from_slice(bytes);
}

fn unknown(what: &str, which: impl std::fmt::Display) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the log speaks of {what} that it did not tell of: {which}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(path: &str, inode: u64) -> Record {
        Record::Create {
            path: path.to_owned(),
            inode,
            is_folder: path.is_empty(),
        }
    }

    fn write(at: usize, byte: u8, length: usize) -> Record {
        Record::Write {
            inode: 2,
            at,
            bytes: vec![byte; length],
        }
    }

    fn flush(inode: u64, number: u64) -> [Record; 2] {
        [Record::SyncBegins { inode, number }, Record::SyncEnds { number }]
    }

    /// What the one file has after the cut; `None` where it has no name.
    fn left(records: &[Record], survives: Survives, lie: Option<Lie>) -> Option<Vec<u8>> {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::after(records, lie).unwrap();
        disk.cut(survives, &mut Rng::with_seed(7), folder.path()).unwrap();
        std::fs::read(folder.path().join("a")).ok()
    }

    #[test]
    fn what_was_flushed_is_left_and_nothing_else_must_be() {
        let mut records = vec![create("", 1), create("a", 2), write(0, b'1', 4)];
        assert_eq!(left(&records, Survives::Nothing, None), None);
        records.extend(flush(2, 1));
        // Its bytes are there, and nobody can find them.
        assert_eq!(left(&records, Survives::Nothing, None), None);
        records.extend(flush(1, 2));
        records.push(write(2, b'2', 4));
        assert_eq!(left(&records, Survives::Nothing, None).unwrap(), b"1111");
        assert_eq!(left(&records, Survives::All, None).unwrap(), b"112222");
        records.push(Record::SyncBegins { inode: 2, number: 3 });
        assert_eq!(left(&records, Survives::Nothing, None).unwrap(), b"1111");
        // It comes too late to be part of the flush.
        records.push(write(0, b'3', 1));
        records.push(Record::SyncEnds { number: 3 });
        assert_eq!(left(&records, Survives::Nothing, None).unwrap(), b"112222");
    }

    #[test]
    fn a_flush_that_is_only_pretended_leaves_nothing() {
        let mut records = vec![create("", 1), create("a", 2), write(0, b'1', 4)];
        records.extend(flush(2, 1));
        records.extend(flush(1, 2));
        assert_eq!(left(&records, Survives::Nothing, Some(Lie::Files)).unwrap(), b"");
        assert_eq!(left(&records, Survives::Nothing, Some(Lie::Folders)), None);
    }

    #[test]
    fn a_name_moves_as_a_whole_once_its_folder_is_flushed() {
        let mut records = vec![create("", 1), create("a", 2), write(0, b'1', 2)];
        records.extend(flush(2, 1));
        records.extend(flush(1, 2));
        records.push(create("new", 3));
        let bytes = b"22".to_vec();
        records.push(Record::Write {
            inode: 3,
            at: 0,
            bytes,
        });
        records.extend(flush(3, 3));
        let (from, to) = ("new".to_owned(), "a".to_owned());
        records.push(Record::Rename { from, to });
        assert_eq!(left(&records, Survives::Nothing, None).unwrap(), b"11");
        records.extend(flush(1, 4));
        assert_eq!(left(&records, Survives::Nothing, None).unwrap(), b"22");
    }

    #[test]
    fn a_write_is_torn_at_sectors() {
        let mut records = vec![create("", 1), create("a", 2), write(0, b'1', 2048)];
        records.extend(flush(2, 1));
        records.extend(flush(1, 2));
        records.push(write(100, b'2', 1800));
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::after(&records, None).unwrap();
        let mut torn = 0;
        for seed in 0..50 {
            let into = folder.path().join(seed.to_string());
            disk.cut(Survives::Anything, &mut Rng::with_seed(seed), &into)
                .unwrap();
            let left = std::fs::read(into.join("a")).unwrap();
            assert_eq!((left.len(), left[99], left[1900]), (2048, b'1', b'1'));
            assert!(left[512..1024].iter().all(|byte| *byte == left[512]));
            torn += usize::from(left[100..1900].contains(&b'1') && left.contains(&b'2'));
        }
        assert!(torn > 5, "{torn} of 50 are torn");
    }
}
