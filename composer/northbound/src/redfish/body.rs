//! Bodies of requests, read in one strict way: held against DMTF's schema, and then against what is understood of it at
//! this place. What a body says beyond that is refused with where it stands, for it would be a promise that is not kept.
//!
//! What is understood is a list of paths such as `Links/ResourceBlocks/*/@odata.id`, with `*` for each entry of a list. What
//! stands below the end of one is for its reader to understand; what is our own is read by its type ([`ours`]).
//!
//! OData's annotations say nothing that is asked for, and pass: but for a reference within a body, which names something.

use super::message::Refusal;
use super::wire::parsed;
use axum::http::StatusCode;
use poolwright_redfish_model::check::{Violation, check_action, check_create, check_update};
use poolwright_redfish_model::schema::Type;
use poolwright_service::misread::{located, sentence};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Of a body that shall create something: nothing but what is understood.
pub(super) fn create(schema: &Type, understood: &[&str], body: &Value) -> Result<(), Refusal> {
    refused(check_create(schema, body), understood, body, not_writable)
}

/// Of a body that shall change something.
pub(super) fn update(schema: &Type, understood: &[&str], body: &Value) -> Result<(), Refusal> {
    match violations_of_update(schema, understood, body) {
        none if none.is_empty() => Ok(()),
        found => Err(Refusal::violations(&found)),
    }
}

/// All that is wrong with a body that shall change something, for who does the rest of it.
pub(super) fn violations_of_update(schema: &Type, understood: &[&str], body: &Value) -> Vec<Violation> {
    with_strange(check_update(schema, body), understood, body, not_writable)
}

/// Of a body that invokes an action.
pub(super) fn act(schema: &Type, action: &str, understood: &[&str], body: &Value) -> Result<(), Refusal> {
    let found = check_action(schema, action, body);
    refused(found, understood, body, |path| Violation {
        message: "ActionParameterNotSupported",
        args: vec![path.trim_start_matches('/').to_owned(), action.to_owned()],
        path,
    })
}

/// The body of an action, which may be left out.
pub(super) fn of_action(bytes: &[u8]) -> Result<Value, Refusal> {
    match bytes {
        [] => Ok(Value::Null),
        bytes => parsed(bytes),
    }
}

/// What `Oem.Poolwright` of a body says; nothing where there is none.
pub(super) fn ours<T: DeserializeOwned + Default>(body: &Value) -> Result<T, Refusal> {
    match &body["Oem"]["Poolwright"] {
        Value::Null => Ok(T::default()),
        Value::Object(said) => read(&Value::Object(without_odata(said))),
        _ => Err(misread("", "what is given is no object")),
    }
}

/// A part of a body as a type of ours.
fn read<T: DeserializeOwned>(said: &Value) -> Result<T, Refusal> {
    located(said).map_err(|wrong| {
        let why = wrong.error.to_string();
        misread(&wrong.place, &sentence(&wrong.place, &why))
    })
}

/// What is wrong at a place of `Oem.Poolwright`; what stands there is not repeated beyond what the sentence does.
pub(super) fn misread(place: &str, why: &str) -> Refusal {
    let path = match place {
        "" => "Oem/Poolwright".to_owned(),
        place => format!(
            "Oem/Poolwright/{}",
            place.replace(['.', '['], "/").replace(']', "")
        ),
    };
    let text = format!("Oem.Poolwright: {why}.");
    let next = "See the page on the Redfish service for what Poolwright takes here.";
    let status = StatusCode::BAD_REQUEST;
    Refusal::new(status, "PropertyValueFormatError", &["…", &path], text, next).related(&path)
}

/// An object without what OData says beside it.
pub(super) fn without_odata(said: &Map<String, Value>) -> Map<String, Value> {
    let said = said.iter().filter(|(name, _)| !name.contains("@odata."));
    said.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Where something stands that is not understood, as JSON pointers.
pub(super) fn strange(understood: &[&str], body: &Value) -> Vec<String> {
    let mut found = Vec::new();
    look(body, "", understood, &mut found);
    found
}

/// `rest`: what is understood below here.
fn look(value: &Value, at: &str, rest: &[&str], found: &mut Vec<String>) {
    let mut step = |name: &str, key: &str, value: &Value| {
        let at = format!("{at}/{}", escaped(name));
        let below = rest.iter().filter_map(|path| {
            let (head, rest) = path.split_once('/').unwrap_or((path, ""));
            (head == key).then_some(rest)
        });
        let below: Vec<&str> = below.collect();
        match below.as_slice() {
            [] => found.push(at),
            below if below.contains(&"") => {}
            below => look(value, &at, below, found),
        }
    };
    match value {
        Value::Object(members) => {
            let is_said = |name: &str| !name.contains("@odata.") || name == "@odata.id" && !at.is_empty();
            for (name, value) in members.iter().filter(|(name, _)| is_said(name)) {
                step(name, name, value);
            }
        }
        Value::Array(entries) => {
            for (index, value) in entries.iter().enumerate() {
                step(&index.to_string(), "*", value);
            }
        }
        _ => {}
    }
}

/// A name as a part of a JSON pointer (RFC 6901).
pub(super) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// An annotation that nobody asked for is unknown here; a property of the schema can't be said here.
fn not_writable(path: String) -> Violation {
    let name = path.rsplit('/').next().unwrap_or_default();
    Violation {
        message: match name.contains('@') {
            true => "PropertyUnknown",
            false => "PropertyNotWritable",
        },
        args: vec![name.to_owned()],
        path,
    }
}

fn refused(
    found: Vec<Violation>,
    understood: &[&str],
    body: &Value,
    say: impl Fn(String) -> Violation,
) -> Result<(), Refusal> {
    match with_strange(found, understood, body, say) {
        none if none.is_empty() => Ok(()),
        found => Err(Refusal::violations(&found)),
    }
}

/// With what is not understood; what is within something wrong is not told again.
fn with_strange(
    mut found: Vec<Violation>,
    understood: &[&str],
    body: &Value,
    say: impl Fn(String) -> Violation,
) -> Vec<Violation> {
    let strange = strange(understood, body).into_iter();
    // A body may hold as much of both as it has names, so none is looked for among all of the others.
    let wrong: BTreeSet<&str> = found.iter().map(|wrong| wrong.path.as_str()).collect();
    let told = |path: &str| {
        let mut above = path.match_indices('/').map(|(end, _)| &path[..end]);
        let below = format!("{path}/");
        let next = wrong.range::<&str, _>(below.as_str()..).next();
        wrong.contains(path)
            || above.any(|above| wrong.contains(above))
            || next.is_some_and(|next| next.starts_with(&below))
    };
    let new: Vec<Violation> = strange.filter(|path| !told(path)).map(say).collect();
    found.extend(new);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const UNDERSTOOD: [&str; 4] = ["Name", "Links/Blocks/*/@odata.id", "Oem/Poolwright", "Free"];

    #[test]
    fn what_is_not_understood_is_found_where_it_stands() {
        for (body, expected) in [
            (json!({ "Name": "a", "Free": { "any": [1] } }), vec![]),
            (json!({ "@odata.id": "/x", "@odata.type": "#T" }), vec![]),
            (
                json!({ "Links": { "Blocks": [{ "@odata.id": "/b", "@odata.type": "#B" }] } }),
                vec![],
            ),
            (
                json!({ "Links": { "@odata.id": "/b" } }),
                vec!["/Links/@odata.id"],
            ),
            (json!({ "Links": { "Chassis": [] } }), vec!["/Links/Chassis"]),
            (
                json!({ "Links": { "Blocks": [{}, { "A/b": 1 }] } }),
                vec!["/Links/Blocks/1/A~1b"],
            ),
            (
                json!({ "Oem": { "Contoso": {}, "Poolwright": { "x": 1 } } }),
                vec!["/Oem/Contoso"],
            ),
            (
                json!({ "@Redfish.ZoneAffinity": "1", "name": 1 }),
                vec!["/@Redfish.ZoneAffinity", "/name"],
            ),
        ] {
            assert_eq!(strange(&UNDERSTOOD, &body), expected, "{body}");
        }
    }

    #[test]
    fn what_is_wrong_already_is_not_told_twice() {
        let wrong = |path: &str| not_writable(path.to_owned());
        let body = json!({ "Colour": 1, "Links": { "Chassis": 1, "Other": 1 }, "Linksy": 1 });
        let found = with_strange(
            vec![wrong("/Colour"), wrong("/Links/Chassis/0")],
            &UNDERSTOOD,
            &body,
            |path| wrong(&path),
        );
        let paths: Vec<&str> = found.iter().map(|wrong| wrong.path.as_str()).collect();
        assert_eq!(paths, ["/Colour", "/Links/Chassis/0", "/Links/Other", "/Linksy"]);
        // What is within something wrong, and all of it where the body itself is.
        for whole in ["/Links", ""] {
            let body = json!({ "Links": { "Chassis": 1, "Other": 1 } });
            let found = with_strange(vec![wrong(whole)], &UNDERSTOOD, &body, |path| wrong(&path));
            assert_eq!(found.len(), 1, "{whole}: {found:?}");
        }
    }
}
