//! Random documents of every resource type, and random damage to one place of them: what is not damaged stays.

use crate::common::typed_view;
use poolwright_redfish_model::RESOURCES;
use poolwright_redfish_model::object::Object;
use poolwright_redfish_model::schema::{self, Kind, Property, Type};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_well_typed_document_is_typed_throughout(resource in 0..RESOURCES.len(), seed: u64) {
        let document = Dice(seed).document(RESOURCES[resource], 0);
        let read = read(RESOURCES[resource], &document);
        prop_assert_eq!(typed_view(&*read), document.clone());
        prop_assert_eq!(schema::to_value(&*read).expect("it can be written"), document);
    }

    #[test]
    fn damage_costs_at_most_the_damaged_property(
        resource in 0..RESOURCES.len(), seed: u64, damage in any_json(),
    ) {
        let mut dice = Dice(seed);
        let whole = dice.document(RESOURCES[resource], 0);
        let places = members(&whole, "");
        prop_assume!(!places.is_empty());
        let place = &places[dice.below(places.len())];

        let mut damaged = whole.clone();
        *damaged.pointer_mut(place).expect("a place of the document") = damage;
        let read_damaged = read(RESOURCES[resource], &damaged);
        prop_assert_eq!(schema::to_value(&*read_damaged).expect("it can be written"), damaged);

        let (mut seen, mut expected) = (typed_view(&*read_damaged), whole);
        remove(&mut seen, place);
        remove(&mut expected, place);
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn an_unknown_member_costs_nothing(
        resource in 0..RESOURCES.len(), seed: u64, name in "[A-Za-z@.#]{1,12}", value in any_json(),
    ) {
        let mut document = Dice(seed).document(RESOURCES[resource], 0);
        let before = typed_view(&*read(RESOURCES[resource], &document));
        prop_assume!(RESOURCES[resource].index_of(&name).is_none());
        document.as_object_mut().expect("a document is an object").insert(name, value);
        let read = read(RESOURCES[resource], &document);
        prop_assert_eq!(typed_view(&*read), before);
        prop_assert_eq!(schema::to_value(&*read).expect("it can be written"), document);
    }

    #[test]
    fn a_bad_element_costs_only_itself(
        resource in 0..RESOURCES.len(), seed: u64, damage in prop_oneof![Just(json!(null)), Just(json!([[]]))],
    ) {
        let mut dice = Dice(seed);
        let whole = dice.document(RESOURCES[resource], 0);
        let lists: Vec<String> = places(&whole, "").into_iter()
            .filter(|place| whole.pointer(place).is_some_and(|v| v.as_array().is_some_and(|list| !list.is_empty())))
            .collect();
        prop_assume!(!lists.is_empty());
        let place = &lists[dice.below(lists.len())];
        let mut damaged = whole.clone();
        let list = damaged.pointer_mut(place).and_then(Value::as_array_mut).expect("a list of the document");
        list.insert(dice.below(list.len() + 1), damage);
        let read = read(RESOURCES[resource], &damaged);
        prop_assert_eq!(typed_view(&*read), whole);
        prop_assert_eq!(schema::to_value(&*read).expect("it can be written"), damaged);
    }
}

fn read(schema: &Type, document: &Value) -> Box<dyn Object> {
    let mut object = (schema.empty)();
    schema::read_into(&mut *object, document.to_string().as_bytes())
        .expect("no property may cost the resource");
    object
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e6..1e6).prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
        "[0-9]{1,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[A-Za-z@.]{1,10}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Pointers to all members of objects, wherever they lie.
fn members(value: &Value, path: &str) -> Vec<String> {
    let in_object = |place: &String| {
        let parent = place.rsplit_once('/').map_or("", |(parent, _)| parent);
        value
            .pointer(parent.strip_prefix(path).unwrap_or(parent))
            .is_some_and(Value::is_object)
    };
    places(value, path).into_iter().filter(in_object).collect()
}

/// Pointers to everything inside a value.
fn places(value: &Value, path: &str) -> Vec<String> {
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.replace('~', "~0"), value))
            .collect(),
        Value::Array(list) => list
            .iter()
            .enumerate()
            .map(|(index, value)| (index.to_string(), value))
            .collect(),
        _ => Vec::new(),
    };
    inner
        .into_iter()
        .flat_map(|(name, value)| {
            let here = format!("{path}/{}", name.replace('/', "~1"));
            let mut found = places(value, &here);
            found.push(here);
            found
        })
        .collect()
}

fn remove(value: &mut Value, place: &str) {
    let (parent, name) = place.rsplit_once('/').expect("a pointer has a slash");
    if let Some(Value::Object(members)) = value.pointer_mut(parent) {
        members.shift_remove(&name.replace("~1", "/").replace("~0", "~"));
    }
}

/// A small generator of numbers (splitmix64), so that one seed makes one document.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % end.max(1) as u64).expect("less than end")
    }

    /// A document in which about half of the properties are present, each of its type.
    fn document(&mut self, schema: &Type, depth: usize) -> Value {
        let mut members = Map::new();
        for property in schema.properties {
            if self.below(2) == 0 {
                members.insert(property.name.to_owned(), self.property(property, depth));
            }
        }
        Value::Object(members)
    }

    fn property(&mut self, property: &Property, depth: usize) -> Value {
        if property.many {
            (0..self.below(4))
                .map(|_| self.value(&property.kind, depth))
                .collect()
        } else {
            self.value(&property.kind, depth)
        }
    }

    fn value(&mut self, kind: &Kind, depth: usize) -> Value {
        match kind {
            Kind::Boolean => json!(self.below(2) == 0),
            Kind::Integer => json!(self.below(1000)),
            Kind::Decimal if self.below(2) == 0 => json!(self.below(1000)),
            Kind::Decimal => json!(self.below(1000) as f64 / 8.0),
            Kind::Text => json!(format!("text \"{}\" \u{e9}\n", self.below(100))),
            Kind::DateTime => json!("2026-11-21T08:52:00Z"),
            Kind::Duration => json!("PT3H"),
            Kind::Guid => json!("6d1cf5b2-0f5a-4b8e-9c3e-0a1b2c3d4e5f"),
            Kind::Enum(_) if self.below(4) == 0 => json!("Unheard"),
            Kind::Enum(members) => json!(members[self.below(members.len())]),
            Kind::Object(_) if depth > 3 => json!({}),
            Kind::Object(schema) => self.document(schema, depth + 1),
            Kind::Link(_) => json!({"@odata.id": format!("/redfish/v1/{}", self.below(100))}),
        }
    }
}
