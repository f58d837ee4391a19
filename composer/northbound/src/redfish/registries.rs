//! Checks each message against DMTF's registries: clients can't use an unknown message, or one with other arguments.

use super::events::news::{self, MESSAGES};
use super::message::{ARGUMENTS, OF_COMPOSITION, OF_TASKS};
use poolwright_model::id::{ControlEndpointId, GpuId, OperationId, UnitId};
use poolwright_service::{Happening, OperationState, Severity, Thing, Turn, What};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The registries of DSP8010 lie outside the repository, as recorded trees do.
fn archive() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("POOLWRIGHT_SHARED").map_or_else(beside, PathBuf::from);
    let archive = shared.join("redfish/schemas.tar.gz");
    if archive.exists() {
        return Some(archive);
    }
    println!(
        "{} is not there (POOLWRIGHT_SHARED): nothing tested",
        archive.display()
    );
    None
}

/// The messages of a registry, by its name with major and minor version.
fn messages(archive: &Path, registry: &str) -> Value {
    let pattern = format!("registries/{registry}.*.json");
    let tar = Command::new("tar")
        .args(["-xzO", "--wildcards", &pattern, "-f"])
        .arg(archive)
        .output()
        .unwrap();
    assert!(
        tar.status.success(),
        "{registry} is in no file of {}",
        archive.display()
    );
    let mut registry: Value = serde_json::from_slice(&tar.stdout).unwrap();
    registry["Messages"].take()
}

fn count(messages: &Value, id: &str) -> Option<usize> {
    let count = messages[id]["NumberOfArgs"].as_u64()?;
    usize::try_from(count).ok()
}

#[test]
fn errors_have_the_arguments_of_dmtfs_registries() {
    let Some(archive) = archive() else { return };
    let base = messages(&archive, "Base.1.22");
    let composition = messages(&archive, "Composition.1.1");
    let tasks = messages(&archive, "TaskEvent.1.0");
    for (ours, ids) in ARGUMENTS {
        for id in ids {
            let registry = match id {
                _ if OF_COMPOSITION.contains(id) => &composition,
                _ if OF_TASKS.contains(id) => &tasks,
                _ => &base,
            };
            assert_eq!(count(registry, id), Some(ours), "{id}");
        }
    }
}

#[test]
fn events_have_the_arguments_of_dmtfs_registries() {
    let Some(archive) = archive() else { return };
    let registries = news::REGISTRIES.map(|(name, version, _)| {
        let name = format!("{name}.{version}");
        (name.clone(), messages(&archive, &name))
    });
    let expected = |message: &str| {
        let (registry, id) = message.rsplit_once('.').unwrap();
        let (_, messages) = registries.iter().find(|(name, _)| name == registry).unwrap();
        count(messages, id)
    };
    for message in MESSAGES {
        let message = news::versioned(message);
        assert!(expected(&message).is_some(), "{message}");
    }
    let mut told = BTreeSet::new();
    for what in everything() {
        let happening = Happening {
            seq: 1,
            at: jiff::Timestamp::UNIX_EPOCH,
            what,
        };
        for news in news::of(&happening) {
            let payload: Value = serde_json::from_slice(&news.letter.payload).unwrap();
            let record = &payload["Events"][0];
            let message = record["MessageId"].as_str().unwrap().to_owned();
            let args = record["MessageArgs"].as_array().unwrap();
            assert_eq!(expected(&message), Some(args.len()), "{record}");
            told.insert(message);
        }
    }
    assert!(told.len() > 10, "{told:?}");
}

/// One event of each kind.
fn everything() -> Vec<What> {
    let because = || "it is so".to_owned();
    let turns = [
        Turn::Added,
        Turn::Changed,
        Turn::Removed,
        Turn::Lost { because: because() },
        Turn::Back,
        Turn::Suspect { because: because() },
        Turn::Sound,
    ];
    let things = [
        Thing::Gpu {
            id: GpuId::from_lossy("gpu-1"),
            chassis: None,
        },
        Thing::Endpoint(ControlEndpointId::from_lossy("box-1")),
        Thing::Account("kim".to_owned()),
    ];
    let states = [
        OperationState::Running,
        OperationState::Indeterminate,
        OperationState::Quarantined,
        OperationState::Completed,
        OperationState::Cancelled,
        OperationState::RolledBack,
        OperationState::Failed,
    ];
    let operation = || OperationId::from_lossy("op-1");
    let things = things.iter().flat_map(|thing| {
        turns.iter().map(|became| What::Thing {
            thing: thing.clone(),
            became: became.clone(),
        })
    });
    let operations = states.into_iter().map(|state| What::Operation {
        operation: operation(),
        state,
        compositions: Vec::new(),
    });
    let alarms = [Severity::Warning, Severity::Critical]
        .into_iter()
        .map(|severity| What::Alarm {
            operation: operation(),
            severity,
            message: because(),
        });
    let units = [true, false].into_iter().map(|bound| What::Unit {
        unit: UnitId::from_lossy("gpu-1"),
        bound,
    });
    things.chain(operations).chain(alarms).chain(units).collect()
}
