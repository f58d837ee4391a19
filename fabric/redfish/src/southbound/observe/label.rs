//! Who answers, in its own words, and how far driving it can be relied upon.

use super::walk::Walk;
use crate::southbound::links;
use poolwright_model::driver_label::{DriverLabel, EMULATOR, RECORDING, Standing};
use poolwright_redfish_model as redfish;
use serde_json::{Map, Value};

pub(crate) async fn read(walk: &Walk<'_>, root: &redfish::ServiceRoot) -> DriverLabel {
    DriverLabel {
        uuid: root.uuid.clone(),
        ..who(walk, root).await
    }
}

/// Asks for the firmware only where it matters: what is emulated or recorded is never proven.
async fn who(walk: &Walk<'_>, root: &redfish::ServiceRoot) -> DriverLabel {
    let (vendor, product) = (root.vendor.clone(), root.product.clone());
    // A recording can't be driven, be it of an emulated rack.
    if is_recording(root) {
        return DriverLabel {
            driver: Standing::Recorded,
            vendor,
            product,
            ..DriverLabel::default()
        };
    }
    if vendor.as_deref() == Some(EMULATOR) {
        return DriverLabel::emulated(product);
    }
    let manager = manager(walk, root).await;
    let firmware = manager
        .as_ref()
        .and_then(|manager| manager.firmware_version.clone());
    let model = manager.as_ref().and_then(|manager| manager.model.clone());
    DriverLabel::of_machine(vendor, product.or(model), firmware)
}

/// Whether `emulate --tree` or a tree of `endpoint record` says that it is one.
fn is_recording(root: &redfish::ServiceRoot) -> bool {
    let ours: Option<Map<String, Value>> = root.oem.as_deref().and_then(|oem| oem.extra.get(EMULATOR));
    ours.is_some_and(|ours| ours.contains_key(RECORDING))
}

/// The manager that provides the service, else the first one that there is.
async fn manager(walk: &Walk<'_>, root: &redfish::ServiceRoot) -> Option<redfish::Manager> {
    let links = root.links.as_deref();
    let own = links.and_then(|links| links::to(links.manager_providing_service.as_ref()));
    if let Some(path) = own {
        return walk.read(path).await;
    }
    let all = links::to(root.managers.as_ref())?;
    let first = walk.member_paths(all).await.into_iter().next()?;
    walk.read(&first).await
}
