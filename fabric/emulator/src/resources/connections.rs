//! Connections: each joins a host's initiator endpoint with a GPU's target endpoint. Making one binds, deleting
//! it unbinds.

use super::document::{collection, enabled, link};
use super::resource::Writing;
use super::{Done, Problem, Resource, View, endpoints, fabrics};
use crate::rack::{BoxIx, GpuIx, PortIx, Rack};
use crate::state::Change;
use poolwright_redfish_model::{Connection, ConnectionCollection};
use serde_json::{Value, json};

pub(crate) fn find(view: &View<'_>, at: BoxIx, path: &[&str]) -> Option<Resource> {
    match path {
        [] => {
            let members = all(view, at).map(|(port, gpu)| connection_uri(view.rack, port, view.label(gpu)));
            let here = fabrics::below_uri("Connections");
            let all = collection(here, ConnectionCollection::ODATA_TYPE, "Connections", members);
            Some(Resource::of(all).post(Connection::SCHEMA, move |writing| create(writing, at)))
        }
        [id] => {
            let (port, gpu) =
                all(view, at).find(|(port, gpu)| connection_id(view.rack, *port, view.label(*gpu)) == *id)?;
            let resource = Resource::of(connection(view, port, gpu));
            Some(resource.delete(move |writing| writing.begin(Change::unbind(gpu, port), None)))
        }
        _ => None,
    }
}

fn all<'a>(view: &'a View<'_>, at: BoxIx) -> impl Iterator<Item = (PortIx, GpuIx)> + use<'a> {
    let gpus = view.rack.gpus_of_box(at);
    gpus.filter_map(|gpu| view.state.bound_to(gpu).map(|port| (port, gpu)))
}

/// Names both ends, so that an address that was kept too long never deletes somebody else's connection.
fn connection_id(rack: &Rack, port: PortIx, gpu: GpuIx) -> String {
    format!("{}-{}", endpoints::port_id(rack, port), rack[gpu].name)
}

pub(crate) fn connection_uri(rack: &Rack, port: PortIx, gpu: GpuIx) -> String {
    fabrics::below_uri(format_args!("Connections/{}", connection_id(rack, port, gpu)))
}

fn connection(view: &View<'_>, port: PortIx, gpu: GpuIx) -> Value {
    json!({
        "@odata.id": connection_uri(view.rack, port, view.label(gpu)),
        "@odata.type": Connection::ODATA_TYPE,
        "Id": connection_id(view.rack, port, view.label(gpu)),
        "Name": format!("{} at {}", view.rack[view.label(gpu)].name, view.rack.port_name(port)),
        "Status": enabled(),
        "Links": {
            "InitiatorEndpoints": [link(endpoints::host_uri(view.rack, port))],
            "TargetEndpoints": [link(endpoints::gpu_uri(view.rack, view.label(gpu)))],
        },
    })
}

fn create(writing: &mut Writing<'_>, at: BoxIx) -> Result<Done, Problem> {
    let view = writing.view();
    let initiator = one(writing, "InitiatorEndpoints")?;
    let port = endpoints::port_at(view.rack, at, initiator).ok_or_else(|| {
        wrong(
            "InitiatorEndpoints",
            format!("{initiator} is no host's endpoint here"),
        )
    })?;
    let target = one(writing, "TargetEndpoints")?;
    let gpu = endpoints::gpu_at(&view, target)
        .ok_or_else(|| wrong("TargetEndpoints", format!("{target} is no GPU's endpoint here")))?;
    let creates = connection_uri(view.rack, port, view.label(gpu));
    writing.begin(Change::bind(gpu, port), Some(creates))
}

/// The one endpoint in a list of links.
fn one<'a>(writing: &'a Writing<'_>, property: &'static str) -> Result<&'a str, Problem> {
    match writing.uris_at(&format!("/Links/{property}")).as_deref() {
        Some(&[one]) => Ok(one),
        Some(_) => Err(wrong(
            property,
            "a connection has exactly one endpoint at either end".to_owned(),
        )),
        None => Err(Problem::bad("PropertyMissing", &[property])),
    }
}

fn wrong(property: &str, why: String) -> Problem {
    Problem::bad("PropertyValueError", &[property]).saying(why)
}
