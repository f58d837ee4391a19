//! Resource blocks: `ComputerSystem.AddResourceBlock` and `RemoveResourceBlock` of DSP2046, a PATCH of the
//! system's `Links.ResourceBlocks`, and the specific composition of DSP2050: POST to the Systems.

use crate::southbound::service::{DEADLINE, DONE, Documents, Reply, Sent, Service, links, point};
use poolwright_driver::{Bound, ErrorKind, Fabric};
use poolwright_model::control::{ControlPoint, ControlStyle};
use serde_json::{Value, json};

const BLOCKS: &str = "/redfish/v1/CompositionService/ResourceBlocks";
const COMPUTE: &str = "/redfish/v1/CompositionService/ResourceBlocks/Compute1";
const OTHER: &str = "/redfish/v1/CompositionService/ResourceBlocks/Compute2";
const GPU: &str = "/redfish/v1/CompositionService/ResourceBlocks/Offload-GPU1";
const SYSTEMS: &str = "/redfish/v1/Systems";
const SYSTEM: &str = "/redfish/v1/Systems/Composed1";

fn unit(address: &str) -> ControlPoint {
    point(ControlStyle::ResourceBlocks, address)
}

fn block(kind: &str, systems: &[&str]) -> Value {
    let state = if systems.is_empty() { "Unused" } else { "Composed" };
    json!({"@odata.type": "#ResourceBlock.v1_4_3.ResourceBlock", "Name": format!("{kind} block"),
        "ResourceBlockType": [kind], "CompositionStatus": {"CompositionState": state, "Reserved": false},
        "Links": {"ComputerSystems": links(systems)}})
}

/// A host that is in no system, another one, and a GPU.
fn rack() -> Documents {
    let mut documents = Documents::default();
    documents.collection(BLOCKS, "ResourceBlock", &[COMPUTE, OTHER, GPU]);
    documents.put(COMPUTE, block("Compute", &[]));
    documents.put(OTHER, block("Compute", &[]));
    documents.put(GPU, block("Processor", &[]));
    documents.collection(SYSTEMS, "ComputerSystem", &[]);
    documents
}

fn compose(documents: &mut Documents, blocks: &[&str], actions: bool) {
    let mut system = json!({"@odata.type": "#ComputerSystem.v1_23_0.ComputerSystem", "SystemType": "Composed",
        "Links": {"ResourceBlocks": links(blocks)}});
    if actions {
        system["Actions"] = json!({
            "#ComputerSystem.AddResourceBlock": {"target": format!("{SYSTEM}/Actions/ComputerSystem.AddResourceBlock")},
            "#ComputerSystem.RemoveResourceBlock": {"target": format!("{SYSTEM}/Actions/ComputerSystem.RemoveResourceBlock")}});
    }
    documents.put(SYSTEM, system);
    for path in [COMPUTE, GPU] {
        let kind = if path == GPU { "Processor" } else { "Compute" };
        let systems: &[&str] = if blocks.contains(&path) { &[SYSTEM] } else { &[] };
        documents.put(path, block(kind, systems));
    }
}

fn host_in_a_system(actions: bool) -> Documents {
    let mut documents = rack();
    compose(&mut documents, &[COMPUTE], actions);
    documents
}

#[tokio::test]
async fn a_host_in_a_system_gets_and_loses_blocks_by_dsp2046s_actions() {
    let service = Service::start(host_in_a_system(true), |documents, sent| {
        let blocks: &[&str] = if sent.path.contains("Add") {
            &[COMPUTE, GPU]
        } else {
            &[COMPUTE]
        };
        compose(documents, blocks, true);
        DONE
    })
    .await;
    let (block_etag, system_etag) = service.with(|documents| (documents.etag(GPU), documents.etag(SYSTEM)));
    service
        .driver
        .bind(&unit(GPU), &unit(COMPUTE), DEADLINE)
        .await
        .unwrap();
    let sent = service.sent();
    assert_eq!(
        sent[0].line(),
        format!("POST {SYSTEM}/Actions/ComputerSystem.AddResourceBlock")
    );
    // ComputerSystem-v1-AddResourceBlock-request-example.json: these three members, ETags as text.
    let body = json!({"ResourceBlock": {"@odata.id": GPU}, "ResourceBlockETag": block_etag, "ComputerSystemETag": system_etag});
    assert_eq!(sent[0].body, body);
    let bound = service.driver.bound(&unit(GPU), DEADLINE).await.unwrap();
    assert_eq!(
        bound,
        Bound::To {
            port_address: COMPUTE.into()
        }
    );

    service
        .driver
        .unbind(&unit(GPU), &unit(COMPUTE), DEADLINE)
        .await
        .unwrap();
    let sent = service.sent();
    assert_eq!(
        sent[1].line(),
        format!("POST {SYSTEM}/Actions/ComputerSystem.RemoveResourceBlock")
    );
    let keys: Vec<&String> = sent[1].body.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["ResourceBlock", "ResourceBlockETag", "ComputerSystemETag"]);
    // The system stays: it is the host.
    service.with(|documents| {
        assert_eq!(
            documents.get(SYSTEM)["Links"]["ResourceBlocks"],
            links(&[COMPUTE])
        )
    });
}

#[tokio::test]
async fn a_host_in_no_system_is_composed_with_its_first_gpu() {
    let service = Service::start(rack(), |documents, _| {
        compose(documents, &[COMPUTE, GPU], true);
        Reply::At(201, SYSTEM)
    })
    .await;
    service
        .driver
        .bind(&unit(GPU), &unit(COMPUTE), DEADLINE)
        .await
        .unwrap();
    let sent = service.sent();
    assert_eq!(sent[0].line(), format!("POST {SYSTEMS}"));
    let body = json!({"Name": "Compute block", "Links": {"ResourceBlocks": [{"@odata.id": COMPUTE}, {"@odata.id": GPU}]}});
    assert_eq!(sent[0].body, body);
}

#[tokio::test]
async fn without_actions_the_systems_blocks_are_patched_under_its_etag() {
    let patch = |documents: &mut Documents, sent: &Sent| {
        let list = sent.body["Links"]["ResourceBlocks"].as_array().unwrap().clone();
        let paths: Vec<&str> = list
            .iter()
            .map(|link| link["@odata.id"].as_str().unwrap())
            .collect();
        compose(documents, &paths, false);
        DONE
    };
    let service = Service::start(host_in_a_system(false), patch).await;
    let etag = service.with(|documents| documents.etag(SYSTEM));
    service
        .driver
        .bind(&unit(GPU), &unit(COMPUTE), DEADLINE)
        .await
        .unwrap();
    service
        .driver
        .unbind(&unit(GPU), &unit(COMPUTE), DEADLINE)
        .await
        .unwrap();
    let sent = service.sent();
    let expected = Sent {
        method: "PATCH".into(),
        path: SYSTEM.into(),
        if_match: Some(etag),
        body: json!({"Links": {"ResourceBlocks": [{"@odata.id": COMPUTE}, {"@odata.id": GPU}]}}),
    };
    assert_eq!(sent[0], expected);
    assert_eq!(
        sent[1].body,
        json!({"Links": {"ResourceBlocks": [{"@odata.id": COMPUTE}]}})
    );
}

#[tokio::test]
async fn a_block_that_is_held_or_reserved_is_not_touched() {
    let mut held = rack();
    compose(&mut held, &[COMPUTE, GPU], true);
    let mut reserved = host_in_a_system(true);
    reserved.set(GPU, "/CompositionStatus/Reserved", json!(true));
    let mut failed = host_in_a_system(true);
    failed.set(GPU, "/CompositionStatus/CompositionState", json!("Failed"));
    for (documents, says) in [(held, COMPUTE), (reserved, "reserved"), (failed, "Failed")] {
        let service = Service::start(documents, |_, _| DONE).await;
        let error = service
            .driver
            .bind(&unit(GPU), &unit(OTHER), DEADLINE)
            .await
            .unwrap_err();
        assert_eq!(error.kind, ErrorKind::Conflict);
        assert!(error.message.contains(says), "{error}");
        assert!(service.sent().is_empty());
    }
}

#[tokio::test]
async fn a_system_without_a_hosts_block_still_counts_as_bound() {
    let mut documents = rack();
    compose(&mut documents, &[GPU], true);
    let service = Service::start(documents, |_, _| DONE).await;
    let bound = service.driver.bound(&unit(GPU), DEADLINE).await.unwrap();
    assert_eq!(
        bound,
        Bound::To {
            port_address: SYSTEM.into()
        }
    );
}

/// Fault 90: the block shows the serial number of a board, and a host's view of the same PCIe device shows the UUID.
#[tokio::test]
async fn the_identity_at_a_block_has_the_uuid_of_its_pcie_device() {
    const UUID: &str = "9dad5bfd-a732-23fe-40ad-465d0cbe5f95";
    const DEVICE: &str = "/redfish/v1/Chassis/Box/PCIeDevices/1";
    const IN_BLOCK: &str = "/redfish/v1/CompositionService/ResourceBlocks/Offload-GPU1/Processors/GPU";
    const AT_HOST: &str = "/redfish/v1/Systems/1/Processors/GPU";
    let mut documents = rack();
    let mut with_gpu = block("Processor", &[]);
    with_gpu["Processors"] = links(&[IN_BLOCK]);
    documents.put(GPU, with_gpu);
    let processor = json!({"@odata.type": "#Processor.v1_20_1.Processor", "ProcessorType": "GPU", "SerialNumber": "BOARD",
        "Links": {"PCIeDevice": {"@odata.id": DEVICE}}});
    documents.put(IN_BLOCK, processor.clone());
    let mut at_host = processor;
    at_host["UUID"] = json!(UUID);
    documents.put(AT_HOST, at_host);
    documents.put(
        DEVICE,
        json!({"@odata.type": "#PCIeDevice.v1_9_0.PCIeDevice", "Links": {"Processors": links(&[IN_BLOCK, AT_HOST])}}),
    );
    let service = Service::start(documents, |_, _| DONE).await;
    let found = service.driver.identify(&unit(GPU), DEADLINE).await.unwrap();
    let [gpu] = &found[..] else {
        panic!("one GPU: {found:?}")
    };
    assert_eq!(gpu.serial.as_deref(), Some("BOARD"));
    assert!(
        gpu.uuid.as_ref().is_some_and(|uuid| uuid.ends_with(UUID)),
        "{gpu:?}"
    );
}
