//! Opening the file: whose is it, which version, was it closed well.

use crate::OpenError;
use crate::migrations::MIGRATIONS;
use crate::statements::{MARK, MARKED};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// "Plwr", in the file's header: how we know our own file.
const APPLICATION_ID: i32 = 0x506c_7772;
const BUSY: Duration = Duration::from_secs(5);

/// A store ready to be written to.
pub(super) struct Opened {
    pub path: PathBuf,
    pub connection: Connection,
    /// Held for as long as the store is open.
    pub lock: File,
}

pub(super) fn open(dir: &Path) -> Result<Opened, OpenError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|e| io(dir, &e))?;
    let lock = lock(&dir.join("poolwright.lock"))?;
    let path = dir.join("poolwright.db");
    // SQLite would create it readable for all.
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&path)
        .map_err(|e| io(&path, &e))?;
    let mut connection = Connection::open(&path).map_err(|e| refused(&path, &e))?;
    let fresh = ours(&path, &connection)?;
    configure(&connection).map_err(|e| refused(&path, &e))?;
    if !fresh {
        check_after_unclean_stop(&path, &connection)?;
    }
    migrate(&mut connection).map_err(|e| refused(&path, &e))?;
    mark(&connection, UNCLEAN).map_err(|e| refused(&path, &e))?;
    Ok(Opened {
        path,
        connection,
        lock,
    })
}

pub(super) fn in_memory() -> Result<Connection, OpenError> {
    let path = Path::new(":memory:");
    let mut connection = Connection::open_in_memory().map_err(|e| refused(path, &e))?;
    migrate(&mut connection).map_err(|e| refused(path, &e))?;
    Ok(connection)
}

pub(super) fn read_only(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    Ok(connection)
}

/// Writes down that the store was closed well, and empties the write-ahead log.
pub(super) fn close(connection: Connection) -> rusqlite::Result<()> {
    mark(&connection, CLEAN)?;
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    connection.close().map_err(|(_, error)| error)
}

fn lock(path: &Path) -> Result<File, OpenError> {
    let mut file = OpenOptions::new()
        .create(true)
        .read(true)
        .write(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|e| io(path, &e))?;
    match file.try_lock() {
        Ok(()) => {
            // For whoever is kept away: whom to look for.
            let told = file
                .set_len(0)
                .and_then(|()| writeln!(file, "process {}", std::process::id()));
            told.map_err(|e| io(path, &e))?;
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Only for the message: an unreadable file still is a held lock.
            let _ = file.read_to_string(&mut holder);
            Err(OpenError::Locked {
                place: path.display().to_string(),
                holder: Some(holder.trim().to_owned())
                    .filter(|h| !h.is_empty())
                    .unwrap_or_else(|| "it left no name".to_owned()),
            })
        }
        Err(TryLockError::Error(error)) => Err(io(path, &error)),
    }
}

/// Whether the file is ours: `true` where it is empty, and an error where it is somebody else's or newer.
fn ours(path: &Path, connection: &Connection) -> Result<bool, OpenError> {
    let read = |pragma: &str| -> rusqlite::Result<i32> {
        connection.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get(0))
    };
    let application = read("application_id").map_err(|e| refused(path, &e))?;
    let version = read("user_version").map_err(|e| refused(path, &e))?;
    let tables = connection
        .query_row("SELECT count(*) FROM sqlite_master", [], |row| {
            row.get::<_, i64>(0)
        })
        .map_err(|e| refused(path, &e))?;
    if tables == 0 && application == 0 {
        return Ok(true);
    }
    if application != APPLICATION_ID {
        return Err(OpenError::Foreign {
            place: path.display().to_string(),
            reason: format!("its application id is {application:#010x}, ours is {APPLICATION_ID:#010x}"),
        });
    }
    let (found, known) = (u32::try_from(version).unwrap_or(0), MIGRATIONS.len() as u32);
    if found > known {
        return Err(OpenError::Newer {
            place: path.display().to_string(),
            found,
            known,
        });
    }
    Ok(false)
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // Readers don't wait for the writer, and a commit is one flush.
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    // What is acknowledged survives a power cut.
    connection.pragma_update(None, "synchronous", "FULL")
}

fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    let applied: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    for (index, text) in MIGRATIONS.iter().enumerate().skip(applied as usize) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(text)?;
        // Both are part of the transaction: the file is ours and of this version with its tables, or not.
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", index as i64 + 1)?;
        transaction.commit()?;
    }
    Ok(())
}

/// The marker that tells how the store was left.
const STOP: &str = "stop";
const CLEAN: &str = "clean";
const UNCLEAN: &str = "in-use";

fn mark(connection: &Connection, stop: &str) -> rusqlite::Result<()> {
    connection.execute(MARK, [STOP, stop])?;
    Ok(())
}

fn check_after_unclean_stop(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let marked = connection.query_row(MARKED, [STOP], |row| row.get::<_, String>(0));
    match marked {
        Ok(stop) if stop == CLEAN => return Ok(()),
        // Stopped before it was first marked: as good as unclean.
        Ok(_) | Err(rusqlite::Error::QueryReturnedNoRows) => {}
        Err(error) => return Err(refused(path, &error)),
    }
    tracing::warn!(path = %path.display(), "the store was not closed well; checking it");
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

fn refused(path: &Path, error: &rusqlite::Error) -> OpenError {
    let (place, reason) = (path.display().to_string(), error.to_string());
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::Foreign { place, reason },
        Some(ErrorCode::DatabaseCorrupt) => OpenError::Damaged { place, reason },
        _ => OpenError::Io { place, reason },
    }
}

fn io(path: &Path, error: &std::io::Error) -> OpenError {
    OpenError::Io {
        place: path.display().to_string(),
        reason: error.to_string(),
    }
}
