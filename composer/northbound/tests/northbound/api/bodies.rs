//! What a Redfish client may say: anything else is refused with where it stands, and nothing is done.

use super::{client, manager, password};
use serde_json::{Value, json};

/// A body, and what is wrong with it: the message, and the property that it is about.
type Wrong = (&'static str, &'static str, Value, &'static str, &'static str);

const SYSTEMS: &str = "Systems";
const ACCOUNTS: &str = "AccountService/Accounts";
const SOURCES: &str = "AggregationService/AggregationSources";
const SUBSCRIPTIONS: &str = "EventService/Subscriptions";
const COMPOSE: &str = "CompositionService/Actions/CompositionService.Compose";

/// One GPU, with more beside.
fn gpu(more: Value) -> Value {
    let mut gpu = json!({ "@Redfish.RequestedCount": 1, "ProcessorType": "GPU" });
    for (name, value) in more.as_object().unwrap() {
        gpu[name] = value.clone();
    }
    json!({ "Processors": { "Members": [gpu] } })
}

fn with(mut body: Value, name: &str, value: Value) -> Value {
    body[name] = value;
    body
}

fn ours(said: Value) -> Value {
    json!({ "Oem": { "Poolwright": said } })
}

fn manifest(stanza: Value) -> Value {
    json!({ "RequestFormat": "Manifest", "RequestType": "Preview", "Manifest": { "Stanzas": [stanza] } })
}

fn of_systems() -> Vec<Wrong> {
    let one = || gpu(json!({}));
    let block =
        |more: Value| json!({ "Links": { "ResourceBlocks": [with(more, "@odata.id", json!("/none"))] } });
    let of = |body, message, place| ("POST", SYSTEMS, body, message, place);
    vec![
        of(
            gpu(json!({ "TotalCores": 8 })),
            "PropertyNotWritable",
            "Processors/Members/0/TotalCores",
        ),
        of(
            gpu(json!({ "Colour": 8 })),
            "PropertyUnknown",
            "Processors/Members/0/Colour",
        ),
        of(
            gpu(json!({ "@Redfish.RequestCount": 1 })),
            "PropertyUnknown",
            "Processors/Members/0/@Redfish.RequestCount",
        ),
        of(
            gpu(json!({ "MemorySummary": { "ECCModeEnabled": true } })),
            "PropertyNotWritable",
            "Processors/Members/0/MemorySummary/ECCModeEnabled",
        ),
        of(
            gpu(json!({ "ProcessorType": "CPU" })),
            "PropertyValueNotInList",
            "Processors/Members/0/ProcessorType",
        ),
        of(
            gpu(json!({ "@Redfish.RequestedCount": "two" })),
            "PropertyValueTypeError",
            "Processors/Members/0/@Redfish.RequestedCount",
        ),
        of(
            json!({ "Processors": { "Members": [{}] } }),
            "PropertyMissing",
            "Processors/Members/0/@Redfish.RequestedCount",
        ),
        of(
            json!({ "Processors": { "Members": [{}, {}] } }),
            "ArraySizeTooLong",
            "Processors/Members",
        ),
        of(
            json!({ "Processors": { "@odata.id": "/redfish/v1/Systems" } }),
            "PropertyUnknown",
            "Processors/@odata.id",
        ),
        of(
            with(one(), "Description", json!("mine")),
            "PropertyNotWritable",
            "Description",
        ),
        of(
            with(one(), "Links", json!({ "Chassis": [] })),
            "PropertyNotWritable",
            "Links/Chassis",
        ),
        of(
            with(one(), "@Redfish.ZoneAffinity", json!("1")),
            "PropertyUnknown",
            "@Redfish.ZoneAffinity",
        ),
        of(
            with(one(), "Oem", json!({ "Contoso": {} })),
            "PropertyNotWritable",
            "Oem/Contoso",
        ),
        of(
            block(json!({ "Name": 1 })),
            "PropertyNotWritable",
            "Links/ResourceBlocks/0/Name",
        ),
        of(
            with(block(json!({})), "Processors", json!({})),
            "PropertyValueConflict",
            "Processors",
        ),
        of(
            with(block(json!({})), "Oem", json!({ "Poolwright": {} })),
            "PropertyValueConflict",
            "Oem/Poolwright",
        ),
        of(
            with(one(), "Oem", ours(json!({ "Gpus": 2 }))["Oem"].take()),
            "PropertyValueConflict",
            "Oem/Poolwright/Gpus",
        ),
        of(
            ours(json!({ "Model": "8B", "Id": "x" })),
            "PropertyValueConflict",
            "Oem/Poolwright/Id",
        ),
        of(
            ours(json!({ "Model": "8B", "Colour": "red" })),
            "PropertyUnknown",
            "Oem/Poolwright/Colour",
        ),
        of(
            ours(json!({ "model": "8B" })),
            "PropertyUnknown",
            "Oem/Poolwright/model",
        ),
        of(
            ours(json!({ "Model": "8B", "Context": "long" })),
            "PropertyValueFormatError",
            "Oem/Poolwright/Context",
        ),
        (
            "POST",
            COMPOSE,
            manifest(json!({ "StanzaType": "ComposeSystem", "StanzaId": "a",
            "Request": gpu(json!({ "TotalCores": 8 })) })),
            "PropertyNotWritable",
            "Manifest/Stanzas/0/Request/Processors/Members/0/TotalCores",
        ),
        (
            "POST",
            COMPOSE,
            manifest(
                json!({ "StanzaType": "ComposeSystem", "StanzaId": "a", "Request": {}, "Response": {} }),
            ),
            "ActionParameterNotSupported",
            "Manifest/Stanzas/0/Response",
        ),
    ]
}

fn of_the_rest() -> Vec<Wrong> {
    let account = || json!({ "UserName": "kim", "Password": "a password for kim", "RoleId": "ReadOnly" });
    let binding = json!({ "RoleId": "Operator", "Scope": "pool", "Until": "noon" });
    let listener = || json!({ "Destination": "https://198.51.100.7/", "Protocol": "Redfish" });
    let source = || json!({ "HostName": "https://127.0.0.1:1" });
    let log_in = json!({ "UserName": "admin", "Password": "x", "SessionType": "WebUI" });
    let certificate = json!({ "CertificateUri": { "@odata.id": "/", "Name": "x" } });
    let event = json!({ "MessageId": "ResourceEvent.1.4.TestMessage", "EventGroupId": 1 });
    vec![
        (
            "POST",
            "SessionService/Sessions",
            log_in,
            "PropertyNotWritable",
            "SessionType",
        ),
        (
            "POST",
            ACCOUNTS,
            with(account(), "Description", json!("x")),
            "PropertyNotWritable",
            "Description",
        ),
        (
            "POST",
            ACCOUNTS,
            with(account(), "AccountTypes", json!(["OEM"])),
            "PropertyValueNotInList",
            "AccountTypes",
        ),
        (
            "POST",
            ACCOUNTS,
            with(account(), "Oem", json!({ "Contoso": 1 })),
            "PropertyNotWritable",
            "Oem/Contoso",
        ),
        (
            "POST",
            ACCOUNTS,
            with(
                account(),
                "Oem",
                ours(json!({ "Bindings": [binding] }))["Oem"].take(),
            ),
            "PropertyValueFormatError",
            "Oem/Poolwright/Bindings/0/Until",
        ),
        (
            "PATCH",
            "AccountService/Accounts/admin",
            json!({ "Description": "x" }),
            "PropertyNotWritable",
            "Description",
        ),
        (
            "PATCH",
            "AccountService/Accounts/admin",
            json!({ "Oem": { "Contoso": 1 } }),
            "PropertyNotWritable",
            "Oem/Contoso",
        ),
        (
            "POST",
            SUBSCRIPTIONS,
            with(listener(), "Name", json!("x")),
            "PropertyNotWritable",
            "Name",
        ),
        (
            "POST",
            SUBSCRIPTIONS,
            with(
                listener(),
                "OriginResources",
                json!([{ "@odata.id": "/", "Name": "x" }]),
            ),
            "PropertyNotWritable",
            "OriginResources/0/Name",
        ),
        (
            "POST",
            "EventService/Actions/EventService.SubmitTestEvent",
            event,
            "ActionParameterNotSupported",
            "EventGroupId",
        ),
        (
            "POST",
            SOURCES,
            with(source(), "SNMP", json!({})),
            "PropertyNotWritable",
            "SNMP",
        ),
        (
            "POST",
            SOURCES,
            with(source(), "Oem", ours(json!({ "Colour": 1 }))["Oem"].take()),
            "PropertyValueFormatError",
            "Oem/Poolwright/Colour",
        ),
        (
            "POST",
            SOURCES,
            with(source(), "Oem", ours(json!({ "Adopted": "yes" }))["Oem"].take()),
            "PropertyValueFormatError",
            "Oem/Poolwright/Adopted",
        ),
        (
            "POST",
            "JobService/Jobs/none/Actions/Job.Suspend",
            json!({ "Colour": 1 }),
            "ActionParameterUnknown",
            "Colour",
        ),
        (
            "POST",
            "CertificateService/Actions/CertificateService.ReplaceCertificate",
            certificate,
            "ActionParameterUnknown",
            "CertificateUri/Name",
        ),
    ]
}

#[tokio::test]
async fn what_is_not_understood_is_refused_with_where_it_stands() {
    let dir = tempfile::tempdir().unwrap();
    let running = manager(dir.path()).await;
    let (client, password) = (client(&running), password(dir.path()));
    let send = async |method: &str, place: &str, body: &str| {
        let url = format!("https://{}/redfish/v1/{place}", running.address);
        let request = client.request(method.parse().unwrap(), url);
        let request = request.basic_auth("admin", Some(&password));
        let request = request
            .header("content-type", "application/json")
            .body(body.to_owned());
        let answer = request.send().await.unwrap();
        (
            answer.status().as_u16(),
            answer.json::<Value>().await.unwrap_or_default(),
        )
    };
    let mut strange = Vec::new();
    for (method, place, body, message, path) in of_systems().into_iter().chain(of_the_rest()) {
        let (status, answer) = send(method, place, &body.to_string()).await;
        let names_it = |one: &Value| {
            one["MessageId"]
                .as_str()
                .is_some_and(|id| id.ends_with(&format!(".{message}")))
                && one["RelatedProperties"] == json!([format!("#/{path}")])
        };
        let mut told = answer["error"]["@Message.ExtendedInfo"]
            .as_array()
            .into_iter()
            .flatten();
        if status != 400 || !told.any(names_it) {
            strange.push(format!(
                "{method} {place} {body}: no {message} of {path}: {status} {answer}"
            ));
        }
    }
    assert!(strange.is_empty(), "{}", strange.join("\n"));
    // What is understood is not refused for its form: there is no GPU, no job, no system.
    let typed = with(
        gpu(json!({ "@Redfish.AllowOverprovisioning": false })),
        "@odata.type",
        json!("#x"),
    );
    for (place, body, status) in [
        (SYSTEMS, typed.to_string(), 409),
        (
            SYSTEMS,
            ours(json!({ "Model": "8B", "Task": "infer", "@odata.type": "#x" })).to_string(),
            409,
        ),
        ("JobService/Jobs/none/Actions/Job.Suspend", String::new(), 404),
        ("JobService/Jobs/none/Actions/Job.Suspend", "{}".to_owned(), 404),
    ] {
        let (answered, answer) = send("POST", place, &body).await;
        assert_eq!(answered, status, "{place} {body}: {answer}");
    }
    running.stop().await;
}
