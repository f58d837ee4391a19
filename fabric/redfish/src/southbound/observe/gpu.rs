//! GPUs as processors show them, completed with their memory, their PCIe functions and their slices.

use super::device::{self, DeviceSeen, FunctionSeen};
use super::walk::Walk;
use super::words;
use crate::southbound::{links, quirks};
use futures_util::future::join_all;
use poolwright_model::fault::FaultKind;
use poolwright_model::topology::{Health, Partition, PciFunction, PciIds};
use poolwright_model::units::{Bytes, LinkWidth};
use poolwright_redfish_model as redfish;

/// Under what the GPU is shown. A chassis or a block shows what is there, a system what a host sees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Owner {
    #[default]
    Chassis,
    Block,
    /// With the system's address.
    System(String),
}

/// One GPU, as one resource and those that it links to show it.
#[derive(Debug, Clone, Default)]
pub(crate) struct GpuSeen {
    /// Of the Processor, or of the PCIeDevice where there is no processor.
    pub(crate) path: String,
    pub(crate) owner: Owner,
    /// Addresses of other resources that mean it too: its PCIe device and functions.
    pub(crate) aliases: Vec<String>,
    pub(crate) vendor: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) uuid: Option<String>,
    pub(crate) serial: Option<String>,
    pub(crate) memory: Option<Bytes>,
    pub(crate) chassis: Option<String>,
    pub(crate) slot: Option<String>,
    /// What says that it can't be taken out.
    pub(crate) permanent: Option<String>,
    pub(crate) pci_ids: Option<PciIds>,
    pub(crate) functions: Vec<PciFunction>,
    pub(crate) partitions: Vec<Partition>,
    pub(crate) link: LinkWidth,
    pub(crate) health: Health,
    pub(crate) firmware: Option<String>,
    pub(crate) locator: Option<LightSeen>,
    /// Switch ports that its device names.
    pub(crate) ports: Vec<String>,
    /// Its PCIe device.
    pub(crate) device: Option<String>,
    /// Addresses of resources that have more to say.
    links: MoreLinks,
}

/// A resource that carries the locator of a GPU.
#[derive(Debug, Clone)]
pub(crate) struct LightSeen {
    pub(crate) path: String,
    pub(crate) lit: bool,
    /// That of the resource.
    pub(crate) serial: Option<String>,
}

#[derive(Debug, Clone, Default)]
struct MoreLinks {
    memory: Vec<String>,
    device: Option<String>,
    functions: Vec<String>,
    slices: Option<String>,
}

impl GpuSeen {
    /// `None` unless it is a GPU, and there.
    pub(crate) fn of_processor(path: &str, owner: Owner, processor: &redfish::Processor) -> Option<Self> {
        if !is_of_type(processor, "GPU") || words::is_absent(processor.status.as_deref()) {
            return None;
        }
        let links = processor.links.as_deref();
        let location = processor.location.as_deref();
        let pcie = processor
            .system_interface
            .as_deref()
            .and_then(|i| i.pcie.as_deref());
        let vendor = words::said(processor.manufacturer.as_deref());
        let device = links::to(links.and_then(|l| l.pcie_device.as_ref())).map(str::to_owned);
        Some(Self {
            path: path.to_owned(),
            owner,
            uuid: words::gpu_uuid(processor.uuid.as_deref(), vendor.as_deref()),
            vendor,
            model: words::said(processor.model.as_deref()),
            serial: words::said(processor.serial_number.as_deref()),
            memory: own_memory(processor),
            chassis: links::to(links.and_then(|l| l.chassis.as_ref())).map(str::to_owned),
            slot: location.and_then(device::place),
            permanent: permanence(location, processor.replaceable),
            link: words::link_width(pcie),
            health: words::health(processor.status.as_deref()),
            firmware: words::said(processor.firmware_version.as_deref()),
            device: device.clone(),
            locator: words::lit(processor.location_indicator_active, &processor.extra).map(|lit| LightSeen {
                path: path.to_owned(),
                lit,
                serial: words::said(processor.serial_number.as_deref()),
            }),
            links: MoreLinks {
                memory: links::all(links.and_then(|l| l.memory.as_ref())),
                device,
                functions: links::all(links.and_then(|l| l.pcie_functions.as_ref())),
                slices: links::to(processor.sub_processors.as_ref()).map(str::to_owned),
            },
            ..Self::default()
        })
    }

    /// A GPU of which only the PCIe device is shown.
    pub(crate) fn of_device(device: &DeviceSeen, owner: Owner, chassis: Option<&str>) -> Self {
        let mut gpu = Self {
            path: device.path.clone(),
            owner,
            chassis: chassis.map(str::to_owned),
            ..Self::default()
        };
        gpu.take_device(device);
        gpu
    }

    /// Adds what its PCIe device says. The processor's own word counts more.
    pub(crate) fn take_device(&mut self, device: &DeviceSeen) {
        self.aliases.push(device.path.clone());
        self.device.get_or_insert_with(|| device.path.clone());
        self.vendor = self.vendor.take().or_else(|| device.vendor.clone());
        self.model = self.model.take().or_else(|| device.model.clone());
        self.serial = self.serial.take().or_else(|| device.serial.clone());
        self.uuid = self
            .uuid
            .take()
            .or_else(|| words::gpu_uuid(device.uuid.as_deref(), self.vendor.as_deref()));
        self.slot = self.slot.take().or_else(|| device.slot.clone());
        self.chassis = self.chassis.take().or_else(|| device.chassis.clone());
        self.link.generation = self.link.generation.or(device.link.generation);
        self.link.lanes = self.link.lanes.or(device.link.lanes);
        if self.health == Health::Unknown {
            self.health = device.health;
        }
        self.firmware = self.firmware.take().or_else(|| device.firmware.clone());
        // A technician pulls the device, so its locator is the GPU's.
        let light = device.lit.map(|lit| LightSeen {
            path: device.path.clone(),
            lit,
            serial: device.serial.clone(),
        });
        self.locator = light.or_else(|| self.locator.take());
        self.ports.extend_from_slice(&device.ports);
        self.pci_ids = device.pci_ids();
        self.take_functions(&device.functions);
    }

    fn take_functions(&mut self, functions: &[FunctionSeen]) {
        self.pci_ids = self
            .pci_ids
            .take()
            .or_else(|| functions.iter().find_map(|seen| seen.function.ids.clone()));
        self.functions = functions.iter().map(|seen| seen.function.clone()).collect();
        self.functions.sort_by_key(|function| function.number);
        self.aliases
            .extend(functions.iter().map(|seen| seen.path.clone()));
    }

    /// Whether an address means this GPU.
    pub(crate) fn is_at(&self, path: &str) -> bool {
        self.path == path || self.aliases.iter().any(|alias| alias == path)
    }

    pub(crate) fn has_uuid_of(&self, other: &Self) -> bool {
        are_same(&self.uuid, &other.uuid) == Some(true)
    }

    /// Whether both are on one PCIe device and their UUIDs don't differ.
    pub(crate) fn is_on_device_of(&self, other: &Self) -> bool {
        are_same(&self.device, &other.device) == Some(true) && self.may_be(other)
    }

    /// Whether both have one serial number and their UUIDs don't differ.
    pub(crate) fn has_serial_of(&self, other: &Self) -> bool {
        are_same(&self.serial, &other.serial) == Some(true) && self.may_be(other)
    }

    /// Whether both have one serial number and different UUIDs: it is the serial number of their board.
    pub(crate) fn is_on_board_of(&self, other: &Self) -> bool {
        are_same(&self.serial, &other.serial) == Some(true) && !self.may_be(other)
    }

    fn may_be(&self, other: &Self) -> bool {
        are_same(&self.uuid, &other.uuid) != Some(false)
    }

    /// Adds another sighting of the same GPU.
    pub(crate) fn take_sighting(&mut self, other: Self) {
        self.uuid = self.uuid.take().or(other.uuid);
        self.serial = self.serial.take().or(other.serial);
        self.vendor = self.vendor.take().or(other.vendor);
        self.model = self.model.take().or(other.model);
        self.pci_ids = self.pci_ids.take().or(other.pci_ids);
        self.memory = self.memory.take().or(other.memory);
        self.aliases.push(other.path);
        self.aliases.extend(other.aliases);
    }
}

/// `None` if one of the two is unknown.
fn are_same(one: &Option<String>, other: &Option<String>) -> Option<bool> {
    Some(one.as_deref()?.eq_ignore_ascii_case(other.as_deref()?))
}

/// Some services write the type in lower case.
pub(crate) fn is_of_type(processor: &redfish::Processor, wanted: &str) -> bool {
    let kind = processor.processor_type.as_ref();
    kind.is_some_and(|kind| kind.as_str().eq_ignore_ascii_case(wanted))
}

/// Reports processors of type Accelerator whose names say GPU: they are not listed as GPUs.
pub(crate) fn note_accelerators(
    walk: &Walk<'_>,
    collection: &str,
    processors: &[(String, redfish::Processor)],
) {
    let named = |processor: &redfish::Processor| {
        let texts = [&processor.manufacturer, &processor.model, &processor.name];
        let texts: Vec<&str> = texts.into_iter().flatten().map(String::as_str).collect();
        let there = is_of_type(processor, "Accelerator") && !words::is_absent(processor.status.as_deref());
        (there && device::calls_itself_gpu(&texts.join(" "))).then(|| texts.join(" "))
    };
    let found: Vec<String> = processors
        .iter()
        .filter_map(|(_, processor)| named(processor))
        .collect();
    if let Some(first) = found.first() {
        let message = format!(
            "{} processors are of type Accelerator and may be GPUs, such as {first}; only processors of type GPU are \
             listed: look for newer firmware, or ask the vendor for the type GPU",
            found.len()
        );
        walk.fault(collection, FaultKind::Incomplete, message);
    }
}

/// Reads what the processors link to.
pub(crate) async fn complete(walk: &Walk<'_>, gpus: &mut [GpuSeen]) {
    join_all(gpus.iter_mut().map(|gpu| complete_one(walk, gpu))).await;
}

async fn complete_one(walk: &Walk<'_>, gpu: &mut GpuSeen) {
    let more = std::mem::take(&mut gpu.links);
    let memory_links = if gpu.memory.is_none() {
        &more.memory[..]
    } else {
        &[]
    };
    let (device, memory, partitions) = tokio::join!(
        device_of(walk, &more),
        linked_memory(walk, memory_links),
        slices(walk, more.slices.as_deref()),
    );
    match device {
        Some(Ok(device)) => {
            device.note_quirks(walk);
            gpu.take_device(&device);
        }
        Some(Err(functions)) => gpu.take_functions(&functions),
        None => {}
    }
    if memory.is_some() {
        walk.quirk(quirks::GPU_MEMORY_BY_LINK);
        gpu.memory = memory;
    }
    gpu.partitions = partitions;
}

/// The device, else only the functions, where that is all there is.
async fn device_of(walk: &Walk<'_>, more: &MoreLinks) -> Option<Result<DeviceSeen, Vec<FunctionSeen>>> {
    if let Some(path) = &more.device
        && let Some(device) = device::read(walk, path).await
    {
        return Some(Ok(device));
    }
    let functions = device::read_functions(walk, &more.functions).await;
    let device = functions.iter().find_map(|seen| seen.device.as_deref());
    match device.filter(|device| more.device.as_deref() != Some(*device)) {
        Some(path) => match device::read(walk, path).await {
            Some(device) => Some(Ok(device)),
            None => Some(Err(functions)),
        },
        None => (!functions.is_empty()).then_some(Err(functions)),
    }
}

async fn linked_memory(walk: &Walk<'_>, links: &[String]) -> Option<Bytes> {
    let modules = join_all(links.iter().map(|link| walk.read::<redfish::Memory>(link))).await;
    mib(modules
        .into_iter()
        .flatten()
        .filter_map(|module| module.capacity_mib))
}

/// MIG instances and their like, where the service shows them as processors inside the processor.
async fn slices(walk: &Walk<'_>, collection: Option<&str>) -> Vec<Partition> {
    let Some(collection) = collection else {
        return Vec::new();
    };
    let members = walk.members::<redfish::Processor>(collection).await.read;
    members
        .iter()
        .map(|(path, slice)| Partition {
            id: slice
                .id
                .clone()
                .unwrap_or_else(|| links::last_part(path).to_owned()),
            memory_bytes: own_memory(slice),
        })
        .collect()
}

/// By its summary, else by the list of its memories, caches left out.
fn own_memory(processor: &redfish::Processor) -> Option<Bytes> {
    let total = processor
        .memory_summary
        .as_deref()
        .and_then(|summary| summary.total_memory_size_mib);
    mib(total.into_iter()).or_else(|| {
        let memories = processor.processor_memory.iter().flatten();
        let is_cache = |memory: &redfish::ProcessorMemory| {
            memory
                .memory_type
                .as_ref()
                .is_some_and(|kind| kind.as_str().contains("Cache"))
        };
        mib(memories
            .filter(|memory| !is_cache(memory))
            .filter_map(|memory| memory.capacity_mib))
    })
}

fn mib(sizes: impl Iterator<Item = i64>) -> Option<Bytes> {
    let total: u64 = sizes
        .filter_map(|size| u64::try_from(size).ok())
        .fold(0, u64::saturating_add);
    (total > 0).then(|| Bytes::from_mib(total))
}

/// The standard's two ways to say that a part stays where it is. `Embedded`: "shall not be used for parts
/// that can be removed by a user" (Resource schema, `LocationType`).
pub(crate) fn permanence(location: Option<&redfish::Location>, replaceable: Option<bool>) -> Option<String> {
    let part = location.and_then(|location| location.part_location.as_deref());
    if part.is_some_and(|part| part.location_type == Some(redfish::LocationType::Embedded)) {
        return Some("its LocationType is Embedded".into());
    }
    (replaceable == Some(false)).then(|| "it is not Replaceable".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn gpu(json: serde_json::Value) -> Option<GpuSeen> {
        GpuSeen::of_processor("/p", Owner::Chassis, &serde_json::from_value(json).unwrap())
    }

    #[test]
    fn only_gpus_that_are_there_count() {
        assert!(gpu(json!({"ProcessorType": "GPU"})).is_some());
        assert!(gpu(json!({"ProcessorType": "gpu"})).is_some());
        assert!(gpu(json!({"ProcessorType": "CPU"})).is_none());
        assert!(gpu(json!({"ProcessorType": "GPU", "Status": {"State": "Absent"}})).is_none());
    }

    #[test]
    fn memory_is_found_wherever_it_is_told_and_caches_are_not_counted() {
        let summary = json!({"ProcessorType": "GPU", "MemorySummary": {"TotalMemorySizeMiB": 81559}});
        assert_eq!(gpu(summary).unwrap().memory, Some(Bytes::from_mib(81_559)));
        let list = json!({"ProcessorType": "GPU", "ProcessorMemory": [
            {"MemoryType": "HBM2", "CapacityMiB": 16384}, {"MemoryType": "Cache", "CapacityMiB": 64}]});
        assert_eq!(gpu(list).unwrap().memory, Some(Bytes::from_mib(16_384)));
        let zero = json!({"ProcessorType": "GPU", "MemorySummary": {"TotalMemorySizeMiB": 0}});
        assert_eq!(gpu(zero).unwrap().memory, None);
    }

    #[test]
    fn a_part_that_is_embedded_stays_where_it_is() {
        let embedded = json!({"ProcessorType": "GPU",
            "Location": {"PartLocation": {"LocationType": "Embedded", "ServiceLabel": "SXM1"}}});
        let gpu_seen = gpu(embedded).unwrap();
        assert!(gpu_seen.permanent.unwrap().contains("Embedded"));
        assert_eq!(gpu_seen.slot.as_deref(), Some("SXM1"));
        assert!(
            gpu(json!({"ProcessorType": "GPU", "Replaceable": false}))
                .unwrap()
                .permanent
                .is_some()
        );
        let slot = json!({"ProcessorType": "GPU", "Replaceable": true,
            "Location": {"PartLocation": {"LocationType": "Slot"}}});
        assert!(gpu(slot).unwrap().permanent.is_none());
    }
}
