//! What earlier versions kept is read by this one, and what this one keeps is as its format says.
//!
//! `composer/store/tests/versions/documents-NNNN.json` has documents of each format, at least one of each kind. Where a
//! test here fails because a document has another form than its format says, an older Poolwright would not read it, or
//! would lose a part of it: raise `DOCUMENT_FORMAT`, leave the file as it is, and add one of the new format.

use poolwright_service::documents::{kinds, reread};
use poolwright_store::DOCUMENT_FORMAT;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
struct Kept {
    kind: String,
    doc: Value,
}

fn composer() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn kept_in(format: u32) -> Vec<Kept> {
    let name = format!("store/tests/versions/documents-{format:04}.json");
    let path = composer().join(&name);
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{name}: {error}"));
    serde_json::from_str(&text).unwrap()
}

/// Fault 60: the other way round: a newer version meets what older ones have kept.
#[test]
fn documents_of_every_format_are_read() {
    for format in 1..=DOCUMENT_FORMAT {
        for Kept { kind, doc } in kept_in(format) {
            let again = reread(&kind, &doc.to_string());
            let again =
                again.unwrap_or_else(|| panic!("format {format} has {kind}, which nobody reads any more"));
            if let Err(error) = again {
                panic!("{kind} of format {format} is not read any more: {error}: {doc}");
            }
        }
    }
}

#[test]
fn what_is_written_today_is_as_its_format_says() {
    for Kept { kind, doc } in kept_in(DOCUMENT_FORMAT) {
        let again = reread(&kind, &doc.to_string()).unwrap().unwrap();
        let again: Value = serde_json::from_str(&again).unwrap();
        assert_eq!(
            again, doc,
            "{kind} has another form than format {DOCUMENT_FORMAT} says"
        );
    }
}

#[test]
fn there_is_an_example_of_every_kind_that_is_kept() {
    let examples: BTreeSet<String> = kept_in(DOCUMENT_FORMAT)
        .into_iter()
        .map(|kept| kept.kind)
        .collect();
    let known: BTreeSet<String> = kinds().map(str::to_owned).collect();
    assert_eq!(examples, known);
    let mut declared = BTreeSet::new();
    for folder in ["executor/src", "service/src"] {
        declare(&composer().join(folder), &mut declared);
    }
    let missing: Vec<_> = declared.difference(&known).collect();
    assert!(missing.is_empty(), "kept, and not in `documents`: {missing:?}");
    assert!(declared.len() > 20, "{declared:?}");
}

/// The kinds that the sources of a folder declare.
fn declare(folder: &Path, kinds: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            declare(&path, kinds);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let declared = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("const KIND: &'static str = \""));
        kinds.extend(declared.map(|rest| rest.trim_end_matches("\";").to_owned()));
    }
}
