//! A GPU is a resource block, composed into the system that holds the host's compute block.
//!
//! Sent is `ComputerSystem.AddResourceBlock` or `RemoveResourceBlock` (DSP2046), a PATCH of the system's
//! `Links.ResourceBlocks` where it offers no such action, and a POST to the Systems for a host whose block is
//! in no system yet. The system itself stays when its last GPU goes: it is the host.

use super::{Call, Failed, Link, Unit, Way, bound_to, conflict, link};
use crate::client::Resource;
use crate::southbound::links;
use crate::southbound::observe::SERVICE_ROOT;
use crate::southbound::observe::blocks::is_host;
use async_trait::async_trait;
use poolwright_driver::DriverError;
use poolwright_redfish_model::{self as redfish, Action, Ref};
use serde::Serialize;

pub(super) struct Blocks;

/// Parameters of `ComputerSystem.AddResourceBlock` and `RemoveResourceBlock`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ChangeBlock<'a> {
    resource_block: Link<'a>,
    #[serde(rename = "ResourceBlockETag", skip_serializing_if = "Option::is_none")]
    resource_block_etag: Option<&'a str>,
    #[serde(rename = "ComputerSystemETag", skip_serializing_if = "Option::is_none")]
    computer_system_etag: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct SystemBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    links: SystemLinks<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct SystemLinks<'a> {
    resource_blocks: Vec<Link<'a>>,
}

#[async_trait]
impl Way for Blocks {
    async fn look(&self, call: &Call<'_>, unit: &str) -> Result<Unit, DriverError> {
        let block = call.read::<redfish::ResourceBlock>(unit).await?;
        let mut ports = Vec::new();
        for system in composed_into(&block.value) {
            ports.extend(host_blocks(call, &system).await?);
        }
        let bound = bound_to(ports);
        let closed = closed(&block.value);
        Ok(Unit {
            bound,
            etag: block.etag,
            closed,
        })
    }

    async fn bind(&self, call: &Call<'_>, unit: &str, found: &Unit, port: &str) -> Result<(), Failed> {
        let host = call.read::<redfish::ResourceBlock>(port).await?.value;
        let Some(path) = system_of(&host) else {
            return compose(call, &host, unit, port).await;
        };
        let system = call.read::<redfish::ComputerSystem>(&path).await?;
        let action = system
            .value
            .actions
            .as_deref()
            .and_then(|actions| actions.add_resource_block.as_deref());
        let blocks: Vec<Link<'_>> = current(&system.value).chain([unit]).map(link).collect();
        change(call, &system, action, unit, found, blocks).await
    }

    async fn unbind(&self, call: &Call<'_>, unit: &str, found: &Unit, port: &str) -> Result<(), Failed> {
        let host = call.read::<redfish::ResourceBlock>(port).await?.value;
        let Some(path) = system_of(&host) else {
            return Err(conflict(format!("{port} left its system while this was on its way")).into());
        };
        let system = call.read::<redfish::ComputerSystem>(&path).await?;
        if !current(&system.value).any(|block| links::address(block) == unit) {
            return Err(conflict(format!("{unit} left {path} while this was on its way")).into());
        }
        let action = system
            .value
            .actions
            .as_deref()
            .and_then(|actions| actions.remove_resource_block.as_deref());
        let blocks = current(&system.value)
            .filter(|block| links::address(block) != unit)
            .map(link)
            .collect();
        change(call, &system, action, unit, found, blocks).await
    }

    fn takes_turns(&self) -> bool {
        true
    }
}

/// By the action where there is one, else by the full list.
async fn change(
    call: &Call<'_>,
    system: &Resource<redfish::ComputerSystem>,
    action: Option<&Action>,
    unit: &str,
    found: &Unit,
    blocks: Vec<Link<'_>>,
) -> Result<(), Failed> {
    match action.and_then(|action| action.target.as_deref()) {
        Some(target) => {
            let body = ChangeBlock {
                resource_block: link(unit),
                resource_block_etag: found.etag.as_deref(),
                computer_system_etag: system.etag.as_deref(),
            };
            call.post(target, &body).await?;
        }
        None => {
            let body = SystemBody {
                name: None,
                links: SystemLinks {
                    resource_blocks: blocks,
                },
            };
            call.patch(&system.path, &body, system.etag.clone()).await?;
        }
    }
    Ok(())
}

/// The first composition of a host: a new system of its block and the GPU's.
async fn compose(
    call: &Call<'_>,
    host: &redfish::ResourceBlock,
    unit: &str,
    port: &str,
) -> Result<(), Failed> {
    let root = call.read::<redfish::ServiceRoot>(SERVICE_ROOT).await?.value;
    let systems = links::to(root.systems.as_ref())
        .ok_or_else(|| DriverError::cannot_tell("the service has no Systems to compose into"))?;
    let name = host
        .name
        .as_deref()
        .or(host.id.as_deref())
        .unwrap_or_else(|| links::last_part(port));
    let body = SystemBody {
        name: Some(name),
        links: SystemLinks {
            resource_blocks: vec![link(port), link(unit)],
        },
    };
    call.post(systems, &body).await?;
    Ok(())
}

/// The systems that a block was composed into.
fn composed_into(block: &redfish::ResourceBlock) -> Vec<String> {
    links::all(
        block
            .links
            .as_deref()
            .and_then(|links| links.computer_systems.as_ref()),
    )
}

/// The system of a host's block: composed from it, or, for a block that is a system, the one inside.
fn system_of(host: &redfish::ResourceBlock) -> Option<String> {
    let is_system = |kind: &redfish::ResourceBlockType| *kind == redfish::ResourceBlockType::ComputerSystem;
    let inside = || match host.resource_block_type.iter().flatten().any(is_system) {
        true => links::all(host.computer_systems.as_ref()),
        false => Vec::new(),
    };
    composed_into(host)
        .into_iter()
        .next()
        .or_else(|| inside().into_iter().next())
}

/// The blocks that are hosts in a system; the system itself where none is, so that bound is never told as free.
async fn host_blocks(call: &Call<'_>, system: &str) -> Result<Vec<String>, DriverError> {
    let Some(resource) = call.read_if_there::<redfish::ComputerSystem>(system).await? else {
        return Ok(vec![system.to_owned()]);
    };
    let mut hosts = Vec::new();
    for path in current(&resource.value).map(links::address) {
        let block = call.read_if_there::<redfish::ResourceBlock>(path).await?;
        if block.is_some_and(|block| is_host(&block.value)) {
            hosts.push(path.to_owned());
        }
    }
    if hosts.is_empty() {
        hosts.push(system.to_owned());
    }
    Ok(hosts)
}

/// The blocks of a system, as the service writes them.
fn current(system: &redfish::ComputerSystem) -> impl Iterator<Item = &str> {
    let blocks = system
        .links
        .as_deref()
        .and_then(|links| links.resource_blocks.as_ref());
    blocks.into_iter().flatten().filter_map(Ref::uri)
}

/// Why a block that is in no system can't be composed.
fn closed(block: &redfish::ResourceBlock) -> Option<String> {
    use redfish::ResourceBlockCompositionState as State;
    let status = block.composition_status.as_deref()?;
    if status.reserved == Some(true) {
        let client = block.client.as_deref().map(|client| format!(" by {client}"));
        return Some(format!("it is reserved{}", client.unwrap_or_default()));
    }
    match status.composition_state.as_ref()? {
        State::Unused | State::ComposedAndAvailable => None,
        other => Some(format!("its CompositionState is {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn closed_by(json: serde_json::Value) -> Option<String> {
        closed(&serde_json::from_value(json).unwrap())
    }

    #[test]
    fn a_block_that_is_reserved_or_not_usable_is_closed() {
        let state = |state: &str| json!({"CompositionStatus": {"CompositionState": state}});
        assert_eq!(closed_by(state("Unused")), None);
        assert_eq!(closed_by(json!({})), None);
        for other in ["Composed", "Composing", "Failed", "Unavailable", "NeverHeardOf"] {
            assert!(closed_by(state(other)).unwrap().contains(other));
        }
        let reserved = json!({"CompositionStatus": {"CompositionState": "Unused", "Reserved": true}, "Client": "VCF1001"});
        assert_eq!(closed_by(reserved).as_deref(), Some("it is reserved by VCF1001"));
    }

    #[test]
    fn the_system_of_a_compute_block_is_the_one_composed_from_it() {
        let block = |json: serde_json::Value| system_of(&serde_json::from_value(json).unwrap());
        let link = |path: &str| json!([{"@odata.id": path}]);
        let composed = json!({"ResourceBlockType": ["Compute"], "Links": {"ComputerSystems": link("/s/1")}});
        assert_eq!(block(composed).as_deref(), Some("/s/1"));
        // What it is is not what it is composed into.
        let idle = json!({"ResourceBlockType": ["Compute"], "ComputerSystems": link("/s/0")});
        assert_eq!(block(idle), None);
        let whole = json!({"ResourceBlockType": ["ComputerSystem"], "ComputerSystems": link("/s/0")});
        assert_eq!(block(whole).as_deref(), Some("/s/0"));
    }
}
