//! Each kind of fault, seen from outside, and the truth behind it.

use crate::site::{GPU, SESSIONS, Site, ZONE, header, messages, until};
use poolwright_emulator::fault::{Fault, FaultKind};
use poolwright_emulator::{Rack, ServeOptions};
use reqwest::{Method, StatusCode};
use serde_json::json;
use std::pin::pin;
use std::time::{Duration, Instant};

const GPU_1: &str = "/redfish/v1/Fabrics/PCIe/Endpoints/gpu-1";
/// How long it is seen that no answer comes.
const PATIENCE: Duration = Duration::from_millis(400);

/// Asks for a bind, under a fault of all writes.
async fn bind_under(site: &Site, does: FaultKind) -> Result<reqwest::Response, reqwest::Error> {
    let add = format!("{ZONE}/Actions/Zone.AddEndpoint");
    site.fault(Fault::new(does).at("box-1").on("POST", "**").times(1));
    let request = site
        .request(Method::POST, "box-1", &add)
        .json(&json!({ "Endpoint": { "@odata.id": GPU_1 } }));
    request.send().await
}

/// Asks for a bind that is not answered, neither before this is so nor soon after it.
async fn is_not_answered(site: &Site, does: FaultKind, so: impl Future<Output = ()>) {
    let mut asks = pin!(bind_under(site, does));
    tokio::select! {
        answer = &mut asks => panic!("{answer:?}"),
        () = so => {}
    }
    assert!(tokio::time::timeout(PATIENCE, asks).await.is_err());
}

async fn get_under(site: &Site, does: FaultKind) -> reqwest::Response {
    site.fault(Fault::new(does).at("box-1").on("GET", GPU).times(1));
    let response = site.request(Method::GET, "box-1", GPU).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    response
}

#[tokio::test]
async fn a_slow_answer_is_late_and_right() {
    let site = Site::of("small").await;
    let by = Duration::from_millis(150);
    let start = Instant::now();
    let response = get_under(&site, FaultKind::Slow { by }).await;
    assert!(start.elapsed() >= by);
    assert_eq!(response.json::<serde_json::Value>().await.unwrap()["Id"], "gpu-1");
    site.running.stop().await;
}

#[tokio::test]
async fn an_error_status_comes_as_often_as_asked() {
    let site = Site::of("small").await;
    let does = FaultKind::Status {
        code: 503,
        retry_after: Some(7),
    };
    site.fault(
        Fault::new(does)
            .on("GET", "/redfish/v1/Chassis/**")
            .after(1)
            .times(2),
    );
    let mut statuses = Vec::new();
    for _ in 0..4 {
        let response = site.request(Method::GET, "box-1", GPU).send().await.unwrap();
        statuses.push(response.status().as_u16());
        if response.status() == StatusCode::SERVICE_UNAVAILABLE {
            assert_eq!(header(&response, "retry-after"), "7");
            assert_eq!(messages(response).await, ["ServiceTemporarilyUnavailable"]);
        }
    }
    assert_eq!(statuses, [200, 503, 503, 200]);
    site.running.stop().await;
}

#[tokio::test]
async fn a_time_out_comes_before_the_effect_or_after_it() {
    let site = Site::of("small").await;
    let arrived = until("it arrives", async || site.emulation().requests() > 0);
    is_not_answered(&site, FaultKind::TimeOutBefore, arrived).await;
    assert_eq!(site.bound("box-1/gpu-1"), None);
    let done = until("it is done", async || site.bound("box-1/gpu-1").is_some());
    is_not_answered(&site, FaultKind::TimeOutAfter, done).await;
    assert_eq!(site.bound("box-1/gpu-1").as_deref(), Some("host-1/port-1"));
    site.running.stop().await;
}

#[tokio::test]
async fn it_says_yes_and_does_nothing() {
    let site = Site::of("small").await;
    assert_eq!(
        bind_under(&site, FaultKind::NoEffect).await.unwrap().status(),
        StatusCode::NO_CONTENT
    );
    assert_eq!(site.bound("box-1/gpu-1"), None);
    site.running.stop().await;
}

#[tokio::test]
async fn bodies_are_garbage_web_pages_or_broken_off() {
    let site = Site::of("small").await;
    let garbage = get_under(&site, FaultKind::Garbage).await.bytes().await.unwrap();
    assert!(std::str::from_utf8(&garbage).is_err());
    let html = get_under(&site, FaultKind::Html).await;
    assert_eq!(header(&html, "content-type"), "text/html");
    assert!(html.text().await.unwrap().contains("<h1>"));
    let broken = get_under(&site, FaultKind::Truncated).await;
    assert!(broken.bytes().await.is_err());
    // A write with a spoilt answer was done all the same.
    let answer = bind_under(&site, FaultKind::Html).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert!(site.bound("box-1/gpu-1").is_some());
    site.running.stop().await;
}

#[tokio::test]
async fn a_body_does_not_end_or_drips() {
    let site = Site::of("small").await;
    let mut endless = get_under(&site, FaultKind::Endless).await;
    let mut read = 0;
    while read < 4 << 20 {
        read += endless.chunk().await.unwrap().expect("it goes on").len();
    }
    drop(endless);
    let start = Instant::now();
    let mut drip = get_under(&site, FaultKind::Drip).await;
    assert_eq!(drip.chunk().await.unwrap().unwrap().len(), 1);
    assert!(start.elapsed() >= Duration::from_secs(1), "a byte takes its time");
    site.running.stop().await;
}

#[tokio::test]
async fn credentials_are_refused_and_the_session_table_is_full() {
    let site = Site::of("small").await;
    site.fault(Fault::new(FaultKind::Unauthorized).on("GET", GPU).times(1));
    let refused = site.request(Method::GET, "box-1", GPU).send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    site.fault(
        Fault::new(FaultKind::SessionTableFull)
            .on("POST", SESSIONS)
            .times(1),
    );
    let log_in = json!({ "UserName": "admin", "Password": site.running.password() });
    let refused = site.post("box-1", SESSIONS, log_in.clone()).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(messages(refused).await, ["SessionLimitExceeded"]);
    assert_eq!(
        site.post("box-1", SESSIONS, log_in).await.status(),
        StatusCode::CREATED
    );
    site.running.stop().await;
}

#[tokio::test]
async fn a_gpu_vanishes_and_is_nowhere() {
    let site = Site::of("zones").await;
    let before =
        site.get("box-1", "/redfish/v1/Chassis/box-1/Processors").await["Members@odata.count"].clone();
    let does = FaultKind::Vanish {
        gpu: "box-1/gpu-2".to_owned(),
    };
    site.fault(
        Fault::new(does)
            .at("box-1")
            .on("GET", "/redfish/v1/Fabrics")
            .times(1),
    );
    site.get("box-1", "/redfish/v1/Fabrics").await;
    let after = site.get("box-1", "/redfish/v1/Chassis/box-1/Processors").await;
    assert_eq!((before, &after["Members@odata.count"]), (json!(4), &json!(3)));
    for path in [
        "/redfish/v1/Chassis/box-1/Processors/gpu-2",
        "/redfish/v1/Chassis/box-1/PCIeDevices/gpu-2",
        "/redfish/v1/Fabrics/PCIe/Endpoints/gpu-2",
    ] {
        let response = site.request(Method::GET, "box-1", path).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::NOT_FOUND, "{path}");
    }
    let zone = site
        .get("box-1", "/redfish/v1/Fabrics/PCIe/Zones/host-2-port-2")
        .await;
    assert_eq!(zone["Links"]["Endpoints"].as_array().unwrap().len(), 1);
    let host = site.get("host-2-bmc", "/redfish/v1/Systems/1").await;
    assert_eq!(host["PCIeDevices"], json!([]));
    site.running.stop().await;
}

#[tokio::test]
async fn a_restart_of_the_manager_may_lose_all_bindings() {
    let site = Site::of("zones").await;
    let reset = "/redfish/v1/Managers/manager/Actions/Manager.Reset";
    site.post("box-1", reset, json!({ "ResetType": "ForceRestart" }))
        .await;
    assert!(site.bound("box-1/gpu-2").is_some(), "it should not");
    site.fault(Fault::new(FaultKind::LoseBindings).at("box-1").on("POST", reset));
    site.post("box-1", reset, json!({ "ResetType": "ForceRestart" }))
        .await;
    assert_eq!(site.bound("box-1/gpu-2"), None);
    site.running.stop().await;
}

#[tokio::test]
async fn a_task_never_ends_or_lies() {
    let site = Site::of("connections").await;
    let host = "/redfish/v1/Fabrics/PCIe/Endpoints/host-1-port-1";
    let connections = "/redfish/v1/Fabrics/PCIe/Connections";
    let connect = async |does: FaultKind, gpu: u8| {
        site.fault(Fault::new(does).on("POST", connections).times(1));
        let gpu = format!("/redfish/v1/Fabrics/PCIe/Endpoints/gpu-{gpu}");
        let ends = json!({
            "InitiatorEndpoints": [{ "@odata.id": host }],
            "TargetEndpoints": [{ "@odata.id": gpu }],
        });
        let accepted = site.post("box-1", connections, json!({ "Links": ends })).await;
        assert_eq!(accepted.status(), StatusCode::ACCEPTED);
        accepted.json::<serde_json::Value>().await.unwrap()["@odata.id"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let stuck = connect(FaultKind::TaskNeverEnds, 1).await;
    let lie = connect(FaultKind::TaskLies, 2).await;
    until("the lie is told", async || {
        site.get("box-1", &lie).await["TaskState"] == "Completed"
    })
    .await;
    assert_eq!(site.get("box-1", &stuck).await["TaskState"], "Running");
    assert_eq!(
        (site.bound("box-1/gpu-1"), site.bound("box-1/gpu-2")),
        (None, None)
    );
    let refused = site
        .request(Method::DELETE, "box-1", &stuck)
        .send()
        .await
        .unwrap();
    assert_eq!(refused.status(), StatusCode::CONFLICT, "it can't be cancelled");
    site.running.stop().await;
}

#[tokio::test]
async fn a_rack_file_may_hold_faults() {
    let text = "name = \"t\"\nstyle = \"zones\"\n[[box]]\ngpus = [{ kind = \"l40s-48gb\", count = 1 }]\n[[host]]\n\
                [[fault]]\nendpoint = \"box-1\"\npath = \"/redfish/v1/Chassis\"\ntimes = 1\n\
                does = { status = { code = 500 } }\n";
    let site = Site::with(Rack::from_toml("t", text).unwrap(), ServeOptions::default()).await;
    let status = async |endpoint: &str| {
        site.request(Method::GET, endpoint, "/redfish/v1/Chassis")
            .send()
            .await
            .unwrap()
            .status()
            .as_u16()
    };
    assert_eq!(
        (
            status("host-1-bmc").await,
            status("box-1").await,
            status("box-1").await
        ),
        (200, 500, 200)
    );
    site.running.stop().await;
}

#[tokio::test]
async fn faults_are_taken_while_it_runs_only_where_that_was_asked_for() {
    let quiet = Site::of("small").await;
    assert_eq!(quiet.running.fault_control_url(), None);
    quiet.running.stop().await;

    let options = ServeOptions {
        fault_control: true,
        ..ServeOptions::default()
    };
    let site = Site::with(Rack::builtin("zones").unwrap(), options).await;
    let url = site.running.fault_control_url().unwrap().to_owned();
    let fault = json!({ "path": GPU, "does": "html" });
    let anonymous = site.client.post(&url).json(&fault).send().await.unwrap();
    assert_eq!(anonymous.status(), StatusCode::UNAUTHORIZED);
    let send = async |method: Method, url: String, body: &serde_json::Value| {
        let request = site
            .client
            .request(method, url)
            .basic_auth("admin", Some(site.running.password()));
        request.json(body).send().await.unwrap().status()
    };
    assert_eq!(
        send(Method::POST, url.clone(), &fault).await,
        StatusCode::NO_CONTENT
    );
    let spoilt = site.request(Method::GET, "box-1", GPU).send().await.unwrap();
    assert_eq!(header(&spoilt, "content-type"), "text/html");
    assert_eq!(
        send(Method::DELETE, url.clone(), &json!({})).await,
        StatusCode::NO_CONTENT
    );
    site.get("box-1", GPU).await;
    assert_eq!(
        send(Method::POST, url.clone(), &json!({ "does": "explode" })).await,
        StatusCode::BAD_REQUEST
    );

    let incidents = url.replace("faults", "incidents");
    let vanish = json!({ "vanish": "box-1/gpu-1" });
    assert_eq!(
        send(Method::POST, incidents.clone(), &vanish).await,
        StatusCode::NO_CONTENT
    );
    let gone = site.request(Method::GET, "box-1", GPU).send().await.unwrap();
    assert_eq!(gone.status(), StatusCode::NOT_FOUND);
    let nobody = json!({ "power-off": "host-9" });
    assert_eq!(
        send(Method::POST, incidents, &nobody).await,
        StatusCode::BAD_REQUEST
    );
    site.running.stop().await;
}
