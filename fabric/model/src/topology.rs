//! Hosts, switches, links, GPUs and units, and the questions one asks of the graph.
//!
//! What several observers see is told in the same words: a driver's observation and the inventory's
//! snapshot both hold a [`Topology`]. The lists are in the order of their ids, so that two looks at the
//! same hardware compare equal.

use crate::composable::Composability;
use crate::control::{ControlPoint, ControlStyle};
use crate::id::{
    ChassisId, ControlEndpointId, FabricId, GpuId, HostId, HostPortId, PortId, SwitchId, UnitId,
};
use crate::lifecycle::GpuState;
use crate::units::{Bytes, LinkWidth};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Everything that is out there.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Topology {
    pub gpus: Vec<Gpu>,
    pub hosts: Vec<Host>,
    pub fabrics: Vec<Fabric>,
    #[serde(default)]
    pub switches: Vec<Switch>,
    #[serde(default)]
    pub links: Vec<Link>,
    #[serde(default)]
    pub units: Vec<Unit>,
    /// Ports that are no switch's.
    #[serde(default)]
    pub device_ports: Vec<DevicePorts>,
    /// Those that endpoints show GPUs and switches in, once all are joined: a driver tells none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chassis: Vec<Chassis>,
}

/// A GPU with all its functions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gpu {
    pub id: GpuId,
    pub vendor: Option<String>,
    pub model: Option<String>,
    pub memory_bytes: Option<Bytes>,
    /// NVIDIA's form where there is one: `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
    pub uuid: Option<String>,
    pub serial: Option<String>,
    /// PCIe Device Serial Number capability, 16 hexadecimal digits.
    #[serde(default)]
    pub pcie_serial: Option<String>,
    /// Of its first function.
    pub pci_ids: Option<PciIds>,
    /// The hardware profile that it matches.
    #[serde(default)]
    pub profile: Option<String>,
    pub chassis: Option<ChassisId>,
    /// A place in the chassis, never an identity.
    pub slot: Option<String>,
    pub functions: Vec<PciFunction>,
    /// Slices of it, such as MIG instances.
    pub partitions: Vec<Partition>,
    pub ports: Vec<FabricPort>,
    pub unit: UnitId,
    #[serde(flatten)]
    pub composability: Composability,
    /// The host that holds it, as the fabric or the host says.
    pub host: Option<HostId>,
    pub host_port: Option<HostPortId>,
    pub state: GpuState,
    pub health: Health,
    /// The version of its own firmware, as its manager reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// Its locator, if its manager has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locator: Option<Locator>,
    /// Of its own link to the switch.
    #[serde(default)]
    pub link: LinkWidth,
    /// Where it is named at the managers that can bind it; empty where nobody can.
    #[serde(default)]
    pub control: Vec<ControlPoint>,
    /// Who told us.
    #[serde(default)]
    pub seen_by: BTreeSet<ControlEndpointId>,
}

/// The locator LED of a GPU, for a technician at its box.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Locator {
    /// Whom to ask.
    pub endpoint: ControlEndpointId,
    /// The manager's own name of what carries it. Opaque to all but the driver.
    pub address: String,
    /// Whether it was lit at the last look.
    pub lit: bool,
    /// The serial number that what carries it showed then: another one in its place has another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
}

/// PCI ids, four hexadecimal digits each, lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PciIds {
    pub vendor: String,
    pub device: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subsystem_vendor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subsystem: Option<String>,
}

/// One PCIe function of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PciFunction {
    /// 0 to 7.
    pub number: u8,
    /// PCI class code, six hexadecimal digits, such as `030200` (3D controller).
    pub class: Option<String>,
    pub ids: Option<PciIds>,
}

/// A slice of a GPU that software sees as a device of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Partition {
    pub id: String,
    pub memory_bytes: Option<Bytes>,
}

/// A port of a switch in a fabric.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FabricPort {
    pub fabric: FabricId,
    pub switch: Option<SwitchId>,
    pub port: Option<PortId>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Health {
    Ok,
    Warning,
    Critical,
    #[default]
    Unknown,
}

/// A server with upstream ports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Host {
    pub id: HostId,
    /// What people call it: host name, else product and serial number.
    pub name: String,
    pub power_state: PowerState,
    /// `None`: its BMC does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_restore_policy: Option<PowerRestorePolicy>,
    pub ports: Vec<HostPort>,
    /// SMBIOS UUID, lower case.
    #[serde(default)]
    pub uuid: Option<String>,
    #[serde(default)]
    pub serial: Option<String>,
    #[serde(default)]
    pub model: Option<String>,
    /// The BMC that speaks for it.
    #[serde(default)]
    pub bmc: Option<ControlEndpointId>,
    #[serde(default)]
    pub seen_by: BTreeSet<ControlEndpointId>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PowerState {
    On,
    Off,
    PoweringOn,
    PoweringOff,
    #[default]
    Unknown,
}

/// The power state of a host after a power loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PowerRestorePolicy {
    AlwaysOn,
    AlwaysOff,
    /// The state before the power loss.
    LastState,
}

/// An upstream port of a host in one fabric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostPort {
    pub id: HostPortId,
    /// [`FabricId::unknown`] where only the host's end was seen.
    pub fabric: FabricId,
    pub switch: Option<SwitchId>,
    /// The switch's port that the cable goes to.
    #[serde(default)]
    pub port: Option<PortId>,
    /// The durable name under which the fabric and the host both know the adapter, lower case.
    #[serde(default)]
    pub uuid: Option<String>,
    /// What the host's kernel calls its slot, where one port is one slot and the fabric knows its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// How many GPUs it can take: what the host's hot-plug slots hold, else what the switch's device
    /// ports could feed.
    pub slots: u32,
    /// Whether the host itself told of its slots. Else `slots` is what the switch could feed, and the host may
    /// hold fewer.
    #[serde(default)]
    pub slots_known: bool,
    /// Free 64-bit prefetchable window behind it; unknown without something on the host that looks.
    pub free_window_bytes: Option<Bytes>,
    pub free_buses: Option<u32>,
    #[serde(default)]
    pub link: LinkWidth,
    /// Where it is named at its manager; `None` where it can't be bound to.
    #[serde(default)]
    pub control: Option<ControlPoint>,
}

/// Switches and ports that one manager controls. The four numbers count what the manager publishes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fabric {
    pub id: FabricId,
    /// Redfish `FabricType`, such as `PCIe`, `NVLink`.
    pub kind: String,
    pub control: ControlStyle,
    pub switches: u32,
    pub ports: u32,
    pub endpoints: u32,
    pub zones: u32,
    #[serde(default)]
    pub connections: u32,
    #[serde(default)]
    pub endpoint: Option<ControlEndpointId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Switch {
    pub id: SwitchId,
    /// Its name at its manager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub fabric: FabricId,
    pub model: Option<String>,
    pub chassis: Option<ChassisId>,
    pub ports: Vec<SwitchPort>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SwitchPort {
    pub id: PortId,
    pub role: PortRole,
    pub link: LinkWidth,
    pub up: Option<bool>,
}

/// What a switch's port leads to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PortRole {
    /// To a host.
    Upstream,
    /// To a device.
    Downstream,
    /// To another switch.
    Interswitch,
    Management,
    #[default]
    Unknown,
}

/// A cable between two switches.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Link {
    pub fabric: FabricId,
    pub a: (SwitchId, Option<PortId>),
    pub b: (SwitchId, Option<PortId>),
}

/// How many ports a device has that is no switch. Which of a GPU's are cabled to which switch port is told by
/// [`Gpu::ports`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DevicePorts {
    pub endpoint: ControlEndpointId,
    /// What it is called there, such as `Systems/1/Processors/GPU_1`.
    pub device: String,
    pub kind: DeviceKind,
    pub ports: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    Gpu,
    /// Another processor, such as an FPGA.
    Processor,
    NetworkAdapter,
}

/// What GPUs and switches sit in, and who calls it so.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Chassis {
    pub id: ChassisId,
    pub endpoint: ControlEndpointId,
}

/// The smallest set that attaches or detaches together: one GPU with all its functions, or a whole
/// baseboard where GPUs are soldered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unit {
    pub id: UnitId,
    pub gpus: Vec<GpuId>,
}

impl Topology {
    pub fn gpu(&self, id: &GpuId) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.id == *id)
    }

    pub fn host(&self, id: &HostId) -> Option<&Host> {
        self.hosts.iter().find(|host| host.id == *id)
    }

    /// A host port and its host.
    pub fn host_port(&self, id: &HostPortId) -> Option<(&Host, &HostPort)> {
        self.hosts.iter().find_map(|host| {
            host.ports
                .iter()
                .find(|port| port.id == *id)
                .map(|port| (host, port))
        })
    }

    /// The most of these GPUs that one host can have and that are joined: on one switch, in one NVLink fabric, or on one
    /// baseboard. A fabric whose switches are not shown counts as one switch. `None` where nothing is known of what
    /// joins them.
    pub fn largest_island(&self, gpus: &[&Gpu]) -> Option<u32> {
        let is_nvlink = |id: &FabricId| self.fabrics.iter().any(|f| f.id == *id && f.kind == "NVLink");
        let mut on_switches: BTreeMap<(&FabricId, Option<&SwitchId>), BTreeSet<&GpuId>> = BTreeMap::new();
        let mut on_boards: BTreeMap<&UnitId, u32> = BTreeMap::new();
        for gpu in gpus {
            *on_boards.entry(&gpu.unit).or_default() += 1;
            for port in &gpu.ports {
                // Every switch of NVLink joins all of its GPUs.
                let switch = port.switch.as_ref().filter(|_| !is_nvlink(&port.fabric));
                on_switches
                    .entry((&port.fabric, switch))
                    .or_default()
                    .insert(&gpu.id);
            }
        }
        let on_one_host = |(at, joined): (&(&FabricId, Option<&SwitchId>), &BTreeSet<&GpuId>)| {
            let count = u32::try_from(joined.len()).unwrap_or(u32::MAX);
            count.min(self.most_slots_in(at.0).unwrap_or(u32::MAX))
        };
        let switch = on_switches.iter().map(on_one_host).max();
        let board = on_boards.values().copied().max().filter(|gpus| *gpus > 1);
        switch.max(board)
    }

    /// GPUs that some host takes in the fabric; `None` where no host has a port there.
    fn most_slots_in(&self, fabric: &FabricId) -> Option<u32> {
        let of_host = |host: &Host| {
            let there = host.ports.iter().filter(|port| port.fabric == *fabric);
            there.map(|port| port.slots).reduce(u32::saturating_add)
        };
        self.hosts.iter().filter_map(of_host).max()
    }

    /// Puts every list in the order of its ids.
    pub fn sort(&mut self) {
        self.gpus.sort_by(|a, b| a.id.cmp(&b.id));
        self.hosts.sort_by(|a, b| a.id.cmp(&b.id));
        self.fabrics.sort_by(|a, b| a.id.cmp(&b.id));
        self.switches
            .sort_by(|a, b| (&a.fabric, &a.id).cmp(&(&b.fabric, &b.id)));
        self.links.sort();
        self.links.dedup();
        self.units.sort_by(|a, b| a.id.cmp(&b.id));
        self.device_ports.sort();
        self.chassis.sort();
    }

    /// Cables from each switch to its neighbours, to ask [`SwitchGraph::hops`] of.
    pub fn switch_graph(&self) -> SwitchGraph<'_> {
        let mut neighbours: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for Link { fabric, a, b } in &self.links {
            neighbours.entry((fabric, &a.0)).or_default().insert(&b.0);
            neighbours.entry((fabric, &b.0)).or_default().insert(&a.0);
        }
        SwitchGraph { neighbours }
    }
}

/// Which switch is cabled to which, within each fabric.
pub struct SwitchGraph<'a> {
    neighbours: BTreeMap<(&'a FabricId, &'a SwitchId), BTreeSet<&'a SwitchId>>,
}

impl<'a> SwitchGraph<'a> {
    /// Switch-to-switch cables between a host port and a GPU: 0 on the same switch, `None` where
    /// there is no way. A fabric whose switches are not shown counts as one switch.
    pub fn hops(&self, port: &HostPort, gpu: &Gpu) -> Option<u32> {
        gpu.ports
            .iter()
            .filter(|at| at.fabric == port.fabric)
            .filter_map(|at| self.between(port, at))
            .min()
    }

    fn between(&self, port: &HostPort, at: &FabricPort) -> Option<u32> {
        let (Some(from), Some(to)) = (&port.switch, &at.switch) else {
            return Some(0);
        };
        self.distances(&port.fabric, from).get(to).copied()
    }

    /// Switch-to-switch cables from one switch to every one that it reaches in the fabric; 0 to itself.
    pub fn distances<'s>(&'s self, fabric: &'s FabricId, from: &'s SwitchId) -> BTreeMap<&'s SwitchId, u32> {
        let mut distances = BTreeMap::from([(from, 0)]);
        let mut queue = VecDeque::from([(from, 0)]);
        while let Some((switch, hops)) = queue.pop_front() {
            for next in self.neighbours.get(&(fabric, switch)).into_iter().flatten() {
                if !distances.contains_key(*next) {
                    distances.insert(next, hops + 1);
                    queue.push_back((next, hops + 1));
                }
            }
        }
        distances
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// GPUs with the fabric and switch of each, and their units.
    fn gpus(of: &[(&str, Option<&str>, &str)]) -> Vec<Gpu> {
        let gpu = |(index, (fabric, switch, unit)): (usize, &(&str, Option<&str>, &str))| {
            let ports: Value = match *fabric {
                "" => json!([]),
                fabric => json!([{"fabric": fabric, "switch": switch, "port": null}]),
            };
            let gpu = json!({
                "id": format!("gpu-{index}"), "vendor": null, "model": null, "memory_bytes": null, "uuid": null,
                "serial": null, "pci_ids": null, "chassis": null, "slot": null, "functions": [], "partitions": [],
                "ports": ports, "unit": unit, "composable": true, "why_not": null, "host": null, "host_port": null,
                "state": "free", "health": "ok",
            });
            serde_json::from_value(gpu).unwrap()
        };
        of.iter().enumerate().map(gpu).collect()
    }

    fn island(fabric: &str, of: &[(&str, Option<&str>, &str)]) -> Option<u32> {
        island_of(fabric, of, Vec::new())
    }

    fn island_of(fabric: &str, of: &[(&str, Option<&str>, &str)], hosts: Vec<Host>) -> Option<u32> {
        let fabric = json!({
            "id": "f", "kind": fabric, "control": "resource-blocks", "switches": 2, "ports": 0, "endpoints": 0, "zones": 0,
        });
        let topology = Topology {
            fabrics: vec![serde_json::from_value(fabric).unwrap()],
            gpus: gpus(of),
            hosts,
            ..Topology::default()
        };
        topology.largest_island(&topology.gpus.iter().collect::<Vec<_>>())
    }

    #[test]
    fn gpus_are_joined_by_a_switch_by_nvlink_or_by_their_board() {
        let two_switches = [
            ("f", Some("s1"), "u0"),
            ("f", Some("s1"), "u1"),
            ("f", Some("s2"), "u2"),
            ("f", Some("s2"), "u3"),
            ("f", Some("s2"), "u4"),
        ];
        assert_eq!(island("PCIe", &two_switches), Some(3));
        assert_eq!(island("NVLink", &two_switches), Some(5));
        // No host takes more of them in this fabric, whatever it takes in others.
        let port = |fabric: &str, slots: u32| {
            json!({"id": format!("port-{fabric}"), "fabric": fabric, "switch": null, "slots": slots,
                "free_window_bytes": null, "free_buses": null})
        };
        let host =
            json!({"id": "h", "name": "h", "power_state": "on", "ports": [port("f", 2), port("g", 4)]});
        let host: Host = serde_json::from_value(host).unwrap();
        assert_eq!(island_of("PCIe", &two_switches, vec![host]), Some(2));
        let not_shown = [("f", None, "u0"), ("f", None, "u1")];
        assert_eq!(island("PCIe", &not_shown), Some(2));
        // Soldered on a board, behind switches of their own.
        let board = [
            ("f", Some("s1"), "board"),
            ("f", Some("s2"), "board"),
            ("f", Some("s3"), "board"),
        ];
        assert_eq!(island("PCIe", &board), Some(3));
        assert_eq!(island("PCIe", &[("", None, "u0"), ("", None, "u1")]), None);
    }
}
