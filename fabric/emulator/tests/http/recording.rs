//! A recorded tree over the same front.

use crate::site::{SESSIONS, header};
use poolwright_emulator::{ServeOptions, Served, serve_recording};
use reqwest::{Certificate, Client, Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use std::path::Path;

/// Writes a small tree, and serves it.
async fn served(below: &str) -> (tempfile::TempDir, Served, Client) {
    let dir = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let folder = dir.path().join(below).join(path);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("index.json"), text).unwrap();
    };
    put("", r#"{"@odata.id":"/redfish/v1","Id":"RootService"}"#);
    // As recorded, odd spaces and all.
    put(
        "Chassis",
        r#"{ "Members" : [ {"@odata.id": "/redfish/v1/Chassis/DGX"} ], "Odd": 1.50 }"#,
    );
    std::fs::write(dir.path().join("secret"), "not to be served").unwrap();
    let served = serve_recording(dir.path(), ServeOptions::default())
        .await
        .unwrap();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let ca = Certificate::from_pem(served.ca_pem().as_bytes()).unwrap();
    let client = Client::builder().tls_certs_only([ca]).build().unwrap();
    (dir, served, client)
}

fn ask(served: &Served, client: &Client, method: Method, path: &str) -> RequestBuilder {
    let url = format!("{}{path}", served.endpoints()[0].url);
    client.request(method, url)
}

#[tokio::test]
async fn a_tree_is_served_as_it_was_recorded_in_either_form() {
    for below in ["redfish/v1", ""] {
        let (_dir, served, client) = served(below).await;
        assert_eq!(served.endpoints()[0].kind, "recording");
        let root = ask(&served, &client, Method::GET, "/redfish/v1/")
            .send()
            .await
            .unwrap();
        let root: Value = root.json().await.unwrap();
        assert_eq!(root["Id"], "RootService");
        assert!(root["Oem"]["Poolwright"]["Recording"].is_object(), "{root}");
        let known = |method: Method, path: &str| {
            ask(&served, &client, method, path).basic_auth(served.username(), Some(served.password()))
        };
        let chassis = known(Method::GET, "/redfish/v1/Chassis").send().await.unwrap();
        assert_eq!(header(&chassis, "odata-version"), "4.0");
        assert!(chassis.text().await.unwrap().contains("\"Odd\": 1.50"));
        for (method, path, status) in [
            (Method::GET, "/redfish/v1/Chassis/DGX", 404),
            (Method::GET, "/redfish/v1/secret", 404),
            (Method::GET, "/redfish/v1/../../secret", 404),
            (Method::GET, "/redfish/v1/Chassis/%2e%2e/%2e%2e/secret", 404),
            (Method::PATCH, "/redfish/v1/Chassis", 405),
            (Method::POST, "/redfish/v1/Chassis", 405),
            (Method::DELETE, "/redfish/v1/Chassis", 405),
        ] {
            assert_eq!(
                known(method, path).send().await.unwrap().status().as_u16(),
                status,
                "{path}"
            );
        }
        served.stop().await;
    }
}

#[tokio::test]
async fn a_recording_wants_credentials_too() {
    let (_dir, served, client) = served("redfish/v1").await;
    let status = async |request: RequestBuilder| request.send().await.unwrap().status();
    let get = || ask(&served, &client, Method::GET, "/redfish/v1/Chassis");
    assert_eq!(status(get()).await, StatusCode::UNAUTHORIZED);
    let log_in = json!({ "UserName": served.username(), "Password": served.password() });
    let opened = ask(&served, &client, Method::POST, SESSIONS)
        .json(&log_in)
        .send()
        .await
        .unwrap();
    assert_eq!(opened.status(), StatusCode::CREATED);
    let (token, uri) = (
        header(&opened, "x-auth-token").to_owned(),
        header(&opened, "location").to_owned(),
    );
    assert_eq!(status(get().header("X-Auth-Token", &token)).await, StatusCode::OK);
    let end = ask(&served, &client, Method::DELETE, &uri).header("X-Auth-Token", &token);
    assert_eq!(status(end).await, StatusCode::NO_CONTENT);
    assert_eq!(
        status(get().header("X-Auth-Token", &token)).await,
        StatusCode::UNAUTHORIZED
    );
    served.stop().await;
}

#[tokio::test]
async fn what_is_no_tree_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path(), Path::new("/no/such/folder")] {
        let error = serve_recording(path, ServeOptions::default())
            .await
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("redfish/v1/index.json") && error.contains(&*path.to_string_lossy()),
            "{error}"
        );
    }
}
