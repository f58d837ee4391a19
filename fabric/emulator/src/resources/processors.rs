//! Processors: GPUs in a box or on a host, and a host's CPUs. GPUs of a box can be reset while they are free.

use super::document::{collection, enabled, link, part_location, pcie_interface, status, without_nulls};
use super::resource::uri;
use super::{Done, Problem, Resource, Service, View, chassis, endpoints, pcie_devices};
use crate::rack::{GPU_FIRMWARE, GpuIx, HostIx};
use crate::state::Change;
use poolwright_redfish_model::{Processor, ProcessorCollection};
use serde_json::{Value, json};

const RESET: &str = "Processor.Reset";
const RESET_TYPES: [&str; 1] = ["ForceRestart"];
const CPUS: usize = 2;

/// Below the `Processors` of a box.
pub(crate) fn find_gpu(view: &View<'_>, path: &[&str]) -> Option<Resource> {
    let [id, rest @ ..] = path else {
        let members = view.gpus().into_iter().map(|gpu| view.processor_uri(gpu));
        let here = format!("{}/Processors", chassis::chassis_uri(view.main_chassis()));
        return Some(Resource::of(collection(
            here,
            ProcessorCollection::ODATA_TYPE,
            "GPUs",
            members,
        )));
    };
    let gpu = view.gpu_with_id(id)?;
    match rest {
        [] => Some(Resource::of(gpu_processor(view, gpu))),
        ["Actions", RESET] if offers_reset(view) => Some(reset(gpu)),
        _ => None,
    }
}

/// Below the `Processors` of a host's system.
pub(crate) fn find_on_host(view: &View<'_>, host: HostIx, path: &[&str]) -> Option<Resource> {
    match path {
        [] => {
            let cpus = (1..=CPUS).map(cpu_uri);
            let gpus = view.gpus().into_iter().map(|gpu| view.processor_uri(gpu));
            let here = uri("Systems/1/Processors");
            let all = collection(
                here,
                ProcessorCollection::ODATA_TYPE,
                "Processors",
                cpus.chain(gpus),
            );
            Some(Resource::of(all))
        }
        [id] => match (1..=CPUS).find(|number| cpu_id(*number) == *id) {
            Some(number) => Some(Resource::of(cpu(view, host, number))),
            None => view
                .gpu_with_id(id)
                .map(|gpu| Resource::of(gpu_processor(view, gpu))),
        },
        _ => None,
    }
}

fn cpu_id(number: usize) -> String {
    format!("cpu-{number}")
}

fn cpu_uri(number: usize) -> String {
    uri(format_args!("Systems/1/Processors/{}", cpu_id(number)))
}

fn cpu(view: &View<'_>, host: HostIx, number: usize) -> Value {
    json!({
        "@odata.id": cpu_uri(number),
        "@odata.type": Processor::ODATA_TYPE,
        "Id": cpu_id(number),
        "Name": format!("CPU {number}"),
        "ProcessorType": "CPU",
        "Socket": format!("CPU {number}"),
        "Manufacturer": view.rack[host].manufacturer,
        "Model": "Emulated CPU",
        "TotalCores": 32,
        "TotalThreads": 64,
        "Status": enabled(),
        "Links": { "Chassis": link(chassis::chassis_uri("1")) },
    })
}

/// A GPU is reset by its box, not by the host that borrows it.
fn offers_reset(view: &View<'_>) -> bool {
    view.rack.options.reset_action && matches!(view.service, Service::Box(_))
}

fn gpu_processor(view: &View<'_>, gpu: GpuIx) -> Value {
    let own = &view.rack[gpu];
    let here = view.processor_uri(gpu);
    let (slot, in_slot) = view.slot_of(gpu);
    let knows_uuid = matches!(view.service, Service::Bmc(_)) || view.rack.options.box_knows_uuid;
    let mut interface = json!({ "InterfaceType": "PCIe" });
    interface["PCIe"] = pcie_interface(own.kind.link, own.link);
    let mut processor = without_nulls(json!({
        "@odata.id": here,
        "@odata.type": Processor::ODATA_TYPE,
        "Id": view.gpu_id(gpu),
        "Name": format!("GPU {slot}"),
        "ProcessorType": "GPU",
        "Manufacturer": own.kind.vendor,
        "Model": own.kind.display_name(),
        "SerialNumber": own.serial,
        "FirmwareVersion": GPU_FIRMWARE,
        "UUID": knows_uuid.then_some(own.uuid),
        "MaxTDPWatts": own.kind.tdp_w.map(|watts| watts.round() as i64),
        "MemorySummary": { "TotalMemorySizeMiB": own.kind.memory().mib() },
        "SystemInterface": interface,
        "Location": part_location(if in_slot { "Slot" } else { "Module" }, slot),
        "Status": status(if view.state.resetting(gpu) { "Starting" } else { "Enabled" }),
        "Links": {
            "Chassis": link(chassis::of_gpu(view, gpu)),
            "PCIeDevice": link(view.device_uri(gpu)),
            "PCIeFunctions": [link(pcie_devices::function_uri(view, gpu, 0))],
        },
    }));
    if let Service::Box(_) = view.service {
        processor["Links"]["Endpoints"] = json!([link(endpoints::gpu_uri(view.rack, view.label(gpu)))]);
    }
    if offers_reset(view) {
        processor["Actions"] = json!({ format!("#{RESET}"): {
            "target": format!("{here}/Actions/{RESET}"),
            "ResetType@Redfish.AllowableValues": RESET_TYPES,
        } });
    }
    processor
}

fn reset(gpu: GpuIx) -> Resource {
    Resource::action(Processor::SCHEMA, RESET, move |writing| {
        if let Some(kind) = writing.body.get("ResetType").and_then(Value::as_str)
            && !RESET_TYPES.contains(&kind)
        {
            return Err(Problem::bad(
                "ActionParameterValueNotInList",
                &[kind, "ResetType", RESET],
            ));
        }
        // Accepted is not done: the answer comes at once, and the GPU shows when it is ready.
        match writing.begin(Change::Reset { gpu }, None)? {
            Done::Change { .. } => Ok(Done::Quietly),
            task => Ok(task),
        }
    })
}
