//! Models in files: a `config.json` as model hubs have it, in place of a name.

use crate::failure::Failure;
use poolwright_service::demand::DemandSpec;
use serde_json::{Map, Value};
use std::fs;
use std::path::{Path, PathBuf};

/// A file, or a folder with a config.json, which needs a slash in its path; no name of the catalogue.
pub fn is_file(path: &Path) -> bool {
    let is_folder = || path.as_os_str().to_string_lossy().contains('/') && path.join(CONFIG).is_file();
    path.extension().is_some_and(|ending| ending == "json") || path.is_file() || is_folder()
}

const CONFIG: &str = "config.json";

/// What to call the model, and the file's text; with the quantisation that NVIDIA's Model Optimizer writes in a file of its
/// own beside it.
pub fn read(path: &Path) -> Result<(String, String), Failure> {
    let inside = path.join(CONFIG);
    let path = if path.is_dir() { &inside } else { path };
    let read = |path: &Path| fs::read_to_string(path).map_err(|error| Failure::file(path, "read", &error));
    let text = read(path)?;
    let beside = path.with_file_name("hf_quant_config.json");
    let Ok(Value::Object(mut config)) = serde_json::from_str(&text) else {
        return Ok((name(path), text));
    };
    let is_stated = config.get(QUANTISATION).is_some_and(|stated| !stated.is_null());
    if is_stated || !beside.is_file() {
        return Ok((name(path), text));
    }
    // An unreadable file is an unknown format: refused unless the weights are stated.
    let quantised: Value = serde_json::from_str(&read(&beside)?).unwrap_or_default();
    let mut quantised = match quantised.get("quantization") {
        Some(Value::Object(quantised)) => quantised.clone(),
        _ => Map::new(),
    };
    // The cache alone is quantised.
    if quantised.get("quant_algo").is_some_and(Value::is_null) {
        return Ok((name(path), text));
    }
    quantised.insert("quant_method".to_owned(), "modelopt".into());
    config.insert(QUANTISATION.to_owned(), quantised.into());
    Ok((name(path), Value::from(config).to_string()))
}

const QUANTISATION: &str = "quantization_config";

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
