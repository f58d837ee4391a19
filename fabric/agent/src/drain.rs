//! A GPU taken from its driver and out of the kernel's sight, so that the fabric may take it away; and all of that undone.
//!
//! Invariants: what is about to be done is on the disk before it is done, so that it can be undone after a crash; a drain
//! that fails is taken back at once, and one whose taking back failed, or that hangs, says that its outcome is unknown;
//! nothing is taken from whoever uses it.

mod record;
#[cfg(test)]
mod tests;

use crate::answers::{self, Missing, found};
use crate::folder::Folder;
use crate::hooks::{BEFORE_DETACH, DETACH_UNDONE, Hooks};
use crate::host;
use crate::ready::Ready;
use crate::settings;
use crate::sight::{Device, Sight};
use crate::wire::Target;
use poolwright_driver::{DriverError, ErrorKind, Holder, in_use};
use poolwright_pcie::{Address, ChangeError, Machine, Nvml, Setting};
use record::{Part, Record};
use std::path::Path;

/// The host that a GPU is taken from.
pub(crate) struct Drain<'a> {
    pub root: &'a Path,
    pub folder: &'a Folder,
    pub nvml: &'a dyn Fn() -> Nvml,
}

/// Why it did not come about.
struct Failed {
    why: String,
    hint: Option<String>,
    /// It may come about later.
    unknown: bool,
}

impl From<String> for Failed {
    fn from(why: String) -> Self {
        DriverError::no_effect(why).into()
    }
}

impl From<DriverError> for Failed {
    fn from(error: DriverError) -> Self {
        Self {
            unknown: error.kind == ErrorKind::OutcomeUnknown,
            why: error.message,
            hint: error.hint,
        }
    }
}

impl From<ChangeError> for Failed {
    fn from(error: ChangeError) -> Self {
        Self {
            unknown: error.is_unknown(),
            why: error.to_string(),
            hint: None,
        }
    }
}

impl Drain<'_> {
    /// Takes the GPUs from this host. What is not there has gone already.
    pub fn drain(&self, target: &Target) -> Result<(), DriverError> {
        let mut record = self.record(target)?;
        match self.let_go(target, &mut record) {
            Ok(()) => Ok(()),
            Err(Failed { why, unknown: true, .. }) => Err(DriverError::unknown(why).with_hint(
                "see what hangs: dmesg, lsmod; nvidia_drm and nvidia_uvm may hold the last GPU of a host, a hook unloads them",
            )),
            Err(Failed { why, hint, .. }) => match self.take_all_back(target, &mut record) {
                Ok(()) => Err(DriverError {
                    hint,
                    ..DriverError::no_effect(why)
                }),
                Err(undo) => Err(DriverError::unknown(format!(
                    "{why}; and what was done before could not be undone: {}",
                    undo.why
                ))),
            },
        }
    }

    /// Takes back what a drain has done, part by part, the last one first.
    pub fn undrain(&self, target: &Target) -> Result<(), DriverError> {
        let mut record = self.record(target)?;
        self.take_all_back(target, &mut record)
            .map_err(|failed| DriverError::unknown(format!("not undone: {}", failed.why)))
    }

    /// What is left to be undone of an earlier drain, or nothing.
    fn record(&self, target: &Target) -> Result<Record, DriverError> {
        let boot_id = host::identity(self.root).boot_id;
        Record::open(self.folder, target, boot_id).map_err(DriverError::no_effect)
    }

    fn let_go(&self, target: &Target, record: &mut Record) -> Result<(), Failed> {
        let hooks = Hooks::read(self.folder)?;
        let sight = self.sight();
        let devices = match found(&sight, target) {
            Ok(devices) => devices,
            Err(Missing::Gone(_)) => return self.is_gone(target, record),
            Err(missing) => return Err(missing.why().into()),
        };
        record.renew(self.folder, target, !self.ready().are_gone(target)?)?;
        if hooks.has(BEFORE_DETACH) {
            record.begin(self.folder, Part::Hook)?;
            run(&hooks, BEFORE_DETACH, target)?;
        }
        // After new work was stopped: who holds it now is the last.
        self.nobody_holds(&self.sight(), target)?;
        for device in &devices {
            self.note_settings(device, record)?;
        }
        self.ready().put_back(target)?;
        for device in &devices {
            self.quiet(device, record)?;
        }
        self.nobody_holds(&self.sight(), target)?;
        for device in &devices {
            self.take_out(&sight, device, record)?;
        }
        self.is_gone(target, record)
    }

    /// All of it is done, also where an earlier drain was cut short after it had taken them out.
    fn is_gone(&self, target: &Target, record: &mut Record) -> Result<(), Failed> {
        record.whole(self.folder)?;
        Ok(self.ready().went(target, true)?)
    }

    fn ready(&self) -> Ready<'_> {
        Ready {
            root: self.root,
            folder: self.folder,
            nvml: self.nvml,
        }
    }

    fn sight(&self) -> Sight {
        Sight::of(self.root, &(self.nvml)())
    }

    fn nobody_holds(&self, sight: &Sight, target: &Target) -> Result<(), Failed> {
        let held = answers::held(self.root, sight, target)?;
        let holders: Vec<Holder> = held.into_iter().map(Holder::from).collect();
        match holders.is_empty() {
            true => Ok(()),
            false => Err(in_use("", &holders).into()),
        }
    }

    /// Keeps what the NVIDIA driver, where it has the GPU, has set it to: most of that goes with the GPU.
    fn note_settings(&self, device: &Device<'_>, record: &mut Record) -> Result<(), Failed> {
        let Some(says) = device.driver_says else {
            return Ok(());
        };
        let part = Part::Settings {
            gpu: device.address(),
            uuid: says.uuid.clone(),
            had: settings::all(&(self.nvml)(), device.address()),
        };
        record.begin(self.folder, part)?;
        if says.persistence == Some(true) {
            let gpu = device.address();
            record.begin(self.folder, Part::Persistence { gpu })?;
        }
        Ok(())
    }

    /// Tells the NVIDIA driver, where it has the GPU, that it is used no more.
    fn quiet(&self, device: &Device<'_>, record: &mut Record) -> Result<(), Failed> {
        let Some(says) = device.driver_says else {
            return Ok(());
        };
        let gpu = device.address();
        let nvml = (self.nvml)();
        if says.persistence == Some(true) {
            nvml.set_persistence(gpu, false)?;
        }
        record.begin(self.folder, Part::Draining { gpu })?;
        nvml.set_draining(gpu, true)?;
        Ok(())
    }

    /// Takes all functions of a device from their drivers and out of sight: the last one first, the GPU's own at the end.
    fn take_out(&self, sight: &Sight, device: &Device<'_>, record: &mut Record) -> Result<(), Failed> {
        let machine = Machine::at(self.root);
        for function in device.functions.iter().rev() {
            if let Some(driver) = machine.driver_of(function.address) {
                record.begin(
                    self.folder,
                    Part::Unbound {
                        function: function.address,
                        driver,
                    },
                )?;
                machine.unbind(function.address)?;
            }
        }
        for function in device.functions.iter().rev() {
            let slot = device.slot.or_else(|| sight.slot_of(function));
            let removed = Part::Removed {
                function: function.address,
                port: function.port,
                slot: slot.map(|slot| slot.name.clone()),
            };
            record.begin(self.folder, removed)?;
            machine.remove(function.address)?;
        }
        Ok(())
    }

    fn take_all_back(&self, target: &Target, record: &mut Record) -> Result<(), Failed> {
        self.take_back(record)?;
        Ok(self.ready().went(target, false)?)
    }

    fn take_back(&self, record: &mut Record) -> Result<(), Failed> {
        while let Some(part) = record.last() {
            self.undo(part, &record.target())?;
            record.undone(self.folder)?;
        }
        Ok(())
    }

    fn undo(&self, part: Part, target: &Target) -> Result<(), Failed> {
        let machine = Machine::at(self.root);
        match part {
            Part::Removed { function, .. } if machine.has(function) => {}
            Part::Removed { function, port, slot } => self.bring_back(function, port, slot.as_deref())?,
            Part::Unbound { function, driver } => {
                // As a rule the kernel has found its driver by itself.
                if machine.driver_of(function).is_none() {
                    machine.bind(function, &driver)?;
                }
            }
            Part::Settings { gpu, uuid, had } => {
                self.told(|nvml| self.set_again(nvml, (gpu, uuid.as_deref()), &had))?;
            }
            Part::Draining { gpu } => self.told(|nvml| nvml.set_draining(gpu, false))?,
            Part::Persistence { gpu } => self.told(|nvml| nvml.set_persistence(gpu, true))?,
            Part::Hook => run(&Hooks::read(self.folder)?, DETACH_UNDONE, target)?,
        }
        Ok(())
    }

    /// Makes a GPU that came back what it was.
    fn set_again(&self, nvml: &Nvml, it: (Address, Option<&str>), had: &[Setting]) -> Result<(), String> {
        for setting in had {
            let set = settings::set_back(self.root, nvml, it, *setting)?;
            set.ok_or_else(|| format!("{} has not come back: {setting} can't be set again", it.0))?;
        }
        Ok(())
    }

    fn told<T>(&self, tell: impl Fn(&Nvml) -> Result<T, String>) -> Result<(), Failed> {
        settings::once_shown(self.nvml, tell)?;
        Ok(())
    }

    /// Where pciehp is at work the slot is turned off and on; elsewhere the bus is scanned.
    fn bring_back(&self, function: Address, port: Option<Address>, slot: Option<&str>) -> Result<(), Failed> {
        let machine = Machine::at(self.root);
        let ports = machine.look().ports;
        let port = ports.iter().find(|other| Some(other.address) == port);
        match (port, slot) {
            (Some(port), Some(slot)) if port.native => {
                machine.power(slot, false)?;
                machine.power(slot, true)?;
                machine.arrives(function)?;
            }
            _ => machine.rescan(port, function)?,
        }
        Ok(())
    }
}

/// Runs a hook to its end.
pub(crate) fn run(hooks: &Hooks, name: &str, target: &Target) -> Result<(), String> {
    let gpus: Vec<&str> = target.gpus.iter().map(|gpu| gpu.as_str()).collect();
    let about = [
        ("POOLWRIGHT_GPUS", gpus.join(" ")),
        ("POOLWRIGHT_KNOWN_AS", target.known_as.join(" ")),
        ("POOLWRIGHT_SLOT", target.slot.clone().unwrap_or_default()),
    ];
    // Verbs run in threads of their own, which may wait.
    tokio::runtime::Handle::current().block_on(hooks.run(name, &about))
}
