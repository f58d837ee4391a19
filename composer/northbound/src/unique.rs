//! A body in which a key stands twice is refused: whoever looks at one of the two, such as a proxy or the audit log, would
//! see another request than the one that is carried out.

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize as _, Deserializer};
use std::collections::HashSet;
use std::fmt;

/// What is wrong with a body as JSON, with its line and column; how deep it goes is bounded by the parser.
pub(crate) fn check(body: &[u8]) -> Result<(), serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    Unique.deserialize(&mut reader)?;
    reader.end()
}

struct Unique;

impl<'de> DeserializeSeed<'de> for Unique {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Unique {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = map.next_key_seed(Key)? {
            if keys.contains(&key) {
                let key: String = key.chars().take(60).collect();
                return Err(A::Error::custom(format!("the key {key:?} stands twice")));
            }
            keys.insert(key);
            map.next_value_seed(Unique)?;
        }
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Unique)?.is_some() {}
        Ok(())
    }
    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// A key as it is meant: `"\u0061"` is `"a"`.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = String;
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<String, D::Error> {
        String::deserialize(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(body: &str) -> String {
        check(body.as_bytes()).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn a_key_that_stands_twice_is_named_however_it_is_written_and_wherever() {
        for (body, key) in [
            (r#"{"a": 1, "a": 1}"#, "\"a\""),
            (r#"{"a": 1, "\u0061": 2}"#, "\"a\""),
            (r#"{"x": [{"deep": {"b": 1, "c": 2, "b": 3}}]}"#, "\"b\""),
        ] {
            let said = wrong(body);
            assert!(
                said.contains(key) && said.contains("twice") && said.contains("line 1"),
                "{said}"
            );
        }
        assert_eq!(
            wrong(r#"{"a": {"a": [1, 2.5, -1, "a", null, true]}, "A": {}}"#),
            ""
        );
    }

    #[test]
    fn what_is_no_json_or_too_deep_is_said_and_nothing_overflows() {
        assert!(wrong("{").contains("EOF"));
        assert!(wrong("{} {}").contains("trailing"));
        for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
            let deep = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
            assert!(wrong(&deep).contains("recursion"), "{open}");
        }
    }
}
