//! Endpoints that only push what happens: the manager subscribes at those that it has adopted, takes what they push for
//! a hint, and leaves nothing behind.

use crate::support::{KeptAddress, Manager, Rack};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

const RACK: &str = r#"
name = "pushing"
style = "zones"

[options]
pushes = true

[[box]]
gpus = [{ kind = "h100-pcie-80gb", count = 2 }]

[[host]]
slots = 2
"#;

const SUBSCRIPTIONS: &str = "/redfish/v1/EventService/Subscriptions";
const ZONE: &str = "/redfish/v1/Fabrics/PCIe/Zones/host-1-port-1/Actions/Zone";
/// Somebody else's.
const OTHERS: &str = "https://127.0.0.1:9/somebody";

/// The box of the rack, as others ask it.
struct Box {
    client: reqwest::Client,
    url: String,
    password: String,
}

impl Box {
    fn of(rack: &Rack) -> Self {
        let read = |file: &str| std::fs::read_to_string(rack.file(file)).unwrap();
        let listing: Value = serde_json::from_str(&read("endpoints.json")).unwrap();
        Self {
            client: client(Path::new(&rack.file("ca.pem"))),
            url: listing["endpoints"][0]["url"].as_str().unwrap().to_owned(),
            password: read("password").trim().to_owned(),
        }
    }

    async fn ask(&self, method: &str, path: &str, body: Value) -> Value {
        let request = self
            .client
            .request(method.parse().unwrap(), format!("{}{path}", self.url));
        let request = request.basic_auth("admin", Some(&self.password)).json(&body);
        let answer = request.send().await.unwrap();
        assert!(
            answer.status().is_success(),
            "{method} {path}: {}",
            answer.status()
        );
        answer.json().await.unwrap_or_default()
    }

    /// Somebody binds a GPU, or lets go of it.
    async fn change(&self, action: &str) {
        let gpu = json!({"Endpoint": {"@odata.id": "/redfish/v1/Fabrics/PCIe/Endpoints/gpu-1"}});
        self.ask("POST", &format!("{ZONE}.{action}"), gpu).await;
    }

    async fn destinations(&self) -> Vec<String> {
        let all = self.ask("GET", SUBSCRIPTIONS, Value::Null).await;
        let mut destinations = Vec::new();
        for member in all["Members"].as_array().unwrap() {
            let one = self
                .ask("GET", member["@odata.id"].as_str().unwrap(), Value::Null)
                .await;
            destinations.push(one["Destination"].as_str().unwrap().to_owned());
        }
        destinations
    }

    /// Waits until the manager is subscribed, once, and not where it was before.
    async fn until_subscribed(&self, manager: &str, before: &str) -> String {
        let found = async {
            loop {
                let mut destinations = self.destinations().await;
                destinations.retain(|one| one.starts_with(manager));
                if let [one] = destinations.as_slice()
                    && one != before
                {
                    return one.clone();
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let found = tokio::time::timeout(Duration::from_secs(60), found).await;
        found.expect("the manager subscribes")
    }
}

/// Waits until the manager tells that something is bound that should not be, or that nothing is.
async fn until_drifted(manager: &Manager, drifted: bool) {
    let told = async { while (manager.run("diff -o json").await.json() != json!([])) != drifted {} };
    let told = tokio::time::timeout(Duration::from_secs(60), told).await;
    told.expect("the manager notices");
}

fn client(ca: &Path) -> reqwest::Client {
    drop(rustls::crypto::ring::default_provider().install_default());
    let ca = reqwest::Certificate::from_pem(&std::fs::read(ca).unwrap()).unwrap();
    reqwest::Client::builder().tls_certs_only([ca]).build().unwrap()
}

/// Fault 21: what is pushed is forged or comes twice, and what a manager that was killed has subscribed is left.
#[tokio::test]
async fn what_is_pushed_is_a_hint_and_a_kill_leaves_no_subscription() {
    let (rack, folder) = (Rack::start(RACK).await, tempfile::tempdir().unwrap());
    let at_box = Box::of(&rack);
    at_box
        .ask(
            "POST",
            SUBSCRIPTIONS,
            json!({"Destination": OTHERS, "Protocol": "Redfish"}),
        )
        .await;
    let kept = KeptAddress::new();
    let address = &kept.address;
    let here = format!("https://{address}");
    let more = ["--pushed-to", &here];
    let start = || Manager::start_at(folder.path(), address, &more);
    let manager = start().await;
    manager.adopt(&rack).await;
    let first = at_box.until_subscribed(&here, "").await;

    // By polling, each would take up to 30 s.
    let began = Instant::now();
    for _ in 0..3 {
        at_box.change("AddEndpoint").await;
        until_drifted(&manager, true).await;
        at_box.change("RemoveEndpoint").await;
        until_drifted(&manager, false).await;
    }
    assert!(
        began.elapsed() < Duration::from_secs(120),
        "{:?}",
        began.elapsed()
    );

    let stranger = client(manager.ca());
    let push = async |address: &str| {
        let sent = stranger
            .post(address)
            .body("{\"Events\": [{}]}".repeat(1_000))
            .send();
        sent.await.unwrap().status().as_u16()
    };
    assert_eq!((push(&first).await, push(&first).await), (204, 204));
    assert_eq!(push(&format!("{here}/endpoint-events/0")).await, 404);
    manager.run("diff").await.expect(0, &[]);

    manager.server.kill().await;
    assert!(
        at_box.destinations().await.contains(&first),
        "nobody could delete it"
    );
    let manager = start().await;
    let second = at_box.until_subscribed(&here, &first).await;
    assert_eq!(at_box.destinations().await, [OTHERS, &second]);
    assert_eq!(manager.server.terminate().await, 0);
    assert_eq!(at_box.destinations().await, [OTHERS], "others' are left alone");
}
