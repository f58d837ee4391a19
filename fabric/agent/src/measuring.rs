//! The telemetry of each GPU of a host: raw readings, taken once. A client computes a rate from two of them.
//!
//! A link has two ends, and each counts the errors that it receives: only the port above a GPU counts the bad frames of
//! that GPU. Both counts are summed under a name that identifies the ends and their start: the boot of the host, and
//! the hotplug of each function. A function that does not answer is not read.

use crate::answers::link_seen;
use crate::host;
use crate::sight::{Device, Sight};
use poolwright_driver::{Counted, Reading};
use poolwright_pcie::{Function, Machine};
use std::path::Path;

/// All GPUs of the host below a root that have a name.
pub(crate) fn readings(root: &Path, sight: &Sight) -> Vec<Reading> {
    let boot = host::identity(root).boot_id.unwrap_or_default();
    let machine = Machine::at(root);
    let gpus = sight.gpus();
    let named = gpus.iter().filter(|device| !device.names().is_empty());
    let reading = |device: &Device<'_>| {
        let function = device.gpu();
        let driver = device.driver_says;
        Reading {
            address: device.address().to_string(),
            slot: device.slot.map(|slot| slot.name.clone()),
            known_as: device.names(),
            link: function.link.map(link_seen),
            best_link: function.best_link.map(link_seen),
            correctable: correctable(&machine, &boot, sight, function),
            memory_bytes: driver.and_then(|says| says.memory_bytes),
            memory_used_bytes: driver.and_then(|says| says.memory_used_bytes),
            utilization_percent: driver.and_then(|says| says.utilization_percent),
            power_mw: driver.and_then(|says| says.power_mw),
            energy_mj: driver.and_then(|says| says.energy_mj),
            temperature_c: driver.and_then(|says| says.temperature_c),
        }
    };
    named.map(reading).collect()
}

/// Errors that were put right on the link of a function, at both of its ends.
fn correctable(machine: &Machine, boot: &str, sight: &Sight, function: &Function) -> Option<Counted> {
    if function.answers == Some(false) {
        return None;
    }
    let (mut sum, mut since) = (None, boot.to_owned());
    for end in [Some(function), sight.port_above(function)].into_iter().flatten() {
        let counted = end.errors.and_then(|errors| errors.correctable);
        if let Some(count) = counted.filter(|_| end.answers != Some(false)) {
            sum = Some(sum.unwrap_or(0_u64).saturating_add(count));
            let came = machine.arrival(end.address).unwrap_or_default();
            since.push_str(&format!("/{}@{came}", end.address));
        }
    }
    sum.map(|count| Counted { count, since })
}
