//! Hosts and what they hold. A host is a system (`Physical`), and each composition is one beside it (`Composed`): the
//! first shows all GPUs that the host has, the second those that it holds for a demand.

use super::pool::Pool;
use super::{capabilities, status, uri};
use poolwright_model::topology::{Gpu, Host};
use poolwright_redfish_model::{
    Action, Collection, ComputerSystem, ComputerSystemActions, ComputerSystemCollection,
    ComputerSystemComposition, ComputerSystemCompositionUseCase, ComputerSystemLinks,
    ComputerSystemProcessorSummary, ComputerSystemSystemType, PCIeDevicePCIeInterface, Processor,
    ProcessorCollection, ProcessorInterface, ProcessorLinks, ProcessorMemorySummary,
    ProcessorSystemInterfaceType, ProcessorType, Ref, Resource,
};
use poolwright_service::Composition;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(crate) fn all(pool: &Pool) -> Value {
    let members = uri::links(pool.systems.iter().map(uri::system));
    let all = ComputerSystemCollection::of(uri::at("Systems"), "Systems", members);
    let zones: Vec<Value> = pool
        .fabrics
        .iter()
        .map(|fabric| json!({ "@odata.id": uri::at(&format!("CompositionService/ResourceZones/{fabric}")) }))
        .collect();
    let capability = |(object, case): (&str, &str)| {
        json!({
            "UseCase": case,
            "CapabilitiesObject": { "@odata.id": uri::at(&format!("Systems/{object}")) },
            "Links": {
                "TargetCollection": { "@odata.id": uri::at("Systems") },
                "RelatedItem": zones,
            },
        })
    };
    let mut all = json!(all);
    all["@Redfish.CollectionCapabilities"] = json!({
        "@odata.type": "#CollectionCapabilities.v1_4_0.CollectionCapabilities",
        "Capabilities": capabilities::ALL.map(capability),
    });
    all
}

pub(crate) fn one(pool: &Pool, name: &str) -> Option<ComputerSystem> {
    match pool.host(name) {
        Some(host) => Some(physical(pool, name, host)),
        None => Some(composed(pool, name, pool.composition(name)?)),
    }
}

fn physical(pool: &Pool, name: &str, host: &Host) -> ComputerSystem {
    let gpus: Vec<&Gpu> = pool.gpus_at(&host.id).collect();
    let supplied = pool
        .compositions_at(&host.id)
        .filter_map(|one| pool.composed(&one.id));
    let links = ComputerSystemLinks {
        resource_blocks: Some(uri::links(pool.host_block(&host.id).map(uri::block))),
        consuming_computer_systems: Some(uri::links(supplied.map(uri::system))),
        endpoints: Some(uri::links(endpoints_of(pool, host))),
        chassis: Some(chassis_of(pool, &gpus)),
        managed_by: Some(uri::links([uri::at("Managers/Poolwright")])),
        ..ComputerSystemLinks::default()
    };
    ComputerSystem {
        system_type: Some(ComputerSystemSystemType::Physical),
        host_name: Some(host.name.clone()),
        uuid: host.uuid.clone(),
        serial_number: host.serial.clone(),
        model: host.model.clone(),
        power_state: status::power(host.power_state),
        power_restore_policy: status::power_restore_policy(host),
        links: Some(Box::new(links)),
        composition: Some(Box::new(ComputerSystemComposition {
            use_cases: Some(vec![ComputerSystemCompositionUseCase::ExpandableSystem]),
            ..ComputerSystemComposition::default()
        })),
        name: Some(host.name.clone()),
        ..system(pool, name, &gpus)
    }
}

fn composed(pool: &Pool, name: &str, composition: &Composition) -> ComputerSystem {
    let gpus = gpus_of(pool, composition);
    let host = pool.system_of(&composition.host);
    let blocks = composition
        .held
        .iter()
        .filter_map(|held| pool.unit_block(&held.unit));
    let links = ComputerSystemLinks {
        resource_blocks: Some(uri::links(
            pool.host_block(&composition.host)
                .into_iter()
                .chain(blocks)
                .map(uri::block),
        )),
        supplying_computer_systems: Some(uri::links(host.map(uri::system))),
        chassis: Some(chassis_of(pool, &gpus)),
        managed_by: Some(uri::links([uri::at("Managers/Poolwright")])),
        ..ComputerSystemLinks::default()
    };
    let action = |action: &str| {
        Box::new(Action::at(format!(
            "{}/Actions/ComputerSystem.{action}",
            uri::system(name)
        )))
    };
    let physical = host.and_then(|host| pool.host(host));
    let said = Some(composition.label.clone()).filter(|label| !label.is_empty());
    let (named, said) = match &composition.demand {
        Some(demand) => (demand.to_string(), said),
        None => (said.unwrap_or_else(|| composition.id.to_string()), None),
    };
    ComputerSystem {
        system_type: Some(ComputerSystemSystemType::Composed),
        host_name: physical.map(|host| host.name.clone()),
        power_state: physical.and_then(|host| status::power(host.power_state)),
        power_restore_policy: physical.and_then(status::power_restore_policy),
        links: Some(Box::new(links)),
        // The planner chooses the GPUs of a system that serves a demand.
        actions: composition.demand.is_none().then(|| {
            Box::new(ComputerSystemActions {
                add_resource_block: Some(action("AddResourceBlock")),
                remove_resource_block: Some(action("RemoveResourceBlock")),
                ..ComputerSystemActions::default()
            })
        }),
        name: Some(named),
        description: said,
        ..system(pool, name, &gpus)
    }
}

/// The boxes that its GPUs lie in.
fn chassis_of(pool: &Pool, gpus: &[&Gpu]) -> Vec<Ref> {
    let boxes = gpus
        .iter()
        .filter_map(|gpu| pool.chassis_name(gpu.chassis.as_ref()?));
    let boxes: BTreeSet<&str> = boxes.collect();
    uri::links(boxes.into_iter().map(uri::chassis))
}

/// What both have.
fn system(pool: &Pool, name: &str, gpus: &[&Gpu]) -> ComputerSystem {
    let devices = gpus.iter().filter_map(|gpu| device(pool, gpu));
    ComputerSystem {
        id: Some(name.into()),
        status: status::enabled(),
        processors: Some(uri::link(&format!("Systems/{name}/Processors"))),
        processor_summary: Some(Box::new(ComputerSystemProcessorSummary {
            count: i64::try_from(gpus.len()).ok(),
            ..ComputerSystemProcessorSummary::default()
        })),
        pcie_devices: Some(uri::links(devices)),
        ..ComputerSystem::at(uri::system(name))
    }
}

/// GPUs of a system, as its name says which it is.
pub(crate) fn gpus<'a>(pool: &'a Pool, name: &str) -> Option<Vec<&'a Gpu>> {
    match pool.host(name) {
        Some(host) => Some(pool.gpus_at(&host.id).collect()),
        None => Some(gpus_of(pool, pool.composition(name)?)),
    }
}

fn gpus_of<'a>(pool: &'a Pool, composition: &Composition) -> Vec<&'a Gpu> {
    let held = composition.held.iter().flat_map(|held| &held.gpus);
    let gpus = &pool.topology().gpus;
    held.filter_map(|id| gpus.get(pool.gpus.index(id.as_str())?))
        .collect()
}

pub(crate) fn processors(pool: &Pool, system: &str) -> Option<ProcessorCollection> {
    let gpus = gpus(pool, system)?;
    let names = gpus.iter().filter_map(|gpu| pool.gpus.name(gpu.id.as_str()));
    let members = uri::links(names.map(|gpu| uri::processor(system, gpu)));
    let place = uri::at(&format!("Systems/{system}/Processors"));
    Some(ProcessorCollection::of(
        place,
        format!("GPUs of {system}"),
        members,
    ))
}

pub(crate) fn processor(pool: &Pool, system: &str, name: &str) -> Option<Processor> {
    let gpu = pool.gpu(name)?;
    let has = gpus(pool, system)?.iter().any(|of| of.id == gpu.id);
    let place = uri::processor(system, name);
    has.then(|| Processor {
        metrics: Some(Ref::to(format!("{place}/ProcessorMetrics"))),
        environment_metrics: Some(Ref::to(format!("{place}/EnvironmentMetrics"))),
        ..gpu_at(pool, place, name, gpu)
    })
}

/// A GPU as a processor, wherever it is shown.
pub(crate) fn gpu_at(pool: &Pool, place: String, name: &str, gpu: &Gpu) -> Processor {
    const MIB: u64 = 1 << 20;
    let memory = gpu.memory_bytes.map(|bytes| ProcessorMemorySummary {
        total_memory_size_mib: i64::try_from(bytes.0 / MIB).ok(),
        ..ProcessorMemorySummary::default()
    });
    let device = device(pool, gpu).map(poolwright_redfish_model::Ref::to);
    let interface = ProcessorInterface {
        interface_type: Some(ProcessorSystemInterfaceType::PCIe),
        pcie: Some(Box::new(PCIeDevicePCIeInterface {
            pcie_type: status::pcie_type(gpu.link),
            lanes_in_use: status::lanes(gpu.link),
            ..PCIeDevicePCIeInterface::default()
        })),
        ..ProcessorInterface::default()
    };
    Processor {
        id: Some(name.into()),
        name: Some(gpu.model.clone().unwrap_or_else(|| gpu.id.to_string())),
        processor_type: Some(ProcessorType::GPU),
        manufacturer: gpu.vendor.clone(),
        model: gpu.model.clone(),
        uuid: gpu
            .uuid
            .as_deref()
            .map(|uuid| uuid.trim_start_matches("GPU-").to_owned()),
        serial_number: gpu.serial.clone(),
        status: status::of_gpu(gpu),
        memory_summary: memory.map(Box::new),
        system_interface: Some(Box::new(interface)),
        links: Some(Box::new(ProcessorLinks {
            chassis: gpu
                .chassis
                .as_ref()
                .and_then(|id| pool.chassis_name(id))
                .map(|name| poolwright_redfish_model::Ref::to(uri::chassis(name))),
            pcie_device: device,
            ..ProcessorLinks::default()
        })),
        ..Processor::at(place)
    }
}

fn device(pool: &Pool, gpu: &Gpu) -> Option<String> {
    let chassis = pool.chassis_name(gpu.chassis.as_ref()?)?;
    Some(uri::device(chassis, pool.gpus.name(gpu.id.as_str())?))
}

fn endpoints_of<'a>(pool: &'a Pool, host: &'a Host) -> impl Iterator<Item = String> + 'a {
    host.ports.iter().filter_map(|port| {
        let fabric = pool.fabrics.index(port.fabric.as_str())?;
        let name = pool.endpoints.get(fabric)?.names.name(port.id.as_str())?;
        Some(uri::endpoint(pool.fabrics.at(fabric)?, name))
    })
}
