//! A redacted copy of a real machine's tree, for tests and for others: folders with an `index.json` each, as
//! recorded trees are passed around in the field, and a manifest that says what it was made of.
//!
//! Nothing is written before everything is read and redacted; what is in the folder was meant to be there.

mod crawl;
mod meet;
mod patterns;
mod properties;
mod pseudonyms;
mod redact;

use crate::client::Client;
use jiff::civil::Date;
use meet::Met;
use poolwright_driver::Progress;
use poolwright_model::driver_label::{EMULATOR, RECORDING};
use redact::Redactor;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Where a tree begins.
const ROOT: &str = "/redfish/v1";

/// What a recording holds. Also its `manifest.json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Manifest {
    pub vendor: Option<String>,
    pub product: Option<String>,
    /// Of the systems and chassis that have one, each once.
    pub models: Vec<String>,
    /// Firmware of the managers.
    pub firmware: Vec<String>,
    pub redfish_version: Option<String>,
    pub recorded_on: String,
    pub documents: usize,
    /// Identifying names that were replaced, each by one other name throughout.
    pub names_replaced: usize,
    /// Secrets and the like that were taken out.
    pub values_taken_out: usize,
    /// Left out on purpose: schemas, logs, sessions, accounts, certificates.
    pub links_left_out: usize,
    /// What could not be read, and why.
    pub unreadable: BTreeMap<String, String>,
    /// Whether the tree was larger than a recording may be.
    pub truncated: bool,
}

/// Why there is no recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("{0} is not empty: give a new folder, so that nothing else gets into the recording")]
    NotEmpty(PathBuf),
    #[error("the service root could not be read: {0}")]
    Unreadable(String),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

/// Reads everything that the service links to and writes a redacted copy into a new folder.
pub async fn record(
    client: &Client,
    folder: &Path,
    recorded_on: Date,
    progress: &dyn Progress,
) -> Result<Manifest, RecordError> {
    check_empty(folder)?;
    let tree = crawl::crawl(client, ROOT, progress).await;
    if !tree.documents.contains_key(ROOT) {
        let why = tree.unreadable.get(ROOT).cloned().unwrap_or_default();
        return Err(RecordError::Unreadable(why));
    }
    let parse = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap_or(Value::Null);
    let mut met = Met::default();
    if let Some(host) = client.base().host_str() {
        met.host(host);
    }
    for bytes in tree.documents.values() {
        met.document(&parse(bytes));
    }
    for (path, why) in &tree.unreadable {
        met.text(path);
        met.text(why);
    }
    let mut redactor = Redactor::new(met);
    let mut about = About::default();
    for (path, bytes) in &tree.documents {
        let mut document = parse(bytes);
        redactor.redact(&mut document);
        if path == ROOT {
            mark(&mut document, recorded_on);
        }
        about.note(&document);
        write(folder, &redactor.text(path), &document)?;
    }
    let (names_replaced, values_taken_out) = redactor.counts();
    let manifest = Manifest {
        recorded_on: recorded_on.to_string(),
        documents: tree.documents.len(),
        names_replaced,
        values_taken_out,
        links_left_out: tree.skipped.len(),
        unreadable: tree
            .unreadable
            .iter()
            .map(|(path, why)| (redactor.text(path), redactor.text(why)))
            .collect(),
        truncated: tree.truncated,
        ..about.manifest()
    };
    let text = serde_json::to_vec_pretty(&manifest).unwrap_or_default();
    save(&folder.join("manifest.json"), &text)?;
    Ok(manifest)
}

/// Whoever is served the copy, by whatever server, can see that it is no machine.
fn mark(root: &mut Value, recorded_on: Date) {
    let Some(root) = root.as_object_mut() else { return };
    let oem = root.entry("Oem").or_insert(Value::Null);
    if !oem.is_object() {
        *oem = json!({});
    }
    oem[EMULATOR] = json!({
        "@odata.type": "#PoolwrightRecording.v1_0_0.Recording",
        RECORDING: { "RecordedOn": recorded_on.to_string() },
    });
}

/// What the documents say of the product.
#[derive(Default)]
struct About {
    root: Value,
    models: std::collections::BTreeSet<String>,
    firmware: std::collections::BTreeSet<String>,
}

impl About {
    fn note(&mut self, document: &Value) {
        let kind = document["@odata.type"]
            .as_str()
            .and_then(|kind| kind.trim_start_matches('#').split('.').next());
        let text = |name: &str| document[name].as_str().map(str::to_owned);
        match kind {
            Some("ServiceRoot") => self.root = document.clone(),
            Some("ComputerSystem" | "Chassis") => self.models.extend(text("Model")),
            Some("Manager") => self.firmware.extend(text("FirmwareVersion")),
            _ => {}
        }
    }

    fn manifest(self) -> Manifest {
        let text = |name: &str| self.root[name].as_str().map(str::to_owned);
        Manifest {
            vendor: text("Vendor"),
            product: text("Product"),
            redfish_version: text("RedfishVersion"),
            models: self.models.into_iter().collect(),
            firmware: self.firmware.into_iter().collect(),
            recorded_on: String::new(),
            documents: 0,
            names_replaced: 0,
            values_taken_out: 0,
            links_left_out: 0,
            unreadable: BTreeMap::new(),
            truncated: false,
        }
    }
}

fn check_empty(folder: &Path) -> Result<(), RecordError> {
    match std::fs::read_dir(folder).map(Iterator::count) {
        Ok(0) => Ok(()),
        Ok(_) => Err(RecordError::NotEmpty(folder.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(RecordError::Io {
            path: folder.to_owned(),
            source,
        }),
    }
}

/// Writes a document at its address. An address whose parts are no names of files is left out.
fn write(folder: &Path, path: &str, document: &Value) -> Result<(), RecordError> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let is_name = |part: &&str| part.len() <= 200 && !part.starts_with('.') && !part.contains(['\0', '\\']);
    if !parts.iter().all(is_name) {
        tracing::warn!(path, "left out: not the name of a file");
        return Ok(());
    }
    let folder = parts.iter().fold(folder.to_owned(), |at, part| at.join(part));
    let text = serde_json::to_vec_pretty(document).unwrap_or_default();
    save(&folder.join("index.json"), &text)
}

fn save(file: &Path, text: &[u8]) -> Result<(), RecordError> {
    let failed = |source| RecordError::Io {
        path: file.to_owned(),
        source,
    };
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    std::fs::write(file, text).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_goes_into_a_new_folder_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        assert!(check_empty(folder.path()).is_ok());
        assert!(check_empty(&folder.path().join("new")).is_ok());
        write(folder.path(), "/redfish/v1/Systems/1", &Value::Null).unwrap();
        write(folder.path(), "/redfish/v1/../../etc", &Value::Null).unwrap();
        assert!(folder.path().join("redfish/v1/Systems/1/index.json").is_file());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(matches!(
            check_empty(folder.path()),
            Err(RecordError::NotEmpty(_))
        ));
    }
}
