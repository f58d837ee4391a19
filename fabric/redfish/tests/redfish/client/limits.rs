//! How many at once, and how many in all.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::routing::get;
use poolwright_redfish::client::{Client, Limits, WriteOptions};
use serde_json::json;

use crate::client::service::{Service, json_body, quick, root};

#[tokio::test]
async fn no_more_requests_at_once_than_allowed_and_all_are_counted() {
    for concurrency in [1, 4] {
        let slow = get(|| async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            json_body(&json!({}))
        });
        let service = Service::http(root().route("/redfish/v1/Systems/1", slow));
        let limits = Limits {
            concurrency,
            ..quick()
        };
        let client = Client::connect(service.endpoint().limits(limits)).await.unwrap();
        let many = (0..40).map(|_| client.get("/redfish/v1/Systems/1"));
        for outcome in futures_util::future::join_all(many).await {
            outcome.unwrap();
        }
        assert_eq!(service.recorder.most_at_once.load(Ordering::SeqCst), concurrency);
        assert_eq!(client.requests(), 41);
    }
}

/// Few requests are enough at a service that answers quickly; all that are allowed are used at one that does not.
#[tokio::test]
async fn a_service_that_sits_on_requests_gets_as_many_as_it_may() {
    const ALL: usize = 20;
    let gate = Arc::new(tokio::sync::Barrier::new(ALL));
    // Nobody is answered before everybody has asked.
    let together = get(move || async move {
        gate.wait().await;
        json_body(&json!({}))
    });
    let service = Service::http(root().route("/redfish/v1/Systems/1", together));
    let limits = Limits {
        concurrency: ALL,
        ..quick()
    };
    let client = Client::connect(service.endpoint().limits(limits)).await.unwrap();
    let many = (0..2 * ALL).map(|_| client.get("/redfish/v1/Systems/1"));
    for outcome in futures_util::future::join_all(many).await {
        outcome.unwrap();
    }
    assert_eq!(service.recorder.most_at_once.load(Ordering::SeqCst), ALL);
}

#[tokio::test]
async fn waiting_for_a_turn_is_not_part_of_the_deadline() {
    // It takes a minute by the clock that deadlines go by, and none of the test's time.
    let slow = get(|| async {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(60)).await;
        tokio::time::resume();
        json_body(&json!({}))
    });
    let service = Service::http(root().route("/redfish/v1/Systems/1", slow));
    let limits = Limits {
        concurrency: 1,
        request: Duration::from_secs(100),
        ..quick()
    };
    let client = Client::connect(service.endpoint().limits(limits)).await.unwrap();
    // Together far longer than one may take; each by itself in time.
    let many = (0..16).map(|_| client.get("/redfish/v1/Systems/1"));
    for outcome in futures_util::future::join_all(many).await {
        outcome.unwrap();
    }
}

/// Every future of the client can be spawned: the collector asks many endpoints from many tasks.
#[tokio::test]
async fn all_of_it_can_be_spawned() {
    let collection = get(|| async { json_body(&json!({ "Members": [{ "@odata.id": "/redfish/v1/" }] })) });
    let service = Service::http(root().route("/redfish/v1/Systems", collection));
    let client = tokio::spawn(Client::connect(service.endpoint()))
        .await
        .unwrap()
        .unwrap();
    let walk = tokio::spawn(async move {
        let read = client
            .read_members::<serde_json::Value>("/redfish/v1/Systems")
            .await
            .unwrap();
        let links = client.collection_members("/redfish/v1/Systems").await.unwrap();
        let refused = client
            .patch("/redfish/v1/", &json!({}), WriteOptions::default())
            .await
            .unwrap_err();
        client.close().await.unwrap();
        (read.members.len(), links.members.len(), refused.status())
    });
    assert_eq!(walk.await.unwrap(), (1, 1, Some(405)));
}
