//! The recorded trees of real machines and DMTF's examples: every document of a type that is known is read, and
//! written back equal.
//!
//! They lie outside the repository: `$POOLWRIGHT_SHARED/redfish/mockups/*.tar.gz`, by default `shared` beside the
//! workspace. Without them the test says so and does nothing.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use poolwright_redfish_model::schema;
use serde_json::Value;

#[test]
fn recorded_documents_survive_a_round_trip() {
    let Some(archives) = archives() else {
        println!("no recorded trees found (POOLWRIGHT_SHARED): nothing tested");
        return;
    };
    let scratch = Scratch::new();
    let (mut known, mut unknown) = (0, 0);
    let mut failures = Vec::new();
    for archive in archives {
        let folder = scratch.unpack(&archive);
        for path in documents(&folder) {
            let text = fs::read(&path).expect("a document that was just unpacked");
            let Ok(value) = serde_json::from_slice::<Value>(&text) else {
                continue;
            };
            let Some(schema) = value["@odata.type"].as_str().and_then(schema::by_odata_type) else {
                unknown += 1;
                continue;
            };
            known += 1;
            let mut read = (schema.empty)();
            let written = schema::read_into(&mut *read, &text)
                .map_err(|why| why.to_string())
                .and_then(|()| schema::to_value(&*read).map_err(|why| why.to_string()));
            match written {
                Ok(written) if written == value => {}
                Ok(written) => failures.push(format!(
                    "{}: {}",
                    path.display(),
                    difference("", &value, &written)
                )),
                Err(why) => failures.push(format!("{}: {why}", path.display())),
            }
        }
    }
    println!(
        "{known} documents of known types, {unknown} of others, {} failures",
        failures.len()
    );
    assert!(
        failures.is_empty(),
        "{} of {known}:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(known > 1000, "only {known} documents were of a known type");
}

/// Where two values differ first.
fn difference(path: &str, a: &Value, b: &Value) -> String {
    if let (Value::Object(a), Value::Object(b)) = (a, b) {
        for (name, value) in a {
            match b.get(name) {
                None => return format!("{path}/{name} was lost"),
                Some(other) if other != value => return difference(&format!("{path}/{name}"), value, other),
                Some(_) => {}
            }
        }
        if let Some(name) = b.keys().find(|name| !a.contains_key(*name)) {
            return format!("{path}/{name} was made up");
        }
    }
    format!("{path}: {a} became {b}")
}

fn archives() -> Option<Vec<PathBuf>> {
    let shared = env::var_os("POOLWRIGHT_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let mut archives: Vec<PathBuf> = fs::read_dir(shared.join("redfish/mockups"))
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.to_string_lossy().ends_with(".tar.gz"))
        .collect();
    archives.sort();
    (!archives.is_empty()).then_some(archives)
}

fn documents(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("an unpacked folder") {
            let path = entry.expect("an unpacked entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "json") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// A folder that goes when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let folder = env::temp_dir().join(format!("poolwright-recorded-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        Self(folder)
    }

    fn unpack(&self, archive: &Path) -> PathBuf {
        let folder = self.0.join(archive.file_name().expect("an archive has a name"));
        fs::create_dir_all(&folder).expect("a temporary folder");
        let done = Command::new("tar")
            .arg("-xzf")
            .arg(archive)
            .arg("-C")
            .arg(&folder)
            .status()
            .expect("tar");
        assert!(done.success(), "tar cannot unpack {}", archive.display());
        folder
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
