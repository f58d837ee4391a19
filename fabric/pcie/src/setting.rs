//! What the driver has set a GPU to: read, and set. And whether the GPU's memory is worn.

use crate::address::Address;
use crate::nvml::{Nvml, done};
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::ComputeMode as Mode;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::{NVML_FI_DEV_REMAPPED_FAILURE, NVML_FI_DEV_REMAPPED_PENDING};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Who may compute on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComputeMode {
    /// Any number of processes.
    Default,
    /// One process at a time.
    ExclusiveProcess,
    /// Nobody.
    Prohibited,
}

/// One setting, and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "setting", content = "value", rename_all = "kebab-case")]
pub enum Setting {
    /// The driver stays with a GPU that nobody uses.
    Persistence(bool),
    Ecc(bool),
    Mig(bool),
    ComputeMode(ComputeMode),
    /// In milliwatts.
    PowerLimit(u32),
}

/// What a setting is, and what it will be after the next reset of the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Set {
    pub now: Setting,
    pub next: Setting,
}

impl Setting {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Persistence(_) => "persistence mode",
            Self::Ecc(_) => "ECC",
            Self::Mig(_) => "MIG",
            Self::ComputeMode(_) => "compute mode",
            Self::PowerLimit(_) => "power limit",
        }
    }

    /// Whether both are values of the same setting.
    pub fn is_like(self, other: Self) -> bool {
        self.name() == other.name()
    }
}

impl fmt::Display for Setting {
    /// Such as `ECC on`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.name())?;
        match self {
            Self::Persistence(on) | Self::Ecc(on) | Self::Mig(on) => {
                f.write_str(if *on { "on" } else { "off" })
            }
            Self::ComputeMode(ComputeMode::Default) => f.write_str("default"),
            Self::ComputeMode(ComputeMode::ExclusiveProcess) => f.write_str("exclusive-process"),
            Self::ComputeMode(ComputeMode::Prohibited) => f.write_str("prohibited"),
            Self::PowerLimit(milliwatts) => write!(f, "{} W", f64::from(*milliwatts) / 1000.0),
        }
    }
}

impl Nvml {
    /// What a GPU is set to, in the setting that `like` is a value of. `None`: it has no such setting.
    pub fn setting(&self, at: Address, like: Setting) -> Result<Option<Set>, String> {
        let device = self.device(at)?;
        match read(&device, like) {
            Ok(set) => Ok(Some(set)),
            Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_)) => Ok(None),
            Err(error) => Err(format!("{}: {error}", like.name())),
        }
    }

    /// Sets a GPU to it. `false`: it has no such setting.
    pub fn set(&self, at: Address, to: Setting) -> Result<bool, String> {
        let mut device = self.device(at)?;
        let set = match to {
            Setting::Persistence(on) => device.set_persistent(on),
            Setting::Ecc(on) => device.set_ecc(on),
            Setting::Mig(on) => device.set_mig_mode(on).map(drop),
            Setting::ComputeMode(mode) => device.set_compute_mode(match mode {
                ComputeMode::Default => Mode::Default,
                ComputeMode::ExclusiveProcess => Mode::ExclusiveProcess,
                ComputeMode::Prohibited => Mode::Prohibited,
            }),
            Setting::PowerLimit(milliwatts) => device.set_power_management_limit(milliwatts),
        };
        done(set).map_err(|why| format!("{to}: {why}"))
    }

    /// What is wrong with the memory of a GPU, in words; nothing where it is well, or doesn't say.
    pub fn wear(&self, at: Address) -> Result<Vec<String>, String> {
        let device = self.device(at)?;
        let mut found = Vec::new();
        if told(device.are_pages_pending_retired())? == Some(true) {
            found.push("pages of its memory are to be retired at its next reset".to_owned());
        }
        let rows = [
            (
                NVML_FI_DEV_REMAPPED_PENDING,
                "rows of its memory are to be remapped at its next reset",
            ),
            (
                NVML_FI_DEV_REMAPPED_FAILURE,
                "a row of its memory could not be remapped",
            ),
        ];
        let fields = rows.map(|(field, _)| FieldId(field));
        let samples = told(device.field_values_for(&fields))?.unwrap_or_default();
        for (sample, (_, says)) in samples.into_iter().zip(rows) {
            // A GPU that has no such field says so of that field alone.
            let value = told(sample.and_then(|sample| sample.value))?;
            if value.is_some_and(is_set) {
                found.push(says.to_owned());
            }
        }
        Ok(found)
    }
}

fn read(device: &Device<'_>, like: Setting) -> Result<Set, NvmlError> {
    let same = |now| Set { now, next: now };
    Ok(match like {
        Setting::Persistence(_) => same(Setting::Persistence(device.is_in_persistent_mode()?)),
        Setting::Ecc(_) => {
            let ecc = device.is_ecc_enabled()?;
            Set {
                now: Setting::Ecc(ecc.currently_enabled),
                next: Setting::Ecc(ecc.pending_enabled),
            }
        }
        Setting::Mig(_) => {
            let mig = device.mig_mode()?;
            Set {
                now: Setting::Mig(mig.current == 1),
                next: Setting::Mig(mig.pending == 1),
            }
        }
        Setting::ComputeMode(_) => same(Setting::ComputeMode(match device.compute_mode()? {
            Mode::Default => ComputeMode::Default,
            // The first is no longer offered, and means the second.
            Mode::ExclusiveThread | Mode::ExclusiveProcess => ComputeMode::ExclusiveProcess,
            Mode::Prohibited => ComputeMode::Prohibited,
        })),
        Setting::PowerLimit(_) => same(Setting::PowerLimit(device.power_management_limit()?)),
    })
}

/// `None` where this GPU doesn't have it, or the library doesn't know of it.
fn told<T>(answer: Result<T, NvmlError>) -> Result<Option<T>, String> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_)) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

fn is_set(value: SampleValue) -> bool {
    match value {
        SampleValue::F64(value) => value > 0.0,
        SampleValue::U32(value) => value > 0,
        SampleValue::U64(value) => value > 0,
        SampleValue::I64(value) => value > 0,
    }
}
