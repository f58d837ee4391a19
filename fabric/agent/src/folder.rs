//! What an agent keeps: its key and certificate, who its manager is, and the highest epoch that it has seen.
//!
//! Invariants: a file is whole or not there, and what was written is there after a power cut before anything rests on it.
//! Nobody but the agent's user reads any of it.

use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The agent's own key, in PEM.
pub const KEY: &str = "agent.key";
/// The next one, until there is a certificate for it.
pub const NEXT_KEY: &str = "next.key";
/// Its certificate.
pub const CERTIFICATE: &str = "agent.pem";
/// The manager's authority.
pub const CA: &str = "ca.pem";
const RECORD: &str = "agent.json";
/// The largest of them.
const LARGEST: u64 = 1 << 20;

/// Who the agent is and whom it serves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Where it was enrolled.
    pub manager: String,
    /// Of the SMBIOS of its host.
    pub uuid: String,
    /// The highest that any manager has asked with.
    #[serde(default)]
    pub epoch: Option<u64>,
}

/// Why something can't be kept or read.
#[derive(Debug, thiserror::Error)]
#[error("{} can't be {what}: {source}", .path.display())]
pub struct FolderError {
    pub path: PathBuf,
    pub what: &'static str,
    pub source: io::Error,
}

/// The folder, wherever it lies.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
    /// Held by whoever writes a file in it.
    writing: Arc<Mutex<()>>,
}

impl Folder {
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            writing: Arc::default(),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it, closed to all others.
    pub fn make(&self) -> Result<(), FolderError> {
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path);
        made.map_err(|source| self.error(&self.path, "made", source))
    }

    /// The text of a file in it.
    pub fn read(&self, name: &str) -> Result<String, FolderError> {
        let path = self.path.join(name);
        let mut text = String::new();
        let read = fs::File::open(&path).and_then(|file| file.take(LARGEST).read_to_string(&mut text));
        read.map_err(|source| self.error(&path, "read", source))?;
        Ok(text)
    }

    /// The same; `None` where there is no such file.
    pub fn read_if_any(&self, name: &str) -> Result<Option<String>, FolderError> {
        match self.read(name) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a file, readable by its owner alone.
    pub fn write(&self, name: &str, text: &str) -> Result<(), FolderError> {
        let path = self.path.join(name);
        // Each has its own, and one writes at a time: whole is what one of them has written.
        let partial = self.path.join(format!("{name}.partial"));
        let _writes = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let write = || {
            let mut options = fs::OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            let mut file = options.open(&partial)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&partial, &path)?;
            self.sync()
        };
        write().map_err(|source| self.error(&path, "written", source))
    }

    /// Removes a file, if it is there.
    pub fn remove(&self, name: &str) -> Result<(), FolderError> {
        let path = self.path.join(name);
        match fs::remove_file(&path).and_then(|()| self.sync()) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(self.error(&path, "removed", source))
            }
            _ => Ok(()),
        }
    }

    pub fn record(&self) -> Result<Record, FolderError> {
        let text = self.read(RECORD)?;
        serde_json::from_str(&text).map_err(|error| self.error(&self.path.join(RECORD), "read", error.into()))
    }

    pub fn keep(&self, record: &Record) -> Result<(), FolderError> {
        let text = serde_json::to_string(record);
        let text = text.map_err(|error| self.error(&self.path.join(RECORD), "written", error.into()))?;
        self.write(RECORD, &text)
    }

    fn sync(&self) -> io::Result<()> {
        fs::File::open(&self.path)?.sync_all()
    }

    fn error(&self, path: &Path, what: &'static str, source: io::Error) -> FolderError {
        FolderError {
            path: path.to_owned(),
            what,
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `agent.key`, `agent.pem` and `agent.json` are not written through one file, nor by two at once.
    #[test]
    fn files_that_are_written_at_once_are_each_whole() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::at(place.path());
        let names = [KEY, CERTIFICATE, RECORD];
        let text = |name: &str, letter: char| format!("{name}{}", letter.to_string().repeat(50_000));
        for _ in 0..20 {
            std::thread::scope(|scope| {
                for name in names {
                    for letter in ['a', 'b'] {
                        let (folder, text) = (&folder, text(name, letter));
                        scope.spawn(move || folder.write(name, &text).unwrap());
                    }
                }
            });
            for name in names {
                let found = folder.read(name).unwrap();
                assert!(
                    ['a', 'b'].iter().any(|letter| found == text(name, *letter)),
                    "{name}"
                );
            }
        }
    }
}
