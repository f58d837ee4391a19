//! The manager that a service runs on: a box's, or a host's BMC.

use super::document::{collection, enabled, link, links};
use super::resource::{Writing, uri};
use super::{Done, Problem, Resource, Service, View, chassis, switches, systems};
use poolwright_redfish_model::{Manager, ManagerCollection};
use serde_json::{Value, json};

const RESET: &str = "Manager.Reset";
const RESET_TYPES: [&str; 2] = ["ForceRestart", "GracefulRestart"];

pub(crate) fn find(view: &View<'_>, path: &[&str]) -> Option<Resource> {
    match path {
        [] => {
            let all = collection(
                uri("Managers"),
                ManagerCollection::ODATA_TYPE,
                "Managers",
                [own_uri(view)],
            );
            Some(Resource::of(all))
        }
        [id, rest @ ..] if *id == own_id(view) => match rest {
            [] => {
                let resource = Resource::of(manager(view));
                Some(match view.rack.options.owner_mark {
                    true => resource.patch(Manager::SCHEMA, &["/ServiceIdentification"], set_mark),
                    false => resource,
                })
            }
            ["Actions", RESET] => Some(Resource::action(Manager::SCHEMA, RESET, reset)),
            _ => None,
        },
        _ => None,
    }
}

fn own_id(view: &View<'_>) -> &'static str {
    match view.service {
        Service::Box(_) => "manager",
        Service::Bmc(_) => "bmc",
    }
}

pub(crate) fn own_uri(view: &View<'_>) -> String {
    uri(format_args!("Managers/{}", own_id(view)))
}

fn manager(view: &View<'_>) -> Value {
    let here = own_uri(view);
    let chassis_uri = chassis::chassis_uri(view.main_chassis());
    let (kind, name, uuid, mut for_what) = match view.service {
        Service::Box(at) => {
            let own = &view.rack[at];
            let switches = (0..own.switches.len()).map(|switch| switches::switch_uri(view.rack, at, switch));
            let fabrics = links(chassis::fabric_of(view));
            let for_what = json!({ "ManagerForFabrics": fabrics, "ManagerForSwitches": links(switches) });
            ("FabricManager", &own.name, own.uuid, for_what)
        }
        Service::Bmc(at) => {
            let own = &view.rack[at];
            let for_what = json!({ "ManagerForServers": [link(systems::system_uri("1"))] });
            ("BMC", &own.name, own.uuid, for_what)
        }
    };
    for_what["ManagerForChassis"] = json!([link(chassis_uri.clone())]);
    for_what["ManagerInChassis"] = link(chassis_uri);
    let mut manager = json!({
        "@odata.id": here,
        "@odata.type": Manager::ODATA_TYPE,
        "Id": own_id(view),
        "Name": format!("Manager of {name}"),
        "ManagerType": kind,
        "Manufacturer": "Poolwright",
        "Model": "Emulated manager",
        "FirmwareVersion": env!("CARGO_PKG_VERSION"),
        "UUID": view.rack.identity.uuid(&format!("manager {}", view.service.name(view.rack))),
        "ServiceEntryPointUUID": uuid,
        "PowerState": "On",
        "Status": enabled(),
        "Links": for_what,
        "Actions": { format!("#{RESET}"): {
            "target": format!("{here}/Actions/{RESET}"),
            "ResetType@Redfish.AllowableValues": RESET_TYPES,
        } },
    });
    if let Some(mark) = mark(view) {
        manager["ServiceIdentification"] = json!(mark);
    }
    manager
}

/// The owner's mark: empty where nobody has set one; `None` where the service can carry none.
pub(crate) fn mark(view: &View<'_>) -> Option<String> {
    let carries = view.rack.options.owner_mark;
    carries.then(|| {
        view.state
            .mark(&view.service.name(view.rack))
            .unwrap_or_default()
            .to_owned()
    })
}

fn set_mark(writing: &mut Writing<'_>) -> Result<Done, Problem> {
    // The body was checked: it is text, or null.
    let mark = writing.body.get("ServiceIdentification").and_then(Value::as_str);
    let service = writing.service.name(&writing.rack);
    writing.state.set_mark(&service, mark.unwrap_or_default());
    Ok(Done::Quietly)
}

/// A restart of the manager ends all its sessions. Bindings outlive it, unless a fault has it otherwise.
fn reset(writing: &mut Writing<'_>) -> Result<Done, Problem> {
    match writing.body.get("ResetType").and_then(Value::as_str) {
        Some(kind) if !RESET_TYPES.contains(&kind) => Err(Problem::bad(
            "ActionParameterValueNotInList",
            &[kind, "ResetType", RESET],
        )),
        _ => {
            writing.access.end_all();
            Ok(Done::Quietly)
        }
    }
}
