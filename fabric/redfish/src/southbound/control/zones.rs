//! One zone a host port: a GPU is bound by putting its endpoint into the port's zone.
//!
//! Sent is the action `Zone.AddEndpoint` or `RemoveEndpoint` where the zone offers it (DSP2046), else a PATCH
//! of the zone's `Links.Endpoints` with the full list (H3's published call).

use super::{Call, Failed, Link, Unit, Way, bound_to, conflict, fabric, link};
use crate::client::Resource;
use crate::southbound::links;
use crate::southbound::observe::fabrics::ZoneSeen;
use async_trait::async_trait;
use poolwright_driver::DriverError;
use poolwright_redfish_model::{self as redfish, Action, Ref};
use serde::Serialize;

pub(super) struct Zones;

/// Parameters of `Zone.AddEndpoint` and `Zone.RemoveEndpoint`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ChangeEndpoint<'a> {
    endpoint: Link<'a>,
    #[serde(rename = "EndpointETag", skip_serializing_if = "Option::is_none")]
    endpoint_etag: Option<&'a str>,
    #[serde(rename = "ZoneETag", skip_serializing_if = "Option::is_none")]
    zone_etag: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ZonePatch<'a> {
    links: ZoneLinks<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ZoneLinks<'a> {
    endpoints: Vec<Link<'a>>,
}

#[async_trait]
impl Way for Zones {
    async fn look(&self, call: &Call<'_>, unit: &str) -> Result<Unit, DriverError> {
        let endpoint = call.read::<redfish::Endpoint>(unit).await?;
        let zones = match endpoint
            .value
            .links
            .as_deref()
            .and_then(|links| links.zones.as_ref())
        {
            Some(named) => {
                let mut zones = Vec::new();
                for path in links::all(Some(named)) {
                    zones.extend(call.read_if_there::<redfish::Zone>(&path).await?);
                }
                zones
            }
            None => {
                let fabric = fabric::of(call, unit).await?;
                match links::to(fabric.zones.as_ref()) {
                    Some(collection) => call.members::<redfish::Zone>(collection).await?,
                    None => Vec::new(),
                }
            }
        };
        let holding = zones.iter().filter_map(|zone| {
            let path = links::address(&zone.path);
            let seen = ZoneSeen::of(path, &zone.value);
            (seen.is_of_endpoints && seen.endpoints.iter().any(|end| end == unit)).then(|| path.to_owned())
        });
        Ok(Unit {
            bound: bound_to(holding.collect()),
            etag: endpoint.etag,
            closed: None,
        })
    }

    async fn bind(&self, call: &Call<'_>, unit: &str, found: &Unit, port: &str) -> Result<(), Failed> {
        let zone = call.read::<redfish::Zone>(port).await?;
        if holds(&zone.value, unit) {
            return Err(conflict(format!(
                "{unit} is in {port} already, although it says that it is in none"
            ))
            .into());
        }
        let action = zone
            .value
            .actions
            .as_deref()
            .and_then(|actions| actions.add_endpoint.as_deref());
        let endpoints: Vec<Link<'_>> = current(&zone.value).chain([unit]).map(link).collect();
        change(call, &zone, action, unit, found, endpoints).await
    }

    async fn unbind(&self, call: &Call<'_>, unit: &str, found: &Unit, port: &str) -> Result<(), Failed> {
        let zone = call.read::<redfish::Zone>(port).await?;
        if !holds(&zone.value, unit) {
            return Err(conflict(format!("{unit} left {port} while this was on its way")).into());
        }
        let action = zone
            .value
            .actions
            .as_deref()
            .and_then(|actions| actions.remove_endpoint.as_deref());
        let endpoints = current(&zone.value)
            .filter(|end| links::address(end) != unit)
            .map(link)
            .collect();
        change(call, &zone, action, unit, found, endpoints).await
    }

    fn takes_turns(&self) -> bool {
        true
    }
}

/// By the action where there is one, else by the full list.
async fn change(
    call: &Call<'_>,
    zone: &Resource<redfish::Zone>,
    action: Option<&Action>,
    unit: &str,
    found: &Unit,
    endpoints: Vec<Link<'_>>,
) -> Result<(), Failed> {
    match action.and_then(|action| action.target.as_deref()) {
        Some(target) => {
            let body = ChangeEndpoint {
                endpoint: link(unit),
                endpoint_etag: found.etag.as_deref(),
                zone_etag: zone.etag.as_deref(),
            };
            call.post(target, &body).await?;
        }
        None => {
            let body = ZonePatch {
                links: ZoneLinks { endpoints },
            };
            call.patch(&zone.path, &body, zone.etag.clone()).await?;
        }
    }
    Ok(())
}

/// The endpoints of a zone, as the service writes them.
fn current(zone: &redfish::Zone) -> impl Iterator<Item = &str> {
    let endpoints = zone.links.as_deref().and_then(|links| links.endpoints.as_ref());
    endpoints.into_iter().flatten().filter_map(Ref::uri)
}

fn holds(zone: &redfish::Zone, unit: &str) -> bool {
    current(zone).any(|end| links::address(end) == unit)
}
