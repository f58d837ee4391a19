//! Where in a file stands what was refused, though it could be read: the manager names the demand or schedule and often
//! the field or its value, and these are looked for in the text. That works alike for TOML, YAML and JSON, whose fields
//! all are a name, `=` or `:`, and a value.

use crate::exit_code::ExitCode;
use crate::failure::Failure;
use std::fs;
use std::path::Path;

/// No more of a value than so many characters is shown.
const SHOWN: usize = 60;

/// A field as it is written: its name, its value up to the end of the line, and where it begins.
#[derive(Clone, Copy)]
struct Field<'a> {
    name: &'a str,
    value: &'a str,
    at: usize,
}

/// Says of a refusal in which file and, where that is found, in which line and field it has its cause. `named` are the
/// names of what the file declares.
pub fn told(refused: Failure, file: &Path, named: &[String]) -> Failure {
    if !matches!(
        refused.code,
        ExitCode::Usage | ExitCode::NotFound | ExitCode::Conflict
    ) {
        return refused;
    }
    let text = fs::read_to_string(file).unwrap_or_default();
    let place = culprit(&text, named, &refused.message).map(|field| {
        let line = 1 + text[..field.at].matches('\n').count();
        let value: String = field.value.chars().take(SHOWN).collect();
        format!(", line {line}, {} = {value}", field.name)
    });
    Failure {
        message: format!(
            "{}{}: {}",
            file.display(),
            place.unwrap_or_default(),
            refused.message
        ),
        ..refused
    }
}

/// The value of a field in a line, as it is written.
pub fn written<'a>(text: &'a str, line: usize, field: &str) -> Option<&'a str> {
    let line = text.lines().nth(line.checked_sub(1)?)?;
    let found = fields(line).into_iter().find(|found| found.name == field)?;
    Some(bare(found.value))
}

/// The field that a message is about: of the entry that it names, one whose value it has, else one that it names, else
/// the entry's own name.
fn culprit<'a>(text: &'a str, named: &[String], message: &str) -> Option<Field<'a>> {
    let fields = fields(text);
    let is_id = |field: &Field<'_>, id: &str| field.name == "id" && bare(field.value) == id;
    let kinds = ["demand ", "schedule ", "job "];
    let is_named = |id: &&String| kinds.iter().any(|kind| has_word(message, &format!("{kind}{id}")));
    let entries = named.iter().filter(is_named);
    let entries = entries.filter_map(|id| fields.iter().position(|field| is_id(field, id)));
    let entries: Vec<usize> = entries.collect();
    let found = entries.iter().find_map(|id| {
        let own = of_entry(&fields, *id);
        let by_value =
            |field: &&Field<'_>| bare(field.value).len() > 2 && message.contains(bare(field.value));
        let by_name = |field: &&Field<'_>| has_word(message, field.name);
        own.iter()
            .find(by_value)
            .or_else(|| own.iter().find(by_name))
            .copied()
    });
    // Of what is named by nobody but the message, such as a demand that there is none of.
    let quoted = message.split('"').skip(1).step_by(2);
    let mut quoted = quoted.filter(|text| !text.is_empty());
    found
        .or_else(|| entries.first().map(|id| fields[*id]))
        .or_else(|| quoted.find_map(|text| fields.iter().find(|field| field.value.contains(text)).copied()))
}

/// The fields of the entry whose `id` is at that place: up to the next entry's, then those before it.
fn of_entry<'a>(fields: &[Field<'a>], id: usize) -> Vec<Field<'a>> {
    let is_id = |field: &Field<'_>| field.name == "id";
    let after = fields[id + 1..].iter().take_while(|field| !is_id(field));
    let before = fields[..id].iter().rev().take_while(|field| !is_id(field));
    after.chain(before).copied().collect()
}

/// All that looks like a field, in the order of the text.
fn fields(text: &str) -> Vec<Field<'_>> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let mut fields = Vec::new();
    for (at, _) in text.match_indices(['=', ':']) {
        let before = text[..at].trim_end_matches([' ', '\t']);
        let before = before.strip_suffix('"').unwrap_or(before);
        let begin = before.trim_end_matches(is_name).len();
        let value = text[at + 1..].lines().next().unwrap_or_default().trim();
        // Not the colon of a time of day.
        let is_named = before[begin..].starts_with(|c: char| c.is_ascii_alphabetic());
        if is_named && !value.is_empty() {
            fields.push(Field {
                name: &before[begin..],
                value: upto_end(value),
                at: begin,
            });
        }
    }
    fields
}

/// A value without what follows it in its line: up to a comma or bracket outside of quotes and brackets of its own.
fn upto_end(value: &str) -> &str {
    let (mut quoted, mut open) = (None, 0);
    for (at, c) in value.char_indices() {
        match (quoted, c) {
            (Some(quote), c) if quote == c => quoted = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quoted = Some(c),
            (None, '[' | '{') => open += 1,
            (None, ']' | '}' | ',' | '#') if open == 0 => return value[..at].trim_end(),
            (None, ']' | '}') => open -= 1,
            _ => {}
        }
    }
    value
}

fn bare(value: &str) -> &str {
    value.trim_matches(['"', '\''])
}

/// Whether a text has this, and not as a part of a longer name.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    !word.is_empty()
        && text.match_indices(word).any(|(at, _)| {
            let (before, after) = (&text[..at], &text[at + word.len()..]);
            !before.ends_with(is_part) && !after.starts_with(is_part)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOML: &str = "[[demands]]\nid = \"a\"\ngpus = 4\n\n[[demands]]\ngpus = 0\nid = \"b\"\n\
        [[schedules]]\nid = \"nights\"\nwindow = { opens = \"0 20 * * *\", zone = \"Asia/Atlantis\" }\n";
    const YAML: &str = "demands:\n  - id: a\n    gpus: 4\n  - id: b\n    gpus: 0\n\
        schedules:\n  - id: nights\n    window:\n      opens: '0 20 * * *'\n      zone: Asia/Atlantis\n";
    const JSON: &str = "{\"demands\": [{\"id\": \"a\", \"gpus\": 4},\n{\"id\": \"b\", \"gpus\": 0}],\n\
        \"schedules\": [{\"id\": \"nights\", \"window\": {\"opens\": \"0 20 * * *\",\n\"zone\": \"Asia/Atlantis\"}}]}";

    fn said(text: &str, message: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("wanted");
        fs::write(&file, text).unwrap();
        let named = ["a", "b", "nights"].map(str::to_owned);
        let told = told(Failure::usage(message), &file, &named).message;
        told.rsplit_once("wanted").unwrap().1.to_owned()
    }

    #[test]
    fn what_the_manager_refuses_is_found_in_each_form() {
        for (text, gpus, zone) in [(TOML, 6, 10), (YAML, 5, 10), (JSON, 2, 4)] {
            let zero = "demand b: gpus is 0; allowed: 1 to 65536";
            assert_eq!(said(text, zero), format!(", line {gpus}, gpus = 0: {zero}"));
            let unknown = "schedule nights: \"Asia/Atlantis\" is not an IANA time zone";
            let found = said(text, unknown);
            assert!(found.starts_with(&format!(", line {zone}, zone = ")), "{found}");
            assert!(
                found.contains("Asia/Atlantis") && found.ends_with(unknown),
                "{found}"
            );
        }
    }

    #[test]
    fn what_is_found_nowhere_is_said_of_the_entry_or_of_the_file() {
        assert_eq!(
            said(TOML, "demand a is odd"),
            ", line 2, id = \"a\": demand a is odd"
        );
        assert_eq!(said(TOML, "it is odd"), ": it is odd");
    }
}
