//! Chassis: a box with its slots; a server, its adapter cards with theirs, its baseboard.

use super::document::{
    collection, enabled, lanes, link, links, part_location, pcie_type, status, without_nulls,
};
use super::resource::{Writing, uri};
use super::{
    Done, Resource, Service, View, composition, fabrics, managers, pcie_devices, processors, switches,
    systems,
};
use crate::rack::{BoxIx, GpuIx, HostIx, PortIx, Style};
use poolwright_model::units::LinkWidth;
use poolwright_redfish_model::{Chassis, ChassisCollection, PCIeSlots};
use serde_json::{Value, json};

/// What a server's baseboard with soldered GPUs is called.
const BASEBOARD: &str = "baseboard";

pub(crate) fn find(view: &View<'_>, path: &[&str]) -> Option<Resource> {
    let [id, rest @ ..] = path else {
        return Some(Resource::of(all(view)));
    };
    match (view.service, *id) {
        (Service::Box(at), id) if id == view.rack[at].name => in_box(view, at, rest),
        (Service::Bmc(at), "1") => in_server(view, at, rest),
        (Service::Bmc(at), BASEBOARD) if !view.rack[at].soldered.is_empty() && rest.is_empty() => {
            Some(Resource::of(baseboard(view, at)))
        }
        (Service::Bmc(at), id) => {
            let port = view
                .rack
                .ports_of_host(at)
                .find(|&port| adapter_id(view, port) == id)?;
            match rest {
                [] => Some(Resource::of(adapter(view, port))),
                ["PCIeSlots"] => Some(Resource::of(adapter_slots(view, port))),
                _ => None,
            }
        }
        _ => None,
    }
}

fn in_box(view: &View<'_>, at: BoxIx, path: &[&str]) -> Option<Resource> {
    match path {
        [] => Some(Resource::of(gpu_box(view, at))),
        ["Processors", rest @ ..] if view.rack.options.processors => processors::find_gpu(view, rest),
        ["PCIeDevices", rest @ ..] => pcie_devices::find(view, rest),
        ["PCIeSlots"] => {
            let resource = Resource::of(box_slots(view, at));
            Some(match has_locator(view) {
                true => resource.patch(PCIeSlots::SCHEMA, &["/Slots"], move |writing| {
                    light_slots(writing, at);
                    Ok(Done::Quietly)
                }),
                false => resource,
            })
        }
        _ => None,
    }
}

fn in_server(view: &View<'_>, at: HostIx, path: &[&str]) -> Option<Resource> {
    match path {
        [] => Some(Resource::of(server(view, at))),
        ["PCIeDevices", rest @ ..] => pcie_devices::find(view, rest),
        _ => None,
    }
}

pub(crate) fn chassis_uri(id: &str) -> String {
    uri(format_args!("Chassis/{id}"))
}

fn adapter_id(view: &View<'_>, port: PortIx) -> String {
    format!("adapter-{}", view.rack[port].number)
}

fn all(view: &View<'_>) -> Value {
    let mut members = vec![view.main_chassis().to_owned()];
    if let Service::Bmc(at) = view.service {
        members.extend(view.rack.ports_of_host(at).map(|port| adapter_id(view, port)));
        if !view.rack[at].soldered.is_empty() {
            members.push(BASEBOARD.to_owned());
        }
    }
    let members = members.iter().map(|id| chassis_uri(id));
    collection(uri("Chassis"), ChassisCollection::ODATA_TYPE, "Chassis", members)
}

fn gpu_box(view: &View<'_>, at: BoxIx) -> Value {
    let own = &view.rack[at];
    let here = chassis_uri(&own.name);
    let mut links_of_box = json!({
        "ManagedBy": [link(managers::own_uri(view))],
        "ManagersInChassis": [link(managers::own_uri(view))],
        "Switches": links((0..own.switches.len()).map(|switch| switches::switch_uri(view.rack, at, switch))),
    });
    if view.rack.options.processors {
        links_of_box["Processors"] = links(view.gpus().into_iter().map(|gpu| view.processor_uri(gpu)));
    }
    if view.rack.style == Style::ResourceBlocks {
        links_of_box["ResourceBlocks"] = links(composition::block_uris(view, at));
    }
    let mut chassis = json!({
        "@odata.id": here,
        "@odata.type": Chassis::ODATA_TYPE,
        "Id": own.name,
        "Name": format!("GPU box {}", own.name),
        "ChassisType": "Expansion",
        "Manufacturer": own.manufacturer,
        "Model": own.model,
        "SerialNumber": own.serial,
        "UUID": own.uuid,
        "PowerState": "On",
        "Status": enabled(),
        "PCIeDevices": link(format!("{here}/PCIeDevices")),
        "PCIeSlots": link(format!("{here}/PCIeSlots")),
        "Links": links_of_box,
    });
    if view.rack.options.processors {
        chassis["Processors"] = link(format!("{here}/Processors"));
    }
    chassis
}

fn box_slots(view: &View<'_>, at: BoxIx) -> Value {
    let own = &view.rack[at];
    let slots = view.rack.gpus_of_box(at).map(|gpu| {
        let plugged = view.state.present(gpu).then_some(gpu);
        let mut slot = slot(view, view.rack[gpu].slot, own.gpu_link, plugged);
        if has_locator(view) {
            slot["LocationIndicatorActive"] = json!(view.state.lit(gpu));
        }
        slot
    });
    pcie_slots(&chassis_uri(&own.name), slots.collect())
}

/// A box has a light at each slot, where its rack has such; a host shows none.
pub(crate) fn has_locator(view: &View<'_>) -> bool {
    view.rack.options.locators && matches!(view.service, Service::Box(_))
}

/// The body names the slots in their order; one of which it says nothing stays as it is.
fn light_slots(writing: &mut Writing<'_>, at: BoxIx) {
    let slots = writing.body.get("Slots").and_then(Value::as_array);
    for (gpu, slot) in writing.rack.gpus_of_box(at).zip(slots.into_iter().flatten()) {
        if let Some(lit) = slot.get("LocationIndicatorActive").and_then(Value::as_bool) {
            writing.state.set_lit(gpu, lit);
        }
    }
}

fn server(view: &View<'_>, at: HostIx) -> Value {
    let host = &view.rack[at];
    let here = chassis_uri("1");
    let adapters = view
        .rack
        .ports_of_host(at)
        .map(|port| chassis_uri(&adapter_id(view, port)));
    let board = (!host.soldered.is_empty()).then(|| chassis_uri(BASEBOARD));
    json!({
        "@odata.id": here,
        "@odata.type": Chassis::ODATA_TYPE,
        "Id": "1",
        "Name": format!("Chassis of {}", host.name),
        "ChassisType": "RackMount",
        "Manufacturer": host.manufacturer,
        "Model": host.model,
        "SerialNumber": host.serial,
        "PowerState": systems::power_state(view, at),
        "Status": enabled(),
        "PCIeDevices": link(format!("{here}/PCIeDevices")),
        "Links": {
            "ComputerSystems": [link(systems::system_uri("1"))],
            "ManagedBy": [link(managers::own_uri(view))],
            "ManagersInChassis": [link(managers::own_uri(view))],
            "Contains": links(adapters.chain(board)),
        },
    })
}

fn adapter(view: &View<'_>, port: PortIx) -> Value {
    let own = &view.rack[port];
    let id = adapter_id(view, port);
    let here = chassis_uri(&id);
    json!({
        "@odata.id": here,
        "@odata.type": Chassis::ODATA_TYPE,
        "Id": id,
        "Name": format!("Host adapter {}", own.number),
        "ChassisType": "Module",
        "Manufacturer": view.rack[own.host].manufacturer,
        "Model": "Emulated host adapter",
        "UUID": own.uuid,
        "Status": enabled(),
        "PCIeSlots": link(format!("{here}/PCIeSlots")),
        "Links": {
            "ComputerSystems": [link(systems::system_uri("1"))],
            "ManagedBy": [link(managers::own_uri(view))],
            "ContainedBy": link(chassis_uri("1")),
        },
    })
}

/// The slots behind an adapter. A GPU is seen in one as soon as the host has enumerated it.
fn adapter_slots(view: &View<'_>, port: PortIx) -> Value {
    let own = &view.rack[port];
    let seen: Vec<(u32, GpuIx)> = view
        .state
        .at_port(port)
        .filter(|&gpu| view.state.seen_by_host(gpu, view.now))
        .filter_map(|gpu| view.state.binding(gpu).map(|binding| (binding.slot, gpu)))
        .collect();
    let slots = (1..=own.slots).map(|number| {
        let plugged = seen.iter().find(|(slot, _)| *slot == number).map(|(_, gpu)| *gpu);
        slot(view, number as usize, view.rack[own.gpu_box].host_link, plugged)
    });
    pcie_slots(&chassis_uri(&adapter_id(view, port)), slots.collect())
}

fn pcie_slots(chassis: &str, slots: Vec<Value>) -> Value {
    json!({
        "@odata.id": format!("{chassis}/PCIeSlots"),
        "@odata.type": PCIeSlots::ODATA_TYPE,
        "Id": "PCIeSlots",
        "Name": "Slots",
        "Slots": slots,
    })
}

fn slot(view: &View<'_>, number: usize, width: LinkWidth, plugged: Option<GpuIx>) -> Value {
    let mut slot = without_nulls(json!({
        "PCIeType": pcie_type(width),
        "Lanes": lanes(width),
        "SlotType": "FullLength",
        "HotPluggable": true,
        "Location": part_location("Slot", number),
    }));
    match plugged {
        None => slot["Status"] = json!({ "State": "Absent" }),
        Some(gpu) => {
            slot["Status"] = status("Enabled");
            slot["Links"] = json!({ "PCIeDevice": [link(view.device_uri(gpu))] });
        }
    }
    slot
}

fn baseboard(view: &View<'_>, at: HostIx) -> Value {
    let host = &view.rack[at];
    let soldered = host.soldered.clone().map(GpuIx);
    let seen = soldered.filter(|&gpu| view.state.seen_by_host(gpu, view.now));
    json!({
        "@odata.id": chassis_uri(BASEBOARD),
        "@odata.type": Chassis::ODATA_TYPE,
        "Id": BASEBOARD,
        "Name": "GPU baseboard",
        "ChassisType": "Module",
        "Manufacturer": host.manufacturer,
        "Model": "Emulated GPU baseboard",
        "HotPluggable": false,
        "Status": enabled(),
        "Links": {
            "ComputerSystems": [link(systems::system_uri("1"))],
            "ManagedBy": [link(managers::own_uri(view))],
            "ContainedBy": link(chassis_uri("1")),
            "Processors": links(seen.map(|gpu| view.processor_uri(gpu))),
        },
    })
}

/// The chassis that shows a GPU: the box, the server's baseboard, or the server.
pub(crate) fn of_gpu(view: &View<'_>, gpu: GpuIx) -> String {
    match view.service {
        Service::Bmc(at) if view.rack[at].soldered.contains(&gpu.0) => chassis_uri(BASEBOARD),
        _ => chassis_uri(view.main_chassis()),
    }
}

/// The fabric of a box.
pub(crate) fn fabric_of(view: &View<'_>) -> Option<String> {
    matches!(view.service, Service::Box(_)).then(fabrics::fabric_uri)
}
