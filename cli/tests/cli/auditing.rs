//! `audit verify` on a store that somebody wrote to past the manager: what was changed is named.

use crate::support::Manager;
use poolwright_store::{Batch, SqliteStore, Store};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use std::path::Path;

/// What is done to the entries, and what is said of that: nothing where it is no fault.
type Edit = (fn(&mut Vec<Value>), Option<&'static str>);

/// Not as it was written.
const UNTRUE: i32 = 1;

/// Writes all entries anew, in their order and one by one, as they are after `edit`.
async fn rewritten(data_dir: &Path, edit: impl FnOnce(&mut Vec<Value>)) {
    let store = SqliteStore::open(data_dir).unwrap();
    let pages = store.list("audit").await.unwrap();
    let mut gone = Batch::new();
    let mut entries = Vec::new();
    for page in &pages {
        gone.delete("audit", &page.id);
        let page: Value = serde_json::from_str(page.json.get()).unwrap();
        entries.extend(page["entries"].as_array().unwrap().clone());
    }
    entries.sort_by_key(|entry| entry["seq"].as_u64());
    edit(&mut entries);
    store.commit(gone).await.unwrap();
    for entry in entries {
        let id = format!("{:016}", entry["seq"].as_u64().unwrap());
        let page = json!({ "id": id, "entries": [entry] });
        let mut batch = Batch::new();
        batch.put_json("audit", &id, to_raw_value(&page).unwrap());
        store.commit(batch).await.unwrap();
    }
    store.close().await;
}

#[tokio::test]
async fn an_entry_that_was_changed_removed_swapped_or_cut_off_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let mut manager = Manager::start(dir, &[]).await;
    for tenant in ["a", "b", "c", "d"] {
        let set = format!("tenant set {tenant} --most 1");
        manager.run(&set).await.expect(0, &[]);
    }
    let whole = manager.run("audit verify -o json").await.expect(0, &[]).json();
    let (last, hash) = (
        whole["last"]["seq"].as_u64().unwrap(),
        whole["last"]["hash"].as_str().unwrap(),
    );
    assert!(last >= 8, "two entries for each change: {whole}");
    let anchored = format!("audit verify --anchor {last}:{hash}");
    // The first edit is none: that it is written anew is no fault.
    let edits: [Edit; 5] = [
        (|_| (), None),
        (
            |entries| entries[3]["by"] = json!("lee"),
            Some("entry 4: it, or the one before it, is not what was written"),
        ),
        (
            |entries| drop(entries.remove(3)),
            Some("entry 4: is not there; number 5 comes in its place"),
        ),
        (
            |entries| {
                entries.swap(3, 4);
                entries[3]["seq"] = json!(4);
                entries[4]["seq"] = json!(5);
            },
            Some("entry 4: it, or the one before it, is not what was written"),
        ),
        (|entries| drop(entries.pop()), Some("is cut off")),
    ];
    let mut original = Vec::new();
    for (edit, found) in edits {
        assert_eq!(manager.server.terminate().await, 0);
        rewritten(dir, |entries| {
            if original.is_empty() {
                original.clone_from(entries);
            }
            entries.clone_from(&original);
            edit(entries);
        })
        .await;
        manager = Manager::start(dir, &[]).await;
        for line in ["audit verify", anchored.as_str()] {
            let verified = manager.run(line).await;
            match found {
                None => verified.expect(0, &["as written"]),
                Some(words) => verified.expect(UNTRUE, &[words]),
            };
        }
    }
}
