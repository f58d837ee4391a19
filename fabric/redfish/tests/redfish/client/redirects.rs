//! Redirects: none is followed but to the same path with or without a slash at its end, and no credentials leave.

use axum::Router;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::{any, delete, get, patch, post};
use poolwright_redfish::client::{Auth, Client, Effect, Error, ErrorKind, Secret, WriteOptions};
use serde_json::json;

use crate::client::service::{Service, answer, json_body, root};

const PLACE: &str = "/redfish/v1/Systems/1";
const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";
const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];

/// Whatever comes here was led away.
fn canary() -> Service {
    Service::http(Router::new().fallback(|| async { "caught" }))
}

fn redirect(status: u16, to: &str) -> Response {
    answer(status, &[("location", to)], "")
}

/// Answers everything that is asked of it with a redirect.
fn redirected(status: u16, to: String) -> axum::routing::MethodRouter {
    any(move || async move { redirect(status, &to) })
}

/// A service with sessions, which redirects at one place.
fn with_sessions(status: u16, to: String) -> Router {
    let place = format!("{SESSIONS}/1");
    let open = post(move || async move { answer(201, &[("x-auth-token", "t"), ("location", &place)], "{}") });
    root()
        .route(SESSIONS, open)
        .route(
            "/redfish/v1/SessionService/Sessions/1",
            delete(|| async { answer(204, &[], "") }),
        )
        .route(PLACE, redirected(status, to))
}

fn is_redirected(error: &Error, status: u16, to: &str) {
    match error.kind() {
        ErrorKind::Redirected {
            status: found,
            to: shown,
        } => assert!(*found == status && shown.starts_with(to), "{error}"),
        other => panic!("{status}: {other:?}"),
    }
}

/// Fault 31: each kind of redirect, of reads and writes, with Basic and in a session.
#[tokio::test]
async fn no_redirect_of_any_request_is_followed() {
    let secret = || Secret::new("a secret of this test");
    for status in REDIRECTS {
        for auth in [
            Auth::basic("operator", secret()),
            Auth::session("operator", secret()),
        ] {
            let canary = canary();
            let to = format!("{}{PLACE}", canary.url);
            let service = Service::http(with_sessions(status, to.clone()));
            let client = Client::connect(service.endpoint().auth(auth)).await.unwrap();
            let read = client.get(PLACE).await.unwrap_err();
            is_redirected(&read, status, &to);
            assert_eq!(read.effect(), Effect::None);
            let (nothing, how) = (json!({}), WriteOptions::default);
            for write in [
                client.patch(PLACE, &nothing, how()).await.unwrap_err(),
                client.post(PLACE, &nothing, how()).await.unwrap_err(),
                client.delete(PLACE, how()).await.unwrap_err(),
            ] {
                is_redirected(&write, status, &to);
                assert_eq!(
                    write.effect(),
                    Effect::Unknown,
                    "what it did before is to be read back"
                );
            }
            for method in ["GET", "PATCH", "POST", "DELETE"] {
                assert_eq!(service.recorder.count(method, PLACE), 1, "{method} was sent once");
            }
            client.close().await.unwrap();
            assert_eq!(canary.recorder.seen().len(), 0, "{status}");
        }
    }
}

/// Fault 31: to the metadata service of a cloud, to itself, and round in a circle.
#[tokio::test]
async fn neither_a_metadata_address_nor_a_circle_is_followed() {
    const OTHER: &str = "/redfish/v1/Systems/2";
    for to in ["http://169.254.169.254/latest/meta-data/", PLACE, OTHER] {
        let there = get(move || async move { redirect(302, to) });
        let back = get(|| async { redirect(302, PLACE) });
        let service = Service::http(root().route(PLACE, there).route(OTHER, back));
        let client = service.connect().await;
        let before = client.requests();
        let error = client.get(PLACE).await.unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Redirected { status: 302, .. }),
            "{error}"
        );
        assert_eq!(
            client.requests(),
            before + 1,
            "{to}: one request, and none after it"
        );
        assert_eq!(service.recorder.count("GET", OTHER), 0);
    }
}

/// Fault 31: a login, whose body has the password.
#[tokio::test]
async fn a_login_that_is_redirected_takes_no_password_along() {
    for status in REDIRECTS {
        let canary = canary();
        let to = format!("{}{SESSIONS}", canary.url);
        let service = Service::http(root().route(SESSIONS, redirected(status, to)));
        let auth = Auth::session("operator", Secret::new("a secret of this test"));
        let error = Client::connect(service.endpoint().auth(auth)).await.unwrap_err();
        assert_eq!(error.effect(), Effect::None, "{error}");
        assert_eq!(
            service.recorder.count("POST", SESSIONS),
            1,
            "{status}: asked once"
        );
        assert_eq!(canary.recorder.seen().len(), 0, "{status}");
    }
}

/// Fault 31: the very first request.
#[tokio::test]
async fn a_service_that_sends_strangers_elsewhere_is_not_spoken_to() {
    let canary = canary();
    let to = format!("{}/redfish/v1/", canary.url);
    let service = Service::http(Router::new().fallback(redirected(308, to)));
    let auth = Auth::basic("operator", Secret::new("a secret of this test"));
    Client::connect(service.endpoint().auth(auth)).await.unwrap_err();
    assert_eq!(canary.recorder.seen().len(), 0);
    let seen = service.recorder.seen();
    assert!(seen.iter().all(|seen| seen.authorization.is_none()), "{seen:?}");
}

/// Fault 89: by path and by URL, added and removed.
#[tokio::test]
async fn a_redirect_that_adds_or_removes_a_slash_is_followed() {
    const OTHER: &str = "/redfish/v1/Systems/2";
    let (place, other) = (format!("{PLACE}/"), format!("{OTHER}/"));
    for status in [301, 302, 307, 308] {
        let to = place.clone();
        let there = get(|| async { json_body(&json!({ "Id": "1" })) });
        let by_url = get(move |headers: HeaderMap| async move {
            let host = headers["host"].to_str().unwrap();
            redirect(status, &format!("http://{host}{OTHER}"))
        });
        let router = root()
            .route(PLACE, redirected(status, to))
            .route(&place, there.clone())
            .route(&other, by_url)
            .route(OTHER, there);
        let service = Service::http(router);
        let client = service.connect().await;
        client.get(PLACE).await.unwrap();
        client.get(&other).await.unwrap();
        for path in [PLACE, place.as_str(), OTHER, other.as_str()] {
            assert_eq!(service.recorder.count("GET", path), 1, "{status}: {path}");
        }
    }
}

/// Fault 89: back and forth.
#[tokio::test]
async fn a_slash_is_followed_once() {
    let place = format!("{PLACE}/");
    let router = root()
        .route(PLACE, redirected(301, place.clone()))
        .route(&place, redirected(301, PLACE.to_owned()));
    let service = Service::http(router);
    let error = service.connect().await.get(PLACE).await.unwrap_err();
    is_redirected(&error, 301, PLACE);
    for path in [PLACE, place.as_str()] {
        assert_eq!(service.recorder.count("GET", path), 1, "{path}");
    }
}

/// Fault 89: a login goes to the other form of its path, with the password, and to no other host.
#[tokio::test]
async fn a_login_is_repeated_at_the_same_path_with_a_slash() {
    let (there, own) = (format!("{SESSIONS}/"), format!("{SESSIONS}/1"));
    for status in [301, 302, 307, 308] {
        let location = own.clone();
        let open = post(move |body: String| async move {
            assert!(body.contains("a secret of this test"), "{body}");
            answer(201, &[("x-auth-token", "t"), ("location", &location)], "{}")
        });
        let router = root()
            .route(SESSIONS, redirected(status, there.clone()))
            .route(&there, open)
            .route(&own, delete(|| async { answer(204, &[], "") }))
            .route(PLACE, get(|| async { json_body(&json!({ "Id": "1" })) }));
        let service = Service::http(router);
        let auth = Auth::session("operator", Secret::new("a secret of this test"));
        let client = Client::connect(service.endpoint().auth(auth)).await.unwrap();
        client.get(PLACE).await.unwrap();
        client.close().await.unwrap();
        let seen = service.recorder.seen();
        let asked = seen.iter().find(|seen| seen.path == PLACE).unwrap();
        assert_eq!(asked.token.as_deref(), Some("t"), "{status}");
        assert!(seen.iter().all(|seen| seen.authorization.is_none()), "{seen:?}");
    }
}

/// Fault 89: a write.
#[tokio::test]
async fn a_change_is_repeated_only_where_the_status_says_that_it_is_to_be_repeated() {
    let place = format!("{PLACE}/");
    for status in REDIRECTS {
        let router = root()
            .route(PLACE, redirected(status, place.clone()))
            .route(&place, patch(|| async { answer(204, &[], "") }));
        let service = Service::http(router);
        let client = service.connect().await;
        let outcome = client.patch(PLACE, &json!({}), WriteOptions::default()).await;
        let repeats = matches!(status, 307 | 308);
        assert_eq!(
            service.recorder.count("PATCH", &place),
            usize::from(repeats),
            "{status}"
        );
        match outcome {
            Ok(answer) => assert!(repeats && answer.status == 204, "{status}"),
            Err(error) => {
                is_redirected(&error, status, &place);
                assert!(!repeats && error.effect() == Effect::Unknown, "{status}");
            }
        }
    }
}
