//! GPUs that came made ready for work: they are well, they have this host's profile, and its software is told of them;
//! and all of that undone.
//!
//! Invariants: what a GPU was set to is on the disk before it is set to something else; what does not come about leaves
//! nothing of it behind, or says that its outcome is unknown; what is set is read back; doing it twice is as good as once.

mod health;
mod profile;
mod record;
#[cfg(test)]
mod tests;

use crate::answers::{Missing, found};
use crate::drain::run;
use crate::folder::Folder;
use crate::hooks::{AFTER_ATTACH, BEFORE_DETACH, HEALTH_CHECK, Hooks};
use crate::sight::{Device, Sight};
use crate::wire::Target;
use poolwright_driver::DriverError;
use poolwright_pcie::{Address, Nvml, Setting};
pub(crate) use profile::Profile;
use record::{Part, Record};
use std::path::Path;

/// The host that has them.
pub(crate) struct Ready<'a> {
    pub root: &'a Path,
    pub folder: &'a Folder,
    pub nvml: &'a dyn Fn() -> Nvml,
}

impl Ready<'_> {
    /// Says what was seen and done.
    pub fn make(&self, target: &Target) -> Result<String, DriverError> {
        let mut record = self.record(target)?;
        self.try_make(target, &mut record)
            .map_err(|why| match self.take_back(&mut record, target) {
                Ok(()) => DriverError::no_effect(why),
                Err(undo) => DriverError::unknown(format!(
                    "{why}; and what was done before could not be undone: {undo}"
                )),
            })
    }

    /// Takes it back, part by part, the last one first.
    pub fn unmake(&self, target: &Target) -> Result<(), DriverError> {
        let mut record = self.record(target)?;
        self.take_back(&mut record, target)
            .map_err(|why| DriverError::unknown(format!("not undone: {why}")))
    }

    fn record(&self, target: &Target) -> Result<Record, DriverError> {
        Record::open(self.folder, target).map_err(DriverError::no_effect)
    }

    fn try_make(&self, target: &Target, record: &mut Record) -> Result<String, String> {
        let (hooks, profile) = (Hooks::read(self.folder)?, Profile::read(self.folder)?);
        let nvml = (self.nvml)();
        let sight = Sight::of(self.root, &nvml);
        let devices = found(&sight, target).map_err(Missing::why)?;
        let mut said = Vec::new();
        for device in &devices {
            said.push(health::of(self.root, &nvml, device)?);
        }
        if hooks.has(HEALTH_CHECK) {
            run(&hooks, HEALTH_CHECK, target)?;
            said.push(format!("{HEALTH_CHECK} passed"));
        }
        for device in &devices {
            for wanted in profile.settings() {
                said.push(self.give(&nvml, device, wanted, record)?);
            }
        }
        if hooks.has(AFTER_ATTACH) {
            record.begin(self.folder, Part::Told)?;
            run(&hooks, AFTER_ATTACH, target)?;
            said.push(format!("{AFTER_ATTACH} has run"));
        }
        Ok(said.join("; "))
    }

    /// Sets one thing, where it is different, and reads it back.
    fn give(
        &self,
        nvml: &Nvml,
        device: &Device<'_>,
        wanted: Setting,
        record: &mut Record,
    ) -> Result<String, String> {
        let gpu = device.address();
        let Some(says) = device.driver_says else {
            return Ok(format!("{}: no NVIDIA driver shows {gpu}", wanted.name()));
        };
        let Some(was) = nvml.setting(gpu, wanted)? else {
            return Ok(format!("{}: not offered by {gpu}", wanted.name()));
        };
        if was.now == wanted && was.next == wanted {
            return Ok(format!("{wanted}, as it was"));
        }
        let part = Part::Set {
            gpu,
            uuid: says.uuid.clone(),
            was: was.next,
        };
        record.begin(self.folder, part)?;
        self.set(nvml, gpu, wanted)?;
        Ok(format!("{wanted} (it was {})", was.now))
    }

    fn set(&self, nvml: &Nvml, gpu: Address, wanted: Setting) -> Result<(), String> {
        nvml.set(gpu, wanted)?;
        match nvml.setting(gpu, wanted)? {
            Some(set) if set.now == wanted => Ok(()),
            Some(set) if set.next == wanted => Err(format!(
                "{wanted}: {gpu} takes it with its next reset only, and is now {}: set it once with nvidia-smi and reset it",
                set.now
            )),
            Some(set) => Err(format!("{wanted}: {gpu} took it, and is {}", set.now)),
            None => Err(format!("{wanted}: {gpu} took it, and does not say what it is")),
        }
    }

    fn take_back(&self, record: &mut Record, target: &Target) -> Result<(), String> {
        while let Some(part) = record.last() {
            match part {
                Part::Told => run(&Hooks::read(self.folder)?, BEFORE_DETACH, target)?,
                Part::Set { gpu, uuid, was } => self.set_back(gpu, uuid.as_deref(), was)?,
            }
            record.undone(self.folder)?;
        }
        Ok(())
    }

    /// Only of that very GPU: what went took its settings along.
    fn set_back(&self, gpu: Address, uuid: Option<&str>, was: Setting) -> Result<(), String> {
        let nvml = (self.nvml)();
        let known = nvml.gpus().unwrap_or_default();
        let is_it = known
            .iter()
            .any(|other| other.address == Some(gpu) && other.uuid.as_deref() == uuid);
        if !is_it {
            return Ok(());
        }
        match nvml.setting(gpu, was)? {
            Some(set) if set.now == was && set.next == was => Ok(()),
            // What waits for a reset has not changed yet.
            Some(set) if set.now == was => nvml.set(gpu, was).map(drop),
            _ => self.set(&nvml, gpu, was),
        }
    }
}
