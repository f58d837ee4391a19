//! What people write in files: TOML, YAML or JSON, told apart by the file's ending.

use crate::failure::Failure;
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
    parse(file, &text).map_err(|error| {
        let message = format!("{}: {}", file.display(), error.trim_end());
        Failure::usage(message).with_hint(help.to_owned())
    })
}

fn parse<T: DeserializeOwned>(file: &Path, text: &str) -> Result<T, String> {
    let ending = file
        .extension()
        .and_then(|ending| ending.to_str())
        .unwrap_or_default();
    match ending.to_ascii_lowercase().as_str() {
        "json" => serde_json::from_str(text).map_err(|error| error.to_string()),
        "yaml" | "yml" => serde_norway::from_str(text).map_err(|error| error.to_string()),
        _ => toml::from_str(text).map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolwright_service::Declaration;

    const TOML: &str = "[[demands]]\nid = \"a\"\ngpus = 4\npriority = 2\n";
    const YAML: &str = "demands:\n  - id: a\n    gpus: 4\n    priority: 2\n";
    const JSON: &str = "{\"demands\": [{\"id\": \"a\",\n\"gpus\": 4,\n\"priority\": 2}]}";

    fn read(ending: &str, text: &str) -> Result<Declaration, String> {
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
    fn what_is_wrong_is_said_with_its_line_and_its_field() {
        for (ending, text) in [("toml", TOML), ("yaml", YAML), ("json", JSON)] {
            let misspelt = read(ending, &text.replace("gpus", "gpu")).unwrap_err();
            assert!(
                misspelt.contains("`gpu`") && misspelt.contains("`gpus`"),
                "{misspelt}"
            );
            assert!(misspelt.contains("line "), "{misspelt}");
            let wrong = read(ending, &text.replace('4', "\"four\"")).unwrap_err();
            assert!(wrong.contains("line ") && wrong.contains("four"), "{wrong}");
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
