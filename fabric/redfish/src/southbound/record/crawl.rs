//! Reading a whole tree: every link, each address once, no further than a bound.

use crate::client::Client;
use crate::southbound::links;
use bytes::Bytes;
use futures_util::StreamExt;
use poolwright_driver::Progress;
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

/// Links away from the service root. The deepest recorded tree has 11.
const MAX_DEPTH: usize = 16;
const MAX_DOCUMENTS: usize = 50_000;
const MAX_BYTES: usize = 512 << 20;

/// Parts of addresses below which nothing is read: what the standard publishes itself, what grows without
/// end, and what holds secrets or people's names. Certificates of all kinds are left out as well.
const SKIPPED: [&str; 15] = [
    "JsonSchemas",
    "Registries",
    "$metadata",
    "odata",
    "Entries",
    "Sessions",
    "Accounts",
    "Subscriptions",
    "Signatures",
    "Keys",
    "Dump",
    "Dumps",
    "MetricReports",
    "Tasks",
    "Jobs",
];

/// What was found.
#[derive(Default)]
pub(super) struct Tree {
    /// JSON by address, whole collections in one document each.
    pub(super) documents: BTreeMap<String, Bytes>,
    /// Addresses that could not be read, with why.
    pub(super) unreadable: BTreeMap<String, String>,
    /// Addresses that were left out on purpose.
    pub(super) skipped: HashSet<String>,
    /// Whether a bound ended the walk.
    pub(super) truncated: bool,
}

pub(super) async fn crawl(client: &Client, root: &str, progress: &dyn Progress) -> Tree {
    let mut tree = Tree::default();
    let mut seen = HashSet::from([root.to_owned()]);
    let mut level = vec![root.to_owned()];
    let mut bytes = 0;
    for _ in 0..MAX_DEPTH {
        if level.is_empty() {
            return tree;
        }
        progress.advanced(0, level.len() as u64);
        let mut answers = futures_util::stream::iter(std::mem::take(&mut level))
            .map(|path| async move {
                let answer = read(client, &path).await;
                (path, answer)
            })
            .buffered(client.limits().concurrency.max(1));
        while let Some((path, answer)) = answers.next().await {
            progress.advanced(1, 0);
            match answer {
                Ok(document) => {
                    bytes += document.len();
                    if bytes > MAX_BYTES || tree.documents.len() == MAX_DOCUMENTS {
                        tree.truncated = true;
                        return tree;
                    }
                    follow(&document, &mut seen, &mut level, &mut tree);
                    tree.documents.insert(path, document);
                }
                Err(why) => {
                    tree.unreadable.insert(path, why);
                }
            }
        }
    }
    tree.truncated = !level.is_empty();
    tree
}

/// One document; a collection of several pages as one.
async fn read(client: &Client, path: &str) -> Result<Bytes, String> {
    const NEXT: &str = "Members@odata.nextLink";
    let document = client.get(path).await.map_err(|error| error.kind().to_string())?;
    let bytes = document.bytes().clone();
    let mut value: Value = document.parse().map_err(|error| error.kind().to_string())?;
    if value.get(NEXT).is_none() {
        return Ok(bytes);
    }
    let whole = client
        .collection_members(path)
        .await
        .map_err(|error| error.kind().to_string())?;
    let members: Vec<Value> = whole
        .members
        .iter()
        .map(|path| serde_json::json!({"@odata.id": path}))
        .collect();
    value["Members@odata.count"] = members.len().into();
    value["Members"] = members.into();
    if let Some(members) = value.as_object_mut() {
        members.remove(NEXT);
    }
    serde_json::to_vec(&value)
        .map(Bytes::from)
        .map_err(|error| error.to_string())
}

fn follow(document: &[u8], seen: &mut HashSet<String>, next: &mut Vec<String>, tree: &mut Tree) {
    let Ok(value) = serde_json::from_slice::<Value>(document) else {
        return;
    };
    let mut found = Vec::new();
    links_in(&value, &mut found);
    for link in found {
        let path = links::address(link);
        if path.is_empty() || path.contains('?') || seen.contains(path) {
            continue;
        }
        seen.insert(path.to_owned());
        if is_skipped(path) {
            tree.skipped.insert(path.to_owned());
        } else {
            next.push(path.to_owned());
        }
    }
}

fn links_in<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(link) if name == "@odata.id" || name == "@Redfish.ActionInfo" => {
                        found.push(link)
                    }
                    _ => links_in(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| links_in(item, found)),
        _ => {}
    }
}

fn is_skipped(path: &str) -> bool {
    path.split('/')
        .any(|part| SKIPPED.contains(&part) || part.ends_with("Certificates"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Fault 32: each place once.
    #[test]
    fn every_link_is_followed_once_and_private_places_are_not_entered() {
        let document = json!({"@odata.id": "/redfish/v1", "Systems": {"@odata.id": "/redfish/v1/Systems/"},
            "Links": {"Sessions": {"@odata.id": "/redfish/v1/SessionService/Sessions"}},
            "Again": [{"@odata.id": "/redfish/v1/Systems#/Members"}],
            "Actions": {"#X.Y": {"@Redfish.ActionInfo": "/redfish/v1/XInfo", "target": "/redfish/v1/Actions/X.Y"}}});
        let mut seen = HashSet::from(["/redfish/v1".to_owned()]);
        let (mut next, mut tree) = (Vec::new(), Tree::default());
        follow(document.to_string().as_bytes(), &mut seen, &mut next, &mut tree);
        assert_eq!(next, ["/redfish/v1/Systems", "/redfish/v1/XInfo"]);
        assert_eq!(tree.skipped.len(), 1);
    }
}
