//! Connections: POST to the fabric's collection (OpenFabrics Sunfish's published call), DELETE of one.

use crate::southbound::service::{DEADLINE, DONE, Documents, Reply, Sent, Service, links, point};
use poolwright_driver::{Bound, ErrorKind, Fabric};
use poolwright_model::control::{ControlPoint, ControlStyle};
use serde_json::json;

const FABRIC: &str = "/redfish/v1/Fabrics/PCIe";
const CONNECTIONS: &str = "/redfish/v1/Fabrics/PCIe/Connections";
const CONNECTION: &str = "/redfish/v1/Fabrics/PCIe/Connections/7";
const HOST: &str = "/redfish/v1/Fabrics/PCIe/Endpoints/Host1";
const GPU: &str = "/redfish/v1/Fabrics/PCIe/Endpoints/GPU1";
const GPU2: &str = "/redfish/v1/Fabrics/PCIe/Endpoints/GPU2";

fn unit(address: &str) -> ControlPoint {
    point(ControlStyle::Connections, address)
}

fn rack() -> Documents {
    let mut documents = Documents::default();
    documents.collection("/redfish/v1/Fabrics", "Fabric", &[FABRIC]);
    documents.put(
        FABRIC,
        json!({"@odata.type": "#Fabric.v1_3_2.Fabric", "FabricType": "PCIe", "Connections": {"@odata.id": CONNECTIONS}}),
    );
    documents.collection(CONNECTIONS, "Connection", &[]);
    for endpoint in [HOST, GPU, GPU2] {
        documents.put(endpoint, json!({"@odata.type": "#Endpoint.v1_8_2.Endpoint"}));
    }
    documents
}

fn connect(documents: &mut Documents, hosts: &[&str], targets: &[&str]) {
    documents.put(
        CONNECTION,
        json!({"@odata.type": "#Connection.v1_4_0.Connection",
            "Links": {"InitiatorEndpoints": links(hosts), "TargetEndpoints": links(targets)}}),
    );
    documents.collection(CONNECTIONS, "Connection", &[CONNECTION]);
}

fn serve(documents: &mut Documents, sent: &Sent) -> Reply {
    match sent.method.as_str() {
        "POST" => {
            connect(documents, &[HOST], &[GPU]);
            Reply::At(201, CONNECTION)
        }
        _ => {
            documents.remove(&sent.path);
            documents.collection(CONNECTIONS, "Connection", &[]);
            DONE
        }
    }
}

#[tokio::test]
async fn bind_posts_a_connection_and_unbind_deletes_it() {
    let service = Service::start(rack(), serve).await;
    service
        .driver
        .bind(&unit(GPU), &unit(HOST), DEADLINE)
        .await
        .unwrap();
    let sent = service.sent();
    assert_eq!(sent[0].line(), format!("POST {CONNECTIONS}"));
    // Nothing that the schema does not know of a new connection, and no type: it has none for a GPU.
    let body = json!({"Links": {"InitiatorEndpoints": [{"@odata.id": HOST}], "TargetEndpoints": [{"@odata.id": GPU}]}});
    assert_eq!(sent[0].body, body);
    let bound = service.driver.bound(&unit(GPU), DEADLINE).await.unwrap();
    assert_eq!(
        bound,
        Bound::To {
            port_address: HOST.into()
        }
    );

    let etag = service.with(|documents| documents.etag(CONNECTION));
    service
        .driver
        .unbind(&unit(GPU), &unit(HOST), DEADLINE)
        .await
        .unwrap();
    let sent = service.sent();
    assert_eq!(sent[1].line(), format!("DELETE {CONNECTION}"));
    assert_eq!(sent[1].if_match, Some(etag));
    assert_eq!(
        service.driver.bound(&unit(GPU), DEADLINE).await.unwrap(),
        Bound::Free
    );
}

#[tokio::test]
async fn a_connection_of_several_gpus_is_not_deleted_for_one() {
    let mut documents = rack();
    connect(&mut documents, &[HOST], &[GPU, GPU2]);
    let service = Service::start(documents, serve).await;
    let error = service
        .driver
        .unbind(&unit(GPU), &unit(HOST), DEADLINE)
        .await
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict);
    assert!(error.message.contains(CONNECTION), "{error}");
    assert!(service.sent().is_empty());
}

#[tokio::test]
async fn a_long_bind_is_followed_through_its_task() {
    const TASK: &str = "/redfish/v1/TaskService/Tasks/1";
    let service = Service::start(rack(), |documents, sent| {
        documents.put(
            TASK,
            json!({"@odata.type": "#Task.v1_7_4.Task", "TaskState": "Completed", "TaskStatus": "OK"}),
        );
        serve(documents, sent);
        Reply::At(202, TASK)
    })
    .await;
    service
        .driver
        .bind(&unit(GPU), &unit(HOST), DEADLINE)
        .await
        .unwrap();
    let failing = Service::start(rack(), |documents, _| {
        let messages = json!([{"MessageId": "Fabric.1.0.DeviceRemoved", "Message": "It is gone."}]);
        documents.put(
            TASK,
            json!({"@odata.type": "#Task.v1_7_4.Task", "TaskState": "Exception", "Messages": messages}),
        );
        Reply::At(202, TASK)
    })
    .await;
    let error = failing
        .driver
        .bind(&unit(GPU), &unit(HOST), DEADLINE)
        .await
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::OutcomeUnknown);
    assert_eq!(error.message_id.as_deref(), Some("Fabric.1.0.DeviceRemoved"));
}

#[tokio::test]
async fn an_endpoint_that_is_gone_is_an_error_without_effect() {
    let service = Service::start(rack(), serve).await;
    let gone = unit("/redfish/v1/Fabrics/PCIe/Endpoints/GPU9");
    let error = service
        .driver
        .bind(&gone, &unit(HOST), DEADLINE)
        .await
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoEffect);
    assert!(error.message.contains("GPU9"), "{error}");
    assert!(error.hint.is_some());
    assert!(service.sent().is_empty());
}
