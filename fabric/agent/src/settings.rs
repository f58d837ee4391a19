//! What a GPU is set to through its driver: set, read back, and set back.
//!
//! Invariants: nothing is set on another GPU than the one that is meant, and that one is known by its UUID; where nobody can
//! tell whether it is there, that is an error, and never taken for its having gone.

use poolwright_pcie::{Address, ComputeMode, Machine, Nvml, NvmlState, Setting};
use std::path::Path;
use std::time::{Duration, Instant};

/// The NVIDIA driver may take so long to show a GPU that came back.
const DRIVER: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(100);

/// Whether what a GPU is set to holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    Now,
    AfterReset,
}

/// Sets one thing, and reads it back.
pub(crate) fn set(nvml: &Nvml, gpu: Address, wanted: Setting) -> Result<Holds, String> {
    nvml.set(gpu, wanted)?;
    match nvml.setting(gpu, wanted)? {
        Some(set) if set.next == wanted && set.now == wanted => Ok(Holds::Now),
        Some(set) if set.next == wanted => Ok(Holds::AfterReset),
        Some(set) => Err(format!("{wanted}: {gpu} took it, and is {}", set.next)),
        None => Err(format!("{wanted}: {gpu} took it, and does not say what it is")),
    }
}

/// Sets one thing back, wherever the GPU is now; `None` where it has gone, and took its settings along.
pub(crate) fn set_back(
    root: &Path,
    nvml: &Nvml,
    (gpu, uuid): (Address, Option<&str>),
    was: Setting,
) -> Result<Option<Holds>, String> {
    let Some(gpu) = whereabouts(root, nvml, gpu, uuid)? else {
        return Ok(None);
    };
    match nvml.setting(gpu, was)? {
        Some(set) if set.next == was && set.now == was => Ok(Some(Holds::Now)),
        Some(set) if set.next == was => Ok(Some(Holds::AfterReset)),
        _ => set(nvml, gpu, was).map(Some),
    }
}

/// What a GPU is set to, or will be after its next reset, as far as it offers and tells that: what it does not tell keeps it
/// on no host. How long the driver stays with it is no part of it.
pub(crate) fn all(nvml: &Nvml, gpu: Address) -> Vec<Setting> {
    let kinds = [
        Setting::Ecc(false),
        Setting::Mig(false),
        Setting::ComputeMode(ComputeMode::Default),
        Setting::PowerLimit(0),
    ];
    let told = |like| nvml.setting(gpu, like).ok().flatten();
    kinds.into_iter().filter_map(told).map(|set| set.next).collect()
}

/// Tells the driver something as soon as it has a GPU again: it needs a while for one that came back.
pub(crate) fn once_shown<T>(
    nvml: &dyn Fn() -> Nvml,
    tell: impl Fn(&Nvml) -> Result<T, String>,
) -> Result<T, String> {
    let until = Instant::now() + DRIVER;
    loop {
        match tell(&nvml()) {
            Err(_) if Instant::now() < until => std::thread::park_timeout(PAUSE),
            told => return told,
        }
    }
}

/// Where the GPU with this UUID is that was at `before`; `None` where it has gone.
fn whereabouts(
    root: &Path,
    nvml: &Nvml,
    before: Address,
    uuid: Option<&str>,
) -> Result<Option<Address>, String> {
    let something_is_there = Machine::at(root).has(before);
    let known = match nvml.gpus() {
        Ok(known) => known,
        Err(NvmlState::Failed { why }) => {
            return Err(format!(
                "the driver of {before} can't be asked whether it is there: {why}"
            ));
        }
        Err(_) if something_is_there => return Err(format!("{before} is there, and no driver shows it")),
        Err(_) => return Ok(None),
    };
    let it = known
        .iter()
        .find(|gpu| gpu.uuid.is_some() && gpu.uuid.as_deref() == uuid);
    if let Some(address) = it.and_then(|gpu| gpu.address) {
        return Ok(Some(address));
    }
    let may_be_it = |at: Option<Address>| at.is_none_or(|at| at == before);
    if let Some(nameless) = known
        .iter()
        .find(|gpu| gpu.uuid.is_none() && may_be_it(gpu.address))
    {
        return Err(format!(
            "a GPU that may be {before} has no UUID: {}",
            nameless.faults.join("; ")
        ));
    }
    match something_is_there && !known.iter().any(|gpu| gpu.address == Some(before)) {
        true => Err(format!("{before} is there, and its driver doesn't show it")),
        false => Ok(None),
    }
}
