//! A manager's own folder: one process at a time, and what it remembers of its database.

use crate::OpenError;
use crate::cluster::Remembered;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The cluster that this folder's manager belongs to.
const CLUSTER: &str = "cluster.json";

/// Commits until the last one seen is written down anew.
const STRIDE: u64 = 1024;

/// The folder, held for as long as the value lives.
pub(crate) struct DataDir {
    path: PathBuf,
    /// The last commit that is written down.
    noted: AtomicU64,
    _lock: File,
}

impl DataDir {
    /// Makes the folder where it is not there yet, and keeps other processes away from it.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        make(path).map_err(|e| unusable(path, &e))?;
        Ok(Self {
            path: path.to_owned(),
            noted: AtomicU64::new(0),
            _lock: lock(&path.join("poolwright.lock"))?,
        })
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// What this folder's manager knows of its database; nothing before the first start.
    pub fn remembered(&self) -> Result<Option<Remembered>, OpenError> {
        let path = self.file(CLUSTER);
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

    /// Writes the last commit seen down, now and then: it may lag behind, and never runs ahead.
    pub fn saw(&self, cluster: &str, revision: u64) {
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
        let (path, new) = (self.file(CLUSTER), self.file("cluster.json.new"));
        let mut file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(&serde_json::to_vec(remembered)?)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(&self.path)?.sync_all()
    }
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
    let mut file = OpenOptions::new()
        .create(true)
        .read(true)
        .write(true)
        .truncate(false)
        .mode(0o600)
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
