//! Writes objects as JSON, compares them and shows them.

use std::fmt;

use serde::ser::{Error as _, Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::value::RawValue;

use crate::object::{Node, Object, Slot};
use crate::read;

/// Writes the typed properties in the order of the table, then the rest.
pub(crate) fn object<S: Serializer>(object: &dyn Object, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    let (schema, extra) = (object.schema(), object.extra());
    for (index, property) in schema.properties.iter().enumerate() {
        let Some(slot) = object.slot(index) else { continue };
        let as_read = extra.raw(property.name).filter(|raw| untouched(slot, raw));
        match (as_read, slot.node()) {
            (Some(raw), _) => map.serialize_entry(property.name, raw)?,
            (None, Node::Absent) => {}
            (None, node) => map.serialize_entry(property.name, &NodeRef(&node))?,
        }
    }
    for (name, raw) in extra.iter().filter(|(name, _)| schema.index_of(name).is_none()) {
        map.serialize_entry(name, raw)?;
    }
    map.end()
}

/// Whether a slot still holds what reading `raw` puts there.
fn untouched(slot: &dyn Slot, raw: &RawValue) -> bool {
    let mut fresh = slot.fresh();
    read::value(&mut *fresh, raw.get()).is_ok() && nodes_equal(&fresh.node(), &slot.node())
}

/// A node, as serde sees it.
pub(crate) struct NodeRef<'a>(pub &'a Node<'a>);

impl Serialize for NodeRef<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Node::Absent => serializer.serialize_unit(),
            Node::Bool(value) => serializer.serialize_bool(*value),
            Node::Integer(value) => serializer.serialize_i64(*value),
            Node::Number(value) => value.serialize(serializer),
            Node::Text(value) => serializer.serialize_str(value),
            Node::Object(value) => object(*value, serializer),
            Node::List(list) => {
                let mut seq = serializer.serialize_seq(Some(list.count()))?;
                for index in 0..list.count() {
                    seq.serialize_element(&NodeRef(&list.node(index)))?;
                }
                seq.end()
            }
        }
    }
}

/// Whether two objects of one type would be written alike.
pub(crate) fn equal(a: &dyn Object, b: &dyn Object) -> bool {
    std::ptr::eq(a.schema(), b.schema())
        && a.extra() == b.extra()
        && (0..a.schema().properties.len()).all(|index| match (a.slot(index), b.slot(index)) {
            (Some(a), Some(b)) => nodes_equal(&a.node(), &b.node()),
            (None, None) => true,
            _ => false,
        })
}

fn nodes_equal(a: &Node<'_>, b: &Node<'_>) -> bool {
    match (a, b) {
        (Node::Absent, Node::Absent) => true,
        (Node::Bool(a), Node::Bool(b)) => a == b,
        (Node::Integer(a), Node::Integer(b)) => a == b,
        (Node::Number(a), Node::Number(b)) => a == b,
        (Node::Text(a), Node::Text(b)) => a == b,
        (Node::Object(a), Node::Object(b)) => equal(*a, *b),
        (Node::List(a), Node::List(b)) => {
            a.count() == b.count() && (0..a.count()).all(|index| nodes_equal(&a.node(index), &b.node(index)))
        }
        _ => false,
    }
}

/// The type's name and the JSON: a struct of which most fields are `None` is no sight.
pub(crate) fn debug(object: &dyn Object, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    struct Whole<'a>(&'a dyn Object);
    impl Serialize for Whole<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            self::object(self.0, serializer)
        }
    }
    let text = if f.alternate() {
        serde_json::to_string_pretty(&Whole(object))
    } else {
        serde_json::to_string(&Whole(object))
    };
    write!(
        f,
        "{} {}",
        object.schema().name,
        text.map_err(fmt::Error::custom)?
    )
}
