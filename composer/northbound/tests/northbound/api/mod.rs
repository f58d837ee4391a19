//! The API's door: who is let in, what is refused, and how errors look. What goes on behind it is tested
//! where it lives.

mod bodies;
mod forecast;
mod hostile;
mod openapi;
mod privileges;
mod refusals;
mod sessions;
mod simulating;
mod sizing;

use crate::support::{client, composer, manager, password, served_as};
use poolwright_northbound::{Options, Running};
use poolwright_service::{ClusterKey, Composer};
use poolwright_store::{Batch, Committed, Layer, SqliteStore, Store, StoreError};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// A store whose disk fails for a while.
struct Shaky {
    inner: SqliteStore,
    fails: AtomicBool,
}

impl Shaky {
    fn steady(&self) -> Result<(), StoreError> {
        match self.fails.load(SeqCst) {
            false => Ok(()),
            true => Err(StoreError::Unavailable {
                reason: "the disk is full".to_owned(),
                hint: "make room",
            }),
        }
    }
}

impl Layer for Shaky {
    fn below(&self) -> &dyn Store {
        &self.inner
    }

    async fn read<T: Send>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.steady()?;
        call.await
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        self.steady()?;
        self.inner.commit(batch).await
    }
}

async fn served(composer: Composer, data_dir: &Path) -> Running {
    served_by_name(composer, data_dir, &[]).await
}

async fn served_by_name(composer: Composer, data_dir: &Path, names: &[&str]) -> Running {
    let options = Options {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        ..Options::of(data_dir.to_owned())
    };
    served_as(composer, options).await.unwrap()
}

/// A client that knows this authority, and finds every name at the manager's address.
fn client_by_name(authority: &[u8], running: &Running, name: &str) -> reqwest::Client {
    let ca = reqwest::Certificate::from_pem(authority).unwrap();
    let client = reqwest::Client::builder().tls_certs_only([ca]);
    client.resolve(name, running.address).build().unwrap()
}

#[tokio::test]
async fn managers_that_share_a_key_are_trusted_by_the_authority_of_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(&dir.path().join("store")).unwrap());
    let serve_in = async |name: &str, secret: Option<&str>| {
        let options = Options {
            cluster_key: secret.map(|secret| ClusterKey::new(secret).unwrap()),
            ..Options::of(dir.path().join(name))
        };
        std::fs::create_dir_all(&options.data_dir).unwrap();
        served_as(composer(store.clone()), options).await
    };
    let key = Some("one secret of thirty-two letters");
    // It was alone before it shared: whoever trusted it then goes on to.
    let alone = serve_in("first", None).await.unwrap();
    let client = client(&alone);
    alone.stop().await;
    let first = serve_in("first", key).await.unwrap();
    let second = serve_in("second", key).await.unwrap();
    for manager in [&first, &second] {
        let url = format!("https://{}/livez", manager.address);
        assert_eq!(client.get(&url).send().await.unwrap().status(), 200);
    }
    assert!(!dir.path().join("second/tls/ca-key.pem").exists());
    let refused = serve_in("third", Some("another one, of as many letters.")).await;
    let refused = refused.err().unwrap().to_string();
    assert!(
        refused.contains("can't be opened with this cluster key"),
        "{refused}"
    );
    assert!(!dir.path().join("third/tls").exists());
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn it_is_known_by_other_names_and_its_authority_stays() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().unwrap());
    let running = served(composer(store.clone()), dir.path()).await;
    let authority = std::fs::read(&running.ca).unwrap();
    let asked = async |running: &Running, name: &str| {
        let url = format!("https://{name}:{}/livez", running.address.port());
        let client = client_by_name(&authority, running, name);
        client.get(url).send().await.is_ok()
    };
    assert!(asked(&running, "localhost").await);
    assert!(!asked(&running, "pool.example").await, "it has no such name");
    running.stop().await;

    for (names, known) in [
        (vec!["pool.example", "10.1.2.3"], true),
        (vec!["pool.example", "10.1.2.3"], true),
        (vec![], false),
    ] {
        let running = served_by_name(composer(store.clone()), dir.path(), &names).await;
        assert_eq!(asked(&running, "pool.example").await, known, "{names:?}");
        assert!(asked(&running, "localhost").await);
        assert_eq!(std::fs::read(&running.ca).unwrap(), authority);
        running.stop().await;
    }
    let mode = std::fs::metadata(dir.path().join("tls/ca-key.pem"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
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
        status == 413 && error["message"].as_str().unwrap().contains("16777216 bytes"),
        "{status} {error}"
    );
    running.stop().await;
}

#[tokio::test]
async fn a_session_stands_for_name_and_password_until_it_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    let running = manager(dir.path()).await;
    let (client, password) = (client(&running), password(dir.path()));
    let at = |path: &str| format!("https://{}{path}", running.address);
    let sessions = at("/redfish/v1/SessionService/Sessions");
    let log_in = async |password: &str| {
        let login = json!({"UserName": "admin", "Password": password});
        client.post(&sessions).json(&login).send().await.unwrap()
    };
    let status = async |token: &str| {
        let request = client.get(at("/api/v1/status")).header("X-Auth-Token", token);
        request.send().await.unwrap().status().as_u16()
    };

    let refused = log_in("wrong").await;
    assert_eq!(refused.status(), 401);
    assert!(!refused.headers().contains_key("x-auth-token"));
    let nothing = client.post(&sessions).json(&json!({})).send().await.unwrap();
    assert_eq!(nothing.status(), 400);

    let opened = log_in(&password).await;
    assert_eq!(opened.status(), 201);
    let header = |name: &str| opened.headers()[name].to_str().unwrap().to_owned();
    let (token, place) = (header("x-auth-token"), header("location"));
    let session: Value = opened.json().await.unwrap();
    assert_eq!(
        (&session["@odata.id"], &session["UserName"]),
        (&json!(place), &json!("admin"))
    );
    assert!(!session.to_string().contains(&token));
    assert_eq!(status(&token).await, 200);
    assert_eq!(status(&format!("{token}x")).await, 401);
    // A token that is no good is not made up for by a password.
    let both = client.get(at("/api/v1/status")).header("X-Auth-Token", "x.y");
    let both = both.basic_auth("admin", Some(&password)).send().await.unwrap();
    assert_eq!(both.status(), 401);

    let ask = async |method: &str, path: &str| {
        let request = client.request(method.parse().unwrap(), at(path));
        let answer = request.header("X-Auth-Token", &token).send().await.unwrap();
        (
            answer.status().as_u16(),
            answer.json::<Value>().await.unwrap_or_default(),
        )
    };
    let (found, all) = ask("GET", "/redfish/v1/SessionService/Sessions").await;
    assert_eq!((found, &all["Members"]), (200, &json!([{"@odata.id": place}])));
    let (_, service) = ask("GET", "/redfish/v1/SessionService").await;
    assert_eq!(service["SessionTimeout"], 1800);
    assert_eq!(ask("GET", &place).await.1["Id"], session["Id"]);
    let nobody = client.get(at("/redfish/v1/SessionService/Sessions")).send().await;
    assert_eq!(nobody.unwrap().status(), 401);

    assert_eq!(ask("DELETE", &place).await.0, 204);
    assert_eq!(status(&token).await, 401, "it has ended");
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

/// Not now, and when to ask again.
fn refused_for_now(response: &reqwest::Response) {
    let again = response.headers().get("retry-after");
    assert_eq!(response.status(), 503);
    assert_eq!(again.and_then(|seconds| seconds.to_str().ok()), Some("5"));
}

/// What `/readyz` says: its status, and the checks that fail.
async fn readiness(client: &reqwest::Client, running: &Running) -> (u16, Vec<String>) {
    let url = format!("https://{}/readyz", running.address);
    let response = client.get(url).send().await.unwrap();
    let (status, retry) = (
        response.status().as_u16(),
        response.headers().contains_key("retry-after"),
    );
    assert_eq!(retry, status == 503, "when to ask again is said with 503");
    let body: Value = response.json().await.unwrap();
    assert_eq!(body["ready"], status == 200, "{body}");
    let checks = body["checks"].as_array().unwrap();
    let failing = checks.iter().filter(|check| check["result"] != "ok");
    let names = failing.map(|check| {
        assert!(
            check["message"].is_string() && check["hint"].is_string(),
            "{check}"
        );
        check["name"].as_str().unwrap().to_owned()
    });
    (status, names.collect())
}

#[tokio::test]
async fn it_is_ready_once_it_has_started_and_while_its_store_answers() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(Shaky {
        inner: SqliteStore::open(dir.path()).unwrap(),
        fails: AtomicBool::new(false),
    });
    let composer = composer(store.clone());
    let running = served(composer.clone(), dir.path()).await;
    let (client, password) = (client(&running), password(dir.path()));
    let alive = async || {
        let url = format!("https://{}/livez", running.address);
        client.get(url).send().await.unwrap().status().as_u16()
    };
    let status = async || {
        let url = format!("https://{}/api/v1/status", running.address);
        let request = client.get(url).basic_auth("admin", Some(&password));
        request.send().await.unwrap()
    };

    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(readiness(&client, &running).await, (503, names(&["recovery"])));
    assert_eq!(alive().await, 200);
    let early = status().await;
    refused_for_now(&early);
    let early: Value = early.json().await.unwrap();
    assert_eq!(early["error"]["code"], "unavailable");
    assert!(
        early["error"]["message"].as_str().unwrap().contains("starting"),
        "{early}"
    );

    composer.start().await.unwrap();
    assert_eq!(readiness(&client, &running).await, (200, vec![]));
    assert_eq!(status().await.status(), 200);

    store.fails.store(true, SeqCst);
    assert_eq!(readiness(&client, &running).await, (503, names(&["store"])));
    assert_eq!(alive().await, 200);
    let refused = status().await;
    refused_for_now(&refused);
    let refused: Value = refused.json().await.unwrap();
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("disk is full"),
        "{refused}"
    );

    // It needs no restart.
    store.fails.store(false, SeqCst);
    assert_eq!(readiness(&client, &running).await, (200, vec![]));
    assert_eq!(status().await.status(), 200);

    composer.close().await;
    assert_eq!(readiness(&client, &running).await, (503, names(&["recovery"])));
    let late: Value = status().await.json().await.unwrap();
    assert!(
        late["error"]["message"]
            .as_str()
            .unwrap()
            .contains("shutting down"),
        "{late}"
    );
    running.stop().await;
}

#[tokio::test]
async fn what_can_not_be_done_now_says_when_to_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let running = manager(dir.path()).await;
    let (client, password) = (client(&running), password(dir.path()));
    // Nobody answers there.
    let endpoint = json!({"id": "box-1", "url": "https://127.0.0.1:1", "trust": "system"});
    let request = client
        .post(format!("https://{}/api/v1/endpoints", running.address))
        .basic_auth("admin", Some(&password))
        .json(&endpoint);
    let response = request.send().await.unwrap();
    refused_for_now(&response);
    let body: Value = response.json().await.unwrap();
    assert!(
        body["error"]["message"]
            .as_str()
            .unwrap()
            .contains("nobody answers"),
        "{body}"
    );
    running.stop().await;
}

/// It is sent in parts, and is one body of a length that is told, however often and by whatever method it is asked for.
#[tokio::test]
async fn the_snapshot_is_one_body_of_a_known_length() {
    let dir = tempfile::tempdir().unwrap();
    let running = manager(dir.path()).await;
    let (client, password) = (client(&running), password(dir.path()));
    let url = format!("https://{}/api/v1/snapshot", running.address);
    for method in ["GET", "HEAD", "GET"] {
        let asked = client.request(method.parse().unwrap(), &url);
        let answer = asked.basic_auth("admin", Some(&password)).send().await.unwrap();
        assert_eq!(answer.headers()["content-type"], "application/json", "{method}");
        let length: usize = answer.headers()["content-length"]
            .to_str()
            .unwrap()
            .parse()
            .unwrap();
        let body = answer.bytes().await.unwrap();
        match method {
            "HEAD" => assert!(length > 0 && body.is_empty()),
            _ => {
                assert_eq!(body.len(), length);
                let body: Value = serde_json::from_slice(&body).unwrap();
                assert!(body["taken_at"].is_string() && body["gpus"].is_array(), "{body}");
            }
        }
    }
}
