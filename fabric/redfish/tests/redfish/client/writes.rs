//! Writes: conditional, answered in every way, and never sent twice on a guess.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::{get, patch, post};
use futures_util::stream;
use poolwright_redfish::client::{
    Auth, Client, Effect, Error, ErrorKind, Limits, LinkFault, NotSent, Secret, WriteOptions,
};
use serde_json::{Value, json};

use crate::client::service::{Service, answer, error_body, quick, raw, root};

const ZONES: &str = "/redfish/v1/Fabrics/PCIe/Zones";

/// What a POST that is answered so comes to, and how often it was sent.
async fn post_answered(
    make: impl Fn() -> Response + Clone + Send + Sync + 'static,
) -> (Result<poolwright_redfish::client::Answer, Error>, usize) {
    let service = Service::http(root().route(ZONES, post(move || async move { make() })));
    let client = service.connect().await;
    let outcome = client
        .post(ZONES, &json!({ "Name": "z" }), WriteOptions::default())
        .await;
    (outcome, service.recorder.count("POST", ZONES))
}

fn is_unknown(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::OutcomeUnknown { .. }) && error.effect() == Effect::Unknown
}

#[tokio::test]
async fn what_was_created_is_named() {
    let (by_header, _) =
        post_answered(|| answer(201, &[("location", "/redfish/v1/Z/7")], r#"{"Id":"7"}"#)).await;
    let by_header = by_header.unwrap();
    assert_eq!(
        (by_header.status, by_header.location.as_deref()),
        (201, Some("/redfish/v1/Z/7"))
    );
    assert_eq!(by_header.parse::<Value>().unwrap()["Id"], "7");
    let (by_body, _) = post_answered(|| {
        answer(
            201,
            &[("location", "https://inside.example/redfish/v1/Z/7")],
            r#"{"@odata.id":"/redfish/v1/Z/7"}"#,
        )
    })
    .await;
    assert_eq!(by_body.unwrap().location.as_deref(), Some("/redfish/v1/Z/7"));
    let (empty, _) = post_answered(|| answer(204, &[], "")).await;
    assert_eq!(empty.unwrap().location, None);
    // Done, but nobody can say where: that has to be read back.
    let (elsewhere, _) = post_answered(|| answer(201, &[("location", "https://inside.example/x")], "")).await;
    let error = elsewhere.unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::Link {
                why: LinkFault::OtherOrigin,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(error.effect(), Effect::Unknown);
}

#[tokio::test]
async fn a_conditional_write_goes_out_with_the_etag() {
    let only_if = patch(|headers: HeaderMap| async move {
        match headers.get("if-match").map(|etag| etag.to_str().unwrap()) {
            Some("\"2\"") => answer(200, &[("etag", "\"3\"")], "{}"),
            Some(_) => error_body(412, "Base.1.18.PreconditionFailed", "changed"),
            None => answer(428, &[], ""),
        }
    });
    let service = Service::http(root().route(ZONES, only_if));
    let client = service.connect().await;
    let write = |etag: Option<&str>| {
        let options = WriteOptions::default().if_match(etag.map(str::to_owned));
        let client = client.clone();
        async move { client.patch(ZONES, &json!({}), options).await }
    };
    assert_eq!(write(Some("\"2\"")).await.unwrap().etag.as_deref(), Some("\"3\""));
    for (etag, status) in [(Some("\"1\""), 412), (None, 428)] {
        let error = write(etag).await.unwrap_err();
        assert_eq!(
            (error.status(), error.effect()),
            (Some(status), Effect::None),
            "{error}"
        );
    }
    let sent = client.requests();
    let error = write(Some("\"\n\"")).await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::NotSent(NotSent::BadRequest(_))),
        "{error}"
    );
    assert_eq!(client.requests(), sent);
}

#[tokio::test]
async fn a_4xx_had_no_effect() {
    for status in [400, 404, 405, 409, 501] {
        let (outcome, sent) =
            post_answered(move || error_body(status, "Base.1.18.ActionNotSupported", "no")).await;
        let error = outcome.unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Refused(refusal) if refusal.status == status),
            "{error}"
        );
        assert_eq!((error.effect(), sent), (Effect::None, 1));
    }
}

/// Fault 24: as the answer to a write it leaves the outcome open.
/// Fault 26: the answer to a write.
#[tokio::test]
async fn a_5xx_and_garbage_leave_the_outcome_open() {
    for status in [500, 502, 503, 504] {
        let (outcome, sent) =
            post_answered(move || error_body(status, "Base.1.18.InternalError", "oops")).await;
        let error = outcome.unwrap_err();
        assert!(is_unknown(&error), "{error}");
        assert_eq!((error.status(), sent), (Some(status), 1));
        assert!(error.message().unwrap().is("InternalError"));
    }
    for garbage in ["<html>Welcome", "OK", "[]"] {
        let (outcome, sent) = post_answered(move || answer(200, &[], garbage)).await;
        assert!(is_unknown(&outcome.unwrap_err()));
        assert_eq!(sent, 1);
    }
    let (huge, _) = post_answered(|| answer(200, &[], format!("{{\"a\":\"{}\"}}", "x".repeat(70_000)))).await;
    assert!(
        is_unknown(&huge.unwrap_err()),
        "answers to writes are capped at 64 KiB"
    );
    let (redirected, _) = post_answered(|| answer(303, &[("location", "/redfish/v1/")], "")).await;
    let error = redirected.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Redirected { status: 303, .. }));
    assert_eq!(error.effect(), Effect::Unknown);
}

/// Fault 26: an answer to a write without end.
#[tokio::test]
async fn an_endless_answer_to_a_write_is_cut_at_a_cap_of_its_own() {
    const PIECE: usize = 4 * 1024;
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let endless = post(move || async move {
        let pieces = stream::repeat_with(move || {
            counter.fetch_add(PIECE, Ordering::Relaxed);
            Ok::<_, std::io::Error>(Bytes::from_static(&[b'{'; PIECE]))
        });
        Body::from_stream(pieces)
    });
    let service = Service::http(root().route(ZONES, endless));
    let client = service.connect().await;
    let error = client
        .post(ZONES, &json!({}), WriteOptions::default())
        .await
        .unwrap_err();
    // What it did it did before it answered: that has to be read back.
    assert!(is_unknown(&error), "{error}");
    assert_eq!(service.recorder.count("POST", ZONES), 1);
    // Beyond the cap, only what sockets buffer: of an endless document it would be twice as much and more.
    let sent = sent.load(Ordering::Relaxed);
    assert!(sent < 8 * 1024 * 1024, "{sent}");
}

/// Fault 26: each cap to the byte.
#[tokio::test]
async fn what_is_as_large_as_its_cap_is_taken_and_a_byte_more_is_not() {
    // Around `{"a":""}`.
    let filled = |bytes: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(bytes - 8));
    let limits = Limits::default();
    assert_eq!((limits.document_bytes, limits.answer_bytes), (8 << 20, 64 << 10));
    for more in [0, 1] {
        let (outcome, _) = post_answered(move || answer(200, &[], filled((64 << 10) + more))).await;
        assert_eq!(outcome.is_ok(), more == 0, "{more}");
        let document = filled((8 << 20) + more);
        let service = Service::http(root().route(ZONES, get(move || async move { document })));
        let read = service.connect().await.get_bytes(ZONES).await;
        assert_eq!(read.is_ok(), more == 0, "{more}");
    }
}

/// Fault 39: a write.
#[tokio::test]
async fn a_busy_service_gets_it_again_only_where_it_asks() {
    for status in [429, 503] {
        let tries = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&tries);
        let (outcome, sent) = post_answered(move || match counter.fetch_add(1, Ordering::SeqCst) {
            0 => answer(status, &[("retry-after", "0")], ""),
            _ => answer(204, &[], ""),
        })
        .await;
        assert_eq!((outcome.unwrap().status, sent), (204, 2));
        // Busy for longer than we wait: it says that it has not begun.
        let (outcome, sent) = post_answered(move || answer(status, &[("retry-after", "3600")], "")).await;
        let error = outcome.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Refused(_)), "{error}");
        assert_eq!((error.effect(), sent), (Effect::None, 1));
    }
}

#[tokio::test]
async fn a_write_that_is_applied_and_never_answered_is_unknown_and_sent_once() {
    let applied = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&applied);
    let stall = post(move || async move {
        counter.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<()>().await;
    });
    let service = Service::http(root().route(ZONES, stall));
    let client = service.connect().await;
    let body = json!({});
    let write = client.post(ZONES, &body, WriteOptions::default());
    let outcome = service.at_the_deadline(("POST", ZONES), 1, write);
    let error = outcome.await.unwrap_err();
    assert!(is_unknown(&error), "{error}");
    assert!(error.to_string().contains("waiting for the answer"), "{error}");
    assert!(error.hint().contains("read the resource back"));
    assert_eq!(applied.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_write_whose_connection_breaks_is_unknown_and_sent_once() {
    // This one answers every first request as a service root would, and hangs up on writes.
    let root = r#"{"RedfishVersion":"1.0.0"}"#;
    let good = format!(
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{root}",
        root.len()
    );
    let (url, connections) = raw_but_silent_for("POST", good.into_bytes()).await;
    let endpoint = poolwright_redfish::client::Endpoint::new(&url)
        .unwrap()
        .limits(quick());
    let client = Client::connect(endpoint).await.unwrap();
    let error = client
        .post(ZONES, &json!({}), WriteOptions::default())
        .await
        .unwrap_err();
    assert!(is_unknown(&error), "{error}");
    assert_eq!(
        connections.load(Ordering::SeqCst),
        2,
        "one for the root, one for the write"
    );
    // The same broken connection, and a GET: harmless, and tried again.
    let (url, connections) = raw(Vec::new()).await;
    let endpoint = poolwright_redfish::client::Endpoint::new(&url)
        .unwrap()
        .limits(quick());
    let error = Client::connect(endpoint).await.unwrap_err();
    assert_eq!(error.effect(), Effect::None);
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

async fn raw_but_silent_for(method: &'static str, answer: Vec<u8>) -> (String, Arc<AtomicUsize>) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counter.fetch_add(1, Ordering::SeqCst);
            let mut request = [0; 4096];
            let got = stream.read(&mut request).await.unwrap_or(0);
            if !request[..got].starts_with(method.as_bytes()) {
                let _ = stream.write_all(&answer).await;
            }
        }
    });
    (url, connections)
}

#[tokio::test]
async fn a_write_that_was_never_sent_says_so() {
    let service = Service::http(root());
    let client = service.connect().await;
    let sent = client.requests();
    let error = client
        .post("https://elsewhere.example/x", &json!({}), WriteOptions::default())
        .await
        .unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Link { .. }));
    assert_eq!((error.effect(), client.requests()), (Effect::None, sent));

    // A session that cannot be opened any more: the write itself was not sent.
    let login = post(|| async { answer(500, &[], "") });
    let service = Service::http(root().route("/redfish/v1/SessionService/Sessions", login));
    let auth = Auth::session("operator", Secret::new("a secret of this test"));
    let error = Client::connect(service.endpoint().auth(auth)).await.unwrap_err();
    assert_eq!((error.status(), error.effect()), (Some(500), Effect::None));
}
