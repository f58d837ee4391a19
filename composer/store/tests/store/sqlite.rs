//! What is special to the store in a file: whose file it is, who may write it, what survives.

use crate::conformance::hold_promises;
use poolwright_model::id::OperationId;
use poolwright_store::{Batch, DOCUMENT_FORMAT, OpenError, SqliteStore, Store, backup, restore};
use rusqlite::Connection;
use serde_json::value::to_raw_value;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn writing(id: &str) -> Batch {
    let mut batch = Batch::new();
    batch.put_json("thing", id, to_raw_value(&1).unwrap());
    batch
}

/// What a kill -9 leaves behind: the files as they are while the store is open.
fn killed(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
    }
    to
}

#[tokio::test]
async fn in_a_file_the_promises_hold() {
    let dir = tempfile::tempdir().unwrap();
    hold_promises(Arc::new(SqliteStore::open(dir.path()).unwrap())).await;
}

#[tokio::test]
async fn in_memory_the_promises_hold() {
    hold_promises(Arc::new(SqliteStore::in_memory().unwrap())).await;
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_stop_and_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    let operation = OperationId::new("op").unwrap();
    let mut batch = writing("a");
    batch.line(&operation, 1, &"intent").unwrap();
    let committed = store.commit(batch).await.unwrap();

    let left = killed(dir.path());
    drop(store);
    for dir in [dir.path(), left.path()] {
        let store = SqliteStore::open(dir).unwrap();
        let document = store.get("thing", "a").await.unwrap().unwrap();
        assert_eq!(document.revision, committed.revision);
        assert_eq!(
            store.open_operations().await.unwrap(),
            std::slice::from_ref(&operation)
        );
        assert!(store.commit(writing("b")).await.unwrap().revision > committed.revision);
    }
}

#[tokio::test]
async fn a_second_process_is_kept_away_until_the_first_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let first = SqliteStore::open(dir.path()).unwrap();
    let error = SqliteStore::open(dir.path()).err().unwrap();
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains(&format!("process {}", std::process::id())),
        "{error}"
    );
    first.commit(writing("a")).await.unwrap();
    drop(first);
    SqliteStore::open(dir.path()).unwrap();
}

/// As `poolwright account unlock` does.
#[tokio::test]
async fn a_command_commits_beside_a_manager_that_reads_it_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let manager = SqliteStore::open(dir.path()).unwrap();
    let before = manager.commit(writing("a")).await.unwrap().revision;
    let beside = SqliteStore::beside(dir.path()).unwrap();
    let own = beside.commit(writing("b")).await.unwrap().revision;
    assert!(own > before);
    assert_eq!(manager.get("thing", "b").await.unwrap().unwrap().revision, own);
    let mut late = writing("a");
    late.expect("thing", "b", None);
    assert!(manager.commit(late).await.unwrap_err().is_conflict());
    assert!(manager.commit(writing("c")).await.unwrap().revision > own);
    drop((beside, manager));

    // Its manager does not run.
    SqliteStore::beside(dir.path())
        .unwrap()
        .commit(writing("d"))
        .await
        .unwrap();
    let manager = SqliteStore::open(dir.path()).unwrap();
    assert!(manager.get("thing", "d").await.unwrap().is_some());
    assert_eq!(manager.restored().await.unwrap(), None);
    let nowhere = tempfile::tempdir().unwrap();
    let error = SqliteStore::beside(nowhere.path()).err().unwrap();
    assert!(matches!(error, OpenError::Missing { .. }), "{error}");
}

#[tokio::test]
async fn a_foreign_file_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("poolwright.db");
    Connection::open(&path)
        .unwrap()
        .execute_batch("CREATE TABLE recipes (name TEXT); INSERT INTO recipes VALUES ('soup')")
        .unwrap();
    let before = std::fs::read(&path).unwrap();
    let error = SqliteStore::open(dir.path()).err().unwrap();
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);

    std::fs::write(
        &path,
        "Not a database at all, but long enough to be one.".repeat(40),
    )
    .unwrap();
    let error = SqliteStore::open(dir.path()).err().unwrap();
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
}

/// Fault 60: both versions are named.
#[tokio::test]
async fn a_newer_schema_is_refused_with_both_versions() {
    let dir = tempfile::tempdir().unwrap();
    drop(SqliteStore::open(dir.path()).unwrap());
    let path = dir.path().join("poolwright.db");
    let connection = Connection::open(&path).unwrap();
    connection.pragma_update(None, "user_version", 999).unwrap();
    drop(connection);
    let error = SqliteStore::open(dir.path()).err().unwrap();
    assert!(matches!(error, OpenError::Newer { found: 999, .. }), "{error}");
}

/// Fault 60: the tables are as we know them, and what is kept in them is not. All of it stays as it was.
#[tokio::test]
async fn newer_documents_are_refused_with_both_versions_and_left_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    store.commit(writing("kept")).await.unwrap();
    drop(store);
    let path = dir.path().join("poolwright.db");
    let set = |format: &str| {
        let connection = Connection::open(&path).unwrap();
        let text = "UPDATE marker SET value = ?1 WHERE name = 'document-format'";
        assert_eq!(
            connection.execute(text, [format]).unwrap(),
            1,
            "a new store says its format"
        );
    };
    set("999");
    let before = std::fs::read(&path).unwrap();
    let error = SqliteStore::open(dir.path()).err().unwrap();
    assert!(matches!(error, OpenError::Newer { found: 999, .. }), "{error}");
    assert!(error.to_string().contains("documents 999"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let known = DOCUMENT_FORMAT.to_string();
    set(&known);
    let store = SqliteStore::open(dir.path()).unwrap();
    assert!(store.get("thing", "kept").await.unwrap().is_some());
}

#[tokio::test]
async fn damage_is_found_after_an_unclean_stop() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    for n in 0..400 {
        store.commit(writing(&format!("thing-{n}"))).await.unwrap();
    }
    drop(store);
    // Opened and killed, so that it is marked as in use, then some of its middle overwritten.
    let store = SqliteStore::open(dir.path()).unwrap();
    store.commit(writing("last")).await.unwrap();
    let left = killed(dir.path());
    let path = left.path().join("poolwright.db");
    let mut bytes = std::fs::read(&path).unwrap();
    assert!(bytes.len() > 16 * 4096, "{}", bytes.len());
    let page = 4096;
    for byte in &mut bytes[3 * page..12 * page] {
        *byte = 0xa5;
    }
    std::fs::write(&path, bytes).unwrap();
    let error = SqliteStore::open(left.path()).err().unwrap();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("restore a backup"), "{error}");
}

#[tokio::test]
async fn only_the_owner_can_read_the_file() {
    use std::os::unix::fs::PermissionsExt;
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("data");
    let store = SqliteStore::open(&dir).unwrap();
    store.commit(writing("a")).await.unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    for name in ["poolwright.db", "poolwright.db-wal", "poolwright.lock"] {
        assert_eq!(mode(&dir.join(name)), 0o600, "{name}");
    }
}

#[tokio::test]
async fn many_writers_are_all_answered_once_theirs_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(dir.path()).unwrap());
    let writers: Vec<_> = (0..500)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let id = format!("thing-{n}");
                store.commit(writing(&id)).await.unwrap();
                assert!(store.get("thing", &id).await.unwrap().is_some());
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(store.list("thing").await.unwrap().len(), 500);
}

/// A list costs what is listed, and not what is kept.
#[tokio::test]
async fn the_newest_are_found_by_an_index() {
    let dir = tempfile::tempdir().unwrap();
    drop(SqliteStore::open(dir.path()).unwrap());
    let connection = Connection::open(dir.path().join("poolwright.db")).unwrap();
    let plan: String = connection
        .query_row(
            "EXPLAIN QUERY PLAN SELECT kind, id, revision, doc FROM object
             WHERE kind = 'operation' AND revision > 0 ORDER BY revision DESC, id LIMIT 50",
            [],
            |row| row.get("detail"),
        )
        .unwrap();
    assert!(plan.contains("USING INDEX object_written"), "{plan}");
}

#[tokio::test]
async fn a_folder_and_a_database_that_do_not_belong_together_are_left_alone() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let database = |dir: &tempfile::TempDir| dir.path().join("poolwright.db");
    for dir in [&ours, &theirs] {
        let store = SqliteStore::open(dir.path()).unwrap();
        store.commit(writing("a")).await.unwrap();
    }
    std::fs::copy(database(&theirs), database(&ours)).unwrap();
    let before = std::fs::read(database(&ours)).unwrap();
    let error = SqliteStore::open(ours.path()).err().unwrap();
    assert!(matches!(error, OpenError::OtherCluster { .. }), "{error}");
    assert_eq!(std::fs::read(database(&ours)).unwrap(), before);

    std::fs::remove_file(database(&ours)).unwrap();
    let error = SqliteStore::open(ours.path()).err().unwrap();
    assert!(matches!(error, OpenError::Lost { revision: 1, .. }), "{error}");
    assert!(
        !database(&ours).exists(),
        "nothing is made where something was lost"
    );
    // The others are not touched by any of it.
    let store = SqliteStore::open(theirs.path()).unwrap();
    assert!(store.get("thing", "a").await.unwrap().is_some());
}

#[tokio::test]
async fn a_truncated_file_is_refused_and_kept_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    for n in 0..200 {
        store.commit(writing(&format!("thing-{n}"))).await.unwrap();
    }
    drop(store);
    let path = dir.path().join("poolwright.db");
    let whole = std::fs::read(&path).unwrap();
    for length in [60, 4096, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..length]).unwrap();
        let error = SqliteStore::open(dir.path()).err().unwrap();
        assert!(
            matches!(error, OpenError::Damaged { .. } | OpenError::Foreign { .. }),
            "{length}: {error}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), &whole[..length], "{length}");
    }
    std::fs::write(&path, &whole).unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    assert_eq!(store.count("thing").await.unwrap(), 200);
}

/// Fault 58: it says that it was restored.
#[tokio::test]
async fn a_backup_of_a_running_store_restored_says_so_until_it_is_accepted() {
    let (dir, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (file, restored) = (place.path().join("backup"), place.path().join("restored"));
    let store = SqliteStore::open(dir.path()).unwrap();
    let kept = store.commit(writing("kept")).await.unwrap();
    let copied = backup(dir.path(), &file).unwrap();
    assert_eq!(copied.revision, kept.revision);
    assert_eq!(copied.bytes, std::fs::metadata(&file).unwrap().len());
    store.commit(writing("later")).await.unwrap();
    assert_eq!(store.restored().await.unwrap(), None);
    let error = backup(dir.path(), &file).unwrap_err();
    assert!(matches!(error, OpenError::Occupied { .. }), "{error}");

    let before = std::fs::read(&file).unwrap();
    restore(&file, &restored, "on a whim").unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), before, "the backup is as it was");
    let error = restore(&file, &restored, "again").unwrap_err();
    assert!(matches!(error, OpenError::Occupied { .. }), "{error}");
    for _ in 0..2 {
        let again = SqliteStore::open(&restored).unwrap();
        assert_eq!(again.restored().await.unwrap().as_deref(), Some("on a whim"));
        assert!(again.get("thing", "kept").await.unwrap().is_some());
        assert!(again.get("thing", "later").await.unwrap().is_none());
    }
    let again = SqliteStore::open(&restored).unwrap();
    let committed = again.commit(writing("anew")).await.unwrap();
    assert!(
        committed.revision > kept.revision + (1 << 31),
        "no number comes again"
    );
    let mut accepting = Batch::new();
    accepting.accept_restored();
    again.commit(accepting).await.unwrap();
    drop(again);
    assert_eq!(
        SqliteStore::open(&restored).unwrap().restored().await.unwrap(),
        None
    );
}

#[tokio::test]
async fn a_copy_that_is_not_whole_is_not_restored() {
    let place = tempfile::tempdir().unwrap();
    let (file, dir) = (place.path().join("backup"), place.path().join("restored"));
    let error = restore(&file, &dir, "").unwrap_err();
    assert!(matches!(error, OpenError::Missing { .. }), "{error}");
    let source = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(source.path()).unwrap();
    for n in 0..300 {
        store.commit(writing(&format!("thing-{n}"))).await.unwrap();
    }
    backup(source.path(), &file).unwrap();
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let error = restore(&file, &dir, "").unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    let mut scribbled = whole;
    scribbled[3 * 4096..6 * 4096].fill(0xa5);
    std::fs::write(&file, &scribbled).unwrap();
    let error = restore(&file, &dir, "").unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    assert!(
        SqliteStore::open(&dir)
            .unwrap()
            .restored()
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(std::fs::read(&file).unwrap(), scribbled);
}

/// A manager that is killed has not flushed what it saw last.
#[tokio::test]
async fn an_older_file_put_in_the_place_of_a_newer_one_is_noticed_after_a_kill_too() {
    let dir = tempfile::tempdir().unwrap();
    let (database, flushed) = (dir.path().join("poolwright.db"), dir.path().join("cluster.json"));
    let store = SqliteStore::open(dir.path()).unwrap();
    store.commit(writing("kept")).await.unwrap();
    drop(store);
    let (older, known) = (
        std::fs::read(&database).unwrap(),
        std::fs::read(&flushed).unwrap(),
    );
    let store = SqliteStore::open(dir.path()).unwrap();
    let last = store.commit(writing("later")).await.unwrap();
    drop(store);
    std::fs::write(&flushed, &known).unwrap();
    std::fs::write(&database, &older).unwrap();
    let why = SqliteStore::open(dir.path()).unwrap().restored().await.unwrap();
    let seen = format!("has seen number {}", last.revision);
    assert!(why.as_ref().is_some_and(|why| why.contains(&seen)), "{why:?}");
}

/// What a power cut leaves of a number is no number.
#[tokio::test]
async fn a_torn_note_of_the_last_commit_says_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    store.commit(writing("kept")).await.unwrap();
    drop(store);
    let latest = dir.path().join("last-commit");
    let mut torn = std::fs::read(&latest).unwrap();
    torn[3] = b'7';
    std::fs::write(&latest, &torn).unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    assert_eq!(store.restored().await.unwrap(), None);
}

#[tokio::test]
async fn an_older_file_put_in_the_place_of_a_newer_one_is_noticed() {
    let (dir, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let database = dir.path().join("poolwright.db");
    let store = SqliteStore::open(dir.path()).unwrap();
    store.commit(writing("kept")).await.unwrap();
    drop(store);
    let older = std::fs::read(&database).unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    let last = store.commit(writing("later")).await.unwrap();
    drop(store);
    std::fs::write(&database, &older).unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    let why = store.restored().await.unwrap().unwrap();
    assert!(
        why.contains(&format!("has seen number {}", last.revision)),
        "{why}"
    );
    drop(store);
    // Copied by hand into a folder that knows nothing of it.
    std::fs::write(place.path().join("poolwright.db"), &older).unwrap();
    let store = SqliteStore::open(place.path()).unwrap();
    assert!(store.restored().await.unwrap().is_some());
}

/// Whoever asks and does not look for the answer, as a task that is held up elsewhere, keeps nobody from reading.
#[tokio::test]
async fn reads_that_nobody_waits_for_keep_no_other_from_reading() {
    let store = SqliteStore::in_memory().unwrap();
    store.commit(writing("kept")).await.unwrap();
    let mut begun = Vec::new();
    for _ in 0..256 {
        let mut read = store.get("thing", "kept");
        // Begun, and left there.
        let _ = tokio::time::timeout(Duration::ZERO, &mut read).await;
        begun.push(read);
    }
    let read = tokio::time::timeout(Duration::from_secs(30), store.get("thing", "kept"));
    assert!(read.await.unwrap().unwrap().is_some());
}
