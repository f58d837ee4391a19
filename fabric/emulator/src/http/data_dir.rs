//! What outlives a restart: the authority, the password, the bindings; and where clients find the endpoints.
//!
//! Files: `ca.pem`; `ca.key`, `password` and `state.json`, which only the owner can read; `endpoints.json`. Each
//! is written beside its place and moved there, so that nobody reads half of one.

use super::tls::Authority;
use super::{EndpointInfo, ServeError, Served};
use crate::access::secret;
use crate::emulation::Emulation;
use crate::state::Saved;
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const CA: &str = "ca.pem";
const CA_KEY: &str = "ca.key";
const PASSWORD: &str = "password";
const STATE: &str = "state.json";
const ENDPOINTS: &str = "endpoints.json";

/// The content of `endpoints.json`. Paths are relative to the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointsFile {
    pub username: String,
    pub password_file: PathBuf,
    pub ca: PathBuf,
    pub endpoints: Vec<EndpointInfo>,
    /// Where faults are taken, if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault_control: Option<String>,
}

pub(super) struct DataDir {
    path: PathBuf,
    /// The revision that is written; `None` for none yet. Held while writing: the later one must win.
    saved: tokio::sync::Mutex<Option<u64>>,
}

impl DataDir {
    pub fn open(path: PathBuf) -> Result<Self, ServeError> {
        fs::create_dir_all(&path).map_err(|source| ServeError::File {
            path: path.clone(),
            source,
        })?;
        Ok(Self {
            path,
            saved: tokio::sync::Mutex::new(None),
        })
    }

    /// The kept authority, else a new one that is kept.
    pub fn authority(&self) -> Result<Authority, ServeError> {
        match (self.read(CA)?, self.read(CA_KEY)?) {
            (Some(ca), Some(key)) => Authority::from_pem(ca, key).map_err(|error| ServeError::Content {
                path: self.path.join(CA_KEY),
                message: format!("{error}; remove {CA} and {CA_KEY} to make new ones"),
            }),
            _ => {
                let authority = Authority::generate()?;
                self.write(CA_KEY, authority.key_pem(), true)?;
                self.write(CA, authority.ca_pem(), false)?;
                Ok(authority)
            }
        }
    }

    /// The kept password, else a new one that is kept.
    pub fn password(&self) -> Result<String, ServeError> {
        match self.read(PASSWORD)? {
            Some(text) if !text.trim().is_empty() => Ok(text.trim().to_owned()),
            _ => Ok(secret()?),
        }
    }

    /// Takes up the kept bindings.
    pub fn restore(&self, emulation: &Emulation) -> Result<(), ServeError> {
        let Some(text) = self.read(STATE)? else {
            return Ok(());
        };
        let path = self.path.join(STATE);
        let saved: Saved = serde_json::from_str(&text).map_err(|error| ServeError::Content {
            path: path.clone(),
            message: error.to_string(),
        })?;
        let restored = emulation.with(|state, now| state.restore(&saved, now));
        restored.map_err(|source| ServeError::State { path, source })
    }

    /// Says where everything is.
    pub fn publish(&self, served: &Served) -> Result<(), ServeError> {
        self.write(PASSWORD, &format!("{}\n", served.password()), true)?;
        let file = EndpointsFile {
            username: served.username().to_owned(),
            password_file: PASSWORD.into(),
            ca: CA.into(),
            endpoints: served.endpoints().to_vec(),
            fault_control: served.fault_control_url().map(str::to_owned),
        };
        self.write(ENDPOINTS, &json(&file), false)
    }

    /// Keeps the bindings, if they have changed. Returns when they are written.
    pub async fn save(self: &Arc<Self>, emulation: &Emulation) -> Result<(), ServeError> {
        let mut written = self.saved.lock().await;
        let revision = emulation.with(|state, _| state.revision());
        if *written == Some(revision) {
            return Ok(());
        }
        let (revision, saved) = emulation.with(|state, _| (state.revision(), state.save()));
        let own = Arc::clone(self);
        let writing = tokio::task::spawn_blocking(move || own.write(STATE, &json(&saved), true)).await;
        writing.unwrap_or_else(|error| {
            Err(ServeError::File {
                path: self.path.join(STATE),
                source: io::Error::other(error),
            })
        })?;
        *written = Some(revision);
        Ok(())
    }

    fn read(&self, name: &str) -> Result<Option<String>, ServeError> {
        let path = self.path.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(ServeError::File { path, source }),
        }
    }

    fn write(&self, name: &str, text: &str, private: bool) -> Result<(), ServeError> {
        let path = self.path.join(name);
        write_whole(&path, text, private).map_err(|source| ServeError::File { path, source })
    }
}

fn json<T: Serialize>(value: &T) -> String {
    // Plain structs of strings always have a form in JSON.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

fn write_whole(path: &Path, text: &str, private: bool) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, if private { 0o600 } else { 0o644 });
    #[cfg(not(unix))]
    let _ = private;
    let mut file = options.open(&beside)?;
    file.write_all(text.as_bytes())?;
    drop(file);
    fs::rename(&beside, path)
}
