//! Entity tags, conditions, methods, queries.

use crate::site::{GPU, Site, ZONE, header, links, messages, uris};
use reqwest::{Method, StatusCode};
use serde_json::json;

const HOST: &str = "/redfish/v1/Fabrics/PCIe/Endpoints/host-1-port-1";
const GPU_ENDPOINT: &str = "/redfish/v1/Fabrics/PCIe/Endpoints/gpu-1";

#[tokio::test]
async fn a_resource_says_what_it_is() {
    let site = Site::of("small").await;
    let response = site.request(Method::GET, "box-1", ZONE).send().await.unwrap();
    assert_eq!(header(&response, "odata-version"), "4.0");
    assert_eq!(header(&response, "allow"), "GET, HEAD, PATCH");
    assert_eq!(
        header(&response, "content-type"),
        "application/json;charset=utf-8"
    );
    assert!(
        header(&response, "link").contains("schemas/v1/Zone.v1_"),
        "{:?}",
        response.headers()
    );
    assert!(header(&response, "link").ends_with("; rel=describedby"));
    assert!(!header(&response, "cache-control").is_empty());
    let tag = header(&response, "etag").to_owned();
    let body: serde_json::Value = response.json().await.unwrap();
    assert_eq!(body["@odata.etag"], tag);

    let head = site.request(Method::HEAD, "box-1", ZONE).send().await.unwrap();
    assert_eq!(header(&head, "etag"), tag);
    assert_eq!(head.text().await.unwrap(), "");
    site.running.stop().await;
}

#[tokio::test]
async fn a_known_tag_is_not_sent_again_and_an_old_one_changes_nothing() {
    let site = Site::of("small").await;
    let tag = site.get("box-1", ZONE).await["@odata.etag"]
        .as_str()
        .unwrap()
        .to_owned();
    let again = site
        .request(Method::GET, "box-1", ZONE)
        .header("If-None-Match", &tag)
        .send()
        .await
        .unwrap();
    assert_eq!(again.status(), StatusCode::NOT_MODIFIED);

    let patch = async |tag: &str, members: &[&str]| {
        let request = site.request(Method::PATCH, "box-1", ZONE).header("If-Match", tag);
        request
            .json(&json!({ "Links": { "Endpoints": links(members) } }))
            .send()
            .await
            .unwrap()
    };
    assert_eq!(
        patch(&tag, &[HOST, GPU_ENDPOINT]).await.status(),
        StatusCode::NO_CONTENT
    );
    assert_eq!(site.bound("box-1/gpu-1").as_deref(), Some("host-1/port-1"));
    let refused = patch(&tag, &[HOST]).await;
    assert_eq!(refused.status(), StatusCode::PRECONDITION_FAILED);
    assert_eq!(messages(refused).await, ["PreconditionFailed"]);
    assert_eq!(site.bound("box-1/gpu-1").as_deref(), Some("host-1/port-1"));
    assert_eq!(patch("*", &[HOST]).await.status(), StatusCode::NO_CONTENT);
    assert_eq!(site.bound("box-1/gpu-1"), None);
    site.running.stop().await;
}

#[tokio::test]
async fn a_method_that_is_not_offered_is_answered_with_those_that_are() {
    let site = Site::of("small").await;
    let reset = format!("{GPU}/Actions/Processor.Reset");
    for (method, path, allow) in [
        (Method::DELETE, GPU, "GET, HEAD"),
        (Method::PUT, ZONE, "GET, HEAD, PATCH"),
        (Method::GET, reset.as_str(), "POST"),
        (Method::PATCH, reset.as_str(), "POST"),
    ] {
        let response = site.send(method.clone(), "box-1", path, json!({})).await;
        assert_eq!(
            response.status(),
            StatusCode::METHOD_NOT_ALLOWED,
            "{method} {path}"
        );
        assert_eq!(header(&response, "allow"), allow, "{method} {path}");
        assert_eq!(messages(response).await, ["OperationNotAllowed"]);
    }
    site.running.stop().await;
}

#[tokio::test]
async fn another_version_of_odata_is_refused() {
    let site = Site::of("small").await;
    for (version, status) in [("4.0", 200), ("4.1", 412)] {
        let request = site
            .request(Method::GET, "box-1", GPU)
            .header("OData-Version", version);
        assert_eq!(request.send().await.unwrap().status().as_u16(), status);
    }
    site.running.stop().await;
}

#[tokio::test]
async fn expand_is_advertised_and_true() {
    let site = Site::of("small").await;
    let advertised = &site.get("box-1", "/redfish/v1").await["ProtocolFeaturesSupported"]["ExpandQuery"];
    assert_eq!(
        (&advertised["ExpandAll"], &advertised["MaxLevels"]),
        (&json!(true), &json!(4))
    );

    let all = site
        .get("box-1", "/redfish/v1/Chassis/box-1/Processors?$expand=.")
        .await;
    let members = all["Members"].as_array().unwrap();
    assert_eq!(members.len(), 8);
    for member in members {
        let alone = site.get("box-1", member["@odata.id"].as_str().unwrap()).await;
        assert_eq!(*member, alone, "expanded as it is read alone, entity tag and all");
    }
    let deep = site
        .get("box-1", "/redfish/v1/Fabrics/PCIe?$expand=.($levels=4)")
        .await;
    let ports = &deep["Switches"]["Members"][0]["Ports"]["Members"];
    assert_eq!(ports.as_array().unwrap().len(), 9);
    assert_eq!(ports[0]["PortType"], "UpstreamPort");
    assert!(uris(&deep["Links"]["ManagedBy"])[0].contains("Managers"));
    assert!(
        deep["Links"]["ManagedBy"][0].get("Id").is_none(),
        "a dot leaves Links alone"
    );
    let links = site.get("box-1", "/redfish/v1/Fabrics/PCIe?$expand=~").await;
    assert_eq!(links["Links"]["ManagedBy"][0]["ManagerType"], "FabricManager");
    assert!(links["Switches"].get("Members").is_none());
    site.running.stop().await;
}

#[tokio::test]
async fn expand_may_be_missing_or_a_lie() {
    let rack = |expand: &str| {
        let text = format!(
            "name = \"t\"\nstyle = \"zones\"\noptions.expand = \"{expand}\"\n\
             [[box]]\ngpus = [{{ kind = \"l40s-48gb\", count = 1 }}]\n[[host]]\n"
        );
        poolwright_emulator::Rack::from_toml("t", &text).unwrap()
    };
    let site = Site::with(rack("no"), Default::default()).await;
    let root = site.get("box-1", "/redfish/v1").await;
    assert_eq!(
        root["ProtocolFeaturesSupported"]["ExpandQuery"]["ExpandAll"],
        false
    );
    let refused = site
        .request(Method::GET, "box-1", "/redfish/v1/Chassis?$expand=.")
        .send()
        .await
        .unwrap();
    assert_eq!(refused.status(), StatusCode::NOT_IMPLEMENTED);
    assert_eq!(messages(refused).await, ["QueryParameterUnsupported"]);
    site.running.stop().await;

    let site = Site::with(rack("lies"), Default::default()).await;
    let root = site.get("box-1", "/redfish/v1").await;
    assert_eq!(
        root["ProtocolFeaturesSupported"]["ExpandQuery"]["ExpandAll"],
        true
    );
    let all = site.get("box-1", "/redfish/v1/Chassis?$expand=.").await;
    assert!(all["Members"][0].get("Id").is_none(), "{all}");
    site.running.stop().await;
}
