//! What was done to make GPUs ready, on the disk: one file for each, until it is undone.

use crate::folder::Folder;
use crate::wire::Target;
use poolwright_pcie::{Address, Setting};
use serde::{Deserialize, Serialize};

/// One thing that was done, with what it takes to undo it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "kebab-case")]
pub(super) enum Part {
    /// `uuid` is the GPU's that was there.
    Set {
        gpu: Address,
        uuid: Option<String>,
        was: Setting,
    },
    /// The host's software was told.
    Told,
}

impl Part {
    /// Undone by the same.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Set { uuid, was, gpu },
                Self::Set {
                    uuid: u,
                    was: w,
                    gpu: g,
                },
            ) => (uuid, gpu) == (u, g) && was.is_like(*w),
            (one, other) => one == other,
        }
    }
}

/// See the module.
pub(super) struct Record {
    name: String,
    /// Begun, in this order.
    parts: Vec<Part>,
}

impl Record {
    /// What was done to the same GPUs before.
    pub fn open(folder: &Folder, target: &Target) -> Result<Self, String> {
        let gpu = target.gpus.first().ok_or("no GPU is named")?;
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let name = format!(
            "ready-{}.json",
            gpu.as_str().chars().map(plain).collect::<String>()
        );
        let text = folder.read_if_any(&name).map_err(|error| error.to_string())?;
        let parts = match text {
            Some(text) => serde_json::from_str(&text).map_err(|error| {
                let place = folder.path().join(&name);
                format!(
                    "{}, which says what GPUs were set to, can't be read: {error}",
                    place.display()
                )
            })?,
            None => Vec::new(),
        };
        Ok(Self { name, parts })
    }

    /// Keeps that a part is about to be done. What was before it was done first is what it goes back to.
    pub fn begin(&mut self, folder: &Folder, part: Part) -> Result<(), String> {
        if self.parts.iter().any(|known| known.is_like(&part)) {
            return Ok(());
        }
        self.parts.push(part);
        self.write(folder)
    }

    /// The part that is undone next.
    pub fn last(&self) -> Option<Part> {
        self.parts.last().cloned()
    }

    /// Keeps that the last part is undone.
    pub fn undone(&mut self, folder: &Folder) -> Result<(), String> {
        self.parts.pop();
        self.write(folder)
    }

    fn write(&self, folder: &Folder) -> Result<(), String> {
        let kept = match self.parts.is_empty() {
            true => folder.remove(&self.name),
            false => {
                let text = serde_json::to_string(&self.parts).map_err(|error| error.to_string())?;
                folder.write(&self.name, &text)
            }
        };
        kept.map_err(|error| error.to_string())
    }
}
