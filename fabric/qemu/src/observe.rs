//! The lab in the model's words.

use crate::lab::{self, Host as LabHost, Lab, Port};
use crate::look::{Look, Said};
use poolwright_driver::{Bound, ControlPoint, Observation};
use poolwright_model::composable::{Composability, WhyNotKind};
use poolwright_model::control::ControlStyle;
use poolwright_model::driver_label::DriverLabel;
use poolwright_model::fault::{Fault, FaultKind};
use poolwright_model::id::{ControlEndpointId, FabricId, GpuId, HostId, HostPortId, UnitId};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::{
    Fabric, FabricPort, Gpu, Health, Host, HostPort, PciFunction, PowerState, Topology, Unit,
};
use poolwright_model::units::LinkWidth;
use std::collections::BTreeSet;
use std::path::Path;

/// What a look shows. `file` tells one lab from another.
pub(crate) fn observation(look: &Look<'_>, endpoint: &ControlEndpointId, file: &Path) -> Observation {
    let shown = Shown { look, endpoint };
    let lab = look.lab;
    let gpus: Vec<Gpu> = lab.gpus.iter().map(|gpu| shown.gpu(gpu)).collect();
    let unit = |gpu: &Gpu| Unit {
        id: gpu.unit.clone(),
        gpus: vec![gpu.id.clone()],
    };
    let mut topology = Topology {
        units: gpus.iter().map(unit).collect(),
        gpus,
        hosts: lab
            .hosts
            .iter()
            .zip(&look.said)
            .map(|(host, said)| shown.host(host, said))
            .collect(),
        fabrics: vec![shown.fabric(lab)],
        ..Topology::default()
    };
    topology.sort();
    Observation {
        topology,
        label: shown.label(file),
        faults: shown.faults(),
        requests: u64::try_from(lab.hosts.len()).unwrap_or(u64::MAX),
        ..Observation::default()
    }
}

struct Shown<'a> {
    look: &'a Look<'a>,
    endpoint: &'a ControlEndpointId,
}

impl Shown<'_> {
    /// It is a lab, and not a machine that was proven.
    fn label(&self, file: &Path) -> DriverLabel {
        let version = self.look.said.iter().find_map(|said| match said {
            Said::Plugged { version, .. } => Some(version.clone()),
            _ => None,
        });
        let name = file.as_os_str().as_encoded_bytes();
        DriverLabel {
            vendor: Some("QEMU".to_owned()),
            firmware: version,
            uuid: Some(uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_URL, name).to_string()),
            ..DriverLabel::emulated(Some("lab".to_owned()))
        }
    }

    fn faults(&self) -> Vec<Fault> {
        let all = self.look.lab.hosts.iter().zip(&self.look.said);
        all.filter_map(|(host, said)| {
            let (kind, message) = match said {
                Said::Plugged { .. } => return None,
                Said::Off(why) => (
                    FaultKind::Unreachable,
                    format!("the guest does not run, so nothing is plugged in there: {why}"),
                ),
                Said::Unknown(kind, why) => (*kind, why.clone()),
            };
            Some(Fault::new(
                format!("{} {}", self.endpoint, host.id),
                kind,
                message,
            ))
        })
        .collect()
    }

    fn control(&self, address: String) -> ControlPoint {
        ControlPoint {
            endpoint: self.endpoint.clone(),
            // What joins a host's end and a device's.
            style: ControlStyle::Connections,
            address,
        }
    }

    fn seen_by(&self) -> BTreeSet<ControlEndpointId> {
        BTreeSet::from([self.endpoint.clone()])
    }

    fn host(&self, host: &LabHost, said: &Said) -> Host {
        Host {
            id: HostId::from_lossy(&host.id),
            name: host.id.clone(),
            power_state: match said {
                Said::Plugged { .. } => PowerState::On,
                Said::Off(_) => PowerState::Off,
                Said::Unknown(..) => PowerState::Unknown,
            },
            power_restore_policy: None,
            ports: host.ports.iter().map(|port| self.port(host, port)).collect(),
            uuid: Some(host.uuid.to_string()),
            serial: None,
            model: Some("QEMU guest".to_owned()),
            bmc: None,
            seen_by: self.seen_by(),
        }
    }

    fn port(&self, host: &LabHost, port: &Port) -> HostPort {
        let address = format!("{}/{}", host.id, port.id);
        HostPort {
            id: port_id(&address),
            fabric: fabric_id(),
            switch: None,
            port: None,
            uuid: None,
            slot: port.slot.clone(),
            slots: 1,
            slots_known: true,
            free_window_bytes: None,
            free_buses: None,
            link: LinkWidth::default(),
            control: Some(self.control(address)),
        }
    }

    fn fabric(&self, lab: &Lab) -> Fabric {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let ports: usize = lab.hosts.iter().map(|host| host.ports.len()).sum();
        let joined = lab.gpus.iter().filter(|gpu| {
            let bound = self.look.bound(&gpu.id);
            !matches!(bound, Ok(Bound::Free) | Err(_))
        });
        Fabric {
            id: fabric_id(),
            kind: "PCIe".to_owned(),
            control: ControlStyle::Connections,
            switches: 0,
            ports: count(ports),
            endpoints: count(ports + lab.gpus.len()),
            zones: 0,
            connections: count(joined.count()),
            endpoint: Some(self.endpoint.clone()),
        }
    }

    fn gpu(&self, gpu: &lab::Gpu) -> Gpu {
        let pci_ids = gpu.pci_ids();
        let mut seen = Gpu {
            id: GpuId::from_lossy(&gpu.id),
            vendor: None,
            model: gpu.model.clone(),
            memory_bytes: gpu.memory_bytes(),
            uuid: gpu.uuid.clone(),
            serial: gpu.serial.clone(),
            pcie_serial: None,
            functions: vec![PciFunction {
                number: 0,
                class: None,
                ids: pci_ids.clone(),
            }],
            pci_ids,
            profile: None,
            chassis: None,
            slot: None,
            partitions: Vec::new(),
            ports: vec![FabricPort {
                fabric: fabric_id(),
                switch: None,
                port: None,
            }],
            unit: UnitId::from_lossy(&gpu.id),
            composability: Composability::YES,
            host: None,
            host_port: None,
            state: GpuState::Free,
            health: Health::Ok,
            firmware: None,
            locator: None,
            link: LinkWidth::default(),
            control: vec![self.control(gpu.id.clone())],
            seen_by: self.seen_by(),
        };
        match self.look.bound(&gpu.id) {
            Ok(Bound::Free) => {}
            Ok(Bound::To { port_address }) => {
                let host = port_address.split('/').next().unwrap_or_default();
                seen.host = Some(HostId::from_lossy(host));
                let known = self.look.lab.port(&port_address).is_some();
                seen.host_port = known.then(|| port_id(&port_address));
                seen.state = GpuState::Bound;
            }
            Ok(Bound::Several { port_addresses }) => {
                let message = format!("plugged in at {}", port_addresses.join(" and "));
                seen.composability = Composability::no(WhyNotKind::Conflict, message);
            }
            Err(error) => seen.composability = Composability::no(WhyNotKind::Stale, error.message),
        }
        seen
    }
}

fn fabric_id() -> FabricId {
    FabricId::from_lossy("lab")
}

fn port_id(address: &str) -> HostPortId {
    HostPortId::from_lossy(&address.replace('/', ":"))
}
