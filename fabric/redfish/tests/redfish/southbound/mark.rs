//! Writing an owner's mark at services of several makes.

use crate::southbound::service::{DEADLINE, DONE, Documents, Reply, Service};
use poolwright_driver::{ErrorKind, Fabric};
use serde_json::{Value, json};

const ROOT: &str = "/redfish/v1";
const MANAGERS: &str = "/redfish/v1/Managers";
const MANAGER: &str = "/redfish/v1/Managers/1";
const OURS: &str = "poolwright:a";

/// A service with one manager, which shows this beside its name; its root names only the collection.
async fn service(
    shows: Value,
    on_patch: impl FnMut(&mut Documents, &str) -> Reply + Send + 'static,
) -> Service {
    let mut documents = Documents::default();
    let mut manager = json!({"@odata.type": "#Manager.v1_15_0.Manager", "Name": "Manager"});
    for (name, value) in shows.as_object().unwrap() {
        manager[name] = value.clone();
    }
    documents.put(MANAGER, manager);
    documents.collection(MANAGERS, "Manager", &[MANAGER]);
    let mut on_patch = on_patch;
    let service = Service::start(documents, move |documents, sent| {
        let mark = sent.body["ServiceIdentification"].as_str().unwrap().to_owned();
        on_patch(documents, &mark)
    })
    .await;
    service.with(|documents| {
        let mut root = documents.get(ROOT).clone();
        root["Managers"] = json!({"@odata.id": MANAGERS});
        documents.put(ROOT, root);
    });
    service
}

/// What a service does that has the property.
fn takes_it(documents: &mut Documents, mark: &str) -> Reply {
    documents.set(MANAGER, "/ServiceIdentification", json!(mark));
    let mut root = documents.get(ROOT).clone();
    root["ServiceIdentification"] = json!(mark);
    documents.put(ROOT, root);
    DONE
}

#[tokio::test]
async fn a_blank_is_empty_text_or_null_and_the_write_is_conditional() {
    for blank in [json!(""), json!(null)] {
        let service = service(json!({"ServiceIdentification": blank}), takes_it).await;
        let etag = service.with(|documents| documents.etag(MANAGER));
        service.driver.set_mark(Some(OURS), None, DEADLINE).await.unwrap();
        let sent = service.sent();
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0].line(), format!("PATCH {MANAGER}"));
        assert_eq!(sent[0].if_match.as_ref(), Some(&etag));
        assert_eq!(sent[0].body, json!({"ServiceIdentification": OURS}));
        assert_eq!(
            service.driver.observe(&()).await.unwrap().mark.as_deref(),
            Some(OURS)
        );
    }
}

#[tokio::test]
async fn a_service_without_the_property_is_sent_nothing() {
    let service = service(json!({}), takes_it).await;
    let error = service
        .driver
        .set_mark(Some(OURS), None, DEADLINE)
        .await
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::CannotTell, "{error}");
    assert!(service.sent().is_empty());
}

#[tokio::test]
async fn another_mark_is_left_where_it_stands() {
    let service = service(json!({"ServiceIdentification": "poolwright:b"}), takes_it).await;
    let error = service
        .driver
        .set_mark(Some(OURS), None, DEADLINE)
        .await
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    assert!(error.message.contains("poolwright:b"), "{error}");
    assert!(service.sent().is_empty());
}

#[tokio::test]
async fn a_yes_that_the_root_does_not_show_is_not_believed() {
    let service = service(json!({"ServiceIdentification": ""}), |_, _| DONE).await;
    let error = service
        .driver
        .set_mark(Some(OURS), None, DEADLINE)
        .await
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::OutcomeUnknown, "{error}");
}
