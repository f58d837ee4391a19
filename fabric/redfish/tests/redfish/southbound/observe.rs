//! What is made of services that are incomplete, odd or contradict themselves.

use crate::southbound::service::{DONE, Documents, Service, links};
use poolwright_driver::{Fabric, Observation, Progress};
use poolwright_model::composable::WhyNotKind;
use poolwright_model::control::ControlStyle;
use poolwright_model::fault::{Fault, FaultKind};
use poolwright_model::units::Bytes;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};

const BOX: &str = "/redfish/v1/Chassis/Box";
const FABRIC: &str = "/redfish/v1/Fabrics/PCIe";
const HOST_UUID: &str = "38947555-7742-3448-3784-823347823834";

async fn observe(documents: Documents) -> Observation {
    let service = Service::start(documents, |_, _| DONE).await;
    service.driver.observe(&()).await.unwrap()
}

fn processor(serial: &str) -> Value {
    json!({"@odata.type": "#Processor.v1_20_1.Processor", "ProcessorType": "GPU", "SerialNumber": serial,
        "MemorySummary": {"TotalMemorySizeMiB": 81559}})
}

/// A box of GPUs, named by their serial numbers, and nothing else.
fn gpu_box(serials: &[&str]) -> Documents {
    let mut documents = Documents::default();
    documents.collection("/redfish/v1/Systems", "ComputerSystem", &[]);
    documents.collection("/redfish/v1/Chassis", "Chassis", &[BOX]);
    documents.collection("/redfish/v1/Fabrics", "Fabric", &[]);
    let processors = format!("{BOX}/Processors");
    documents.put(
        BOX,
        json!({"@odata.type": "#Chassis.v1_25_2.Chassis", "ChassisType": "Expansion",
            "Processors": {"@odata.id": processors}}),
    );
    let paths: Vec<String> = serials
        .iter()
        .map(|serial| format!("{processors}/{serial}"))
        .collect();
    let members: Vec<&str> = paths.iter().map(String::as_str).collect();
    documents.collection(&processors, "Processor", &members);
    for (path, serial) in paths.iter().zip(serials) {
        documents.put(path, processor(serial));
    }
    documents
}

/// The box with a fabric: a zone for each list, of endpoints named like the GPUs, `H…` being hosts' ends.
fn zoned(serials: &[&str], zones: &[&[&str]]) -> Documents {
    let mut documents = gpu_box(serials);
    documents.collection("/redfish/v1/Fabrics", "Fabric", &[FABRIC]);
    documents.put(
        FABRIC,
        json!({"@odata.type": "#Fabric.v1_3_2.Fabric", "Id": "PCIe", "FabricType": "PCIe",
            "Endpoints": {"@odata.id": format!("{FABRIC}/Endpoints")}, "Zones": {"@odata.id": format!("{FABRIC}/Zones")}}),
    );
    let end = |name: &&str| format!("{FABRIC}/Endpoints/{name}");
    let mut names: Vec<&str> = zones
        .iter()
        .copied()
        .flatten()
        .copied()
        .chain(serials.iter().copied())
        .collect();
    names.sort_unstable();
    names.dedup();
    for name in &names {
        let entity = match name.starts_with('H') {
            true => json!({"EntityType": "RootComplex", "EntityRole": "Initiator",
                "Identifiers": [{"DurableNameFormat": "UUID", "DurableName": HOST_UUID.replace('3', &name[1..])}]}),
            false => json!({"EntityType": "Processor", "EntityRole": "Target",
                "EntityLink": {"@odata.id": format!("{BOX}/Processors/{name}")}}),
        };
        let endpoint = json!({"@odata.type": "#Endpoint.v1_8_2.Endpoint", "ConnectedEntities": [entity]});
        documents.put(&end(name), endpoint);
    }
    let ends: Vec<String> = names.iter().map(end).collect();
    documents.collection(
        &format!("{FABRIC}/Endpoints"),
        "Endpoint",
        &ends.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    let mut paths = Vec::new();
    for (number, members) in zones.iter().enumerate() {
        let path = format!("{FABRIC}/Zones/{number}");
        let members: Vec<String> = members.iter().map(end).collect();
        let members = links(&members.iter().map(String::as_str).collect::<Vec<_>>());
        documents.put(
            &path,
            json!({"@odata.type": "#Zone.v1_6_3.Zone", "ZoneType": "ZoneOfEndpoints", "Links": {"Endpoints": members}}),
        );
        paths.push(path);
    }
    documents.collection(
        &format!("{FABRIC}/Zones"),
        "Zone",
        &paths.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    documents
}

fn fault(seen: &Observation, kind: FaultKind) -> &Fault {
    let mut faults = seen.faults.iter().filter(|fault| fault.kind == kind);
    let fault = faults.next();
    fault.unwrap_or_else(|| panic!("no {kind} in {:?}", seen.faults))
}

#[tokio::test]
async fn each_broken_link_costs_only_itself() {
    let mut documents = gpu_box(&["S1", "S2", "S3"]);
    documents.remove(&format!("{BOX}/Processors/S1"));
    documents.put(
        &format!("{BOX}/Processors/S2"),
        json!({"error": {"code": "Base.1.18.InternalError"}}),
    );
    documents.collection(
        "/redfish/v1/Fabrics",
        "Fabric",
        &["https://elsewhere.example/redfish/v1/Fabrics/1"],
    );
    let seen = observe(documents).await;
    assert_eq!(seen.topology.gpus.len(), 1);
    assert_eq!(
        fault(&seen, FaultKind::DanglingLink).source,
        format!("box-1 {BOX}/Processors/S1")
    );
    assert_eq!(
        fault(&seen, FaultKind::ServerError).source,
        format!("box-1 {BOX}/Processors/S2")
    );
    assert_eq!(
        fault(&seen, FaultKind::OtherOrigin).source,
        "box-1 /redfish/v1/Fabrics"
    );
}

#[tokio::test]
async fn a_badly_typed_property_costs_only_that_property() {
    let mut documents = gpu_box(&["S1"]);
    let mut odd = processor("S1");
    odd["MemorySummary"] = json!({"TotalMemorySizeMiB": "81559"});
    odd["Manufacturer"] = json!(["NVIDIA"]);
    odd["Model"] = json!(null);
    odd["Status"] = json!("fine");
    documents.put(&format!("{BOX}/Processors/S1"), odd);
    let seen = observe(documents).await;
    let gpu = &seen.topology.gpus[0];
    assert_eq!(gpu.memory_bytes, Some(Bytes::from_mib(81_559)));
    assert_eq!((gpu.model.as_deref(), gpu.serial.as_deref()), (None, Some("S1")));
}

#[tokio::test]
async fn two_gpus_that_claim_one_name_stay_two() {
    let mut documents = gpu_box(&["S1", "S2"]);
    documents.put(&format!("{BOX}/Processors/S2"), processor("S1"));
    let seen = observe(documents).await;
    assert_eq!(seen.topology.gpus.len(), 2);
}

#[tokio::test]
async fn what_a_system_sees_of_a_gpu_in_the_box_is_that_gpu() {
    const SYSTEM: &str = "/redfish/v1/Systems/Composed";
    let mut documents = gpu_box(&["S1"]);
    documents.collection("/redfish/v1/Systems", "ComputerSystem", &[SYSTEM]);
    let processors = format!("{SYSTEM}/Processors");
    documents.put(
        SYSTEM,
        json!({"@odata.type": "#ComputerSystem.v1_23_0.ComputerSystem", "SystemType": "Composed", "HostName": "h",
            "Processors": {"@odata.id": processors}}),
    );
    let member = format!("{processors}/GPU1");
    documents.collection(&processors, "Processor", &[&member]);
    let mut same = processor("S1");
    same["UUID"] = json!("9dad5bfd-a732-23fe-40ad-465d0cbe5f95");
    documents.put(&member, same);
    let seen = observe(documents).await;
    let [gpu] = &seen.topology.gpus[..] else {
        panic!("one GPU")
    };
    assert_eq!(gpu.chassis.as_ref().map(|chassis| chassis.as_str()), Some("Box"));
    assert_eq!(
        gpu.uuid.as_deref(),
        Some("GPU-9dad5bfd-a732-23fe-40ad-465d0cbe5f95")
    );
}

/// The UUID of GPU A or B of a board.
fn uuid_on_board(name: &str) -> String {
    format!("00000000-0000-0000-0000-00000000000{}", name.to_lowercase())
}

/// GPUs A and B of one board, as a box shows them without UUIDs, and in another order a system with UUIDs.
fn board(in_box: &[&str], processor: impl Fn(&str) -> Value) -> Documents {
    const SYSTEM: &str = "/redfish/v1/Systems/1";
    let mut documents = gpu_box(in_box);
    documents.collection("/redfish/v1/Systems", "ComputerSystem", &[SYSTEM]);
    let processors = format!("{SYSTEM}/Processors");
    documents.put(
        SYSTEM,
        json!({"@odata.type": "#ComputerSystem.v1_23_0.ComputerSystem", "HostName": "h",
            "Processors": {"@odata.id": processors}}),
    );
    let members = ["B", "A"].map(|name| format!("{processors}/{name}"));
    let listed = members.each_ref().map(String::as_str);
    documents.collection(&processors, "Processor", &listed);
    for &name in in_box {
        documents.put(&format!("{BOX}/Processors/{name}"), processor(name));
    }
    for name in ["A", "B"] {
        let mut seen = processor(name);
        seen["UUID"] = json!(uuid_on_board(name));
        documents.put(&format!("{processors}/{name}"), seen);
    }
    documents
}

/// Fault 90: the GPUs of a board.
#[tokio::test]
async fn the_gpus_of_one_board_are_told_apart_by_their_pcie_devices() {
    let device = |name: &str| format!("{BOX}/PCIeDevices/{name}");
    let mut documents = board(&["A", "B"], |name| {
        let mut processor = processor("BOARD");
        processor["Links"] = json!({"PCIeDevice": {"@odata.id": device(name)}});
        processor
    });
    for name in ["A", "B"] {
        let pcie = json!({"@odata.type": "#PCIeDevice.v1_9_0.PCIeDevice"});
        documents.put(&device(name), pcie);
    }
    let seen = observe(documents).await;
    assert_eq!(seen.topology.gpus.len(), 2);
    for gpu in &seen.topology.gpus {
        let name = gpu.id.as_str().rsplit('/').next().unwrap();
        assert_eq!(gpu.chassis.as_ref().map(|chassis| chassis.as_str()), Some("Box"));
        assert_eq!(gpu.uuid, Some(format!("GPU-{}", uuid_on_board(name))), "{name}");
    }
}

/// Fault 90: the box shows one GPU of the board, and only the board's serial number.
#[tokio::test]
async fn the_serial_number_of_a_board_gives_no_gpu_a_uuid() {
    let seen = observe(board(&["B"], |_| processor("BOARD"))).await;
    assert_eq!(seen.topology.gpus.len(), 3);
    let in_box = seen.topology.gpus.iter().find(|gpu| gpu.chassis.is_some());
    assert_eq!(in_box.unwrap().uuid, None);
}

/// Fault 90: by its PCIe device.
#[tokio::test]
async fn a_gpu_in_a_chassis_and_in_a_resource_block_is_one() {
    const COMPOSITION: &str = "/redfish/v1/CompositionService";
    let device = format!("{BOX}/PCIeDevices/1");
    let linked = json!({"PCIeDevice": {"@odata.id": device}});
    let mut documents = gpu_box(&["S1"]);
    let mut in_chassis = processor("S1");
    in_chassis["Links"] = linked.clone();
    documents.put(&format!("{BOX}/Processors/S1"), in_chassis);
    documents.put(&device, json!({"@odata.type": "#PCIeDevice.v1_9_0.PCIeDevice"}));
    let blocks = format!("{COMPOSITION}/ResourceBlocks");
    let (block, in_block) = (format!("{blocks}/1"), format!("{blocks}/1/Processors/GPU"));
    documents.put(
        COMPOSITION,
        json!({"@odata.type": "#CompositionService.v1_2_1.CompositionService", "ResourceBlocks": {"@odata.id": blocks}}),
    );
    documents.collection(&blocks, "ResourceBlock", &[&block]);
    documents.put(
        &block,
        json!({"@odata.type": "#ResourceBlock.v1_4_1.ResourceBlock", "ResourceBlockType": ["Processor"],
            "Processors": links(&[&in_block])}),
    );
    documents.put(
        &in_block,
        json!({"@odata.type": "#Processor.v1_20_1.Processor", "ProcessorType": "GPU", "Links": linked}),
    );
    let service = Service::start(documents, |_, _| DONE).await;
    service.with(|documents| {
        let mut root = documents.get("/redfish/v1").clone();
        root["CompositionService"] = json!({"@odata.id": COMPOSITION});
        documents.put("/redfish/v1", root);
    });
    let seen = service.driver.observe(&()).await.unwrap();
    let [gpu] = &seen.topology.gpus[..] else {
        panic!("one GPU: {:#?}", seen.topology.gpus)
    };
    assert_eq!(gpu.serial.as_deref(), Some("S1"));
    assert_eq!(gpu.chassis.as_ref().map(|chassis| chassis.as_str()), Some("Box"));
    let control: Vec<_> = gpu
        .control
        .iter()
        .map(|at| (at.style, at.address.as_str()))
        .collect();
    assert_eq!(control, [(ControlStyle::ResourceBlocks, block.as_str())]);
}

/// Fault 90: the controllers of a baseboard and of storage, and a DPU.
#[tokio::test]
async fn parts_of_a_server_are_no_hosts() {
    const UUID: &str = "9dad5bfd-a732-23fe-40ad-465d0cbe5f95";
    let mut documents = gpu_box(&["S1"]);
    let mut gpu = processor("S1");
    gpu["UUID"] = json!(UUID);
    documents.put(&format!("{BOX}/Processors/S1"), gpu);
    let systems = [
        ("web", json!({"HostName": "web-1", "UUID": HOST_UUID})),
        (
            "board",
            json!({"Boot": {"BootSourceOverrideTarget@Redfish.AllowableValues": ["None"]}}),
        ),
        ("twin", json!({"HostName": "hgx", "UUID": UUID.to_uppercase()})),
        ("raid", json!({"Name": "RAID Controller", "BiosVersion": "1"})),
        ("dpu", json!({"SystemType": "DPU", "HostName": "dpu-1"})),
    ];
    let paths = systems
        .each_ref()
        .map(|(name, _)| format!("/redfish/v1/Systems/{name}"));
    let listed: Vec<&str> = paths.iter().map(String::as_str).collect();
    documents.collection("/redfish/v1/Systems", "ComputerSystem", &listed);
    for (path, (_, system)) in paths.iter().zip(systems) {
        let mut document = json!({"@odata.type": "#ComputerSystem.v1_23_0.ComputerSystem"});
        for (name, value) in system.as_object().unwrap() {
            document[name] = value.clone();
        }
        documents.put(path, document);
    }
    let seen = observe(documents).await;
    let hosts: Vec<&str> = seen
        .topology
        .hosts
        .iter()
        .map(|host| host.name.as_str())
        .collect();
    assert_eq!(hosts, ["web-1"]);
    assert!(
        seen.quirks
            .iter()
            .any(|quirk| quirk.name == "baseboard-as-system")
    );
}

/// Fault 89: the type in lower case; and an Accelerator whose model says GPU.
#[tokio::test]
async fn the_type_makes_a_gpu_and_an_accelerator_is_reported() {
    let mut documents = gpu_box(&["S1", "S2"]);
    let typed = |serial: &str, kind: &str| {
        let mut processor = processor(serial);
        processor["ProcessorType"] = json!(kind);
        processor["Model"] = json!("NVIDIA H100 PCIe");
        processor
    };
    documents.put(&format!("{BOX}/Processors/S1"), typed("S1", "gpu"));
    documents.put(&format!("{BOX}/Processors/S2"), typed("S2", "Accelerator"));
    let seen = observe(documents).await;
    let serials: Vec<_> = seen
        .topology
        .gpus
        .iter()
        .map(|gpu| gpu.serial.as_deref())
        .collect();
    assert_eq!(serials, [Some("S1")]);
    let hint = fault(&seen, FaultKind::Incomplete);
    assert_eq!(hint.source, format!("box-1 {BOX}/Processors"));
    assert!(hint.message.contains("NVIDIA H100 PCIe"), "{}", hint.message);
}

#[tokio::test]
async fn a_switch_is_shown_by_name_and_id() {
    let mut documents = zoned(&["S1"], &[&["H1"]]);
    let (switches, switch) = (format!("{FABRIC}/Switches"), format!("{FABRIC}/Switches/sw0"));
    let mut fabric = documents.get(FABRIC).clone();
    fabric["Switches"] = json!({"@odata.id": switches});
    documents.put(FABRIC, fabric);
    documents.collection(&switches, "Switch", &[&switch]);
    documents.put(
        &switch,
        json!({"@odata.type": "#Switch.v1_9_0.Switch", "Id": "sw0", "Name": "PCIe Switch, upper tray"}),
    );
    let seen = observe(documents).await;
    let [switch] = &seen.topology.switches[..] else {
        panic!("one switch")
    };
    assert_eq!(
        (switch.id.as_str(), switch.name.as_deref()),
        ("sw0", Some("PCIe Switch, upper tray"))
    );
}

#[tokio::test]
async fn slices_of_a_gpu_are_its_partitions() {
    let mut documents = gpu_box(&["S1"]);
    let path = format!("{BOX}/Processors/S1");
    let slices = format!("{path}/SubProcessors");
    let mut sliced = processor("S1");
    sliced["SubProcessors"] = json!({"@odata.id": slices});
    documents.put(&path, sliced);
    let slice = format!("{slices}/MIG1");
    documents.collection(&slices, "Processor", &[&slice]);
    documents.put(
        &slice,
        json!({"@odata.type": "#Processor.v1_20_1.Processor", "Id": "MIG1", "ProcessorType": "Partition",
            "MemorySummary": {"TotalMemorySizeMiB": 9856}}),
    );
    let seen = observe(documents).await;
    let partitions = &seen.topology.gpus[0].partitions;
    assert_eq!(partitions.len(), 1);
    assert_eq!(
        (partitions[0].id.as_str(), partitions[0].memory_bytes),
        ("MIG1", Some(Bytes::from_mib(9_856)))
    );
}

#[tokio::test]
async fn a_zone_of_two_hosts_is_no_place_to_bind_to() {
    let seen = observe(zoned(&["S1"], &[&["H1", "H2"]])).await;
    let ports: Vec<_> = seen.topology.hosts.iter().flat_map(|host| &host.ports).collect();
    assert_eq!(ports.len(), 2);
    assert!(ports.iter().all(|port| port.control.is_none()));
    let told = fault(&seen, FaultKind::Conflict);
    assert_eq!(told.source, format!("box-1 {FABRIC}/Zones/0"));
}

/// Fault 41: one GPU, two owners.
#[tokio::test]
async fn a_gpu_with_two_owners_is_a_conflict_and_not_composable() {
    let seen = observe(zoned(&["S1", "S2"], &[&["H1", "S1"], &["H2", "S1", "S2"]])).await;
    let why = |serial: &str| {
        let gpu = seen
            .topology
            .gpus
            .iter()
            .find(|gpu| gpu.serial.as_deref() == Some(serial));
        gpu.unwrap().composability.0.as_ref().map(|why| why.kind)
    };
    assert_eq!(why("S1"), Some(WhyNotKind::Conflict));
    assert_eq!(why("S2"), None);
    assert!(
        fault(&seen, FaultKind::Conflict)
            .message
            .contains("several host ports")
    );
}

#[tokio::test]
async fn gpus_behind_one_end_move_together() {
    let mut documents = zoned(&["S1", "S2"], &[&["H1"]]);
    let both: Value = ["S1", "S2"]
        .iter()
        .map(|serial| {
            json!({"EntityType": "Processor", "EntityRole": "Target",
                "EntityLink": {"@odata.id": format!("{BOX}/Processors/{serial}")}})
        })
        .collect();
    let end = format!("{FABRIC}/Endpoints/S1");
    documents.put(
        &end,
        json!({"@odata.type": "#Endpoint.v1_8_2.Endpoint", "ConnectedEntities": both}),
    );
    documents.collection(
        &format!("{FABRIC}/Endpoints"),
        "Endpoint",
        &[&end, &format!("{FABRIC}/Endpoints/H1")],
    );
    let seen = observe(documents).await;
    assert_eq!(seen.topology.units.len(), 1);
    assert_eq!(seen.topology.units[0].gpus.len(), 2);
}

#[tokio::test]
async fn an_endpoint_without_its_root_is_an_error_and_no_empty_observation() {
    let service = Service::start(gpu_box(&["S1"]), |_, _| DONE).await;
    service.with(|documents| documents.remove("/redfish/v1"));
    let error = service.driver.observe(&()).await.unwrap_err();
    assert_eq!(error.fault, FaultKind::DanglingLink);
    assert!(error.hint.is_some());
}

#[derive(Default)]
struct Counted {
    answered: AtomicU64,
    known: AtomicU64,
}

impl Progress for Counted {
    fn advanced(&self, answered: u64, known: u64) {
        self.answered.fetch_add(answered, Ordering::Relaxed);
        self.known.fetch_add(known, Ordering::Relaxed);
        assert!(self.answered.load(Ordering::Relaxed) <= self.known.load(Ordering::Relaxed));
    }
}

#[tokio::test]
async fn progress_ends_where_all_that_was_known_is_answered() {
    let service = Service::start(zoned(&["S1", "S2"], &[&["H1", "S1"]]), |_, _| DONE).await;
    let counted = Counted::default();
    let seen = service.driver.observe(&counted).await.unwrap();
    let (answered, known) = (counted.answered.into_inner(), counted.known.into_inner());
    assert_eq!(answered, known);
    assert!(
        answered >= 10 && seen.requests >= answered,
        "{answered} of {}",
        seen.requests
    );
}
