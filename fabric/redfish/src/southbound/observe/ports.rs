//! The switch ports of an endpoint's fabrics, found by what they are connected to.

use super::chassis;
use super::fabrics::FabricSeen;
use super::switches::PortSeen;
use crate::southbound::links;
use poolwright_model::id::{PortId, SwitchId};
use poolwright_model::topology::{FabricPort, Link, PortRole, Switch, SwitchPort};
use poolwright_model::units::LinkWidth;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// All switch ports, by address and by what they lead to.
pub(crate) struct PortIndex {
    ports: HashMap<String, FabricPort>,
    widths: HashMap<FabricPort, LinkWidth>,
    /// By the address of a fabric endpoint or of a device's port: switch ports that name it.
    leading_to: BTreeMap<String, Vec<FabricPort>>,
}

impl PortIndex {
    pub(crate) fn new(fabrics: &[FabricSeen]) -> Self {
        let mut index = Self {
            ports: HashMap::new(),
            widths: HashMap::new(),
            leading_to: BTreeMap::new(),
        };
        for fabric in fabrics {
            for switch in &fabric.switches {
                for port in &switch.ports {
                    let at = FabricPort {
                        fabric: fabric.id.clone(),
                        switch: Some(switch.id.clone()),
                        port: Some(port.id.clone()),
                    };
                    for far in port.endpoints.iter().chain(&port.devices) {
                        index.leading_to.entry(far.clone()).or_default().push(at.clone());
                    }
                    index.widths.insert(at.clone(), port.link);
                    index.ports.insert(port.path.clone(), at);
                }
            }
        }
        index
    }

    /// The ports that a fabric endpoint is connected to, by its own word or by the ports'.
    pub(crate) fn of_endpoint(&self, path: &str, named: &[String]) -> BTreeSet<FabricPort> {
        let own = named.iter().filter_map(|port| self.port(port));
        own.chain(self.leading_to.get(path).into_iter().flatten().cloned())
            .collect()
    }

    /// The ports that lead to a device, or to one of its own ports, which lie below it.
    pub(crate) fn of_device(&self, device: &str) -> BTreeSet<FabricPort> {
        let below = self.leading_to.range(device.to_owned()..);
        below
            .take_while(|(far, _)| far.starts_with(device))
            .filter(|(far, _)| far.as_str() == device || links::is_below(far, device))
            .flat_map(|(_, ports)| ports.iter().cloned())
            .collect()
    }

    pub(crate) fn port(&self, path: &str) -> Option<FabricPort> {
        self.ports.get(path).cloned()
    }

    /// Width and generation of a port that is known.
    pub(crate) fn width(&self, port: &FabricPort) -> LinkWidth {
        self.widths.get(port).copied().unwrap_or_default()
    }
}

/// The switches as the topology has them.
pub(crate) fn switches(fabric: &FabricSeen) -> impl Iterator<Item = Switch> {
    fabric.switches.iter().map(|switch| Switch {
        id: switch.id.clone(),
        name: switch.name.clone(),
        fabric: fabric.id.clone(),
        model: switch.model.clone(),
        chassis: switch.chassis.as_deref().map(chassis::id),
        ports: switch.ports.iter().map(port).collect(),
    })
}

fn port(seen: &PortSeen) -> SwitchPort {
    SwitchPort {
        id: seen.id.clone(),
        role: seen.role,
        link: seen.link,
        up: seen.up,
    }
}

/// How many devices a fabric's switches could feed; where they are not shown, how many ends it has that are
/// no hosts.
pub(crate) fn device_ports(fabric: &FabricSeen) -> u32 {
    let ports = fabric.switches.iter().flat_map(|switch| &switch.ports);
    let down = ports.filter(|port| port.role == PortRole::Downstream).count();
    let count = match down {
        0 => fabric
            .endpoints
            .iter()
            .filter(|endpoint| !endpoint.is_initiator)
            .count(),
        down => down,
    };
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Cables between switches, each once although both ends tell of it.
pub(crate) fn cables(fabric: &FabricSeen, index: &PortIndex) -> Vec<Link> {
    type End = (SwitchId, Option<PortId>);
    let by_path: HashMap<&str, &SwitchId> = fabric
        .switches
        .iter()
        .map(|switch| (switch.path.as_str(), &switch.id))
        .collect();
    let mut cables: BTreeSet<(End, End)> = BTreeSet::new();
    let mut vague: BTreeMap<(SwitchId, SwitchId), (End, End)> = BTreeMap::new();
    for switch in &fabric.switches {
        for port in &switch.ports {
            let here = (switch.id.clone(), Some(port.id.clone()));
            let far_ports = port.switch_ports.iter().filter_map(|path| index.port(path));
            let mut told = false;
            for far in far_ports.filter(|far| far.fabric == fabric.id) {
                let Some(far_switch) = far.switch.filter(|far| *far != switch.id) else {
                    continue;
                };
                told = true;
                cables.insert(ordered(here.clone(), (far_switch, far.port)));
            }
            for far in port.switches.iter().filter_map(|path| by_path.get(path.as_str())) {
                if !told && **far != switch.id {
                    let cable = ordered(here.clone(), ((*far).clone(), None));
                    vague.insert((cable.0.0.clone(), cable.1.0.clone()), cable);
                }
            }
        }
    }
    // A cable of which one end is not known counts only where no known one joins the two.
    let known: BTreeSet<(SwitchId, SwitchId)> =
        cables.iter().map(|(a, b)| (a.0.clone(), b.0.clone())).collect();
    cables.extend(
        vague
            .into_iter()
            .filter(|(pair, _)| !known.contains(pair))
            .map(|(_, cable)| cable),
    );
    cables
        .into_iter()
        .map(|(a, b)| Link {
            fabric: fabric.id.clone(),
            a,
            b,
        })
        .collect()
}

fn ordered<T: Ord>(a: T, b: T) -> (T, T) {
    if a <= b { (a, b) } else { (b, a) }
}

#[cfg(test)]
mod tests {
    use super::super::fabrics::Counts;
    use super::super::switches::SwitchSeen;
    use super::*;
    use poolwright_model::id::FabricId;

    fn port(switch: &str, name: &str, switch_ports: &[&str], switches: &[&str]) -> PortSeen {
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        PortSeen {
            path: format!("/{switch}/{name}"),
            id: PortId::from_lossy(name),
            role: PortRole::Interswitch,
            link: LinkWidth::default(),
            up: None,
            endpoints: vec![],
            devices: vec![],
            switch_ports: owned(switch_ports),
            switches: owned(switches),
        }
    }

    fn cables_of(a: PortSeen, b: PortSeen) -> Vec<Link> {
        let switch = |name: &str, port| SwitchSeen {
            path: format!("/{name}"),
            id: SwitchId::from_lossy(name),
            name: None,
            model: None,
            chassis: None,
            ports: vec![port],
        };
        let fabric = FabricSeen {
            id: FabricId::from_lossy("f"),
            kind: "PCIe".into(),
            switches: vec![switch("a", a), switch("b", b)],
            endpoints: vec![],
            zones: vec![],
            connections: vec![],
            offers_connections: false,
            counts: Counts::default(),
        };
        cables(&fabric, &PortIndex::new(std::slice::from_ref(&fabric)))
    }

    #[test]
    fn a_cable_that_both_ends_tell_of_is_one() {
        let both = cables_of(
            port("a", "1", &["/b/9"], &["/b"]),
            port("b", "9", &["/a/1"], &["/a"]),
        );
        assert_eq!(both.len(), 1);
        assert_eq!(both[0].a.1.as_ref().map(PortId::as_str), Some("1"));
        assert_eq!(both[0].b.1.as_ref().map(PortId::as_str), Some("9"));
        let one = cables_of(port("a", "1", &["/b/9"], &[]), port("b", "9", &[], &["/a"]));
        assert_eq!(one.len(), 1, "{one:?}");
        let vague = cables_of(port("a", "1", &[], &["/b"]), port("b", "9", &[], &["/a"]));
        assert_eq!(vague.len(), 1, "{vague:?}");
    }
}
