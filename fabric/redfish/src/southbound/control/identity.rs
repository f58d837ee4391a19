//! Which GPUs an address of a fabric means, and what identifies them.

use super::Call;
use crate::southbound::links;
use crate::southbound::observe::fabrics::EndpointSeen;
use crate::southbound::observe::gpu;
use crate::southbound::observe::words;
use poolwright_driver::{DriverError, GpuIdentity};
use poolwright_model::control::{ControlPoint, ControlStyle};
use poolwright_model::topology::PciIds;
use poolwright_redfish_model as redfish;
use std::collections::BTreeSet;

/// The resources that show one GPU; one of them at least.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Shown {
    processor: Option<String>,
    device: Option<String>,
}

/// The identity of each GPU at an address, read from the service.
pub(super) async fn identify(call: &Call<'_>, unit: &ControlPoint) -> Result<Vec<GpuIdentity>, DriverError> {
    let (shown, uuids) = resources(call, unit).await?;
    // An endpoint may name its entity by UUID alone.
    if let ([], [uuid]) = (&shown[..], &uuids[..]) {
        return Ok(vec![GpuIdentity {
            uuid: Some(uuid.clone()),
            ..GpuIdentity::default()
        }]);
    }
    let mut found = Vec::new();
    for gpu in shown {
        found.extend(read(call, gpu).await?);
    }
    Ok(found)
}

/// The addresses of the processors at an address of a fabric.
pub(super) async fn processors(call: &Call<'_>, unit: &ControlPoint) -> Result<Vec<String>, DriverError> {
    let (shown, _) = resources(call, unit).await?;
    Ok(shown.into_iter().filter_map(|gpu| gpu.processor).collect())
}

/// The resources of the GPUs at an address of a fabric, and the UUIDs of the entities that its endpoint names.
async fn resources(call: &Call<'_>, unit: &ControlPoint) -> Result<(Vec<Shown>, Vec<String>), DriverError> {
    if unit.style == ControlStyle::ResourceBlocks {
        return Ok((of_block(call, &unit.address).await?, Vec::new()));
    }
    let end = call.read::<redfish::Endpoint>(&unit.address).await?.value;
    let uuids = EndpointSeen::of(&unit.address, &end).entity_uuids;
    Ok((of_end(call, &end).await?, uuids))
}

async fn of_block(call: &Call<'_>, block: &str) -> Result<Vec<Shown>, DriverError> {
    let block = call.read::<redfish::ResourceBlock>(block).await?.value;
    let processors = links::all(block.processors.as_ref()).into_iter();
    let shown = processors.map(|path| Shown {
        processor: Some(path),
        device: None,
    });
    Ok(shown.collect())
}

/// What a fabric's end stands for, directly or by its PCIe device.
async fn of_end(call: &Call<'_>, end: &redfish::Endpoint) -> Result<Vec<Shown>, DriverError> {
    let mut shown = Vec::new();
    for entity in end.connected_entities.iter().flatten() {
        let Some(path) = links::to(entity.entity_link.as_ref()) else {
            continue;
        };
        // One read for all kinds of entities: what it is is told by its type.
        let Some(resource) = call.read_if_there::<redfish::PCIeDevice>(path).await? else {
            continue;
        };
        let kind = resource
            .value
            .odata_type
            .as_deref()
            .and_then(redfish::ODataType::parse);
        match kind.map(|kind| kind.namespace) {
            Some("Processor") => shown.push(Shown {
                processor: Some(path.to_owned()),
                device: None,
            }),
            Some("PCIeDevice") => {
                let links = resource.value.links.as_deref();
                let processors = links::all(links.and_then(|links| links.processors.as_ref()));
                let device = Some(path.to_owned());
                match processors.is_empty() {
                    true => shown.push(Shown {
                        processor: None,
                        device,
                    }),
                    false => shown.extend(processors.into_iter().map(|path| Shown {
                        processor: Some(path),
                        device: device.clone(),
                    })),
                }
            }
            _ => {}
        }
    }
    shown.sort();
    shown.dedup_by(|later, first| later.processor.is_some() && later.processor == first.processor);
    Ok(shown)
}

/// The processor's own word counts more than its device's, as in an observation. `None` where no GPU is there.
async fn read(call: &Call<'_>, shown: Shown) -> Result<Option<GpuIdentity>, DriverError> {
    let mut found = GpuIdentity::default();
    let mut device = shown.device;
    if let Some(path) = &shown.processor {
        let Some(processor) = call.read_if_there::<redfish::Processor>(path).await? else {
            return Ok(None);
        };
        let processor = processor.value;
        if !gpu::is_of_type(&processor, "GPU") || words::is_absent(processor.status.as_deref()) {
            return Ok(None);
        }
        let vendor = words::said(processor.manufacturer.as_deref());
        found.uuid = words::gpu_uuid(processor.uuid.as_deref(), vendor.as_deref());
        found.serial = words::said(processor.serial_number.as_deref());
        let links = processor.links.as_deref();
        device = device.or(links::to(links.and_then(|l| l.pcie_device.as_ref())).map(str::to_owned));
    }
    if found.uuid.is_some() && found.serial.is_some() {
        return Ok(Some(found));
    }
    let Some(path) = device else {
        return Ok(Some(found));
    };
    let Some(device) = call.read_if_there::<redfish::PCIeDevice>(&path).await? else {
        return Ok(shown.processor.map(|_| found));
    };
    let device = device.value;
    if shown.processor.is_none() && words::is_absent(device.status.as_deref()) {
        return Ok(None);
    }
    let vendor = words::said(device.manufacturer.as_deref());
    found.uuid = found
        .uuid
        .or_else(|| words::gpu_uuid(device.uuid.as_deref(), vendor.as_deref()));
    found.serial = found
        .serial
        .or_else(|| words::said(device.serial_number.as_deref()));
    if found.uuid.is_none() {
        found.uuid = uuid_in_other_views(call, &device, shown.processor.as_deref()).await?;
    }
    if found.is_by_location_only() {
        found.ids = ids(call, &device).await?;
    }
    Ok(Some(found))
}

/// The UUID that a host's processor resource shows of a GPU. All GPUs of a board may show one serial number.
async fn uuid_in_other_views(
    call: &Call<'_>,
    device: &redfish::PCIeDevice,
    own: Option<&str>,
) -> Result<Option<String>, DriverError> {
    let links = device.links.as_deref();
    let mut uuids = BTreeSet::new();
    for path in links::all(links.and_then(|links| links.processors.as_ref())) {
        if Some(path.as_str()) == own {
            continue;
        }
        let processor = call.read_if_there::<redfish::Processor>(&path).await?;
        let gpu = processor.filter(|found| gpu::is_of_type(&found.value, "GPU"));
        uuids.extend(gpu.and_then(|gpu| {
            let vendor = words::said(gpu.value.manufacturer.as_deref());
            words::gpu_uuid(gpu.value.uuid.as_deref(), vendor.as_deref())
        }));
    }
    // The UUIDs of several GPUs tell nothing of this one.
    let only = uuids.pop_first();
    Ok(only.filter(|_| uuids.is_empty()))
}

/// Of the first function that has some.
async fn ids(call: &Call<'_>, device: &redfish::PCIeDevice) -> Result<Option<PciIds>, DriverError> {
    let links = device.links.as_deref();
    let functions = match links::to(device.pcie_functions.as_ref()) {
        Some(collection) => call.paths(collection).await?,
        None => links::all(links.and_then(|links| links.pcie_functions.as_ref())),
    };
    for path in functions {
        let function = call.read_if_there::<redfish::PCIeFunction>(&path).await?;
        let ids = function.and_then(|function| words::pci_ids(&function.value));
        if ids.is_some() {
            return Ok(ids);
        }
    }
    Ok(None)
}
