//! A host, asked through its BMC.

use crate::southbound::service::{DEADLINE, DONE, Documents, Service, links};
use poolwright_driver::{Confirmation, ErrorKind, HostSide, HostTarget, Room};
use poolwright_model::id::{GpuId, HostId, HostPortId};
use serde_json::json;

const UUID: &str = "9dad5bfd-a732-23fe-40ad-465d0cbe5f95";

/// A server with an adapter of four hot-plug slots, one of them taken, and one GPU.
fn bmc(gpu_state: &str) -> Documents {
    let mut documents = Documents::default();
    documents.collection(
        "/redfish/v1/Systems",
        "ComputerSystem",
        &["/redfish/v1/Systems/1"],
    );
    documents.put(
        "/redfish/v1/Systems/1",
        json!({"@odata.type": "#ComputerSystem.v1_23_0.ComputerSystem", "HostName": "node-7",
            "Processors": {"@odata.id": "/redfish/v1/Systems/1/Processors"}}),
    );
    documents.collection(
        "/redfish/v1/Systems/1/Processors",
        "Processor",
        &["/redfish/v1/Systems/1/Processors/GPU1"],
    );
    documents.put(
        "/redfish/v1/Systems/1/Processors/GPU1",
        json!({"@odata.type": "#Processor.v1_20_1.Processor", "ProcessorType": "GPU", "UUID": UUID,
            "Status": {"State": gpu_state}}),
    );
    documents.collection(
        "/redfish/v1/Chassis",
        "Chassis",
        &["/redfish/v1/Chassis/1", "/redfish/v1/Chassis/adapter"],
    );
    documents.put(
        "/redfish/v1/Chassis/1",
        json!({"@odata.type": "#Chassis.v1_25_2.Chassis", "ChassisType": "RackMount"}),
    );
    documents.put(
        "/redfish/v1/Chassis/adapter",
        json!({"@odata.type": "#Chassis.v1_25_2.Chassis", "ChassisType": "Module",
            "UUID": "37596f04-b032-48ce-9bad-7d55a61fe574",
            "Links": {"ContainedBy": {"@odata.id": "/redfish/v1/Chassis/1"}},
            "PCIeSlots": {"@odata.id": "/redfish/v1/Chassis/adapter/PCIeSlots"}}),
    );
    let taken = json!({"HotPluggable": true, "Links": {"PCIeDevice": links(&["/redfish/v1/Chassis/1/PCIeDevices/GPU1"])}});
    let free = json!({"HotPluggable": true});
    documents.put(
        "/redfish/v1/Chassis/adapter/PCIeSlots",
        json!({"@odata.type": "#PCIeSlots.v1_6_1.PCIeSlots", "Slots": [taken, free, free, free]}),
    );
    documents
}

fn target(gpus: usize, known_as: &[&str]) -> HostTarget {
    HostTarget {
        host: HostId::from_lossy("node-7"),
        host_port: HostPortId::from_lossy("node-7:PCIe"),
        gpus: (0..gpus)
            .map(|n| GpuId::from_lossy(&format!("gpu-{n}")))
            .collect(),
        known_as: known_as.iter().map(|name| (*name).to_owned()).collect(),
        slot: None,
        seen_at: Vec::new(),
        ids: None,
        largest_bar: None,
        epoch: None,
    }
}

#[tokio::test]
async fn a_bmc_counts_slots_and_says_what_it_cannot_know() {
    let service = Service::start(bmc("Enabled"), |_, _| DONE).await;
    let room = service.driver.preflight(&target(4, &[]), DEADLINE).await.unwrap();
    let Room::NotEnough { reason } = room else {
        panic!("{room:?}")
    };
    assert!(reason.contains("3 of 4"), "{reason}");
    let room = service.driver.preflight(&target(3, &[]), DEADLINE).await.unwrap();
    let Room::CannotTell { reason } = room else {
        panic!("{room:?}")
    };
    assert!(
        reason.contains("3 of 4") && reason.contains("bridge window"),
        "{reason}"
    );
    assert!(service.sent().is_empty());
}

#[tokio::test]
async fn a_gpu_is_confirmed_by_uuid_when_it_is_enabled() {
    let service = Service::start(bmc("Enabled"), |_, _| DONE).await;
    let driver = &service.driver;
    let seen = driver
        .verify(&target(1, &[&format!("GPU-{UUID}")]), DEADLINE)
        .await
        .unwrap();
    assert_eq!(
        seen,
        Confirmation::Seen {
            evidence: "bmc box-1".into(),
            learned: Vec::new(),
        }
    );
    let other = driver
        .verify(
            &target(1, &["GPU-00000000-0000-0000-0000-000000000001"]),
            DEADLINE,
        )
        .await
        .unwrap();
    assert!(matches!(other, Confirmation::NotSeen { .. }), "{other:?}");
    let two = driver.verify(&target(2, &[UUID]), DEADLINE).await.unwrap();
    assert!(matches!(two, Confirmation::NotSeen { .. }), "{two:?}");
    let nameless = driver.verify(&target(1, &[]), DEADLINE).await.unwrap();
    assert!(
        matches!(nameless, Confirmation::CannotTell { .. }),
        "{nameless:?}"
    );
}

#[tokio::test]
async fn a_gpu_that_still_starts_is_not_seen_and_an_unread_host_cannot_tell() {
    let starting = Service::start(bmc("Starting"), |_, _| DONE).await;
    let seen = starting
        .driver
        .verify(&target(1, &[UUID]), DEADLINE)
        .await
        .unwrap();
    let Confirmation::NotSeen { reason, .. } = seen else {
        panic!("{seen:?}")
    };
    assert!(reason.contains("not Enabled"), "{reason}");
    let broken = Service::start(bmc("Enabled"), |_, _| DONE).await;
    broken.with(|documents| documents.remove("/redfish/v1/Systems/1/Processors"));
    let seen = broken.driver.verify(&target(1, &[UUID]), DEADLINE).await.unwrap();
    assert!(matches!(seen, Confirmation::CannotTell { .. }), "{seen:?}");
}

#[tokio::test]
async fn who_uses_a_gpu_is_beyond_a_bmc() {
    let service = Service::start(bmc("Enabled"), |_, _| DONE).await;
    let target = target(1, &[UUID]);
    let driver = &service.driver;
    let errors = [
        driver.holders(&target, DEADLINE).await.unwrap_err(),
        driver.drain(&target, DEADLINE).await.unwrap_err(),
        driver.undrain(&target, DEADLINE).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind, ErrorKind::CannotTell);
        assert!(error.hint.unwrap().contains("host itself"));
    }
}
