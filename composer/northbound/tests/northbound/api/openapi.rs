//! The OpenAPI document: what it says is served, and nothing else is; and it is what `docs/API.md` says.

use super::{client, manager, password};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Method and path, as `GET /demands/{id}`.
fn operations(document: &Value) -> BTreeSet<String> {
    let paths = document["paths"].as_object().unwrap();
    let of = |(path, methods): (&String, &Value)| {
        let methods: Vec<String> = methods.as_object().unwrap().keys().cloned().collect();
        let path = path.clone();
        methods
            .into_iter()
            .map(move |method| format!("{} {path}", method.to_uppercase()))
    };
    paths.iter().flat_map(of).collect()
}

/// What the page for people lists below `/api/v1`.
fn written_down() -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/API.md");
    let page = std::fs::read_to_string(page).unwrap();
    let quoted = page.split('`').skip(1).step_by(2);
    let is_path = |text: &&str| {
        let path = text.split_once(" /");
        path.is_some_and(|(method, path)| {
            method.chars().all(|c| c.is_ascii_uppercase())
                && !path.starts_with("redfish")
                && !["livez", "readyz"].contains(&path)
        })
    };
    quoted.filter(is_path).map(str::to_owned).collect()
}

#[tokio::test]
async fn every_route_is_in_the_openapi_document_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let running = manager(dir.path()).await;
    let (client, password) = (client(&running), password(dir.path()));
    let ask = async |method: &str, path: &str| {
        let url = format!("https://{}/api/v1{path}", running.address);
        let request = client.request(method.parse().unwrap(), url);
        let answer = request.basic_auth("admin", Some(&password)).send().await.unwrap();
        (
            answer.status().as_u16(),
            answer.json::<Value>().await.unwrap_or_default(),
        )
    };
    let (status, document) = ask("GET", "/openapi.json").await;
    assert_eq!((status, &document["openapi"]), (200, &"3.1.0".into()));
    let listed = operations(&document);
    assert_eq!(listed, written_down(), "docs/API.md says something else");

    let paths = document["paths"].as_object().unwrap().keys();
    for path in paths {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            let (status, body) = ask(method, &path.replace("{id}", "nobody")).await;
            let is_listed = listed.contains(&format!("{method} {path}"));
            assert_eq!(status != 405, is_listed, "{method} {path}: {status}");
            let said = body["error"]["message"].as_str().unwrap_or_default();
            assert!(!said.starts_with("there is no GET"), "{method} {path}: {said}");
            assert!(
                status < 300 || body["error"]["code"].is_string(),
                "{method} {path}: {body}"
            );
        }
    }
    running.stop().await;
}

#[tokio::test]
async fn the_document_is_whole_and_knows_what_a_body_may_hold() {
    let dir = tempfile::tempdir().unwrap();
    let running = manager(dir.path()).await;
    let url = format!("https://{}/api/v1/openapi.json", running.address);
    let request = client(&running).get(url);
    let answer = request
        .basic_auth("admin", Some(password(dir.path())))
        .send()
        .await;
    let document: Value = answer.unwrap().json().await.unwrap();

    // Whatever it refers to is in it.
    let text = document.to_string();
    let references = text.split("\"$ref\":\"#").skip(1);
    let references: BTreeSet<&str> = references.filter_map(|rest| rest.split('"').next()).collect();
    assert!(references.len() > 15, "{references:?}");
    for reference in references {
        assert!(document.pointer(reference).is_some(), "{reference} is nowhere");
    }
    // What is answered is told by its type, wherever there is a body.
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            for status in ["200", "201", "202"] {
                let schema = &operation["responses"][status]["content"]["application/json"]["schema"];
                let schema = schema.get("items").unwrap_or(schema);
                let is_told = schema.is_null() || schema["$ref"].is_string() || path == "/openapi.json";
                assert!(is_told, "{method} {path} {status}: {schema}");
            }
        }
    }
    let gpu = &document["components"]["schemas"]["Gpu"];
    assert_eq!(gpu["properties"]["composable"]["type"], "boolean");
    let demand = &document["components"]["schemas"]["DemandSpec"];
    assert_eq!(demand["required"], serde_json::json!(["id"]));
    assert_eq!(demand["additionalProperties"], false);
    assert_eq!(demand["properties"]["priority"]["format"], "int32");
    // What may be left out of a body is in each answer.
    let shown = &document["components"]["schemas"]["DemandSpec-Output"]["required"];
    assert!(
        shown.as_array().unwrap().contains(&"priority".into()),
        "{demand} {shown}"
    );
    let listed = &document["paths"]["/schedule-openings"]["get"]["parameters"];
    let names = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|parameter| &parameter["name"]);
    assert_eq!(names.collect::<Vec<_>>(), ["schedule", "most"]);
    running.stop().await;
}
