//! Which firmware is where: the manager's own version, and what endpoints say of theirs. Nothing is updated through it.

use super::names::Names;
use super::uri;
use poolwright_redfish_model::{Resource, UpdateService, UpdateServiceActions};
use poolwright_service::endpoint::Endpoint;
use serde_json::{Value, json};

const AT: &str = "UpdateService/FirmwareInventory";
/// The manager's own name; an endpoint that is called the same gets another one.
const SELF: &str = "Poolwright";

pub(crate) fn service() -> UpdateService {
    UpdateService {
        id: Some("UpdateService".into()),
        name: Some("Firmware, to be read".into()),
        service_enabled: Some(false),
        firmware_inventory: Some(uri::link(AT)),
        // The service has no update actions, but clients read the property.
        actions: Some(Box::new(UpdateServiceActions::default())),
        ..UpdateService::at(uri::at("UpdateService"))
    }
}

pub(crate) fn all(endpoints: &[Endpoint]) -> Value {
    let link = |one: Value| json!({ "@odata.id": one["@odata.id"] });
    let members: Vec<Value> = inventory(endpoints).map(link).collect();
    json!({
        "@odata.id": uri::at(AT),
        "@odata.type": "#SoftwareInventoryCollection.SoftwareInventoryCollection",
        "Name": "Firmware",
        "Members@odata.count": members.len(),
        "Members": members,
    })
}

pub(crate) fn one(endpoints: &[Endpoint], name: &str) -> Option<Value> {
    inventory(endpoints).find(|one| one["Id"] == name)
}

/// The manager, and all endpoints that said what firmware they have when they were asked last.
fn inventory(endpoints: &[Endpoint]) -> impl Iterator<Item = Value> {
    let ids = endpoints.iter().map(|endpoint| endpoint.spec.id.as_str());
    let names = Names::of(std::iter::once(SELF).chain(ids));
    let of_endpoint = |endpoint: &Endpoint| endpoint.service.as_ref()?.firmware.clone();
    let own = (
        "Poolwright".to_owned(),
        Some(env!("CARGO_PKG_VERSION").to_owned()),
    );
    let told = endpoints.iter().map(|endpoint| {
        let title = format!("Firmware of endpoint {}", endpoint.spec.id);
        (title, of_endpoint(endpoint))
    });
    let all: Vec<_> = std::iter::once(own).chain(told).collect();
    let named = all.into_iter().enumerate();
    named.filter_map(move |(at, (title, version))| Some(software(names.at(at)?, &title, &version?)))
}

fn software(name: &str, title: &str, version: &str) -> Value {
    json!({
        "@odata.id": uri::at(&format!("{AT}/{name}")),
        "@odata.type": "#SoftwareInventory.v1_13_0.SoftwareInventory",
        "Id": name,
        "Name": title,
        "Version": version,
        "Updateable": false,
    })
}
