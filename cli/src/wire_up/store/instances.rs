//! The instances of a manager that held the lock of a data directory, newest first.
//!
//! The holder of the lock knows that they are dead. A copy of the directory has the list as well, but another lock file:
//! the list counts only for the file that it names, and only until the machine is started again. While its holder
//! lives, no other file of the machine has that device and inode.

use super::write_whole;
use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Managers that are killed over and over do not let the list grow.
const MAX: usize = 32;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Instances {
    /// Since the machine's last start.
    boot: String,
    /// Of the lock file.
    device: u64,
    inode: u64,
    ids: Vec<String>,
}

/// Adds this instance to the list of its data directory, whose lock it holds. Returns those before it.
pub fn add(data_dir: &Path, id: &str) -> Result<BTreeSet<String>, Failure> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    add_since(boot.trim(), data_dir, id)
}

fn add_since(boot: &str, data_dir: &Path, id: &str) -> Result<BTreeSet<String>, Failure> {
    let (file, lock) = (data_dir.join("instances.json"), data_dir.join("poolwright.lock"));
    let locked = fs::metadata(&lock).map_err(|error| Failure::file(&lock, "found", &error))?;
    let mut now = Instances {
        boot: boot.to_owned(),
        device: locked.dev(),
        inode: locked.ino(),
        ids: vec![id.to_owned()],
    };
    // An unreadable list proves nothing: the start then takes longer.
    let kept = fs::read(&file)
        .ok()
        .and_then(|text| serde_json::from_slice::<Instances>(&text).ok());
    let same = |kept: &Instances| {
        !kept.boot.is_empty() && (&kept.boot, kept.device, kept.inode) == (&now.boot, now.device, now.inode)
    };
    let before = kept.filter(same).map(|kept| kept.ids).unwrap_or_default();
    now.ids.extend(before.iter().take(MAX - 1).cloned());
    let text = serde_json::json!(now).to_string();
    write_whole(&file, &text).map_err(|error| Failure::file(&file, "written", &error))?;
    Ok(before.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[&str]) -> BTreeSet<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    fn add_to(folder: &Path, id: &str) -> BTreeSet<String> {
        add_since("boot-1", folder, id).unwrap()
    }

    /// Fault 75: only the lock of the directory itself proves that its earlier instances are dead.
    #[test]
    fn a_copy_of_a_data_directory_knows_no_earlier_instance() {
        let folders = tempfile::tempdir().unwrap();
        let (first, copy) = (folders.path().join("first"), folders.path().join("copy"));
        for folder in [&first, &copy] {
            fs::create_dir(folder).unwrap();
        }
        fs::write(first.join("poolwright.lock"), "process 1").unwrap();
        assert_eq!(add_to(&first, "a"), ids(&[]));
        assert_eq!(add_to(&first, "b"), ids(&["a"]));
        for file in ["poolwright.lock", "instances.json"] {
            fs::copy(first.join(file), copy.join(file)).unwrap();
        }
        assert_eq!(add_to(&copy, "c"), ids(&[]));
        assert_eq!(add_to(&copy, "d"), ids(&["c"]));
        assert_eq!(add_to(&first, "e"), ids(&["a", "b"]));
        // Moved, it is the same directory.
        let moved = folders.path().join("moved");
        fs::rename(&first, &moved).unwrap();
        assert_eq!(add_to(&moved, "f"), ids(&["a", "b", "e"]));
    }

    #[test]
    fn earlier_instances_count_until_the_machine_is_started_again() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("poolwright.lock"), "").unwrap();
        add_to(folder.path(), "a");
        assert_eq!(add_since("boot-2", folder.path(), "b").unwrap(), ids(&[]));
        assert_eq!(add_since("", folder.path(), "c").unwrap(), ids(&[]));
        assert_eq!(add_since("", folder.path(), "d").unwrap(), ids(&[]));
        fs::write(folder.path().join("instances.json"), "{").unwrap();
        assert_eq!(add_since("boot-2", folder.path(), "e").unwrap(), ids(&[]));
    }

    #[test]
    fn the_list_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("poolwright.lock"), "").unwrap();
        for n in 0..100 {
            assert!(add_to(folder.path(), &n.to_string()).len() <= MAX);
        }
        assert!(add_to(folder.path(), "last").contains("99"));
    }
}
