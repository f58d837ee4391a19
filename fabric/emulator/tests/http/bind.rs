//! The three ways to bind, each by the calls as DMTF's examples (DSP2046) and vendors publish them, and resets.

use crate::site::{GPU, Site, ZONE, header, links, messages, until, uris};
use poolwright_emulator::{Rack, ServeOptions};
use reqwest::{Method, StatusCode};
use serde_json::json;

const HOST: &str = "/redfish/v1/Fabrics/PCIe/Endpoints/host-1-port-1";
const OTHER_HOST: &str = "/redfish/v1/Fabrics/PCIe/Endpoints/host-2-port-2";
const GPU_1: &str = "/redfish/v1/Fabrics/PCIe/Endpoints/gpu-1";
const BLOCKS: &str = "/redfish/v1/CompositionService/ResourceBlocks";
const CONNECTIONS: &str = "/redfish/v1/Fabrics/PCIe/Connections";

/// The GPUs that a host sees: their serial numbers.
async fn seen(site: &Site, bmc: &str) -> Vec<String> {
    let all = site.get(bmc, "/redfish/v1/Systems/1/Processors?$expand=.").await;
    let gpus = all["Members"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["ProcessorType"] == "GPU");
    gpus.map(|gpu| gpu["SerialNumber"].as_str().unwrap().to_owned())
        .collect()
}

/// H3 Falcon: one PATCH of the zone's endpoints a move.
#[tokio::test]
async fn zones_by_patch_of_the_full_list() {
    let site = Site::of("zones").await;
    let patch = async |zone: &str, members: &[&str]| {
        let body = json!({ "Links": { "Endpoints": links(members) } });
        site.send(Method::PATCH, "box-1", zone, body).await
    };
    assert_eq!(patch(ZONE, &[HOST, GPU_1]).await.status(), StatusCode::NO_CONTENT);
    let zone = site.get("box-1", ZONE).await;
    assert_eq!(uris(&zone["Links"]["Endpoints"]), [HOST, GPU_1]);
    let endpoint = site.get("box-1", GPU_1).await;
    assert_eq!(uris(&endpoint["Links"]["Zones"]), [ZONE]);

    // The host sees it after its enumeration, in a slot, under the same serial number.
    let serial = site.get("box-1", GPU).await["SerialNumber"]
        .as_str()
        .unwrap()
        .to_owned();
    until("the host sees the GPU", async || {
        seen(&site, "host-1-bmc").await == [serial.as_str()]
    })
    .await;
    let slots = site
        .get("host-1-bmc", "/redfish/v1/Chassis/adapter-1/PCIeSlots")
        .await;
    assert_eq!(slots["Slots"].as_array().unwrap().len(), 4);
    assert_eq!(slots["Slots"][0]["HotPluggable"], true);
    assert_eq!(
        slots["Slots"][0]["Links"]["PCIeDevice"].as_array().unwrap().len(),
        1
    );
    assert_eq!(slots["Slots"][1]["Status"]["State"], "Absent");

    // What is in one zone can't be put into another.
    let other = "/redfish/v1/Fabrics/PCIe/Zones/host-2-port-2";
    let refused = patch(other, &[OTHER_HOST, GPU_1]).await;
    assert_eq!(refused.status(), StatusCode::CONFLICT);
    assert_eq!(messages(refused).await, ["ResourceInUse"]);

    assert_eq!(patch(ZONE, &[HOST]).await.status(), StatusCode::NO_CONTENT);
    assert_eq!(site.bound("box-1/gpu-1"), None);
    assert_eq!(seen(&site, "host-1-bmc").await, [""; 0]);
    site.running.stop().await;
}

/// Zone-v1-AddEndpoint-request-example.json and its twin, with the entity tags that they hold.
#[tokio::test]
async fn zones_by_actions_with_entity_tags() {
    let site = Site::of("zones").await;
    let zone = site.get("box-1", ZONE).await;
    let gpu = site.get("box-1", GPU_1).await;
    let target = |action: &str| zone["Actions"][action]["target"].as_str().unwrap().to_owned();
    let body = json!({
        "Endpoint": { "@odata.id": GPU_1 },
        "EndpointETag": gpu["@odata.etag"],
        "ZoneETag": zone["@odata.etag"],
    });
    let added = site
        .post("box-1", &target("#Zone.AddEndpoint"), body.clone())
        .await;
    assert_eq!(added.status(), StatusCode::NO_CONTENT);
    assert_eq!(site.bound("box-1/gpu-1").as_deref(), Some("host-1/port-1"));

    // The tags are old by now.
    let refused = site.post("box-1", &target("#Zone.RemoveEndpoint"), body).await;
    assert_eq!(refused.status(), StatusCode::PRECONDITION_FAILED);
    let removed = json!({ "Endpoint": { "@odata.id": GPU_1 } });
    let removed = site.post("box-1", &target("#Zone.RemoveEndpoint"), removed).await;
    assert_eq!(removed.status(), StatusCode::NO_CONTENT);
    assert_eq!(site.bound("box-1/gpu-1"), None);
    site.running.stop().await;
}

/// A connection joins an initiator with a target (Connection-v1-example.json, and the CXL example tree); this
/// rack answers with tasks.
#[tokio::test]
async fn connections_are_made_and_deleted_by_tasks() {
    let site = Site::of("connections").await;
    let body =
        json!({ "Links": { "InitiatorEndpoints": links(&[HOST]), "TargetEndpoints": links(&[GPU_1]) } });
    let accepted = site.post("box-1", CONNECTIONS, body.clone()).await;
    assert_eq!(accepted.status(), StatusCode::ACCEPTED);
    let monitor = header(&accepted, "location").to_owned();
    let task: serde_json::Value = accepted.json().await.unwrap();
    assert_eq!(
        (&task["TaskState"], &task["TaskMonitor"]),
        (&json!("Running"), &json!(monitor))
    );

    let task_uri = task["@odata.id"].as_str().unwrap();
    until("the task ends", async || {
        site.get("box-1", task_uri).await["TaskState"] == "Completed"
    })
    .await;
    let made = site.request(Method::GET, "box-1", &monitor).send().await.unwrap();
    assert_eq!(made.status(), StatusCode::CREATED);
    let connection = header(&made, "location").to_owned();
    let listed = site.get("box-1", CONNECTIONS).await;
    assert_eq!(uris(&listed["Members"]), [connection.as_str()]);
    assert_eq!(
        uris(&site.get("box-1", GPU_1).await["Links"]["Connections"]),
        [connection.as_str()]
    );

    let again = site.post("box-1", CONNECTIONS, body).await;
    assert_eq!(again.status(), StatusCode::CONFLICT);

    let deleted = site
        .request(Method::DELETE, "box-1", &connection)
        .send()
        .await
        .unwrap();
    assert_eq!(deleted.status(), StatusCode::ACCEPTED);
    until("it is unbound", async || site.bound("box-1/gpu-1").is_none()).await;
    let monitor = header(&deleted, "location").to_owned();
    let ended = site.request(Method::GET, "box-1", &monitor).send().await.unwrap();
    assert_eq!(ended.status(), StatusCode::NO_CONTENT);
    let deleted = site
        .request(Method::DELETE, "box-1", task_uri)
        .send()
        .await
        .unwrap();
    assert_eq!(deleted.status(), StatusCode::NO_CONTENT);
    site.running.stop().await;
}

#[tokio::test]
async fn a_connection_needs_one_endpoint_of_each_kind() {
    let site = Site::of("connections").await;
    for (initiators, targets, key) in [
        (json!([]), links(&[GPU_1]), "PropertyValueError"),
        (links(&[GPU_1]), links(&[GPU_1]), "PropertyValueError"),
        (links(&[HOST]), links(&[HOST]), "PropertyValueError"),
        (links(&[HOST]), json!("x"), "PropertyValueTypeError"),
    ] {
        let body = json!({ "Links": { "InitiatorEndpoints": initiators, "TargetEndpoints": targets } });
        let refused = site.post("box-1", CONNECTIONS, body).await;
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
        assert_eq!(messages(refused).await, [key]);
    }
    let body = json!({ "ConnectionType": "Teleport", "Links": {} });
    assert_eq!(
        messages(site.post("box-1", CONNECTIONS, body).await).await,
        ["PropertyValueNotInList"]
    );
    site.running.stop().await;
}

/// DSP0268's specific composition, then ComputerSystem-v1-AddResourceBlock-request-example.json and its twin.
#[tokio::test]
async fn resource_blocks_are_composed_added_and_removed() {
    let site = Site::of("blocks").await;
    let block = |id: &str| format!("{BLOCKS}/{id}");
    let (host, one, two) = (block("host-1-port-1"), block("gpu-1"), block("gpu-2"));
    let state = async |block: &str| {
        let status = &site.get("box-1", block).await["CompositionStatus"];
        (
            status["CompositionState"].as_str().unwrap().to_owned(),
            status["NumberOfCompositions"].clone(),
        )
    };
    assert_eq!(state(&one).await, ("Unused".to_owned(), json!(0)));
    let capabilities = &site.get("box-1", "/redfish/v1/Systems").await["@Redfish.CollectionCapabilities"];
    assert_eq!(
        capabilities["Capabilities"][0]["UseCase"],
        "ComputerSystemComposition"
    );

    let body = json!({ "Name": "host-1", "Links": { "ResourceBlocks": links(&[&host, &one]) } });
    let made = site.post("box-1", "/redfish/v1/Systems", body.clone()).await;
    assert_eq!(made.status(), StatusCode::CREATED);
    let system = header(&made, "location").to_owned();
    assert_eq!(state(&one).await, ("Composed".to_owned(), json!(1)));
    assert_eq!(
        site.post("box-1", "/redfish/v1/Systems", body).await.status(),
        StatusCode::CONFLICT
    );

    // The composed system is the host, by its UUID.
    let shown = site.get("box-1", &system).await;
    let bmc = site.get("host-1-bmc", "/redfish/v1/Systems/1").await;
    assert_eq!(
        (&shown["UUID"], &shown["SystemType"]),
        (&bmc["UUID"], &json!("Composed"))
    );

    let act = async |action: &str, block: &str| {
        let shown = site.get("box-1", &system).await;
        let target = shown["Actions"][action]["target"].as_str().unwrap();
        let body = json!({
            "ResourceBlock": { "@odata.id": block },
            "ResourceBlockETag": site.get("box-1", block).await["@odata.etag"],
            "ComputerSystemETag": shown["@odata.etag"],
        });
        site.post("box-1", target, body).await.status()
    };
    assert_eq!(
        act("#ComputerSystem.AddResourceBlock", &two).await,
        StatusCode::NO_CONTENT
    );
    assert_eq!(
        uris(&site.get("box-1", &system).await["Links"]["ResourceBlocks"]),
        [&host, &one, &two]
    );
    assert_eq!(
        act("#ComputerSystem.AddResourceBlock", &two).await,
        StatusCode::CONFLICT
    );
    assert_eq!(
        act("#ComputerSystem.RemoveResourceBlock", &one).await,
        StatusCode::NO_CONTENT
    );
    assert_eq!(
        act("#ComputerSystem.RemoveResourceBlock", &host).await,
        StatusCode::BAD_REQUEST
    );

    // PATCH of the full list does the same.
    let patch = json!({ "Links": { "ResourceBlocks": links(&[&host]) } });
    let patched = site.send(Method::PATCH, "box-1", &system, patch).await;
    assert_eq!(patched.status(), StatusCode::NO_CONTENT);
    assert_eq!(
        (site.bound("box-1/gpu-1"), site.bound("box-1/gpu-2")),
        (None, None)
    );
    // The system stays as long as nobody decomposes it.
    site.get("box-1", &system).await;
    let gone = site
        .request(Method::DELETE, "box-1", &system)
        .send()
        .await
        .unwrap();
    assert_eq!(gone.status(), StatusCode::NO_CONTENT);
    let gone = site.request(Method::GET, "box-1", &system).send().await.unwrap();
    assert_eq!(gone.status(), StatusCode::NOT_FOUND);
    site.running.stop().await;
}

/// Processor-v1-Reset-request-example.json.
#[tokio::test]
async fn a_free_gpu_is_reset_and_shows_when_it_is_ready() {
    let text = "name = \"t\"\nstyle = \"zones\"\nlatency.reset = \"300ms\"\n\
                [[box]]\ngpus = [{ kind = \"l40s-48gb\", count = 1 }]\n[[host]]\n";
    let site = Site::with(Rack::from_toml("t", text).unwrap(), ServeOptions::default()).await;
    let reset = async || {
        let target = site.get("box-1", GPU).await["Actions"]["#Processor.Reset"]["target"].clone();
        site.post(
            "box-1",
            target.as_str().unwrap(),
            json!({ "ResetType": "ForceRestart" }),
        )
        .await
        .status()
    };
    let add = format!("{ZONE}/Actions/Zone.AddEndpoint");
    let remove = format!("{ZONE}/Actions/Zone.RemoveEndpoint");
    let endpoint = json!({ "Endpoint": { "@odata.id": GPU_1 } });
    site.post("box-1", &add, endpoint.clone()).await;
    assert_eq!(reset().await, StatusCode::CONFLICT, "a GPU in use is not reset");
    site.post("box-1", &remove, endpoint.clone()).await;

    assert_eq!(reset().await, StatusCode::NO_CONTENT);
    assert_eq!(site.get("box-1", GPU).await["Status"]["State"], "Starting");
    assert_eq!(
        site.post("box-1", &add, endpoint).await.status(),
        StatusCode::CONFLICT
    );
    until("it is ready", async || {
        site.get("box-1", GPU).await["Status"]["State"] == "Enabled"
    })
    .await;
    site.running.stop().await;
}

#[tokio::test]
async fn a_host_is_switched_off_and_on() {
    let site = Site::of("zones").await;
    let system = site.get("host-2-bmc", "/redfish/v1/Systems/1").await;
    let target = system["Actions"]["#ComputerSystem.Reset"]["target"]
        .as_str()
        .unwrap();
    assert_eq!(
        (&system["PowerState"], seen(&site, "host-2-bmc").await.len()),
        (&json!("On"), 1)
    );
    site.post("host-2-bmc", target, json!({ "ResetType": "ForceOff" }))
        .await;
    assert_eq!(
        site.get("host-2-bmc", "/redfish/v1/Systems/1").await["PowerState"],
        "Off"
    );
    assert_eq!(seen(&site, "host-2-bmc").await, [""; 0]);
    assert!(site.bound("box-1/gpu-2").is_some(), "its bindings stay");
    site.post("host-2-bmc", target, json!({ "ResetType": "On" }))
        .await;
    until("it sees its GPU again", async || {
        seen(&site, "host-2-bmc").await.len() == 1
    })
    .await;
    site.running.stop().await;
}
