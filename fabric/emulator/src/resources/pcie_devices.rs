//! PCIe devices and their functions: what a GPU is on the bus. Function 1, where there is one, is audio.

use super::document::{
    collection, enabled, lanes, link, links, part_location, pcie_interface, pcie_type, without_nulls,
};
use super::{Done, Resource, Service, View, chassis, switches};
use crate::rack::{GPU_FIRMWARE, Gpu, GpuIx, Home};
use poolwright_redfish_model::{PCIeDevice, PCIeDeviceCollection, PCIeFunction, PCIeFunctionCollection};
use serde_json::{Value, json};

/// PCI class codes (PCI Code and ID Assignment Specification): 3D controller, VGA, audio.
const CLASS_3D: &str = "0x030200";
const CLASS_VGA: &str = "0x030000";
const CLASS_AUDIO: &str = "0x040300";

pub(crate) fn find(view: &View<'_>, path: &[&str]) -> Option<Resource> {
    let [id, rest @ ..] = path else {
        let members = view.gpus().into_iter().map(|gpu| view.device_uri(gpu));
        let here = format!("{}/PCIeDevices", chassis::chassis_uri(view.main_chassis()));
        return Some(Resource::of(collection(
            here,
            PCIeDeviceCollection::ODATA_TYPE,
            "PCIe devices",
            members,
        )));
    };
    let gpu = view.gpu_with_id(id)?;
    match rest {
        [] => {
            let resource = Resource::of(device(view, gpu));
            Some(match chassis::has_locator(view) {
                true => resource.patch(
                    PCIeDevice::SCHEMA,
                    &["/LocationIndicatorActive"],
                    move |writing| {
                        let lit = writing
                            .body
                            .get("LocationIndicatorActive")
                            .and_then(Value::as_bool);
                        writing.state.set_lit(gpu, lit.unwrap_or_default());
                        Ok(Done::Quietly)
                    },
                ),
                false => resource,
            })
        }
        ["PCIeFunctions"] => {
            let members = (0..functions(&view.rack[gpu])).map(|number| function_uri(view, gpu, number));
            let here = functions_uri(view, gpu);
            Some(Resource::of(collection(
                here,
                PCIeFunctionCollection::ODATA_TYPE,
                "Functions",
                members,
            )))
        }
        ["PCIeFunctions", number] => {
            let number = number.parse().ok().filter(|n| *n < functions(&view.rack[gpu]))?;
            Some(Resource::of(function(view, gpu, number)))
        }
        _ => None,
    }
}

/// How many functions a GPU has.
pub(crate) fn functions(gpu: &Gpu) -> u8 {
    if gpu.display { 2 } else { 1 }
}

fn functions_uri(view: &View<'_>, gpu: GpuIx) -> String {
    format!("{}/PCIeFunctions", view.device_uri(gpu))
}

pub(crate) fn function_uri(view: &View<'_>, gpu: GpuIx, number: u8) -> String {
    format!("{}/{number}", functions_uri(view, gpu))
}

/// The class code of a function, such as `0x030200`.
pub(crate) fn class_code(gpu: &Gpu, number: u8) -> &'static str {
    match (gpu.display, number) {
        (false, _) => CLASS_3D,
        (true, 0) => CLASS_VGA,
        (true, _) => CLASS_AUDIO,
    }
}

/// Whether this service shows the GPU as a processor, too.
fn is_processor(view: &View<'_>) -> bool {
    matches!(view.service, Service::Bmc(_)) || view.rack.options.processors
}

fn device(view: &View<'_>, gpu: GpuIx) -> Value {
    let own = &view.rack[gpu];
    let (number, in_slot) = view.slot_of(gpu);
    let mut links_of_device = json!({ "Chassis": [link(chassis::of_gpu(view, gpu))] });
    if is_processor(view) {
        links_of_device["Processors"] = json!([link(view.processor_uri(gpu))]);
    }
    if let (Service::Box(at), Home::Box(_, switch)) = (view.service, own.home) {
        let port = switches::gpu_port_uri(view.rack, at, switch, gpu);
        links_of_device["ConnectedPCIePorts"] = links(port);
    }
    let mut device = json!({
        "@odata.id": view.device_uri(gpu),
        "@odata.type": PCIeDevice::ODATA_TYPE,
        "Id": view.gpu_id(gpu),
        "Name": format!("GPU {number}"),
        "DeviceType": if functions(own) > 1 { "MultiFunction" } else { "SingleFunction" },
        "Manufacturer": own.kind.vendor,
        "Model": own.kind.display_name(),
        "SerialNumber": own.serial,
        "FirmwareVersion": GPU_FIRMWARE,
        "PCIeInterface": pcie_interface(own.kind.link, own.link),
        "PCIeFunctions": link(functions_uri(view, gpu)),
        "Status": enabled(),
        "Links": links_of_device,
    });
    if chassis::has_locator(view) {
        device["LocationIndicatorActive"] = json!(view.state.lit(gpu));
    }
    if in_slot {
        device["Slot"] = without_nulls(json!({
            "PCIeType": pcie_type(own.link),
            "Lanes": lanes(own.link),
            "SlotType": "FullLength",
            "HotPluggable": true,
            "Location": part_location("Slot", number),
        }));
    }
    device
}

fn function(view: &View<'_>, gpu: GpuIx, number: u8) -> Value {
    let own = &view.rack[gpu];
    let ids = own.kind.pci_ids.first();
    let hex = |id: &String| format!("0x{}", id.to_uppercase());
    let is_gpu = number == 0;
    let mut links_of_function = json!({ "PCIeDevice": link(view.device_uri(gpu)) });
    if is_gpu && is_processor(view) {
        links_of_function["Processor"] = link(view.processor_uri(gpu));
    }
    without_nulls(json!({
        "@odata.id": function_uri(view, gpu, number),
        "@odata.type": PCIeFunction::ODATA_TYPE,
        "Id": number.to_string(),
        "Name": if is_gpu { "GPU" } else { "Audio" },
        "FunctionId": number,
        "FunctionType": "Physical",
        "DeviceClass": if is_gpu { "DisplayController" } else { "MultimediaController" },
        "ClassCode": class_code(own, number),
        "VendorId": ids.map(|ids| hex(&ids.vendor)),
        // The audio function has an id of its own, which the profiles do not hold.
        "DeviceId": ids.filter(|_| is_gpu).map(|ids| hex(&ids.device)),
        "SubsystemVendorId": ids.and_then(|ids| ids.subsystem_vendor.as_ref()).map(hex),
        "SubsystemId": ids.and_then(|ids| ids.subsystem.as_ref()).map(hex),
        "Status": enabled(),
        "Links": links_of_function,
    }))
}
