//! Databases of every earlier version, as they were left by it: what was kept is there afterwards.
//!
//! Whoever adds a migration adds the database that it leaves: `versions/NNNN.sql`. What is in documents has a format of
//! its own: `versions/documents-NNNN.json`, read by the service's tests. A change that raises it adds the
//! database of a manager of the format before: `frozen/store-NNNN.sql`, dumped by SQLite. No file is changed after a release.

use crate::conformance::hold_promises;
use crate::postgres::{Server, opened};
use poolwright_model::id::OperationId;
use poolwright_store::{DOCUMENT_FORMAT, Order, SqliteStore, Store};
use rusqlite::Connection;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// The versions with the text that makes a database of each.
fn versions() -> Vec<(u32, String)> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let names = |folder: &str| {
        let entries = std::fs::read_dir(here.join(folder)).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut paths: Vec<_> = paths
            .filter(|path| path.extension().is_some_and(|of| of == "sql"))
            .collect();
        paths.sort();
        paths
    };
    let files = names("tests/versions");
    assert_eq!(
        files.len(),
        names("migrations").len(),
        "a database of every version"
    );
    (1..)
        .zip(files)
        .map(|(version, path)| (version, std::fs::read_to_string(path).unwrap()))
        .collect()
}

/// What all of them hold.
async fn hold_what_was_kept(store: &dyn Store) {
    let things = store.list("keepsake").await.unwrap();
    let things: Vec<_> = things
        .iter()
        .map(|found| (found.id.as_str(), found.revision))
        .collect();
    assert_eq!(things, [("old", 1), ("young", 4)]);
    let note = store.get("note", "Ä \"quoted\" id").await.unwrap().unwrap();
    assert_eq!(note.json.get(), "\"it's ✓\"");
    let newest = store.written("keepsake", Order::LatestFirst, 1).await.unwrap();
    assert_eq!(newest[0].id, "young");
    assert_eq!(store.revision().await.unwrap(), 4);
    let (over, open) = (
        OperationId::new("op-over").unwrap(),
        OperationId::new("op-open").unwrap(),
    );
    assert_eq!(
        store.open_operations().await.unwrap(),
        std::slice::from_ref(&open)
    );
    assert_eq!(store.journal(&over, 0).await.unwrap().len(), 2);
    assert_eq!(store.journal(&open, 0).await.unwrap()[0].json.get(), "\"begun\"");
    assert_eq!(store.events_after(0, 10).await.unwrap().len(), 2);
}

fn tables(database: &Path) -> Vec<String> {
    let connection = Connection::open(database).unwrap();
    let mut tables = connection
        .prepare("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")
        .unwrap();
    let rows = tables.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

#[tokio::test]
async fn an_older_file_is_brought_up_to_date_with_all_that_it_holds() {
    let fresh = tempfile::tempdir().unwrap();
    drop(SqliteStore::open(fresh.path()).unwrap());
    for (version, text) in versions() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("poolwright.db");
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch(&text).unwrap();
        connection
            .pragma_update(None, "application_id", 0x506c_7772)
            .unwrap();
        connection.pragma_update(None, "user_version", version).unwrap();
        drop(connection);

        let store = Arc::new(SqliteStore::open(dir.path()).unwrap());
        hold_what_was_kept(&*store).await;
        hold_promises(Arc::clone(&store) as Arc<dyn Store>).await;
        assert!(store.verify().await.unwrap().is_empty());
        drop(store);
        let without = "SELECT (SELECT count(*) FROM object WHERE checksum IS NULL)
                     + (SELECT count(*) FROM journal WHERE checksum IS NULL)";
        let connection = Connection::open(&path).unwrap();
        let without: u32 = connection.query_row(without, [], |row| row.get(0)).unwrap();
        assert_eq!(without, 0, "version {version}: every row has a checksum");
        drop(connection);
        assert_eq!(
            tables(&path),
            tables(&fresh.path().join("poolwright.db")),
            "version {version} ends where a new one begins"
        );
    }
}

#[tokio::test]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
async fn an_older_postgres_database_is_brought_up_to_date_with_all_that_it_holds() {
    for (version, text) in versions() {
        let (client, options) = Server::known().database().await;
        let text = text.replace(" TEXT ", " TEXT COLLATE \"C\" ");
        client.batch_execute(&text).await.unwrap();
        let mark = format!("INSERT INTO marker VALUES ('schema-version', '{version}')");
        client.batch_execute(&mark).await.unwrap();
        let store = Arc::new(opened(options).await.unwrap());
        assert!(store.verify().await.unwrap().is_empty());
        let without = "SELECT (SELECT count(*) FROM object WHERE checksum IS NULL)
                     + (SELECT count(*) FROM journal WHERE checksum IS NULL)";
        let without: i64 = client.query_one(without, &[]).await.unwrap().get(0);
        assert_eq!(without, 0, "version {version}: every row has a checksum");
        hold_what_was_kept(&*store).await;
        hold_promises(store).await;
    }
}

/// Fault 101: the database of a manager of an earlier release.
#[tokio::test]
async fn a_database_of_every_earlier_format_is_opened_with_all_that_it_holds() {
    let frozen = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/frozen");
    for format in 1..DOCUMENT_FORMAT {
        let text = std::fs::read_to_string(frozen.join(format!("store-{format:04}.sql"))).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let connection = Connection::open(dir.path().join("poolwright.db")).unwrap();
        connection.execute_batch(&text).unwrap();
        let rows = |text: &str| -> Vec<[String; 2]> {
            let mut rows = connection.prepare(text).unwrap();
            let rows = rows.query_map([], |row| Ok([row.get(0)?, row.get(1)?]));
            rows.unwrap().map(Result::unwrap).collect()
        };
        let documents =
            rows("SELECT kind || '/' || id, revision || ' ' || doc FROM object ORDER BY kind, id");
        let journal = rows("SELECT operation, line FROM journal ORDER BY operation, seq");
        let events = rows("SELECT seq || '', event FROM outbox ORDER BY seq");
        let open = rows("SELECT operation, '' FROM open_operation ORDER BY operation");
        assert!(documents.len() > 100 && journal.len() > 30 && events.len() > 40 && !open.is_empty());
        drop(connection);
        // And once more, as this version has left it.
        for _ in 0..2 {
            let store = SqliteStore::open(dir.path()).unwrap();
            assert!(store.verify().await.unwrap().is_empty());
            for [name, content] in &documents {
                let (kind, id) = name.split_once('/').unwrap();
                let found = store.get(kind, id).await.unwrap().unwrap();
                assert_eq!(&format!("{} {}", found.revision, found.json.get()), content);
            }
            let mut lines = Vec::new();
            let operations: BTreeSet<&String> = journal.iter().map(|[operation, _]| operation).collect();
            for operation in operations {
                let read = store
                    .journal(&OperationId::new(operation.as_str()).unwrap(), 0)
                    .await;
                let read = read.unwrap().into_iter();
                lines.extend(read.map(|line| [operation.clone(), line.json.get().to_owned()]));
            }
            assert_eq!(lines, journal);
            let told = store.events_after(0, 100).await.unwrap().into_iter();
            let told: Vec<_> = told
                .map(|event| [event.seq.to_string(), event.json.get().to_owned()])
                .collect();
            assert_eq!(told, events);
            let listed = store.open_operations().await.unwrap().into_iter();
            let listed: Vec<_> = listed.map(|id| [id.to_string(), String::new()]).collect();
            assert_eq!(listed, open);
        }
    }
}
