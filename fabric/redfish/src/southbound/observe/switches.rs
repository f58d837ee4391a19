//! Switches and their ports.

use super::fabrics::{Counts, leaves};
use super::walk::{Members, Walk};
use super::words;
use crate::southbound::{links, quirks};
use futures_util::future::join_all;
use poolwright_model::id::{PortId, SwitchId};
use poolwright_model::topology::PortRole;
use poolwright_model::units::LinkWidth;
use poolwright_redfish_model as redfish;

#[derive(Debug, Clone)]
pub(crate) struct SwitchSeen {
    pub(crate) path: String,
    pub(crate) id: SwitchId,
    pub(crate) name: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) chassis: Option<String>,
    pub(crate) ports: Vec<PortSeen>,
}

#[derive(Debug, Clone)]
pub(crate) struct PortSeen {
    pub(crate) path: String,
    pub(crate) id: PortId,
    pub(crate) role: PortRole,
    pub(crate) link: LinkWidth,
    pub(crate) up: Option<bool>,
    pub(crate) endpoints: Vec<String>,
    /// Ports of devices at the other end.
    pub(crate) devices: Vec<String>,
    pub(crate) switch_ports: Vec<String>,
    pub(crate) switches: Vec<String>,
}

/// All switches of a fabric with their ports, and how many of both are listed.
pub(crate) async fn read_switches(walk: &Walk<'_>, link: Option<&redfish::Ref>) -> (Vec<SwitchSeen>, Counts) {
    let switches = match links::to(link) {
        Some(path) => walk.members::<redfish::Switch>(path).await,
        None => Members::none(),
    };
    let mut counts = Counts {
        switches: switches.listed,
        ..Counts::default()
    };
    let ports = switches
        .read
        .iter()
        .map(|(_, switch)| leaves::<redfish::Port>(walk, switch.ports.as_ref()));
    let ports = join_all(ports).await;
    let mut seen = Vec::with_capacity(switches.read.len());
    for ((path, switch), ports) in switches.read.iter().zip(ports) {
        counts.ports += ports.listed;
        let id = switch.id.as_deref().unwrap_or_else(|| links::last_part(path));
        let chassis = switch.links.as_deref().and_then(|l| l.chassis.as_ref());
        seen.push(SwitchSeen {
            path: path.clone(),
            id: SwitchId::from_lossy(id),
            name: words::said(switch.name.as_deref()),
            model: words::said(switch.model.as_deref()),
            chassis: links::to(chassis).map(str::to_owned),
            ports: ports
                .read
                .iter()
                .map(|(path, port)| PortSeen::of(walk, path, port))
                .collect(),
        });
    }
    (seen, counts)
}

impl PortSeen {
    fn of(walk: &Walk<'_>, path: &str, port: &redfish::Port) -> Self {
        let links = port.links.as_deref();
        let (link, per_lane) = link_width(port);
        if per_lane {
            walk.quirk(quirks::PORT_SPEED_PER_LANE);
        }
        let id = port.id.as_deref().unwrap_or_else(|| links::last_part(path));
        Self {
            path: path.to_owned(),
            id: PortId::from_lossy(id),
            role: role(port.port_type.as_ref()),
            link,
            up: is_up(port),
            endpoints: links::all(links.and_then(|l| l.associated_endpoints.as_ref())),
            devices: links::all(links.and_then(|l| l.connected_ports.as_ref())),
            switch_ports: links::all(links.and_then(|l| l.connected_switch_ports.as_ref())),
            switches: links::all(links.and_then(|l| l.connected_switches.as_ref())),
        }
    }
}

fn role(kind: Option<&redfish::PortType>) -> PortRole {
    use redfish::PortType as Type;
    match kind {
        Some(Type::UpstreamPort) => PortRole::Upstream,
        Some(Type::DownstreamPort) => PortRole::Downstream,
        Some(Type::InterswitchPort) => PortRole::Interswitch,
        Some(Type::ManagementPort) => PortRole::Management,
        _ => PortRole::Unknown,
    }
}

fn is_up(port: &redfish::Port) -> Option<bool> {
    use redfish::PortLinkStatus as Status;
    match port.link_status.as_ref()? {
        Status::LinkUp => Some(true),
        Status::LinkDown | Status::NoLink | Status::Starting | Status::Training => Some(false),
        Status::Unrecognized(_) => None,
    }
}

/// Width and generation of a PCIe port, and whether its speed was that of one lane. The standard's speed is
/// that of the whole port; the two readings never both make sense but on links of 2, 4 and 8 lanes, where the
/// standard's is believed.
fn link_width(port: &redfish::Port) -> (LinkWidth, bool) {
    use redfish::Protocol;
    if !matches!(port.port_protocol, None | Some(Protocol::PCIe | Protocol::CXL)) {
        return (LinkWidth::default(), false);
    }
    let lanes = words::lanes(port.active_width).or_else(|| words::lanes(port.width));
    let speed = port
        .current_speed_gbps
        .as_ref()
        .or(port.max_speed_gbps.as_ref())
        .and_then(|n| n.as_f64());
    let (Some(lanes), Some(speed)) = (lanes, speed) else {
        return (
            LinkWidth {
                generation: None,
                lanes,
            },
            false,
        );
    };
    match words::generation_of_lane(speed / f64::from(lanes.0)) {
        Some(generation) => (
            LinkWidth {
                generation: Some(generation),
                lanes: Some(lanes),
            },
            false,
        ),
        None => {
            let generation = words::generation_of_lane(speed);
            (
                LinkWidth {
                    generation,
                    lanes: Some(lanes),
                },
                generation.is_some(),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn width(json: serde_json::Value) -> (LinkWidth, bool) {
        link_width(&serde_json::from_value(json).unwrap())
    }

    #[test]
    fn a_ports_speed_is_read_in_both_ways() {
        use poolwright_model::units::PcieGeneration::Gen5;
        let whole = json!({"PortProtocol": "PCIe", "CurrentSpeedGbps": 512, "ActiveWidth": 16});
        assert_eq!(width(whole), (LinkWidth::new(Gen5, 16), false));
        let lane = json!({"PortProtocol": "PCIe", "CurrentSpeedGbps": 32, "ActiveWidth": 16});
        assert_eq!(width(lane), (LinkWidth::new(Gen5, 16), true));
        let nvlink = json!({"PortProtocol": "NVLink", "CurrentSpeedGbps": 212.496});
        assert_eq!(width(nvlink), (LinkWidth::default(), false));
    }
}
