//! The rack without a wire: the driver's two traits straight on the truth, for deterministic simulation.
//!
//! Times and faults are those of the rack, as over HTTPS. With a [`ManualClock`](crate::clock::ManualClock) a
//! call returns when the clock has been moved far enough, and never before. A fault names the request that the
//! call would have been over Redfish: a bind in style zones is a `PATCH` of the zone, a look at everything a
//! `GET` of `/redfish/v1`. What only an agent on the host can do has made-up addresses: `/agent/holders`,
//! `/agent/drain`, `/agent/undrain`.

mod address;
mod call;
mod fabric;
mod host;
mod observe;

use crate::emulation::Emulation;
use crate::resources::Service;
use poolwright_driver::{ControlPoint, Fabric, HostSide};
use std::sync::Arc;

/// A rack's drivers.
#[derive(Clone)]
pub struct InProcess {
    /// One for each box, then one for each BMC, which shows its host and binds nothing.
    pub endpoints: Vec<Arc<dyn Fabric>>,
    /// One for each host: its BMC and an agent in one. It can tell holders, and drains.
    pub hosts: Vec<Arc<dyn HostSide>>,
}

/// Drivers that work on the truth itself.
pub fn in_process(emulation: &Arc<Emulation>) -> InProcess {
    let rack = emulation.rack();
    let endpoint = |service| -> Arc<dyn Fabric> {
        Arc::new(fabric::InProcessFabric {
            line: call::Line::new(emulation, service),
            service,
        })
    };
    let host = |at| -> Arc<dyn HostSide> {
        Arc::new(host::InProcessHost {
            line: call::Line::new(emulation, Service::Bmc(at)),
            at,
        })
    };
    InProcess {
        endpoints: Service::all(rack).map(endpoint).collect(),
        hosts: rack.host_ixs().map(host).collect(),
    }
}

/// The serial number of the GPU that is at an address of a box just now.
pub fn serial_at(emulation: &Emulation, unit: &ControlPoint) -> Option<String> {
    let rack = emulation.rack();
    let of_box = rack.box_named(unit.endpoint.as_str())?;
    let label = address::gpu_at(rack, of_box, &unit.address)?;
    let gpu = emulation.with(|state, _| state.labelled(label));
    Some(rack[gpu].serial.clone())
}

#[cfg(test)]
mod tests;
