//! What changed between two snapshots.

use crate::Snapshot;
use poolwright_model::fault::Fault;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The difference between an earlier and a later snapshot. When and how long they took doesn't count.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SnapshotDiff {
    pub gpus: ListDiff,
    pub hosts: ListDiff,
    pub fabrics: ListDiff,
    pub switches: ListDiff,
    pub new_faults: Vec<Fault>,
    pub gone_faults: Vec<Fault>,
}

/// What changed in one list, by id.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ListDiff {
    pub appeared: Vec<String>,
    pub vanished: Vec<String>,
    pub changed: Vec<Change>,
}

/// One member of one thing that is not what it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    pub id: String,
    /// The member's name in the JSON form.
    pub member: String,
    pub before: Value,
    pub after: Value,
}

impl SnapshotDiff {
    pub fn between(before: &Snapshot, after: &Snapshot) -> Self {
        let (b, a) = (&before.topology, &after.topology);
        let missing_in = |these: &[Fault], others: &[Fault]| {
            let others: std::collections::BTreeSet<&Fault> = others.iter().collect();
            these
                .iter()
                .filter(|fault| !others.contains(fault))
                .cloned()
                .collect::<Vec<_>>()
        };
        Self {
            gpus: list(&b.gpus, &a.gpus, |gpu| gpu.id.to_string()),
            hosts: list(&b.hosts, &a.hosts, |host| host.id.to_string()),
            fabrics: list(&b.fabrics, &a.fabrics, |fabric| fabric.id.to_string()),
            switches: list(&b.switches, &a.switches, |switch| {
                format!("{}/{}", switch.fabric, switch.id)
            }),
            new_faults: missing_in(&after.faults, &before.faults),
            gone_faults: missing_in(&before.faults, &after.faults),
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn list<T: Serialize + PartialEq>(before: &[T], after: &[T], id: impl Fn(&T) -> String) -> ListDiff {
    let index = |list: &'_ [T]| {
        list.iter()
            .enumerate()
            .map(|(i, thing)| (id(thing), i))
            .collect::<BTreeMap<_, _>>()
    };
    let (old, new) = (index(before), index(after));
    let mut diff = ListDiff::default();
    for (id, i) in &new {
        match old.get(id) {
            None => diff.appeared.push(id.clone()),
            Some(j) if before[*j] != after[*i] => diff.changed.extend(members(id, &before[*j], &after[*i])),
            Some(_) => {}
        }
    }
    diff.vanished = old.into_keys().filter(|id| !new.contains_key(id)).collect();
    diff
}

fn members<T: Serialize>(id: &str, before: &T, after: &T) -> Vec<Change> {
    let object = |thing: &T| match serde_json::to_value(thing) {
        Ok(Value::Object(members)) => members,
        // The model's types are structs: they are objects, and always serialise.
        _ => serde_json::Map::new(),
    };
    let (mut old, new) = (object(before), object(after));
    let mut changes = Vec::new();
    for (member, now) in new {
        let was = old.remove(&member).unwrap_or(Value::Null);
        if was != now {
            changes.push(Change {
                id: id.to_owned(),
                member,
                before: was,
                after: now,
            });
        }
    }
    changes
}
