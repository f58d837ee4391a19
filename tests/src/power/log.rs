//! What a process did to its files, as `recorder.c` wrote it down.

use std::io;
use std::path::Path;

/// One call, in the order in which they came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A new file, or folder, under a name.
    Create {
        path: String,
        inode: u64,
        is_folder: bool,
    },
    Write {
        inode: u64,
        at: usize,
        bytes: Vec<u8>,
    },
    Truncate {
        inode: u64,
        length: usize,
    },
    /// What came before it is on the disk once the flush of this number has ended.
    SyncBegins {
        inode: u64,
        number: u64,
    },
    SyncEnds {
        number: u64,
    },
    Rename {
        from: String,
        to: String,
    },
    Unlink {
        path: String,
    },
    Link {
        from: String,
        to: String,
    },
}

const HEAD: usize = 24;

/// Reads a log. One that ends within a record has been cut off.
pub fn read(file: &Path) -> io::Result<Vec<Record>> {
    let bytes = std::fs::read(file)?;
    let (mut rest, mut records, mut process) = (bytes.as_slice(), Vec::new(), 0);
    while !rest.is_empty() {
        let (head, after) = rest
            .split_at_checked(HEAD)
            .ok_or_else(|| broken("a record's head"))?;
        let number = |at: usize, size: usize| {
            let bytes = head[at..at + size].iter().rev();
            bytes.fold(0u64, |n, byte| n << 8 | u64::from(*byte))
        };
        let length = usize::try_from(number(4, 4)).map_err(io::Error::other)?;
        let (payload, after) = after
            .split_at_checked(length)
            .ok_or_else(|| broken("a record's end"))?;
        rest = after;
        let (kind, inode, extra) = (number(0, 4), number(8, 8), number(16, 8));
        let text = || String::from_utf8(payload.to_vec()).map_err(io::Error::other);
        let pair = || {
            let both = text()?;
            let (from, to) = both.split_once('\0').ok_or_else(|| broken("a pair of names"))?;
            Ok::<_, io::Error>((from.to_owned(), to.to_owned()))
        };
        let place = usize::try_from(extra).map_err(io::Error::other)?;
        // Each process counts its flushes from the first; it begins by telling the root.
        let flush = |process: u64| process << 48 | extra;
        records.push(match kind {
            1 => Record::Create {
                path: text()?,
                inode,
                is_folder: false,
            },
            2 => Record::Write {
                inode,
                at: place,
                bytes: payload.to_vec(),
            },
            3 => Record::Truncate { inode, length: place },
            4 => Record::SyncBegins {
                inode,
                number: flush(process),
            },
            5 => Record::SyncEnds {
                number: flush(process),
            },
            6 => {
                let (from, to) = pair()?;
                Record::Rename { from, to }
            }
            7 => Record::Unlink { path: text()? },
            8 => {
                let (from, to) = pair()?;
                Record::Link { from, to }
            }
            9 => {
                let path = text()?;
                process += u64::from(path.is_empty());
                Record::Create {
                    path,
                    inode,
                    is_folder: true,
                }
            }
            other => return Err(broken(&format!("a record of kind {other}"))),
        });
    }
    Ok(records)
}

fn broken(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{what} in the log can't be read"),
    )
}
