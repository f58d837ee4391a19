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
use crate::settings::{self, Holds};
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
        record.renew(self.folder).map_err(DriverError::no_effect)?;
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

    /// Sets back what was set, as the host lets go of them, and keeps what that was: they may be given back. What can't
    /// be set back keeps nobody from taking them away; see [`Ready::left`].
    pub fn put_back(&self, target: &Target) -> Result<(), String> {
        let mut record = Record::open(self.folder, target)?;
        let nvml = (self.nvml)();
        let (mut back, mut left) = (Vec::new(), Vec::new());
        for part in record.to_put_back() {
            match &part {
                // That it stays with them is the drain's own affair.
                Part::Set {
                    was: Setting::Persistence(_),
                    ..
                }
                | Part::Told => {}
                Part::Set { gpu, uuid, was } => {
                    match settings::set_back(self.root, &nvml, (*gpu, uuid.as_deref()), *was) {
                        Ok(_) => back.push(part),
                        Err(why) => left.push(format!("{gpu} could not be set back to {was}: {why}")),
                    }
                }
            }
        }
        record.put_back(self.folder, back, left)
    }

    /// Whether they are known to have gone, and not to have been made ready since.
    pub fn are_gone(&self, target: &Target) -> Result<bool, String> {
        Ok(Record::open(self.folder, target)?.is_gone())
    }

    /// What could not be set back, or was not.
    pub fn left(&self, target: &Target) -> Result<Vec<String>, DriverError> {
        Ok(self.record(target)?.left())
    }

    /// The host has let go of them, or has them again: what was done to those that went is undone with that.
    pub fn went(&self, target: &Target, gone: bool) -> Result<(), String> {
        Record::open(self.folder, target)?.went(self.folder, gone)
    }

    fn record(&self, target: &Target) -> Result<Record, DriverError> {
        Record::open(self.folder, target).map_err(DriverError::no_effect)
    }

    fn try_make(&self, target: &Target, record: &mut Record) -> Result<String, String> {
        let (hooks, profile) = (Hooks::read(self.folder)?, Profile::read(self.folder)?);
        let nvml = (self.nvml)();
        let sight = Sight::of(self.root, &nvml);
        let devices = found(&sight, target).map_err(Missing::why)?;
        for device in &devices {
            for wanted in profile.settings() {
                waits_for_no_reset(&nvml, device, wanted)?;
            }
        }
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
        match settings::set(nvml, gpu, wanted)? {
            Holds::Now => Ok(format!("{wanted} (it was {})", was.now)),
            Holds::AfterReset => Err(pending(wanted, gpu, was.now)),
        }
    }

    fn take_back(&self, record: &mut Record, target: &Target) -> Result<(), String> {
        while let Some(part) = record.last() {
            match part {
                Part::Told => run(&Hooks::read(self.folder)?, BEFORE_DETACH, target)?,
                Part::Set { gpu, uuid, was } => {
                    settings::set_back(self.root, &(self.nvml)(), (gpu, uuid.as_deref()), was)?;
                }
            }
            record.undone(self.folder)?;
        }
        Ok(())
    }
}

/// Of ECC it is known beforehand that a GPU takes it with a reset only: nothing is begun then. Of MIG it depends on the GPU.
fn waits_for_no_reset(nvml: &Nvml, device: &Device<'_>, wanted: Setting) -> Result<(), String> {
    if !matches!(wanted, Setting::Ecc(_)) || device.driver_says.is_none() {
        return Ok(());
    }
    let gpu = device.address();
    match nvml.setting(gpu, wanted)? {
        Some(set) if set.now != wanted => Err(pending(wanted, gpu, set.now)),
        _ => Ok(()),
    }
}

fn pending(wanted: Setting, gpu: Address, now: Setting) -> String {
    format!(
        "{wanted}: {gpu} takes it with its next reset only, and is now {now}: set it once with nvidia-smi and reset it"
    )
}
