//! Collections: pages, and members by reference or expanded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::{OriginalUri, Path, Query, RawQuery};
use axum::routing::get;
use poolwright_redfish::client::{Client, ErrorKind, Limits, LinkFault, Unreadable};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::service::{Service, answer, json_body, quick, root, root_with};

const CHASSIS: &str = "/redfish/v1/Chassis";

fn reference(id: usize) -> Value {
    json!({ "@odata.id": format!("{CHASSIS}/{id}") })
}

fn chassis(id: usize) -> Value {
    json!({ "@odata.id": format!("{CHASSIS}/{id}"), "@odata.type": "#Chassis.v1_25_0.Chassis", "Id": id.to_string(),
            "@odata.etag": format!("\"{id}\"") })
}

fn expanding() -> Value {
    json!({ "ExpandQuery": { "NoLinks": true, "Levels": true, "MaxLevels": 1 } })
}

/// Each member by itself.
fn one(router: axum::Router) -> axum::Router {
    router.route(
        "/redfish/v1/Chassis/{id}",
        get(|Path(id): Path<usize>| async move { json_body(&chassis(id)) }),
    )
}

#[derive(Debug, Deserialize, PartialEq)]
struct Named {
    #[serde(rename = "Id")]
    id: String,
}

fn ids(
    members: &poolwright_redfish::client::Collection<poolwright_redfish::client::Member<Named>>,
) -> Vec<String> {
    members
        .members
        .iter()
        .map(|member| member.outcome.as_ref().unwrap().value.id.clone())
        .collect()
}

#[tokio::test]
async fn pages_are_followed_in_order() {
    #[derive(Deserialize)]
    struct Skip {
        #[serde(rename = "$skip", default)]
        skip: usize,
    }
    let pages = get(|Query(Skip { skip }): Query<Skip>| async move {
        let members: Vec<Value> = (skip..skip + 10).map(reference).collect();
        let next = (skip < 20).then(|| format!("{CHASSIS}?$skip={}", skip + 10));
        json_body(&json!({ "Members": members, "Members@odata.count": 3, "Members@odata.nextLink": next }))
    });
    let service = Service::http(one(root().route(CHASSIS, pages)));
    let client = service.connect().await;
    let links = client.collection_members(CHASSIS).await.unwrap();
    assert_eq!(
        links.members,
        (0..30).map(|id| format!("{CHASSIS}/{id}")).collect::<Vec<_>>()
    );
    assert_eq!(links.faults, []);
    let read = client.read_members::<Named>(CHASSIS).await.unwrap();
    assert_eq!(ids(&read), (0..30).map(|id| id.to_string()).collect::<Vec<_>>());
    assert_eq!(client.requests(), 1 + 3 + 3 + 30);
}

/// Fault 32: pages in a circle.
/// Fault 33: pages and members are capped.
#[tokio::test]
async fn pages_in_a_circle_and_without_end_are_left() {
    let circle = get(|RawQuery(query): RawQuery| async move {
        let next = if query.as_deref() == Some("p=1") {
            "p=0"
        } else {
            "p=1"
        };
        json_body(
            &json!({ "Members": [reference(0)], "Members@odata.nextLink": format!("{CHASSIS}?{next}") }),
        )
    });
    let served = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&served);
    let endless = get(move || async move {
        let page = counter.fetch_add(1, Ordering::SeqCst);
        let members = [reference(2 * page), reference(2 * page + 1)];
        json_body(&json!({ "Members": members, "@odata.nextLink": format!("/redfish/v1/Endless?p={page}") }))
    });
    let service = Service::http(
        root()
            .route(CHASSIS, circle)
            .route("/redfish/v1/Endless", endless),
    );
    let limits = Limits { pages: 5, ..quick() };
    let client = Client::connect(service.endpoint().limits(limits)).await.unwrap();
    let circle = client.collection_members(CHASSIS).await.unwrap();
    assert_eq!(circle.members.len(), 1, "each member once");
    assert!(
        matches!(circle.faults[0].kind(), ErrorKind::PageLoop(_)),
        "{:?}",
        circle.faults
    );

    let endless = client.collection_members("/redfish/v1/Endless").await.unwrap();
    assert_eq!((endless.members.len(), served.load(Ordering::SeqCst)), (10, 5));
    assert_eq!(
        endless.faults[0].kind(),
        &ErrorKind::TooMany {
            what: "pages",
            limit: 5
        }
    );
    let limits = Limits {
        members: 3,
        ..quick()
    };
    let client = Client::connect(service.endpoint().limits(limits)).await.unwrap();
    let endless = client.collection_members("/redfish/v1/Endless").await.unwrap();
    assert_eq!(endless.members.len(), 3);
    assert_eq!(
        endless.faults[0].kind(),
        &ErrorKind::TooMany {
            what: "members",
            limit: 3
        }
    );
}

#[tokio::test]
async fn a_bad_member_costs_itself() {
    let odd = get(|| async {
        let members = json!([reference(1), { "@odata.id": "https://evil.example/redfish/v1" }, {}, null, reference(404)]);
        json_body(&json!({ "Members": members, "Members@odata.nextLink": "//evil.example/more" }))
    });
    let gone = get(|| async { answer(404, &[], "") });
    let service = Service::http(
        one(root())
            .route(CHASSIS, odd)
            .route("/redfish/v1/Chassis/404", gone),
    );
    let client = service.connect().await;
    let read = client.read_members::<Named>(CHASSIS).await.unwrap();
    assert_eq!(read.members[0].outcome.as_ref().unwrap().value.id, "1");
    assert!(read.members[1].outcome.as_ref().unwrap_err().is_not_found());
    assert_eq!(read.members[1].path, "/redfish/v1/Chassis/404");
    let faults: Vec<_> = read.faults.iter().map(|fault| fault.kind()).collect();
    assert!(
        matches!(
            faults[0],
            ErrorKind::Link {
                why: LinkFault::OtherOrigin,
                ..
            }
        ),
        "{faults:?}"
    );
    assert!(
        matches!(
            faults[1],
            ErrorKind::Link {
                why: LinkFault::Missing,
                ..
            }
        ),
        "{faults:?}"
    );
    assert!(
        matches!(faults[2], ErrorKind::Unreadable(Unreadable::WrongShape(_))),
        "{faults:?}"
    );
    assert!(
        matches!(
            faults[3],
            ErrorKind::Link {
                why: LinkFault::OtherOrigin,
                ..
            }
        ),
        "{faults:?}"
    );
    assert_eq!(faults.len(), 4);
}

/// Fault 89: as a string, with a slash, in other letters, and by the last part of its path.
#[tokio::test]
async fn a_member_is_one_in_whatever_form_it_is_listed() {
    let odd = get(|| async {
        let first = format!("{CHASSIS}/1");
        let members = json!([
            first,
            { "@odata.id": format!("{first}/") },
            { "@odata.id": first.replace("Chassis", "chassis") },
            { "@odata.id": "2" },
            reference(3),
        ]);
        json_body(&json!({ "Members": members, "Members@odata.count": 3 }))
    });
    let service = Service::http(one(root().route(CHASSIS, odd)));
    let client = service.connect().await;
    let links = client.collection_members(CHASSIS).await.unwrap();
    assert_eq!(links.faults, []);
    assert_eq!(
        links.members,
        (1..4).map(|id| format!("{CHASSIS}/{id}")).collect::<Vec<_>>()
    );
    let read = client.read_members::<Named>(CHASSIS).await.unwrap();
    assert_eq!(ids(&read), ["1", "2", "3"]);
}

#[tokio::test]
async fn what_is_no_collection_is_an_error() {
    let service = Service::http(one(root()));
    let error = service
        .connect()
        .await
        .collection_members("/redfish/v1/Chassis/1")
        .await
        .unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Unreadable(Unreadable::WrongShape(_))),
        "{error}"
    );
}

#[tokio::test]
async fn true_expansion_saves_the_requests() {
    let collection = get(|RawQuery(query): RawQuery| async move {
        let members: Vec<Value> = match query.as_deref() {
            Some("$expand=.($levels=1)") => (0..50).map(chassis).collect(),
            _ => (0..50).map(reference).collect(),
        };
        json_body(&json!({ "Members": members }))
    });
    let service = Service::http(one(root_with(expanding()).route(CHASSIS, collection)));
    let client = service.connect().await;
    let read = client.read_members::<Named>(CHASSIS).await.unwrap();
    assert_eq!(ids(&read).len(), 50);
    let member = read.members[7].outcome.as_ref().unwrap();
    assert_eq!(
        (member.path.as_str(), member.etag.as_deref()),
        ("/redfish/v1/Chassis/7", Some("\"7\""))
    );
    assert_eq!(client.requests(), 2, "the root and one page");
}

#[tokio::test]
async fn expansion_that_is_a_lie_is_asked_for_once() {
    let bare = get(|| async { json_body(&json!({ "Members": (0..5).map(reference).collect::<Vec<_>>() })) });
    let service = Service::http(one(root_with(expanding()).route(CHASSIS, bare)));
    let client = service.connect().await;
    for _ in 0..3 {
        let read = client.read_members::<Named>(CHASSIS).await.unwrap();
        assert_eq!(ids(&read), ["0", "1", "2", "3", "4"]);
    }
    assert_eq!(
        service
            .recorder
            .count("GET", "/redfish/v1/Chassis?$expand=.($levels=1)"),
        1
    );
    // The lying answer served as the plain page, so nothing was asked for twice.
    assert_eq!(client.requests(), 1 + 3 * (1 + 5));
}

#[tokio::test]
async fn expansion_that_fails_falls_back() {
    let collection = get(|OriginalUri(uri): OriginalUri| async move {
        match uri.query() {
            Some(_) => answer(501, &[], ""),
            None => json_body(&json!({ "Members": [reference(3)] })),
        }
    });
    let service = Service::http(one(root_with(expanding()).route(CHASSIS, collection)));
    let client = service.connect().await;
    for _ in 0..2 {
        assert_eq!(ids(&client.read_members::<Named>(CHASSIS).await.unwrap()), ["3"]);
    }
    assert_eq!(client.requests(), 1 + 3 + 2);
}

#[tokio::test]
async fn nothing_is_expanded_that_was_not_offered() {
    let bare = get(|RawQuery(query): RawQuery| async move {
        assert_eq!(query, None);
        json_body(&json!({ "Members": [{ "@odata.id": "/redfish/v1/Chassis/1", "Name": "only a name" }] }))
    });
    let service = Service::http(one(root().route(CHASSIS, bare)));
    let client = service.connect().await;
    assert_eq!(ids(&client.read_members::<Named>(CHASSIS).await.unwrap()), ["1"]);
    // A reference with a name is still a reference: the member was read by itself.
    assert_eq!(service.recorder.count("GET", "/redfish/v1/Chassis/1"), 1);
}
