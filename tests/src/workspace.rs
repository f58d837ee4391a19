//! The workspace as cargo sees it: crates, their licences and who depends on whom.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, io,
    path::{Path, PathBuf},
    process::Command,
};

use serde::Deserialize;

use crate::trees;

/// Every crate that the workspace builds on Linux, and the edges between them.
#[derive(Debug)]
pub struct Workspace {
    /// The folder of the root `Cargo.toml`.
    pub root: PathBuf,
    /// By package id.
    packages: BTreeMap<String, Package>,
    members: BTreeSet<String>,
    edges: BTreeMap<String, Vec<Edge>>,
}

/// One crate.
#[derive(Clone, Debug, Deserialize)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// SPDX expression; `None` where the crate names none.
    pub license: Option<String>,
    /// Where it comes from; `None` for crates of this workspace.
    pub source: Option<String>,
    pub manifest_path: PathBuf,
    pub targets: Vec<Target>,
}

/// A library, program, example or file of tests of a crate.
#[derive(Clone, Debug, Deserialize)]
pub struct Target {
    /// Its root file.
    pub src_path: PathBuf,
    /// Whether cargo test builds its unit tests.
    pub test: bool,
}

#[derive(Debug)]
struct Edge {
    to: String,
    /// Needed by what is shipped: a normal dependency, not one of tests or of build scripts.
    normal: bool,
}

impl Workspace {
    /// Reads the tree to be judged: this checkout, or the copy that `POOLWRIGHT_TREE` names.
    pub fn load() -> io::Result<Self> {
        Self::load_from(&tree_to_judge())
    }

    /// Runs `cargo metadata` in `root`.
    pub fn load_from(root: &Path) -> io::Result<Self> {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args([
                "metadata",
                "--format-version",
                "1",
                "--filter-platform",
                "x86_64-unknown-linux-gnu",
            ])
            .arg("--manifest-path")
            .arg(root.join("Cargo.toml"))
            .output()?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(io::Error::other(format!(
                "cargo metadata in {}: {text}",
                root.display()
            )));
        }
        let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
        Ok(metadata.into_workspace(root))
    }

    /// The workspace's own crates, by name.
    pub fn members(&self) -> impl Iterator<Item = &Package> {
        self.members.iter().map(|id| &self.packages[id])
    }

    /// Every crate that is built, the workspace's own included.
    pub fn packages(&self) -> impl Iterator<Item = &Package> {
        self.edges.keys().map(|id| &self.packages[id])
    }

    /// Names of the workspace's crates that `member` depends on directly, in what is shipped.
    #[must_use]
    pub fn uses(&self, member: &str) -> BTreeSet<&str> {
        let edges = self.id(member).map_or(&[][..], |id| &self.edges[id]);
        let own = edges
            .iter()
            .filter(|edge| edge.normal && self.members.contains(&edge.to));
        own.map(|edge| self.packages[&edge.to].name.as_str()).collect()
    }

    /// The shortest chain of normal dependencies from `member` to the crate called `target`, both
    /// included; `None` where it cannot be reached.
    #[must_use]
    pub fn chain(&self, member: &str, target: &str) -> Option<Vec<&str>> {
        let start = self.id(member)?;
        let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
        let mut queue = std::collections::VecDeque::from([start]);
        while let Some(id) = queue.pop_front() {
            if self.packages[id].name == target && id != start {
                let mut chain = vec![self.packages[id].name.as_str()];
                let mut at = id;
                while let Some(previous) = came_from.get(at) {
                    chain.push(&self.packages[*previous].name);
                    at = previous;
                }
                chain.reverse();
                return Some(chain);
            }
            for edge in self.edges[id].iter().filter(|edge| edge.normal) {
                if edge.to != start && !came_from.contains_key(edge.to.as_str()) {
                    came_from.insert(&edge.to, id);
                    queue.push_back(&edge.to);
                }
            }
        }
        None
    }

    fn id(&self, member: &str) -> Option<&str> {
        self.members
            .iter()
            .find(|id| self.packages[*id].name == member)
            .map(String::as_str)
    }
}

/// This checkout, or the copy that `POOLWRIGHT_TREE` names: how a planted fault is judged without
/// touching the checkout.
#[must_use]
pub fn tree_to_judge() -> PathBuf {
    env::var_os("POOLWRIGHT_TREE").map_or_else(trees::repository, PathBuf::from)
}

/// Committed files that are text, by their paths from `root`.
pub fn committed_texts(root: &Path) -> io::Result<Vec<(PathBuf, String)>> {
    let mut git = Command::new("git");
    let output = git.arg("-C").arg(root).args(["ls-files", "-z"]).output()?;
    if !output.status.success() {
        let root = root.display();
        return Err(io::Error::other(format!("git ls-files in {root}: {output:?}")));
    }
    let names = String::from_utf8_lossy(&output.stdout);
    let texts = names.split_terminator('\0').filter_map(|name| {
        let text = std::fs::read_to_string(root.join(name)).ok()?;
        Some((PathBuf::from(name), text))
    });
    Ok(texts.collect())
}

/// The part of `cargo metadata`'s answer that is used here.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<PackageEntry>,
    workspace_members: BTreeSet<String>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct PackageEntry {
    id: String,
    #[serde(flatten)]
    package: Package,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    /// `None`: normal; else `dev` or `build`.
    kind: Option<String>,
}

impl Metadata {
    fn into_workspace(self, root: &Path) -> Workspace {
        let edge = |dependency: Dependency| Edge {
            normal: dependency.dep_kinds.iter().any(|kind| kind.kind.is_none()),
            to: dependency.pkg,
        };
        let node = |node: Node| (node.id, node.deps.into_iter().map(edge).collect());
        Workspace {
            root: root.to_path_buf(),
            packages: self
                .packages
                .into_iter()
                .map(|entry| (entry.id, entry.package))
                .collect(),
            members: self.workspace_members,
            edges: self.resolve.nodes.into_iter().map(node).collect(),
        }
    }
}
