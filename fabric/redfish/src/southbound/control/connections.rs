//! A connection joins a host's initiator endpoint with a GPU's target endpoint.
//!
//! Sent is a POST to the fabric's Connections, and a DELETE of the connection. `ConnectionType` is left out:
//! the schema knows `Storage` and `Memory`, and neither is what a GPU is.

use super::{Call, Failed, Link, Unit, Way, bound_to, conflict, fabric, link};
use crate::client::Resource;
use crate::southbound::links;
use crate::southbound::observe::fabrics::ConnectionSeen;
use async_trait::async_trait;
use poolwright_driver::DriverError;
use poolwright_redfish_model as redfish;
use serde::Serialize;

pub(super) struct Connections;

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct NewConnection<'a> {
    links: ConnectionLinks<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ConnectionLinks<'a> {
    initiator_endpoints: [Link<'a>; 1],
    target_endpoints: [Link<'a>; 1],
}

#[async_trait]
impl Way for Connections {
    async fn look(&self, call: &Call<'_>, unit: &str) -> Result<Unit, DriverError> {
        let (etag, connections) = connections_of(call, unit).await?;
        let ports = connections
            .into_iter()
            .flat_map(|(_, seen)| seen.initiators)
            .collect();
        Ok(Unit {
            bound: bound_to(ports),
            etag,
            closed: None,
        })
    }

    async fn bind(&self, call: &Call<'_>, unit: &str, _found: &Unit, port: &str) -> Result<(), Failed> {
        let fabric = fabric::of(call, unit).await?;
        let collection = links::to(fabric.connections.as_ref())
            .ok_or_else(|| DriverError::cannot_tell(format!("the fabric of {unit} offers no connections")))?;
        let body = NewConnection {
            links: ConnectionLinks {
                initiator_endpoints: [link(port)],
                target_endpoints: [link(unit)],
            },
        };
        call.post(collection, &body).await?;
        Ok(())
    }

    async fn unbind(&self, call: &Call<'_>, unit: &str, _found: &Unit, port: &str) -> Result<(), Failed> {
        let (_, connections) = connections_of(call, unit).await?;
        let [(connection, seen)] = &connections[..] else {
            let message = format!("{unit} is in {} connections now, not in one", connections.len());
            return Err(conflict(message).into());
        };
        if seen.initiators != [port] || seen.targets.len() != 1 {
            let message = format!(
                "{} joins {} hosts' ends and {} others: deleting it would take more than {unit} from {port}",
                connection.path,
                seen.initiators.len(),
                seen.targets.len()
            );
            return Err(conflict(message).into());
        }
        call.delete(&connection.path, connection.etag.clone()).await?;
        Ok(())
    }

    fn takes_turns(&self) -> bool {
        false
    }
}

type Found = (Resource<redfish::Connection>, ConnectionSeen);

/// The unit's ETag, and the connections of which it is a target.
async fn connections_of(call: &Call<'_>, unit: &str) -> Result<(Option<String>, Vec<Found>), DriverError> {
    let endpoint = call.read::<redfish::Endpoint>(unit).await?;
    let named = endpoint
        .value
        .links
        .as_deref()
        .and_then(|links| links.connections.as_ref());
    let connections = match named {
        Some(named) => {
            let mut connections = Vec::new();
            for path in links::all(Some(named)) {
                connections.extend(call.read_if_there::<redfish::Connection>(&path).await?);
            }
            connections
        }
        None => {
            let fabric = fabric::of(call, unit).await?;
            match links::to(fabric.connections.as_ref()) {
                Some(collection) => call.members::<redfish::Connection>(collection).await?,
                None => Vec::new(),
            }
        }
    };
    let with_unit = connections.into_iter().filter_map(|connection| {
        let seen = ConnectionSeen::of(&connection.value);
        seen.targets
            .iter()
            .any(|target| target == unit)
            .then_some((connection, seen))
    });
    Ok((endpoint.etag, with_unit.collect()))
}
