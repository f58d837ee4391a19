//! What was done to make GPUs ready, on the disk: one file for each, until it is undone.
//!
//! Where the GPUs have gone from this host it has nothing to undo any more, unless they are given back; it still says what
//! they were left at.

use crate::folder::Folder;
use crate::kept::File;
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
    /// A function was taken from its driver, to be reset.
    Unbound { function: Address, driver: String },
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
    file: File,
    kept: Kept,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    /// Begun, in this order.
    parts: Vec<Part>,
    /// The host has let go of the GPUs since.
    #[serde(default)]
    gone: bool,
    /// What could not be set back as it did; `None` where nobody has tried.
    #[serde(default)]
    left: Option<Vec<String>>,
    /// What was set back as it did: it is not tried again once the driver may be gone.
    #[serde(default)]
    back: Vec<Part>,
}

impl Record {
    /// What was done to the same GPUs before.
    pub fn open(folder: &Folder, target: &Target) -> Result<Self, String> {
        let file = File::of("ready", target)?;
        let kept: Option<Kept> = file.read(folder, "what GPUs were set to")?;
        Ok(Self {
            file,
            kept: kept.unwrap_or_default(),
        })
    }

    /// Forgets what was done to GPUs that had gone since, and have come anew; of those that stayed, that it was set back.
    pub fn renew(&mut self, folder: &Folder) -> Result<(), String> {
        match (self.kept.gone, &self.kept.left) {
            (true, _) => self.kept = Kept::default(),
            (false, Some(_)) => self.stay(),
            (false, None) => return Ok(()),
        }
        self.write(folder)
    }

    /// What is set is to be set back again.
    fn stay(&mut self) {
        (self.kept.left, self.kept.back) = (None, Vec::new());
    }

    /// Keeps that a part is about to be done. What was before it was done first is what it goes back to.
    pub fn begin(&mut self, folder: &Folder, part: Part) -> Result<(), String> {
        if self.kept.parts.iter().any(|known| known.is_like(&part)) {
            return Ok(());
        }
        self.kept.parts.push(part);
        self.write(folder)
    }

    /// What there is to undo, in the order in which it was done.
    pub fn parts(&self) -> &[Part] {
        match self.kept.gone {
            true => &[],
            false => &self.kept.parts,
        }
    }

    /// The part that is undone next.
    pub fn last(&self) -> Option<Part> {
        self.parts().last().cloned()
    }

    /// Keeps that the last part is undone.
    pub fn undone(&mut self, folder: &Folder) -> Result<(), String> {
        self.kept.parts.pop();
        self.write(folder)
    }

    /// Keeps that these are undone, wherever among the others they were done.
    pub fn forget(&mut self, folder: &Folder, undone: &[Part]) -> Result<(), String> {
        self.kept.parts.retain(|part| !undone.contains(part));
        self.write(folder)
    }

    /// Keeps that the host has let go of the GPUs, or that it has them again.
    pub fn went(&mut self, folder: &Folder, gone: bool) -> Result<(), String> {
        self.kept.gone = gone;
        if !gone {
            self.stay();
        }
        self.write(folder)
    }

    /// The host has let go of the GPUs.
    pub fn is_gone(&self) -> bool {
        self.kept.gone
    }

    /// What is to be set back as the host lets go of the GPUs, and was not before: the last one first.
    pub fn to_put_back(&self) -> Vec<Part> {
        let parts = self.parts().iter().rev();
        parts
            .filter(|part| !self.kept.back.contains(part))
            .cloned()
            .collect()
    }

    /// Keeps what of that was set back, and what could not be. Of GPUs that had gone before it is known already.
    pub fn put_back(&mut self, folder: &Folder, back: Vec<Part>, left: Vec<String>) -> Result<(), String> {
        if self.kept.gone {
            return Ok(());
        }
        self.kept.back.extend(back);
        self.kept.left = Some(left);
        self.write(folder)
    }

    /// What the GPUs were left at, in words.
    pub fn left(&self) -> Vec<String> {
        let not_back = |part: &Part| match part {
            Part::Set { gpu, was, .. } => Some(format!("{gpu} was not set back to {was}")),
            Part::Told | Part::Unbound { .. } => None,
        };
        let left = self.kept.left.clone();
        left.unwrap_or_else(|| self.kept.parts.iter().filter_map(not_back).collect())
    }

    fn write(&self, folder: &Folder) -> Result<(), String> {
        let says_something = self.kept.gone || !self.kept.parts.is_empty();
        let kept = says_something.then_some(&self.kept);
        self.file.write(folder, kept)
    }
}
