//! The property tables and the checks against what DMTF publishes besides the CSDL: its JSON Schemas, which are
//! converted from the same source by other hands, and its examples of requests.

use crate::common;
use std::collections::BTreeMap;

use poolwright_redfish_model::check::check_action;
use poolwright_redfish_model::schema::{self, Access, Kind, Property, Type};
use serde_json::{Map, Value};

/// What the examples themselves have wrong, by DMTF's own schemas.
const MISTAKES: &[&str] = &[
    "LogEntriesEtag",    // it is LogEntriesETag
    "AdditionalDataUri", // it is AdditionalDataURI …
    "AdditionalDataURI", // … which is missing therefore
    "NewManager",        // a list in place of a link
    "RegionId",          // a number in place of a text
    "TargetDevices",     // texts in place of links
];

#[test]
fn example_requests_pass_the_checks() {
    let Some(archive) = common::shared("redfish/mockups/dmtf-DSP2046-examples.tar.gz") else {
        return;
    };
    let paths: Vec<String> = common::paths(&archive)
        .into_iter()
        .filter(|path| path.ends_with("-request-example.json"))
        .collect();
    let requests = common::documents(&archive, "*-request-example.json");
    assert_eq!(paths.len(), requests.len());
    let mut checked = 0;
    let mut failures = Vec::new();
    for (path, request) in paths.iter().zip(requests) {
        // Zone-v1-AddEndpoint-request-example.json
        let file = path.rsplit('/').next().unwrap_or(path);
        let parts: Vec<&str> = file.split('-').collect();
        let Some(schema) = schema::by_odata_type(&format!("{0}.{0}", parts[0])) else {
            continue;
        };
        let body: Value = serde_json::from_str(request.get()).expect("JSON that was read before");
        let found = check_action(schema, &format!("{}.{}", parts[0], parts[2]), &body);
        checked += 1;
        failures.extend(
            found
                .iter()
                .map(|violation| format!("{file}: {} {:?}", violation.message, violation.args)),
        );
    }
    failures.retain(|failure| !MISTAKES.iter().any(|mistake| failure.contains(mistake)));
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(checked > 30, "only {checked} requests were of a known type");
}

#[test]
fn tables_say_what_the_json_schemas_say() {
    let Some(archive) = common::shared("redfish/schemas.tar.gz") else {
        return;
    };
    let types = common::all_types();
    let mut compared = 0;
    let mut differences = Vec::new();
    for document in common::documents(&archive, "json-schema/*.json") {
        let document: Value = serde_json::from_str(document.get()).expect("JSON that was read before");
        let Some((schema, _)) = document["title"]
            .as_str()
            .and_then(|t| t.strip_prefix('#')?.split_once('.'))
        else {
            continue;
        };
        let definitions = document["definitions"]
            .as_object()
            .expect("a schema has definitions");
        for (name, definition) in definitions {
            let Some(found) = types.get(format!("{schema}.{name}").as_str()) else {
                continue;
            };
            // The file without a version only points to those with one.
            let Some(properties) = definition["properties"].as_object() else {
                continue;
            };
            for (property, stated) in properties.iter().filter(|(name, _)| !name.contains(['@', '#'])) {
                compared += 1;
                let difference = match found.property(property) {
                    None => Some("is not in the table".to_owned()),
                    Some(listed) => difference(found, listed, definition, stated, definitions),
                };
                differences.extend(difference.map(|what| format!("{schema}.{name}/{property} {what}")));
            }
        }
    }
    println!("{compared} properties compared");
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(compared > 1000, "only {compared} properties were compared");
}

#[test]
fn tables_know_the_actions_of_the_json_schemas() {
    let Some(archive) = common::shared("redfish/schemas.tar.gz") else {
        return;
    };
    let mut compared = 0;
    let mut differences = Vec::new();
    for document in common::documents(&archive, "json-schema/*.json") {
        let document: Value = serde_json::from_str(document.get()).expect("JSON that was read before");
        let Some(resource) = document["title"].as_str().and_then(schema::by_odata_type) else {
            continue;
        };
        let namespace = resource.name.split('.').next().unwrap_or_default();
        let definitions = document["definitions"]
            .as_object()
            .expect("a schema has definitions");
        for (name, definition) in definitions {
            let Some(parameters) = definition["parameters"].as_object() else {
                continue;
            };
            compared += 1;
            let stated: BTreeMap<&str, bool> = parameters
                .iter()
                .map(|(name, stated)| (name.as_str(), stated["requiredParameter"] == true))
                .collect();
            let listed: Option<BTreeMap<&str, bool>> = resource
                .action(&format!("{namespace}.{name}"))
                .map(|action| action.parameters.iter().map(|p| (p.name, p.required)).collect());
            if listed.as_ref() != Some(&stated) {
                differences.push(format!(
                    "{namespace}.{name}: {stated:?} in the JSON Schema, {listed:?} in the table"
                ));
            }
        }
    }
    println!("{compared} actions compared");
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(compared > 50, "only {compared} actions were compared");
}

fn difference(
    schema: &Type,
    listed: &Property,
    definition: &Value,
    stated: &Value,
    definitions: &Map<String, Value>,
) -> Option<String> {
    let names = |list: &str| {
        definition[list]
            .as_array()
            .is_some_and(|list| list.contains(&listed.name.into()))
    };
    let differs = |what: &str, stated: bool, listed: bool| {
        (stated != listed).then(|| format!("{what}: {stated} in the JSON Schema, {listed} in the table"))
    };
    let items = if listed.many { &stated["items"] } else { stated };
    let read_only = stated["readonly"].as_bool();
    let mut json_types: Vec<&str> = match &items["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    json_types.extend(
        items["anyOf"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|one| one["type"].as_str()),
    );
    let json_type = match listed.kind {
        Kind::Boolean => "boolean",
        Kind::Integer => "integer",
        Kind::Decimal => "number",
        Kind::Text | Kind::DateTime | Kind::Duration | Kind::Guid => "string",
        Kind::Enum(_) | Kind::Object(_) | Kind::Link(_) => "",
    };
    let stated_type = !json_type.is_empty() && items["type"] != Value::Null;
    // An enumeration of the same schema; null stands beside it.
    let reference = items["$ref"]
        .as_str()
        .or_else(|| items["anyOf"][0]["$ref"].as_str());
    let members = reference
        .and_then(|reference| definitions[reference.strip_prefix("#/definitions/")?]["enum"].as_array());
    let members_differ = match (members, &listed.kind) {
        (Some(stated), Kind::Enum(listed)) => !stated
            .iter()
            .all(|member| member.as_str().is_some_and(|member| listed.contains(&member))),
        (Some(_), _) => true,
        (None, _) => false,
    };
    differs("required", names("required"), listed.required)
        .or(differs(
            "required on create",
            names("requiredOnCreate"),
            listed.required_on_create,
        ))
        .or(read_only.and_then(|stated| {
            differs(
                "read-only",
                stated,
                matches!(listed.access, Access::Read | Access::Create),
            )
        }))
        .or(differs("a list", stated["type"] == "array", listed.many))
        .or((stated_type && !json_types.contains(&json_type)).then(|| {
            format!(
                "is {json_types:?} in the JSON Schema, {:?} in the table",
                listed.kind
            )
        }))
        .or(
            (!listed.many && !matches!(listed.kind, Kind::Object(_) | Kind::Link(_)))
                .then(|| differs("nullable", json_types.contains(&"null"), listed.nullable))
                .flatten(),
        )
        .or(members_differ.then(|| format!("has other members in the JSON Schema: {members:?}")))
        .map(|what| format!("{what} ({})", schema.name))
}
