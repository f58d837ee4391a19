//! The recorded trees of real machines and DMTF's examples: every document of a type that is known is read, and
//! written back equal.

use crate::common;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use poolwright_redfish_model::object::{Node, Object};
use poolwright_redfish_model::schema;
use serde_json::Value;

#[test]
fn recorded_documents_survive_a_round_trip() {
    let Some(folder) = common::shared("redfish/mockups") else {
        return;
    };
    let mut archives: Vec<PathBuf> = fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.to_string_lossy().ends_with(".tar.gz"))
        .collect();
    archives.sort();
    let (mut known, mut unknown) = (0, 0);
    let mut failures = Vec::new();
    let mut usage = Usage::default();
    for archive in archives {
        for document in common::documents(&archive, "*.json") {
            let value: Value = serde_json::from_str(document.get()).expect("JSON that was read before");
            let Some(schema) = value["@odata.type"].as_str().and_then(schema::by_odata_type) else {
                unknown += 1;
                continue;
            };
            known += 1;
            let mut read = (schema.empty)();
            let written = schema::read_into(&mut *read, document.get().as_bytes())
                .map_err(|why| why.to_string())
                .and_then(|()| schema::to_value(&*read).map_err(|why| why.to_string()));
            let why = match written {
                Ok(written) if written == value => {
                    usage.count(&*read);
                    continue;
                }
                Ok(written) => difference("", &value, &written),
                Err(why) => why,
            };
            failures.push(format!("{} {}: {why}", archive.display(), value["@odata.id"]));
        }
    }
    println!(
        "{known} documents of known types, {unknown} of others, {} failures",
        failures.len()
    );
    assert!(
        failures.is_empty(),
        "{} of {known}:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(known > 1000, "only {known} documents were of a known type");
    // That nothing is lost proves little if it all lies in `extra`.
    let refused: usize = usage.refused.values().sum();
    println!(
        "{} values in their fields; of another type: {:?}",
        usage.held, usage.understood
    );
    println!("not understood: {:?}", usage.refused);
    assert!(refused * 100 < usage.held, "too much is not in the fields");
}

/// How many values lie in the fields as the schema wants them, how many were of another type, how many were not
/// to be understood.
#[derive(Default)]
struct Usage {
    held: usize,
    understood: BTreeMap<String, usize>,
    refused: BTreeMap<String, usize>,
}

impl Usage {
    fn count(&mut self, object: &dyn Object) {
        for (index, property) in object.schema().properties.iter().enumerate() {
            let node = object
                .slot(index)
                .expect("each property of the table has its slot")
                .node();
            let odd = object
                .extra()
                .raw(property.name)
                .is_some_and(|raw| raw.get() != "null");
            let name = || format!("{}/{}", object.schema().name, property.name);
            match node {
                Node::Absent if odd => *self.refused.entry(name()).or_default() += 1,
                _ if odd => *self.understood.entry(name()).or_default() += 1,
                Node::Absent => {}
                Node::Object(part) => self.count(part),
                Node::List(list) => (0..list.count()).for_each(|index| match list.node(index) {
                    Node::Object(part) => self.count(part),
                    _ => self.held += 1,
                }),
                _ => self.held += 1,
            }
        }
    }
}

/// Where two values differ first.
fn difference(path: &str, a: &Value, b: &Value) -> String {
    if let (Value::Object(a), Value::Object(b)) = (a, b) {
        for (name, value) in a {
            match b.get(name) {
                None => return format!("{path}/{name} was lost"),
                Some(other) if other != value => return difference(&format!("{path}/{name}"), value, other),
                Some(_) => {}
            }
        }
        if let Some(name) = b.keys().find(|name| !a.contains_key(*name)) {
            return format!("{path}/{name} was made up");
        }
    }
    format!("{path}: {a} became {b}")
}
