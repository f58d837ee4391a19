//! The rules of the house that no compiler checks: lints inherited, names, and what committed text says.

use std::{
    fs,
    path::{Path, PathBuf},
};

use poolwright_tests::workspace::{self, Workspace, tree_to_judge};

fn manifest(path: &Path) -> toml::Table {
    fs::read_to_string(path).unwrap().parse().unwrap()
}

#[test]
fn every_crate_inherits_the_lints_and_unsafe_is_forbidden() {
    let workspace = Workspace::load().unwrap();
    let root = manifest(&workspace.root.join("Cargo.toml"));
    assert_eq!(
        root["workspace"]["lints"]["rust"]["unsafe_code"].as_str(),
        Some("forbid")
    );
    for member in workspace.members() {
        let inherits = manifest(&member.manifest_path)
            .get("lints")
            .and_then(|lints| lints.get("workspace").cloned());
        let inherits = inherits.and_then(|value| value.as_bool());
        assert_eq!(
            inherits,
            Some(true),
            "{} lacks `[lints] workspace = true`",
            member.name
        );
    }
}

/// Cargo would neither compile nor run them.
#[test]
fn targets_without_a_test_build_hold_no_tests() {
    let texts = committed_texts();
    for target in Workspace::load().unwrap().members().flat_map(|m| &m.targets) {
        let file = target.src_path.strip_prefix(tree_to_judge()).unwrap();
        // A library, and a program in a folder of its own, have modules beside their root file.
        let place =
            match file.ends_with("lib.rs") || file.ends_with("main.rs") && !file.ends_with("src/main.rs") {
                true => file.parent().unwrap(),
                false => file,
            };
        let mut theirs = texts
            .iter()
            .filter(|(path, _)| path.starts_with(place))
            .peekable();
        assert!(
            theirs.peek().is_some(),
            "no committed text in {}",
            place.display()
        );
        let holder = theirs.find(|(_, text)| {
            ["#[test]", "::test]", "cfg(test)"]
                .iter()
                .any(|word| text.contains(word))
        });
        assert!(
            target.test || holder.is_none(),
            "the tests in {} never run: take test = false from its crate's manifest",
            holder.unwrap().0.display()
        );
    }
}

#[test]
fn each_lint_has_a_reason_above_it() {
    let workspace = Workspace::load().unwrap();
    let text = fs::read_to_string(workspace.root.join("Cargo.toml")).unwrap();
    let mut in_lints = false;
    let mut before = "";
    for line in text.lines() {
        if line.starts_with('[') {
            in_lints = line.starts_with("[workspace.lints");
        } else if in_lints && line.contains(" = ") {
            assert!(before.starts_with('#'), "no reason above {line:?}");
        }
        before = line;
    }
}

#[test]
fn the_api_is_documented_path_by_path() {
    let root = Workspace::load().unwrap().root;
    let page = fs::read_to_string(root.join("docs/API.md")).unwrap();
    let mut paths = 0;
    for file in fs::read_dir(root.join("composer/northbound/src/api")).unwrap() {
        let code = fs::read_to_string(file.unwrap().path()).unwrap();
        let routes =
            [".route(\"/", ".get(\"/", ".post(\"/", ".delete(\"/"].map(|add| code.split(add).skip(1));
        for route in routes.into_iter().flatten() {
            let path = format!("/{}", route.split('"').next().unwrap());
            assert!(page.contains(&format!(" {path}`")), "docs/API.md lacks {path}");
            paths += 1;
        }
    }
    assert!(paths > 30, "only {paths} routes were found");
}

#[test]
fn a_crate_is_called_poolwright_and_the_name_of_its_room() {
    for member in Workspace::load().unwrap().members() {
        let folder = member
            .manifest_path
            .parent()
            .unwrap()
            .file_name()
            .unwrap()
            .to_string_lossy()
            .into_owned();
        assert_eq!(member.name, format!("poolwright-{folder}"));
    }
}

fn committed_texts() -> Vec<(PathBuf, String)> {
    let mut texts = workspace::committed_texts(&tree_to_judge()).unwrap();
    // They are cargo's, and name where crates come from.
    texts.retain(|(path, _)| !path.ends_with("Cargo.lock"));
    assert!(texts.len() > 20, "only {} committed texts found", texts.len());
    texts
}

/// Every place where one of the words stands, as `file:line: word`.
fn places(texts: &[(PathBuf, String)], words: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in texts {
        for (number, line) in text.lines().enumerate() {
            for word in words.iter().filter(|word| line.contains(word.as_str())) {
                found.push(format!("{}:{}: {word}", path.display(), number + 1));
            }
        }
    }
    found
}

/// The words are put together here, so that this file does not contain what it looks for.
fn words(halves: &[(&str, &str)]) -> Vec<String> {
    halves
        .iter()
        .map(|(first, second)| format!("{first}{second}"))
        .collect()
}

#[test]
fn committed_text_names_no_path_of_a_machine() {
    let words = words(&[("/wo", "rk/"), ("/ro", "ot/"), ("/tmp/", "ref"), ("/ho", "me/")]);
    let found = places(&committed_texts(), &words);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn committed_text_names_no_package_registry() {
    let words = words(&[
        ("crates", ".io"),
        ("pypi", ".org"),
        ("python", "hosted.org"),
        ("npmjs", ".org"),
        ("npmjs", ".com"),
        ("deb.deb", "ian.org"),
        ("proxy.gol", "ang.org"),
    ]);
    let found = places(&committed_texts(), &words);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn committed_text_puts_nothing_off() {
    let words = words(&[
        ("TO", "DO"),
        ("FIX", "ME"),
        ("todo", "!("),
        ("unimplemented", "!("),
    ]);
    let found = places(&committed_texts(), &words);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Longer, and nobody reads a file to its end.
const MOST_LINES: usize = 600;

#[test]
fn a_file_is_short_enough_to_read() {
    // What the generator writes nobody reads from top to bottom; a table of data is looked things up in.
    let written = |path: &Path| {
        !path.components().any(|part| part.as_os_str() == "generated") && !path.starts_with("hw-profiles")
    };
    let long: Vec<_> = committed_texts()
        .into_iter()
        .filter(|(path, text)| written(path) && text.lines().count() > MOST_LINES)
        .map(|(path, text)| format!("{}: {} lines", path.display(), text.lines().count()))
        .collect();
    assert!(
        long.is_empty(),
        "longer than {MOST_LINES} lines:\n{}",
        long.join("\n")
    );
}

#[test]
fn the_licence_that_every_crate_names_is_there() {
    let text = fs::read_to_string(tree_to_judge().join("LICENSE")).unwrap();
    assert!(text.contains("Apache License") && text.contains("Version 2.0, January 2004"));
}

#[test]
fn a_forbidden_word_is_found_with_its_place() {
    let texts = vec![(PathBuf::from("a.md"), "fine\nleft for later: FIXED\n".to_owned())];
    assert_eq!(places(&texts, &words(&[("FIX", "ED")])), ["a.md:2: FIXED"]);
    assert!(places(&texts, &words(&[("absent", "word")])).is_empty());
}
