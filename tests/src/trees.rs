//! The recorded and example Redfish trees, found beside the checkout and unpacked once.
//!
//! They are not part of the repository. Where they are absent, [`shared_dir`] is `None`, and a test that
//! needs them says so instead of passing quietly.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::Command,
};

/// The root of this checkout.
#[must_use]
pub fn repository() -> PathBuf {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_dir.parent().unwrap_or(crate_dir).to_path_buf()
}

/// The folder with recorded trees, schemas and traces: `POOLWRIGHT_SHARED`, or `../shared` beside the
/// checkout. `None` where neither is a folder.
#[must_use]
pub fn shared_dir() -> Option<PathBuf> {
    let dir = match env::var_os("POOLWRIGHT_SHARED") {
        Some(dir) => PathBuf::from(dir),
        None => repository().join("../shared"),
    };
    dir.canonicalize().ok().filter(|dir| dir.is_dir())
}

/// The names of the trees that can be unpacked, sorted. Empty where the shared folder is absent.
pub fn tree_names() -> io::Result<Vec<String>> {
    let Some(shared) = shared_dir() else {
        return Ok(Vec::new());
    };
    let mut names = Vec::new();
    for entry in fs::read_dir(shared.join("redfish/mockups"))? {
        let file = entry?.file_name().to_string_lossy().into_owned();
        if let Some(name) = file.strip_suffix(".tar.gz") {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Unpacks a tree into the target directory, once, and returns its folder.
///
/// Several processes may ask at once: each unpacks aside, and the first to rename wins.
pub fn unpack_tree(name: &str) -> io::Result<PathBuf> {
    let shared = shared_dir().ok_or_else(|| {
        let text = "recorded trees not present: put them in ../shared or set POOLWRIGHT_SHARED";
        io::Error::new(io::ErrorKind::NotFound, text)
    })?;
    if !tree_names()?.iter().any(|known| known == name) {
        let text = format!(
            "no recorded tree {name:?} in {}; known: {:?}",
            shared.display(),
            tree_names()?
        );
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    let cache = target_dir().join("recorded-trees");
    let unpacked = cache.join(name);
    if unpacked.is_dir() {
        return Ok(unpacked);
    }
    fs::create_dir_all(&cache)?;
    let aside = tempfile::tempdir_in(&cache)?;
    let archive = shared.join("redfish/mockups").join(format!("{name}.tar.gz"));
    let status = Command::new("tar")
        .arg("-xzf")
        .arg(&archive)
        .arg("-C")
        .arg(aside.path())
        .status()?;
    if !status.success() {
        return Err(io::Error::other(format!(
            "tar could not unpack {}: {status}",
            archive.display()
        )));
    }
    match fs::rename(aside.path().join(name), &unpacked) {
        Err(_) if unpacked.is_dir() => Ok(unpacked),
        Err(error) => Err(error),
        Ok(()) => Ok(unpacked),
    }
}

fn target_dir() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_not_in_the_list_is_refused_and_cannot_leave_the_folder() {
        for name in ["no-such-tree", "../shared/redfish", ""] {
            assert_eq!(
                unpack_tree(name).unwrap_err().kind(),
                io::ErrorKind::NotFound,
                "{name:?}"
            );
        }
    }

    #[test]
    fn unpacking_twice_gives_the_same_folder() {
        let Some(name) = tree_names().unwrap().first().cloned() else {
            eprintln!("recorded trees not present: not run");
            return;
        };
        let first = unpack_tree(&name).unwrap();
        assert!(first.is_dir());
        assert_eq!(first, unpack_tree(&name).unwrap());
    }
}
