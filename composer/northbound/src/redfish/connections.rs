//! Connections of a fabric: one for each GPU that is bound, from its host port to it. It has the name of the GPU's endpoint.

use super::pool::{EndpointOf, Pool};
use super::{status, uri};
use poolwright_redfish_model::{Collection, Connection, ConnectionCollection, ConnectionLinks, Resource};

fn place(fabric: &str, name: &str) -> String {
    format!("{}/Connections/{name}", uri::fabric(fabric))
}

/// The endpoint of the host port that a GPU is bound to, by the name of the GPU's endpoint.
fn port_of<'a>(pool: &'a Pool, fabric: &str, gpu: &str) -> Option<&'a str> {
    let (index, _) = pool.fabric(fabric)?;
    let endpoints = pool.endpoints.get(index)?;
    let EndpointOf::Gpu(gpu) = *endpoints.of.get(endpoints.names.find(gpu)?)? else {
        return None;
    };
    let port = pool.topology().gpus.get(gpu)?.host_port.as_ref()?;
    endpoints.names.name(port.as_str())
}

pub(crate) fn all(pool: &Pool, fabric: &str) -> Option<ConnectionCollection> {
    let (index, _) = pool.fabric(fabric)?;
    let names = pool.endpoints.get(index)?.names.iter();
    let bound = names.filter(|name| port_of(pool, fabric, name).is_some());
    let members = uri::links(bound.map(|name| place(fabric, name)));
    let at = format!("{}/Connections", uri::fabric(fabric));
    Some(ConnectionCollection::of(
        at,
        format!("Connections of {fabric}"),
        members,
    ))
}

pub(crate) fn one(pool: &Pool, fabric: &str, name: &str) -> Option<Connection> {
    let port = port_of(pool, fabric, name)?;
    let endpoint = |name: &str| Some(uri::links([uri::endpoint(fabric, name)]));
    Some(Connection {
        id: Some(name.into()),
        name: Some(format!("{port} to {name}")),
        status: status::enabled(),
        links: Some(Box::new(ConnectionLinks {
            initiator_endpoints: endpoint(port),
            target_endpoints: endpoint(name),
            ..ConnectionLinks::default()
        })),
        ..Connection::at(place(fabric, name))
    })
}
