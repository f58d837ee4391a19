//! `discover` and `emulate`, and the two commands that speak to an endpoint without a manager.

use crate::support::{Rack, run};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

#[tokio::test]
async fn a_rack_is_discovered_through_all_its_endpoints() {
    let rack = Rack::start("small").await;
    let listing = rack.file("endpoints.json");
    let snapshot = run(&format!("discover --endpoints {listing} -o json"))
        .await
        .expect(0, &[])
        .json();
    assert_eq!(snapshot["gpus"].as_array().unwrap().len(), 8);
    assert_eq!(snapshot["hosts"].as_array().unwrap().len(), 1);
    assert!(
        snapshot["gpus"]
            .as_array()
            .unwrap()
            .iter()
            .all(|gpu| gpu["composable"] == true)
    );
    assert_eq!(snapshot["faults"], Value::Array(Vec::new()));
    assert!(snapshot["requests"].as_u64().unwrap() > 10);
    let endpoints = snapshot["endpoints"].as_array().unwrap();
    assert_eq!(endpoints.len(), 2);
    assert!(
        endpoints
            .iter()
            .all(|at| at["driver"] == "emulated" && at["vendor"] == "Poolwright")
    );
    assert!(endpoints.iter().any(|at| at["id"] == "box-1"));

    // Named twice it is no more than once, and under two addresses it is told.
    let text = std::fs::read_to_string(&listing).unwrap();
    let listed: Value = serde_json::from_str(&text).unwrap();
    let listed = listed["endpoints"].as_array().unwrap();
    let box_1 = listed.iter().find(|at| at["name"] == "box-1").unwrap();
    let url = box_1["url"].as_str().unwrap();
    let access = format!(
        "--username admin --password-file {} --ca {}",
        rack.file("password"),
        rack.file("ca.pem")
    );
    let line = format!("discover --endpoint {url} --endpoint {url}/redfish/v1 {access} -o json");
    let twice = run(&line).await.expect(0, &[]).json();
    assert_eq!(twice["fabrics"].as_array().unwrap().len(), 1);
    let other = url.replace("127.0.0.1", "localhost");
    run(&format!(
        "discover --endpoint {url} --endpoint {other} {access} -o json"
    ))
    .await
    .expect(0, &["conflict", "is the same service"]);

    let table = run(&format!("discover --endpoints {listing}")).await.expect(
        0,
        &[
            "drivers: 1 emulated (Poolwright",
            "8 GPUs, 8 composable",
            "no faults",
        ],
    );
    assert!(
        table.out.lines().any(|line| line.starts_with("HOST ")),
        "{}",
        table.out
    );
    let csv = run(&format!("discover --endpoints {listing} -o csv"))
        .await
        .expect(0, &[]);
    assert_eq!(
        csv.out.lines().count(),
        9,
        "a header and a line a GPU: {}",
        csv.out
    );
}

/// A box knows what it could feed, not what a host can hold.
#[tokio::test]
async fn slots_are_unknown_until_a_host_tells_them() {
    let rack = Rack::start("small").await;
    let line = format!(
        "discover --endpoint {} --username admin --password-file {} --ca {}",
        rack.server.url,
        rack.file("password"),
        rack.file("ca.pem")
    );
    let slots = async |line: &str| {
        let table = run(line).await.expect(0, &[]).out;
        let mut rows = table.lines().skip_while(|row| !row.starts_with("HOST "));
        let place = rows.next().unwrap().find("SLOTS").unwrap();
        let row = rows.find(|row| row.starts_with("host-")).unwrap().to_owned();
        row[place..].split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(slots(&line).await, "?");
    let snapshot = run(&format!("{line} -o json")).await.expect(0, &[]).json();
    assert_eq!(snapshot["hosts"][0]["ports"][0]["slots_known"], false);
    let listing = rack.file("endpoints.json");
    assert_eq!(slots(&format!("discover --endpoints {listing}")).await, "8");
}

#[tokio::test]
async fn one_silent_endpoint_is_a_fault_and_the_others_are_shown() {
    let rack = Rack::start("small").await;
    let line = format!(
        "discover --endpoint {} --endpoint https://127.255.255.254:1 --username admin --password-file {} --ca {} -o json",
        rack.server.url,
        rack.file("password"),
        rack.file("ca.pem")
    );
    let words = ["1 of 2 endpoints could not be read", "127.255.255.254:1"];
    let snapshot = run(&line).await.expect(8, &words).json();
    let table = run(line.trim_end_matches(" -o json")).await.expect(8, &words).out;
    assert!(
        table.lines().any(|line| line.starts_with("127.255.255.254:1: ")),
        "{table}"
    );
    assert_eq!(snapshot["gpus"].as_array().unwrap().len(), 8);
    let faults = snapshot["faults"].as_array().unwrap();
    let silent = |fault: &&Value| fault["source"] == "127.255.255.254:1" && fault["kind"] == "unreachable";
    assert!(faults.iter().any(|fault| silent(&fault)), "{faults:?}");
}

/// The documents of a BMC with one GPU.
fn document(path: &str) -> Option<Value> {
    let link = |path: &str| json!({"@odata.id": format!("/redfish/v1/{path}")});
    Some(match path.strip_prefix("/redfish/v1")? {
        "" => json!({"@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot", "RedfishVersion": "1.15.0",
            "Systems": link("Systems"), "Chassis": link("Chassis")}),
        "/Systems" => json!({"Members": [link("Systems/1")]}),
        "/Systems/1" => json!({"@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem", "HostName": "web-1",
            "Processors": link("Systems/1/Processors")}),
        "/Systems/1/Processors" => json!({"Members": [link("Systems/1/Processors/GPU1")]}),
        "/Systems/1/Processors/GPU1" => {
            json!({"@odata.type": "#Processor.v1_20_0.Processor", "ProcessorType": "GPU",
            "SerialNumber": "S1", "Model": "NVIDIA H100 PCIe"})
        }
        "/Chassis" => json!({"Members": []}),
        _ => return None,
    })
}

/// A BMC that answers 500 at `broken`.
async fn bmc(broken: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let read = stream.read(&mut request).await.unwrap_or(0);
            let head = String::from_utf8_lossy(&request[..read]).into_owned();
            let path = head.split(' ').nth(1).unwrap_or_default().trim_end_matches('/');
            let (status, body) = match document(path).filter(|_| path != broken) {
                Some(document) => ("200 OK", document.to_string()),
                None => ("500 Internal Server Error", "{}".to_owned()),
            };
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
        }
    });
    url
}

/// Fault 89: a system, a chassis or a processor can't be read.
#[tokio::test]
async fn machines_that_could_not_be_read_show_in_the_exit_code() {
    let whole = bmc("").await;
    let seen = run(&format!("discover --endpoint {whole} -o json")).await;
    assert_eq!(seen.expect(0, &[]).json()["gpus"].as_array().unwrap().len(), 1);
    for broken in [
        "/redfish/v1/Systems",
        "/redfish/v1/Systems/1",
        "/redfish/v1/Systems/1/Processors",
        "/redfish/v1/Systems/1/Processors/GPU1",
        "/redfish/v1/Chassis",
    ] {
        let url = bmc(broken).await;
        let seen = run(&format!("discover --endpoint {url} -o json")).await;
        assert!(seen.err.contains(broken), "{seen:?}");
        let snapshot = seen.expect(8, &["missing"]).json();
        let faults = snapshot["faults"].as_array().unwrap();
        let is_named = |fault: &Value| fault["source"].as_str().unwrap().ends_with(broken);
        assert!(faults.iter().any(is_named), "{faults:?}");
    }
}

#[tokio::test]
async fn an_endpoint_is_recorded_and_its_recording_is_read_again() {
    let rack = Rack::start("small").await;
    let copy = rack.file("copy");
    let access = format!(
        "--username admin --password-file {} --ca {}",
        rack.file("password"),
        rack.file("ca.pem")
    );
    let record = format!(
        "endpoint record --endpoint {} {access} --out {copy} -o json",
        rack.server.url
    );
    let manifest = run(&record).await.expect(0, &["look through it"]).json();
    assert!(manifest["documents"].as_u64().unwrap() > 30, "{manifest}");
    run(&record).await.refused(2, &["copy", "not empty"]);

    let replay = crate::support::replay(&copy).await;
    let listing = replay.file("endpoints.json");
    let snapshot = run(&format!("discover --endpoints {listing} -o json"))
        .await
        .expect(0, &[])
        .json();
    assert_eq!(snapshot["gpus"].as_array().unwrap().len(), 8);
    assert_eq!(snapshot["endpoints"][0]["driver"], "recorded");
    run(&format!("emulate --tree {}", rack.file("no-such")))
        .await
        .refused(2, &["no-such"]);
}

#[tokio::test]
async fn a_machine_is_qualified_and_left_as_it_was() {
    for style in ["zones", "connections", "blocks"] {
        let rack = Rack::start(style).await;
        let listing = rack.file("endpoints.json");
        let look = async || {
            run(&format!("discover --endpoints {listing} -o json"))
                .await
                .expect(0, &[])
                .json()
        };
        let before = look().await;
        let line = format!("endpoint qualify --endpoints {listing}");
        run(&line).await.refused(2, &["bind ", "--yes"]);
        let report = run(&format!("{line} --yes -o json")).await.expect(0, &[]).json();
        assert_eq!(report["qualified"], true, "{report}");
        assert_eq!(report["service"]["driver"], "emulated", "{report}");
        let steps: Vec<&str> = report["steps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|step| step["step"].as_str().unwrap())
            .collect();
        assert_eq!(
            steps,
            [
                "read before",
                "bind",
                "read back",
                "seen by the host",
                "unbind",
                "read after",
                "reset"
            ]
        );
        assert_eq!(look().await["gpus"], before["gpus"], "{style}");
    }
}
