//! From what was read to a topology: one GPU where several resources show it, who is bound to whom, what can
//! be moved.

use super::Seen;
use super::bound::Targets;
use super::chassis;
use super::device_ports::DevicePortsSeen;
use super::gpu::{GpuSeen, Owner};
use super::host::{Hosts, composition_fabric};
use super::movable::{Baseboard, composability};
use super::ports::{self, PortIndex};
use super::walk::Findings;
use crate::southbound::{links, quirks};
use poolwright_model::control::{ControlPoint, ControlStyle};
use poolwright_model::fault::FaultKind;
use poolwright_model::id::{ControlEndpointId, GpuId, HostId, HostPortId, SwitchId, UnitId};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::{DevicePorts, Fabric, FabricPort, Gpu, Locator, Topology, Unit};
use poolwright_model::units::LinkWidth;
use std::collections::{BTreeMap, BTreeSet};

/// Puts together what was seen. What doesn't fit together becomes a fault.
pub(crate) fn topology(endpoint: &ControlEndpointId, seen: &Seen, findings: &mut Findings) -> Topology {
    let index = PortIndex::new(&seen.fabrics);
    let hosts = Hosts::of(endpoint, seen, &index, findings);
    if hosts.leaves_out_any(&seen.systems) {
        findings.quirk(quirks::BASEBOARD_AS_SYSTEM);
    }
    let join = Join {
        endpoint,
        seen,
        index: &index,
        hosts: &hosts,
        targets: Targets::of(seen),
    };
    let gpus: Vec<Gpu> = one_each(&seen.gpus)
        .iter()
        .map(|gpu| join.gpu(gpu, findings))
        .collect();
    let mut topology = Topology {
        units: units(&gpus),
        fabrics: join.fabrics(&gpus),
        switches: seen.fabrics.iter().flat_map(ports::switches).collect(),
        links: seen
            .fabrics
            .iter()
            .flat_map(|fabric| ports::cables(fabric, &index))
            .collect(),
        device_ports: seen
            .device_ports
            .iter()
            .map(|seen| device_ports(endpoint, seen))
            .collect(),
        gpus,
        hosts: hosts.hosts,
        chassis: Vec::new(),
    };
    topology.sort();
    topology
}

fn device_ports(endpoint: &ControlEndpointId, seen: &DevicePortsSeen) -> DevicePorts {
    DevicePorts {
        endpoint: endpoint.clone(),
        device: seen.path.trim_start_matches("/redfish/v1/").to_owned(),
        kind: seen.kind,
        ports: u32::try_from(seen.ports).unwrap_or(u32::MAX),
    }
}

/// Joins the sightings of each GPU. A GPU of a resource block is the GPU of a chassis on the same PCIe device. A GPU of a
/// system is the GPU of a chassis or block that [`same_gpu`] finds. Two GPUs in chassis with one UUID or serial number stay
/// two: the inventory reports the conflict.
fn one_each(gpus: &[GpuSeen]) -> Vec<GpuSeen> {
    let of = |owned: fn(&Owner) -> bool| gpus.iter().filter(move |gpu| owned(&gpu.owner)).cloned();
    let mut result: Vec<GpuSeen> = of(|owner| *owner == Owner::Chassis).collect();
    let in_blocks: Vec<GpuSeen> = of(|owner| *owner == Owner::Block).collect();
    let in_chassis = result.len();
    for gpu in &in_blocks {
        let alone = only(&in_blocks, |other| other.is_on_device_of(gpu)).is_some();
        let twin = only(&result[..in_chassis], |other| other.is_on_device_of(gpu));
        match twin.filter(|_| alone) {
            Some(twin) => result[twin].take_sighting(gpu.clone()),
            None => result.push(gpu.clone()),
        }
    }
    let in_place = result.len();
    for gpu in of(|owner| matches!(owner, Owner::System(_))) {
        match same_gpu(&result[..in_place], &gpu, gpus) {
            Some(same) => result[same].take_sighting(gpu),
            None => result.push(gpu),
        }
    }
    result
}

/// Finds the GPU of a system among those in place: by UUID, else by PCIe device, else by serial number, unless that is the
/// serial number of a board.
fn same_gpu(there: &[GpuSeen], gpu: &GpuSeen, all: &[GpuSeen]) -> Option<usize> {
    let is_of_a_board = all.iter().any(|other| other.is_on_board_of(gpu));
    [
        GpuSeen::has_uuid_of,
        GpuSeen::is_on_device_of,
        GpuSeen::has_serial_of,
    ]
    .into_iter()
    .take(if is_of_a_board { 2 } else { 3 })
    .find_map(|is_same| only(there, |other| is_same(other, gpu)))
}

/// The only GPU that fits; `None` if several do.
fn only(gpus: &[GpuSeen], fits: impl Fn(&GpuSeen) -> bool) -> Option<usize> {
    let mut fitting = gpus.iter().enumerate().filter(|(_, gpu)| fits(gpu));
    let (at, _) = fitting.next()?;
    fitting.next().is_none().then_some(at)
}

struct Join<'a> {
    endpoint: &'a ControlEndpointId,
    seen: &'a Seen,
    index: &'a PortIndex,
    hosts: &'a Hosts,
    targets: Targets<'a>,
}

/// Where a GPU is in fabrics.
#[derive(Default)]
struct Place {
    ports: BTreeSet<FabricPort>,
    control: Vec<ControlPoint>,
    bound: BTreeSet<(HostId, HostPortId)>,
}

impl Join<'_> {
    fn gpu(&self, gpu: &GpuSeen, findings: &mut Findings) -> Gpu {
        let Place {
            ports,
            control,
            bound,
        } = self.place(gpu);
        let id = GpuId::from_lossy(gpu.path.trim_start_matches("/redfish/v1/"));
        let bound_to: Vec<&HostPortId> = bound.iter().map(|(_, port)| port).collect();
        let mut conflict = None;
        if bound.len() > 1 {
            let names: Vec<&str> = bound_to.iter().map(|port| port.as_str()).collect();
            let message = format!("bound to several host ports at once: {}", names.join(", "));
            findings.fault(&gpu.path, FaultKind::Conflict, message.clone());
            conflict = Some(message);
        }
        let (host, host_port, state) = match bound.into_iter().next() {
            Some((host, port)) => (Some(host), Some(port), GpuState::Bound),
            None => match self.seen_on(gpu).filter(|_| control.is_empty()) {
                Some(host) => (Some(host.clone()), None, GpuState::Attached),
                None => (None, None, GpuState::Free),
            },
        };
        let baseboard = Baseboard::of(self.seen, gpu).filter(|_| control.is_empty());
        let unit = match (control.first(), &baseboard) {
            (Some(control), _) => UnitId::from_lossy(&control.address),
            (None, Some(board)) => UnitId::from_lossy(&format!("baseboard {}", board.name)),
            (None, None) => UnitId::from_lossy(id.as_str()),
        };
        note_gaps(gpu, findings);
        let composability = composability(gpu, baseboard.as_ref(), conflict, &control, &ports);
        let width = ports
            .iter()
            .map(|port| self.index.width(port))
            .find(|width| *width != LinkWidth::default());
        Gpu {
            vendor: gpu.vendor.clone(),
            model: gpu.model.clone(),
            memory_bytes: gpu.memory,
            uuid: gpu.uuid.clone(),
            serial: gpu.serial.clone(),
            pcie_serial: None,
            pci_ids: gpu.pci_ids.clone(),
            profile: None,
            chassis: gpu.chassis.as_deref().map(chassis::id),
            slot: gpu.slot.clone(),
            functions: gpu.functions.clone(),
            partitions: gpu.partitions.clone(),
            ports: ports.into_iter().collect(),
            unit,
            composability,
            host,
            host_port,
            state,
            health: gpu.health,
            firmware: gpu.firmware.clone(),
            locator: gpu.locator.clone().map(|light| Locator {
                endpoint: self.endpoint.clone(),
                address: light.path,
                lit: light.lit,
                serial: light.serial,
            }),
            link: LinkWidth {
                generation: gpu.link.generation.or(width.and_then(|width| width.generation)),
                lanes: gpu.link.lanes.or(width.and_then(|width| width.lanes)),
            },
            control,
            seen_by: BTreeSet::from([self.endpoint.clone()]),
            id,
        }
    }

    fn place(&self, gpu: &GpuSeen) -> Place {
        let mut place = Place::default();
        let point = |style, address: &str| ControlPoint {
            endpoint: self.endpoint.clone(),
            style,
            address: address.to_owned(),
        };
        for (fabric, end) in self.targets.ends(gpu) {
            let ports = self.index.of_endpoint(&end.path, &end.ports);
            if ports.is_empty() {
                place.ports.insert(FabricPort {
                    fabric: fabric.id.clone(),
                    switch: None,
                    port: None,
                });
            }
            place.ports.extend(ports);
            let style = fabric.style();
            if style != ControlStyle::ReadOnly {
                place.control.push(point(style, &end.path));
            }
            place.bound.extend(
                self.targets
                    .hosts_of_end(end)
                    .filter_map(|path| self.hosts.port_at(path).cloned()),
            );
        }
        place
            .ports
            .extend(gpu.ports.iter().filter_map(|path| self.index.port(path)));
        for address in std::iter::once(&gpu.path).chain(&gpu.aliases) {
            place.ports.extend(self.index.of_device(address));
        }
        let blocks = self.targets.blocks(gpu);
        for block in &blocks {
            place
                .control
                .push(point(ControlStyle::ResourceBlocks, &block.path));
            place.bound.extend(
                self.targets
                    .hosts_of_block(block)
                    .filter_map(|path| self.hosts.port_at(path).cloned()),
            );
        }
        if place.ports.is_empty() && !blocks.is_empty() {
            let port = |switch| FabricPort {
                fabric: composition_fabric(),
                switch,
                port: None,
            };
            let zones = blocks.iter().flat_map(|block| &block.zones);
            place
                .ports
                .extend(zones.map(|zone| port(Some(SwitchId::from_lossy(links::last_part(zone))))));
            if place.ports.is_empty() {
                place.ports.insert(port(None));
            }
        }
        place
    }

    /// The host that sees it, by the host's own word or because it sits in the host's chassis.
    fn seen_on(&self, gpu: &GpuSeen) -> Option<&HostId> {
        if let Owner::System(system) = &gpu.owner {
            return self.hosts.of_system(system);
        }
        let lists = |path: &String| gpu.is_at(path);
        if let Some(system) = self
            .seen
            .systems
            .iter()
            .find(|system| system.devices.iter().any(lists))
        {
            return self.hosts.of_system(&system.path);
        }
        let around = chassis::containers(&self.seen.chassis, gpu.chassis.as_deref()?);
        let chassis = self
            .seen
            .chassis
            .iter()
            .filter(|chassis| around.contains(&chassis.path.as_str()));
        chassis
            .flat_map(|chassis| &chassis.systems)
            .find_map(|system| self.hosts.of_system(system))
    }

    fn fabrics(&self, gpus: &[Gpu]) -> Vec<Fabric> {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let in_blocks = |fabric: &_| {
            gpus.iter().any(|gpu| {
                gpu.ports.iter().any(|port| port.fabric == *fabric)
                    && gpu
                        .control
                        .iter()
                        .any(|control| control.style == ControlStyle::ResourceBlocks)
            })
        };
        let mut fabrics: Vec<Fabric> = Vec::new();
        for seen in &self.seen.fabrics {
            let control = match seen.style() {
                ControlStyle::ReadOnly if in_blocks(&seen.id) => ControlStyle::ResourceBlocks,
                style => style,
            };
            fabrics.push(Fabric {
                id: seen.id.clone(),
                kind: seen.kind.clone(),
                control,
                switches: count(seen.counts.switches),
                ports: count(seen.counts.ports),
                endpoints: count(seen.counts.endpoints),
                zones: count(seen.counts.zones),
                connections: count(seen.counts.connections),
                endpoint: Some(self.endpoint.clone()),
            });
        }
        // Where no fabric is shown, the composition service is one, and its blocks are the ends.
        let composition = self.seen.composition.as_ref().filter(|_| fabrics.is_empty());
        fabrics.extend(composition.map(|composition| Fabric {
            id: composition_fabric(),
            kind: "Composition".into(),
            control: if composition.composes {
                ControlStyle::ResourceBlocks
            } else {
                ControlStyle::ReadOnly
            },
            switches: 0,
            ports: 0,
            endpoints: count(composition.listed),
            zones: count(composition.zones),
            connections: 0,
            endpoint: Some(self.endpoint.clone()),
        }));
        fabrics
    }
}

fn note_gaps(gpu: &GpuSeen, findings: &mut Findings) {
    if gpu.uuid.is_none() && gpu.serial.is_none() {
        findings.fault(
            &gpu.path,
            FaultKind::Incomplete,
            "this GPU has neither UUID nor serial number",
        );
    } else if gpu.memory.is_none() && gpu.model.is_none() && gpu.pci_ids.is_none() {
        findings.fault(
            &gpu.path,
            FaultKind::Incomplete,
            "nothing says how much memory this GPU has",
        );
    }
}

/// What is moved by one control point, or sits on one baseboard, moves together.
fn units(gpus: &[Gpu]) -> Vec<Unit> {
    let mut units: BTreeMap<&UnitId, Vec<GpuId>> = BTreeMap::new();
    for gpu in gpus {
        units.entry(&gpu.unit).or_default().push(gpu.id.clone());
    }
    units
        .into_iter()
        .map(|(id, gpus)| Unit { id: id.clone(), gpus })
        .collect()
}
