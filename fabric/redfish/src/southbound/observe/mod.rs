//! Looking at an endpoint: what it shows is read into plain values ([`Seen`]), then joined into a topology.
//!
//! The way: service root → the fabrics, and beside them systems, chassis and the composition service with what the
//! GPUs found there link to → [`join`]. Only what is needed is read, each document is dropped as soon as its
//! few needed words are taken, and whatever can't be read is a fault of the observation.
//!
//! * [`walk`]: reading with faults, bounds and progress. [`words`]: what services write in many ways, in one.
//! * [`systems`], [`chassis`], [`fabrics`], [`switches`], [`blocks`], [`device`], [`device_ports`], [`gpu`]: what is
//!   taken of each resource.
//! * [`label`]: who answers. [`ports`], [`host`], [`bound`], [`join`], [`movable`]: who is who, who is bound to whom, what can be
//!   moved. Pure.

pub(crate) mod blocks;
mod bound;
pub(crate) mod chassis;
pub(crate) mod device;
mod device_ports;
pub(crate) mod fabrics;
pub(crate) mod gpu;
mod host;
mod join;
mod label;
mod movable;
mod ports;
pub(crate) mod switches;
pub(crate) mod systems;
pub(crate) mod walk;
pub(crate) mod words;

use crate::client::Client;
use crate::southbound::{errors, links, quirks};
use blocks::CompositionSeen;
use chassis::ChassisSeen;
use device::DeviceSeen;
pub(crate) use device::place;
use device_ports::DevicePortsSeen;
use fabrics::FabricSeen;
use futures_util::future::join_all;
use gpu::{GpuSeen, Owner};
use poolwright_driver::{DriverError, Observation, Progress};
use poolwright_model::fault::FaultKind;
use poolwright_model::id::ControlEndpointId;
use poolwright_redfish_model as redfish;
use std::collections::{BTreeMap, BTreeSet};
use systems::SystemSeen;
use walk::Walk;

/// The service root, as DSP0266 has it.
pub(crate) const SERVICE_ROOT: &str = "/redfish/v1/";

/// Everything that was read, not yet joined.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) systems: Vec<SystemSeen>,
    pub(crate) chassis: Vec<ChassisSeen>,
    pub(crate) fabrics: Vec<FabricSeen>,
    pub(crate) composition: Option<CompositionSeen>,
    /// Systems that lie inside resource blocks: what those blocks are, not what they are bound to.
    pub(crate) inside_blocks: Vec<SystemSeen>,
    pub(crate) gpus: Vec<GpuSeen>,
    pub(crate) device_ports: Vec<DevicePortsSeen>,
}

/// Devices that were found under a chassis or a system.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    pub(crate) gpus: Vec<GpuSeen>,
    pub(crate) ports: Vec<DevicePortsSeen>,
}

impl FromIterator<Devices> for Devices {
    fn from_iter<I: IntoIterator<Item = Devices>>(parts: I) -> Self {
        let mut all = Self::default();
        for part in parts {
            all.gpus.extend(part.gpus);
            all.ports.extend(part.ports);
        }
        all
    }
}

/// Looks at everything. An error means that not even the service root could be read, or that the service shut us
/// out: what is still open to everybody is not what it has.
pub(crate) async fn observe(
    client: &Client,
    endpoint: &ControlEndpointId,
    progress: &dyn Progress,
) -> Result<Observation, DriverError> {
    let before = client.requests();
    let root = client.read::<redfish::ServiceRoot>(SERVICE_ROOT).await;
    let root = root.map_err(|error| errors::driver_error(&error))?.value;
    let walk = Walk::new(client, endpoint, progress);
    if root.session_service.is_none() {
        walk.quirk(quirks::NO_SESSION_SERVICE);
    }
    let (seen, label) = tokio::join!(look(&walk, &root), label::read(&walk, &root));
    if let Some(error) = client.shut_out() {
        return Err(errors::driver_error(&error));
    }
    let mut findings = walk.into_findings();
    let topology = join::topology(endpoint, &seen, &mut findings);
    let (faults, quirks) = findings.told(endpoint);
    let requests = client.requests() - before;
    Ok(Observation {
        mark: root
            .service_identification
            .clone()
            .filter(|mark| !mark.is_empty()),
        topology,
        label,
        faults,
        requests,
        quirks,
    })
}

/// Fabrics and what is in chassis and systems have nothing to do with each other until they are joined; neither
/// waits for the other, because what a look takes is its longest chain of links at least.
async fn look(walk: &Walk<'_>, root: &redfish::ServiceRoot) -> Seen {
    let (fabrics, seen) = tokio::join!(fabrics::read(walk, root), look_at_gpus(walk, root));
    Seen { fabrics, ..seen }
}

/// Everything but the fabrics.
async fn look_at_gpus(walk: &Walk<'_>, root: &redfish::ServiceRoot) -> Seen {
    let ((systems, by_systems), (chassis, in_chassis), composition) = tokio::join!(
        systems::read(walk, root),
        chassis::read(walk, root),
        blocks::read(walk, root),
    );
    let mut seen = Seen {
        systems,
        chassis,
        composition,
        device_ports: [in_chassis.ports, by_systems.ports].concat(),
        ..Seen::default()
    };
    seen.device_ports.sort();
    seen.device_ports.dedup();
    seen.inside_blocks = systems_in_blocks(walk, &seen).await;
    // What is there comes before what a system sees of it.
    add(&mut seen.gpus, in_chassis.gpus);
    let in_blocks = gpus_in_blocks(walk, &seen).await;
    add(&mut seen.gpus, in_blocks);
    add(&mut seen.gpus, by_systems.gpus);
    gpu::complete(walk, &mut seen.gpus).await;
    if seen.gpus.is_empty() {
        seen.gpus = gpus_among_devices(walk, &seen).await;
    }
    seen
}

/// Adds those whose address is not there yet.
fn add(gpus: &mut Vec<GpuSeen>, more: Vec<GpuSeen>) {
    let known: BTreeSet<String> = gpus.iter().map(|gpu| gpu.path.clone()).collect();
    gpus.extend(more.into_iter().filter(|gpu| !known.contains(&gpu.path)));
}

/// The systems inside blocks, as far as the Systems did not show them already.
async fn systems_in_blocks(walk: &Walk<'_>, seen: &Seen) -> Vec<SystemSeen> {
    let blocks = seen
        .composition
        .iter()
        .flat_map(|composition| &composition.blocks);
    let paths: BTreeSet<&String> = blocks
        .flat_map(|block| &block.contains)
        .filter(|path| !seen.systems.iter().any(|system| system.path == **path))
        .collect();
    let read = paths.into_iter().map(async |path| {
        let system: redfish::ComputerSystem = walk.read(path).await?;
        Some(SystemSeen::of(path, &system))
    });
    join_all(read).await.into_iter().flatten().collect()
}

/// The processors of blocks that are no hosts, as far as no chassis showed them already.
async fn gpus_in_blocks(walk: &Walk<'_>, seen: &Seen) -> Vec<GpuSeen> {
    let blocks = seen
        .composition
        .iter()
        .flat_map(|composition| &composition.blocks);
    let processors: BTreeMap<&String, Option<&String>> = blocks
        .filter(|block| !block.is_host)
        .flat_map(|block| block.processors.iter().map(|path| (path, block.chassis.first())))
        .filter(|(path, _)| !seen.gpus.iter().any(|gpu| gpu.path == **path))
        .collect();
    let read = processors.into_iter().map(async |(path, chassis)| {
        let processor: redfish::Processor = walk.read(path).await?;
        let mut gpu = GpuSeen::of_processor(path, Owner::Block, &processor)?;
        gpu.chassis = gpu.chassis.or_else(|| chassis.cloned());
        Some(gpu)
    });
    join_all(read).await.into_iter().flatten().collect()
}

/// Where no processor is a GPU: the PCIe devices that are.
async fn gpus_among_devices(walk: &Walk<'_>, seen: &Seen) -> Vec<GpuSeen> {
    let collections = seen
        .chassis
        .iter()
        .filter_map(|chassis| Some((chassis, chassis.devices.as_deref()?)));
    let in_chassis = join_all(collections.map(async |(chassis, collection)| {
        let gpus = device::read_all(walk, collection)
            .await
            .into_iter()
            .filter(DeviceSeen::is_gpu);
        let found: Vec<GpuSeen> = gpus
            .map(|device| {
                device.note_quirks(walk);
                GpuSeen::of_device(&device, Owner::Chassis, Some(&chassis.path))
            })
            .collect();
        if !found.is_empty() {
            let message = format!(
                "no processor of type GPU is shown; {} GPUs were found among the PCIe devices, \
                 without their memory sizes; a hardware profile may know them",
                found.len()
            );
            walk.fault(collection, FaultKind::Incomplete, message);
        }
        found
    }))
    .await;
    let mut found: Vec<GpuSeen> = Vec::new();
    in_chassis.into_iter().for_each(|gpus| add(&mut found, gpus));
    let by_systems = seen
        .systems
        .iter()
        .flat_map(|system| system.devices.iter().map(move |path| (system, path)));
    let others = by_systems.filter(|(_, path)| {
        let below = |collection: &String| links::is_below(path, collection);
        !seen
            .chassis
            .iter()
            .filter_map(|chassis| chassis.devices.as_ref())
            .any(below)
    });
    let others = join_all(others.map(async |(system, path)| {
        let device = device::read(walk, path).await.filter(DeviceSeen::is_gpu)?;
        device.note_quirks(walk);
        Some(GpuSeen::of_device(
            &device,
            Owner::System(system.path.clone()),
            None,
        ))
    }))
    .await;
    add(&mut found, others.into_iter().flatten().collect());
    found
}
