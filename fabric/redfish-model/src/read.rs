//! Reads JSON into objects, once through, without a tree in between.
//!
//! A value that its slot refuses, or takes only by another type, is kept as text in the `extra` of the object
//! around it: a bad property costs that property, and nothing is lost.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Number};

use crate::object::{Fit, List, Object, Scalar, Slot};
use crate::schema::Type;
use crate::write;

/// Reads an object's members. Fails on broken JSON, and on JSON that is no object.
pub(crate) fn object<'de, D: Deserializer<'de>>(
    object: &mut dyn Object,
    deserializer: D,
) -> Result<(), D::Error> {
    deserializer.deserialize_map(Members(object))
}

/// Reads one value; answers the text of what the slot does not hold as it was.
pub(crate) fn value(slot: &mut dyn Slot, text: &str) -> Result<Option<Box<RawValue>>, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let kept = Place(slot).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(kept)
}

/// Puts one member where the schema wants it, else into `extra`.
pub(crate) fn member(object: &mut dyn Object, name: &str, raw: &RawValue) -> Result<(), serde_json::Error> {
    let slot = object
        .schema()
        .index_of(name)
        .and_then(|index| object.slot_mut(index));
    let kept = match slot {
        Some(slot) => value(slot, raw.get())?,
        None => Some(raw.to_owned()),
    };
    if let Some(raw) = kept {
        object.extra_mut().set(name, &raw)?;
    }
    Ok(())
}

struct Members<'a>(&'a mut dyn Object);

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a JSON object ({})", self.0.schema().name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let schema = self.0.schema();
        while let Some(key) = map.next_key_seed(KeySeed(schema))? {
            let (name, kept) = match key {
                Key::Known(index) => {
                    let Some(slot) = self.0.slot_mut(index) else {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    };
                    slot.clear();
                    (None, map.next_value_seed(Place(slot))?.map(|raw| (index, raw)))
                }
                Key::Unknown(name) => (Some((name, map.next_value::<Box<RawValue>>()?)), None),
            };
            if let Some((name, raw)) = name {
                self.0.extra_mut().push(name, raw);
            } else if let Some((index, raw)) = kept {
                self.0.extra_mut().push(schema.properties[index].name.into(), raw);
            }
        }
        self.0.extra_mut().settle();
        Ok(())
    }
}

/// A member's name: its index in the schema's table, or itself.
enum Key {
    Known(usize),
    Unknown(Box<str>),
}

struct KeySeed(&'static Type);

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Key, E> {
        Ok(self
            .0
            .index_of(name)
            .map_or_else(|| Key::Unknown(name.into()), Key::Known))
    }
}

/// Reads any value into a slot; answers the text to keep beside it.
struct Place<'a>(&'a mut dyn Slot);

impl Place<'_> {
    fn scalar<E: serde::de::Error>(self, scalar: &Scalar<'_>) -> Result<Option<Box<RawValue>>, E> {
        match self.0.put(scalar) {
            Fit::Exact => Ok(None),
            Fit::Coerced | Fit::Refused => raw_scalar(scalar).map(Some),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = Option<Box<RawValue>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = Option<Box<RawValue>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Self::Value, E> {
        self.scalar(&Scalar::Bool(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Self::Value, E> {
        self.scalar(&Scalar::Integer(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Self::Value, E> {
        self.scalar(&i64::try_from(value).map_or_else(|_| Scalar::Number(value.into()), Scalar::Integer))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Self::Value, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("a number that JSON cannot write"))?;
        self.scalar(&Scalar::Number(number))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Self::Value, E> {
        self.scalar(&Scalar::Text(value))
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        to_raw_value(&()).map(Some).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        match self.0.open_object() {
            Some(object) => Members(object).visit_map(map).map(|()| None),
            None => match self.0.open_list() {
                Some(list) => {
                    let raw = lone_object(list, map)?;
                    if list.count() == 0 {
                        self.0.clear();
                    }
                    Ok(raw)
                }
                None => raw_object(map).map(Some),
            },
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        match self.0.open_list() {
            Some(list) => read_list(list, seq),
            None => raw_list(seq).map(Some),
        }
    }
}

/// Reads what fits of a list. If anything did not, the text of the whole list is answered: the elements that
/// did fit are written again, which gives what was read.
fn read_list<'de, A: SeqAccess<'de>>(
    list: &mut dyn List,
    mut seq: A,
) -> Result<Option<Box<RawValue>>, A::Error> {
    // By place in the JSON list: the text of an element that is not held as it was.
    let mut kept: Vec<(usize, Box<RawValue>)> = Vec::new();
    // By place in the JSON list: whether an element was added for it.
    let mut held: Vec<bool> = Vec::new();
    loop {
        let before = list.count();
        let mut read = Ok(None);
        list.push(&mut |slot| read = seq.next_element_seed(Place(slot)));
        match read? {
            None => break,
            Some(None) => {}
            Some(Some(raw)) => kept.push((held.len(), raw)),
        }
        held.push(list.count() > before);
    }
    if kept.is_empty() {
        return Ok(None);
    }
    let mut kept = kept.into_iter().peekable();
    let mut next_held = 0;
    let mut elements: Vec<Box<RawValue>> = Vec::with_capacity(held.len());
    for (place, held) in held.into_iter().enumerate() {
        let raw = match kept.next_if(|(at, _)| *at == place) {
            Some((_, raw)) => raw,
            None => to_raw_value(&write::NodeRef(&list.node(next_held))).map_err(A::Error::custom)?,
        };
        next_held += usize::from(held);
        elements.push(raw);
    }
    to_raw_value(&elements).map(Some).map_err(A::Error::custom)
}

/// Takes an object in place of a list of objects.
fn lone_object<'de, A: MapAccess<'de>>(
    list: &mut dyn List,
    map: A,
) -> Result<Option<Box<RawValue>>, A::Error> {
    let mut map = Some(map);
    let mut read = Ok(None);
    list.push(&mut |slot| {
        read = map
            .take()
            .map(|map| Place(slot).visit_map(map))
            .transpose()
            .map(Option::flatten)
    });
    match read? {
        Some(raw) => Ok(Some(raw)),
        None => to_raw_value(&write::NodeRef(&list.node(0)))
            .map(Some)
            .map_err(A::Error::custom),
    }
}

fn raw_scalar<E: serde::de::Error>(scalar: &Scalar<'_>) -> Result<Box<RawValue>, E> {
    match scalar {
        Scalar::Bool(value) => to_raw_value(value),
        Scalar::Integer(value) => to_raw_value(value),
        Scalar::Number(value) => to_raw_value(value),
        Scalar::Text(value) => to_raw_value(value),
    }
    .map_err(E::custom)
}

fn raw_list<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<Box<RawValue>, A::Error> {
    let mut elements: Vec<Box<RawValue>> = Vec::new();
    while let Some(element) = seq.next_element()? {
        elements.push(element);
    }
    to_raw_value(&elements).map_err(A::Error::custom)
}

fn raw_object<'de, A: MapAccess<'de>>(map: A) -> Result<Box<RawValue>, A::Error> {
    let members = Map::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
    to_raw_value(&members).map_err(A::Error::custom)
}
