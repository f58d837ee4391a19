//! GPUs that are reset because something that they were set to waits for it. It is their first moment on this host, so nobody
//! uses them yet; that is looked at all the same.
//!
//! Invariants: a function that is taken from its driver is on the disk first; what the driver alone keeps is set again; what
//! waited is read back.

use super::record::{Part, Record};
use super::{Ready, Waits};
use crate::answers::{self, Missing, found};
use crate::settings::{self, Holds};
use crate::sight::{Device, Sight};
use crate::wire::Target;
use poolwright_driver::{Holder, in_use};
use poolwright_pcie::{Address, Machine, Setting};

/// The driver whose library tells of its GPUs.
const SHOWS: &str = "nvidia";

/// What a GPU is set to, and how it is known.
struct Had {
    gpu: Address,
    uuid: Option<String>,
    settings: Vec<Setting>,
}

impl Ready<'_> {
    /// That the GPUs could be reset now: the kernel knows how, and nobody uses them. The library of the driver must not be
    /// open meanwhile: it has their files open itself.
    pub(super) fn may_reset(&self, target: &Target) -> Result<(), String> {
        let sight = self.sight();
        let machine = Machine::at(self.root);
        let devices = found(&sight, target).map_err(Missing::why)?;
        let mut all = devices.iter().map(Device::address);
        if let Some(gpu) = all.find(|gpu| !machine.can_reset(*gpu)) {
            return Err(format!("the kernel of this host knows no way to reset {gpu}"));
        }
        let held = answers::held(self.root, &sight, target).map_err(|error| error.message)?;
        let holders: Vec<Holder> = held.into_iter().map(Holder::from).collect();
        match holders.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "who uses it has to let go of it: {}",
                in_use("", &holders)
            )),
        }
    }

    /// Resets the GPUs, of which was just looked that they may be, and says what came of it: all that they are set to holds
    /// then.
    pub(super) fn reset(
        &self,
        target: &Target,
        waiting: &[Waits],
        record: &mut Record,
    ) -> Result<String, String> {
        let sight = self.sight();
        let devices = found(&sight, target).map_err(Missing::why)?;
        let had = self.quiet(&devices, record)?;
        let machine = Machine::at(self.root);
        let mut unbound = Vec::new();
        for device in &devices {
            for function in device.functions.iter().rev() {
                if let Some(driver) = machine.driver_of(function.address) {
                    let part = Part::Unbound {
                        function: function.address,
                        driver,
                    };
                    record.begin(self.folder, part.clone())?;
                    unbound.push(part);
                    machine.unbind(function.address).map_err(words)?;
                }
            }
        }
        for device in &devices {
            machine.reset(device.address()).map_err(words)?;
        }
        for part in unbound.iter().rev() {
            self.undo(part, target)?;
        }
        record.forget(self.folder, &unbound)?;
        for had in &had {
            self.set_again(had)?;
        }
        let held: Vec<String> = waiting.iter().map(Waits::came).collect();
        Ok(held.join("; "))
    }

    /// Gives a function back to its driver, and waits until that shows it, where it is one that shows what it has.
    pub(super) fn give_back(&self, function: Address, driver: &str) -> Result<(), String> {
        let machine = Machine::at(self.root);
        if !machine.has(function) || machine.driver_of(function).is_some() {
            return Ok(());
        }
        machine.bind(function, driver).map_err(words)?;
        if driver != SHOWS {
            return Ok(());
        }
        settings::once_shown(self.nvml, |nvml| {
            let known = nvml.gpus().unwrap_or_default();
            let it = known.iter().find(|gpu| gpu.address == Some(function));
            match it.and_then(|it| it.uuid.as_ref()) {
                Some(_) => Ok(()),
                None => Err(format!("{function} is back at its driver, which doesn't show it")),
            }
        })
    }

    fn sight(&self) -> Sight {
        Sight::of(self.root, &(self.nvml)())
    }

    /// Has the driver stay with none of them, and gives what they are set to.
    fn quiet(&self, devices: &[Device<'_>], record: &mut Record) -> Result<Vec<Had>, String> {
        let nvml = (self.nvml)();
        let mut had = Vec::new();
        for device in devices {
            let Some(says) = device.driver_says else { continue };
            let (gpu, uuid) = (device.address(), says.uuid.clone());
            let mut settings = settings::all(&nvml, gpu);
            if says.persistence == Some(true) {
                let was = Setting::Persistence(true);
                settings.push(was);
                let uuid = uuid.clone();
                record.begin(self.folder, Part::Set { gpu, uuid, was })?;
                nvml.set_persistence(gpu, false)?;
            }
            had.push(Had { gpu, uuid, settings });
        }
        Ok(had)
    }

    /// A reset brings what waited for it, and loses what the driver alone kept.
    fn set_again(&self, had: &Had) -> Result<(), String> {
        let Had { gpu, uuid, settings } = had;
        for setting in settings {
            let set = settings::once_shown(self.nvml, |nvml| {
                settings::set_back(self.root, nvml, (*gpu, uuid.as_deref()), *setting)
            })?;
            match set {
                Some(Holds::Now) => {}
                Some(Holds::AfterReset) => {
                    return Err(format!(
                        "{setting}: {gpu} was reset, and takes it with another reset only: look at it with nvidia-smi"
                    ));
                }
                None => {
                    return Err(format!(
                        "{gpu} was reset, and has not come back: {setting} is not so"
                    ));
                }
            }
        }
        Ok(())
    }
}

fn words(error: poolwright_pcie::ChangeError) -> String {
    error.to_string()
}
