//! Zones: one for each host port; the GPUs in it are bound to that port.
//!
//! Moved by `PATCH` of the full list of endpoints, as H3's Falcon publishes it, or by the actions AddEndpoint and
//! RemoveEndpoint, as in DMTF's examples (DSP2046). DMTF's schema calls `Links.Endpoints` read-only; the field
//! writes it.

use super::document::{collection, enabled, link, links};
use super::resource::Writing;
use super::{Done, Problem, Resource, View, endpoints, fabrics, switches};
use crate::rack::{BoxIx, GpuIx, PortIx, Rack};
use crate::state::{Change, SystemFate};
use poolwright_redfish_model::{Zone, ZoneCollection};
use serde_json::{Value, json};

const ADD: &str = "Zone.AddEndpoint";
const REMOVE: &str = "Zone.RemoveEndpoint";

pub(crate) fn find(view: &View<'_>, at: BoxIx, path: &[&str]) -> Option<Resource> {
    let [id, rest @ ..] = path else {
        let members = view.rack[at].ports.iter().map(|port| zone_uri(view.rack, *port));
        let here = fabrics::below_uri("Zones");
        return Some(Resource::of(collection(
            here,
            ZoneCollection::ODATA_TYPE,
            "Zones",
            members,
        )));
    };
    let port = endpoints::port_with_id(view.rack, at, id)?;
    let actions = view.rack.options.zone_actions;
    match rest {
        [] => {
            let resource = Resource::of(zone(view, at, port));
            Some(
                resource.patch(Zone::SCHEMA, &["/Links/Endpoints"], move |writing| {
                    set(writing, at, port)
                }),
            )
        }
        ["Actions", ADD] if actions => Some(Resource::action(Zone::SCHEMA, ADD, move |writing| {
            let gpu = named(writing, port, ADD)?;
            writing.begin(Change::bind(gpu, port), None)
        })),
        ["Actions", REMOVE] if actions => Some(Resource::action(Zone::SCHEMA, REMOVE, move |writing| {
            let gpu = named(writing, port, REMOVE)?;
            writing.begin(Change::unbind(gpu, port), None)
        })),
        _ => None,
    }
}

pub(crate) fn zone_uri(rack: &Rack, port: PortIx) -> String {
    fabrics::below_uri(format_args!("Zones/{}", endpoints::port_id(rack, port)))
}

fn zone(view: &View<'_>, at: BoxIx, port: PortIx) -> Value {
    let here = zone_uri(view.rack, port);
    let gpus = view
        .state
        .at_port(port)
        .map(|gpu| endpoints::gpu_uri(view.rack, view.label(gpu)));
    let members = [endpoints::host_uri(view.rack, port)].into_iter().chain(gpus);
    let mut zone = json!({
        "@odata.id": here,
        "@odata.type": Zone::ODATA_TYPE,
        "Id": endpoints::port_id(view.rack, port),
        "Name": format!("Zone of {}", view.rack.port_name(port)),
        "ZoneType": "ZoneOfEndpoints",
        "Status": enabled(),
        "Links": {
            "Endpoints": links(members),
            "InvolvedSwitches": [link(switches::switch_uri(view.rack, at, view.rack[port].switch))],
        },
    });
    if view.rack.options.zone_actions {
        zone["Actions"] = json!({
            format!("#{ADD}"): { "target": format!("{here}/Actions/{ADD}") },
            format!("#{REMOVE}"): { "target": format!("{here}/Actions/{REMOVE}") },
        });
    }
    zone
}

/// The full list of endpoints: what is new in it is bound, what is missing from it is unbound.
fn set(writing: &mut Writing<'_>, at: BoxIx, port: PortIx) -> Result<Done, Problem> {
    let wanted = writing.uris_at("/Links/Endpoints").unwrap_or_default();
    let view = writing.view();
    let own = endpoints::host_uri(view.rack, port);
    let mut gpus = Vec::new();
    let mut has_own = false;
    for uri in wanted {
        match endpoints::gpu_at(&view, uri) {
            _ if uri == own => has_own = true,
            Some(gpu) if !gpus.contains(&gpu) => gpus.push(gpu),
            Some(_) => return Err(wrong(format!("{uri} is in the list twice"))),
            None if endpoints::port_at(view.rack, at, uri).is_some() => {
                return Err(wrong(format!(
                    "{uri} is another host's: a zone is of one host port"
                )));
            }
            None => return Err(wrong(format!("{uri} is no endpoint of this fabric"))),
        }
    }
    if !has_own {
        return Err(wrong(format!("{own} must stay in its zone")));
    }
    let held: Vec<GpuIx> = view.state.at_port(port).collect();
    let add: Vec<GpuIx> = gpus.iter().copied().filter(|gpu| !held.contains(gpu)).collect();
    let remove: Vec<GpuIx> = held.iter().copied().filter(|gpu| !gpus.contains(gpu)).collect();
    if add.is_empty() && remove.is_empty() {
        return Ok(Done::Quietly);
    }
    writing.begin(
        Change::Move {
            port,
            add,
            remove,
            system: SystemFate::Keep,
        },
        None,
    )
}

fn wrong(why: String) -> Problem {
    Problem::bad("PropertyValueError", &["Links/Endpoints"]).saying(why)
}

/// The GPU that an action names, if the entity tags that it sends are right.
fn named(writing: &mut Writing<'_>, port: PortIx, action: &str) -> Result<GpuIx, Problem> {
    let uri = writing.uri_at("/Endpoint").unwrap_or_default().to_owned();
    let zone = zone_uri(&writing.rack, port);
    writing.check_etag("ZoneETag", &zone)?;
    writing.check_etag("EndpointETag", &uri)?;
    let view = writing.view();
    let none = || Problem::bad("ActionParameterValueError", &["Endpoint", action]);
    endpoints::gpu_at(&view, &uri).ok_or_else(|| none().saying(format!("{uri} is no GPU's endpoint here")))
}
