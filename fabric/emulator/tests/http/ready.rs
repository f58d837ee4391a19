//! What is served without knowing anything.

use crate::site::Site;
use reqwest::{Method, StatusCode};
use serde_json::Value;

#[tokio::test]
async fn anybody_may_read_what_the_service_is_and_nothing_else() {
    let site = Site::of("small").await;
    for path in [
        "/redfish",
        "/redfish/v1",
        "/redfish/v1/",
        "/redfish/v1/odata",
        "/redfish/v1/$metadata",
    ] {
        let response = site.anonymous(Method::GET, "box-1", path).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");
    }
    for path in [
        "/redfish/v1/Chassis",
        "/redfish/v1/SessionService/Sessions",
        "/redfish/v1/no-such",
        "/",
    ] {
        let response = site.anonymous(Method::GET, "box-1", path).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{path}");
        assert!(
            response.headers()["www-authenticate"]
                .to_str()
                .unwrap()
                .starts_with("Basic ")
        );
    }
    let response = site
        .request(Method::GET, "box-1", "/redfish/v1/no-such")
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    site.running.stop().await;
}

#[tokio::test]
async fn every_endpoint_has_an_address_and_a_uuid_of_its_own() {
    let site = Site::of("zones").await;
    let names: Vec<&str> = site
        .running
        .endpoints()
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(
        names,
        ["box-1", "box-2", "host-1-bmc", "host-2-bmc", "host-3-bmc"]
    );
    let mut seen = std::collections::BTreeSet::new();
    for endpoint in site.running.endpoints() {
        let root: Value = site.get(&endpoint.name, "/redfish/v1").await;
        assert!(seen.insert(root["UUID"].as_str().unwrap().to_owned()));
        assert!(seen.insert(endpoint.url.clone()));
        assert_eq!(root.get("Fabrics").is_some(), endpoint.kind == "fabric-manager");
    }
    site.running.stop().await;
}

#[tokio::test]
async fn the_metadata_names_the_schemas_that_are_served() {
    let site = Site::of("small").await;
    let response = site
        .anonymous(Method::GET, "box-1", "/redfish/v1/$metadata")
        .send()
        .await
        .unwrap();
    assert_eq!(
        response.headers()["content-type"],
        "application/xml;charset=utf-8"
    );
    let xml = response.text().await.unwrap();
    for part in [
        "Zone_v1.xml",
        "Namespace=\"Zone.v1_",
        "EntityContainer",
        "http://redfish.dmtf.org/schemas/v1/",
    ] {
        assert!(xml.contains(part), "{part} in {xml}");
    }
    let odata = site.get("box-1", "/redfish/v1/odata").await;
    assert_eq!(odata["@odata.context"], "/redfish/v1/$metadata");
    assert!(
        odata["value"]
            .as_array()
            .unwrap()
            .iter()
            .any(|entry| entry["name"] == "Sessions")
    );
    site.running.stop().await;
}
