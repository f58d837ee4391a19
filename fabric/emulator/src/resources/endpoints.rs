//! Endpoints of a fabric: a GPU is a target, a host's port an initiator.

use super::document::{collection, enabled, link, links, without_nulls};
use super::{Resource, View, connections, fabrics, pcie_devices, switches, zones};
use crate::rack::{BoxIx, GpuIx, Home, PortIx, Rack, Style};
use poolwright_redfish_model::{Endpoint, EndpointCollection};
use serde_json::{Value, json};

pub(crate) fn find(view: &View<'_>, at: BoxIx, path: &[&str]) -> Option<Resource> {
    match path {
        [] => {
            let hosts = view.rack[at].ports.iter().map(|port| host_uri(view.rack, *port));
            let gpus = view
                .gpus()
                .into_iter()
                .map(|gpu| gpu_uri(view.rack, view.label(gpu)));
            let here = fabrics::below_uri("Endpoints");
            let all = collection(
                here,
                EndpointCollection::ODATA_TYPE,
                "Endpoints",
                hosts.chain(gpus),
            );
            Some(Resource::of(all))
        }
        [id] => match port_with_id(view.rack, at, id) {
            Some(port) => Some(Resource::of(host(view, port))),
            None => view.gpu_with_id(id).map(|gpu| Resource::of(of_gpu(view, gpu))),
        },
        _ => None,
    }
}

/// `host-1-port-1`: names whatever is one for each host port.
pub(crate) fn port_id(rack: &Rack, port: PortIx) -> String {
    format!("{}-port-{}", rack[rack[port].host].name, rack[port].number)
}

/// The other way round than [`port_id`], among the ports of a box.
pub(crate) fn port_with_id(rack: &Rack, at: BoxIx, id: &str) -> Option<PortIx> {
    rack[at]
        .ports
        .iter()
        .copied()
        .find(|port| port_id(rack, *port) == id)
}

pub(crate) fn gpu_uri(rack: &Rack, gpu: GpuIx) -> String {
    fabrics::below_uri(format_args!("Endpoints/{}", rack[gpu].name))
}

pub(crate) fn host_uri(rack: &Rack, port: PortIx) -> String {
    fabrics::below_uri(format_args!("Endpoints/{}", port_id(rack, port)))
}

/// The GPU whose endpoint is at this address.
pub(crate) fn gpu_at(view: &View<'_>, uri: &str) -> Option<GpuIx> {
    view.gpu_with_id(uri.strip_prefix(&fabrics::below_uri("Endpoints/"))?)
}

/// The host port whose endpoint is at this address.
pub(crate) fn port_at(rack: &Rack, at: BoxIx, uri: &str) -> Option<PortIx> {
    port_with_id(rack, at, uri.strip_prefix(&fabrics::below_uri("Endpoints/"))?)
}

fn of_gpu(view: &View<'_>, gpu: GpuIx) -> Value {
    let own = &view.rack[gpu];
    let port = match own.home {
        Home::Box(at, switch) => switches::gpu_port_uri(view.rack, at, switch, gpu),
        Home::Host(_) => None,
    };
    let ids = own.kind.pci_ids.first();
    let hex = |id: &String| format!("0x{}", id.to_uppercase());
    let (kind, entity) = match view.rack.options.processors {
        true => ("Processor", view.processor_uri(gpu)),
        false => ("DisplayController", view.device_uri(gpu)),
    };
    json!({
        "@odata.id": gpu_uri(view.rack, view.label(gpu)),
        "@odata.type": Endpoint::ODATA_TYPE,
        "Id": view.rack[view.label(gpu)].name,
        "Name": format!("GPU {}", own.slot),
        "EndpointProtocol": "PCIe",
        "ConnectedEntities": [{
            "EntityType": kind,
            "EntityRole": "Target",
            "EntityLink": link(entity),
            "EntityPciId": without_nulls(json!({
                "ClassCode": pcie_devices::class_code(own, 0),
                "VendorId": ids.map(|ids| hex(&ids.vendor)),
                "DeviceId": ids.map(|ids| hex(&ids.device)),
                "FunctionNumber": 0,
            })),
        }],
        "Status": enabled(),
        "Links": links_of(view, port, view.state.bound_to(gpu), Some(gpu)),
    })
}

fn host(view: &View<'_>, port: PortIx) -> Value {
    let own = &view.rack[port];
    let host = &view.rack[own.host];
    json!({
        "@odata.id": host_uri(view.rack, port),
        "@odata.type": Endpoint::ODATA_TYPE,
        "Id": port_id(view.rack, port),
        "Name": format!("{}, port {}", host.name, own.number),
        "EndpointProtocol": "PCIe",
        "Identifiers": [{ "DurableNameFormat": "UUID", "DurableName": own.uuid }],
        "ConnectedEntities": [{
            "EntityType": "RootComplex",
            "EntityRole": "Initiator",
            "Identifiers": [{ "DurableNameFormat": "UUID", "DurableName": host.uuid }],
        }],
        "Status": enabled(),
        "Links": links_of(view, switches::host_port_uri(view.rack, port), Some(port), None),
    })
}

/// The switch port, and the zone or the connections that an endpoint is in. `of` is the GPU if it is one's.
fn links_of(view: &View<'_>, switch_port: Option<String>, bound: Option<PortIx>, of: Option<GpuIx>) -> Value {
    let mut all = json!({ "ConnectedPorts": links(switch_port) });
    match view.rack.style {
        Style::Zones => all["Zones"] = links(bound.map(|port| zones::zone_uri(view.rack, port))),
        Style::Connections => {
            let gpus: Vec<GpuIx> = match (bound, of) {
                (None, _) => Vec::new(),
                (Some(_), Some(gpu)) => vec![gpu],
                (Some(port), None) => view.state.at_port(port).collect(),
            };
            let port = bound.into_iter();
            let uris = port.flat_map(|port| gpus.iter().map(move |gpu| (port, *gpu)));
            let uris = uris.map(|(port, gpu)| connections::connection_uri(view.rack, port, gpu));
            all["Connections"] = links(uris);
        }
        Style::ResourceBlocks => {}
    }
    all
}
