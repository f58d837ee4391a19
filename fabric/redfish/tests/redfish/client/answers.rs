//! Answers that a GET must survive: elsewhere, endless, broken off, not Redfish, slow.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::get;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use poolwright_redfish::client::{
    Auth, Client, Effect, Endpoint, Error, ErrorKind, Limits, LinkFault, Secret, Unreadable,
};
use serde_json::{Value, json};

use crate::client::service::{Service, answer, error_body, json_body, quick, raw, root};

const PLACE: &str = "/redfish/v1/Systems/1";

/// What the client makes of this answer.
async fn outcome_of(
    make: impl Fn() -> axum::response::Response + Clone + Send + Sync + 'static,
) -> (Error, usize) {
    let service = Service::http(root().route(PLACE, get(move || async move { make() })));
    let error = service.connect().await.get(PLACE).await.unwrap_err();
    assert_eq!(error.effect(), Effect::None);
    assert!(error.to_string().contains(PLACE), "{error}");
    (error, service.recorder.count("GET", PLACE))
}

fn unreadable(error: &Error) -> &Unreadable {
    match error.kind() {
        ErrorKind::Unreadable(why) => why,
        other => panic!("readable? {other:?}"),
    }
}

#[tokio::test]
async fn a_document_comes_with_its_etag() {
    let by_header = get(|| async { answer(200, &[("etag", "W/\"7\"")], "{}") });
    let by_body = get(|| async { json_body(&json!({ "@odata.etag": "\"8\"", "Name": "n" })) });
    let service = Service::http(
        root()
            .route("/redfish/v1/A", by_header)
            .route("/redfish/v1/B", by_body),
    );
    let client = service.connect().await;
    assert_eq!(
        client.get("/redfish/v1/A").await.unwrap().etag().as_deref(),
        Some("W/\"7\"")
    );
    let b = client.read::<Value>("/redfish/v1/B").await.unwrap();
    assert_eq!(b.etag.as_deref(), Some("\"8\""));
    assert_eq!(b.value["Name"], "n");
    assert_eq!(&client.get_bytes("/redfish/v1/A").await.unwrap()[..], b"{}");
}

/// Fault 31: the other host hears nothing.
#[tokio::test]
async fn a_redirect_is_an_error_and_credentials_stay_here() {
    let canary = Service::http(Router::new().fallback(|| async { "caught" }));
    let target = format!("{}/redfish/v1/Systems/1", canary.url);
    let redirect = get(move || async move { answer(302, &[("location", &target)], "") });
    let service = Service::http(root().route(PLACE, redirect));
    let auth = Auth::basic("operator", Secret::new("a secret of this test"));
    let client = Client::connect(service.endpoint().auth(auth)).await.unwrap();
    let error = client.get(PLACE).await.unwrap_err();
    match error.kind() {
        ErrorKind::Redirected { status: 302, to } => assert!(to.starts_with(&canary.url), "{to}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(canary.recorder.seen().len(), 0);
}

/// Fault 32: other origins, metadata addresses, climbing.
#[tokio::test]
async fn a_link_elsewhere_is_not_followed() {
    let canary = Service::http(Router::new().fallback(|| async { "caught" }));
    let service = Service::http(root());
    let client = service.connect().await;
    let elsewhere = format!("{}/redfish/v1/", canary.url);
    for (link, why) in [
        (elsewhere.as_str(), LinkFault::OtherOrigin),
        ("//169.254.169.254/latest", LinkFault::OtherOrigin),
        ("/redfish/v1/../../secret", LinkFault::Climbs),
        ("Systems", LinkFault::Relative),
    ] {
        let error = client.get(link).await.unwrap_err();
        assert_eq!(
            error.kind(),
            &ErrorKind::Link {
                link: link.into(),
                why
            }
        );
    }
    assert_eq!(canary.recorder.seen().len(), 0);
    assert_eq!(client.requests(), 1, "only the root was asked for");
}

/// Fault 26: a body without end.
#[tokio::test]
async fn an_endless_body_is_cut_at_the_cap() {
    const PIECE: usize = 64 * 1024;
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let endless = get(move || async move {
        let pieces = stream::repeat_with(move || {
            counter.fetch_add(PIECE, Ordering::Relaxed);
            Ok::<_, std::io::Error>(Bytes::from(vec![b'{'; PIECE]))
        });
        Body::from_stream(pieces)
    });
    let service = Service::http(root().route(PLACE, endless));
    let client = service.connect().await;
    let error = client.get(PLACE).await.unwrap_err();
    let cap = Limits::default().document_bytes;
    assert_eq!(unreadable(&error), &Unreadable::TooLarge { limit: cap });
    assert_eq!(
        service.recorder.count("GET", PLACE),
        1,
        "an endless body is not asked for again"
    );
    // What was not taken stays with the sender: beyond the cap, only what sockets buffer has left it.
    let sent = sent.load(Ordering::Relaxed);
    assert!(sent < cap + 16 * 1024 * 1024, "{sent}");
}

/// Fault 26: 2 GiB, announced.
#[tokio::test]
async fn an_announced_giant_is_not_even_begun() {
    let giant = b"HTTP/1.1 200 OK\r\ncontent-length: 2147483648\r\n\r\n{".to_vec();
    let (url, connections) = raw(giant).await;
    let error = Client::connect(Endpoint::new(&url).unwrap().limits(quick()))
        .await
        .unwrap_err();
    assert!(
        matches!(unreadable(&error), Unreadable::TooLarge { .. }),
        "{error}"
    );
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

/// Fault 24: each by its name.
/// Fault 28: a body that can't be unpacked.
#[tokio::test]
async fn html_empty_and_garbage_are_told_apart() {
    let (html, _) = outcome_of(|| answer(200, &[], "<!DOCTYPE html><title>Login</title>")).await;
    assert_eq!(unreadable(&html), &Unreadable::Html);
    assert!(html.hint().contains("login page"));
    let (empty, _) = outcome_of(|| answer(200, &[], "")).await;
    assert_eq!(unreadable(&empty), &Unreadable::Empty);
    let (words, _) = outcome_of(|| answer(200, &[], "OK")).await;
    assert!(matches!(unreadable(&words), Unreadable::NotJson(_)));
    let (broken, _) = outcome_of(|| answer(200, &[("content-encoding", "gzip")], vec![0x1f, 0x8b])).await;
    assert!(matches!(unreadable(&broken), Unreadable::Compressed(why) if why.starts_with("gzip: ")));
    let (brotli, _) = outcome_of(|| answer(200, &[("content-encoding", "br")], "{}")).await;
    assert_eq!(unreadable(&brotli), &Unreadable::Compressed("br".into()));
}

fn packed(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

/// Fault 89: gzip unasked.
#[tokio::test]
async fn a_packed_answer_is_read_like_any_other() {
    const GZIP: (&str, &str) = ("content-encoding", "gzip");
    let document = get(|| async { answer(200, &[GZIP, ("etag", "\"7\"")], packed(br#"{"Name":"n"}"#)) });
    let refused = get(|| async {
        let body = json!({ "error": { "code": "Base.1.18.GeneralError", "message": "no such thing" } });
        answer(400, &[GZIP], packed(body.to_string().as_bytes()))
    });
    let empty = get(|| async { answer(200, &[GZIP], "") });
    let service = Service::http(
        root()
            .route(PLACE, document)
            .route("/redfish/v1/Refused", refused)
            .route("/redfish/v1/Empty", empty),
    );
    let client = service.connect().await;
    let read = client.read::<Value>(PLACE).await.unwrap();
    assert_eq!(
        (&read.value["Name"], read.etag.as_deref()),
        (&json!("n"), Some("\"7\""))
    );
    let error = client.get("/redfish/v1/Refused").await.unwrap_err();
    assert!(error.to_string().contains("no such thing"), "{error}");
    let error = client.get("/redfish/v1/Empty").await.unwrap_err();
    assert_eq!(unreadable(&error), &Unreadable::Empty);
}

/// Fault 28: a few kilobytes that unpack to more than the cap.
#[tokio::test]
async fn a_packed_answer_is_cut_at_the_cap() {
    let cap = Limits::default().document_bytes;
    for more in [0, 1] {
        let body = packed(&vec![b' '; cap + more]);
        assert!(body.len() < cap / 100, "{}", body.len());
        let bomb = get(move || async move { answer(200, &[("content-encoding", "gzip")], body) });
        let service = Service::http(root().route(PLACE, bomb));
        let outcome = service.connect().await.get_bytes(PLACE).await;
        match outcome {
            Ok(bytes) => assert_eq!((bytes.len(), more), (cap, 0)),
            Err(error) => {
                assert_eq!(unreadable(&error), &Unreadable::TooLarge { limit: cap });
                assert_eq!(more, 1, "{error}");
            }
        }
    }
}

/// Fault 24: text that is not UTF-8.
/// Fault 27: a hundred thousand deep.
#[tokio::test]
async fn deep_and_broken_json_is_an_error_of_parsing() {
    let deep = format!("{{\"a\":{}", "[".repeat(100_000));
    let cut = "{\"Name\":\"n\",\"Mod".to_owned();
    let latin = b"{\"Name\":\"M\xfcnchen\"}".to_vec();
    let service = Service::http(
        root()
            .route("/redfish/v1/Deep", get(move || async move { deep }))
            .route("/redfish/v1/Cut", get(move || async move { cut }))
            .route("/redfish/v1/Latin", get(move || async move { latin })),
    );
    let client = service.connect().await;
    let error = client
        .get("/redfish/v1/Deep")
        .await
        .unwrap()
        .parse::<Value>()
        .unwrap_err();
    assert_eq!(unreadable(&error), &Unreadable::TooDeep);
    for place in ["/redfish/v1/Cut", "/redfish/v1/Latin"] {
        let error = client.read::<Value>(place).await.unwrap_err();
        assert!(matches!(unreadable(&error), Unreadable::NotJson(_)), "{error}");
    }
    let error = client
        .get("/redfish/v1/")
        .await
        .unwrap()
        .parse::<Vec<u8>>()
        .unwrap_err();
    assert!(matches!(unreadable(&error), Unreadable::WrongShape(_)), "{error}");
}

/// Fault 27: neither a number that no type holds nor a million keys does any harm.
#[tokio::test]
async fn numbers_out_of_range_and_a_million_keys_are_errors() {
    let number = get(|| async { answer(200, &[], "{\"MemorySizeMiB\":1e400}") });
    let keys: String = (0..1_000_000).map(|key| format!("\"k{key:07}\":1,")).collect();
    let keys = get(move || async move { answer(200, &[], format!("{{{keys}\"last\":1}}")) });
    let service = Service::http(
        root()
            .route("/redfish/v1/Number", number)
            .route("/redfish/v1/Keys", keys),
    );
    let client = service.connect().await;
    let error = client.read::<Value>("/redfish/v1/Number").await.unwrap_err();
    assert!(matches!(unreadable(&error), Unreadable::NotJson(_)), "{error}");
    let error = client.read::<Value>("/redfish/v1/Keys").await.unwrap_err();
    assert!(
        matches!(unreadable(&error), Unreadable::TooLarge { .. }),
        "{error}"
    );
}

/// Fault 25: cut off, or shorter than announced.
#[tokio::test]
async fn a_lost_connection_is_tried_again_and_a_lying_length_is_not_believed() {
    let cut = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"a\":1}".to_vec();
    let (url, connections) = raw(cut).await;
    let service = Service::http(root());
    let client = service.connect().await;
    // A client cannot change its address, so the broken service stands at its own.
    let error = Client::connect(Endpoint::new(&url).unwrap().limits(quick()))
        .await
        .unwrap_err();
    assert!(
        matches!(unreadable(&error), Unreadable::CutOff { got: 7, .. }),
        "{error}"
    );
    assert_eq!(
        connections.load(Ordering::SeqCst),
        1,
        "the first contact is tried once"
    );
    drop(client);

    let tries = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&tries);
    let flaky = get(move || async move {
        if counter.fetch_add(1, Ordering::SeqCst) < 2 {
            let broken = stream::iter([Ok(Bytes::from_static(b"{")), Err(std::io::Error::other("gone"))]);
            return answer(200, &[], Body::from_stream(broken));
        }
        json_body(&json!({ "Id": "1" }))
    });
    let service = Service::http(root().route(PLACE, flaky));
    service.connect().await.get(PLACE).await.unwrap();
    assert_eq!(tries.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn not_redfish_says_what_it_saw() {
    let html = Service::http(Router::new().fallback(|| async { answer(200, &[], "<html>Welcome") }));
    let nothing = Service::http(Router::new());
    let json = Service::http(Router::new().fallback(|| async { json_body(&json!({ "hello": "world" })) }));
    for (service, saw) in [(&html, "HTML"), (&nothing, "404"), (&json, "ServiceRoot")] {
        let error = Client::connect(service.endpoint()).await.unwrap_err();
        match error.kind() {
            ErrorKind::NotRedfish { saw: said } => assert!(said.contains(saw), "{said}"),
            other => panic!("{other:?}"),
        }
    }
    let (ssh, _) = raw(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()).await;
    let error = Client::connect(Endpoint::new(&ssh).unwrap().limits(quick()))
        .await
        .unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotRedfish { .. }), "{error}");
}

#[tokio::test]
async fn a_root_known_by_its_other_name_is_found() {
    let document = json!({ "RedfishVersion": "1.0.0" });
    let service =
        Service::http(Router::new().route("/redfish/v1", get(move || async move { json_body(&document) })));
    service.connect().await;
}

/// Fault 29: the deadline is for the whole.
#[tokio::test]
async fn a_drip_is_cut_off_by_the_deadline() {
    let drip = get(|| async {
        let drops = stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Some((Ok::<_, std::io::Error>(Bytes::from_static(b"{")), ()))
        });
        Body::from_stream(drops)
    });
    let silent = get(std::future::pending::<()>);
    let service = Service::http(root().route(PLACE, drip).route("/redfish/v1/Silent", silent));
    let client = service.connect().await;
    for (place, waiting) in [
        (PLACE, "the rest of the body"),
        ("/redfish/v1/Silent", "the answer"),
    ] {
        let outcome = service.at_the_deadline(("GET", place), 1, client.get(place));
        let error = outcome.await.unwrap_err();
        match error.kind() {
            ErrorKind::DeadlineExceeded { waiting_for, .. } => {
                assert!(waiting_for.contains(waiting), "{waiting_for}")
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(
            service.recorder.count("GET", place),
            1,
            "an overdue request is not sent again"
        );
    }
}

#[tokio::test]
async fn refusals_carry_the_services_words() {
    let (error, tries) =
        outcome_of(|| error_body(404, "Base.1.18.ResourceMissingAtURI", "No such system.")).await;
    assert!(error.is_not_found());
    assert!(error.message().unwrap().is("ResourceMissingAtURI"));
    assert!(
        error
            .to_string()
            .contains("No such system. (Base.1.18.ResourceMissingAtURI)"),
        "{error}"
    );
    assert_eq!(tries, 1);
    for (status, tried) in [(500, 1), (501, 1), (502, 4), (503, 4), (504, 4)] {
        let (error, tries) = outcome_of(move || answer(status, &[], "<html>oops")).await;
        assert_eq!((error.status(), tries), (Some(status), tried));
    }
}

/// Fault 39: a read.
#[tokio::test]
async fn retry_after_is_honoured_within_the_deadline() {
    let tries = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&tries);
    let busy_once = get(move || async move {
        match counter.fetch_add(1, Ordering::SeqCst) {
            0 => answer(503, &[("retry-after", "0")], ""),
            _ => json_body(&json!({})),
        }
    });
    let service = Service::http(root().route(PLACE, busy_once).route(
        "/redfish/v1/Busy",
        get(|| async { answer(503, &[("retry-after", "3600")], "") }),
    ));
    let client = service.connect().await;
    client.get(PLACE).await.unwrap();
    assert_eq!(tries.load(Ordering::SeqCst), 2);
    // An hour is longer than the deadline: the refusal stands at once.
    let error = client.get("/redfish/v1/Busy").await.unwrap_err();
    assert_eq!(error.status(), Some(503));
    assert_eq!(service.recorder.count("GET", "/redfish/v1/Busy"), 1);
}
