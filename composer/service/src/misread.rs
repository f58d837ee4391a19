//! What people or programs wrote and serde can't read, told in a sentence: which field, what stands there, and what
//! belongs there. The same from each format, so that nobody is told in the words of a library.

use poolwright_model::nearest::{did_you_mean, nearest};
use serde::de::{DeserializeOwned, Deserializer};

/// Whole numbers by the type that holds them.
const WHOLE: &[(&str, i128, i128)] = &[
    ("u8", 0, u8::MAX as i128),
    ("u16", 0, u16::MAX as i128),
    ("u32", 0, u32::MAX as i128),
    ("u64", 0, u64::MAX as i128),
    ("usize", 0, u64::MAX as i128),
    ("i32", i32::MIN as i128, i32::MAX as i128),
    ("i64", i64::MIN as i128, i64::MAX as i128),
];

/// A value that can't be read, and where it stands.
#[derive(Debug)]
pub struct Misread<E> {
    /// Such as `demands[0].gpus`; empty for the whole.
    pub place: String,
    pub error: E,
}

impl<E> Misread<E> {
    /// Of a text that is wrong as a whole.
    pub fn whole(error: E) -> Self {
        let place = String::new();
        Self { place, error }
    }
}

/// Reads a value; of one that can't be read, where it stands.
///
/// # Errors
///
/// The first field that can't be read.
pub fn located<'de, T: DeserializeOwned, D: Deserializer<'de>>(from: D) -> Result<T, Misread<D::Error>> {
    serde_path_to_error::deserialize(from).map_err(|error| Misread {
        place: known(&error.path().to_string()),
        error: error.into_inner(),
    })
}

/// A path as far as it is known: what ends within a group, `a.?`, is in the group.
fn known(path: &str) -> String {
    let path = path.trim_end_matches('?');
    path.strip_suffix('.').unwrap_or(path).to_owned()
}

/// Reads JSON; what can't be read is told in a sentence.
///
/// # Errors
///
/// That sentence.
pub fn json<T: DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let read = located(&mut reader);
    let read = read.and_then(|value| reader.end().map(|()| value).map_err(Misread::whole));
    read.map_err(|Misread { place, error }| sentence(&place, &error.to_string()))
}

/// What serde said of a place, as a sentence.
#[must_use]
pub fn sentence(place: &str, said: &str) -> String {
    let said = without_line(said.trim());
    // YAML's reader says itself where it was: at the field, or at the group that has it.
    let said = match said.split_once(": ") {
        Some((itself, rest)) if !itself.is_empty() && place.starts_with(itself) => rest,
        _ => said,
    };
    let at = if place.is_empty() { "what is given" } else { place };
    for kind in ["invalid type: ", "invalid value: ", "invalid length "] {
        let parts = said
            .strip_prefix(kind)
            .and_then(|rest| rest.rsplit_once(", expected "));
        if let Some((found, expected)) = parts {
            return format!(
                "{at} is {}; what belongs there: {}",
                value(found),
                wanted(expected)
            );
        }
    }
    let quoted: Vec<&str> = said.split('`').skip(1).step_by(2).collect();
    match (quoted.as_slice(), said.split(' ').next().unwrap_or_default()) {
        ([field, known @ ..], "unknown") if said.starts_with("unknown field") => {
            let parent = place.rsplit_once('.').map_or("", |(parent, _)| parent);
            let parent = if parent.is_empty() {
                "what is given"
            } else {
                parent
            };
            one_of(format!("{parent} has no field `{field}`"), field, known)
        }
        ([variant, known @ ..], "unknown") => one_of(format!("{at} is `{variant}`"), variant, known),
        ([field], "missing") => format!("{at} lacks the field `{field}`"),
        _ if place.is_empty() => said.to_owned(),
        _ => format!("{at}: {said}"),
    }
}

fn one_of(mut wrong: String, given: &str, known: &[&str]) -> String {
    if let Some(suggestion) = did_you_mean(&nearest(given, known.iter().copied())) {
        wrong.push_str(&format!(": {suggestion}"));
    }
    match known {
        [] => format!("{wrong}; none is allowed there"),
        known => format!("{wrong}; allowed: `{}`", known.join("`, `")),
    }
}

/// Without ` at line 3 column 7`, which is of no use where a program wrote the text, and told by itself elsewhere.
fn without_line(said: &str) -> &str {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match said.rsplit_once(" at line ") {
        Some((what, place))
            if place
                .split_once(" column ")
                .is_some_and(|(line, column)| is_number(line) && is_number(column)) =>
        {
            what
        }
        _ => said,
    }
}

/// A value as it stands there, and not by serde's name of its type.
fn value(found: &str) -> String {
    let bare = |kind: &str| {
        let rest = found.strip_prefix(kind)?;
        Some(rest.trim_matches('`').to_owned())
    };
    let given = ["string ", "integer ", "floating point ", "boolean ", "character "];
    given
        .iter()
        .find_map(|kind| bare(kind))
        .unwrap_or_else(|| match found {
            "map" => "a group of fields".to_owned(),
            "sequence" => "a list".to_owned(),
            "null" | "unit value" | "Option value" => "empty".to_owned(),
            length if length.bytes().all(|byte| byte.is_ascii_digit()) => format!("a list of {length}"),
            other => other.to_owned(),
        })
}

fn wanted(expected: &str) -> String {
    let whole = WHOLE.iter().find(|(kind, ..)| *kind == expected);
    match (whole, expected) {
        (Some((_, least, most)), _) => format!("a whole number from {least} to {most}"),
        (None, "f32" | "f64") => "a number".to_owned(),
        (None, "a string" | "string" | "str") => "text".to_owned(),
        (None, "a boolean") => "true or false".to_owned(),
        (None, "a sequence") => "a list".to_owned(),
        (None, "a map") => "a group of fields".to_owned(),
        (None, kind) if kind.starts_with("struct ") => "a group of fields".to_owned(),
        (None, other) => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Declaration;

    #[test]
    fn what_stands_there_and_what_belongs_there_is_said() {
        for (text, said) in [
            (
                r#"{"demands": [{"id": "a", "gpus": "four"}]}"#,
                "demands[0].gpus is \"four\"; what belongs there: a whole number from 0 to 4294967295",
            ),
            (
                r#"{"demands": [{"id": "a", "gpus": -1}]}"#,
                "demands[0].gpus is -1; what belongs there: a whole number from 0 to 4294967295",
            ),
            (
                r#"{"demands": {"id": "a"}}"#,
                "demands is a group of fields; what belongs there: a list",
            ),
            (r#"{"demands": [{"gpus": 1}]}"#, "demands[0] lacks the field `id`"),
        ] {
            assert_eq!(json::<Declaration>(text.as_bytes()).unwrap_err(), said, "{text}");
        }
        let misspelt = json::<Declaration>(br#"{"demands": [{"id": "a", "gpu": 1}]}"#).unwrap_err();
        assert!(
            misspelt.starts_with("demands[0] has no field `gpu`: did you mean gpus")
                && misspelt.contains("`tenant`"),
            "{misspelt}"
        );
        assert!(json::<Declaration>(b"{} and more").is_err());
        let cut = json::<Declaration>(br#"{"demands": [{"id": "a""#).unwrap_err();
        assert!(cut.starts_with("demands[0]: EOF"), "{cut}");
        let cut = json::<Declaration>(br#"{"demands": [{"#).unwrap_err();
        assert!(cut.starts_with("demands[0]: EOF"), "{cut}");
        let group =
            br#"{"demands": [{"id": "a", "model": "8B", "task": "full", "set": {"optimizer": [1]}}]}"#;
        let told = "demands[0].set.optimizer: what belongs there: text, a number, or true or false";
        assert_eq!(json::<Declaration>(group).unwrap_err(), told);
    }

    #[test]
    fn where_a_reader_says_itself_where_it_was_that_is_said_once() {
        let said = "demands[0]: unknown field `gpu`, expected `gpus` at line 3 column 5";
        let told = "demands[0] has no field `gpu`: did you mean gpus?; allowed: `gpus`";
        assert_eq!(sentence("demands[0].gpu", said), told);
    }

    #[test]
    fn of_texts_that_look_like_places_nothing_is_cut_off() {
        let said = r#"invalid type: string "met at line 3 column x", expected u32 at line 1 column 9"#;
        assert!(sentence("a", said).contains("met at line 3 column x"));
    }
}
