//! The API's door: who is let in, what is refused, and how errors look. What goes on behind it is tested
//! where it lives.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

use async_trait::async_trait;
use poolwright_driver::DriverError;
use poolwright_model::fault::FaultKind;
use poolwright_northbound::{Options, Running, serve};
use poolwright_service::clock::WallClock;
use poolwright_service::endpoint::{Connected, Connector, EndpointSpec};
use poolwright_service::{Composer, Options as ServiceOptions};
use poolwright_store::SqliteStore;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

/// Reaches nobody.
struct Nobody;

#[async_trait]
impl Connector for Nobody {
    async fn connect(&self, spec: &EndpointSpec) -> Result<Connected, DriverError> {
        Err(DriverError::no_effect(format!("nobody answers at {}", spec.url))
            .with_fault(FaultKind::Unreachable))
    }
}

async fn manager(data_dir: &Path) -> Running {
    drop(rustls::crypto::ring::default_provider().install_default());
    let store = Arc::new(SqliteStore::open(data_dir).unwrap());
    let composer = Composer::open(
        store,
        Arc::new(Nobody),
        Arc::new(WallClock),
        ServiceOptions::default(),
    )
    .await
    .unwrap();
    let options = Options {
        listen: "127.0.0.1:0".parse().unwrap(),
        data_dir: data_dir.to_owned(),
    };
    serve(composer, options).await.unwrap()
}

fn client(running: &Running) -> reqwest::Client {
    let ca = reqwest::Certificate::from_pem(&std::fs::read(&running.ca).unwrap()).unwrap();
    reqwest::Client::builder().tls_certs_only([ca]).build().unwrap()
}

fn password(data_dir: &Path) -> String {
    std::fs::read_to_string(data_dir.join("initial-admin-password"))
        .unwrap()
        .trim()
        .to_owned()
}

#[tokio::test]
async fn only_who_knows_the_password_is_let_in() {
    let dir = tempfile::tempdir().unwrap();
    let running = manager(dir.path()).await;
    let (client, url) = (client(&running), format!("https://{}", running.address));
    let mode = |name: &str| {
        std::fs::metadata(dir.path().join(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(
        (mode("initial-admin-password"), mode("tls/server.pem")),
        (0o600, 0o600)
    );

    let status = |user: &'static str, password: String| {
        let request = client
            .get(format!("{url}/api/v1/status"))
            .basic_auth(user, Some(password));
        async move { request.send().await.unwrap().status().as_u16() }
    };
    assert_eq!(
        client.get(format!("{url}/livez")).send().await.unwrap().status(),
        200
    );
    let refused = client.get(format!("{url}/api/v1/status")).send().await.unwrap();
    assert_eq!(refused.status(), 401);
    assert!(refused.headers().contains_key("www-authenticate"));
    assert_eq!(status("admin", "wrong".into()).await, 401);
    assert_eq!(status("nobody", password(dir.path())).await, 401);
    assert_eq!(status("admin", password(dir.path())).await, 200);
    assert_eq!(status("admin", password(dir.path())).await, 200, "remembered");
    assert_eq!(
        status("admin", "x".repeat(5_000)).await,
        401,
        "longer than any password"
    );
    // A path that does not exist tells nothing to who is not let in.
    assert_eq!(
        client
            .get(format!("{url}/api/v1/nonsense"))
            .send()
            .await
            .unwrap()
            .status(),
        401
    );
    running.stop().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let running = manager(dir.path()).await;
    let (client, url, password) = (
        client(&running),
        format!("https://{}/api/v1", running.address),
        password(dir.path()),
    );
    let ask = |method: &'static str, path: &str, body: String| {
        let method = method.parse().unwrap();
        let request = client
            .request(method, format!("{url}{path}"))
            .basic_auth("admin", Some(&password));
        let request = request.header("content-type", "application/json").body(body);
        async move {
            let response = request.send().await.unwrap();
            let status = response.status().as_u16();
            (
                status,
                response.json::<Value>().await.unwrap_or(Value::Null)["error"].clone(),
            )
        }
    };
    for (method, path, body, status, code, word) in [
        (
            "GET",
            "/nonsense",
            String::new(),
            404,
            "not-found",
            "/api/v1/nonsense",
        ),
        ("GET", "/gpus/gpu-1", String::new(), 404, "not-found", "gpu-1"),
        ("POST", "/demands", "{".into(), 400, "bad-request", "EOF"),
        (
            "POST",
            "/demands",
            json!({"id": "a b", "gpus": 1}).to_string(),
            400,
            "bad-request",
            "a b",
        ),
        (
            "POST",
            "/demands",
            json!({"id": "x", "gpu": 1}).to_string(),
            400,
            "bad-request",
            "gpu",
        ),
        (
            "POST",
            "/compose",
            json!({"demand": {"id": "x", "model": "8B"}}).to_string(),
            409,
            "unplaced",
            "fits nowhere",
        ),
        (
            "POST",
            "/endpoints",
            json!({"id": "e", "url": "https://127.0.0.1:1"}).to_string(),
            503,
            "unavailable",
            "nobody answers",
        ),
        (
            "POST",
            "/release",
            json!({"what": {"demand": "chat"}}).to_string(),
            404,
            "not-found",
            "chat",
        ),
        (
            "GET",
            "/operations/op-1?wait=1",
            String::new(),
            404,
            "not-found",
            "op-1",
        ),
    ] {
        let (found, error) = ask(method, path, body.clone()).await;
        assert_eq!(
            (found, error["code"].as_str()),
            (status, Some(code)),
            "{method} {path} {body}: {error}"
        );
        assert!(error["message"].as_str().unwrap().contains(word), "{error}");
    }
    let (status, error) = ask("POST", "/demands", " ".repeat(17 << 20)).await;
    assert!(
        status == 400 && error["message"].as_str().unwrap().contains("limit"),
        "{status} {error}"
    );
    running.stop().await;
}

#[tokio::test]
async fn a_second_start_keeps_certificate_and_password() {
    let dir = tempfile::tempdir().unwrap();
    let running = manager(dir.path()).await;
    let (ca, first) = (std::fs::read(&running.ca).unwrap(), password(dir.path()));
    running.stop().await;
    std::fs::remove_file(dir.path().join("initial-admin-password")).unwrap();

    let running = manager(dir.path()).await;
    assert_eq!(std::fs::read(&running.ca).unwrap(), ca);
    assert!(
        !dir.path().join("initial-admin-password").exists(),
        "it is told once"
    );
    let response = client(&running).get(format!("https://{}/api/v1/status", running.address));
    assert_eq!(
        response
            .basic_auth("admin", Some(first))
            .send()
            .await
            .unwrap()
            .status(),
        200
    );
    running.stop().await;
}
