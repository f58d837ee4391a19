//! GPUs that came made ready for work: they are well, they have this host's profile, and its software is told of them;
//! and all of that undone.
//!
//! Invariants: what a GPU was set to is on the disk before it is set to something else; what does not come about leaves
//! nothing of it behind, or says that its outcome is unknown; what is set is read back; doing it twice is as good as once.

mod health;
mod profile;
mod record;
mod reset;
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
use poolwright_pcie::{Address, Nvml, Set, Setting};
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
                | Part::Told
                | Part::Unbound { .. } => {}
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
        // Of ECC it is known beforehand that a GPU takes it with a reset only: nothing is begun where it can't have one.
        if let Some(waits) = self.known_to_wait(target, &profile)? {
            self.may_reset(target).map_err(|why| waits.in_vain(&why))?;
        }
        let mut said = self.healthy(target)?;
        if hooks.has(HEALTH_CHECK) {
            run(&hooks, HEALTH_CHECK, target)?;
            said.push(format!("{HEALTH_CHECK} passed"));
        }
        let waiting = self.set_all(target, &profile, &mut said, record)?;
        if let Some(first) = waiting.first() {
            self.may_reset(target).map_err(|why| first.in_vain(&why))?;
            said.push(self.reset(target, &waiting, record)?);
            said.extend(self.healthy(target)?);
        }
        if hooks.has(AFTER_ATTACH) {
            record.begin(self.folder, Part::Told)?;
            run(&hooks, AFTER_ATTACH, target)?;
            said.push(format!("{AFTER_ATTACH} has run"));
        }
        Ok(said.join("; "))
    }

    /// What is set, or not, and waits for a reset whatever else is done.
    fn known_to_wait(&self, target: &Target, profile: &Profile) -> Result<Option<Waits>, String> {
        let nvml = (self.nvml)();
        let sight = Sight::of(self.root, &nvml);
        let ecc = || {
            profile
                .settings()
                .into_iter()
                .filter(|set| matches!(set, Setting::Ecc(_)))
        };
        for device in found(&sight, target).map_err(Missing::why)? {
            let gpu = device.address();
            for wanted in ecc().filter(|_| device.driver_says.is_some()) {
                let set = nvml.setting(gpu, wanted)?.filter(|set| set.now != wanted);
                if let Some(Set { now, .. }) = set {
                    return Ok(Some(Waits { gpu, wanted, now }));
                }
            }
        }
        Ok(None)
    }

    fn healthy(&self, target: &Target) -> Result<Vec<String>, String> {
        let nvml = (self.nvml)();
        let sight = Sight::of(self.root, &nvml);
        let devices = found(&sight, target).map_err(Missing::why)?;
        devices
            .iter()
            .map(|device| health::of(self.root, &nvml, device))
            .collect()
    }

    /// Gives them the profile, and returns what waits for a reset.
    fn set_all(
        &self,
        target: &Target,
        profile: &Profile,
        said: &mut Vec<String>,
        record: &mut Record,
    ) -> Result<Vec<Waits>, String> {
        let nvml = (self.nvml)();
        let sight = Sight::of(self.root, &nvml);
        let mut waiting = Vec::new();
        for device in found(&sight, target).map_err(Missing::why)? {
            for wanted in profile.settings() {
                match self.give(&nvml, &device, wanted, record)? {
                    Given::Done(how) => said.push(how),
                    Given::Waits(waits) => waiting.push(waits),
                }
            }
        }
        Ok(waiting)
    }

    /// Sets one thing, where it is different, and reads it back.
    fn give(
        &self,
        nvml: &Nvml,
        device: &Device<'_>,
        wanted: Setting,
        record: &mut Record,
    ) -> Result<Given, String> {
        let gpu = device.address();
        let done = |how: String| Ok(Given::Done(how));
        let Some(says) = device.driver_says else {
            return done(format!("{}: no NVIDIA driver shows {gpu}", wanted.name()));
        };
        let Some(was) = nvml.setting(gpu, wanted)? else {
            return done(format!("{}: not offered by {gpu}", wanted.name()));
        };
        if was.now == wanted && was.next == wanted {
            return done(format!("{wanted}, as it was"));
        }
        let part = Part::Set {
            gpu,
            uuid: says.uuid.clone(),
            was: was.next,
        };
        record.begin(self.folder, part)?;
        match settings::set(nvml, gpu, wanted)? {
            Holds::Now => done(format!("{wanted} (it was {})", was.now)),
            Holds::AfterReset => Ok(Given::Waits(Waits {
                gpu,
                wanted,
                now: was.now,
            })),
        }
    }

    fn take_back(&self, record: &mut Record, target: &Target) -> Result<(), String> {
        while let Some(part) = record.last() {
            self.undo(&part, target)?;
            record.undone(self.folder)?;
        }
        Ok(())
    }

    fn undo(&self, part: &Part, target: &Target) -> Result<(), String> {
        match part {
            Part::Told => run(&Hooks::read(self.folder)?, BEFORE_DETACH, target),
            Part::Set { gpu, uuid, was } => {
                let it = (*gpu, uuid.as_deref());
                settings::set_back(self.root, &(self.nvml)(), it, *was).map(drop)
            }
            Part::Unbound { function, driver } => self.give_back(*function, driver),
        }
    }
}

/// What came of one setting.
enum Given {
    Done(String),
    Waits(Waits),
}

/// A setting that a GPU takes with its next reset only.
struct Waits {
    gpu: Address,
    wanted: Setting,
    now: Setting,
}

impl Waits {
    fn came(&self) -> String {
        format!("{} by a reset (it was {})", self.wanted, self.now)
    }

    /// It can't be reset.
    fn in_vain(&self, why: &str) -> String {
        let Self { gpu, wanted, now } = self;
        format!(
            "{wanted}: {gpu} takes it with its next reset only, is now {now}, and was not reset: {why}; or set it once with \
             nvidia-smi and reset it"
        )
    }
}
