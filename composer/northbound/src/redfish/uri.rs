//! Where things are. The one place that puts paths together.

use poolwright_redfish_model::Ref;

/// The root of the service.
pub(crate) const ROOT: &str = "/redfish/v1";

/// A place below the root.
pub(crate) fn at(path: &str) -> String {
    format!("{ROOT}/{path}")
}

/// A link to a place below the root.
pub(crate) fn link(path: &str) -> Ref {
    Ref::to(at(path))
}

/// Links to places.
pub(crate) fn links(places: impl IntoIterator<Item = String>) -> Vec<Ref> {
    places.into_iter().map(Ref::to).collect()
}

pub(crate) fn system(name: &str) -> String {
    at(&format!("Systems/{name}"))
}

pub(crate) fn processor(system: &str, gpu: &str) -> String {
    at(&format!("Systems/{system}/Processors/{gpu}"))
}

pub(crate) fn chassis(name: &str) -> String {
    at(&format!("Chassis/{name}"))
}

pub(crate) fn device(chassis: &str, gpu: &str) -> String {
    at(&format!("Chassis/{chassis}/PCIeDevices/{gpu}"))
}

pub(crate) fn fabric(name: &str) -> String {
    at(&format!("Fabrics/{name}"))
}

pub(crate) fn endpoint(fabric: &str, name: &str) -> String {
    at(&format!("Fabrics/{fabric}/Endpoints/{name}"))
}

pub(crate) fn switch(fabric: &str, name: &str) -> String {
    at(&format!("Fabrics/{fabric}/Switches/{name}"))
}

pub(crate) fn block(name: &str) -> String {
    at(&format!("CompositionService/ResourceBlocks/{name}"))
}

/// Where the answer to a request comes that goes on as a task.
pub(crate) fn monitor(name: &str) -> String {
    at(&format!("TaskService/TaskMonitors/{name}"))
}

pub(crate) fn task(name: &str) -> String {
    at(&format!("TaskService/Tasks/{name}"))
}
