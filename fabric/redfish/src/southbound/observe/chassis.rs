//! Chassis: the GPUs and PCIe devices that they hold, and the adapters through which a host reaches a fabric.

use super::gpu::{self, GpuSeen, Owner, permanence};
use super::walk::Walk;
use super::{Devices, device_ports, words};
use crate::southbound::links;
use futures_util::future::join_all;
use poolwright_model::id::ChassisId;
use poolwright_redfish_model as redfish;

#[derive(Debug, Clone)]
pub(crate) struct ChassisSeen {
    pub(crate) path: String,
    pub(crate) uuid: Option<String>,
    pub(crate) contained_by: Option<String>,
    pub(crate) systems: Vec<String>,
    pub(crate) permanent: Option<String>,
    /// Its collection of PCIe devices.
    pub(crate) devices: Option<String>,
    /// Hot-plug slots, where it is an adapter that has some.
    pub(crate) slots: Option<Slots>,
    /// It holds a whole machine, and is no part of one.
    pub(crate) is_enclosure: bool,
    /// It is a part of something that holds no GPU itself, so it may be an adapter.
    may_be_adapter: bool,
    processors: Option<String>,
    /// Its collection of network adapters.
    adapters: Option<String>,
    slots_at: Option<String>,
}

/// Slots into which a GPU can be plugged while the host runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slots {
    pub(crate) all: u32,
    pub(crate) free: u32,
}

/// All chassis, and the devices in them.
pub(crate) async fn read(walk: &Walk<'_>, root: &redfish::ServiceRoot) -> (Vec<ChassisSeen>, Devices) {
    let Some(collection) = links::to(root.chassis.as_ref()) else {
        return Default::default();
    };
    let members = walk.members::<redfish::Chassis>(collection).await.read;
    let mut chassis: Vec<ChassisSeen> = members
        .iter()
        .map(|(path, chassis)| ChassisSeen::of(path, chassis))
        .collect();
    drop(members);
    let devices = join_all(chassis.iter_mut().map(|chassis| look_inside(walk, chassis))).await;
    (chassis, devices.into_iter().collect())
}

async fn look_inside(walk: &Walk<'_>, chassis: &mut ChassisSeen) -> Devices {
    let processors = async {
        let read = match &chassis.processors {
            Some(collection) => {
                let read = walk.members::<redfish::Processor>(collection).await.read;
                gpu::note_accelerators(walk, collection, &read);
                read
            }
            None => Vec::new(),
        };
        let ports = device_ports::of_processors(walk, &read).await;
        (read, ports)
    };
    let slots = async {
        let path = chassis.slots_at.as_deref().filter(|_| chassis.may_be_adapter)?;
        slots_of(&walk.read::<redfish::PCIeSlots>(path).await?)
    };
    let adapters = device_ports::of_adapters(walk, chassis.adapters.as_deref());
    let ((processors, mut ports), slots, adapters) = tokio::join!(processors, slots, adapters);
    ports.extend(adapters);
    chassis.slots = slots;
    let gpus = processors
        .iter()
        .filter_map(|(path, processor)| GpuSeen::of_processor(path, Owner::Chassis, processor));
    let gpus = gpus.map(|mut gpu| {
        gpu.chassis.get_or_insert_with(|| chassis.path.clone());
        gpu
    });
    Devices {
        gpus: gpus.collect(),
        ports,
    }
}

impl ChassisSeen {
    fn of(path: &str, chassis: &redfish::Chassis) -> Self {
        use redfish::ChassisType as Type;
        let links = chassis.links.as_deref();
        let part_of_something = links::to(links.and_then(|l| l.contained_by.as_ref()));
        let is_part = matches!(
            chassis.chassis_type,
            Some(Type::Module | Type::Card | Type::Cartridge | Type::Component | Type::Expansion)
        );
        let is_enclosure = matches!(
            chassis.chassis_type,
            Some(
                Type::Rack
                    | Type::RackMount
                    | Type::StandAlone
                    | Type::Blade
                    | Type::Sled
                    | Type::Enclosure
                    | Type::Drawer
                    | Type::Shelf
            )
        );
        let holds_processors = links
            .and_then(|l| l.processors.as_ref())
            .is_some_and(|list| !list.is_empty());
        let uuid = words::uuid(chassis.uuid.as_deref());
        Self {
            path: path.to_owned(),
            may_be_adapter: uuid.is_some() && is_part && part_of_something.is_some() && !holds_processors,
            is_enclosure,
            uuid,
            contained_by: part_of_something.map(str::to_owned),
            systems: links::all(links.and_then(|l| l.computer_systems.as_ref())),
            permanent: permanence(chassis.location.as_deref(), chassis.replaceable),
            devices: links::to(chassis.pcie_devices.as_ref()).map(str::to_owned),
            slots: None,
            processors: links::to(chassis.processors.as_ref()).map(str::to_owned),
            adapters: links::to(chassis.network_adapters.as_ref()).map(str::to_owned),
            slots_at: links::to(chassis.pcie_slots.as_ref()).map(str::to_owned),
        }
    }
}

/// A chassis is called by the last part of its address: that is unique in its collection.
pub(crate) fn id(path: &str) -> ChassisId {
    ChassisId::from_lossy(links::last_part(path))
}

/// `None` where nothing can be plugged while the host runs. Slots for drives don't count.
pub(crate) fn slots_of(slots: &redfish::PCIeSlots) -> Option<Slots> {
    use redfish::PCIeSlotsSlotTypes as Type;
    let for_cards = |slot: &&redfish::PCIeSlotsPCIeSlot| {
        slot.hot_pluggable == Some(true) && !matches!(slot.slot_type, Some(Type::M2 | Type::U2))
    };
    let is_free = |slot: &&redfish::PCIeSlotsPCIeSlot| {
        slot.links
            .as_deref()
            .is_none_or(|links| links::all(links.pcie_device.as_ref()).is_empty())
    };
    let (mut all, mut free) = (0, 0);
    for slot in slots.slots.iter().flatten().filter(for_cards) {
        all += 1;
        free += u32::from(is_free(&slot));
    }
    (all > 0).then_some(Slots { all, free })
}

/// Addresses of a chassis and of everything that it is contained in, from the inside out. A circle ends it.
pub(crate) fn containers<'a>(chassis: &'a [ChassisSeen], path: &'a str) -> Vec<&'a str> {
    let mut found = vec![path];
    while let Some(next) = chassis
        .iter()
        .find(|seen| Some(seen.path.as_str()) == found.last().copied())
        .and_then(|seen| seen.contained_by.as_deref())
        .filter(|next| !found.contains(next))
    {
        found.push(next);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn chassis(path: &str, json: serde_json::Value) -> ChassisSeen {
        ChassisSeen::of(path, &serde_json::from_value(json).unwrap())
    }

    #[test]
    fn only_hot_plug_slots_for_cards_count() {
        let slots = json!({"Slots": [
            {"HotPluggable": true, "SlotType": "FullLength", "Links": {"PCIeDevice": [{"@odata.id": "/d"}]}},
            {"HotPluggable": true, "SlotType": "FullLength"},
            {"HotPluggable": true, "SlotType": "U2"},
            {"SlotType": "FullLength"},
        ]});
        let slots = slots_of(&serde_json::from_value(slots).unwrap());
        assert_eq!(slots, Some(Slots { all: 2, free: 1 }));
        let none = json!({"Slots": [{"SlotType": "FullLength"}]});
        assert_eq!(slots_of(&serde_json::from_value(none).unwrap()), None);
    }

    #[test]
    fn an_adapter_is_a_part_with_a_durable_name() {
        let uuid = "37596f04-b032-48ce-9bad-7d55a61fe574";
        let within = json!({"ContainedBy": {"@odata.id": "/redfish/v1/Chassis/1"}});
        let adapter = json!({"ChassisType": "Module", "UUID": uuid, "Links": within});
        assert!(chassis("/a", adapter).may_be_adapter);
        for other in [
            json!({"ChassisType": "Module", "Links": within}),
            json!({"ChassisType": "RackMount", "UUID": uuid}),
        ] {
            assert!(!chassis("/a", other).may_be_adapter);
        }
    }

    #[test]
    fn containers_end_even_in_a_circle() {
        let within = |path: &str| json!({"Links": {"ContainedBy": {"@odata.id": path}}});
        let all = [
            chassis("/a", within("/b")),
            chassis("/b", within("/c")),
            chassis("/c", within("/a")),
        ];
        assert_eq!(containers(&all, "/a"), ["/a", "/b", "/c"]);
        assert_eq!(containers(&all, "/z"), ["/z"]);
    }
}
