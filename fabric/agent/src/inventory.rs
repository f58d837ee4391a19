//! What a host has: itself, its GPUs, and where more could be plugged in.

use crate::host::{self, Identity};
use crate::module::NVIDIA_DRIVER;
use poolwright_pcie::{Fault, Function, Machine, Nvml, NvmlGpu, NvmlState, Port, Slot};
use serde::Serialize;
use std::path::Path;

/// A GPU, as the kernel and its driver see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gpu {
    #[serde(flatten)]
    pub function: Function,
    /// `None`: the driver doesn't know it, or was not asked.
    pub driver_says: Option<NvmlGpu>,
}

/// A host, looked at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Inventory {
    pub host: Identity,
    /// How the NVIDIA driver's library is. That there is none is healthy where there is no GPU.
    pub nvml: NvmlState,
    /// Why the NVIDIA driver could not be asked about the GPUs that it drives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvml_fault: Option<String>,
    /// All functions that are GPUs.
    pub gpus: Vec<Gpu>,
    /// GPUs that the driver's library names and the kernel doesn't, or that it lost: they are nowhere else.
    pub strays: Vec<NvmlGpu>,
    /// What else there is.
    pub others: Vec<Function>,
    pub slots: Vec<Slot>,
    pub ports: Vec<Port>,
    /// What could not be read as what it is.
    pub faults: Vec<Fault>,
}

/// Looks at the host whose `sys` and `proc` lie under a root: `/` for the one that this runs on.
pub fn inventory(root: &Path, nvml: &Nvml) -> Inventory {
    let look = Machine::at(root).look();
    let (gpus, others): (Vec<Function>, Vec<Function>) =
        look.functions.into_iter().partition(Function::is_gpu);
    let (state, mut known) = match nvml.gpus() {
        Ok(known) => (nvml.state(), known),
        Err(state) => (state, Vec::new()),
    };
    let driven: Vec<String> = gpus
        .iter()
        .filter(|gpu| gpu.driver.as_deref() == Some(NVIDIA_DRIVER))
        .map(|gpu| gpu.address.to_string())
        .collect();
    let nvml_fault = state.fault().and_then(|why| match (driven.is_empty(), &state) {
        (false, _) => Some(format!(
            "the NVIDIA driver drives {} and can't be asked: {why}",
            driven.join(", ")
        )),
        (true, NvmlState::Failed { .. }) => Some(format!("the NVIDIA driver can't be asked: {why}")),
        (true, _) => None,
    });
    let gpus = gpus.into_iter().map(|function| {
        let place = known.iter().position(|gpu| gpu.address == Some(function.address));
        let driver_says = place.map(|place| known.swap_remove(place));
        Gpu {
            function,
            driver_says,
        }
    });
    Inventory {
        host: host::identity(root),
        nvml: state,
        nvml_fault,
        gpus: gpus.collect(),
        strays: known,
        others,
        slots: look.slots,
        ports: look.ports,
        faults: look.faults,
    }
}
