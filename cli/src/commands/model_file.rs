//! Models in files: a `config.json` as model hubs have it, in place of a name.

use crate::failure::Failure;
use poolwright_service::demand::DemandSpec;
use std::fs;
use std::path::{Path, PathBuf};

/// Whether a file is meant, and no name.
pub fn is_file(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "json") || path.is_file()
}

/// What to call the model, and the file's text.
pub fn read(path: &Path) -> Result<(String, String), Failure> {
    let text = fs::read_to_string(path).map_err(|error| Failure::file(path, "read", &error))?;
    Ok((name(path), text))
}

/// From where another file is that names it, if it is there; else as it is named.
pub fn beside(other: &Path, named: &str) -> PathBuf {
    let beside = other.parent().map(|folder| folder.join(named));
    beside
        .filter(|path| is_file(path))
        .unwrap_or_else(|| named.into())
}

/// Puts the contents of the file that a demand names as its model into the demand: whoever is asked has no such file.
pub fn send_along(spec: &mut DemandSpec, named_in: &Path) -> Result<(), Failure> {
    let Some(named) = spec.model.as_deref().filter(|_| spec.config.is_none()) else {
        return Ok(());
    };
    let path = beside(named_in, named);
    if !is_file(&path) {
        return Ok(());
    }
    let (name, text) = read(&path)?;
    let config = serde_json::from_str(&text).map_err(|error| {
        Failure::usage(format!("{}: {error}", path.display())).with_hint(
            "give the config.json of a language model, as model hubs have it; or a size such as 70B",
        )
    })?;
    (spec.model, spec.config) = (Some(name), Some(config));
    Ok(())
}

/// What a config.json is about is said by the folder that it is in.
fn name(path: &Path) -> String {
    let stem = path
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default();
    let folder = path
        .parent()
        .and_then(Path::file_name)
        .map(|name| name.to_string_lossy().into_owned());
    match (stem.as_str(), folder) {
        ("config", Some(folder)) => folder,
        _ => stem,
    }
}
