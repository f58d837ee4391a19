//! Which ends of a fabric mean a GPU, and to which hosts' ends they are bound.

use super::Seen;
use super::blocks::BlockSeen;
use super::fabrics::{EndpointSeen, FabricSeen};
use super::gpu::GpuSeen;
use std::collections::{BTreeSet, HashMap};

/// The ends of all fabrics that mean a GPU, found by address or by UUID.
pub(crate) struct Targets<'a> {
    by_address: HashMap<&'a str, Vec<(&'a FabricSeen, &'a EndpointSeen)>>,
    by_uuid: HashMap<&'a str, Vec<(&'a FabricSeen, &'a EndpointSeen)>>,
    /// Blocks that are no hosts, by the address of a processor in them.
    blocks: HashMap<&'a str, Vec<&'a BlockSeen>>,
    /// By a zoned or connected end: the hosts' ends.
    partners: HashMap<&'a str, BTreeSet<&'a str>>,
    /// By a system: the hosts' blocks in it.
    host_blocks: HashMap<&'a str, BTreeSet<&'a str>>,
}

impl<'a> Targets<'a> {
    pub(crate) fn of(seen: &'a Seen) -> Self {
        let mut targets = Self {
            by_address: HashMap::new(),
            by_uuid: HashMap::new(),
            blocks: HashMap::new(),
            partners: HashMap::new(),
            host_blocks: HashMap::new(),
        };
        for fabric in &seen.fabrics {
            targets.add_fabric(fabric);
        }
        let composition = seen.composition.iter().filter(|composition| composition.composes);
        for block in composition.flat_map(|composition| &composition.blocks) {
            targets.add_block(block);
        }
        targets
    }

    fn add_fabric(&mut self, fabric: &'a FabricSeen) {
        for end in fabric.endpoints.iter().filter(|end| !end.is_initiator) {
            for entity in &end.entities {
                self.by_address.entry(entity).or_default().push((fabric, end));
            }
            for uuid in end.entity_uuids.iter().chain(&end.uuid) {
                self.by_uuid.entry(uuid).or_default().push((fabric, end));
            }
        }
        let is_host = |path: &&String| fabric.endpoint(path).is_some_and(|end| end.is_initiator);
        for zone in fabric.zones.iter().filter(|zone| zone.is_of_endpoints) {
            let hosts = || zone.endpoints.iter().filter(is_host).map(String::as_str);
            for end in zone.endpoints.iter().filter(|path| !is_host(path)) {
                self.partners.entry(end).or_default().extend(hosts());
            }
        }
        for connection in &fabric.connections {
            for end in &connection.targets {
                self.partners
                    .entry(end)
                    .or_default()
                    .extend(connection.initiators.iter().map(String::as_str));
            }
        }
    }

    fn add_block(&mut self, block: &'a BlockSeen) {
        if block.is_host {
            for system in block.composed_into.iter().chain(&block.contains) {
                self.host_blocks.entry(system).or_default().insert(&block.path);
            }
        } else {
            for processor in &block.processors {
                self.blocks.entry(processor).or_default().push(block);
            }
        }
    }

    /// The fabrics' ends that mean this GPU, each once.
    pub(crate) fn ends(&self, gpu: &GpuSeen) -> Vec<(&'a FabricSeen, &'a EndpointSeen)> {
        let addresses = std::iter::once(&gpu.path).chain(&gpu.aliases);
        let by_address = addresses.filter_map(|path| self.by_address.get(path.as_str()));
        let uuid = gpu.uuid.as_deref().map(|uuid| uuid.trim_start_matches("GPU-"));
        let by_uuid = uuid.and_then(|uuid| self.by_uuid.get(uuid));
        let mut known = BTreeSet::new();
        by_address
            .chain(by_uuid)
            .flatten()
            .filter(|(_, end)| known.insert(&end.path))
            .copied()
            .collect()
    }

    /// The resource blocks that the GPU is in.
    pub(crate) fn blocks(&self, gpu: &GpuSeen) -> Vec<&'a BlockSeen> {
        let addresses = std::iter::once(&gpu.path).chain(&gpu.aliases);
        let mut blocks: Vec<&BlockSeen> = addresses
            .filter_map(|path| self.blocks.get(path.as_str()))
            .flatten()
            .copied()
            .collect();
        blocks.sort_by_key(|block| &block.path);
        blocks.dedup_by_key(|block| &block.path);
        blocks
    }

    /// The hosts' ends that an end is bound to.
    pub(crate) fn hosts_of_end(&self, end: &EndpointSeen) -> impl Iterator<Item = &'a str> {
        self.partners
            .get(end.path.as_str())
            .into_iter()
            .flatten()
            .copied()
    }

    /// The hosts' blocks that a block is composed with.
    pub(crate) fn hosts_of_block(&self, block: &BlockSeen) -> impl Iterator<Item = &'a str> {
        let systems = block.composed_into.iter();
        systems
            .filter_map(|system| self.host_blocks.get(system.as_str()))
            .flatten()
            .copied()
    }
}
