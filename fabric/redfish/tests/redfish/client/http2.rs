//! The same care over HTTP/2, which is spoken where a service offers it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::Version;
use axum::routing::get;
use futures_util::stream;
use poolwright_redfish::client::{Client, Effect, ErrorKind, Limits, Tls, Unreadable, WriteOptions};
use serde_json::json;

use crate::client::service::{Authority, Service, answer, json_body, quick, root};

const PLACE: &str = "/redfish/v1/Systems/1";

async fn connect(service: &Service, ca: &Authority, limits: Limits) -> Client {
    Client::connect(service.endpoint().tls(Tls::Ca(ca.pem())).limits(limits))
        .await
        .unwrap()
}

fn over_tls(router: Router) -> (Service, Authority) {
    let ca = Authority::new();
    let service = Service::https(root().merge(router), &ca.issue(&["127.0.0.1"], |_| {}));
    (service, ca)
}

#[tokio::test]
async fn it_is_spoken_where_offered_and_http_1_where_not() {
    let (service, ca) = over_tls(Router::new());
    connect(&service, &ca, quick()).await;
    assert_eq!(service.recorder.seen()[0].version, Version::HTTP_2);
    let ca = Authority::new();
    let service = Service::https_1(root(), &ca.issue(&["127.0.0.1"], |_| {}));
    connect(&service, &ca, quick()).await;
    assert_eq!(service.recorder.seen()[0].version, Version::HTTP_11);
}

#[tokio::test]
async fn the_limit_of_requests_at_once_holds_on_one_connection() {
    let slow = get(|| async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        json_body(&json!({}))
    });
    let (service, ca) = over_tls(Router::new().route(PLACE, slow));
    let client = connect(
        &service,
        &ca,
        Limits {
            concurrency: 3,
            ..quick()
        },
    )
    .await;
    for outcome in futures_util::future::join_all((0..30).map(|_| client.get(PLACE))).await {
        outcome.unwrap();
    }
    assert_eq!(service.recorder.most_at_once.load(Ordering::SeqCst), 3);
}

/// Fault 26: over HTTP/2.
#[tokio::test]
async fn an_endless_body_is_cut_at_the_cap() {
    let endless = get(|| async {
        Body::from_stream(stream::repeat_with(|| {
            Ok::<_, std::io::Error>(Bytes::from_static(&[b'{'; 16 * 1024]))
        }))
    });
    let (service, ca) = over_tls(Router::new().route(PLACE, endless));
    let client = connect(&service, &ca, quick()).await;
    let error = client.get(PLACE).await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Unreadable(Unreadable::TooLarge { .. })),
        "{error}"
    );
    // Only that stream was given up.
    client.get("/redfish/v1/").await.unwrap();
}

/// Fault 25: over HTTP/2.
#[tokio::test]
async fn a_body_that_breaks_off_is_asked_for_again() {
    let tries = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&tries);
    let flaky = get(move || async move {
        if counter.fetch_add(1, Ordering::SeqCst) < 2 {
            let broken = stream::iter([Ok(Bytes::from_static(b"{")), Err(std::io::Error::other("gone"))]);
            return answer(200, &[], Body::from_stream(broken));
        }
        json_body(&json!({ "Id": "1" }))
    });
    let (service, ca) = over_tls(Router::new().route(PLACE, flaky));
    connect(&service, &ca, quick()).await.get(PLACE).await.unwrap();
    assert_eq!(tries.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_write_that_is_never_answered_is_unknown_and_sent_once() {
    let (service, ca) =
        over_tls(Router::new().route(PLACE, get(|| async {}).patch(std::future::pending::<()>)));
    let client = connect(&service, &ca, quick()).await;
    let body = json!({});
    let write = client.patch(PLACE, &body, WriteOptions::default());
    let outcome = service.at_the_deadline(("PATCH", PLACE), 1, write);
    let error = outcome.await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::OutcomeUnknown { .. }),
        "{error}"
    );
    assert_eq!(error.effect(), Effect::Unknown);
    assert_eq!(service.recorder.count("PATCH", PLACE), 1);
}
