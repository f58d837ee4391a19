//! What people write in files: TOML, YAML or JSON, told apart by the file's ending.

mod place;

pub use place::told;

use crate::failure::Failure;
use poolwright_service::misread::{self, Misread};
use serde::de::DeserializeOwned;
use std::fs;
use std::path::Path;

/// The largest file that is read.
const LARGEST: u64 = 16 << 20;

/// Reads a file; what is wrong with it is said with its line and its field.
pub fn read<T: DeserializeOwned>(file: &Path, help: &str) -> Result<T, Failure> {
    let unread = |error| Failure::file(file, "read", &error);
    let size = fs::metadata(file).map_err(unread)?.len();
    if size > LARGEST {
        let message = format!("{} has {size} bytes: at most {LARGEST} are read", file.display());
        return Err(Failure::usage(message).with_hint(help.to_owned()));
    }
    let text = fs::read_to_string(file).map_err(unread)?;
    parse(file, &text).map_err(|Wrong { line, field, what }| {
        let written = line.and_then(|line| place::written(&text, line, &field));
        let at = match (line, written) {
            (Some(line), Some(value)) if !what.contains(value) => format!(", line {line}, {field} = {value}"),
            (Some(line), _) => format!(", line {line}"),
            (None, _) => String::new(),
        };
        Failure::usage(format!("{}{at}: {what}", file.display())).with_hint(help.to_owned())
    })
}

/// What of a file can't be read.
#[derive(Debug, PartialEq)]
struct Wrong {
    line: Option<usize>,
    /// Its name, without what it is in.
    field: String,
    what: String,
}

impl Wrong {
    fn new(place: &str, said: &str, line: Option<usize>) -> Self {
        Self {
            line: line.filter(|line| *line > 0),
            field: place.rsplit('.').next().unwrap_or_default().to_owned(),
            what: misread::sentence(place, said),
        }
    }
}

fn parse<T: DeserializeOwned>(file: &Path, text: &str) -> Result<T, Wrong> {
    let ending = file
        .extension()
        .and_then(|ending| ending.to_str())
        .unwrap_or_default();
    match ending.to_ascii_lowercase().as_str() {
        "json" => {
            let mut reader = serde_json::Deserializer::from_str(text);
            let read = misread::located(&mut reader);
            let read = read.and_then(|value| reader.end().map(|()| value).map_err(Misread::whole));
            read.map_err(|Misread { place, error }| {
                Wrong::new(&place, &error.to_string(), Some(error.line()))
            })
        }
        "yaml" | "yml" => {
            let read = misread::located(serde_norway::Deserializer::from_str(text));
            read.map_err(|Misread { place, error }| {
                let line = error.location().map(|at| at.line());
                Wrong::new(&place, &error.to_string(), line)
            })
        }
        _ => {
            let read = toml::Deserializer::parse(text).map_err(Misread::whole);
            read.and_then(misread::located)
                .map_err(|Misread { place, error }| {
                    let before = error.span().and_then(|span| text.get(..span.start));
                    let line = before.map(|before| 1 + before.matches('\n').count());
                    Wrong::new(&place, error.message(), line)
                })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolwright_service::Declaration;

    const TOML: &str = "[[demands]]\nid = \"a\"\ngpus = 4\npriority = 2\n";
    const YAML: &str = "demands:\n  - id: a\n    gpus: 4\n    priority: 2\n";
    const JSON: &str = "{\"demands\": [{\"id\": \"a\",\n\"gpus\": 4,\n\"priority\": 2}]}";

    fn read(ending: &str, text: &str) -> Result<Declaration, Wrong> {
        parse(Path::new(&format!("wanted.{ending}")), text)
    }

    #[test]
    fn the_same_is_read_from_each_form() {
        let toml = read("toml", TOML).unwrap();
        assert_eq!(toml.demands[0].gpus, Some(4));
        for (ending, text) in [("yaml", YAML), ("YML", YAML), ("json", JSON)] {
            assert_eq!(read(ending, text).as_ref(), Ok(&toml), "{ending}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_each_form_with_line_and_field_and_value_and_what_would_be_right() {
        for (ending, text, line) in [("toml", TOML, 3), ("yaml", YAML, 3), ("json", JSON, 2)] {
            let wrong = |from: &str, to: &str| read(ending, &text.replacen(from, to, 1)).unwrap_err();
            let misspelt = wrong("gpus", "gpu");
            let what = "demands[0] has no field `gpu`: did you mean gpus or least_gpus?; allowed: ";
            assert!(misspelt.what.starts_with(what), "{ending}: {misspelt:?}");
            assert_eq!(misspelt.line, Some(line), "{ending}: {misspelt:?}");
            let what = "demands[0].gpus is \"four\"; what belongs there: a whole number from 0 to 4294967295";
            let what = what.to_owned();
            let four = wrong("4", "\"four\"");
            assert_eq!((four.what, four.line), (what, Some(line)), "{ending}");
            let missing = wrong("id", "tenant").what;
            assert_eq!(missing, "demands[0] lacks the field `id`", "{ending}");
        }
    }

    #[test]
    fn what_multiplies_itself_ends() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..30 {
            let last = format!("*a{}", n - 1);
            text += &format!("a{n}: &a{n} [{}]\n", vec![last; 9].join(", "));
        }
        text += "demands: *a29\n";
        assert!(read("yaml", &text).is_err());
    }
}
