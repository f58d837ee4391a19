//! The tests' own servers, driven by a plain HTTP client: a test server that is wrong makes every test
//! that uses it worthless.

use std::{fs, path::Path, time::Duration};

use poolwright_tests::{
    hostile::{HostileServer, Kind},
    mockup_server::{MockupServer, Options},
    trees,
};
use reqwest::{Client, StatusCode, redirect};
use serde_json::Value;

fn client(ca_pem: Option<&str>) -> Client {
    // Another test of this process may have been first: then it is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let roots = ca_pem.map(|pem| reqwest::Certificate::from_pem(pem.as_bytes()).unwrap());
    Client::builder()
        .tls_certs_only(roots)
        .redirect(redirect::Policy::none())
        .timeout(Duration::from_secs(20))
        .build()
        .unwrap()
}

async fn get(client: &Client, url: &str) -> (StatusCode, Value) {
    let answer = client.get(url).send().await.unwrap();
    (answer.status(), answer.json().await.unwrap())
}

/// A tree of two resources, in the shape that holds `redfish/v1`.
fn small_tree(dir: &Path) {
    fs::create_dir_all(dir.join("redfish/v1/Systems")).unwrap();
    fs::write(dir.join("redfish/v1/index.json"), r#"{"Name": "Root"}"#).unwrap();
    fs::write(
        dir.join("redfish/v1/Systems/index.json"),
        r#"{"Name": "Systems"}"#,
    )
    .unwrap();
}

#[tokio::test]
async fn both_shapes_of_tree_answer_alike_with_and_without_a_slash() {
    let dir = tempfile::tempdir().unwrap();
    small_tree(dir.path());
    for root in [dir.path().to_path_buf(), dir.path().join("redfish/v1")] {
        let server = MockupServer::start(&root, Options::default()).await.unwrap();
        let http = client(None);
        for end in ["", "/"] {
            let (status, body) = get(&http, &format!("{}/redfish/v1/Systems{end}", server.url)).await;
            assert_eq!((status, body["Name"].as_str()), (StatusCode::OK, Some("Systems")));
        }
        let (status, body) = get(&http, &format!("{}/redfish/v1/Nothing", server.url)).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        assert_eq!(body["error"]["code"], "Base.1.18.ResourceMissingAtURI");
        let outside = http.get(format!("{}/redfish/v1/%2e%2e/%2e%2e/Cargo.toml", server.url));
        assert_eq!(outside.send().await.unwrap().status(), StatusCode::NOT_FOUND);
        let written = http
            .post(format!("{}/redfish/v1/Systems", server.url))
            .send()
            .await
            .unwrap();
        assert_eq!(written.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(server.requests(), 5);
    }
}

#[tokio::test]
async fn a_folder_without_a_service_root_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("readme.txt"), "nothing here").unwrap();
    let error = MockupServer::start(dir.path(), Options::default())
        .await
        .err()
        .unwrap();
    assert!(error.to_string().contains("no service root"), "{error}");
}

#[tokio::test]
async fn https_is_trusted_through_its_authority_and_not_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    small_tree(dir.path());
    let options = Options {
        tls: true,
        ..Options::default()
    };
    let (server, other) = (
        MockupServer::start(dir.path(), options.clone()).await.unwrap(),
        MockupServer::start(dir.path(), options).await.unwrap(),
    );
    let url = format!("{}/redfish/v1", server.url);
    assert!(url.starts_with("https://127.0.0.1:"));
    assert_eq!(
        get(&client(server.ca_pem.as_deref()), &url).await.0,
        StatusCode::OK
    );
    assert!(
        client(other.ca_pem.as_deref()).get(&url).send().await.is_err(),
        "a stranger's authority"
    );
}

#[tokio::test]
async fn a_password_is_asked_for_everywhere_but_at_the_root() {
    let dir = tempfile::tempdir().unwrap();
    small_tree(dir.path());
    let password = format!("p-{}", std::process::id());
    let options = Options {
        basic_auth: Some(("admin".to_owned(), password.clone())),
        ..Options::default()
    };
    let server = MockupServer::start(dir.path(), options).await.unwrap();
    let http = client(None);
    let url = format!("{}/redfish/v1/Systems", server.url);
    let status = |given: &str| {
        let request = http.get(&url).basic_auth("admin", Some(given.to_owned()));
        async { request.send().await.unwrap().status() }
    };
    assert_eq!(
        get(&http, &format!("{}/redfish/v1/", server.url)).await.0,
        StatusCode::OK
    );
    assert_eq!(
        http.get(&url).send().await.unwrap().status(),
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(status("wrong").await, StatusCode::UNAUTHORIZED);
    assert_eq!(status(&password).await, StatusCode::OK);
}

#[tokio::test]
async fn every_recorded_tree_is_served() {
    let names = trees::tree_names().unwrap();
    if names.is_empty() {
        eprintln!("recorded trees not present: not run");
        return;
    }
    // The examples are single bodies, one a schema: no tree.
    for name in names.iter().filter(|name| !name.ends_with("-examples")) {
        let server = MockupServer::start(&trees::unpack_tree(name).unwrap(), Options::default())
            .await
            .unwrap();
        let (status, root) = get(&client(None), &format!("{}/redfish/v1/", server.url)).await;
        assert_eq!(status, StatusCode::OK, "{name}");
        assert!(
            root["@odata.type"].as_str().unwrap().starts_with("#ServiceRoot."),
            "{name}"
        );
        assert!(server.resources() > 50, "{name}: {}", server.resources());
    }
}

#[tokio::test]
async fn hostile_kinds_go_by_the_names_that_scripts_use() {
    for (name, kind) in Kind::ALL {
        assert_eq!((name.parse(), kind.to_string()), (Ok(kind), name.to_owned()));
    }
    assert!("friendly".parse::<Kind>().is_err());
}

#[tokio::test]
async fn whole_hostile_answers_are_what_their_names_say() {
    let http = client(None);
    for (kind, status, text) in [
        (Kind::Html, 200, "<html>"),
        (Kind::NotRedfish, 200, "hello"),
        (Kind::Garbage, 200, "\"Name\": "),
        (Kind::Redirect, 301, ""),
        (Kind::Unauthorized, 401, ""),
        (Kind::Busy, 503, ""),
        (Kind::DeepNesting, 200, "{\"Oem\":{\"Oem\":"),
        (Kind::WrongLength, 200, "#ServiceRoot"),
        (Kind::LinkLoop, 200, "nextLink"),
        (Kind::EndlessLinks, 200, "Systems/page"),
        (Kind::HugeCollection, 200, "Systems/199999"),
        (Kind::ForeignLinks, 200, "nextLink\":\"http://127.0.0.1:"),
    ] {
        let server = HostileServer::start(kind).await.unwrap();
        let answer = http
            .get(format!("{}/redfish/v1/Systems", server.url))
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), status, "{kind}");
        let body = answer.text().await.unwrap();
        assert!(
            body.contains(text),
            "{kind}: {}",
            body.chars().take(200).collect::<String>()
        );
        assert_eq!((server.requests(), server.credentials()), (1, 0), "{kind}");
    }
}

#[tokio::test]
async fn broken_hostile_answers_break() {
    let http = client(None);
    for kind in [Kind::NotHttp, Kind::Truncated] {
        let server = HostileServer::start(kind).await.unwrap();
        let body = async { http.get(&server.url).send().await?.bytes().await };
        assert!(body.await.is_err(), "{kind}");
    }
    for kind in [Kind::EndlessBody, Kind::HugeBody] {
        let server = HostileServer::start(kind).await.unwrap();
        let mut answer = http.get(&server.url).send().await.unwrap();
        let mut length = 0;
        while length < 4 << 20 {
            length += answer.chunk().await.unwrap().expect("the body has no end").len();
        }
    }
}

#[tokio::test]
async fn silent_and_dripping_servers_give_no_answer_in_time() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = Client::builder()
        .tls_certs_only(std::iter::empty())
        .timeout(Duration::from_millis(300))
        .build()
        .unwrap();
    for kind in [Kind::Silent, Kind::SlowDrip] {
        let server = HostileServer::start(kind).await.unwrap();
        let body = async { http.get(&server.url).send().await?.bytes().await };
        assert!(body.await.unwrap_err().is_timeout(), "{kind}");
    }
}

#[tokio::test]
async fn attempts_to_log_in_are_counted() {
    let server = HostileServer::start(Kind::Unauthorized).await.unwrap();
    let http = client(None);
    let url = format!("{}/redfish/v1/Systems", server.url);
    http.get(&url)
        .basic_auth("admin", Some("guess"))
        .send()
        .await
        .unwrap();
    let sessions = format!("{}/redfish/v1/SessionService/Sessions", server.url);
    http.post(sessions).body("{}").send().await.unwrap();
    http.get(&url).send().await.unwrap();
    assert_eq!((server.requests(), server.credentials()), (3, 2));
}

#[tokio::test]
async fn writes_and_whoever_goes_to_the_other_origin_are_counted() {
    for (kind, elsewhere) in [(Kind::Redirect, 1), (Kind::ForeignLinks, 0)] {
        let server = HostileServer::start(kind).await.unwrap();
        let _ = rustls::crypto::ring::default_provider().install_default();
        let obedient = Client::builder()
            .tls_certs_only(std::iter::empty())
            .build()
            .unwrap();
        let url = format!("{}/redfish/v1/Systems", server.url);
        let answer = obedient.get(&url).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{kind}");
        assert_eq!((server.writes(), server.elsewhere()), (0, elsewhere), "{kind}");
        if kind == Kind::ForeignLinks {
            let next = answer.json::<Value>().await.unwrap()["Members@odata.nextLink"].clone();
            obedient.get(next.as_str().unwrap()).send().await.unwrap();
            assert_eq!(server.elsewhere(), 1, "a link that was followed");
        }
        client(None).patch(&url).body("{}").send().await.unwrap();
        assert_eq!((server.writes(), server.credentials()), (1, 0), "{kind}");
    }
}
