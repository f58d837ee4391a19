//! Every refusal states its cause with a registry message, at every path.

use super::{client, manager, password};
use poolwright_northbound::Running;
use poolwright_store::{Batch, SqliteStore, Store, Stored};
use reqwest::{Client, Version};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::Path;

const COMPOSE: &str = "/redfish/v1/CompositionService/Actions/CompositionService.Compose";
const SOURCES: &str = "/redfish/v1/AggregationService/AggregationSources";
const BLOCKS: &str = "/redfish/v1/CompositionService/ResourceBlocks";
const SUBSCRIPTIONS: &str = "/redfish/v1/EventService/Subscriptions";

struct Asking {
    running: Running,
    client: Client,
    password: String,
}

impl Asking {
    async fn of(dir: &Path) -> Self {
        let running = manager(dir).await;
        Self {
            client: client(&running),
            password: password(dir),
            running,
        }
    }

    async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let url = format!("https://{}{path}", self.running.address);
        let request = self.client.post(url).basic_auth("admin", Some(&self.password));
        let answer = request.json(body).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap_or_default())
    }

    async fn get(&self, path: &str) -> Value {
        let url = format!("https://{}{path}", self.running.address);
        let request = self.client.get(url).basic_auth("admin", Some(&self.password));
        request.send().await.unwrap().json().await.unwrap()
    }
}

/// The first message of a refusal: its id without the registry, its arguments, and its text.
fn first(answer: &Value) -> (String, Value, String) {
    let told = &answer["error"]["@Message.ExtendedInfo"][0];
    let text = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
    let id = text("MessageId")
        .rsplit('.')
        .next()
        .unwrap_or_default()
        .to_owned();
    (id, told["MessageArgs"].clone(), text("Message"))
}

#[tokio::test]
async fn an_address_that_can_be_nobodys_is_refused_and_one_where_nobody_is_may_be_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let asking = Asking::of(dir.path()).await;
    for (url, says) in [
        ("not a url", "can't be understood"),
        ("ftp://box-1", "ftp"),
        ("https://user:pw@box-1", "apart from it"),
        ("https://box-1/redfish?x", "leave out the path"),
        ("http://box-1", "plain http"),
        ("https://169.254.169.254", "169.254.0.0/16"),
        ("https://[fe80::1]", "link-local address (fe80::/10)"),
    ] {
        let (status, answer) = asking
            .post("/api/v1/endpoints", &json!({ "id": "box-1", "url": url }))
            .await;
        let error = &answer["error"];
        let text = error["message"].as_str().unwrap();
        assert!(status == 400 && text.contains(says), "{url}: {status} {answer}");
        assert!(error["hint"].is_string() && !text.contains("pw@"), "{answer}");
        let source = json!({ "Name": "box-1", "HostName": url });
        let (status, answer) = asking.post(SOURCES, &source).await;
        let (id, args, text) = first(&answer);
        assert_eq!(
            (status, id.as_str()),
            (400, "PropertyValueFormatError"),
            "{url}: {answer}"
        );
        assert!(args[1] == "HostName" && !text.contains("pw@"), "{answer}");
    }
    let silent = json!({ "id": "box-1", "url": "https://127.0.0.1:1" });
    assert_eq!(asking.post("/api/v1/endpoints", &silent).await.0, 503);
    // A Redfish client retries on `Retry-After`, but only an operator can fix an unreachable endpoint.
    let url = format!("https://{}{SOURCES}", asking.running.address);
    let request = asking
        .client
        .post(url)
        .basic_auth("admin", Some(&asking.password));
    let silent = json!({ "Name": "box-1", "HostName": "https://127.0.0.1:1" });
    let answer = request.json(&silent).send().await.unwrap();
    assert_eq!(answer.status(), 400);
    assert!(!answer.headers().contains_key("retry-after"));
    let answer: Value = answer.json().await.unwrap();
    let (id, args, _) = first(&answer);
    assert_eq!(
        (id.as_str(), &args),
        ("CouldNotEstablishConnection", &json!(["https://127.0.0.1:1"]))
    );
    let next = answer["error"]["@Message.ExtendedInfo"][0]["Resolution"].to_string();
    assert!(next.contains("Oem.Poolwright.Trust"), "{answer}");
    asking.running.stop().await;
}

#[tokio::test]
async fn what_no_resource_has_nobody_can_choose_by() {
    let dir = tempfile::tempdir().unwrap();
    let asking = Asking::of(dir.path()).await;
    let accounts = "/redfish/v1/AccountService/Accounts";
    let certificates = "/redfish/v1/Managers/Poolwright/NetworkProtocol/HTTPS/Certificates";
    for (place, filter, found) in [
        (accounts, "UserName eq 'admin'", Some(1)),
        (accounts, "AccountTypes eq 'Redfish'", Some(1)),
        (
            accounts,
            "AccountTypes/0 eq 'Redfish' and not (Enabled eq false)",
            Some(1),
        ),
        (accounts, "UserName eq 'kim'", Some(0)),
        (accounts, "Username eq 'admin'", None),
        // The collection is empty, but an unknown property is refused.
        (BLOCKS, "ResourceBlockType eq 'Processor'", Some(0)),
        (BLOCKS, "Nope eq 'x'", None),
        (certificates, "CertificateType ne 'x'", Some(1)),
        (certificates, "Nope eq 'x'", None),
    ] {
        let answer = asking.get(&format!("{place}?$filter={filter}")).await;
        match found {
            Some(found) => assert_eq!(answer["Members@odata.count"], found, "{filter}: {answer}"),
            None => {
                let (id, args, text) = first(&answer);
                assert_eq!(id, "QueryParameterOutOfRange", "{filter}: {answer}");
                assert_eq!(args[1], "$filter");
                assert!(text.contains(filter.split(' ').next().unwrap()), "{answer}");
            }
        }
    }
    let answer = asking.get(&format!("{accounts}?$filter=1 eq 1")).await;
    assert_eq!(first(&answer).0, "QueryParameterValueFormatError");
    asking.running.stop().await;
}

#[tokio::test]
async fn where_no_event_may_be_sent_the_reason_is_told_with_the_property() {
    let dir = tempfile::tempdir().unwrap();
    let asking = Asking::of(dir.path()).await;
    let body = json!({ "Destination": "https://127.0.0.1/", "Protocol": "Redfish" });
    let (status, answer) = asking.post(SUBSCRIPTIONS, &body).await;
    let told = &answer["error"]["@Message.ExtendedInfo"][0];
    assert_eq!(
        (status, &told["RelatedProperties"]),
        (400, &json!(["#/Destination"]))
    );
    let text = told["Message"].as_str().unwrap();
    for rule in [
        "127.0.0.1 is a loopback address",
        "127.0.0.0/8",
        "--insecure-event-loopback",
    ] {
        assert!(text.contains(rule), "{rule}: {answer}");
    }
    asking.running.stop().await;
}

#[tokio::test]
async fn who_asks_for_events_that_there_are_not_is_told_which_there_are() {
    let dir = tempfile::tempdir().unwrap();
    let asking = Asking::of(dir.path()).await;
    for (name, has) in [
        ("RegistryPrefixes", "TaskEvent"),
        ("ResourceTypes", "ComputerSystem"),
        ("MessageIds", "TaskEvent.1.0.TaskStarted"),
        ("EventTypes", ""),
    ] {
        let mut body = json!({ "Destination": "https://198.51.100.7/", "Protocol": "Redfish" });
        body[name] = json!(["Nope"]);
        let (status, answer) = asking.post(SUBSCRIPTIONS, &body).await;
        assert_eq!(
            (status, first(&answer).0.as_str()),
            (400, "PropertyValueNotInList"),
            "{answer}"
        );
        let next = answer["error"]["@Message.ExtendedInfo"][0]["Resolution"].to_string();
        assert!(next.contains(has), "{answer}");
        if !has.is_empty() {
            body[name] = json!([has]);
            assert_eq!(asking.post(SUBSCRIPTIONS, &body).await.0, 201, "{body}");
        }
    }
    asking.running.stop().await;
}

#[tokio::test]
async fn a_kind_and_a_model_that_nobody_knows_are_named_with_what_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let asking = Asking::of(dir.path()).await;
    let ours = |said: Value| json!({ "Oem": { "Poolwright": said } });
    let gpus = json!({ "Processors": { "Members": [
        { "@Redfish.RequestedCount": 1, "ProcessorType": "GPU", "Model": "A100" }] } });
    for (request, place) in [
        (gpus, "Processors/Members/0/Model"),
        (ours(json!({ "Gpus": 1, "Kind": "A100" })), "Oem/Poolwright/Kind"),
        (
            ours(json!({ "Model": "no-such-model", "Task": "infer" })),
            "Oem/Poolwright/Model",
        ),
    ] {
        let stanza = json!({ "StanzaType": "ComposeSystem", "StanzaId": "a", "Request": request });
        let preview = json!({ "RequestFormat": "Manifest", "RequestType": "Preview",
            "Manifest": { "Stanzas": [stanza] } });
        for (path, body) in [("/redfish/v1/Systems", &request), (COMPOSE, &preview)] {
            let (status, answer) = asking.post(path, body).await;
            assert_eq!(
                (status, first(&answer).0.as_str()),
                (400, "PropertyValueNotInList"),
                "{answer}"
            );
            let told = &answer["error"]["@Message.ExtendedInfo"][0];
            assert_eq!(
                told["RelatedProperties"],
                json!([format!("#/{place}")]),
                "{answer}"
            );
            assert!(told["Resolution"].as_str().unwrap().len() > 20, "{answer}");
        }
    }
    // A context is read as people write it; there is no GPU here to serve it.
    for (context, expected) in [(json!("8k"), 409), (json!(8192), 409), (json!("8 k"), 400)] {
        let body = ours(json!({ "Model": "8B", "Task": "infer", "Context": context }));
        let (status, answer) = asking.post("/redfish/v1/Systems", &body).await;
        assert_eq!(status, expected, "{context}: {answer}");
    }
    asking.running.stop().await;
}

#[tokio::test]
async fn what_is_wrong_with_an_action_names_the_action_or_the_parameter() {
    let dir = tempfile::tempdir().unwrap();
    let asking = Asking::of(dir.path()).await;
    let reset = "/redfish/v1/Systems/none/Actions/ComputerSystem.Reset";
    let (status, answer) = asking.post(reset, &json!({})).await;
    let (id, args, _) = first(&answer);
    assert_eq!(
        (status, id.as_str(), args),
        (404, "ResourceMissingAtURI", json!([reset])),
        "{answer}"
    );
    for (body, says) in [
        (json!({ "RequestType": "Apply" }), "RequestFormat is missing."),
        (
            json!({ "RequestFormat": "Template", "RequestType": "Apply" }),
            "Template is none of the values of RequestFormat.",
        ),
        (
            json!({ "RequestFormat": "Manifest", "RequestType": "Apply", "Colour": 1 }),
            "CompositionService.Compose has no parameter Colour.",
        ),
    ] {
        let (status, answer) = asking.post(COMPOSE, &body).await;
        assert_eq!(status, 400, "{answer}");
        let messages = answer["error"]["@Message.ExtendedInfo"].as_array().unwrap();
        assert!(
            messages.iter().any(|one| one["Message"] == says),
            "{says}: {answer}"
        );
    }
    asking.running.stop().await;
}

#[tokio::test]
async fn messages_have_the_arguments_of_their_registry() {
    let dir = tempfile::tempdir().unwrap();
    let asking = Asking::of(dir.path()).await;
    let blocks = json!({ "Links": { "ResourceBlocks": [] } });
    let (_, answer) = asking.post("/redfish/v1/Systems", &blocks).await;
    let (id, args, _) = first(&answer);
    assert_eq!(
        (id.as_str(), args.as_array().unwrap().len()),
        ("PropertyValueConflict", 2),
        "{answer}"
    );
    let kim = json!({ "UserName": "kim", "Password": "a password for kim", "RoleId": "ReadOnly",
        "PasswordChangeRequired": true });
    assert_eq!(
        asking.post("/redfish/v1/AccountService/Accounts", &kim).await.0,
        201
    );
    let login = json!({ "UserName": "kim", "Password": "a password for kim" });
    let (status, session) = asking.post("/redfish/v1/SessionService/Sessions", &login).await;
    let told = &session["@Message.ExtendedInfo"][0];
    assert_eq!(
        (status, &told["MessageArgs"]),
        (201, &json!(["/redfish/v1/AccountService/Accounts/kim"])),
        "{session}"
    );
    asking.running.stop().await;
}

#[tokio::test]
async fn a_body_that_is_too_long_is_told_so_by_whatever_protocol() {
    let dir = tempfile::tempdir().unwrap();
    let asking = Asking::of(dir.path()).await;
    let ca = reqwest::Certificate::from_pem(&std::fs::read(&asking.running.ca).unwrap()).unwrap();
    let older = Client::builder()
        .tls_certs_only([ca])
        .http1_only()
        .build()
        .unwrap();
    for (client, version) in [(&asking.client, Version::HTTP_2), (&older, Version::HTTP_11)] {
        for (path, most) in [("size", 1 << 20), ("simulations", 8 << 20), ("demands", 16 << 20)] {
            for beyond in [1, 2 << 20] {
                let request = client
                    .post(format!("https://{}/api/v1/{path}", asking.running.address))
                    .basic_auth("admin", Some(&asking.password))
                    .header("content-type", "application/json")
                    .body(vec![b' '; most + beyond]);
                let answer = request.send().await.unwrap();
                assert_eq!(
                    (answer.version(), answer.status().as_u16()),
                    (version, 413),
                    "{path}"
                );
                let answer: Value = answer.json().await.unwrap();
                let text = answer["error"]["message"].as_str().unwrap();
                assert!(text.contains(&format!("{most} bytes")), "{answer}");
                assert_eq!(answer["error"]["code"], "too-large");
            }
        }
    }
    asking.running.stop().await;
}

/// An endpoint as the store has it.
#[derive(Serialize, Deserialize)]
struct KeptEndpoint {
    id: String,
    url: String,
    added: String,
    standing: String,
}

impl Stored for KeptEndpoint {
    const KIND: &'static str = "endpoint";

    fn id(&self) -> &str {
        &self.id
    }
}

/// Fault 85: Redfish names no file of the manager's machine.
#[tokio::test]
async fn a_path_as_the_authority_of_an_aggregation_source_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let asking = Asking::of(dir.path()).await;
    let source = json!({
        "Name": "box-1", "HostName": "https://127.0.0.1:1",
        "Oem": { "Poolwright": { "Trust": { "ca-file": "/etc/hostname" } } },
    });
    let (status, answer) = asking.post(SOURCES, &source).await;
    assert_eq!(
        (status, first(&answer).0.as_str()),
        (400, "PropertyValueFormatError")
    );
    asking.running.stop().await;
}

#[tokio::test]
async fn an_aggregation_source_is_tested_by_an_action_that_it_names() {
    let dir = tempfile::tempdir().unwrap();
    {
        let store = SqliteStore::open(dir.path()).unwrap();
        let kept = KeptEndpoint {
            id: "box-1".to_owned(),
            url: "https://127.0.0.1:1".to_owned(),
            added: "2026-01-01T00:00:00Z".to_owned(),
            standing: "observed".to_owned(),
        };
        let mut batch = Batch::new();
        batch.put(&kept).unwrap();
        store.commit(batch).await.unwrap();
    }
    let asking = Asking::of(dir.path()).await;
    let place = "/redfish/v1/AggregationService/AggregationSources/box-1";
    let source = asking.get(place).await;
    let action = &source["Actions"]["Oem"]["#PoolwrightAggregationSource.Test"];
    let target = action["target"].as_str().unwrap_or_else(|| panic!("{source}"));
    let (status, answer) = asking.post(target, &json!({})).await;
    let (id, _, text) = first(&answer);
    assert_eq!(
        (status, id.as_str()),
        (502, "CouldNotEstablishConnection"),
        "{text}"
    );
    assert!(text.contains("nobody answers at https://127.0.0.1:1"), "{text}");
    let (status, answer) = asking.post(target, &json!({ "Deep": true })).await;
    let (id, _, text) = first(&answer);
    assert_eq!((status, id.as_str()), (400, "ActionParameterUnknown"), "{text}");
    for elsewhere in [
        format!("{place}/Actions/Oem/PoolwrightAggregationSource.Other"),
        target.replace("box-1", "box-2"),
    ] {
        assert_eq!(asking.post(&elsewhere, &json!({})).await.0, 404, "{elsewhere}");
    }
    asking.running.stop().await;
}

/// Reservations as the store has them.
#[derive(Serialize, Deserialize)]
struct Kept {
    all: Vec<Value>,
}

impl Stored for Kept {
    const KIND: &'static str = "reservations";

    fn id(&self) -> &'static str {
        "all"
    }
}

#[tokio::test]
async fn beside_a_reservation_no_other_manifest_is_applied_than_was_reserved() {
    let dir = tempfile::tempdir().unwrap();
    let stanza = |id: &str, name: &str| {
        let links =
            json!({ "ResourceBlocks": [{ "@odata.id": "/redfish/v1/CompositionService/ResourceBlocks/b" }] });
        json!({ "StanzaType": "ComposeSystem", "StanzaId": id, "Request": { "Name": name, "Links": links } })
    };
    let reserved = json!({ "Expand": "None", "Stanzas": [stanza("one", "farm")] });
    let kept = json!({
        "id": "kept", "by": "admin", "since": "2026-01-01T00:00:00Z", "until": "2999-01-01T00:00:00Z",
        "parts": [{ "stanza": "one", "label": "farm", "host": "host-1", "places": [
            { "unit": "gpu-1", "gpus": ["gpu-1"] }] }],
        "asked": reserved,
    });
    {
        let store = SqliteStore::open(dir.path()).unwrap();
        let mut batch = Batch::new();
        batch.put(&Kept { all: vec![kept] }).unwrap();
        store.commit(batch).await.unwrap();
    }
    let asking = Asking::of(dir.path()).await;
    let place = "/redfish/v1/CompositionService/CompositionReservations/kept";
    let shown = asking.get(place).await;
    assert_eq!(shown["Manifest"], reserved, "{shown}");
    let apply = async |stanzas: Value| {
        let body = json!({ "RequestFormat": "Manifest", "RequestType": "Apply", "ReservationId": "kept",
            "Manifest": { "Stanzas": stanzas } });
        let (status, answer) = asking.post(COMPOSE, &body).await;
        let (id, _, text) = first(&answer);
        (status, id, text)
    };
    for (stanzas, says) in [
        (
            json!([stanza("one", "other")]),
            "Stanza one is not as reservation kept",
        ),
        (json!([stanza("two", "farm")]), "is of the stanzas one."),
        (
            json!([stanza("one", "farm"), stanza("two", "farm")]),
            "is of the stanzas one.",
        ),
    ] {
        let (status, id, text) = apply(stanzas).await;
        assert_eq!(
            (status, id.as_str()),
            (400, "ActionParameterValueConflict"),
            "{text}"
        );
        assert!(text.contains(says), "{text}");
    }
    // The same goes on to where it is seen that no such GPU is there any more.
    let (status, id, text) = apply(json!([stanza("one", "farm")])).await;
    assert!(
        status != 400 && id != "ActionParameterValueConflict",
        "{status} {text}"
    );
    asking.running.stop().await;
}

fn decompose(id: &str, system: &str) -> Value {
    let place = format!("/redfish/v1/Systems/{system}");
    json!({ "StanzaType": "DecomposeSystem", "StanzaId": id, "Request": { "@odata.id": place } })
}

#[tokio::test]
async fn what_keeps_nothing_or_can_never_be_applied_is_not_reserved() {
    let dir = tempfile::tempdir().unwrap();
    let asking = Asking::of(dir.path()).await;
    let reserve = async |stanzas: Value| {
        let body = json!({ "RequestFormat": "Manifest", "RequestType": "PreviewReserve",
            "Manifest": { "Stanzas": stanzas } });
        let (status, answer) = asking.post(COMPOSE, &body).await;
        let (id, _, text) = first(&answer);
        (status, id, text)
    };
    let (status, id, text) = reserve(json!([decompose("old", "nobody")])).await;
    assert_eq!(
        (status, id.as_str()),
        (400, "ActionParameterValueConflict"),
        "{text}"
    );
    assert!(text.contains("nothing to be reserved"), "{text}");
    // The check for the system comes before the search for a GPU.
    let wish = json!({ "StanzaType": "ComposeSystem", "StanzaId": "new", "Request": {
        "Processors": { "Members": [{ "@Redfish.RequestedCount": 1, "ProcessorType": "GPU" }] } } });
    let (status, _, text) = reserve(json!([wish, decompose("old", "nobody")])).await;
    assert_eq!(status, 404, "{text}");
    assert!(text.contains("/redfish/v1/Systems/nobody"), "{text}");
    asking.running.stop().await;
}

#[tokio::test]
async fn what_was_done_of_a_reserved_manifest_does_not_stop_it_when_it_is_applied_again() {
    let dir = tempfile::tempdir().unwrap();
    let new = json!({ "StanzaType": "ComposeSystem", "StanzaId": "new", "Request": { "Name": "farm" } });
    let kept = json!({
        "id": "kept", "by": "admin", "since": "2026-01-01T00:00:00Z", "until": "2999-01-01T00:00:00Z",
        "parts": [{ "stanza": "new", "label": "farm", "host": "host-1", "composed": true, "places": [
            { "unit": "gpu-1", "gpus": ["gpu-1"] }] }],
        "asked": { "Expand": "None", "Stanzas": [new, decompose("first", "gone"), decompose("last", "too")] },
    });
    {
        let store = SqliteStore::open(dir.path()).unwrap();
        let mut batch = Batch::new();
        batch.put(&Kept { all: vec![kept] }).unwrap();
        store.commit(batch).await.unwrap();
    }
    let asking = Asking::of(dir.path()).await;
    let body = json!({ "RequestFormat": "Manifest", "RequestType": "Apply", "ReservationId": "kept" });
    let (status, answer) = asking.post(COMPOSE, &body).await;
    // If no stanza can begin, the answer is the error of the last one.
    let (_, _, text) = first(&answer);
    assert_eq!(status, 404, "{text}");
    assert!(text.contains("/redfish/v1/Systems/too"), "{text}");
    asking.running.stop().await;
}

#[tokio::test]
async fn an_array_in_place_of_an_object_is_refused_by_the_schema_of_the_route() {
    let dir = tempfile::tempdir().unwrap();
    let asking = Asking::of(dir.path()).await;
    for (path, body, place) in [
        ("/demands", json!({ "id": "a", "gpus": 1, "queue": [] }), "queue"),
        (
            "/declare",
            json!({ "what": { "demands": [{ "id": "a", "gpus": 1 }, ["b"]] } }),
            "what.demands[1]",
        ),
        ("/operations/none/undo", json!({ "how": [] }), "how"),
    ] {
        let (status, answer) = asking.post(&format!("/api/v1{path}"), &body).await;
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        let refusal = format!("{place} must be an object, {{…}}, and not an array");
        assert_eq!((status, message), (400, refusal.as_str()), "{path}: {answer}");
    }
    asking.running.stop().await;
}
