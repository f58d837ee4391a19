//! Boxes: their GPUs as PCIe devices with all functions, their slots and their switches.

use super::pool::{InChassis, Pool};
use super::{status, uri};
use poolwright_model::topology::{Gpu, PciFunction, PciIds};
use poolwright_redfish_model::{
    Chassis, ChassisCollection, ChassisLinks, ChassisType, Collection, Location, LocationType, PCIeDevice,
    PCIeDeviceCollection, PCIeDeviceDeviceType, PCIeDeviceLinks, PCIeDevicePCIeInterface, PCIeDeviceSlot,
    PCIeFunction, PCIeFunctionCollection, PCIeFunctionDeviceClass, PCIeFunctionFunctionType,
    PCIeFunctionLinks, PCIeSlots, PCIeSlotsPCIeLinks, PCIeSlotsPCIeSlot, PartLocation, Ref, Resource,
};

pub(crate) fn all(pool: &Pool) -> ChassisCollection {
    let members = uri::links(pool.chassis.iter().map(uri::chassis));
    ChassisCollection::of(uri::at("Chassis"), "Chassis", members)
}

pub(crate) fn one(pool: &Pool, name: &str) -> Option<Chassis> {
    let holds = holds(pool, name)?;
    let switches = holds.switches.iter().filter_map(|index| {
        let switch = pool.topology().switches.get(*index)?;
        let fabric = pool.fabrics.index(switch.fabric.as_str())?;
        let name = pool.switch_name(fabric, &switch.id)?;
        Some(uri::switch(pool.fabrics.at(fabric)?, name))
    });
    Some(Chassis {
        id: Some(name.into()),
        name: Some(name.into()),
        chassis_type: Some(ChassisType::Enclosure),
        status: status::enabled(),
        pcie_devices: Some(uri::link(&format!("Chassis/{name}/PCIeDevices"))),
        pcie_slots: Some(uri::link(&format!("Chassis/{name}/PCIeSlots"))),
        links: Some(Box::new(ChassisLinks {
            switches: Some(uri::links(switches)),
            managed_by: Some(uri::links([uri::at("Managers/Poolwright")])),
            ..ChassisLinks::default()
        })),
        ..Chassis::at(uri::chassis(name))
    })
}

fn holds<'a>(pool: &'a Pool, chassis: &str) -> Option<&'a InChassis> {
    pool.in_chassis.get(pool.chassis.find(chassis)?)
}

fn gpus<'a>(pool: &'a Pool, chassis: &str) -> Option<impl Iterator<Item = (&'a str, &'a Gpu)>> {
    let holds = holds(pool, chassis)?;
    let named = |index: &usize| Some((pool.gpus.at(*index)?, pool.topology().gpus.get(*index)?));
    Some(holds.gpus.iter().filter_map(named))
}

/// A GPU, if it sits in this box.
fn gpu<'a>(pool: &'a Pool, chassis: &str, name: &str) -> Option<&'a Gpu> {
    let gpu = pool.gpu(name)?;
    let here = pool.chassis_name(gpu.chassis.as_ref()?)? == chassis;
    here.then_some(gpu)
}

pub(crate) fn slots(pool: &Pool, chassis: &str) -> Option<PCIeSlots> {
    let slots = gpus(pool, chassis)?.map(|(name, gpu)| PCIeSlotsPCIeSlot {
        hot_pluggable: Some(true),
        pcie_type: status::pcie_type(gpu.link),
        lanes: status::lanes(gpu.link),
        location: location(gpu),
        status: status::enabled(),
        links: Some(Box::new(PCIeSlotsPCIeLinks {
            pcie_device: Some(uri::links([uri::device(chassis, name)])),
            ..PCIeSlotsPCIeLinks::default()
        })),
        ..PCIeSlotsPCIeSlot::default()
    });
    Some(PCIeSlots {
        id: Some("PCIeSlots".into()),
        name: Some(format!("PCIe slots of {chassis}")),
        slots: Some(slots.collect()),
        ..PCIeSlots::at(format!("{}/PCIeSlots", uri::chassis(chassis)))
    })
}

fn location(gpu: &Gpu) -> Option<Box<Location>> {
    let slot = gpu.slot.as_ref()?;
    Some(Box::new(Location {
        part_location: Some(Box::new(PartLocation {
            service_label: Some(slot.clone()),
            location_type: Some(LocationType::Slot),
            ..PartLocation::default()
        })),
        ..Location::default()
    }))
}

pub(crate) fn devices(pool: &Pool, chassis: &str) -> Option<PCIeDeviceCollection> {
    let members = uri::links(gpus(pool, chassis)?.map(|(name, _)| uri::device(chassis, name)));
    let place = format!("{}/PCIeDevices", uri::chassis(chassis));
    Some(PCIeDeviceCollection::of(
        place,
        format!("PCIe devices of {chassis}"),
        members,
    ))
}

pub(crate) fn device(pool: &Pool, chassis: &str, name: &str) -> Option<PCIeDevice> {
    let gpu = gpu(pool, chassis, name)?;
    let place = uri::device(chassis, name);
    let holder = gpu.host.as_ref().and_then(|host| pool.system_of(host));
    let several = gpu.functions.len() > 1;
    Some(PCIeDevice {
        id: Some(name.into()),
        name: Some(gpu.model.clone().unwrap_or_else(|| gpu.id.to_string())),
        manufacturer: gpu.vendor.clone(),
        model: gpu.model.clone(),
        serial_number: gpu.serial.clone(),
        firmware_version: gpu.firmware.clone(),
        location_indicator_active: gpu.locator.as_ref().map(|locator| locator.lit),
        device_type: Some(if several {
            PCIeDeviceDeviceType::MultiFunction
        } else {
            PCIeDeviceDeviceType::SingleFunction
        }),
        status: status::of_gpu(gpu),
        pcie_interface: Some(Box::new(PCIeDevicePCIeInterface {
            pcie_type: status::pcie_type(gpu.link),
            lanes_in_use: status::lanes(gpu.link),
            ..PCIeDevicePCIeInterface::default()
        })),
        slot: location(gpu).map(|location| {
            Box::new(PCIeDeviceSlot {
                location: Some(location),
                ..PCIeDeviceSlot::default()
            })
        }),
        pcie_functions: Some(Ref::to(format!("{place}/PCIeFunctions"))),
        links: Some(Box::new(PCIeDeviceLinks {
            chassis: Some(uri::links([uri::chassis(chassis)])),
            processors: holder.map(|system| uri::links([uri::processor(system, name)])),
            ..PCIeDeviceLinks::default()
        })),
        ..PCIeDevice::at(place)
    })
}

pub(crate) fn functions(pool: &Pool, chassis: &str, device: &str) -> Option<PCIeFunctionCollection> {
    let gpu = gpu(pool, chassis, device)?;
    let place = format!("{}/PCIeFunctions", uri::device(chassis, device));
    let members = gpu
        .functions
        .iter()
        .map(|function| format!("{place}/{}", function.number));
    let members = uri::links(members);
    Some(PCIeFunctionCollection::of(
        place,
        format!("PCIe functions of {device}"),
        members,
    ))
}

pub(crate) fn function(pool: &Pool, chassis: &str, device: &str, number: &str) -> Option<PCIeFunction> {
    let gpu = gpu(pool, chassis, device)?;
    let function = gpu
        .functions
        .iter()
        .find(|function| function.number.to_string() == number)?;
    let ids = function.ids.as_ref();
    let id = |of: fn(&PciIds) -> Option<&String>| ids.and_then(of).map(|id| hexadecimal(id));
    Some(PCIeFunction {
        id: Some(number.into()),
        name: Some(format!("Function {number} of {device}")),
        function_id: Some(i64::from(function.number)),
        function_type: Some(PCIeFunctionFunctionType::Physical),
        class_code: function.class.as_deref().map(hexadecimal),
        device_class: Some(class(function)),
        vendor_id: id(|ids| Some(&ids.vendor)),
        device_id: id(|ids| Some(&ids.device)),
        subsystem_vendor_id: id(|ids| ids.subsystem_vendor.as_ref()),
        subsystem_id: id(|ids| ids.subsystem.as_ref()),
        status: status::of_gpu(gpu),
        links: Some(Box::new(PCIeFunctionLinks {
            pcie_device: Some(Ref::to(uri::device(chassis, device))),
            ..PCIeFunctionLinks::default()
        })),
        ..PCIeFunction::at(format!("{}/PCIeFunctions/{number}", uri::device(chassis, device)))
    })
}

fn hexadecimal(digits: &str) -> String {
    format!("0x{}", digits.to_uppercase())
}

/// By the base class, the first two digits of the class code (PCI Code and ID Assignment Specification).
fn class(function: &PciFunction) -> PCIeFunctionDeviceClass {
    let base = function.class.as_deref().and_then(|class| class.get(..2));
    match base {
        Some("03") => PCIeFunctionDeviceClass::DisplayController,
        Some("04") => PCIeFunctionDeviceClass::MultimediaController,
        Some("06") => PCIeFunctionDeviceClass::Bridge,
        Some("0c") => PCIeFunctionDeviceClass::SerialBusController,
        Some("12") => PCIeFunctionDeviceClass::ProcessingAccelerators,
        _ => PCIeFunctionDeviceClass::Other,
    }
}
