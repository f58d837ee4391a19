//! What can be composed of what: a resource block for each host and for each unit of GPUs, and a zone for each fabric
//! with all blocks that it joins, composed ones too.

use super::pool::{Block, Pool};
use super::{status, systems, uri};
use poolwright_model::id::{HostId, UnitId};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::{Fabric, Gpu};
use poolwright_redfish_model::{
    Action, Collection, CompositionService, CompositionServiceActions, Health, Processor, Ref, Resource,
    ResourceBlock, ResourceBlockCollection, ResourceBlockCompositionState, ResourceBlockCompositionStatus,
    ResourceBlockLinks, ResourceBlockPoolType, ResourceBlockType, State, Zone, ZoneCollection, ZoneLinks,
    ZoneType,
};
use poolwright_service::RESERVED;
use std::collections::{BTreeSet, HashSet};

/// Units and hosts that are unavailable now, although the poll shows them as free.
#[derive(Debug, Default)]
pub(crate) struct Aside {
    /// Reserved units.
    pub units: HashSet<UnitId>,
    /// Closed, or retired.
    pub hosts: BTreeSet<HostId>,
}

impl Aside {
    fn keeps(&self, block: Block<'_>) -> bool {
        matches!(block, Block::Unit(unit) if self.units.contains(&unit.id))
    }

    fn closes(&self, block: Block<'_>) -> bool {
        matches!(block, Block::Host(host) if self.hosts.contains(&host.id))
    }

    /// Whether something of a block is not as the look at the pool says.
    pub fn has(&self, pool: &Pool, name: &str) -> bool {
        let nothing = self.units.is_empty() && self.hosts.is_empty();
        let of = |block| self.keeps(block) || self.closes(block);
        !nothing && pool.block(name).is_some_and(of)
    }
}

pub(crate) fn service() -> CompositionService {
    let below = |what: &str| Some(uri::link(&format!("CompositionService/{what}")));
    CompositionService {
        id: Some("CompositionService".into()),
        name: Some("Composition".into()),
        service_enabled: Some(true),
        status: status::enabled(),
        allow_overprovisioning: Some(false),
        allow_zone_affinity: Some(false),
        resource_blocks: below("ResourceBlocks"),
        resource_zones: below("ResourceZones"),
        active_pool: below("ActivePool"),
        free_pool: below("FreePool"),
        composition_reservations: below("CompositionReservations"),
        reservation_duration: Some(format!("PT{}S", RESERVED.as_secs())),
        actions: Some(Box::new(CompositionServiceActions {
            compose: Some(Box::new(Action::at(uri::at(
                "CompositionService/Actions/CompositionService.Compose",
            )))),
            ..CompositionServiceActions::default()
        })),
        ..CompositionService::at(uri::at("CompositionService"))
    }
}

pub(crate) fn blocks(pool: &Pool) -> ResourceBlockCollection {
    let members = uri::links(pool.blocks.iter().map(uri::block));
    ResourceBlockCollection::of(
        uri::at("CompositionService/ResourceBlocks"),
        "Resource blocks",
        members,
    )
}

/// Blocks of which something is composed, or of which nothing is and that could be.
pub(crate) fn pool_of(pool: &Pool, active: bool, aside: &Aside) -> ResourceBlockCollection {
    let wanted = match active {
        true => ResourceBlockPoolType::Active,
        false => ResourceBlockPoolType::Free,
    };
    let is_in =
        |name: &&str| pool.block(name).map(|block| in_pool(pool, block, aside)) == Some(wanted.clone());
    let members = uri::links(pool.blocks.iter().filter(is_in).map(uri::block));
    let (place, name) = match active {
        true => ("CompositionService/ActivePool", "Blocks in use"),
        false => ("CompositionService/FreePool", "Free blocks"),
    };
    ResourceBlockCollection::of(uri::at(place), name, members)
}

fn in_pool(pool: &Pool, block: Block<'_>, aside: &Aside) -> ResourceBlockPoolType {
    use ResourceBlockCompositionState as State;
    match composed(pool, block, aside) {
        State::Composed | State::ComposedAndAvailable | State::Composing => ResourceBlockPoolType::Active,
        State::Unused => ResourceBlockPoolType::Free,
        _ => ResourceBlockPoolType::Unassigned,
    }
}

fn composed(pool: &Pool, block: Block<'_>, aside: &Aside) -> ResourceBlockCompositionState {
    use ResourceBlockCompositionState as State;
    match block {
        // A host takes further GPUs beside those that it has, unless it is out of service.
        Block::Host(host) => match (pool.compositions_at(&host.id).next(), aside.closes(block)) {
            (Some(_), false) => State::ComposedAndAvailable,
            (Some(_), true) => State::Composed,
            (None, false) => State::Unused,
            (None, true) => State::Unavailable,
        },
        Block::Unit(unit) => {
            let mut gpus = pool.unit_gpus(unit);
            if gpus.any(|gpu| matches!(gpu.state, GpuState::Quarantined | GpuState::Indeterminate)) {
                return State::Failed;
            }
            if pool.holder(&unit.id).is_some() {
                return State::Composed;
            }
            match pool.unit_gpus(unit).map(unit_state).max() {
                Some(2) => State::Composing,
                Some(0) => State::Unused,
                _ => State::Unavailable,
            }
        }
    }
}

/// 0: to be had; 1: not; 2: somebody is about to have it.
fn unit_state(gpu: &Gpu) -> u8 {
    match gpu.state {
        GpuState::Reserved | GpuState::Binding | GpuState::Draining | GpuState::Unbinding => 2,
        GpuState::Free | GpuState::Dirty if gpu.composability.is_composable() => 0,
        _ => 1,
    }
}

/// A block.
pub(crate) fn block(pool: &Pool, name: &str, aside: &Aside) -> Option<ResourceBlock> {
    let block = pool.block(name)?;
    let state = composed(pool, block, aside);
    let compositions = match block {
        Block::Host(host) => pool.compositions_at(&host.id).count(),
        Block::Unit(unit) => usize::from(pool.holder(&unit.id).is_some()),
    };
    let base = ResourceBlock {
        id: Some(name.into()),
        status: match aside.closes(block) {
            true => status::status(State::Disabled, Some(Health::OK)),
            false => status::enabled(),
        },
        pool: Some(in_pool(pool, block, aside)),
        composition_status: Some(Box::new(ResourceBlockCompositionStatus {
            reserved: Some(state == ResourceBlockCompositionState::Composing || aside.keeps(block)),
            sharing_capable: Some(matches!(block, Block::Host(_))),
            sharing_enabled: Some(matches!(block, Block::Host(_))),
            max_compositions: matches!(block, Block::Unit(_)).then_some(1),
            number_of_compositions: i64::try_from(compositions).ok(),
            composition_state: Some(state),
            ..ResourceBlockCompositionStatus::default()
        })),
        ..ResourceBlock::at(uri::block(name))
    };
    Some(match block {
        Block::Host(host) => {
            let composed = pool
                .compositions_at(&host.id)
                .filter_map(|one| pool.composed(&one.id));
            ResourceBlock {
                name: Some(format!("Host {}", host.name)),
                resource_block_type: Some(vec![ResourceBlockType::ComputerSystem]),
                computer_systems: pool
                    .system_of(&host.id)
                    .map(|name| uri::links([uri::system(name)])),
                links: Some(Box::new(ResourceBlockLinks {
                    computer_systems: Some(uri::links(composed.map(uri::system))),
                    zones: Some(uri::links(zones_of(
                        pool,
                        host.ports.iter().map(|port| port.fabric.as_str()),
                    ))),
                    ..ResourceBlockLinks::default()
                })),
                ..base
            }
        }
        Block::Unit(unit) => {
            let gpus: Vec<&Gpu> = pool.unit_gpus(unit).collect();
            let processors = gpus.iter().filter_map(|gpu| pool.gpus.name(gpu.id.as_str()));
            let fabrics = gpus
                .iter()
                .flat_map(|gpu| gpu.ports.iter().map(|port| port.fabric.as_str()));
            let chassis = gpus
                .first()
                .and_then(|gpu| pool.chassis_name(gpu.chassis.as_ref()?));
            let holder = pool.holder(&unit.id).and_then(|one| pool.composed(&one.id));
            ResourceBlock {
                name: Some(match gpus.as_slice() {
                    [gpu] => gpu.model.clone().unwrap_or_else(|| gpu.id.to_string()),
                    many => format!("{} GPUs that move together", many.len()),
                }),
                resource_block_type: Some(vec![ResourceBlockType::Processor]),
                processors: Some(uri::links(processors.map(|gpu| processor_at(name, gpu)))),
                links: Some(Box::new(ResourceBlockLinks {
                    chassis: Some(uri::links(chassis.map(uri::chassis))),
                    computer_systems: Some(uri::links(holder.map(uri::system))),
                    zones: Some(uri::links(zones_of(pool, fabrics))),
                    ..ResourceBlockLinks::default()
                })),
                ..base
            }
        }
    })
}

fn processor_at(block: &str, gpu: &str) -> String {
    format!("{}/Processors/{gpu}", uri::block(block))
}

pub(crate) fn processor(pool: &Pool, block: &str, name: &str) -> Option<Processor> {
    let Block::Unit(unit) = pool.block(block)? else {
        return None;
    };
    let gpu = pool.gpu(name)?;
    let is_here = unit.gpus.contains(&gpu.id);
    is_here.then(|| systems::gpu_at(pool, processor_at(block, name), name, gpu))
}

fn zone_at(fabric: &str) -> String {
    uri::at(&format!("CompositionService/ResourceZones/{fabric}"))
}

fn zones_of<'a>(pool: &Pool, fabrics: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut found: Vec<&str> = fabrics.filter_map(|fabric| pool.fabrics.name(fabric)).collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().map(zone_at).collect()
}

pub(crate) fn zones(pool: &Pool) -> ZoneCollection {
    let members = uri::links(pool.fabrics.iter().map(zone_at));
    ZoneCollection::of(
        uri::at("CompositionService/ResourceZones"),
        "Resource zones",
        members,
    )
}

pub(crate) fn zone(pool: &Pool, name: &str) -> Option<Zone> {
    let (_, fabric) = pool.fabric(name)?;
    Some(Zone {
        id: Some(name.into()),
        name: Some(format!("What can be composed over {name}")),
        zone_type: Some(ZoneType::ZoneOfResourceBlocks),
        status: status::enabled(),
        links: Some(Box::new(ZoneLinks {
            resource_blocks: Some(joined(pool, fabric)),
            ..ZoneLinks::default()
        })),
        ..Zone::at(zone_at(name))
    })
}

/// All blocks with a port in a fabric, whatever they are used for: clients break where composed ones are left out.
fn joined(pool: &Pool, fabric: &Fabric) -> Vec<Ref> {
    let topology = pool.topology();
    let hosts = topology
        .hosts
        .iter()
        .filter(|host| host.ports.iter().any(|port| port.fabric == fabric.id));
    let hosts = hosts.filter_map(|host| pool.host_block(&host.id));
    let is_joined = |gpu: &Gpu| gpu.ports.iter().any(|port| port.fabric == fabric.id);
    let units = topology
        .units
        .iter()
        .filter(|unit| pool.unit_gpus(unit).any(is_joined));
    let units = units.filter_map(|unit| pool.unit_block(&unit.id));
    uri::links(hosts.chain(units).map(uri::block))
}
