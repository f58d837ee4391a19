//! Whether a GPU that came is well, by what its driver and the kernel's log say.

use crate::sight::Device;
use poolwright_pcie::{Log, Nvml, Xid};
use std::path::Path;

/// What was seen; the error says what is wrong with it.
pub(super) fn of(root: &Path, nvml: &Nvml, device: &Device<'_>) -> Result<String, String> {
    let gpu = device.address();
    let Some(says) = device.driver_says else {
        return Ok(format!("{gpu}: no NVIDIA driver to ask for its health"));
    };
    if says.uuid.is_none() {
        return Err(format!("{gpu} is not well: {}", says.faults.join("; ")));
    }
    let mut wrong = nvml
        .wear(gpu)
        .map_err(|why| format!("{gpu} is not well: {why}"))?;
    let logged = Log::read(root);
    if let Ok(logged) = &logged {
        let its = logged.xids().iter().filter(|xid| xid.function == gpu);
        wrong.extend(its.map(|Xid { number, says, .. }| format!("Xid {number}: {says}")));
    }
    match (wrong.is_empty(), logged) {
        (false, _) => Err(format!("{gpu} is not well: {}", wrong.join("; "))),
        (true, Ok(_)) => Ok(format!("{gpu} is well")),
        (true, Err(error)) => Ok(format!(
            "{gpu} is well, as far as its driver says; the kernel's log: {error}"
        )),
    }
}
