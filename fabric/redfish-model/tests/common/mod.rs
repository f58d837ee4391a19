//! What several tests need.

use poolwright_redfish_model::object::{Node, Object};
use serde_json::{Map, Value};

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
