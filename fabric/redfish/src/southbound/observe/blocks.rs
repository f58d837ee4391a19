//! Resource blocks, the pools and zones that they are in, and which systems they are composed into.

use super::walk::Walk;
use crate::southbound::{links, quirks};
use futures_util::future::join_all;
use poolwright_redfish_model as redfish;

/// A composition service, or a chassis manager that only shows its blocks.
#[derive(Debug, Clone, Default)]
pub(crate) struct CompositionSeen {
    pub(crate) blocks: Vec<BlockSeen>,
    /// How many blocks are listed, those that can't be read included.
    pub(crate) listed: usize,
    pub(crate) zones: usize,
    /// Whether there is a service that composes, not only a list.
    pub(crate) composes: bool,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct BlockSeen {
    pub(crate) path: String,
    pub(crate) name: String,
    /// It stands for a host: holds CPUs and memory, or a whole system.
    pub(crate) is_host: bool,
    /// Addresses of its processors.
    pub(crate) processors: Vec<String>,
    /// The systems that it contains: what it is.
    pub(crate) contains: Vec<String>,
    /// The systems that it was composed into: to what it is bound.
    pub(crate) composed_into: Vec<String>,
    pub(crate) chassis: Vec<String>,
    pub(crate) zones: Vec<String>,
}

pub(crate) async fn read(walk: &Walk<'_>, root: &redfish::ServiceRoot) -> Option<CompositionSeen> {
    if let Some(path) = links::to(root.composition_service.as_ref()) {
        let service: redfish::CompositionService = walk.read(path).await?;
        note_target(walk, path, &service);
        return Some(of_service(walk, &service).await);
    }
    let members = walk
        .members::<redfish::ResourceBlock>(links::to(root.resource_blocks.as_ref())?)
        .await;
    let blocks = members
        .read
        .iter()
        .map(|(path, block)| BlockSeen::of(path, block))
        .collect();
    Some(CompositionSeen {
        blocks,
        listed: members.listed,
        zones: 0,
        composes: false,
    })
}

async fn of_service(walk: &Walk<'_>, service: &redfish::CompositionService) -> CompositionSeen {
    let list = async {
        match links::to(service.resource_blocks.as_ref()) {
            Some(path) => walk.members::<redfish::ResourceBlock>(path).await.read,
            None => Vec::new(),
        }
    };
    let paths = async |link: Option<&redfish::Ref>| match links::to(link) {
        Some(path) => walk.member_paths(path).await,
        None => Vec::new(),
    };
    let (mut read, active, free, zones) = tokio::join!(
        list,
        paths(service.active_pool.as_ref()),
        paths(service.free_pool.as_ref()),
        paths(service.resource_zones.as_ref()),
    );
    // A pool may list what the collection forgot.
    let mut missing: Vec<String> = active
        .into_iter()
        .chain(free)
        .filter(|path| !read.iter().any(|(known, _)| known == path))
        .collect();
    missing.sort();
    missing.dedup();
    let found = join_all(
        missing
            .iter()
            .map(|path| walk.read::<redfish::ResourceBlock>(path)),
    )
    .await;
    read.extend(
        missing
            .into_iter()
            .zip(found)
            .filter_map(|(path, block)| Some((path, block?))),
    );
    CompositionSeen {
        listed: read.len(),
        blocks: read
            .iter()
            .map(|(path, block)| BlockSeen::of(path, block))
            .collect(),
        zones: zones.len(),
        composes: service.service_enabled != Some(false),
    }
}

fn note_target(walk: &Walk<'_>, path: &str, service: &redfish::CompositionService) {
    let compose = service
        .actions
        .as_deref()
        .and_then(|actions| actions.compose.as_deref());
    let target = compose.and_then(|action| action.target.as_deref());
    if target.is_some_and(|target| !links::is_below(links::address(target), path)) {
        walk.quirk(quirks::ACTION_TARGET_ELSEWHERE);
    }
}

impl BlockSeen {
    pub(crate) fn of(path: &str, block: &redfish::ResourceBlock) -> Self {
        let links = block.links.as_deref();
        let id = block.id.as_deref().unwrap_or_else(|| links::last_part(path));
        Self {
            path: path.to_owned(),
            name: block.name.as_deref().unwrap_or(id).to_owned(),
            is_host: is_host(block),
            processors: links::all(block.processors.as_ref()),
            contains: links::all(block.computer_systems.as_ref()),
            composed_into: links::all(links.and_then(|l| l.computer_systems.as_ref())),
            chassis: links::all(links.and_then(|l| l.chassis.as_ref())),
            zones: links::all(links.and_then(|l| l.zones.as_ref())),
        }
    }
}

/// Whether a block is a host that others are bound to.
pub(crate) fn is_host(block: &redfish::ResourceBlock) -> bool {
    use redfish::ResourceBlockType as Type;
    block
        .resource_block_type
        .iter()
        .flatten()
        .any(|kind| matches!(kind, Type::Compute | Type::ComputerSystem))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_compute_block_is_a_host_and_a_processor_block_is_not() {
        let block = |kinds: serde_json::Value| {
            let block = json!({"ResourceBlockType": kinds, "Links": {"ComputerSystems": []}});
            BlockSeen::of(
                "/redfish/v1/CompositionService/ResourceBlocks/1",
                &serde_json::from_value(block).unwrap(),
            )
        };
        assert!(block(json!(["Compute", "Network"])).is_host);
        assert!(block(json!(["ComputerSystem"])).is_host);
        assert!(!block(json!(["Processor"])).is_host);
        // A scalar for an array costs nothing.
        assert!(!block(json!("Storage")).is_host);
    }
}
