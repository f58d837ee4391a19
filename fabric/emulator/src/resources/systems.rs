//! Systems: a host at its BMC; at a box in style resource blocks, the systems composed there.

use super::document::{ROOT, collection, enabled, link, links};
use super::resource::{Writing, uri};
use super::{Done, Problem, Resource, Service, View, chassis, composition, endpoints, managers, processors};
use crate::rack::{BoxIx, HostIx, PortIx, Style};
use crate::state::{Course, HostPower};
use poolwright_redfish_model::{ComputerSystem, ComputerSystemCollection};
use serde_json::{Value, json};

/// An annotation's type, which is in no resource's schema.
const CAPABILITIES_TYPE: &str = "#CollectionCapabilities.v1_4_1.CollectionCapabilities";
const RESET: &str = "ComputerSystem.Reset";
const RESET_TYPES: [&str; 5] = [
    "On",
    "ForceOff",
    "GracefulShutdown",
    "ForceRestart",
    "GracefulRestart",
];
const ADD: &str = "ComputerSystem.AddResourceBlock";
const REMOVE: &str = "ComputerSystem.RemoveResourceBlock";

pub(crate) fn find(view: &View<'_>, path: &[&str]) -> Option<Resource> {
    match view.service {
        Service::Bmc(host) => on_bmc(view, host, path),
        Service::Box(at) if view.rack.style == Style::ResourceBlocks => composed(view, at, path),
        Service::Box(_) => None,
    }
}

fn on_bmc(view: &View<'_>, host: HostIx, path: &[&str]) -> Option<Resource> {
    match path {
        [] => {
            let all = collection(
                uri("Systems"),
                ComputerSystemCollection::ODATA_TYPE,
                "Systems",
                [system_uri("1")],
            );
            Some(Resource::of(all))
        }
        ["1"] => Some(Resource::of(physical(view, host))),
        ["1", "Processors", rest @ ..] => processors::find_on_host(view, host, rest),
        ["1", "Actions", RESET] => Some(Resource::action(ComputerSystem::SCHEMA, RESET, move |writing| {
            reset(writing, host)
        })),
        _ => None,
    }
}

fn composed(view: &View<'_>, at: BoxIx, path: &[&str]) -> Option<Resource> {
    let [id, rest @ ..] = path else {
        let all = Resource::of(composed_systems(view, at));
        return Some(all.post(ComputerSystem::SCHEMA, move |writing| {
            composition::compose(writing, at)
        }));
    };
    if (*id, rest) == ("Capabilities", &[]) {
        return Some(Resource::of(capabilities()));
    }
    let port = endpoints::port_with_id(view.rack, at, id).filter(|port| view.state.composed(*port))?;
    let actions = view.rack.options.block_actions;
    match rest {
        [] => Some(
            Resource::of(one(view, port))
                .patch(
                    ComputerSystem::SCHEMA,
                    &["/Links/ResourceBlocks"],
                    move |writing| composition::set_blocks(writing, port),
                )
                .delete(move |writing| composition::decompose(writing, port)),
        ),
        ["Actions", ADD] if actions => Some(Resource::action(ComputerSystem::SCHEMA, ADD, move |writing| {
            composition::add_block(writing, port, ADD)
        })),
        ["Actions", REMOVE] if actions => {
            Some(Resource::action(ComputerSystem::SCHEMA, REMOVE, move |writing| {
                composition::remove_block(writing, port, REMOVE)
            }))
        }
        _ => None,
    }
}

pub(crate) fn system_uri(id: &str) -> String {
    format!("{ROOT}/Systems/{id}")
}

/// The system composed around a host port.
pub(crate) fn composed_uri(view: &View<'_>, port: PortIx) -> String {
    system_uri(&endpoints::port_id(view.rack, port))
}

pub(crate) fn power_state(view: &View<'_>, host: HostIx) -> &'static str {
    match view.state.power(host) {
        HostPower::On => "On",
        HostPower::Off => "Off",
    }
}

fn physical(view: &View<'_>, at: HostIx) -> Value {
    let host = &view.rack[at];
    let here = system_uri("1");
    json!({
        "@odata.id": here,
        "@odata.type": ComputerSystem::ODATA_TYPE,
        "Id": "1",
        "Name": format!("System of {}", host.name),
        "SystemType": "Physical",
        "HostName": host.name,
        "Manufacturer": host.manufacturer,
        "Model": host.model,
        "SerialNumber": host.serial,
        "UUID": host.uuid,
        "PowerState": power_state(view, at),
        "PowerRestorePolicy": "LastState",
        "Status": enabled(),
        "Processors": link(format!("{here}/Processors")),
        "PCIeDevices": links(view.gpus().into_iter().map(|gpu| view.device_uri(gpu))),
        "Links": {
            "Chassis": [link(chassis::chassis_uri("1"))],
            "ManagedBy": [link(managers::own_uri(view))],
        },
        "Actions": { format!("#{RESET}"): {
            "target": format!("{here}/Actions/{RESET}"),
            "ResetType@Redfish.AllowableValues": RESET_TYPES,
        } },
    })
}

fn reset(writing: &mut Writing<'_>, host: HostIx) -> Result<Done, Problem> {
    let kind = writing
        .body
        .get("ResetType")
        .and_then(Value::as_str)
        .unwrap_or("On");
    if matches!(writing.course, Course::NoEffect | Course::Never) {
        return Ok(Done::Quietly);
    }
    match kind {
        "On" => writing.state.set_power(host, HostPower::On, writing.now),
        "ForceOff" | "GracefulShutdown" => writing.state.set_power(host, HostPower::Off, writing.now),
        "ForceRestart" | "GracefulRestart" => writing.state.restart(host, writing.now),
        other => {
            return Err(Problem::bad(
                "ActionParameterValueNotInList",
                &[other, "ResetType", RESET],
            ));
        }
    }
    Ok(Done::Quietly)
}

fn composed_systems(view: &View<'_>, at: BoxIx) -> Value {
    let ports = view.rack[at]
        .ports
        .iter()
        .copied()
        .filter(|port| view.state.composed(*port));
    let members = ports.map(|port| composed_uri(view, port));
    let mut all = collection(
        uri("Systems"),
        ComputerSystemCollection::ODATA_TYPE,
        "Composed systems",
        members,
    );
    all["@Redfish.CollectionCapabilities"] = json!({
        "@odata.type": CAPABILITIES_TYPE,
        "Capabilities": [{
            "UseCase": "ComputerSystemComposition",
            "CapabilitiesObject": link(system_uri("Capabilities")),
            "Links": {
                "TargetCollection": link(uri("Systems")),
                "RelatedItem": [link(composition::zone_uri())],
            },
        }],
    });
    all
}

/// What a request to compose must and may hold.
fn capabilities() -> Value {
    json!({
        "@odata.id": system_uri("Capabilities"),
        "@odata.type": ComputerSystem::ODATA_TYPE,
        "Id": "Capabilities",
        "Name": "Capabilities of the collection",
        "Name@Redfish.RequiredOnCreate": true,
        "Name@Redfish.SetOnlyOnCreate": true,
        "Links@Redfish.RequiredOnCreate": true,
        "Links": {
            "ResourceBlocks@Redfish.RequiredOnCreate": true,
            "ResourceBlocks@Redfish.UpdatableAfterCreate": true,
        },
        "@Redfish.ResourceBlockLimits": { "MinCompute": 1, "MaxCompute": 1 },
    })
}

fn one(view: &View<'_>, port: PortIx) -> Value {
    let host_ix = view.rack[port].host;
    let host = &view.rack[host_ix];
    let here = composed_uri(view, port);
    let gpus = view
        .state
        .at_port(port)
        .map(|gpu| composition::gpu_block_uri(view.rack, view.label(gpu)));
    let blocks = [composition::host_block_uri(view.rack, port)]
        .into_iter()
        .chain(gpus);
    let mut system = json!({
        "@odata.id": here,
        "@odata.type": ComputerSystem::ODATA_TYPE,
        "Id": endpoints::port_id(view.rack, port),
        "Name": format!("{} with its GPUs", host.name),
        "SystemType": "Composed",
        "HostName": host.name,
        "Manufacturer": host.manufacturer,
        "Model": host.model,
        "SerialNumber": host.serial,
        "UUID": host.uuid,
        "PowerState": power_state(view, host_ix),
        "Status": enabled(),
        "Links": {
            "ResourceBlocks": links(blocks),
            "Endpoints": [link(endpoints::host_uri(view.rack, port))],
            "ManagedBy": [link(managers::own_uri(view))],
        },
    });
    if view.rack.options.block_actions {
        system["Actions"] = json!({
            format!("#{ADD}"): { "target": format!("{here}/Actions/{ADD}") },
            format!("#{REMOVE}"): { "target": format!("{here}/Actions/{REMOVE}") },
        });
    }
    system
}
