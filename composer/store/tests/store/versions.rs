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

/// The database of a manager of an earlier release.
struct Frozen {
    text: String,
    documents: Vec<[String; 2]>,
    journal: Vec<[String; 2]>,
    events: Vec<[String; 2]>,
    open: Vec<[String; 2]>,
}

impl Frozen {
    /// One of every earlier format of documents.
    fn all() -> impl Iterator<Item = Self> {
        (1..DOCUMENT_FORMAT).map(Self::of)
    }

    fn of(format: u32) -> Self {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let file = here.join(format!("tests/frozen/store-{format:04}.sql"));
        let text = std::fs::read_to_string(file).unwrap();
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(&text).unwrap();
        let rows = |query: &str| -> Vec<[String; 2]> {
            let mut rows = connection.prepare(query).unwrap();
            let rows = rows.query_map([], |row| Ok([row.get(0)?, row.get(1)?]));
            rows.unwrap().map(Result::unwrap).collect()
        };
        let frozen = Self {
            documents: rows("SELECT kind || '/' || id, revision || ' ' || doc FROM object ORDER BY kind, id"),
            journal: rows("SELECT operation, line FROM journal ORDER BY operation, seq"),
            events: rows("SELECT seq || '', event FROM outbox ORDER BY seq"),
            open: rows("SELECT operation, '' FROM open_operation ORDER BY operation"),
            text,
        };
        assert!(frozen.documents.len() > 100 && frozen.journal.len() > 30);
        assert!(frozen.events.len() > 40 && !frozen.open.is_empty());
        frozen
    }

    async fn is_held_by(&self, store: &dyn Store) {
        assert!(store.verify().await.unwrap().is_empty());
        for [name, content] in &self.documents {
            let (kind, id) = name.split_once('/').unwrap();
            let found = store.get(kind, id).await.unwrap().unwrap();
            assert_eq!(&format!("{} {}", found.revision, found.json.get()), content);
        }
        let mut lines = Vec::new();
        let operations: BTreeSet<&String> = self.journal.iter().map(|[operation, _]| operation).collect();
        for operation in operations {
            let read = store
                .journal(&OperationId::new(operation.as_str()).unwrap(), 0)
                .await;
            let read = read.unwrap().into_iter();
            lines.extend(read.map(|line| [operation.clone(), line.json.get().to_owned()]));
        }
        assert_eq!(lines, self.journal);
        let told = store.events_after(0, 100).await.unwrap().into_iter();
        let told: Vec<_> = told
            .map(|event| [event.seq.to_string(), event.json.get().to_owned()])
            .collect();
        assert_eq!(told, self.events);
        let listed = store.open_operations().await.unwrap().into_iter();
        let listed: Vec<_> = listed.map(|id| [id.to_string(), String::new()]).collect();
        assert_eq!(listed, self.open);
    }
}

/// Fault 101: in SQLite.
#[tokio::test]
async fn a_database_of_every_earlier_format_is_opened_with_all_that_it_holds() {
    for frozen in Frozen::all() {
        let dir = tempfile::tempdir().unwrap();
        let connection = Connection::open(dir.path().join("poolwright.db")).unwrap();
        connection.execute_batch(&frozen.text).unwrap();
        drop(connection);
        // And once more, as this version has left it.
        for _ in 0..2 {
            frozen.is_held_by(&SqliteStore::open(dir.path()).unwrap()).await;
        }
    }
}

/// Fault 101: in PostgreSQL, which had the same tables.
#[tokio::test]
#[ignore = "needs a PostgreSQL server: tests/run postgres"]
async fn a_postgres_database_of_every_earlier_format_is_opened_with_all_that_it_holds() {
    for frozen in Frozen::all() {
        let (client, options) = Server::known().database().await;
        let schema = frozen
            .text
            .lines()
            .find_map(|line| line.strip_prefix("PRAGMA user_version = "));
        let schema = schema.unwrap().trim_end_matches(';');
        let tables: Vec<&str> = frozen
            .text
            .lines()
            .filter(|line| !line.starts_with("PRAGMA"))
            .collect();
        let tables = tables.join("\n").replace(" TEXT ", " TEXT COLLATE \"C\" ");
        client.batch_execute(&tables).await.unwrap();
        let mark = format!("INSERT INTO marker VALUES ('schema-version', '{schema}')");
        client.batch_execute(&mark).await.unwrap();
        frozen.is_held_by(&opened(options).await.unwrap()).await;
    }
}
