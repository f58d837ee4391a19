//! Versions of firmware (of the manager and of endpoints) and of software (of the manager). Clients can read them, and
//! update nothing.

use super::names::Names;
use super::uri;
use poolwright_redfish_model::{Resource, UpdateService, UpdateServiceActions};
use poolwright_service::endpoint::Endpoint;
use serde_json::{Value, json};

const FIRMWARE: &str = "UpdateService/FirmwareInventory";
const SOFTWARE: &str = "UpdateService/SoftwareInventory";
/// The manager's own name; an endpoint that is called the same gets another one.
const SELF: &str = "Poolwright";

pub(crate) fn service() -> UpdateService {
    UpdateService {
        id: Some("UpdateService".into()),
        name: Some("Firmware, to be read".into()),
        service_enabled: Some(false),
        firmware_inventory: Some(uri::link(FIRMWARE)),
        software_inventory: Some(uri::link(SOFTWARE)),
        // The service has no update actions, but clients read the property.
        actions: Some(Box::new(UpdateServiceActions::default())),
        ..UpdateService::at(uri::at("UpdateService"))
    }
}

pub(crate) fn all(endpoints: &[Endpoint]) -> Value {
    collection(FIRMWARE, "Firmware", inventory(endpoints))
}

pub(crate) fn all_software() -> Value {
    collection(SOFTWARE, "Software", std::iter::once(own(SOFTWARE)))
}

fn collection(at: &str, title: &str, members: impl Iterator<Item = Value>) -> Value {
    let link = |one: Value| json!({ "@odata.id": one["@odata.id"] });
    let members: Vec<Value> = members.map(link).collect();
    json!({
        "@odata.id": uri::at(at),
        "@odata.type": "#SoftwareInventoryCollection.SoftwareInventoryCollection",
        "Name": title,
        "Members@odata.count": members.len(),
        "Members": members,
    })
}

pub(crate) fn one_software(name: &str) -> Option<Value> {
    (name == SELF).then(|| own(SOFTWARE))
}

fn own(at: &str) -> Value {
    software(at, SELF, SELF, env!("CARGO_PKG_VERSION"))
}

pub(crate) fn one(endpoints: &[Endpoint], name: &str) -> Option<Value> {
    inventory(endpoints).find(|one| one["Id"] == name)
}

/// The manager, and all endpoints that said what firmware they have when they were asked last.
fn inventory(endpoints: &[Endpoint]) -> impl Iterator<Item = Value> {
    let ids = endpoints.iter().map(|endpoint| endpoint.spec.id.as_str());
    let names = Names::of(std::iter::once(SELF).chain(ids));
    let of_endpoint = |endpoint: &Endpoint| endpoint.service.as_ref()?.firmware.clone();
    let own = (SELF.to_owned(), Some(env!("CARGO_PKG_VERSION").to_owned()));
    let told = endpoints.iter().map(|endpoint| {
        let title = format!("Firmware of endpoint {}", endpoint.spec.id);
        (title, of_endpoint(endpoint))
    });
    let all: Vec<_> = std::iter::once(own).chain(told).collect();
    let named = all.into_iter().enumerate();
    named.filter_map(move |(at, (title, version))| Some(software(FIRMWARE, names.at(at)?, &title, &version?)))
}

fn software(at: &str, name: &str, title: &str, version: &str) -> Value {
    json!({
        "@odata.id": uri::at(&format!("{at}/{name}")),
        "@odata.type": "#SoftwareInventory.v1_13_0.SoftwareInventory",
        "Id": name,
        "Name": title,
        "Version": version,
        "Updateable": false,
    })
}
