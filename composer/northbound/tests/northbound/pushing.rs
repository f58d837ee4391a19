//! What happens is sent to who subscribed; and what must never be sent to is not, however it is written.

use crate::support::Manager;
use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum_server::tls_rustls::RustlsConfig;
use poolwright_northbound::EventOptions;
use poolwright_service::subscription::Allowed;
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tokio::sync::mpsc;

const SUBSCRIPTIONS: &str = "EventService/Subscriptions";
const TEST: &str = "ResourceEvent.1.4.TestMessage";

/// A collector of events on this machine.
struct Collector {
    address: SocketAddr,
    /// Its certificate, which it has from nobody else.
    ca: Vec<u8>,
    /// Each request: its headers, and the event.
    taken: mpsc::UnboundedReceiver<(HeaderMap, Value)>,
    /// It answers that it can't.
    fails: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
}

impl Collector {
    async fn start() -> Self {
        drop(rustls::crypto::ring::default_provider().install_default());
        let made =
            rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let ca = made.cert.pem().into_bytes();
        let key = made.signing_key.serialize_pem().into_bytes();
        let config = RustlsConfig::from_pem(ca.clone(), key).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, taken) = mpsc::unbounded_channel();
        let (fails, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (failing, counted) = (fails.clone(), asked.clone());
        let take = move |headers: HeaderMap, body: Bytes| {
            counted.fetch_add(1, SeqCst);
            let answer = match failing.load(SeqCst) {
                // Whoever follows it asks once more.
                true => (StatusCode::TEMPORARY_REDIRECT, [("location", "/elsewhere")]).into_response(),
                false => {
                    drop(sender.send((headers, serde_json::from_slice(&body).unwrap())));
                    StatusCode::NO_CONTENT.into_response()
                }
            };
            async move { answer }
        };
        let router = Router::new().fallback(take);
        let server = axum_server::from_tcp_rustls(listener, config).unwrap();
        tokio::spawn(server.serve(router.into_make_service()));
        Self {
            address,
            ca,
            taken,
            fails,
            asked,
        }
    }

    fn options(&self) -> EventOptions {
        EventOptions {
            allowed: Allowed {
                networks: vec![],
                loopback: true,
            },
            ca: Some(self.ca.clone()),
            retry_interval: Duration::from_millis(5),
        }
    }

    async fn next(&mut self) -> (HeaderMap, Value) {
        self.taken.recv().await.unwrap()
    }
}

async fn until(manager: &Manager, path: &str, is: impl Fn(&Value) -> bool) -> Value {
    loop {
        let (_, shown) = manager.get(path).await;
        if is(&shown) {
            return shown;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn subscribe(manager: &Manager, body: Value) -> (u16, String, Value) {
    let answer = manager
        .ask("POST", SUBSCRIPTIONS)
        .json(&body)
        .send()
        .await
        .unwrap();
    let place = answer
        .headers()
        .get("location")
        .map(|place| place.to_str().unwrap().to_owned());
    let status = answer.status().as_u16();
    let place = place.unwrap_or_default().replace("/redfish/v1/", "");
    (status, place, answer.json().await.unwrap())
}

#[tokio::test]
async fn what_was_chosen_is_sent_with_the_secrets_that_no_answer_shows_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut collector = Collector::start().await;
    let manager = Manager::start_with(dir.path(), collector.options()).await;
    let (status, place, made) = subscribe(
        &manager,
        json!({
            "Destination": format!("https://{}/events", collector.address), "Protocol": "Redfish", "Context": "mine",
            "HttpHeaders": [{"Authorization": "Bearer planted-secret"}], "RegistryPrefixes": ["TaskEvent"],
        }),
    )
    .await;
    assert_eq!(status, 201, "{made}");
    assert_eq!(
        (&made["HttpHeaders"], &made["Context"]),
        (&json!([]), &json!("mine"))
    );
    assert!(!made.to_string().contains("planted"), "{made}");

    manager.test_event(TEST).await;
    manager.operation("running").await;
    let (headers, event) = collector.next().await;
    assert_eq!(
        event["Events"][0]["MessageId"], "TaskEvent.1.0.TaskStarted",
        "the test is not chosen"
    );
    assert_eq!(event["Context"], "mine");
    assert_eq!(headers["authorization"], "Bearer planted-secret");

    let manager = manager.restarted(dir.path(), collector.options()).await;
    manager.operation("cancelled").await;
    let mut heard = String::new();
    // What was under way as it stopped may come once more.
    while heard != "TaskEvent.1.0.TaskCancelled" {
        let (headers, event) = collector.next().await;
        assert_eq!(headers["authorization"], "Bearer planted-secret");
        heard = event["Events"][0]["MessageId"].as_str().unwrap().to_owned();
    }
    let removed = manager.ask("DELETE", &place).send().await.unwrap();
    assert_eq!(removed.status(), 204);
    assert_eq!(manager.get(&place).await.0, 404);
    manager.running.stop().await;
}

#[tokio::test]
async fn who_fails_too_often_is_suspended_and_resumed_by_hand() {
    let dir = tempfile::tempdir().unwrap();
    let mut collector = Collector::start().await;
    let manager = Manager::start_with(dir.path(), collector.options()).await;
    collector.fails.store(true, SeqCst);
    let body = json!({ "Destination": format!("https://{}/", collector.address), "Protocol": "Redfish" });
    let (_, place, _) = subscribe(&manager, body.clone()).await;
    manager.test_event(TEST).await;
    let shown = until(&manager, &place, |shown| shown["Status"]["State"] == "Disabled").await;
    assert!(
        shown["Description"].as_str().unwrap().contains("failed 4 times"),
        "{shown}"
    );
    assert_eq!(collector.asked.load(SeqCst), 4, "no redirect was followed");

    collector.fails.store(false, SeqCst);
    let act = async |action: &str| {
        let path = format!("{place}/Actions/EventDestination.{action}");
        let answer = manager.ask("POST", &path).json(&json!({})).send().await.unwrap();
        assert_eq!(answer.status(), 204);
    };
    act("ResumeSubscription").await;
    manager.test_event("ResourceEvent.1.4.Resumed").await;
    let (_, event) = collector.next().await;
    assert_eq!(
        event["Events"][0]["MessageId"], "ResourceEvent.1.4.Resumed",
        "what was missed is over"
    );
    act("SuspendSubscription").await;
    let (_, shown) = manager.get(&place).await;
    assert!(
        shown["Description"]
            .as_str()
            .unwrap()
            .contains("admin suspended it"),
        "{shown}"
    );

    // One that is to be forgotten then.
    let mut body = body;
    body["DeliveryRetryPolicy"] = json!("TerminateAfterRetries");
    let (_, place, _) = subscribe(&manager, body).await;
    collector.fails.store(true, SeqCst);
    manager.test_event(TEST).await;
    until(&manager, &place, |shown| shown["error"].is_object()).await;
    manager.running.stop().await;
}

/// Fault 82: a subscription outlives its account.
#[tokio::test]
async fn a_subscription_ends_with_another_password_of_its_account_and_is_resumed_by_hand() {
    let dir = tempfile::tempdir().unwrap();
    let mut collector = Collector::start().await;
    let manager = Manager::start_with(dir.path(), collector.options()).await;
    let (name, password) = ("kim", "a lamp beside an open window");
    let accounts = "AccountService/Accounts";
    let account = json!({ "UserName": name, "Password": password, "RoleId": "Administrator" });
    let add = async || {
        let made = manager.ask("POST", accounts).json(&account).send().await.unwrap();
        assert_eq!(made.status(), 201);
    };
    add().await;
    let body = json!({ "Destination": format!("https://{}/", collector.address), "Protocol": "Redfish" });
    let url = format!("https://{}/redfish/v1/{SUBSCRIPTIONS}", manager.running.address);
    let made = manager
        .client
        .post(url)
        .basic_auth(name, Some(password))
        .json(&body);
    let made = made.send().await.unwrap();
    assert_eq!(made.status(), 201);
    let place = made.headers()["location"]
        .to_str()
        .unwrap()
        .replace("/redfish/v1/", "");

    let own = format!("{accounts}/{name}");
    let other = json!({ "Password": "another lamp beside that window" });
    let changed = manager.ask("PATCH", &own).json(&other).send().await.unwrap();
    assert_eq!(changed.status(), 200);
    manager.test_event(TEST).await;
    let shown = until(&manager, &place, |shown| shown["Status"]["State"] == "Disabled").await;
    let why = shown["Description"].as_str().unwrap();
    assert!(why.contains("another password"), "{shown}");
    let resume = async || {
        let path = format!("{place}/Actions/EventDestination.ResumeSubscription");
        let answer = manager.ask("POST", &path).json(&json!({})).send().await.unwrap();
        answer.status().as_u16()
    };
    assert_eq!(resume().await, 204);
    manager.test_event("ResourceEvent.1.4.Resumed").await;
    let (_, event) = collector.next().await;
    assert_eq!(event["Events"][0]["MessageId"], "ResourceEvent.1.4.Resumed");

    // A new account of that name does not get it.
    let removed = manager.ask("DELETE", &own).send().await.unwrap();
    assert_eq!(removed.status(), 204);
    add().await;
    manager.test_event(TEST).await;
    until(&manager, &place, |shown| shown["Status"]["State"] == "Disabled").await;
    assert_eq!(resume().await, 409);
    manager.running.stop().await;
}

/// 60 destinations, each with the port of somebody who must not hear from us.
const NEVER: [&str; 47] = [
    "https://127.0.0.1:PORT/",
    "https://127.0.0.1.:PORT/",
    "https://127.1:PORT/",
    "https://127.0.1:PORT/",
    "https://127.255.255.254:PORT/",
    "https://2130706433:PORT/",
    "https://0x7f000001:PORT/",
    "https://0x7f.0.0.1:PORT/",
    "https://0x7f.1:PORT/",
    "https://0177.0.0.1:PORT/",
    "https://017700000001:PORT/",
    "https://%31%32%37.0.0.1:PORT/",
    "https://①②⑦.⓪.⓪.①:PORT/",
    "https://127。0。0。1:PORT/",
    "https://0.0.0.0:PORT/",
    "https://0:PORT/",
    "https://0.1.2.3:PORT/",
    "https://[::1]:PORT/",
    "https://[0:0:0:0:0:0:0:1]:PORT/",
    "https://[::]:PORT/",
    "https://[::127.0.0.1]:PORT/",
    "https://[::ffff:127.0.0.1]:PORT/",
    "https://[::ffff:7f00:1]:PORT/",
    "https://[::ffff:0:127.0.0.1]:PORT/",
    "https://[64:ff9b::127.0.0.1]:PORT/",
    "https://[64:ff9b::10.0.0.1]:PORT/",
    "https://[64:ff9b:1::1]:PORT/",
    "https://[2002:7f00:1::]:PORT/",
    "https://[2001:0:1::1]:PORT/",
    "https://[fe80::1]:PORT/",
    "https://[fec0::1]:PORT/",
    "https://[ff02::1]:PORT/",
    "https://169.254.169.254:PORT/latest/meta-data",
    "https://2852039166:PORT/",
    "https://[::ffff:169.254.169.254]:PORT/",
    "https://[fd00:ec2::254]:PORT/",
    "https://168.63.129.16:PORT/",
    "https://100.100.100.200:PORT/",
    "https://192.0.0.192:PORT/",
    "https://224.0.0.1:PORT/",
    "https://255.255.255.255:PORT/",
    "https://localhost:PORT/",
    "https://LOCALHOST.:PORT/",
    "https://collector.localhost:PORT/",
    "https://user@127.0.0.1:PORT/",
    "https://example.com@127.0.0.1:PORT/",
    "https://127.0.0.1:PORT#@example.com/",
];

/// Those that are no destination at all.
const NONE: [&str; 6] = [
    "http://127.0.0.1:PORT/",
    "ftp://127.0.0.1:PORT/",
    "https://127.0.0.1:0/",
    "https:///:PORT/",
    "//127.0.0.1:PORT/",
    "https://127.0.0.1:PORT\\@example.com:99999/",
];

/// Those that are accepted and not sent to, until a list has them.
const PRIVATE: [&str; 7] = [
    "https://10.0.0.1:PORT/",
    "https://0xa000001:PORT/",
    "https://172.16.0.1:PORT/",
    "https://192.168.1.50:PORT/",
    "https://[::ffff:192.168.1.50]:PORT/",
    "https://[fc00::1]:PORT/",
    "https://198.18.0.1:PORT/",
];

#[tokio::test]
async fn sixty_destinations_that_must_not_be_reached_are_not() {
    assert_eq!(NEVER.len() + NONE.len() + PRIVATE.len(), 60);
    let dir = tempfile::tempdir().unwrap();
    let canary = TcpListener::bind("127.0.0.1:0").unwrap();
    canary.set_nonblocking(true).unwrap();
    let port = canary.local_addr().unwrap().port();
    let beside = TcpListener::bind(("::1", port)).ok();
    let manager = Manager::start_with(dir.path(), EventOptions::default()).await;
    let to = |text: &str| {
        let destination = text.replace("PORT", &port.to_string());
        json!({ "Destination": destination, "Protocol": "Redfish", "DeliveryRetryPolicy": "RetryForever" })
    };
    for text in NEVER.into_iter().chain(NONE) {
        let (status, _, body) = subscribe(&manager, to(text)).await;
        assert_eq!(status, 400, "{text}: {body}");
        assert!(
            body["error"]["@Message.ExtendedInfo"][0]["Resolution"].is_string(),
            "{body}"
        );
    }
    let mut places = Vec::new();
    for text in PRIVATE {
        let (status, place, body) = subscribe(&manager, to(text)).await;
        assert_eq!(status, 201, "{text}: {body}");
        assert!(
            body["Description"].as_str().unwrap().contains("--event-allow"),
            "{body}"
        );
        places.push(place);
    }
    let mut heard = manager.listen("").await;
    manager.test_event(TEST).await;
    assert_eq!(heard.message().await, TEST);
    for place in &places {
        let (_, shown) = manager.get(place).await;
        assert_eq!(shown["Status"]["State"], "UnavailableOffline", "{shown}");
    }
    for listener in [Some(canary), beside].into_iter().flatten() {
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "somebody was sent something");
    }
    manager.running.stop().await;
}

#[tokio::test]
async fn what_can_not_be_subscribed_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let manager = Manager::start_with(dir.path(), EventOptions::default()).await;
    let good = json!({ "Destination": "https://198.51.100.7/", "Protocol": "Redfish" });
    for (name, value) in [
        ("Protocol", json!("FTP")),
        ("Protocol", json!("SMTP")),
        ("Destination", Value::Null),
        ("SubscriptionType", json!("SSE")),
        ("DeliveryRetryPolicy", json!("RetryForeverWithBackoff")),
        ("HttpHeaders", json!([{"Host": "elsewhere"}])),
        ("HttpHeaders", json!([{"X-Bad": "a\r\nInjected: yes"}])),
        ("VerifyCertificate", json!(false)),
        ("Context", json!("x".repeat(2000))),
        ("SyslogFilters", json!([])),
    ] {
        let mut body = good.clone();
        body[name] = value;
        let (status, _, answer) = subscribe(&manager, body).await;
        assert_eq!(status, 400, "{name}: {answer}");
    }
    for at in 0..20 {
        assert_eq!(subscribe(&manager, good.clone()).await.0, 201, "{at}");
    }
    assert_eq!(subscribe(&manager, good).await.0, 409, "an account has 20");
    manager.running.stop().await;
}
