//! Switches and their ports: upstream (`U1`) to hosts, downstream (`D1`) to GPUs, `I1` to other switches.

use super::document::{collection, enabled, lanes, link, links, speed_gbps, status, without_nulls};
use super::{Resource, View, chassis, endpoints, fabrics, managers};
use crate::rack::{BoxIx, GpuIx, PortIx, Rack};
use crate::state::HostPower;
use poolwright_model::units::LinkWidth;
use poolwright_redfish_model::{Port, PortCollection, Switch, SwitchCollection};
use serde_json::{Value, json};

/// What is at the other end of a port.
enum Other {
    Host(PortIx),
    Gpu(GpuIx),
    Switch(usize),
}

pub(crate) fn find(view: &View<'_>, at: BoxIx, path: &[&str]) -> Option<Resource> {
    let switches = &view.rack[at].switches;
    let [id, rest @ ..] = path else {
        let members = (0..switches.len()).map(|switch| switch_uri(view.rack, at, switch));
        let here = fabrics::below_uri("Switches");
        return Some(Resource::of(collection(
            here,
            SwitchCollection::ODATA_TYPE,
            "Switches",
            members,
        )));
    };
    let switch = switches.iter().position(|switch| switch.name == *id)?;
    let here = switch_uri(view.rack, at, switch);
    match rest {
        [] => Some(Resource::of(one(view, at, switch))),
        ["Ports"] => {
            let members = port_ids(view, at, switch).map(|id| format!("{here}/Ports/{id}"));
            let all = collection(
                format!("{here}/Ports"),
                PortCollection::ODATA_TYPE,
                "Ports",
                members,
            );
            Some(Resource::of(all))
        }
        ["Ports", id] => {
            let other = other_end(view, at, switch, id)?;
            Some(Resource::of(port(view, at, switch, id, &other)))
        }
        _ => None,
    }
}

pub(crate) fn switch_uri(rack: &Rack, at: BoxIx, switch: usize) -> String {
    fabrics::below_uri(format_args!("Switches/{}", rack[at].switches[switch].name))
}

/// The port that a host's cable goes to.
pub(crate) fn host_port_uri(rack: &Rack, port: PortIx) -> Option<String> {
    let own = &rack[port];
    let index = rack[own.gpu_box].switches[own.switch]
        .hosts
        .iter()
        .position(|other| *other == port)?;
    Some(format!(
        "{}/Ports/U{}",
        switch_uri(rack, own.gpu_box, own.switch),
        index + 1
    ))
}

/// The port that a GPU sits at.
pub(crate) fn gpu_port_uri(rack: &Rack, at: BoxIx, switch: usize, gpu: GpuIx) -> Option<String> {
    let index = rack[at].switches[switch]
        .gpus
        .iter()
        .position(|other| *other == gpu)?;
    Some(format!("{}/Ports/D{}", switch_uri(rack, at, switch), index + 1))
}

fn port_ids(view: &View<'_>, at: BoxIx, switch: usize) -> impl Iterator<Item = String> {
    let own = &view.rack[at].switches[switch];
    let numbered = |letter: char, count: usize| (1..=count).map(move |number| format!("{letter}{number}"));
    numbered('U', own.hosts.len())
        .chain(numbered('D', own.gpus.len()))
        .chain(numbered('I', own.switches.len()))
}

fn other_end(view: &View<'_>, at: BoxIx, switch: usize, id: &str) -> Option<Other> {
    let own = &view.rack[at].switches[switch];
    let (letter, number) = id.split_at_checked(1)?;
    // One way of writing each number, so that no port has two addresses.
    let index = number
        .parse::<usize>()
        .ok()
        .filter(|n| n.to_string() == number)?
        .checked_sub(1)?;
    match letter {
        "U" => own.hosts.get(index).copied().map(Other::Host),
        "D" => own.gpus.get(index).copied().map(Other::Gpu),
        "I" => own.switches.get(index).copied().map(Other::Switch),
        _ => None,
    }
}

fn one(view: &View<'_>, at: BoxIx, switch: usize) -> Value {
    let own = &view.rack[at].switches[switch];
    let here = switch_uri(view.rack, at, switch);
    json!({
        "@odata.id": here,
        "@odata.type": Switch::ODATA_TYPE,
        "Id": own.name,
        "Name": format!("PCIe {}", own.name),
        "SwitchType": "PCIe",
        "SupportedProtocols": ["PCIe"],
        "Manufacturer": view.rack[at].manufacturer,
        "Model": "Emulated PCIe switch",
        "SerialNumber": own.serial,
        "DomainID": switch + 1,
        "PowerState": "On",
        "Status": enabled(),
        "Ports": link(format!("{here}/Ports")),
        "Links": {
            "Chassis": link(chassis::chassis_uri(&view.rack[at].name)),
            "ManagedBy": [link(managers::own_uri(view))],
        },
    })
}

fn port(view: &View<'_>, at: BoxIx, switch: usize, id: &str, other: &Other) -> Value {
    let own = &view.rack[at];
    let (kind, most, width, up, links_of_port) = match other {
        Other::Host(port) => {
            let up = view.state.power(view.rack[*port].host) == HostPower::On;
            let links = json!({ "AssociatedEndpoints": [link(endpoints::host_uri(view.rack, *port))] });
            ("UpstreamPort", own.host_link, own.host_link, up, links)
        }
        Other::Gpu(gpu) => {
            let up = view.state.present(*gpu);
            let endpoint = up.then(|| endpoints::gpu_uri(view.rack, view.label(*gpu)));
            let links = json!({ "AssociatedEndpoints": links(endpoint) });
            ("DownstreamPort", own.gpu_link, view.rack[*gpu].link, up, links)
        }
        Other::Switch(far) => {
            let far_uri = switch_uri(view.rack, at, *far);
            let back = own.switches[*far]
                .switches
                .iter()
                .position(|other| *other == switch);
            let far_port = back.map(|index| format!("{far_uri}/Ports/I{}", index + 1));
            let links =
                json!({ "ConnectedSwitches": [link(far_uri)], "ConnectedSwitchPorts": links(far_port) });
            ("InterswitchPort", own.switch_link, own.switch_link, true, links)
        }
    };
    without_nulls(json!({
        "@odata.id": format!("{}/Ports/{id}", switch_uri(view.rack, at, switch)),
        "@odata.type": Port::ODATA_TYPE,
        "Id": id,
        "Name": format!("Port {id}"),
        "PortId": id,
        "PortProtocol": "PCIe",
        "PortType": kind,
        "CurrentProtocolVersion": up.then(|| protocol_version(width)).flatten(),
        "CurrentSpeedGbps": up.then(|| speed_gbps(width)).flatten(),
        "MaxSpeedGbps": speed_gbps(most),
        "Width": lanes(most),
        "ActiveWidth": up.then(|| lanes(width)).flatten(),
        "LinkState": "Enabled",
        "LinkStatus": if up { "LinkUp" } else { "NoLink" },
        "Status": if up { enabled() } else { status("StandbyOffline") },
        "Links": links_of_port,
    }))
}

/// `5.0`.
fn protocol_version(link: LinkWidth) -> Option<String> {
    link.generation
        .map(|generation| format!("{}.0", generation.number()))
}
