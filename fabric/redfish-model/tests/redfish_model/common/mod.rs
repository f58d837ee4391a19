//! What several tests need.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use poolwright_redfish_model::RESOURCES;
use poolwright_redfish_model::object::{Node, Object};
use poolwright_redfish_model::schema::{Kind, Type};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// A file of the folder with recorded trees and schemas, which lies outside the repository:
/// `$POOLWRIGHT_SHARED`, by default `shared` beside the workspace. `None`, and a word about it, if it is not there.
#[expect(
    clippy::print_stdout,
    reason = "whoever reads the test's output must know that it did nothing"
)]
pub fn shared(path: &str) -> Option<PathBuf> {
    let folder = env::var_os("POOLWRIGHT_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let path = folder.join(path);
    if fs::exists(&path).unwrap_or(false) {
        return Some(path);
    }
    println!(
        "{} is not there (POOLWRIGHT_SHARED): nothing tested",
        path.display()
    );
    None
}

/// The JSON documents of an archive whose paths match, one after the other. Files would be slower by far.
pub fn documents(archive: &Path, pattern: &str) -> Vec<Box<RawValue>> {
    let text = tar(&["-xzO", "--wildcards", pattern, "-f"], archive);
    let documents = serde_json::Deserializer::from_slice(&text).into_iter();
    documents
        .map(|document| document.expect("the archives hold JSON"))
        .collect()
}

/// The paths in an archive, in the order of [`documents`].
pub fn paths(archive: &Path) -> Vec<String> {
    let text = tar(&["-tzf"], archive);
    String::from_utf8(text)
        .expect("paths are text")
        .lines()
        .map(str::to_owned)
        .collect()
}

fn tar(args: &[&str], archive: &Path) -> Vec<u8> {
    let tar = Command::new("tar")
        .args(args)
        .arg(archive)
        .output()
        .expect("tar is installed");
    assert!(tar.status.success(), "tar cannot read {}", archive.display());
    tar.stdout
}

/// Every type that is generated, by its name in CSDL.
pub fn all_types() -> BTreeMap<&'static str, &'static Type> {
    let mut types = BTreeMap::new();
    let mut next = RESOURCES.to_vec();
    while let Some(found) = next.pop() {
        if types.insert(found.name, found).is_none() {
            next.extend(
                found
                    .properties
                    .iter()
                    .filter_map(|property| match property.kind {
                        Kind::Object(part) => Some(part),
                        Kind::Link(target) => target,
                        _ => None,
                    }),
            );
        }
    }
    types
}

/// What lies in typed places, without `extra`: what a caller sees who uses the fields.
pub fn typed_view(object: &dyn Object) -> Value {
    let mut members = Map::new();
    for (index, property) in object.schema().properties.iter().enumerate() {
        let slot = object
            .slot(index)
            .expect("each property of the table has its slot");
        if let Some(value) = view(&slot.node()) {
            members.insert(property.name.to_owned(), value);
        }
    }
    Value::Object(members)
}

fn view(node: &Node<'_>) -> Option<Value> {
    Some(match node {
        Node::Absent => return None,
        Node::Bool(value) => Value::Bool(*value),
        Node::Integer(value) => Value::from(*value),
        Node::Number(value) => Value::Number((*value).clone()),
        Node::Text(value) => Value::from(*value),
        Node::Object(object) => typed_view(*object),
        Node::List(list) => (0..list.count())
            .filter_map(|index| view(&list.node(index)))
            .collect(),
    })
}
