//! Copies of the file: made while a manager runs, and made a data directory again.
//!
//! Invariants: a copy is one moment of the store, whole and checked before it has its name. What is there is never
//! overwritten. A store that was made from a copy says so, until somebody accepts it.

use super::checksum::{self, Checksum};
use super::open::{CLEAN, DATABASE, STOP, inspect, looking, mark, mark_restored, refused};
use crate::cluster::{CLUSTER, Remembered, new_name};
use crate::data_dir::{DataDir, unusable};
use crate::migrations::CHECKSUMS;
use crate::{Damaged, OpenError};
use rusqlite::Connection;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    pub cluster: String,
    /// The number of the last commit in it.
    pub revision: u64,
    pub bytes: u64,
    /// Whether the file has a checksum, which was right. Backups of earlier versions have none.
    pub has_checksum: bool,
    /// Damaged documents, which are copied as they are.
    pub damaged: Vec<Damaged>,
}

/// Copies the store of this data directory into a new file, be its manager running or not. Blocks on the disk.
pub fn backup(dir: &Path, file: &Path) -> Result<Copied, OpenError> {
    vacant(file)?;
    let from = dir.join(DATABASE);
    let partial = beside(file, ".partial");
    let copied = copy(&from, &partial).and_then(|copied| {
        let bytes = checksum::add(&partial).map_err(|e| unusable(&partial, &e))?;
        let copied = Copied {
            bytes,
            has_checksum: true,
            ..copied
        };
        keep(&partial, file).map_err(|e| unusable(file, &e))?;
        Ok(copied)
    });
    copied.inspect_err(|_| discard(&partial))
}

/// Makes a data directory of a copy. The directory must be empty, or not be there; `why` is what the store says of
/// itself from then on. Blocks on the disk.
pub fn restore(file: &Path, dir: &Path, why: &str) -> Result<Copied, OpenError> {
    if fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(OpenError::Occupied {
            place: dir.display().to_string(),
        });
    }
    // What can't be restored is refused before the directory is made.
    present(file)?;
    inspect(file)?;
    let has_checksum = match checksum::look(file).map_err(|e| unusable(file, &e))? {
        Checksum::Right => true,
        Checksum::None => false,
        Checksum::Wrong => {
            return Err(OpenError::Damaged {
                place: file.display().to_string(),
                reason: "its content is not what the backup wrote: the checksum is another".to_owned(),
            });
        }
    };
    let dir = DataDir::open(dir)?;
    let (path, partial) = (dir.file(DATABASE), dir.file("poolwright.db.partial"));
    let restored = copy(file, &partial).and_then(|copied| {
        let revision = mark_restored(&partial, why, 0).map_err(|e| refused(&partial, &e))?;
        let remembered = Remembered {
            cluster: copied.cluster.clone(),
            revision,
        };
        dir.remember(&remembered)
            .map_err(|e| unusable(&dir.file(""), &e))?;
        keep(&partial, &path).map_err(|e| unusable(&path, &e))?;
        Ok(Copied {
            has_checksum,
            ..copied
        })
    });
    restored.inspect_err(|_| discard(&partial))
}

/// One moment of the store in a file of its own, named and checked.
fn copy(from: &Path, to: &Path) -> Result<Copied, OpenError> {
    present(from)?;
    let found = inspect(from)?;
    // SQLite would create it readable for all.
    let made = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(to);
    made.map_err(|e| unusable(to, &e))?;
    let source = looking(from).map_err(|e| refused(from, &e))?;
    let target = to.to_string_lossy();
    source
        .execute("VACUUM INTO ?1", [target.as_ref()])
        .map_err(|e| refused(to, &e))?;
    let cluster = found.cluster.unwrap_or_else(new_name);
    let completed = complete(to, &cluster).map_err(|e| refused(to, &e))?;
    let Some((revision, damaged)) = completed else {
        return Err(OpenError::Damaged {
            place: to.display().to_string(),
            reason: "what was written does not read back".to_owned(),
        });
    };
    let file = File::open(to).and_then(|file| file.sync_all().map(|()| file));
    let bytes = file
        .and_then(|file| file.metadata())
        .map_err(|e| unusable(to, &e))?
        .len();
    Ok(Copied {
        cluster,
        revision,
        bytes,
        has_checksum: false,
        damaged,
    })
}

/// Marks a copy as closed well, and reads all of it: the number of its last commit and its damaged documents; `None` where
/// the file is damaged.
fn complete(path: &Path, cluster: &str) -> rusqlite::Result<Option<(u64, Vec<Damaged>)>> {
    let connection = Connection::open(path)?;
    mark(&connection, STOP, CLEAN)?;
    mark(&connection, CLUSTER, cluster)?;
    let verdict: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    let revision = super::sql::found_revision(&connection)?;
    let version: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let damaged = match version < CHECKSUMS {
        // A backup of an earlier version: its documents have no checksums yet.
        true => Vec::new(),
        false => super::sql::verify(&connection)?.damaged,
    };
    connection.close().map_err(|(_, error)| error)?;
    Ok((verdict == "ok").then_some((revision, damaged)))
}

/// Gives the copy its name, on the disk.
fn keep(partial: &Path, path: &Path) -> io::Result<()> {
    File::open(partial)?.sync_all()?;
    // Fails where somebody else was faster.
    fs::hard_link(partial, path)?;
    fs::remove_file(partial)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn discard(partial: &Path) {
    if let Err(error) = fs::remove_file(partial)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %partial.display(), %error, "a copy that came to nothing can't be removed");
    }
}

pub(super) fn present(path: &Path) -> Result<(), OpenError> {
    match path.metadata() {
        Ok(metadata) if metadata.len() > 0 => Ok(()),
        Ok(_) => Err(OpenError::Damaged {
            place: path.display().to_string(),
            reason: "it is empty".to_owned(),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(OpenError::Missing {
            place: path.display().to_string(),
            reason: "there is no such file".to_owned(),
        }),
        Err(error) => Err(unusable(path, &error)),
    }
}

fn vacant(path: &Path) -> Result<(), OpenError> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(unusable(path, &error)),
        Ok(_) => Err(OpenError::Occupied {
            place: path.display().to_string(),
        }),
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
