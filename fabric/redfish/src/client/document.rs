//! What comes back: bytes with the little that the protocol says about them. What they mean is for others.

use std::fmt;

use bytes::Bytes;
use serde::de::{DeserializeOwned, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::classify;
use super::error::{Error, Result, Unreadable};
use super::path::Place;

/// A JSON object as a GET returned it. Parse it and let it go: it may hold a larger buffer than its own size.
#[derive(Debug, Clone)]
pub struct Document {
    place: Place,
    etag: Option<String>,
    bytes: Bytes,
}

impl Document {
    pub(crate) fn new(place: Place, etag: Option<String>, bytes: Bytes) -> Self {
        Self { place, etag, bytes }
    }

    /// Path and query that it was read from.
    pub fn path(&self) -> &str {
        self.place.as_str()
    }

    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The ETag for a conditional write: the header's, else the one in `@odata.etag`.
    pub fn etag(&self) -> Option<String> {
        self.etag
            .clone()
            .or_else(|| Annotations::of(&self.bytes).ok()?.etag)
    }

    /// Reads it as `T`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        parse(&self.bytes).map_err(|why| Error::harmless(format!("GET {}", self.place.url()), why))
    }
}

/// A resource that was read as `T`.
#[derive(Debug, Clone, PartialEq)]
pub struct Resource<T> {
    /// Path and query that it was read from.
    pub path: String,
    /// For conditional writes; `None` where the service gave none.
    pub etag: Option<String>,
    pub value: T,
}

/// What a write led to. Where the service made a task of it, the task has ended well.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The last status: 200, 201, 204.
    pub status: u16,
    /// The resource that was made, where one was: from `Location`, the body or the task.
    pub location: Option<String>,
    pub etag: Option<String>,
    /// The task that did it, where there was one.
    pub task: Option<String>,
    /// Empty, or a JSON object: the resource, the action's answer, or the ended task.
    pub body: Bytes,
    pub(crate) request: String,
}

impl Answer {
    /// Reads the body as `T`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        parse(&self.body).map_err(|why| Error::unknown(self.request.clone(), why))
    }
}

/// Reads JSON as `T`, without building a tree in between.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Unreadable> {
    if bytes.is_empty() {
        return Err(Unreadable::Empty);
    }
    let bytes = without_bom(bytes);
    // Looking at the whole text once is cheaper than at each string in it. A text with a broken character is
    // read all the same: it may stand in what nobody asks for.
    match std::str::from_utf8(bytes) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(bytes),
    }
    .map_err(|e| classify::json(&e))
}

/// A cheap look at the first byte, to tell an HTML page or an empty body before anybody parses.
pub(crate) fn looks_like_json_object(bytes: &[u8]) -> Result<(), Unreadable> {
    match without_bom(bytes).iter().find(|b| !b.is_ascii_whitespace()) {
        Some(b'{') => Ok(()),
        Some(b'<') => Err(Unreadable::Html),
        Some(other) => Err(Unreadable::NotJson(format!(
            "it begins with {:?}",
            char::from(*other)
        ))),
        None => Err(Unreadable::Empty),
    }
}

/// Some services put a byte order mark in front, which JSON does not allow.
pub(crate) fn without_bom(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

/// The annotations of an object that the protocol needs, read in passing: everything else is skipped, not stored.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Annotations {
    pub(crate) id: Option<String>,
    pub(crate) etag: Option<String>,
    has_type: bool,
    has_properties: bool,
}

impl Annotations {
    /// Whether this is a resource, not a reference to one (which may be adorned with a name): every resource has a
    /// type and properties.
    pub(crate) fn is_resource(&self) -> bool {
        self.has_type && self.has_properties
    }

    /// Of a link: by the standard a reference, with some services a string.
    pub(crate) fn of_link(link: &RawValue) -> Result<Self, Unreadable> {
        match link.get().starts_with('"') {
            true => Ok(Self {
                id: text(link),
                ..Self::default()
            }),
            false => Self::of(link.get().as_bytes()),
        }
    }

    pub(crate) fn of(object: &[u8]) -> Result<Self, Unreadable> {
        let mut json = serde_json::Deserializer::from_slice(without_bom(object));
        json.deserialize_map(AnnotationsVisitor)
            .map_err(|e| classify::json(&e))
    }
}

struct AnnotationsVisitor;

impl<'de> Visitor<'de> for AnnotationsVisitor {
    type Value = Annotations;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Annotations, A::Error> {
        let mut found = Annotations::default();
        while let Some(key) = map.next_key::<Key>()? {
            match key {
                Key::Id => found.id = text(map.next_value()?),
                Key::Etag => found.etag = text(map.next_value()?),
                other => {
                    found.has_type |= other == Key::Type;
                    found.has_properties |= other == Key::Property;
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }
}

/// A string; `None` for anything else, so that one odd value costs only itself.
fn text(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

#[derive(Debug, PartialEq, Eq)]
enum Key {
    Id,
    Etag,
    Type,
    OtherAnnotation,
    Property,
}

impl<'de> serde::Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl Visitor<'_> for KeyVisitor {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a property's name")
            }

            fn visit_str<E>(self, name: &str) -> Result<Key, E> {
                Ok(match name {
                    "@odata.id" => Key::Id,
                    "@odata.etag" => Key::Etag,
                    "@odata.type" => Key::Type,
                    other if other.starts_with('@') => Key::OtherAnnotation,
                    _ => Key::Property,
                })
            }
        }
        deserializer.deserialize_identifier(KeyVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_are_read_in_passing() {
        let found = Annotations::of(
            br#"{"@odata.id":"/x\u002fy","Name":"n","@odata.etag":"W/\"1\"","A":{"@odata.id":"/z"}}"#,
        );
        let expected = Annotations {
            id: Some("/x/y".into()),
            etag: Some("W/\"1\"".into()),
            has_type: false,
            has_properties: true,
        };
        assert_eq!(found, Ok(expected));
        for reference in [
            r#"{"@odata.id":"/x","@odata.type":"t"}"#,
            r#"{"@odata.id":"/x","Name":"n"}"#,
        ] {
            assert!(
                !Annotations::of(reference.as_bytes()).unwrap().is_resource(),
                "{reference}"
            );
        }
        let whole = Annotations::of(br#"{"@odata.id":"/x","@odata.type":"t","Id":"x"}"#).unwrap();
        assert!(whole.is_resource());
        assert_eq!(
            Annotations::of(br#"{"@odata.id":7,"@odata.etag":null}"#),
            Ok(Annotations::default())
        );
        assert!(Annotations::of(b"[]").is_err());
    }

    #[test]
    fn skipping_a_deep_value_neither_overflows_nor_fails_the_rest() {
        let deep = format!(
            r#"{{"Deep":{}{},"@odata.id":"/x"}}"#,
            "[".repeat(200_000),
            "]".repeat(200_000)
        );
        assert_eq!(
            Annotations::of(deep.as_bytes()).unwrap().id.as_deref(),
            Some("/x")
        );
    }

    #[test]
    fn the_first_byte_tells() {
        for good in ["{}", "  \r\n{", "\u{feff}{}"] {
            assert_eq!(looks_like_json_object(good.as_bytes()), Ok(()), "{good:?}");
        }
        assert_eq!(looks_like_json_object(b"<!DOCTYPE html>"), Err(Unreadable::Html));
        assert_eq!(looks_like_json_object(b" \n"), Err(Unreadable::Empty));
        for bad in [&b"OK"[..], b"[]", b"\xff\xfe{\0", b"\"x\""] {
            assert!(
                matches!(looks_like_json_object(bad), Err(Unreadable::NotJson(_))),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn a_byte_order_mark_is_no_obstacle() {
        assert_eq!(parse::<u8>(b"\xef\xbb\xbf7"), Ok(7));
        assert_eq!(parse::<u8>(b""), Err(Unreadable::Empty));
    }
}
