//! What the NVIDIA driver says of its GPUs, through NVML.
//!
//! The library is loaded while the program runs: that it is missing, that no driver is loaded or that it lacks a call are
//! states of a host, not failures. A host with no GPU has no driver, for its module refuses to load: that is healthy.
//! Where the driver drives a GPU, [`NvmlState::fault`] says why it can't be asked.
//!
//! Handles and indices change whenever a GPU comes or goes: each look asks for them anew, and GPUs are named by their
//! UUIDs.

use crate::address::Address;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml as Wrapper};
use serde::Serialize;
use std::path::Path;

/// The dynamic loader finds it by this name: in `LD_LIBRARY_PATH`, the cache of ldconfig and its default folders.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// Where installers and containers of the driver put it without registering it with the loader.
const FOLDERS: [&str; 5] = [
    "/usr/local/nvidia/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
];

/// How the library is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum NvmlState {
    /// Nobody looked for it: what is read is not the machine that this runs on.
    NotAsked,
    /// Not found; the loader's message.
    Absent {
        why: String,
    },
    /// It is there, and its driver is not loaded: healthy where there is no GPU.
    NoDriver,
    /// It is there, and can't be used; why, in its words.
    Failed {
        why: String,
    },
    Ready {
        driver: Option<String>,
    },
}

impl NvmlState {
    /// Why the driver can't be asked; `None` if it was asked, or need not be.
    pub fn fault(&self) -> Option<String> {
        match self {
            Self::NotAsked | Self::Ready { .. } => None,
            Self::Absent { why } => Some(format!(
                "{LIBRARY} was not found ({why}): install the driver's libraries, or name their folder in LD_LIBRARY_PATH"
            )),
            Self::NoDriver => Some(format!("{LIBRARY} reports that the driver is not loaded")),
            Self::Failed { why } => Some(format!("{LIBRARY} can't be used: {why}")),
        }
    }
}

/// A process that computes on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Process {
    pub pid: u32,
    pub memory_bytes: Option<u64>,
}

/// A GPU as its driver sees it. `None`: this one doesn't have it, or the library doesn't say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NvmlGpu {
    pub address: Option<Address>,
    pub uuid: Option<String>,
    pub name: Option<String>,
    /// Of the board.
    pub serial: Option<String>,
    /// The version of its firmware.
    pub vbios: Option<String>,
    pub memory_bytes: Option<u64>,
    pub memory_used_bytes: Option<u64>,
    /// Of the time, how much something ran on it.
    pub utilization_percent: Option<u32>,
    pub power_mw: Option<u32>,
    /// Since its driver was loaded.
    pub energy_mj: Option<u64>,
    pub temperature_c: Option<u32>,
    pub mig: Option<bool>,
    /// Counts as somebody who holds it.
    pub persistence: Option<bool>,
    /// `None`: not known, and so not free.
    pub processes: Option<Vec<Process>>,
    /// What could not be asked, beside what this GPU doesn't have, in the library's words.
    pub faults: Vec<String>,
}

/// The library, loaded or not.
#[derive(Debug)]
pub struct Nvml {
    loaded: Result<Wrapper, NvmlState>,
}

impl Nvml {
    /// Loads the library of this machine from where the dynamic loader finds it, else from the folders that installers
    /// use. Never from below another root: to look at the files of a host is not to run them.
    pub fn load() -> Self {
        Self::load_by(LIBRARY, &FOLDERS.map(Path::new))
    }

    fn load_by(name: &str, folders: &[&Path]) -> Self {
        let by_loader = Self::loaded(Path::new(name), false);
        if !matches!(by_loader.loaded, Err(NvmlState::Absent { .. })) {
            return by_loader;
        }
        let mut places = folders.iter().map(|folder| folder.join(name));
        match places.find(|place| place.exists()) {
            Some(place) => Self::load_from(&place),
            None => by_loader,
        }
    }

    /// No library: for the files of a host that is not this one.
    pub fn not_asked() -> Self {
        Self {
            loaded: Err(NvmlState::NotAsked),
        }
    }

    /// Loads it from one place.
    pub fn load_from(place: &Path) -> Self {
        Self::loaded(place, place.exists())
    }

    /// A file that is there and can't be loaded is a failure.
    fn loaded(place: &Path, is_there: bool) -> Self {
        let loaded = Wrapper::builder().lib_path(place.as_os_str()).init();
        let loaded = loaded.map_err(|error| match error {
            NvmlError::DriverNotLoaded => NvmlState::NoDriver,
            NvmlError::LibloadingError(why) if !is_there => NvmlState::Absent { why: why.to_string() },
            other => NvmlState::Failed {
                why: other.to_string(),
            },
        });
        Self { loaded }
    }

    pub fn state(&self) -> NvmlState {
        match &self.loaded {
            Ok(nvml) => NvmlState::Ready {
                driver: nvml.sys_driver_version().ok(),
            },
            Err(state) => state.clone(),
        }
    }

    /// Asks for all its GPUs, once. One that is lost while it is asked is there with its faults.
    pub fn gpus(&self) -> Result<Vec<NvmlGpu>, NvmlState> {
        let nvml = self.loaded.as_ref().map_err(NvmlState::clone)?;
        let failed = |error: NvmlError| NvmlState::Failed {
            why: error.to_string(),
        };
        let count = nvml.device_count().map_err(failed)?;
        Ok((0..count).map(|index| gpu(nvml.device_by_index(index))).collect())
    }

    /// Sets whether the driver stays with a GPU that nobody uses: that counts as a use. `false`: there is no such setting.
    pub fn set_persistence(&self, at: Address, on: bool) -> Result<bool, String> {
        let mut device = self.device(at)?;
        done(device.set_persistent(on))
    }

    /// Sets whether a GPU takes no new work. `false`: this driver has no such state.
    pub fn set_draining(&self, at: Address, on: bool) -> Result<bool, String> {
        let mut device = self.device(at)?;
        done(device.set_drain(on, None))
    }

    pub(crate) fn device(&self, at: Address) -> Result<Device<'_>, String> {
        let words = |error: NvmlError| error.to_string();
        let nvml = self
            .loaded
            .as_ref()
            .map_err(|state| format!("the library is not ready: {state:?}"))?;
        let devices =
            (0..nvml.device_count().map_err(words)?).filter_map(|index| nvml.device_by_index(index).ok());
        let mut here = devices.filter(|device| {
            let pci = device.pci_info().ok();
            pci.and_then(|pci| short(&pci.bus_id)) == Some(at)
        });
        here.next().ok_or_else(|| format!("the driver doesn't show {at}"))
    }
}

/// What a GPU doesn't have, and what an older library has no call for, is not done and no failure.
pub(crate) fn done(set: Result<(), NvmlError>) -> Result<bool, String> {
    match set {
        Ok(()) => Ok(true),
        Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_)) => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

fn gpu(device: Result<Device<'_>, NvmlError>) -> NvmlGpu {
    let device = match device {
        Ok(device) => device,
        Err(error) => {
            return NvmlGpu {
                faults: vec![error.to_string()],
                ..NvmlGpu::default()
            };
        }
    };
    let mut faults = Faults::default();
    let memory = faults.take("memory", device.memory_info());
    let gpu = NvmlGpu {
        address: faults
            .take("PCI address", device.pci_info())
            .and_then(|pci| short(&pci.bus_id)),
        uuid: faults.take("UUID", device.uuid()),
        name: faults.take("name", device.name()),
        serial: faults.take("serial number", device.serial()),
        vbios: faults.take("VBIOS version", device.vbios_version()),
        memory_bytes: memory.as_ref().map(|memory| memory.total),
        memory_used_bytes: memory.as_ref().map(|memory| memory.used),
        utilization_percent: faults
            .take("utilisation", device.utilization_rates())
            .map(|rates| rates.gpu),
        power_mw: faults.take("power", device.power_usage()),
        energy_mj: faults.take("energy", device.total_energy_consumption()),
        temperature_c: faults.take("temperature", device.temperature(TemperatureSensor::Gpu)),
        mig: faults
            .take("MIG mode", device.mig_mode())
            .map(|mode| mode.current == 1),
        persistence: faults.take("persistence mode", device.is_in_persistent_mode()),
        processes: faults
            .take("processes", device.running_compute_processes())
            .map(|processes| {
                processes
                    .into_iter()
                    .map(|process| Process {
                        pid: process.pid,
                        memory_bytes: used(&process.used_gpu_memory),
                    })
                    .collect()
            }),
        faults: Vec::new(),
    };
    NvmlGpu {
        faults: faults.0,
        ..gpu
    }
}

fn used(memory: &UsedGpuMemory) -> Option<u64> {
    match memory {
        UsedGpuMemory::Used(bytes) => Some(*bytes),
        UsedGpuMemory::Unavailable => None,
    }
}

/// NVML writes the domain with eight digits, the kernel with four where they are enough.
fn short(address: &str) -> Option<Address> {
    address.to_ascii_lowercase().parse().ok()
}

/// What could not be asked. That a GPU doesn't have something is no fault.
#[derive(Debug, Default)]
struct Faults(Vec<String>);

impl Faults {
    fn take<T>(&mut self, what: &str, answer: Result<T, NvmlError>) -> Option<T> {
        match answer {
            Ok(value) => Some(value),
            Err(NvmlError::NotSupported) => None,
            Err(error) => {
                self.0.push(format!("{what}: {error}"));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Fault 92: a library that the loader does not find is found where installers put it.
    #[test]
    fn the_library_is_found_where_installers_put_it_and_its_absence_is_told_in_the_loaders_words() {
        const NAME: &str = "libpoolwright-no-nvml.so.1";
        assert!(FOLDERS.contains(&"/usr/local/nvidia/lib64"));
        let folder = tempfile::tempdir().unwrap();
        let folders = [Path::new("/does/not/exist"), folder.path()];
        let absent = Nvml::load_by(NAME, &folders).state();
        assert!(
            matches!(&absent, NvmlState::Absent { why } if why.contains(NAME)),
            "{absent:?}"
        );
        assert!(absent.fault().unwrap().contains("LD_LIBRARY_PATH"), "{absent:?}");

        let library = folder.path().join(NAME);
        std::fs::write(&library, "no library").unwrap();
        let broken = Nvml::load_by(NAME, &folders).state();
        assert!(matches!(broken, NvmlState::Failed { .. }), "{broken:?}");
        assert!(broken.fault().is_some());

        // A stand-in that shows the GPUs of an empty tree.
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(format!("-DROOT=\"{}\"", folder.path().display()))
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/nvml.c"))
            .status();
        assert!(compiled.unwrap().success());
        assert_eq!(Nvml::load_by(NAME, &folders).state(), NvmlState::NoDriver);
        assert_eq!(NvmlState::NotAsked.fault(), None);
    }
}
