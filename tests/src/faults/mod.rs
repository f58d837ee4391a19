//! The catalogue of faults: what may go wrong, what is done about it, and the tests that show it.
//!
//! A line `Fault 14: …` in the documentation of a test, or at the head of a suite in `tests/suites`, says that it shows
//! row 14 of [`ROWS`]. [`shown`] finds these lines, [`complaints`] says which rows nobody shows, and [`page`] writes it all down as `docs/FAULTS.md`.

mod rows;

pub use rows::ROWS;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// A fault, and what is done about it.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub number: u16,
    pub fault: &'static str,
    pub behaviour: &'static str,
    /// What must be there before tests can show it, or all of it.
    pub waits_for: Option<&'static str>,
}

/// A test that shows a row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shown {
    pub row: u16,
    /// From the root of the workspace.
    pub file: PathBuf,
    /// Of a suite the options with which it shows the row.
    pub test: String,
}

const MARK: &str = "/// Fault ";
const MARK_OF_SUITE: &str = "# Fault ";
const SUITES: &str = "tests/suites";

/// The tests of some source files that show rows, and the marks that stand over no test.
pub fn shown(texts: &[(PathBuf, String)]) -> (Vec<Shown>, Vec<String>) {
    let (mut shown, mut lost) = (Vec::new(), Vec::new());
    for (file, text) in texts {
        if file.extension().is_some_and(|extension| extension == "rs") {
            read(file, text, &mut shown, &mut lost);
        } else if file.starts_with(SUITES) {
            read_suite(file, text, &mut shown, &mut lost);
        }
    }
    shown.sort();
    (shown, lost)
}

fn read(file: &Path, text: &str, shown: &mut Vec<Shown>, lost: &mut Vec<String>) {
    let (mut marks, mut is_test) = (Vec::new(), false);
    for (number, line) in text.lines().map(str::trim).enumerate() {
        let place = || format!("{}:{}", file.display(), number + 1);
        if let Some(mark) = line.strip_prefix(MARK) {
            match mark.split_once(": ").map(|(row, _)| row.parse()) {
                Some(Ok(row)) => marks.push(row),
                _ => lost.push(format!("{}: this is no `Fault N: what`", place())),
            }
        } else if line == "#[test]" || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if !line.starts_with("///") && !line.starts_with("#[") {
            let test = is_test.then(|| name_of(line)).flatten();
            for row in marks.drain(..) {
                match test {
                    Some(test) => shown.push(Shown {
                        row,
                        file: file.to_owned(),
                        test: test.to_owned(),
                    }),
                    None => lost.push(format!("{}: fault {row} is marked over no test", place())),
                }
            }
            is_test = false;
        }
    }
}

/// What a suite says at its head that it shows.
fn read_suite(file: &Path, text: &str, shown: &mut Vec<Shown>, lost: &mut Vec<String>) {
    for mark in text.lines().filter_map(|line| line.strip_prefix(MARK_OF_SUITE)) {
        let row = mark.split_once(": ").map_or("", |(row, _)| row);
        let (row, options) = row.split_once(", ").unwrap_or((row, ""));
        match row.parse() {
            Ok(row) => shown.push(Shown {
                row,
                file: file.to_owned(),
                test: options.to_owned(),
            }),
            _ => lost.push(format!("{}: this is no `Fault N: what`", file.display())),
        }
    }
}

/// The name of the function that begins in this line.
fn name_of(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let only_words = before
        .split_whitespace()
        .all(|word| word == "async" || word == "pub");
    only_words.then(|| after.split(['(', '<']).next().unwrap_or(after))
}

/// What is wrong with the catalogue: rows that nobody shows, and tests that show what is not in it.
pub fn complaints(rows: &[Row], shown: &[Shown]) -> Vec<String> {
    let known: BTreeSet<u16> = rows.iter().map(|row| row.number).collect();
    let met: BTreeSet<u16> = shown.iter().map(|shown| shown.row).collect();
    let nobody = rows
        .iter()
        .filter(|row| row.waits_for.is_none() && !met.contains(&row.number))
        .map(|row| format!("no test shows fault {}: {}", row.number, row.fault));
    let unknown = shown.iter().filter(|shown| !known.contains(&shown.row));
    let unknown = unknown.map(|shown| {
        let (file, test) = (shown.file.display(), &shown.test);
        format!(
            "{file}: {test} shows fault {}, which is not in the catalogue",
            shown.row
        )
    });
    let twice = shown.windows(2).filter(|pair| pair[0] == pair[1]);
    let twice = twice.map(|pair| format!("{} shows fault {} twice", pair[0].test, pair[0].row));
    nobody.chain(unknown).chain(twice).collect()
}

/// The catalogue as a page in `docs/`.
pub fn page(rows: &[Row], shown: &[Shown]) -> String {
    let open = rows.iter().filter(|row| row.waits_for.is_some()).count();
    let mut page = format!(
        "# Faults\n\n\
         What may go wrong, what Poolwright does about it, and the tests that show it: {} of {} faults, {open} are open.\n\
         This page is written by `cargo run -p poolwright-tests --bin faults`, from the lines `Fault N: …` over the tests\n\
         and from `tests/src/faults/rows.rs`; a test holds it to both.\n\n\
         | # | fault | what is done | shown by |\n|--:|---|---|---|\n",
        rows.len() - open,
        rows.len()
    );
    for row in rows {
        let tests: Vec<_> = shown
            .iter()
            .filter(|shown| shown.row == row.number)
            .map(link)
            .collect();
        let mut by = tests.join("<br>");
        if let Some(waits_for) = row.waits_for {
            let part = if tests.is_empty() { "" } else { "; in part: " };
            by = format!("*open*, waits for {waits_for}{part}{by}");
        }
        // Writing to a string can't fail.
        let _ = writeln!(
            page,
            "| {} | {} | {} | {by} |",
            row.number, row.fault, row.behaviour
        );
    }
    page
}

/// Such as `sweep::every_request…`, or `tests/run power`, with a link to its file.
fn link(shown: &Shown) -> String {
    let module = shown.file.file_stem().unwrap_or_default().to_string_lossy();
    if shown.file.starts_with(SUITES) {
        let space = if shown.test.is_empty() { "" } else { " " };
        return format!(
            "[`tests/run {}{space}{module}`](../{})",
            shown.test,
            shown.file.display()
        );
    }
    let module = match module.as_ref() {
        // The folder says more.
        "mod" | "lib" | "main" => shown
            .file
            .parent()
            .and_then(Path::file_name)
            .unwrap_or_default()
            .to_string_lossy(),
        _ => module,
    };
    format!("[`{module}::{}`](../{})", shown.test, shown.file.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let row = |number, waits_for| Row {
            number,
            fault: "it breaks",
            behaviour: "it is mended",
            waits_for,
        };
        vec![row(1, None), row(2, Some("a tool")), row(3, None)]
    }

    fn read_all(text: &str) -> (Vec<Shown>, Vec<String>) {
        shown(&[(PathBuf::from("tests/a.rs"), text.to_owned())])
    }

    #[test]
    fn a_mark_belongs_to_the_test_below_it() {
        let mark = "/// Some words.\n/// Fault 1: it breaks.\n/// Fault 3: and again.\n";
        for attributes in ["#[test]", "#[tokio::test(start_paused = true)]\n#[should_panic]"] {
            let (shown, lost) = read_all(&format!("{mark}{attributes}\nasync fn it_holds() {{\n"));
            assert_eq!(lost, Vec::<String>::new());
            let rows: Vec<_> = shown
                .iter()
                .map(|shown| (shown.row, shown.test.as_str()))
                .collect();
            assert_eq!(rows, [(1, "it_holds"), (3, "it_holds")]);
        }
        let (shown, lost) = read_all(&format!("{mark}fn helper() {{\n#[test]\nfn it_holds() {{\n"));
        assert_eq!((shown.len(), lost.len()), (0, 2), "{lost:?}");
        assert_eq!(read_all("/// Fault one: it breaks.\n").1.len(), 1);

        let suite = "#!/bin/sh\n# what: it\n# Fault 3: it breaks\n# Fault 4, --full: and again\n";
        let (shown, lost) = super::shown(&[(PathBuf::from("tests/suites/a"), suite.to_owned())]);
        assert_eq!((shown[0].row, shown[1].row, lost.len()), (3, 4, 0));
        assert_eq!(link(&shown[0]), "[`tests/run a`](../tests/suites/a)");
        assert_eq!(link(&shown[1]), "[`tests/run --full a`](../tests/suites/a)");
    }

    #[test]
    fn what_nobody_shows_is_named_and_so_is_what_is_not_there() {
        let by = |row| Shown {
            row,
            file: "tests/a.rs".into(),
            test: "it_holds".to_owned(),
        };
        assert_eq!(complaints(&rows(), &[by(1), by(3)]), Vec::<String>::new());
        let wrong = complaints(&rows(), &[by(1), by(1), by(99)]);
        for (complaint, word) in wrong.iter().zip(["no test shows fault 3", "fault 99", "twice"]) {
            assert!(complaint.contains(word), "{complaint}");
        }
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        let page = page(&rows(), &[by(1), by(2), by(3)]);
        assert!(page.contains("| 1 | it breaks | it is mended | [`a::it_holds`](../tests/a.rs) |"));
        assert!(
            page.contains("*open*, waits for a tool; in part: [`a::it_holds`]"),
            "{page}"
        );
    }
}
