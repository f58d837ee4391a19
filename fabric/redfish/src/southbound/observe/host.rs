//! Hosts and their ports: servers that boot, ends of fabrics that lead to a host, and compute blocks.
//!
//! At a BMC a host's port is its adapter, known by its UUID, in a fabric that the BMC can't name. At a fabric
//! manager it is the initiator endpoint, with the same UUID, where there is one.

use super::Seen;
use super::chassis;
use super::fabrics::{EndpointSeen, FabricSeen};
use super::ports::{PortIndex, device_ports};
use super::systems::{self, SystemSeen};
use super::walk::Findings;
use crate::southbound::links;
use poolwright_model::control::{ControlPoint, ControlStyle};
use poolwright_model::fault::FaultKind;
use poolwright_model::id::{ControlEndpointId, FabricId, HostId, HostPortId, SwitchId};
use poolwright_model::topology::{Host, HostPort, PowerState};
use poolwright_model::units::LinkWidth;
use std::collections::{BTreeSet, HashMap};

/// The fabric that stands for a composition service where no switches are shown. Its resource zones stand
/// for switches: what shares a zone can be composed.
pub(crate) fn composition_fabric() -> FabricId {
    FabricId::from_lossy("ResourceBlocks")
}

/// Hosts, and by what they are known here.
pub(crate) struct Hosts {
    pub(crate) hosts: Vec<Host>,
    /// By the address of an initiator endpoint or of a host's block.
    ports: HashMap<String, (HostId, HostPortId)>,
    by_system: HashMap<String, HostId>,
    /// The only server here, where there is just one.
    only: Option<HostId>,
}

impl Hosts {
    pub(crate) fn of(
        endpoint: &ControlEndpointId,
        seen: &Seen,
        index: &PortIndex,
        findings: &mut Findings,
    ) -> Self {
        let mut hosts = Self {
            hosts: Vec::new(),
            ports: HashMap::new(),
            by_system: HashMap::new(),
            only: None,
        };
        hosts.add_servers(endpoint, seen);
        for fabric in &seen.fabrics {
            for initiator in fabric.endpoints.iter().filter(|endpoint| endpoint.is_initiator) {
                hosts.add_initiator(endpoint, seen, fabric, initiator, index, findings);
            }
        }
        hosts.add_blocks(endpoint, seen);
        hosts.add_adapters(seen);
        hosts
    }

    /// The host and port at an initiator endpoint or a host's block.
    pub(crate) fn port_at(&self, path: &str) -> Option<&(HostId, HostPortId)> {
        self.ports.get(path)
    }

    /// Whether a system is not listed as a host.
    pub(crate) fn leaves_out_any(&self, systems: &[SystemSeen]) -> bool {
        systems
            .iter()
            .any(|system| !self.by_system.contains_key(&system.path))
    }

    /// The host that is a system. What a baseboard sees belongs to the only server that there is.
    pub(crate) fn of_system(&self, path: &str) -> Option<&HostId> {
        self.by_system.get(path).or(self.only.as_ref())
    }

    fn add_servers(&mut self, endpoint: &ControlEndpointId, seen: &Seen) {
        // The controller of a baseboard may go by the UUID of a GPU on it.
        let gpus = seen.gpus.iter().filter_map(|gpu| gpu.uuid.as_deref());
        let gpus: BTreeSet<&str> = gpus.map(|uuid| uuid.trim_start_matches("GPU-")).collect();
        let is_no_gpu = |system: &&SystemSeen| system.uuid.as_deref().is_none_or(|uuid| !gpus.contains(uuid));
        let in_block = |system: &SystemSeen| {
            let blocks = seen
                .composition
                .iter()
                .flat_map(|composition| &composition.blocks);
            blocks.clone().any(|block| {
                block.contains.contains(&system.path) || block.composed_into.contains(&system.path)
            })
        };
        let mut servers: Vec<(&SystemSeen, bool)> = systems::servers(seen.systems.iter().filter(is_no_gpu))
            .into_iter()
            .map(|system| (system, !system.composed && !in_block(system)))
            .collect();
        // What is composed comes last: it is the host that is there already, by another way to show it.
        servers.sort_by_key(|(_, own)| !own);
        for (system, own) in servers {
            let known = self
                .hosts
                .iter()
                .find(|host| !own && system.uuid.is_some() && host.uuid == system.uuid);
            if let Some(host) = known {
                self.by_system.insert(system.path.clone(), host.id.clone());
                continue;
            }
            let id = HostId::from_lossy(links::last_part(&system.path));
            self.by_system.insert(system.path.clone(), id.clone());
            self.hosts.push(Host {
                id,
                name: system.name.clone(),
                power_state: system.power,
                power_restore_policy: system.power_restore_policy,
                ports: Vec::new(),
                uuid: system.uuid.clone(),
                serial: system.serial.clone(),
                model: system.model.clone(),
                bmc: own.then(|| endpoint.clone()),
                seen_by: BTreeSet::from([endpoint.clone()]),
            });
        }
        if let [only] = &self.hosts[..] {
            self.only = Some(only.id.clone());
        }
    }

    fn add_initiator(
        &mut self,
        endpoint: &ControlEndpointId,
        seen: &Seen,
        fabric: &FabricSeen,
        initiator: &EndpointSeen,
        index: &PortIndex,
        findings: &mut Findings,
    ) {
        let system = seen.systems.iter().find(|system| {
            initiator
                .entities
                .iter()
                .any(|path| *path == system.path || links::is_below(path, &system.path))
        });
        let uuid = system
            .and_then(|system| system.uuid.clone())
            .or_else(|| initiator.entity_uuids.first().cloned());
        let id = self.host(
            endpoint,
            system.map(|system| system.path.as_str()),
            uuid,
            &initiator.path,
            &initiator.name,
        );
        let at = index
            .of_endpoint(&initiator.path, &initiator.ports)
            .into_iter()
            .find(|at| at.fabric == fabric.id);
        let control = control_address(fabric, initiator, findings).map(|address| ControlPoint {
            endpoint: endpoint.clone(),
            style: fabric.style(),
            address,
        });
        let port = HostPort {
            id: HostPortId::from_lossy(&format!(
                "{id}:{}:{}",
                fabric.id,
                links::last_part(&initiator.path)
            )),
            fabric: fabric.id.clone(),
            link: at.as_ref().map(|at| index.width(at)).unwrap_or_default(),
            switch: at.as_ref().and_then(|at| at.switch.clone()),
            port: at.and_then(|at| at.port),
            uuid: initiator.uuid.clone(),
            slot: None,
            slots: device_ports(fabric),
            slots_known: false,
            free_window_bytes: None,
            free_buses: None,
            control,
        };
        self.ports
            .insert(initiator.path.clone(), (id.clone(), port.id.clone()));
        self.add_port(&id, port);
    }

    /// A compute block is where a host is bound to. Where a fabric showed the host's port already, it is that
    /// port; else the composition service is the fabric.
    fn add_blocks(&mut self, endpoint: &ControlEndpointId, seen: &Seen) {
        let Some(composition) = seen
            .composition
            .as_ref()
            .filter(|composition| composition.composes)
        else {
            return;
        };
        let processor_blocks = composition
            .blocks
            .iter()
            .filter(|block| !block.is_host && !block.processors.is_empty());
        let slots = u32::try_from(processor_blocks.count()).unwrap_or(u32::MAX);
        for block in composition.blocks.iter().filter(|block| block.is_host) {
            let systems = seen.systems.iter().chain(&seen.inside_blocks);
            let system = block
                .contains
                .iter()
                .chain(&block.composed_into)
                .find_map(|path| systems.clone().find(|system| system.path == *path));
            let id = self.host(
                endpoint,
                system.map(|system| system.path.as_str()),
                system.and_then(|system| system.uuid.clone()),
                &block.path,
                system.map_or(&block.name, |system| &system.name),
            );
            let control = ControlPoint {
                endpoint: endpoint.clone(),
                style: ControlStyle::ResourceBlocks,
                address: block.path.clone(),
            };
            // The port at the system's own end; else one that nothing is bound to in another way.
            let own_end = system
                .iter()
                .flat_map(|system| &system.endpoints)
                .find_map(|end| Some(self.ports.get(end)?.1.clone()));
            let host = self.hosts.iter_mut().find(|host| host.id == id);
            let shown = host.and_then(|host| {
                let free = |port: &&mut HostPort| {
                    port.control.is_none() && own_end.as_ref().is_none_or(|own| *own == port.id)
                };
                host.ports.iter_mut().find(free)
            });
            let port = match shown {
                Some(port) => {
                    port.control = Some(control);
                    port.id.clone()
                }
                None => {
                    let port = block_port(&id, &block.path, &block.zones, slots, control);
                    let port_id = port.id.clone();
                    self.add_port(&id, port);
                    port_id
                }
            };
            self.ports.insert(block.path.clone(), (id, port));
        }
    }

    /// Adapters with hot-plug slots: the host's end of a cable into a fabric.
    fn add_adapters(&mut self, seen: &Seen) {
        for adapter in &seen.chassis {
            let (Some(slots), Some(uuid)) = (adapter.slots, &adapter.uuid) else {
                continue;
            };
            let around = chassis::containers(&seen.chassis, &adapter.path);
            let of_chassis = seen
                .chassis
                .iter()
                .filter(|chassis| around.contains(&chassis.path.as_str()));
            let by_chassis = of_chassis
                .flat_map(|chassis| &chassis.systems)
                .find_map(|path| self.by_system.get(path));
            let by_system = || {
                let system = seen
                    .systems
                    .iter()
                    .find(|system| system.chassis.iter().any(|path| around.contains(&path.as_str())))?;
                self.by_system.get(&system.path)
            };
            let Some(id) = by_chassis.or_else(by_system).or(self.only.as_ref()).cloned() else {
                continue;
            };
            let port = HostPort {
                id: HostPortId::from_lossy(&format!("{id}:{}", links::last_part(&adapter.path))),
                fabric: FabricId::unknown(),
                switch: None,
                port: None,
                uuid: Some(uuid.clone()),
                slot: None,
                slots: slots.all,
                slots_known: true,
                free_window_bytes: None,
                free_buses: None,
                link: LinkWidth::default(),
                control: None,
            };
            self.add_port(&id, port);
        }
    }

    /// The host by its system, else by its UUID, else a new one that only this end tells of.
    fn host(
        &mut self,
        endpoint: &ControlEndpointId,
        system: Option<&str>,
        uuid: Option<String>,
        path: &str,
        name: &str,
    ) -> HostId {
        let by_system = system.and_then(|path| self.by_system.get(path));
        let by_uuid = || {
            self.hosts
                .iter()
                .find(|host| uuid.is_some() && host.uuid == uuid)
                .map(|host| &host.id)
        };
        if let Some(id) = by_system.or_else(by_uuid) {
            return id.clone();
        }
        let id = match &uuid {
            Some(uuid) => HostId::from_lossy(&format!("host-{uuid}")),
            None => HostId::from_lossy(path),
        };
        self.hosts.push(Host {
            id: id.clone(),
            name: name.to_owned(),
            power_state: PowerState::Unknown,
            power_restore_policy: None,
            ports: Vec::new(),
            uuid,
            serial: None,
            model: None,
            bmc: None,
            seen_by: BTreeSet::from([endpoint.clone()]),
        });
        id
    }

    fn add_port(&mut self, id: &HostId, port: HostPort) {
        if let Some(host) = self.hosts.iter_mut().find(|host| host.id == *id) {
            host.ports.push(port);
        }
    }
}

fn block_port(host: &HostId, block: &str, zones: &[String], slots: u32, control: ControlPoint) -> HostPort {
    HostPort {
        id: HostPortId::from_lossy(&format!("{host}:{}", links::last_part(block))),
        fabric: composition_fabric(),
        switch: zones
            .first()
            .map(|zone| SwitchId::from_lossy(links::last_part(zone))),
        port: None,
        uuid: None,
        slot: None,
        slots,
        slots_known: false,
        free_window_bytes: None,
        free_buses: None,
        link: LinkWidth::default(),
        control: Some(control),
    }
}

/// Where GPUs are bound to a host's end: its zone, or the end itself. A zone of several hosts is no place to
/// bind to: both would own what is put there.
fn control_address(fabric: &FabricSeen, initiator: &EndpointSeen, findings: &mut Findings) -> Option<String> {
    match fabric.style() {
        ControlStyle::Connections => Some(initiator.path.clone()),
        ControlStyle::Zones => {
            let holds = |path: &&str| *path == initiator.path;
            let mut zones = fabric.zones.iter().filter(|zone| {
                zone.is_of_endpoints && zone.endpoints.iter().any(|path| holds(&path.as_str()))
            });
            let zone = zones.next()?;
            if zones.next().is_some() {
                let message =
                    "this host's end is in several zones: it can't be told which one it is bound by";
                findings.fault(&initiator.path, FaultKind::Conflict, message);
                return None;
            }
            if fabric.initiators_of(zone).count() > 1 {
                let message = "several hosts are in this zone: what is put into it would have several owners";
                findings.fault(&zone.path, FaultKind::Conflict, message);
                return None;
            }
            Some(zone.path.clone())
        }
        ControlStyle::ResourceBlocks | ControlStyle::ReadOnly => None,
    }
}
