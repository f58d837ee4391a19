//! Opening the file: whose is it, which version, was it closed well.

use crate::OpenError;
use crate::cluster::{CLUSTER, Found, LEAP, RESTORED, Remembered, belonging, new_name, went_back};
use crate::data_dir::{DataDir, unusable};
use crate::document::Damaged;
use crate::format::{self, DOCUMENT_FORMAT, FORMAT};
use crate::migrations::{CHECKSUMS, MIGRATIONS};
use crate::statements::{FORGET_UNKNOWN, MARK, REPAIR_COUNTERS, UNMARK};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file in the data directory.
pub(super) const DATABASE: &str = "poolwright.db";
/// "Plwr", in the file's header: how we know our own file.
const APPLICATION_ID: i32 = 0x506c_7772;
const BUSY: Duration = Duration::from_secs(5);

/// A store ready to be written to.
pub(super) struct Opened {
    pub path: PathBuf,
    pub connection: Connection,
    /// Held for as long as the store is open.
    pub dir: DataDir,
    pub cluster: String,
    /// Damaged documents.
    pub damaged: Vec<Damaged>,
}

pub(super) fn open(dir: &Path) -> Result<Opened, OpenError> {
    let dir = DataDir::open(dir)?;
    let path = dir.file(DATABASE);
    let remembered = dir.remembered()?;
    // All that may be refused is found before the first change.
    let found = inspect(&path)?;
    if found.unclean {
        tracing::warn!(path = %path.display(), "the store was not closed well; it was checked, and is sound");
    }
    let place = path.display().to_string();
    let cluster = belonging(&place, remembered.as_ref(), &found)?.unwrap_or_else(new_name);
    let older = match &remembered {
        None if found.cluster.is_some() => Some("the file came without its data directory".to_owned()),
        remembered => went_back(remembered.as_ref(), &found),
    };
    let seen = remembered.map_or(0, |remembered| remembered.revision);
    let revision = found.revision.unwrap_or(0);
    if let Some(why) = &older {
        tracing::warn!(path = %path.display(), why, "the store may be an older state");
        mark_restored(&path, why, seen.saturating_sub(revision)).map_err(|e| refused(&path, &e))?;
    }
    // The folder first: a start that ends between the two has nothing to lose yet, and goes on with this name.
    let known = Remembered { cluster, revision };
    dir.remember(&known).map_err(|e| unusable(&dir.file(""), &e))?;
    // SQLite would create it readable for all.
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&path)
        .map_err(|e| unusable(&path, &e))?;
    let connection = prepare(&path, &known.cluster).map_err(|e| refused(&path, &e))?;
    let damaged = verify(&path, &connection)?;
    let unknown = connection
        .execute(FORGET_UNKNOWN, [])
        .map_err(|e| refused(&path, &e))?;
    if unknown > 0 {
        tracing::error!(path = %path.display(), unknown, "names of open operations damaged");
    }
    repair_counters(&path, &connection).map_err(|e| refused(&path, &e))?;
    Ok(Opened {
        path,
        connection,
        dir,
        cluster: known.cluster,
        damaged,
    })
}

fn repair_counters(path: &Path, connection: &Connection) -> rusqlite::Result<()> {
    let mut repaired = 0;
    for statement in REPAIR_COUNTERS {
        repaired += connection.execute(statement, [])?;
    }
    if repaired > 0 {
        tracing::error!(path = %path.display(), "counters damaged; repaired from documents and events");
    }
    Ok(())
}

/// Writes down that the file may be an older state, before the folder forgets by what that is known.
pub(super) fn mark_restored(path: &Path, why: &str, missing: u64) -> rusqlite::Result<u64> {
    let mut connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let transaction = connection.transaction()?;
    repair_counters(path, &transaction)?;
    mark(&transaction, RESTORED, why)?;
    let revision = super::sql::advance(&transaction, "revision", missing + LEAP)?;
    transaction.commit()?;
    Ok(revision)
}

fn prepare(path: &Path, cluster: &str) -> rusqlite::Result<Connection> {
    let mut connection = Connection::open(path)?;
    configure(&connection)?;
    migrate(&mut connection)?;
    mark(&connection, CLUSTER, cluster)?;
    mark(&connection, FORMAT, &DOCUMENT_FORMAT.to_string())?;
    mark(&connection, STOP, UNCLEAN)?;
    Ok(connection)
}

/// Verifies every document: a flipped bit leaves the pages of the file sound. An index that does not fit is made again from
/// the documents.
fn verify(path: &Path, connection: &Connection) -> Result<Vec<Damaged>, OpenError> {
    let look = || super::sql::verify(connection).map_err(|e| refused(path, &e));
    let verdict = look()?;
    let Some(reason) = verdict.indices else {
        return Ok(verdict.damaged);
    };
    tracing::warn!(path = %path.display(), reason, "index damaged; rebuilding all");
    let damaged = |reason: String| OpenError::Damaged {
        place: path.display().to_string(),
        reason,
    };
    connection
        .execute_batch(super::sql::REINDEX)
        .map_err(|error| match error.sqlite_error_code() {
            // A flipped bit gave one document the name of another.
            Some(ErrorCode::ConstraintViolation) => damaged(error.to_string()),
            _ => refused(path, &error),
        })?;
    let again = look()?;
    match again.indices {
        None => Ok(again.damaged),
        Some(reason) => Err(damaged(reason)),
    }
}

/// A new connection that writes, after the disk failed under the old one, which is gone. A flush that failed may have
/// lost what was written before it, while the system goes on showing it. So all that is in the log is written once more,
/// into the file, and flushed; and what is there then is checked.
pub(super) fn renew(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let renewed = Connection::open_with_flags(path, flags).and_then(|connection| {
        configure(&connection)?;
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        let is_busy = connection.query_row(checkpoint, [], |row| row.get::<_, bool>(0))?;
        Ok((connection, is_busy))
    });
    let (connection, is_busy) = renewed.map_err(|e| refused(path, &e))?;
    if is_busy {
        return Err(OpenError::Io {
            place: path.display().to_string(),
            reason: "somebody reads what is to be written once more".to_owned(),
        });
    }
    check(path, &connection)?;
    Ok(connection)
}

pub(super) fn in_memory() -> Result<Connection, OpenError> {
    let path = Path::new(":memory:");
    let mut connection = Connection::open_in_memory().map_err(|e| refused(path, &e))?;
    migrate(&mut connection).map_err(|e| refused(path, &e))?;
    Ok(connection)
}

/// A connection that writes, while the manager may have one, too.
pub(super) fn beside(dir: &Path) -> Result<Connection, OpenError> {
    let path = dir.join(DATABASE);
    super::copy::present(&path)?;
    inspect(&path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(&path, flags).and_then(|connection| {
        configure(&connection)?;
        let schema: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        Ok((connection, schema))
    });
    let (connection, schema) = opened.map_err(|e| refused(&path, &e))?;
    match schema as usize == MIGRATIONS.len() {
        true => Ok(connection),
        // Only the start of a manager changes the tables.
        false => Err(OpenError::Older {
            place: path.display().to_string(),
        }),
    }
}

pub(super) fn read_only(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    Ok(connection)
}

/// Writes down that the store was closed well, and empties the write-ahead log.
pub(super) fn close(connection: Connection) -> rusqlite::Result<()> {
    mark(&connection, STOP, CLEAN)?;
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    connection.close().map_err(|(_, error)| error)
}

/// Whose file it is and how it was left, without changing it: an error where it is not for us to write to.
pub(super) fn inspect(path: &Path) -> Result<Found, OpenError> {
    match path.metadata() {
        Ok(metadata) if metadata.len() > 0 => {}
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unusable(path, &error)),
        _ => return Ok(Found::default()),
    }
    if is_other(path).map_err(|e| unusable(path, &e))? {
        return Err(OpenError::Foreign {
            place: path.display().to_string(),
            reason: "it is no file of SQLite".to_owned(),
        });
    }
    if let Some(reason) = cut_off(path).map_err(|e| unusable(path, &e))? {
        return Err(OpenError::Damaged {
            place: path.display().to_string(),
            reason,
        });
    }
    let connection = looking(path).map_err(|e| refused(path, &e))?;
    if !ours(path, &connection)? {
        return Ok(Found::default());
    }
    let marked = |name| super::sql::marked(&connection, name).map_err(|e| refused(path, &e));
    format::judge(&path.display().to_string(), marked(FORMAT)?.as_deref())?;
    // Stopped before it was first marked: as good as unclean. Or its manager runs.
    let unclean = marked(STOP)?.as_deref() != Some(CLEAN);
    if unclean {
        check(path, &connection)?;
    }
    let revision = super::sql::found_revision(&connection).map_err(|e| refused(path, &e))?;
    Ok(Found {
        cluster: marked(CLUSTER)?,
        revision: Some(revision),
        unclean,
    })
}

/// How a SQLite file begins.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// Whether a file begins as none of ours does. One that begins with zeros may be ours: a power cut leaves such.
fn is_other(path: &Path) -> io::Result<bool> {
    let mut begins = Vec::new();
    File::open(path)?
        .take(MAGIC.len() as u64)
        .read_to_end(&mut begins)?;
    Ok(!MAGIC.starts_with(&begins) && begins.iter().any(|byte| *byte != 0))
}

/// What tells that the file's end is missing. SQLite itself does not look at the last page before it needs it.
fn cut_off(path: &Path) -> io::Result<Option<String>> {
    let log = path.with_extension("db-wal");
    if log.metadata().is_ok_and(|log| log.len() > 0) {
        // The end may be in the log still.
        return Ok(None);
    }
    let (mut file, mut header) = (File::open(path)?, [0; 32]);
    let length = file.metadata()?.len();
    if file.read_exact(&mut header).is_err() {
        return Ok(Some(format!(
            "it has {length} bytes, and its header alone has more"
        )));
    }
    let number = |at: usize, size: usize| {
        header[at..at + size]
            .iter()
            .fold(0, |n, byte| n << 8 | u64::from(*byte))
    };
    // 1 stands for what does not fit into two bytes.
    let page = match number(16, 2) {
        1 => 65536,
        size => size,
    };
    let expected = page * number(28, 4);
    let cut = header.starts_with(MAGIC) && length < expected;
    Ok(cut.then(|| format!("it has {length} bytes, and its header tells of {expected}")))
}

/// A connection that changes nothing; a commit that was cut short is rolled back, as it has to be.
pub(super) fn looking(path: &Path) -> rusqlite::Result<Connection> {
    let connection = read_only(path)?;
    match connection.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(())) {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::ReadOnly) => {
            let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
            Ok(connection)
        }
        _ => Ok(connection),
    }
}

/// Whether the file holds our tables: `false` where it is empty, and an error where it is somebody else's or newer.
fn ours(path: &Path, connection: &Connection) -> Result<bool, OpenError> {
    let read = |text: &str| -> Result<i64, OpenError> {
        let value = connection.query_row(text, [], |row| row.get(0));
        value.map_err(|e| refused(path, &e))
    };
    let application = read("PRAGMA application_id")?;
    let version = read("PRAGMA user_version")?;
    if read("SELECT count(*) FROM sqlite_master")? == 0 && application == 0 {
        return Ok(false);
    }
    if application != i64::from(APPLICATION_ID) {
        return Err(OpenError::Foreign {
            place: path.display().to_string(),
            reason: format!("its application id is {application:#010x}, ours is {APPLICATION_ID:#010x}"),
        });
    }
    let (found, known) = (u32::try_from(version).unwrap_or(0), MIGRATIONS.len() as u32);
    if found > known {
        return Err(OpenError::Newer {
            place: path.display().to_string(),
            what: "schema",
            found,
            known,
        });
    }
    Ok(true)
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // Readers don't wait for the writer, and a commit is one flush. Where the file system can't, SQLite says so here,
    // and goes on as before.
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode != "wal" {
        return Err(no_log(&mode));
    }
    // What is acknowledged survives a power cut.
    connection.pragma_update(None, "synchronous", "FULL")
}

fn no_log(mode: &str) -> rusqlite::Error {
    let reason = format!(
        "it can't keep a write-ahead log there (its journal mode stays {mode:?}): choose a local file system for it"
    );
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CANTOPEN), Some(reason))
}

fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    let applied: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    for (index, text) in MIGRATIONS.iter().enumerate().skip(applied as usize) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(text)?;
        if index as u32 + 1 == CHECKSUMS {
            super::sql::add_checksums(&transaction)?;
        }
        // Both are part of the transaction: the file is ours and of this version with its tables, or not.
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", index as i64 + 1)?;
        transaction.commit()?;
    }
    Ok(())
}

/// The marker that tells how the store was left.
pub(super) const STOP: &str = "stop";
pub(super) const CLEAN: &str = "clean";
const UNCLEAN: &str = "in-use";

pub(super) fn mark(connection: &Connection, name: &str, value: &str) -> rusqlite::Result<()> {
    connection.execute(MARK, [name, value]).map(|_| ())
}

/// A write that changes nothing: it says again that the store is in use. It is taken out first, for SQLite writes no page
/// that stays as it was.
pub(super) fn touch(connection: &Connection) -> rusqlite::Result<()> {
    let transaction = connection.unchecked_transaction()?;
    transaction.execute(UNMARK, [STOP])?;
    mark(&transaction, STOP, UNCLEAN)?;
    transaction.commit()
}

fn check(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let verdict = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0))
        .map_err(|e| refused(path, &e))?;
    if verdict == "ok" {
        return Ok(());
    }
    Err(OpenError::Damaged {
        place: path.display().to_string(),
        reason: verdict,
    })
}

pub(super) fn refused(path: &Path, error: &rusqlite::Error) -> OpenError {
    let (place, reason) = (path.display().to_string(), error.to_string());
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::Foreign { place, reason },
        Some(ErrorCode::DatabaseCorrupt) => OpenError::Damaged { place, reason },
        _ => OpenError::Io { place, reason },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_flushed_at_each_commit_and_has_a_log_or_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let opened = open(folder.path()).unwrap();
        let asked = |name: &str| -> String {
            let text = format!("SELECT CAST({name} AS TEXT) FROM pragma_{name}");
            opened.connection.query_row(&text, [], |row| row.get(0)).unwrap()
        };
        assert_eq!(asked("journal_mode"), "wal");
        assert_eq!(asked("synchronous"), "2", "FULL");
        // What is kept in memory alone answers as a file system does that can't.
        let error = configure(&Connection::open_in_memory().unwrap()).unwrap_err();
        let refused = refused(Path::new("/there/poolwright.db"), &error).to_string();
        for part in ["/there/poolwright.db", "write-ahead log", "local file system"] {
            assert!(refused.contains(part), "{refused}");
        }
    }
}
