//! Resource blocks: one of type Compute for each host port, one of type Processor for each GPU. A system is
//! composed of one of the first and any number of the second.

use super::document::{collection, enabled, link, links};
use super::resource::{Writing, uri};
use super::{Done, Problem, Resource, Service, View, chassis, endpoints, systems};
use crate::rack::{BoxIx, GpuIx, PortIx, Rack, Style};
use crate::state::{Change, SystemFate};
use poolwright_redfish_model::{
    CompositionService, ComputerSystem, ResourceBlock, ResourceBlockCollection, Zone, ZoneCollection,
};
use serde_json::{Value, json};

/// What a block is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    Host(PortIx),
    Gpu(GpuIx),
}

pub(crate) fn find(view: &View<'_>, path: &[&str]) -> Option<Resource> {
    let Service::Box(at) = view.service else {
        return None;
    };
    if view.rack.style != Style::ResourceBlocks {
        return None;
    }
    match path {
        [] => Some(Resource::of(service())),
        ["ResourceBlocks"] => {
            let here = below("ResourceBlocks");
            let all = collection(
                here,
                ResourceBlockCollection::ODATA_TYPE,
                "Resource blocks",
                block_uris(view, at),
            );
            Some(Resource::of(all))
        }
        ["ResourceBlocks", id, rest @ ..] => match (block_with_id(view, at, id)?, rest) {
            (block, []) => Some(Resource::of(one(view, block))),
            (Block::Host(port), ["Systems", "1"]) => Some(Resource::of(host_system(view, port))),
            _ => None,
        },
        ["ResourceZones"] => {
            let all = collection(
                below("ResourceZones"),
                ZoneCollection::ODATA_TYPE,
                "Resource zones",
                [zone_uri()],
            );
            Some(Resource::of(all))
        }
        ["ResourceZones", "1"] => Some(Resource::of(zone(view, at))),
        _ => None,
    }
}

fn below(rest: impl std::fmt::Display) -> String {
    uri(format_args!("CompositionService/{rest}"))
}

pub(crate) fn zone_uri() -> String {
    below("ResourceZones/1")
}

pub(crate) fn host_block_uri(rack: &Rack, port: PortIx) -> String {
    below(format_args!("ResourceBlocks/{}", endpoints::port_id(rack, port)))
}

pub(crate) fn gpu_block_uri(rack: &Rack, gpu: GpuIx) -> String {
    below(format_args!("ResourceBlocks/{}", rack[gpu].name))
}

/// All blocks of a box: free ones and composed ones.
pub(crate) fn block_uris(view: &View<'_>, at: BoxIx) -> Vec<String> {
    let hosts = view.rack[at]
        .ports
        .iter()
        .map(|port| host_block_uri(view.rack, *port));
    hosts
        .chain(
            view.gpus()
                .into_iter()
                .map(|gpu| gpu_block_uri(view.rack, view.label(gpu))),
        )
        .collect()
}

fn block_with_id(view: &View<'_>, at: BoxIx, id: &str) -> Option<Block> {
    match endpoints::port_with_id(view.rack, at, id) {
        Some(port) => Some(Block::Host(port)),
        None => view.gpu_with_id(id).map(Block::Gpu),
    }
}

fn block_at(view: &View<'_>, uri: &str) -> Option<Block> {
    let Service::Box(at) = view.service else {
        return None;
    };
    block_with_id(view, at, uri.strip_prefix(&below("ResourceBlocks/"))?)
}

fn service() -> Value {
    json!({
        "@odata.id": uri("CompositionService"),
        "@odata.type": CompositionService::ODATA_TYPE,
        "Id": "CompositionService",
        "Name": "Composition service",
        "ServiceEnabled": true,
        "AllowOverprovisioning": false,
        "AllowZoneAffinity": false,
        "Status": enabled(),
        "ResourceBlocks": link(below("ResourceBlocks")),
        "ResourceZones": link(below("ResourceZones")),
    })
}

fn zone(view: &View<'_>, at: BoxIx) -> Value {
    json!({
        "@odata.id": zone_uri(),
        "@odata.type": Zone::ODATA_TYPE,
        "Id": "1",
        "Name": format!("What can be composed in {}", view.rack[at].name),
        "ZoneType": "ZoneOfResourceBlocks",
        "Status": enabled(),
        "Links": { "ResourceBlocks": links(block_uris(view, at)) },
    })
}

fn one(view: &View<'_>, block: Block) -> Value {
    let (here, id, name, kind, busy, system) = match block {
        Block::Host(port) => {
            let system = view
                .state
                .composed(port)
                .then(|| systems::composed_uri(view, port));
            let name = format!("Host {}", view.rack[view.rack[port].host].name);
            (
                host_block_uri(view.rack, port),
                endpoints::port_id(view.rack, port),
                name,
                "Compute",
                false,
                system,
            )
        }
        Block::Gpu(gpu) => {
            let system = view
                .state
                .bound_to(gpu)
                .map(|port| systems::composed_uri(view, port));
            let own = &view.rack[gpu];
            let busy = view.state.busy(gpu) && !view.state.resetting(gpu);
            (
                gpu_block_uri(view.rack, view.label(gpu)),
                view.rack[view.label(gpu)].name.clone(),
                format!("GPU {}", own.slot),
                "Processor",
                busy,
                system,
            )
        }
    };
    let state = match (busy, &system) {
        (true, _) => "Composing",
        (false, Some(_)) => "Composed",
        (false, None) => "Unused",
    };
    let mut body = json!({
        "@odata.id": here,
        "@odata.type": ResourceBlock::ODATA_TYPE,
        "Id": id,
        "Name": name,
        "ResourceBlockType": [kind],
        "CompositionStatus": {
            "CompositionState": state,
            "Reserved": false,
            "SharingCapable": false,
            "MaxCompositions": 1,
            "NumberOfCompositions": u8::from(system.is_some()),
        },
        "Status": enabled(),
        "Links": { "Zones": [link(zone_uri())], "ComputerSystems": links(system) },
    });
    match block {
        Block::Host(_) => body["ComputerSystems"] = json!([link(format!("{here}/Systems/1"))]),
        Block::Gpu(gpu) => {
            body["Processors"] = json!([link(view.processor_uri(gpu))]);
            body["Links"]["Chassis"] = json!([link(chassis::of_gpu(view, gpu))]);
        }
    }
    body
}

/// The host that a Compute block is of, as the box knows it.
fn host_system(view: &View<'_>, port: PortIx) -> Value {
    let host = &view.rack[view.rack[port].host];
    json!({
        "@odata.id": format!("{}/Systems/1", host_block_uri(view.rack, port)),
        "@odata.type": ComputerSystem::ODATA_TYPE,
        "Id": "1",
        "Name": format!("System of {}", host.name),
        "SystemType": "Physical",
        "HostName": host.name,
        "UUID": host.uuid,
        "PowerState": systems::power_state(view, view.rack[port].host),
        "Status": enabled(),
        "Links": {
            "ResourceBlocks": [link(host_block_uri(view.rack, port))],
            "Endpoints": [link(endpoints::host_uri(view.rack, port))],
        },
    })
}

/// `POST /redfish/v1/Systems` with one Compute block and GPUs.
pub(crate) fn compose(writing: &mut Writing<'_>, at: BoxIx) -> Result<Done, Problem> {
    let (ports, gpus) = blocks_in(writing)?;
    let [port] = ports[..] else {
        return Err(wrong("a system has exactly one block of type Compute"));
    };
    if writing.rack[port].gpu_box != at {
        return Err(wrong("the block is of another box"));
    }
    let creates = systems::composed_uri(&writing.view(), port);
    let system = SystemFate::Compose;
    writing.begin(
        Change::Move {
            port,
            add: gpus,
            remove: Vec::new(),
            system,
        },
        Some(creates),
    )
}

/// `DELETE` of a composed system frees all its blocks.
pub(crate) fn decompose(writing: &mut Writing<'_>, port: PortIx) -> Result<Done, Problem> {
    let remove = writing.state.at_port(port).collect();
    let system = SystemFate::Decompose;
    writing.begin(
        Change::Move {
            port,
            add: Vec::new(),
            remove,
            system,
        },
        None,
    )
}

/// `PATCH` with the full list of blocks.
pub(crate) fn set_blocks(writing: &mut Writing<'_>, port: PortIx) -> Result<Done, Problem> {
    let (ports, gpus) = blocks_in(writing)?;
    if ports != [port] {
        return Err(wrong("the block of type Compute stays as it is"));
    }
    let held: Vec<GpuIx> = writing.state.at_port(port).collect();
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

pub(crate) fn add_block(writing: &mut Writing<'_>, port: PortIx, action: &str) -> Result<Done, Problem> {
    let gpu = named(writing, port, action)?;
    writing.begin(Change::bind(gpu, port), None)
}

pub(crate) fn remove_block(writing: &mut Writing<'_>, port: PortIx, action: &str) -> Result<Done, Problem> {
    let gpu = named(writing, port, action)?;
    writing.begin(Change::unbind(gpu, port), None)
}

/// The blocks that a body lists: host ports and GPUs.
fn blocks_in(writing: &Writing<'_>) -> Result<(Vec<PortIx>, Vec<GpuIx>), Problem> {
    let view = writing.view();
    let uris = writing.uris_at("/Links/ResourceBlocks");
    let uris = uris.ok_or_else(|| Problem::bad("PropertyMissing", &["ResourceBlocks"]))?;
    let (mut ports, mut gpus) = (Vec::new(), Vec::new());
    for uri in uris {
        match block_at(&view, uri) {
            Some(Block::Host(port)) if !ports.contains(&port) => ports.push(port),
            Some(Block::Gpu(gpu)) if !gpus.contains(&gpu) => gpus.push(gpu),
            Some(_) => return Err(wrong(format!("{uri} is in the list twice"))),
            None => return Err(wrong(format!("{uri} is no resource block here"))),
        }
    }
    Ok((ports, gpus))
}

/// The GPU whose block an action names, if the entity tags that it sends are right.
fn named(writing: &mut Writing<'_>, port: PortIx, action: &str) -> Result<GpuIx, Problem> {
    let uri = writing.uri_at("/ResourceBlock").unwrap_or_default().to_owned();
    let system = systems::composed_uri(&writing.view(), port);
    writing.check_etag("ComputerSystemETag", &system)?;
    writing.check_etag("ResourceBlockETag", &uri)?;
    match block_at(&writing.view(), &uri) {
        Some(Block::Gpu(gpu)) => Ok(gpu),
        other => {
            let what = if other.is_some() {
                "the host's own block"
            } else {
                "no resource block here"
            };
            let problem = Problem::bad("ActionParameterValueError", &["ResourceBlock", action]);
            Err(problem.saying(format!("{uri} is {what}")))
        }
    }
}

fn wrong(why: impl Into<String>) -> Problem {
    Problem::bad("PropertyValueError", &["Links/ResourceBlocks"]).saying(why)
}
