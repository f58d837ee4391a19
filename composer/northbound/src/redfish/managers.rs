//! The manager itself.

use super::{status, uri};
use poolwright_redfish_model::{Collection, Manager, ManagerCollection, ManagerLinks, ManagerType, Resource};

/// Its name.
pub(crate) const SELF: &str = "Poolwright";

pub(crate) fn all() -> ManagerCollection {
    let members = vec![uri::link("Managers/Poolwright")];
    ManagerCollection::of(uri::at("Managers"), "Managers", members)
}

pub(crate) fn one(
    name: &str,
    service: &str,
    fabrics: Vec<poolwright_redfish_model::Ref>,
    now: jiff::Timestamp,
) -> Option<Manager> {
    (name == SELF).then(|| Manager {
        id: Some(SELF.into()),
        name: Some("Poolwright, composing servers of pooled GPUs".into()),
        manager_type: Some(ManagerType::Service),
        firmware_version: Some(env!("CARGO_PKG_VERSION").into()),
        service_identification: Some(service.into()),
        date_time: Some(super::time(now)),
        status: status::enabled(),
        network_protocol: Some(uri::link("Managers/Poolwright/NetworkProtocol")),
        log_services: Some(uri::link("Managers/Poolwright/LogServices")),
        links: Some(Box::new(ManagerLinks {
            manager_for_fabrics: Some(fabrics),
            ..ManagerLinks::default()
        })),
        ..Manager::at(uri::at("Managers/Poolwright"))
    })
}
