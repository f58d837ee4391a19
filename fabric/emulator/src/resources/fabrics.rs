//! The fabric of a box, and what hangs below it.

use super::document::{collection, enabled, link};
use super::resource::uri;
use super::{Resource, Service, View, connections, endpoints, managers, switches, zones};
use crate::rack::{BoxIx, Style};
use poolwright_redfish_model::{Fabric, FabricCollection};
use serde_json::{Value, json};

/// Each box has one.
const ID: &str = "PCIe";

pub(crate) fn find(view: &View<'_>, path: &[&str]) -> Option<Resource> {
    let Service::Box(at) = view.service else {
        return None;
    };
    match path {
        [] => {
            let all = collection(
                uri("Fabrics"),
                FabricCollection::ODATA_TYPE,
                "Fabrics",
                [fabric_uri()],
            );
            Some(Resource::of(all))
        }
        [ID, rest @ ..] => below(view, at, rest),
        _ => None,
    }
}

fn below(view: &View<'_>, at: BoxIx, path: &[&str]) -> Option<Resource> {
    match path {
        [] => Some(Resource::of(fabric(view, at))),
        ["Switches", rest @ ..] => switches::find(view, at, rest),
        ["Endpoints", rest @ ..] => endpoints::find(view, at, rest),
        ["Zones", rest @ ..] if view.rack.style == Style::Zones => zones::find(view, at, rest),
        ["Connections", rest @ ..] if view.rack.style == Style::Connections => {
            connections::find(view, at, rest)
        }
        _ => None,
    }
}

pub(crate) fn fabric_uri() -> String {
    uri(format_args!("Fabrics/{ID}"))
}

/// `/redfish/v1/Fabrics/PCIe/` and more.
pub(crate) fn below_uri(rest: impl std::fmt::Display) -> String {
    uri(format_args!("Fabrics/{ID}/{rest}"))
}

fn fabric(view: &View<'_>, at: BoxIx) -> Value {
    let mut fabric = json!({
        "@odata.id": fabric_uri(),
        "@odata.type": Fabric::ODATA_TYPE,
        "Id": ID,
        "Name": format!("PCIe fabric of {}", view.rack[at].name),
        "FabricType": "PCIe",
        "Status": enabled(),
        "Switches": link(below_uri("Switches")),
        "Endpoints": link(below_uri("Endpoints")),
        "Links": { "ManagedBy": [link(managers::own_uri(view))] },
    });
    match view.rack.style {
        Style::Zones => {
            fabric["Zones"] = link(below_uri("Zones"));
            fabric["MaxZones"] = json!(view.rack[at].ports.len());
        }
        Style::Connections => fabric["Connections"] = link(below_uri("Connections")),
        Style::ResourceBlocks => {}
    }
    fabric
}
