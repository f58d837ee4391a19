//! Resetting a GPU that was given back, by DSP2046's `Processor.Reset`.

use crate::southbound::service::{DEADLINE, DONE, Documents, Reply, Service, links, point};
use poolwright_driver::{ErrorKind, Fabric, ResetSeen};
use poolwright_model::control::{ControlPoint, ControlStyle};
use serde_json::{Value, json};
use std::time::Duration;

const GPU: &str = "/redfish/v1/Fabrics/PCIe/Endpoints/GPU1";
const ZONE: &str = "/redfish/v1/Fabrics/PCIe/Zones/1";
const PROCESSOR: &str = "/redfish/v1/Chassis/Box/Processors/GPU1";
const TARGET: &str = "/redfish/v1/Chassis/Box/Processors/GPU1/Actions/Processor.Reset";

fn unit() -> ControlPoint {
    point(ControlStyle::Zones, GPU)
}

fn rack(actions: Value) -> Documents {
    let mut documents = Documents::default();
    let entity =
        json!([{"EntityType": "Processor", "EntityRole": "Target", "EntityLink": {"@odata.id": PROCESSOR}}]);
    documents.put(
        GPU,
        json!({"@odata.type": "#Endpoint.v1_8_2.Endpoint", "ConnectedEntities": entity, "Links": {"Zones": []}}),
    );
    documents.put(
        PROCESSOR,
        json!({"@odata.type": "#Processor.v1_20_1.Processor", "ProcessorType": "GPU", "Status": {"State": "Enabled"},
            "Actions": actions}),
    );
    documents
}

fn offered() -> Value {
    json!({"#Processor.Reset": {"target": TARGET, "ResetType@Redfish.AllowableValues": ["ForceRestart"]}})
}

#[tokio::test]
async fn a_reset_is_seen_when_the_gpu_went_away_and_came_back() {
    let service = Service::start(rack(offered()), |documents, _| {
        documents.set(PROCESSOR, "/Status/State", json!("Starting"));
        DONE
    })
    .await;
    let unit = unit();
    let reset = service.driver.reset(&unit, DEADLINE);
    let come_back = async {
        while service.sent().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        service.with(|documents| documents.set(PROCESSOR, "/Status/State", json!("Enabled")));
    };
    let (seen, ()) = tokio::join!(reset, come_back);
    assert_eq!(seen.unwrap(), ResetSeen::Done);
    let sent = service.sent();
    assert_eq!(sent[0].line(), format!("POST {TARGET}"));
    // Processor-v1-Reset-request-example.json
    assert_eq!(sent[0].body, json!({"ResetType": "ForceRestart"}));
}

#[tokio::test]
async fn a_yes_that_leaves_no_trace_is_no_reset() {
    let service = Service::start(rack(offered()), |_, _| DONE).await;
    assert_eq!(
        service.driver.reset(&unit(), DEADLINE).await.unwrap(),
        ResetSeen::CannotTell
    );
}

#[tokio::test]
async fn what_offers_no_reset_cannot_tell() {
    let service = Service::start(rack(json!({})), |_, _| DONE).await;
    assert_eq!(
        service.driver.reset(&unit(), DEADLINE).await.unwrap(),
        ResetSeen::CannotTell
    );
    assert!(service.sent().is_empty());
}

#[tokio::test]
async fn a_gpu_that_does_not_come_back_is_an_unknown_outcome() {
    let service = Service::start(rack(offered()), |documents, _| {
        documents.set(PROCESSOR, "/Status/State", json!("Starting"));
        DONE
    })
    .await;
    // The clock stands still while somebody has something to do, and the second branch always has; the deadline comes
    // once the reset was accepted, and only just leaves room for a look.
    tokio::time::pause();
    let unit = unit();
    let time_passes = async {
        while service.sent().is_empty() {
            tokio::task::yield_now().await;
        }
        tokio::time::advance(DEADLINE - Duration::from_millis(10)).await;
        loop {
            tokio::task::yield_now().await;
        }
    };
    let error = tokio::select! {
        outcome = service.driver.reset(&unit, DEADLINE) => outcome.unwrap_err(),
        never = time_passes => never,
    };
    assert_eq!(error.kind, ErrorKind::OutcomeUnknown);
    assert!(error.message.contains("Starting"), "{error}");
}

#[tokio::test]
async fn a_gpu_that_is_bound_is_not_reset() {
    let mut documents = rack(offered());
    documents.set(GPU, "/Links/Zones", links(&[ZONE]));
    documents.put(
        ZONE,
        json!({"@odata.type": "#Zone.v1_6_3.Zone", "Links": {"Endpoints": links(&[GPU])}}),
    );
    let service = Service::start(documents, |_, _| Reply::Nothing).await;
    let error = service.driver.reset(&unit(), DEADLINE).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict);
    assert!(service.sent().is_empty());
}
