//! What an endpoint shows, in the model's words.

use super::address;
use crate::rack::{BoxIx, GPU_FIRMWARE, Gpu as RackGpu, GpuIx, Home, HostIx, PortIx, Rack};
use crate::resources::pcie_devices;
use crate::state::{HostPower, State};
use jiff::Timestamp;
use poolwright_driver::ControlPoint;
use poolwright_model::composable::{Composability, WhyNotKind};
use poolwright_model::id::{
    ChassisId, ControlEndpointId, FabricId, GpuId, HostId, HostPortId, PortId, SwitchId, UnitId,
};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::{
    Fabric, FabricPort, Gpu, Health, Host, HostPort, Link, Locator, PciFunction, PortRole,
    PowerRestorePolicy, PowerState, Switch, SwitchPort, Topology, Unit,
};
use std::collections::BTreeSet;

/// Each box has one, and calls it so.
const FABRIC: &str = "PCIe";

/// What a box shows: its GPUs, its fabric, and the far ends of its cables.
pub(super) fn of_box(state: &State, at: BoxIx, endpoint: &ControlEndpointId) -> Topology {
    let look = Look {
        state,
        rack: state.rack(),
        endpoint,
    };
    let rack = look.rack;
    let gpus: Vec<Gpu> = rack
        .gpus_of_box(at)
        .filter(|&gpu| state.present(gpu))
        .map(|gpu| look.gpu_in_box(at, gpu))
        .collect();
    let hosts: BTreeSet<HostIx> = rack[at].ports.iter().map(|&port| rack[port].host).collect();
    let switches = (0..rack[at].switches.len()).map(|switch| look.switch(at, switch));
    let cables = rack[at].cables.iter().map(|&(a, b)| Link {
        fabric: FabricId::from_lossy(FABRIC),
        a: look.cable_end(at, a, b),
        b: look.cable_end(at, b, a),
    });
    let mut topology = Topology {
        units: gpus
            .iter()
            .map(|gpu| Unit {
                id: gpu.unit.clone(),
                gpus: vec![gpu.id.clone()],
            })
            .collect(),
        hosts: hosts.into_iter().map(|host| look.far_host(at, host)).collect(),
        fabrics: vec![look.fabric(at, gpus.len())],
        switches: switches.collect(),
        links: cables.collect(),
        device_ports: Vec::new(),
        chassis: Vec::new(),
        gpus,
    };
    topology.sort();
    topology
}

/// What a host's BMC shows: the host, its adapters' slots, and the GPUs that it sees just now.
pub(super) fn of_host(state: &State, at: HostIx, endpoint: &ControlEndpointId, now: Timestamp) -> Topology {
    let look = Look {
        state,
        rack: state.rack(),
        endpoint,
    };
    let gpus: Vec<Gpu> = state
        .gpus_of_host(at, now)
        .into_iter()
        .map(|gpu| look.gpu_on_host(at, gpu))
        .collect();
    let mut units: Vec<Unit> = Vec::new();
    for gpu in &gpus {
        match units.iter_mut().find(|unit| unit.id == gpu.unit) {
            Some(unit) => unit.gpus.push(gpu.id.clone()),
            None => units.push(Unit {
                id: gpu.unit.clone(),
                gpus: vec![gpu.id.clone()],
            }),
        }
    }
    let mut topology = Topology {
        hosts: vec![look.own_host(at)],
        gpus,
        units,
        ..Topology::default()
    };
    topology.sort();
    topology
}

struct Look<'a> {
    state: &'a State,
    rack: &'a Rack,
    endpoint: &'a ControlEndpointId,
}

impl Look<'_> {
    fn control(&self, address: String) -> ControlPoint {
        ControlPoint {
            endpoint: self.endpoint.clone(),
            style: address::style(self.rack),
            address,
        }
    }

    fn gpu(&self, own: &RackGpu, id: &str, knows_uuid: bool) -> Gpu {
        let functions = (0..pcie_devices::functions(own)).map(|number| PciFunction {
            number,
            class: Some(
                pcie_devices::class_code(own, number)
                    .trim_start_matches("0x")
                    .to_owned(),
            ),
            ids: own.kind.pci_ids.first().filter(|_| number == 0).cloned(),
        });
        Gpu {
            id: GpuId::from_lossy(id),
            vendor: Some(own.kind.vendor.clone()),
            model: Some(own.kind.display_name().to_owned()),
            memory_bytes: Some(own.kind.memory()),
            uuid: knows_uuid.then(|| format!("GPU-{}", own.uuid)),
            serial: Some(own.serial.clone()),
            pcie_serial: None,
            pci_ids: own.kind.pci_ids.first().cloned(),
            profile: None,
            chassis: None,
            slot: None,
            functions: functions.collect(),
            partitions: Vec::new(),
            ports: Vec::new(),
            unit: UnitId::from_lossy(id),
            composability: Composability::YES,
            host: None,
            host_port: None,
            state: GpuState::Free,
            health: Health::Ok,
            firmware: Some(GPU_FIRMWARE.to_owned()),
            locator: None,
            link: own.link,
            control: Vec::new(),
            seen_by: BTreeSet::from([self.endpoint.clone()]),
        }
    }

    fn gpu_in_box(&self, at: BoxIx, gpu: GpuIx) -> Gpu {
        let own = &self.rack[gpu];
        let options = &self.rack.options;
        let mut seen = self.gpu(
            own,
            &self.rack[self.state.label(gpu)].name,
            options.processors && options.box_knows_uuid,
        );
        if !options.processors {
            seen.memory_bytes = None;
        }
        seen.chassis = Some(ChassisId::from_lossy(&self.rack[at].name));
        seen.slot = Some(format!("Slot {}", own.slot));
        seen.locator = options.locators.then(|| Locator {
            endpoint: self.endpoint.clone(),
            address: address::light(self.rack, self.state.label(gpu)),
            lit: self.state.lit(gpu),
            serial: Some(own.serial.clone()),
        });
        if let Home::Box(_, switch) = own.home {
            let index = self.rack[at].switches[switch]
                .gpus
                .iter()
                .position(|other| *other == gpu);
            seen.ports = vec![FabricPort {
                fabric: FabricId::from_lossy(FABRIC),
                switch: Some(self.switch_id(at, switch)),
                port: index.map(|index| PortId::from_lossy(&format!("D{}", index + 1))),
            }];
        }
        seen.control = vec![self.control(address::of_gpu(self.rack, self.state.label(gpu)))];
        if let Some(port) = self.state.bound_to(gpu) {
            seen.host = Some(self.host_id(self.rack[port].host));
            seen.host_port = Some(self.port_id(port));
            seen.state = GpuState::Bound;
        }
        seen
    }

    fn gpu_on_host(&self, at: HostIx, gpu: GpuIx) -> Gpu {
        let own = &self.rack[gpu];
        let id = format!("{}-{}", self.rack[at].name, own.serial);
        let mut seen = self.gpu(own, &id, true);
        seen.host = Some(self.host_id(at));
        seen.state = GpuState::Attached;
        match (own.home, self.state.binding(gpu)) {
            (Home::Host(_), _) => {
                seen.unit = UnitId::from_lossy("baseboard");
                seen.slot = Some(format!("Module {}", own.slot));
                let count = self.rack[at].soldered.len();
                let detail = format!("on the baseboard of {} with {count} GPUs", self.rack[at].name);
                seen.composability = Composability::no(WhyNotKind::Soldered, detail);
            }
            (Home::Box(..), Some(binding)) => seen.slot = Some(format!("Slot {}", binding.slot)),
            (Home::Box(..), None) => {}
        }
        seen
    }

    fn host_id(&self, host: HostIx) -> HostId {
        HostId::from_lossy(&format!("host-{}", self.rack[host].uuid))
    }

    fn port_id(&self, port: PortIx) -> HostPortId {
        HostPortId::from_lossy(&format!("port-{}", self.rack[port].uuid))
    }

    fn switch_id(&self, at: BoxIx, switch: usize) -> SwitchId {
        SwitchId::from_lossy(&self.rack[at].switches[switch].name)
    }

    /// A host as a box knows it: by the UUIDs at the far end of the cable.
    fn far_host(&self, at: BoxIx, host: HostIx) -> Host {
        let ports = self.rack[at]
            .ports
            .iter()
            .copied()
            .filter(|&port| self.rack[port].host == host);
        Host {
            id: self.host_id(host),
            name: format!("host {}", self.rack[host].uuid),
            power_state: PowerState::Unknown,
            power_restore_policy: None,
            ports: ports.map(|port| self.far_port(at, port)).collect(),
            uuid: Some(self.rack[host].uuid.to_string()),
            serial: None,
            model: None,
            bmc: None,
            seen_by: BTreeSet::from([self.endpoint.clone()]),
        }
    }

    fn far_port(&self, at: BoxIx, port: PortIx) -> HostPort {
        let own = &self.rack[port];
        let switch = &self.rack[at].switches[own.switch];
        let index = switch.hosts.iter().position(|other| *other == port);
        HostPort {
            id: self.port_id(port),
            fabric: FabricId::from_lossy(FABRIC),
            switch: Some(self.switch_id(at, own.switch)),
            port: index.map(|index| PortId::from_lossy(&format!("U{}", index + 1))),
            uuid: Some(own.uuid.to_string()),
            slot: None,
            slots: u32::try_from(self.rack[at].gpus.len()).unwrap_or(u32::MAX),
            slots_known: false,
            free_window_bytes: None,
            free_buses: None,
            link: self.rack[at].host_link,
            control: Some(self.control(address::of_port(self.rack, port))),
        }
    }

    /// A host as it knows itself.
    fn own_host(&self, at: HostIx) -> Host {
        let own = &self.rack[at];
        let ports = self.rack.ports_of_host(at).map(|port| HostPort {
            id: self.port_id(port),
            fabric: FabricId::unknown(),
            switch: None,
            port: None,
            uuid: Some(self.rack[port].uuid.to_string()),
            slot: None,
            slots: self.rack[port].slots,
            slots_known: true,
            free_window_bytes: None,
            free_buses: None,
            link: self.rack[self.rack[port].gpu_box].host_link,
            control: None,
        });
        Host {
            id: self.host_id(at),
            name: own.name.clone(),
            power_state: match self.state.power(at) {
                HostPower::On => PowerState::On,
                HostPower::Off => PowerState::Off,
            },
            power_restore_policy: Some(PowerRestorePolicy::LastState),
            ports: ports.collect(),
            uuid: Some(own.uuid.to_string()),
            serial: Some(own.serial.clone()),
            model: Some(own.model.clone()),
            bmc: Some(self.endpoint.clone()),
            seen_by: BTreeSet::from([self.endpoint.clone()]),
        }
    }

    fn fabric(&self, at: BoxIx, gpus: usize) -> Fabric {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let own = &self.rack[at];
        let ports = own
            .switches
            .iter()
            .map(|s| s.hosts.len() + s.gpus.len() + s.switches.len())
            .sum();
        let bound = self
            .rack
            .gpus_of_box(at)
            .filter(|&gpu| self.state.bound_to(gpu).is_some())
            .count();
        let (zones, connections) = match self.rack.style {
            crate::rack::Style::Zones => (own.ports.len(), 0),
            crate::rack::Style::Connections => (0, bound),
            crate::rack::Style::ResourceBlocks => (0, 0),
        };
        Fabric {
            id: FabricId::from_lossy(FABRIC),
            kind: "PCIe".to_owned(),
            control: address::style(self.rack),
            switches: count(own.switches.len()),
            ports: count(ports),
            endpoints: count(own.ports.len() + gpus),
            zones: count(zones),
            connections: count(connections),
            endpoint: Some(self.endpoint.clone()),
        }
    }

    fn switch(&self, at: BoxIx, switch: usize) -> Switch {
        let own = &self.rack[at].switches[switch];
        let numbered = |letter: char, number: usize, role, link, up| SwitchPort {
            id: PortId::from_lossy(&format!("{letter}{}", number + 1)),
            role,
            link,
            up: Some(up),
        };
        let hosts = own.hosts.iter().enumerate().map(|(number, port)| {
            let on = self.state.power(self.rack[*port].host) == HostPower::On;
            numbered('U', number, PortRole::Upstream, self.rack[at].host_link, on)
        });
        let gpus = own.gpus.iter().enumerate().map(|(number, gpu)| {
            numbered(
                'D',
                number,
                PortRole::Downstream,
                self.rack[*gpu].link,
                self.state.present(*gpu),
            )
        });
        let switches = (0..own.switches.len()).map(|number| {
            numbered(
                'I',
                number,
                PortRole::Interswitch,
                self.rack[at].switch_link,
                true,
            )
        });
        Switch {
            id: self.switch_id(at, switch),
            name: Some(format!("PCIe {}", own.name)),
            fabric: FabricId::from_lossy(FABRIC),
            model: Some("Emulated PCIe switch".to_owned()),
            chassis: Some(ChassisId::from_lossy(&self.rack[at].name)),
            ports: hosts.chain(gpus).chain(switches).collect(),
        }
    }

    fn cable_end(&self, at: BoxIx, switch: usize, other: usize) -> (SwitchId, Option<PortId>) {
        let index = self.rack[at].switches[switch]
            .switches
            .iter()
            .position(|far| *far == other);
        let port = index.map(|index| PortId::from_lossy(&format!("I{}", index + 1)));
        (self.switch_id(at, switch), port)
    }
}
