//! What outlives a restart.

use crate::site::{Site, ZONE, client, until};
use poolwright_emulator::{EndpointsFile, Rack, ServeOptions};
use reqwest::{Method, StatusCode};
use serde_json::json;

const GPU_1: &str = "/redfish/v1/Fabrics/PCIe/Endpoints/gpu-1";

async fn bind(site: &Site) {
    let body = json!({ "Endpoint": { "@odata.id": GPU_1 } });
    let bound = site
        .post("box-1", &format!("{ZONE}/Actions/Zone.AddEndpoint"), body)
        .await;
    assert_eq!(bound.status(), StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn authority_password_and_bindings_outlive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let rack = || Rack::builtin("small").unwrap();
    let options = || ServeOptions {
        data_dir: Some(dir.path().to_owned()),
        ..ServeOptions::default()
    };
    let first = Site::with(rack(), options()).await;
    let (ca, password) = (
        first.running.ca_pem().to_owned(),
        first.running.password().to_owned(),
    );
    bind(&first).await;
    // What was acknowledged is kept even if the emulator is killed now: a copy is taken before it stops.
    let kept = tempfile::tempdir().unwrap();
    for name in ["ca.pem", "ca.key", "password", "state.json"] {
        std::fs::copy(dir.path().join(name), kept.path().join(name)).unwrap();
    }
    let old_client = first.client.clone();
    first.running.stop().await;

    for data_dir in [dir.path(), kept.path()] {
        let options = ServeOptions {
            data_dir: Some(data_dir.to_owned()),
            ..ServeOptions::default()
        };
        let again = Site::with(rack(), options).await;
        assert_eq!(
            (again.running.ca_pem(), again.running.password()),
            (ca.as_str(), password.as_str())
        );
        assert_eq!(again.bound("box-1/gpu-1").as_deref(), Some("host-1/port-1"));
        // A client that trusted the rack before trusts it still.
        let url = again.url("box-1") + "/redfish/v1";
        assert_eq!(old_client.get(url).send().await.unwrap().status(), StatusCode::OK);
        again.running.stop().await;
    }
}

/// What a task did is kept by the time that anybody can know it.
#[tokio::test]
async fn what_a_task_did_is_kept_before_it_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let options = ServeOptions {
        data_dir: Some(dir.path().to_owned()),
        ..ServeOptions::default()
    };
    let site = Site::with(Rack::builtin("connections").unwrap(), options).await;
    let ends = json!({
        "InitiatorEndpoints": [{ "@odata.id": "/redfish/v1/Fabrics/PCIe/Endpoints/host-1-port-1" }],
        "TargetEndpoints": [{ "@odata.id": GPU_1 }],
    });
    let accepted = site
        .post(
            "box-1",
            "/redfish/v1/Fabrics/PCIe/Connections",
            json!({ "Links": ends }),
        )
        .await;
    let task: serde_json::Value = accepted.json().await.unwrap();
    let task = task["@odata.id"].as_str().unwrap();
    until("the task ends", async || {
        site.get("box-1", task).await["TaskState"] == "Completed"
    })
    .await;
    let kept = std::fs::read_to_string(dir.path().join("state.json")).unwrap();
    assert!(kept.contains("box-1/gpu-1"), "{kept}");
    site.running.stop().await;
}

#[cfg(unix)]
#[tokio::test]
async fn secrets_are_readable_by_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let options = ServeOptions {
        data_dir: Some(dir.path().to_owned()),
        ..ServeOptions::default()
    };
    let site = Site::with(Rack::builtin("small").unwrap(), options).await;
    for (name, mode) in [
        ("password", 0o600),
        ("ca.key", 0o600),
        ("ca.pem", 0o644),
        ("endpoints.json", 0o644),
    ] {
        let found = std::fs::metadata(dir.path().join(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o777;
        assert_eq!(found, mode, "{name}");
    }
    let text = std::fs::read_to_string(dir.path().join("endpoints.json")).unwrap();
    assert!(!text.contains(site.running.password()));
    let file: EndpointsFile = serde_json::from_str(&text).unwrap();
    assert_eq!((file.username.as_str(), file.endpoints.len()), ("admin", 2));
    assert_eq!(file.endpoints, site.running.endpoints());
    let password = std::fs::read_to_string(dir.path().join(file.password_file)).unwrap();
    assert_eq!(password.trim(), site.running.password());
    site.running.stop().await;
}

#[tokio::test]
async fn what_was_kept_of_another_rack_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let options = || ServeOptions {
        data_dir: Some(dir.path().to_owned()),
        ..ServeOptions::default()
    };
    let site = Site::with(Rack::builtin("demo").unwrap(), options()).await;
    let (gpu, port) = {
        let rack = site.emulation().rack();
        (
            rack.gpu_named("box-2/gpu-16").unwrap(),
            rack.port_named("host-6/port-1").unwrap(),
        )
    };
    site.emulation()
        .with(|state, now| state.bind_by_others(gpu, port, now))
        .unwrap();
    site.running.stop().await;
    let other = poolwright_emulator::serve(Rack::builtin("small").unwrap(), options()).await;
    let error = other.err().unwrap().to_string();
    assert!(
        error.contains("state.json") && error.contains("remove the file"),
        "{error}"
    );
}

#[tokio::test]
async fn after_a_stop_nobody_answers() {
    let site = Site::of("small").await;
    let url = site.url("box-1");
    let client = client(&site.running);
    // A request that hangs does not hold up the stop.
    let fault = poolwright_emulator::fault::FaultKind::TimeOutBefore;
    site.fault(
        poolwright_emulator::fault::Fault::new(fault)
            .on("GET", "/redfish/v1")
            .times(1),
    );
    let hanging = tokio::spawn(site.anonymous(Method::GET, "box-1", "/redfish/v1").send());
    tokio::task::yield_now().await;
    site.running.stop().await;
    assert!(hanging.await.unwrap().is_err());
    assert!(client.get(url).send().await.unwrap_err().is_connect());
}
