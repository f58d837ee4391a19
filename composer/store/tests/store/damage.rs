//! Bits that flip on the disk: a damaged document is never returned, is named, and can be replaced or discarded.

use crate::postgres::{Server, opened};
use poolwright_model::id::OperationId;
use poolwright_store::{Batch, Damaged, Document, OpenError, Order, SqliteStore, Store, StoreError, backup};
use rusqlite::Connection;
use rusqlite::types::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::path::Path;

const DATABASE: &str = "poolwright.db";
const NONE: [&str; 0] = [];

fn writing(kind: &str, ids: &[&str]) -> Batch {
    let mut batch = Batch::new();
    for id in ids {
        let doc = format!(r#"{{"id":"{id}","address":"/redfish/v1/Fabrics/PCIe/Endpoints/gpu-4"}}"#);
        batch.put_json(kind, id, RawValue::from_string(doc).unwrap());
    }
    batch
}

fn names(damaged: &[Damaged]) -> Vec<String> {
    let names = damaged.iter().map(|one| format!("{}/{}", one.kind, one.id));
    names.collect()
}

/// A store with two compositions.
async fn with_two() -> (tempfile::TempDir, SqliteStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    store
        .commit(writing("composition", &["lab-1", "web-1"]))
        .await
        .unwrap();
    (dir, store)
}

/// The value of a column of a row.
fn column(connection: &Connection, column: &str, row: i64) -> Value {
    let text = match column {
        "kind" | "id" | "doc" => format!("SELECT CAST({column} AS BLOB) FROM object WHERE rowid = ?1"),
        number => format!("SELECT {number} FROM object WHERE rowid = ?1"),
    };
    connection.query_row(&text, [row], |row| row.get(0)).unwrap()
}

fn write(connection: &Connection, column: &str, row: i64, value: &Value) {
    let text = match value {
        Value::Blob(_) => format!("UPDATE object SET {column} = CAST(?2 AS TEXT) WHERE rowid = ?1"),
        _ => format!("UPDATE object SET {column} = ?2 WHERE rowid = ?1"),
    };
    let changed = connection.execute(&text, rusqlite::params![row, value]).unwrap();
    assert_eq!(changed, 1);
}

/// The value with each of its bits flipped, one at a time.
fn flipped(value: &Value) -> Vec<Value> {
    match value {
        Value::Integer(number) => (0..64).map(|bit| Value::Integer(number ^ (1 << bit))).collect(),
        Value::Blob(bytes) => (0..bytes.len() * 8)
            .map(|bit| {
                let mut bytes = bytes.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                Value::Blob(bytes)
            })
            .collect(),
        other => panic!("{other:?}"),
    }
}

/// Fault 98: every bit of every column.
#[tokio::test]
async fn a_flipped_bit_in_any_column_is_an_error_with_the_name_of_the_document() {
    let (dir, store) = with_two().await;
    let connection = Connection::open(dir.path().join(DATABASE)).unwrap();
    connection.pragma_update(None, "synchronous", "OFF").unwrap();
    let row: i64 = connection
        .query_row("SELECT rowid FROM object WHERE id = 'web-1'", [], |row| {
            row.get(0)
        })
        .unwrap();
    for name in ["kind", "id", "revision", "doc", "checksum"] {
        let sound = column(&connection, name, row);
        for value in flipped(&sound) {
            write(&connection, name, row, &value);
            let damaged = store.verify().await.unwrap();
            assert_eq!(damaged.len(), 1, "{name} {value:?}");
            assert_eq!(store.damaged(), damaged);
            let listed = store.list("composition").await.unwrap();
            let ids: Vec<&str> = listed.iter().map(|found| found.id.as_str()).collect();
            assert_eq!(ids, ["lab-1"], "{name} {value:?}");
            if ["revision", "doc", "checksum"].contains(&name) {
                assert_eq!(names(&damaged), ["composition/web-1"], "{name} {value:?}");
                let error = store.get("composition", "web-1").await.unwrap_err();
                assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
                assert!(
                    error
                        .to_string()
                        .starts_with("damaged document composition/web-1: "),
                    "{error}"
                );
            }
        }
        write(&connection, name, row, &sound);
        assert_eq!(names(&store.verify().await.unwrap()), NONE, "{name}");
    }
    let order = Order::LatestFirst;
    assert_eq!(store.written("composition", order, 9).await.unwrap().len(), 2);
}

/// The files as a kill -9 leaves them: copied while the store is open.
fn killed(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
    }
    to
}

/// Flips the lowest bit of the first character of a text at each place in the file.
fn flip_in_file(dir: &Path, text: &str) {
    let path = dir.join(DATABASE);
    let mut bytes = std::fs::read(&path).unwrap();
    let at: Vec<usize> = (0..bytes.len().saturating_sub(text.len()))
        .filter(|at| bytes[*at..].starts_with(text.as_bytes()))
        .collect();
    assert!(!at.is_empty(), "{text} is not in the file");
    for at in at {
        bytes[at] ^= 1;
    }
    std::fs::write(path, bytes).unwrap();
}

/// Fault 98: any bit of the file. The store is not opened, or returns the documents as written and names the damaged ones.
#[tokio::test]
async fn no_flipped_bit_of_the_file_changes_a_document_or_hides_one_unnoticed() {
    const FLIPS: usize = 100;
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    let ids: Vec<String> = (0..100).map(|n| format!("web-{n}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    store.commit(writing("composition", &ids)).await.unwrap();
    let read = |listed: Vec<Document>| -> BTreeMap<String, (u64, String)> {
        let documents = listed.into_iter();
        documents
            .map(|found| (found.id, (found.revision, found.json.get().to_owned())))
            .collect()
    };
    let written = read(store.list("composition").await.unwrap());
    store.close().await;
    drop(store);
    let sound = std::fs::read(dir.path().join(DATABASE)).unwrap();
    let bits = sound.len() * 8;
    let mut opened = 0;
    // An odd step: each bit of a byte has its turn.
    for bit in (0..bits).step_by((bits / FLIPS) | 1) {
        let mut bytes = sound.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(DATABASE), bytes).unwrap();
        let Ok(store) = SqliteStore::open(dir.path()) else {
            continue;
        };
        let Ok(listed) = store.list("composition").await else {
            continue;
        };
        opened += 1;
        let found = read(listed);
        for (id, document) in &found {
            assert_eq!(written.get(id), Some(document), "bit {bit}");
        }
        let is_whole = found.len() == written.len();
        assert!(is_whole || !store.damaged().is_empty(), "bit {bit}");
    }
    assert!(opened > FLIPS / 2, "{opened}");
}

/// Fault 98: a flipped bit gives one document the name of another.
#[tokio::test]
async fn a_file_with_two_documents_of_one_name_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    store
        .commit(writing("composition", &["box-0", "box-1"]))
        .await
        .unwrap();
    drop(store);
    flip_in_file(dir.path(), "1{\"id\":\"box-1\"");
    let error = SqliteStore::open(dir.path()).err().unwrap();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
}

/// Fault 98: a bit that flips in the file itself. After an unclean stop and after a clean one.
#[tokio::test]
async fn a_damaged_document_is_named_at_the_start_and_the_others_are_there() {
    let (dir, store) = with_two().await;
    store.close().await;
    drop(store);
    let store = SqliteStore::open(dir.path()).unwrap();
    let unclean = killed(dir.path());
    drop(store);
    for dir in [dir.path(), unclean.path()] {
        flip_in_file(dir, "web-1\",\"address");
        let store = SqliteStore::open(dir).unwrap();
        assert_eq!(names(&store.damaged()), ["composition/web-1"]);
        assert!(store.get("composition", "lab-1").await.unwrap().is_some());
        assert!(store.get("composition", "web-1").await.is_err());
        // A copy has it as it is, and names it.
        let place = tempfile::tempdir().unwrap();
        let copied = backup(dir, &place.path().join("copy")).unwrap();
        assert_eq!(names(&copied.damaged), ["composition/web-1"]);
    }
}

/// Fault 98: a damaged index loses nothing.
#[tokio::test]
async fn an_index_that_hides_a_document_is_rebuilt() {
    let (dir, store) = with_two().await;
    drop(store);
    let path = dir.path().join(DATABASE);
    let mut bytes = std::fs::read(&path).unwrap();
    let key = b"compositionweb-1";
    let (content, near) = (b"{\"", 24);
    let in_index: Vec<usize> = (0..bytes.len() - key.len() - near)
        .filter(|at| bytes[*at..].starts_with(key))
        .filter(|at| {
            let after = &bytes[at + key.len()..at + key.len() + near];
            !after.windows(content.len()).any(|window| window == content)
        })
        .collect();
    assert_eq!(in_index.len(), 1, "the entry of the primary key");
    bytes[in_index[0] + key.len() - 1] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    assert_eq!(names(&store.damaged()), NONE);
    assert!(store.get("composition", "web-1").await.unwrap().is_some());
    assert_eq!(names(&store.verify().await.unwrap()), NONE);
}

/// Fault 99: it is replaced or discarded, also with a damaged name.
#[tokio::test]
async fn a_damaged_document_is_sound_once_written_again_and_gone_once_discarded() {
    let (dir, store) = with_two().await;
    let connection = Connection::open(dir.path().join(DATABASE)).unwrap();
    let damage = |set: &str| {
        let text = format!("UPDATE object SET {set} WHERE id = 'web-1'");
        assert_eq!(connection.execute(&text, []).unwrap(), 1);
    };
    damage("doc = replace(doc, 'gpu-4', 'gpu-5')");
    assert!(store.get("composition", "web-1").await.is_err());
    store.commit(writing("composition", &["web-1"])).await.unwrap();
    assert_eq!(names(&store.damaged()), NONE);
    assert!(store.get("composition", "web-1").await.unwrap().is_some());

    // A name that is not UTF-8.
    damage("id = CAST(x'776562ad31' AS TEXT)");
    let damaged = store.verify().await.unwrap();
    assert_eq!(names(&damaged), ["composition/web\u{fffd}1"]);
    let before = store.revision().await.unwrap();
    let mut batch = Batch::new();
    batch.discard("composition", "lab-1");
    batch.discard(&damaged[0].kind, &damaged[0].id);
    let committed = store.commit(batch).await.unwrap();
    assert_eq!(committed.revision, before + 1, "other managers look again");
    assert_eq!(names(&store.damaged()), NONE);
    assert_eq!(names(&store.verify().await.unwrap()), NONE);
    let listed = store.list("composition").await.unwrap();
    assert_eq!(listed.len(), 1, "a sound document is not discarded");
    assert_eq!(listed[0].id, "lab-1");
}

/// Writes the damaged document or lines of this name as they were before one bit flipped, if that explains the damage.
async fn repair(store: &impl Store, kind: &str, id: &str) -> bool {
    let Some(originals) = store.before_flip(kind, id).await.unwrap() else {
        return false;
    };
    let mut batch = Batch::new();
    batch.restore(kind, id, originals);
    store.commit(batch).await.unwrap();
    assert_eq!(names(&store.verify().await.unwrap()), NONE);
    true
}

/// Fault 99: one flipped bit is repaired. A document with a damaged name may have been deleted since: it is not.
#[tokio::test]
async fn a_document_is_as_it_was_written_once_repaired() {
    let (dir, store) = with_two().await;
    let connection = Connection::open(dir.path().join(DATABASE)).unwrap();
    let damage = |set: &str| {
        let text = format!("UPDATE object SET {set} WHERE id IN ('web-0', 'web-1')");
        assert_eq!(connection.execute(&text, []).unwrap(), 1);
    };
    let written = store.get("composition", "web-1").await.unwrap().unwrap();
    for set in [
        "doc = replace(doc, 'gpu-4', 'gpu-5')",
        "revision = revision + 1024",
        "revision = revision | (1 << 63)",
    ] {
        damage(set);
        let before = store.revision().await.unwrap();
        assert!(repair(&store, "composition", "web-1").await, "{set}");
        let again = store.get("composition", "web-1").await.unwrap().unwrap();
        assert_eq!(again.json.get(), written.json.get());
        assert_eq!(again.revision, before + 1, "other managers look again");
    }
    for (set, undo, id) in [
        (
            "doc = replace(doc, 'gpu-4', 'gpu-7')",
            "doc = replace(doc, 'gpu-7', 'gpu-4')",
            "web-1",
        ),
        ("id = 'web-0'", "id = 'web-1'", "web-0"),
    ] {
        damage(set);
        assert!(!repair(&store, "composition", id).await, "{set}");
        damage(undo);
    }
    // In its place. The flipped bit is in the revision.
    let written = store.get("composition", "web-1").await.unwrap().unwrap();
    damage("revision = revision + 1024");
    let originals = store.before_flip("composition", "web-1").await.unwrap().unwrap();
    let mut batch = Batch::new();
    batch.restore_in_order("composition", "web-1", originals);
    store.commit(batch).await.unwrap();
    let again = store.get("composition", "web-1").await.unwrap().unwrap();
    assert_eq!(
        (again.revision, again.json.get()),
        (written.revision, written.json.get())
    );
    // It was written since.
    damage("doc = replace(doc, 'gpu-4', 'gpu-5')");
    let originals = store.before_flip("composition", "web-1").await.unwrap();
    store.commit(writing("composition", &["web-1"])).await.unwrap();
    let mut late = Batch::new();
    late.restore("composition", "web-1", originals.unwrap());
    assert!(store.commit(late).await.unwrap_err().is_conflict());
}

/// Fault 100: a journal.
#[tokio::test]
async fn a_flipped_bit_in_a_journal_line_is_an_error_with_the_name_of_the_operation() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    let (hurt, whole) = (
        OperationId::new("op-1").unwrap(),
        OperationId::new("op-2").unwrap(),
    );
    for operation in [&hurt, &whole] {
        let mut batch = Batch::new();
        batch.line(operation, 1, &"begun").unwrap();
        batch.line(operation, 2, &"bound").unwrap();
        store.commit(batch).await.unwrap();
    }
    let connection = Connection::open(dir.path().join(DATABASE)).unwrap();
    let set = |set: &str| {
        let text = format!("UPDATE journal SET {set} WHERE operation = 'op-1' AND seq = 2");
        assert_eq!(connection.execute(&text, []).unwrap(), 1);
    };
    set("operation = 'op-0'");
    assert_eq!(store.journal(&hurt, 0).await.unwrap().len(), 1);
    assert_eq!(names(&store.verify().await.unwrap()), ["journal/op-0"]);
    assert!(!repair(&store, "journal", "op-0").await, "another name");
    let text = "UPDATE journal SET operation = 'op-1' WHERE operation = 'op-0'";
    connection.execute(text, []).unwrap();
    set("line = '\"bounl\"'");
    assert!(repair(&store, "journal", "op-1").await);
    assert_eq!(store.journal(&hurt, 0).await.unwrap().len(), 2);
    for (damage, undo) in [
        ("line = '\"bounds\"'", "line = '\"bound\"'"),
        ("checksum = checksum + 1", "checksum = checksum - 1"),
        ("checksum = NULL", "checksum = NULL"),
    ] {
        set(damage);
        let error = store.journal(&hurt, 0).await.unwrap_err();
        let expected = "damaged document journal/op-1: line 2: its content does not match its checksum";
        assert_eq!(error.to_string(), expected);
        assert_eq!(store.journal(&whole, 0).await.unwrap().len(), 2);
        set(undo);
    }
    set("seq = 3");
    let error = store.journal(&hurt, 0).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "damaged document journal/op-1: line 2: it is missing"
    );
    assert_eq!(names(&store.verify().await.unwrap()), ["journal/op-1"]);
    let mut batch = Batch::new();
    batch.discard("journal", "op-1");
    store.commit(batch).await.unwrap();
    assert_eq!(names(&store.verify().await.unwrap()), NONE);
    assert_eq!(store.journal(&hurt, 0).await.unwrap().len(), 1);
}

/// Fault 98: the damaged document has the name of a sound one. Reading and writing that one lifts no quarantine.
#[tokio::test]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
async fn a_damaged_document_with_the_name_of_a_sound_one_stays_damaged() {
    let (client, options) = Server::known().database().await;
    let store = opened(options).await.unwrap();
    store
        .commit(writing("composition", &["web-2", "web-3"]))
        .await
        .unwrap();
    client
        .batch_execute(
            "ALTER TABLE object DROP CONSTRAINT object_pkey;
             UPDATE object SET id = 'web-3' WHERE id = 'web-2';
             CREATE INDEX ON object (kind, id)",
        )
        .await
        .unwrap();
    assert_eq!(names(&store.verify().await.unwrap()), ["composition/web-3"]);
    for _ in 0..2 {
        let _ = store.get("composition", "web-3").await;
        assert_eq!(names(&store.damaged()), ["composition/web-3"]);
    }
    let mut batch = Batch::new();
    batch.discard("composition", "web-3");
    store.commit(batch).await.unwrap();
    assert_eq!(names(&store.damaged()), NONE);
    assert!(store.get("composition", "web-3").await.unwrap().is_some());
}

/// Fault 100: the list of open operations.
#[tokio::test]
async fn a_damaged_name_of_an_open_operation_is_removed_and_the_operation_is_listed_again() {
    let dir = tempfile::tempdir().unwrap();
    let operation = OperationId::new("op-1").unwrap();
    let mut batch = Batch::new();
    batch.line(&operation, 1, &"begun").unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    store.commit(batch).await.unwrap();
    drop(store);
    for name in ["'op-0'", "CAST(x'6f702db1' AS TEXT)"] {
        let connection = Connection::open(dir.path().join(DATABASE)).unwrap();
        let text = format!("UPDATE open_operation SET operation = {name}");
        assert_eq!(connection.execute(&text, []).unwrap(), 1);
        drop(connection);
        let store = SqliteStore::open(dir.path()).unwrap();
        assert!(store.open_operations().await.unwrap().is_empty());
        for _ in 0..2 {
            let mut batch = Batch::new();
            batch.reopen(&operation);
            store.commit(batch).await.unwrap();
        }
        assert_eq!(
            store.open_operations().await.unwrap(),
            std::slice::from_ref(&operation)
        );
        assert_eq!(store.journal(&operation, 0).await.unwrap().len(), 1);
    }
}

/// Fault 98: the counter of events, which has no checksum.
#[tokio::test]
async fn a_damaged_counter_is_repaired_at_the_start() {
    let (dir, store) = with_two().await;
    let told = |n: u32| {
        let mut batch = Batch::new();
        batch.event(&n).unwrap();
        batch
    };
    store.commit(told(1)).await.unwrap();
    store.commit(told(2)).await.unwrap();
    drop(store);
    let damages = [
        "UPDATE counter SET value = 0 WHERE name = 'event'",
        "UPDATE counter SET name = 'evens' WHERE name = 'event'",
        "UPDATE counter SET name = 'revisioo' WHERE name = 'revision'",
        "UPDATE counter SET value = -9223372036854775806 WHERE name = 'revision'",
    ];
    for (event, damage) in (3..).zip(damages) {
        let connection = Connection::open(dir.path().join(DATABASE)).unwrap();
        assert_eq!(connection.execute(damage, []).unwrap(), 1);
        drop(connection);
        let store = SqliteStore::open(dir.path()).unwrap();
        let before = store.revision().await.unwrap();
        let committed = store.commit(told(event)).await.unwrap();
        assert_eq!(committed.last_event, u64::from(event), "{damage}");
        let written = store.commit(writing("composition", &["new"])).await.unwrap();
        assert_eq!(written.revision, before + 1, "{damage}");
    }
}

/// Fault 98: in PostgreSQL.
#[tokio::test]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
async fn a_damaged_document_in_postgres_is_named_left_out_and_discarded() {
    let (client, options) = Server::known().database().await;
    let store = opened(options.clone()).await.unwrap();
    store
        .commit(writing("composition", &["lab-1", "web-1"]))
        .await
        .unwrap();
    for set in [
        "doc = replace(doc, 'gpu-4', 'gpu-5')",
        "revision = revision + 1",
        "checksum = checksum + 1",
    ] {
        let text = format!("UPDATE object SET {set} WHERE id = 'web-1'");
        client.batch_execute(&text).await.unwrap();
        let error = store.get("composition", "web-1").await.unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        assert_eq!(store.list("composition").await.unwrap().len(), 1);
        assert_eq!(names(&store.verify().await.unwrap()), ["composition/web-1"]);
        let another = opened(options.clone()).await.unwrap();
        assert_eq!(names(&another.damaged()), ["composition/web-1"], "at the start");
        store.commit(writing("composition", &["web-1"])).await.unwrap();
        assert_eq!(names(&store.verify().await.unwrap()), NONE);
    }
    client
        .batch_execute("UPDATE object SET doc = replace(doc, 'gpu-4', 'gpu-5') WHERE id = 'web-1'")
        .await
        .unwrap();
    assert!(repair(&store, "composition", "web-1").await);
    client
        .batch_execute("UPDATE object SET kind = 'compositioo' WHERE id = 'web-1'")
        .await
        .unwrap();
    assert_eq!(names(&store.verify().await.unwrap()), ["compositioo/web-1"]);
    let mut batch = Batch::new();
    batch.discard("compositioo", "web-1");
    batch
        .line(&OperationId::new("op-1").unwrap(), 1, &"begun")
        .unwrap();
    store.commit(batch).await.unwrap();
    assert_eq!(names(&store.verify().await.unwrap()), NONE);
    client
        .batch_execute("UPDATE journal SET line = '\"begul\"'")
        .await
        .unwrap();
    assert!(repair(&store, "journal", "op-1").await);
    let operation = OperationId::new("op-1").unwrap();
    assert_eq!(store.journal(&operation, 0).await.unwrap().len(), 1);
    client
        .batch_execute(
            "UPDATE open_operation SET operation = 'op-0'; DELETE FROM counter WHERE name = 'event'",
        )
        .await
        .unwrap();
    assert!(store.commit(writing("composition", &["web-2"])).await.is_err());
    let another = opened(options).await.unwrap();
    assert!(another.open_operations().await.unwrap().is_empty());
    another.commit(writing("composition", &["web-2"])).await.unwrap();
}
