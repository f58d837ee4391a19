//! A manager's own folder: one process at a time, and what it remembers of its database.

use crate::OpenError;
use crate::cluster::Remembered;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The cluster that this folder's manager belongs to.
const CLUSTER: &str = "cluster.json";

/// The last commit seen, told twice: what a power cut left of a write is no number. It is not flushed, so it outlives
/// the process, and after a power cut it may be an older one.
const LATEST: &str = "last-commit";

/// Commits until the last one seen is written down anew, and flushed.
const STRIDE: u64 = 1024;

/// The folder, held for as long as the value lives.
pub(crate) struct DataDir {
    path: PathBuf,
    /// The last commit that is written down, and flushed.
    noted: AtomicU64,
    latest: File,
    _lock: File,
}

impl DataDir {
    /// Makes the folder where it is not there yet, and keeps other processes away from it.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        if path.is_file() {
            return Err(OpenError::Io {
                place: path.display().to_string(),
                reason: "it is a file, and a folder is wanted".to_owned(),
            });
        }
        make(path).map_err(|e| unusable(path, &e))?;
        let lock = lock(&path.join("poolwright.lock"))?;
        let file = path.join(LATEST);
        let latest = own_file().truncate(false).open(&file);
        Ok(Self {
            path: path.to_owned(),
            noted: AtomicU64::new(0),
            latest: latest.map_err(|e| unusable(&file, &e))?,
            _lock: lock,
        })
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// What this folder's manager knows of its database; nothing before the first start.
    pub fn remembered(&self) -> Result<Option<Remembered>, OpenError> {
        let Some(mut remembered) = Self::remembered_by(&self.path)? else {
            return Ok(None);
        };
        let latest = self.latest();
        if let Some(why) = doubt(latest, remembered.revision) {
            tracing::warn!(
                file = %self.file(LATEST).display(),
                up_to = remembered.revision,
                "{why}: an older copy of the database is detected up to this commit only; after a power cut this is \
                 expected, else check that the data directory and its database belong together: poolwright diff"
            );
        }
        remembered.revision = remembered.revision.max(latest.unwrap_or_default());
        Ok(Some(remembered))
    }

    /// The flushed state of a folder that another process may hold.
    pub fn remembered_by(path: &Path) -> Result<Option<Remembered>, OpenError> {
        let path = path.join(CLUSTER);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unusable(&path, &error)),
        };
        let remembered = serde_json::from_slice(&text).map_err(|error| OpenError::Damaged {
            place: path.display().to_string(),
            reason: error.to_string(),
        })?;
        Ok(Some(remembered))
    }

    /// Writes the last commit seen down: it may lag behind after a power cut, and never runs ahead.
    pub fn saw(&self, cluster: &str, revision: u64) {
        if let Err(error) = self.write_latest(revision) {
            tracing::debug!(path = %self.path.display(), %error, "the last commit seen can't be written down");
        }
        if revision >= self.noted.load(Ordering::Relaxed) + STRIDE {
            self.note(cluster, revision);
        }
    }

    /// [`DataDir::saw`], for the last one before the end.
    pub fn note(&self, cluster: &str, revision: u64) {
        let remembered = Remembered {
            cluster: cluster.to_owned(),
            revision,
        };
        if let Err(error) = self.remember(&remembered) {
            tracing::warn!(path = %self.path.display(), %error, "the last commit seen can't be written down");
        }
    }

    /// Replaces what is remembered, as a whole.
    pub fn remember(&self, remembered: &Remembered) -> io::Result<()> {
        self.noted.store(remembered.revision, Ordering::Relaxed);
        self.write_latest(remembered.revision)?;
        let (path, new) = (self.file(CLUSTER), self.file("cluster.json.new"));
        let mut file = own_file().truncate(true).open(&new)?;
        file.write_all(&serde_json::to_vec(remembered)?)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(&self.path)?.sync_all()
    }

    fn write_latest(&self, revision: u64) -> io::Result<()> {
        self.latest
            .write_all_at(format!("{revision:020} {revision:020}\n").as_bytes(), 0)
    }

    /// `None` where there is none, or it can't be read.
    fn latest(&self) -> Option<u64> {
        let mut text = [0; 42];
        let read = self.latest.read_exact_at(&mut text, 0);
        let text = std::str::from_utf8(&text).unwrap_or_default();
        match text.trim_end().split_once(' ') {
            Some((once, again)) if read.is_ok() && once == again => once.parse().ok(),
            _ => None,
        }
    }
}

/// Why the note of the last commit is not trusted. It is written whenever `flushed` is, and before it.
fn doubt(latest: Option<u64>, flushed: u64) -> Option<&'static str> {
    match latest {
        None => Some("the note of the last commit is missing or damaged"),
        Some(latest) if latest < flushed => Some("the note of the last commit is older than its directory"),
        Some(_) => None,
    }
}

/// How a file for the manager alone is opened.
fn own_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).read(true).write(true).mode(0o600);
    options
}

/// Makes a folder, with those that it lies in, and puts their names on the disk: a flush of what a folder holds is no
/// flush of the folder's own name, and after a power cut all would be gone.
fn make(path: &Path) -> io::Result<()> {
    let new = path.ancestors().take_while(|folder| !folder.exists()).count();
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    // Its own name in any case: an earlier start may have ended between the two.
    for folder in path.ancestors().take(new.max(1)) {
        let parent = match folder.parent() {
            None => break,
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
        };
        match File::open(parent).and_then(|parent| parent.sync_all()) {
            // Somebody else's, who has seen to the name of what was there before us.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && new == 0 => {}
            flushed => flushed?,
        }
    }
    Ok(())
}

fn lock(path: &Path) -> Result<File, OpenError> {
    let mut file = own_file()
        .truncate(false)
        .open(path)
        .map_err(|e| unusable(path, &e))?;
    match file.try_lock() {
        Ok(()) => {
            // For whoever is kept away: whom to look for.
            let told = file
                .set_len(0)
                .and_then(|()| writeln!(file, "process {}", std::process::id()));
            told.map_err(|e| unusable(path, &e))?;
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Only for the message: an unreadable file still is a held lock.
            let _ = file.read_to_string(&mut holder);
            Err(OpenError::Locked {
                place: path.display().to_string(),
                holder: Some(holder.trim().to_owned())
                    .filter(|h| !h.is_empty())
                    .unwrap_or_else(|| "it left no name".to_owned()),
            })
        }
        Err(TryLockError::Error(error)) => Err(unusable(path, &error)),
    }
}

pub(crate) fn unusable(path: &Path, error: &io::Error) -> OpenError {
    OpenError::Io {
        place: path.display().to_string(),
        reason: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fault 87: the note of the last commit is lost, torn, or an older one.
    #[test]
    fn a_note_of_the_last_commit_that_is_lost_torn_or_older_is_doubted() {
        let folder = tempfile::tempdir().unwrap();
        let note = folder.path().join(LATEST);
        let first = DataDir::open(folder.path()).unwrap();
        first.note("cluster", 7);
        drop(first);
        let seen = || {
            let dir = DataDir::open(folder.path()).unwrap();
            let revision = dir.remembered().unwrap().unwrap().revision;
            (doubt(dir.latest(), 7).is_some(), revision)
        };
        let number = |number: u64| format!("{number:020} {number:020}\n");
        assert_eq!(seen(), (false, 7));
        fs::write(&note, number(9)).unwrap();
        assert_eq!(seen(), (false, 9));
        for wrong in [number(3), format!("{:020} {:020}\n", 9, 8), String::new()] {
            fs::write(&note, &wrong).unwrap();
            assert_eq!(seen(), (true, 7), "{wrong:?}");
        }
        fs::remove_file(&note).unwrap();
        assert_eq!(seen(), (true, 7));
    }
}
