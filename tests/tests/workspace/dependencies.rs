//! What the workspaces depend on: no banned crate, no foreign source, no licence outside the list.
//!
//! The list is `deny.toml`, the same that cargo-deny reads; this test needs no other tool.

use std::{collections::BTreeSet, fs};

use poolwright_tests::{
    spdx,
    workspace::{Package, Workspace, tree_to_judge},
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Deny {
    bans: Bans,
    licenses: Licenses,
    sources: Sources,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Ban>,
}

#[derive(Deserialize)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

#[derive(Deserialize)]
struct Licenses {
    allow: BTreeSet<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    unknown_registry: String,
    unknown_git: String,
}

fn deny() -> Deny {
    let path = tree_to_judge().join("deny.toml");
    toml::from_str(&fs::read_to_string(&path).unwrap()).unwrap()
}

/// The shipped programs, and the generator of the Redfish types.
fn workspaces() -> [Workspace; 2] {
    let root = tree_to_judge();
    let of = |folder: &str| Workspace::load_from(&root.join(folder)).unwrap();
    [of(""), of("fabric/redfish-model/codegen")]
}

fn title(package: &Package) -> String {
    format!("{} {}", package.name, package.version)
}

#[test]
fn no_banned_crate_is_in_the_tree() {
    let (deny, workspaces) = (deny(), workspaces());
    for ban in &deny.bans.deny {
        let found: Vec<_> = workspaces
            .iter()
            .flat_map(Workspace::packages)
            .filter(|package| package.name == ban.name)
            .map(title)
            .collect();
        assert!(found.is_empty(), "{found:?} is banned: {}", ban.reason);
    }
}

#[test]
fn the_crates_that_pull_in_c_toolchains_are_on_the_list() {
    let banned: BTreeSet<_> = deny().bans.deny.into_iter().map(|ban| ban.name).collect();
    for name in ["aws-lc-sys", "aws-lc-rs", "openssl-sys", "openssl", "native-tls"] {
        assert!(banned.contains(name), "deny.toml does not ban {name}");
    }
}

#[test]
fn every_licence_is_on_the_list() {
    let (allowed, workspaces) = (deny().licenses.allow, workspaces());
    let mut refused = Vec::new();
    for package in workspaces.iter().flat_map(Workspace::packages) {
        match package
            .license
            .as_deref()
            .map(|licence| spdx::is_allowed(licence, &allowed))
        {
            Some(Ok(true)) => {}
            Some(Ok(false)) => refused.push(format!("{}: {:?}", title(package), package.license)),
            Some(Err(problem)) => refused.push(format!("{}: {problem}", title(package))),
            None => refused.push(format!("{}: names no licence", title(package))),
        }
    }
    assert!(
        refused.is_empty(),
        "not allowed by deny.toml:\n{}",
        refused.join("\n")
    );
}

#[test]
fn every_crate_comes_from_the_default_registry_or_from_here() {
    let (sources, workspaces) = (deny().sources, workspaces());
    assert_eq!(
        (sources.unknown_registry.as_str(), sources.unknown_git.as_str()),
        ("deny", "deny")
    );
    for package in workspaces.iter().flat_map(Workspace::packages) {
        let Some(source) = &package.source else { continue };
        assert!(
            source.starts_with("registry+https://github.com/rust-lang/"),
            "{}: {source}",
            title(package)
        );
    }
}

#[test]
fn our_own_crates_are_apache_licensed() {
    for package in workspaces().iter().flat_map(Workspace::members) {
        assert_eq!(package.license.as_deref(), Some("Apache-2.0"), "{}", package.name);
    }
}
