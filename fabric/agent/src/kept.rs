//! What a verb has done to GPUs and may have to undo, on the disk: one file for each GPU that it was asked about first.

use crate::folder::Folder;
use crate::wire::Target;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Such a file, by its name in the agent's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File(String);

impl File {
    /// That of a verb and a target.
    pub fn of(verb: &str, target: &Target) -> Result<Self, String> {
        let gpu = target.gpus.first().ok_or("no GPU is named")?;
        let plain = |c: char| match c.is_ascii_alphanumeric() || c == '-' {
            true => c,
            false => '_',
        };
        let gpu: String = gpu.as_str().chars().map(plain).collect();
        Ok(Self(format!("{verb}-{gpu}.json")))
    }

    /// What it holds, if it is there; `says` says what that is, for whoever finds that it makes no sense.
    pub fn read<T: DeserializeOwned>(&self, folder: &Folder, says: &str) -> Result<Option<T>, String> {
        let text = folder.read_if_any(&self.0).map_err(|error| error.to_string())?;
        let read = text.map(|text| serde_json::from_str(&text)).transpose();
        read.map_err(|error| {
            let place = folder.path().join(&self.0);
            format!("{}, which says {says}, can't be read: {error}", place.display())
        })
    }

    /// Keeps it; with `None` there is nothing left to undo.
    pub fn write(&self, folder: &Folder, kept: Option<&impl Serialize>) -> Result<(), String> {
        let done = match kept {
            None => folder.remove(&self.0),
            Some(kept) => {
                let text = serde_json::to_string(kept).map_err(|error| error.to_string())?;
                folder.write(&self.0, &text)
            }
        };
        done.map_err(|error| error.to_string())
    }
}
