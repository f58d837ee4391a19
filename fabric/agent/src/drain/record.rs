//! What a drain has done so far, on the disk: one file for each GPU that was drained.

use crate::folder::Folder;
use crate::kept::File;
use crate::wire::Target;
use poolwright_pcie::{Address, Setting};
use serde::{Deserialize, Serialize};

/// One thing that a drain does, with what it takes to undo it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "kebab-case")]
pub(super) enum Part {
    Hook,
    /// What the GPU was set to while this host had it; it comes back without.
    Settings {
        gpu: Address,
        uuid: Option<String>,
        had: Vec<Setting>,
    },
    /// It was on.
    Persistence {
        gpu: Address,
    },
    Draining {
        gpu: Address,
    },
    Unbound {
        function: Address,
        driver: String,
    },
    Removed {
        function: Address,
        port: Option<Address>,
        slot: Option<String>,
    },
}

impl Part {
    /// A start of the host undoes it, too.
    fn ends_with_the_kernel(&self) -> bool {
        !matches!(self, Self::Hook | Self::Settings { .. })
    }

    /// Undone by the same.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Settings { uuid: Some(uuid), .. }, Self::Settings { uuid: other, .. }) => {
                other.as_ref() == Some(uuid)
            }
            (one, other) => one == other,
        }
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    file: File,
    kept: Kept,
    /// The host has started since that was kept.
    restarted: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    boot_id: Option<String>,
    target: Target,
    /// Begun, in this order.
    parts: Vec<Part>,
    /// All of it was done: the GPU was gone then.
    #[serde(default)]
    whole: bool,
}

impl Record {
    /// What an earlier drain of the same GPUs has left to undo. Of what it did to a kernel that runs no more nothing is left.
    pub fn open(folder: &Folder, target: &Target, boot_id: Option<String>) -> Result<Self, String> {
        let file = File::of("drain", target)?;
        let known = file.read(folder, "what an earlier drain did")?;
        let mut kept: Kept = known.unwrap_or_else(|| Kept {
            boot_id: boot_id.clone(),
            target: target.clone(),
            parts: Vec::new(),
            whole: false,
        });
        let restarted = kept.boot_id != boot_id;
        if restarted {
            kept.parts.retain(|part| !part.ends_with_the_kernel());
            kept.boot_id = boot_id;
        }
        Ok(Self {
            file,
            kept,
            restarted,
        })
    }

    /// Whom it is about.
    pub fn target(&self) -> Target {
        self.kept.target.clone()
    }

    /// Keeps that a part is about to be done. One that was begun before is not undone twice; and a GPU goes back to what it
    /// was set to first.
    pub fn begin(&mut self, folder: &Folder, part: Part) -> Result<(), String> {
        if self.kept.parts.iter().any(|known| known.is_like(&part)) {
            return Ok(());
        }
        self.kept.parts.push(part);
        self.write(folder)
    }

    /// Forgets a drain that was whole: the GPU has come back since, perhaps elsewhere. One that is here again for the host's
    /// start alone, and that nobody has made ready, is to be set to what it was before that drain.
    pub fn renew(&mut self, folder: &Folder, target: &Target, made_ready: bool) -> Result<(), String> {
        if self.kept.whole {
            let goes_on = self.restarted && !made_ready;
            let parts = &mut self.kept.parts;
            parts.retain(|part| goes_on && matches!(part, Part::Settings { .. }));
            self.kept.whole = false;
            self.write(folder)?;
        }
        self.kept.target = target.clone();
        Ok(())
    }

    /// Keeps that all of it is done.
    pub fn whole(&mut self, folder: &Folder) -> Result<(), String> {
        self.kept.whole = true;
        self.write(folder)
    }

    /// The part that is undone next.
    pub fn last(&self) -> Option<Part> {
        self.kept.parts.last().cloned()
    }

    /// Keeps that the last part is undone.
    pub fn undone(&mut self, folder: &Folder) -> Result<(), String> {
        self.kept.parts.pop();
        self.write(folder)
    }

    fn write(&self, folder: &Folder) -> Result<(), String> {
        let kept = (!self.kept.parts.is_empty()).then_some(&self.kept);
        self.file.write(folder, kept)
    }
}
