//! What the driver makes of recorded and example trees of other people's machines.

use poolwright_driver::{Fabric, Observation};
use poolwright_model::composable::WhyNotKind;
use poolwright_model::control::ControlStyle;
use poolwright_model::fault::FaultKind;
use poolwright_model::id::ControlEndpointId;
use poolwright_model::topology::{DeviceKind, Gpu, Topology};
use poolwright_model::units::Bytes;
use poolwright_redfish::client::{Endpoint, Limits};
use poolwright_redfish::southbound::RedfishDriver;
use poolwright_tests::mockup_server::{MockupServer, Options};
use poolwright_tests::trees;
use std::collections::BTreeSet;
use std::path::Path;

async fn drive(server: &MockupServer) -> RedfishDriver {
    let endpoint = Endpoint::new(&server.url)
        .unwrap()
        .limits(Limits::with_concurrency(32));
    RedfishDriver::connect(ControlEndpointId::from_lossy("it"), endpoint)
        .await
        .unwrap()
}

async fn observe_folder(folder: &Path) -> Observation {
    let server = MockupServer::start(folder, Options::default()).await.unwrap();
    drive(&server).await.observe(&()).await.unwrap()
}

/// Looks at a tree; `None` where the trees are absent.
async fn observe(tree: &str) -> Option<Observation> {
    if trees::shared_dir().is_none() {
        eprintln!("recorded trees not present: not run");
        return None;
    }
    Some(observe_folder(&trees::unpack_tree(tree).unwrap()).await)
}

fn why_not(gpus: &[Gpu]) -> BTreeSet<Option<WhyNotKind>> {
    gpus.iter()
        .map(|gpu| gpu.composability.0.as_ref().map(|why| why.kind))
        .collect()
}

fn has_quirk(seen: &Observation, name: &str) -> bool {
    seen.quirks.iter().any(|quirk| quirk.name == name)
}

#[tokio::test]
async fn dgx_h100_has_8_gpus_on_a_baseboard_and_none_can_be_moved() {
    let Some(seen) = observe("libredfish-nvidia_viking").await else {
        return;
    };
    let Topology {
        gpus, hosts, fabrics, ..
    } = &seen.topology;
    assert_eq!(gpus.len(), 8);
    let names: BTreeSet<_> = gpus.iter().map(|gpu| (&gpu.uuid, &gpu.serial)).collect();
    assert_eq!(names.len(), 8);
    for gpu in gpus {
        assert_eq!(gpu.memory_bytes, Some(Bytes::from_mib(81_559)));
        assert!(gpu.uuid.as_deref().unwrap().starts_with("GPU-"));
        assert_eq!(gpu.pci_ids.as_ref().unwrap().device, "2330");
        let why = gpu.composability.0.as_ref().unwrap();
        assert_eq!(why.kind, WhyNotKind::Soldered);
        assert!(why.detail.contains("HGX_Chassis_0"), "{why}");
        assert_eq!(gpu.host, Some(hosts[0].id.clone()));
    }
    let gpu = gpus
        .iter()
        .find(|gpu| gpu.serial.as_deref() == Some("1652923003067"))
        .unwrap();
    assert_eq!(
        gpu.uuid.as_deref(),
        Some("GPU-9dad5bfd-a732-23fe-40ad-465d0cbe5f95")
    );
    assert_eq!(gpu.slot.as_deref(), Some("SXM1"));
    // What is on one baseboard moves together, if at all.
    assert_eq!(seen.topology.units.len(), 1);
    // The baseboard is no host of its own.
    assert_eq!(hosts.len(), 1);

    let sum = |count: fn(&poolwright_model::topology::Fabric) -> u32| fabrics.iter().map(count).sum::<u32>();
    assert_eq!(fabrics.len(), 10);
    assert_eq!(sum(|fabric| fabric.switches), 13);
    // 325 files of this tree are ports.
    assert_eq!(sum(|fabric| fabric.ports), 165);
    let of_devices = |kind| {
        let ports = seen
            .topology
            .device_ports
            .iter()
            .filter(|device| device.kind == kind);
        ports.map(|device| device.ports).sum::<u32>()
    };
    assert_eq!(of_devices(DeviceKind::Gpu), 144);
    assert_eq!(of_devices(DeviceKind::Processor), 2, "the FPGA's");
    assert_eq!(of_devices(DeviceKind::NetworkAdapter), 14);
    // Every GPU has 18 NVLinks to 4 switches, and its way to the host; no switch is cabled to another.
    for gpu in gpus {
        let on_nvlink: BTreeSet<_> = gpu
            .ports
            .iter()
            .filter(|at| at.fabric.as_str() == "HGX_NVLinkFabric_0")
            .collect();
        assert_eq!((on_nvlink.len(), gpu.ports.len()), (18, 19));
        assert_eq!(
            on_nvlink
                .iter()
                .map(|at| &at.switch)
                .collect::<BTreeSet<_>>()
                .len(),
            4
        );
    }
    assert_eq!(seen.topology.links, []);
    assert_eq!(sum(|fabric| fabric.endpoints), 20);
    assert_eq!(sum(|fabric| fabric.zones), 10);
    assert!(
        fabrics
            .iter()
            .all(|fabric| fabric.control == ControlStyle::ReadOnly)
    );
    assert_eq!(seen.faults, []);
    for quirk in ["gpu-memory-by-link", "baseboard-as-system", "expand-not-honoured"] {
        assert!(has_quirk(&seen, quirk), "{quirk}");
    }
}

#[tokio::test]
async fn gb200_has_4_gpus_that_say_nothing_of_themselves() {
    let Some(seen) = observe("libredfish-nvidia_gb200").await else {
        return;
    };
    assert_eq!(seen.topology.gpus.len(), 4);
    assert_eq!(
        why_not(&seen.topology.gpus),
        BTreeSet::from([Some(WhyNotKind::Soldered)])
    );
    assert_eq!(seen.topology.hosts.len(), 1);
    assert_eq!(
        seen.faults
            .iter()
            .filter(|fault| fault.kind == FaultKind::Incomplete)
            .count(),
        4
    );
}

#[tokio::test]
async fn an_nvlink_switch_tray_is_a_fabric_with_unreadable_ports() {
    let Some(seen) = observe("libredfish-nvidia_gbswitch").await else {
        return;
    };
    assert!(seen.topology.gpus.is_empty());
    let [fabric] = &seen.topology.fabrics[..] else {
        panic!("one fabric")
    };
    assert_eq!((fabric.kind.as_str(), fabric.switches), ("NVLink", 2));
    // The ports of both switches, the endpoints and the zones were recorded as errors.
    let unreadable = seen
        .faults
        .iter()
        .filter(|fault| fault.source.contains("/Fabrics/"));
    assert_eq!(unreadable.clone().count(), 4);
    assert!(
        unreadable
            .clone()
            .all(|fault| fault.kind == FaultKind::DanglingLink),
        "{:?}",
        seen.faults
    );
}

#[tokio::test]
async fn without_gpu_processors_gpus_are_found_among_the_pcie_devices() {
    let Some(seen) = observe("libredfish-supermicro").await else {
        return;
    };
    let gpus = &seen.topology.gpus;
    assert_eq!(gpus.len(), 8);
    for gpu in gpus {
        assert!(gpu.serial.is_some() && gpu.model.as_deref() == Some("H100 80GB HBM3"));
        assert_eq!(gpu.memory_bytes, None);
        assert_eq!(gpu.host, Some(seen.topology.hosts[0].id.clone()));
    }
    assert_eq!(why_not(gpus), BTreeSet::from([Some(WhyNotKind::NoFabric)]));
    let fault = seen
        .faults
        .iter()
        .find(|fault| fault.kind == FaultKind::Incomplete)
        .unwrap();
    assert!(
        fault.message.contains("no processor of type GPU") && fault.message.contains("8 GPUs"),
        "{fault:?}"
    );
    assert!(has_quirk(&seen, "pci-ids-blank"));
}

#[tokio::test]
async fn a_cxl_fabric_is_shown_and_not_driven() {
    let Some(seen) = observe("dmtf-public-cxl").await else {
        return;
    };
    let [fabric] = &seen.topology.fabrics[..] else {
        panic!("one fabric")
    };
    assert_eq!(fabric.control, ControlStyle::ReadOnly);
    assert_eq!(
        (
            fabric.switches,
            fabric.ports,
            fabric.endpoints,
            fabric.zones,
            fabric.connections
        ),
        (1, 6, 9, 3, 2)
    );
    assert_eq!(seen.topology.gpus.len(), 2);
    // The pooled one is connected to a host; the other one sits in it.
    let pooled = seen
        .topology
        .gpus
        .iter()
        .find(|gpu| gpu.id.as_str().contains("Pooled"))
        .unwrap();
    assert!(pooled.host_port.is_some() && pooled.control.is_empty());
    assert_eq!(pooled.memory_bytes, Some(Bytes::from_mib(16_384)));
    assert!(
        seen.topology
            .gpus
            .iter()
            .all(|gpu| gpu.host.is_some() && !gpu.composability.is_composable())
    );
}

#[tokio::test]
async fn resource_blocks_are_found_wherever_they_are_listed() {
    for (tree, blocks, zones, gpus, control) in [
        (
            "dmtf-public-composability",
            12,
            3,
            1,
            ControlStyle::ResourceBlocks,
        ),
        // One is listed twice, and one only in a pool.
        (
            "dmtf-public-compose-action",
            14,
            8,
            0,
            ControlStyle::ResourceBlocks,
        ),
        ("dmtf-public-expansion-box", 10, 0, 0, ControlStyle::ReadOnly),
    ] {
        let Some(seen) = observe(tree).await else { return };
        let [fabric] = &seen.topology.fabrics[..] else {
            panic!("{tree}: one fabric")
        };
        assert_eq!(
            (fabric.endpoints, fabric.zones, fabric.control),
            (blocks, zones, control),
            "{tree}"
        );
        assert_eq!(seen.topology.gpus.len(), gpus, "{tree}");
        assert!(
            seen.topology
                .gpus
                .iter()
                .all(|gpu| !gpu.composability.is_composable())
        );
    }
}

#[tokio::test]
async fn the_gpu_of_a_block_reaches_the_hosts_of_its_zone_only() {
    let Some(seen) = observe("dmtf-public-composability").await else {
        return;
    };
    let gpu = &seen.topology.gpus[0];
    let hops = |host: &str| {
        let (_, port) = seen
            .topology
            .hosts
            .iter()
            .flat_map(|host| host.ports.iter().map(move |port| (host, port)))
            .find(|(_, port)| port.control.as_ref().unwrap().address.ends_with(host))
            .unwrap();
        seen.topology.switch_graph().hops(port, gpu)
    };
    assert_eq!(hops("ComputeBlock2"), Some(0));
    assert_eq!(hops("ComputeBlock1"), None);
    assert!(has_quirk(&seen, "members-count-lies"));
    assert!(has_quirk(&seen, "address-of-another"));
}

#[tokio::test]
async fn whole_servers_are_hosts() {
    for (tree, gpus) in [("dmtf-public-rackmount1", 0), ("dmtf-public-tower", 2)] {
        let Some(seen) = observe(tree).await else { return };
        assert_eq!(seen.topology.hosts.len(), 1, "{tree}");
        assert_eq!(seen.topology.gpus.len(), gpus, "{tree}");
        let host = &seen.topology.hosts[0];
        assert!(host.uuid.is_some() && host.bmc.is_some() && host.ports.is_empty());
    }
}

#[tokio::test]
async fn a_link_that_leads_nowhere_costs_only_what_it_leads_to() {
    if trees::shared_dir().is_none() {
        eprintln!("recorded trees not present: not run");
        return;
    }
    let tree = trees::unpack_tree("dmtf-public-cxl").unwrap();
    let copy = tempfile::tempdir().unwrap();
    copy_tree(&tree, copy.path());
    let gone = copy.path().join("Chassis/CXLType2/Processors/GPU/index.json");
    std::fs::remove_file(gone).unwrap();
    let seen = observe_folder(copy.path()).await;
    assert_eq!(seen.topology.gpus.len(), 1);
    let fault = seen
        .faults
        .iter()
        .find(|fault| fault.kind == FaultKind::DanglingLink)
        .unwrap();
    assert_eq!(fault.source, "it /redfish/v1/Chassis/CXLType2/Processors/GPU");
}

#[tokio::test]
async fn a_recording_shows_the_same_machine_under_other_names() {
    for tree in ["dmtf-public-tower", "libredfish-supermicro"] {
        if trees::shared_dir().is_none() {
            eprintln!("recorded trees not present: not run");
            return;
        }
        let server = MockupServer::start(&trees::unpack_tree(tree).unwrap(), Options::default())
            .await
            .unwrap();
        let driver = drive(&server).await;
        let original = driver.observe(&()).await.unwrap().topology;
        let folder = tempfile::tempdir().unwrap();
        let date = "2026-08-01".parse().unwrap();
        let manifest = driver.record(folder.path(), date, &()).await.unwrap();
        assert!(manifest.documents > 100, "{manifest:?}");
        assert!(folder.path().join("manifest.json").is_file());

        let text = whole_text(folder.path());
        let host = &original.hosts[0];
        let names = original.gpus.iter().flat_map(|gpu| [&gpu.serial, &gpu.uuid]);
        for name in names.chain([&host.uuid, &host.serial]).flatten() {
            let name = name.trim_start_matches("GPU-");
            assert!(!text.contains(name), "{name} is still in the recording of {tree}");
        }

        let replayed = observe_folder(folder.path()).await.topology;
        let shape = |topology: &Topology| {
            let gpu = |gpu: &Gpu| {
                (
                    gpu.model.clone(),
                    gpu.memory_bytes,
                    gpu.serial.is_some(),
                    gpu.host.is_some(),
                )
            };
            let mut gpus: Vec<_> = topology.gpus.iter().map(gpu).collect();
            gpus.sort();
            (gpus, topology.hosts.len(), topology.fabrics.len())
        };
        assert_eq!(shape(&replayed), shape(&original), "{tree}");
        assert_ne!(replayed.hosts[0].serial, host.serial);
    }
}

fn copy_tree(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir(&target).unwrap();
            copy_tree(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn whole_text(folder: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        text += &if path.is_dir() {
            whole_text(&path)
        } else {
            std::fs::read_to_string(&path).unwrap()
        };
    }
    text
}
