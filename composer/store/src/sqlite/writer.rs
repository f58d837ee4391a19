//! The one thread that writes. It takes all batches that wait, applies each in a savepoint of its own,
//! and commits them together: one flush to the disk for all (group commit). A caller is answered only
//! after that flush.
//!
//! Where the disk failed, the connection is not trusted any more: what a flush that failed has lost is shown as if it
//! were there. Another one takes its place, once that has written everything anew and checked it ([`open::renew`]); until
//! then nothing is committed. Whoever asks is told that nothing can be written until something is: while nobody
//! writes, the thread tries it itself.
//!
//! The number of the last commit is kept in memory: nobody else writes, and it is asked for by every request.

use super::open::{self, Opened};
use super::sql::{self, NotApplied};
use crate::error::RESTORE;
use crate::unwritable::{TRY_AGAIN, Unwritable};
use crate::{Batch, Committed, OpenError, StoreError};
use rusqlite::Connection;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// Batches in one commit, so that no caller waits for an endless one.
const GROUP: usize = 256;

/// A batch, and who waits for it.
struct Job {
    batch: Batch,
    answer: oneshot::Sender<Result<Committed, StoreError>>,
}

/// The way to the thread. When closed or dropped, what was handed over is still committed, and the file closed.
pub(super) struct Writer(Mutex<Way>);

struct Way {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    unwritable: Arc<Unwritable>,
    newest: Arc<Newest>,
}

/// The number of the last commit. Set before anybody is answered.
struct Newest(AtomicU64);

impl Newest {
    /// The file must be asked: at the start, and after a commit of which the disk has not said what became of it.
    const UNKNOWN: u64 = u64::MAX;

    fn set(&self, revision: u64) {
        self.0.store(revision, Ordering::Release);
    }

    fn get(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Acquire)).filter(|revision| *revision != Self::UNKNOWN)
    }

    fn note(&self, results: &[Result<Committed, StoreError>]) {
        let committed = results.iter().flatten().map(|committed| committed.revision).max();
        let failed = |result: &Result<_, StoreError>| matches!(result, Err(StoreError::Unavailable { .. }));
        match committed {
            _ if results.iter().any(failed) => self.set(Self::UNKNOWN),
            Some(revision) => self.set(revision),
            None => {}
        }
    }
}

impl Writer {
    pub fn start(opened: Opened) -> Result<Self, OpenError> {
        let place = opened.path.display().to_string();
        let (jobs, waiting) = mpsc::channel();
        let unwritable = Arc::new(Unwritable::default());
        let newest = Arc::new(Newest(AtomicU64::new(Newest::UNKNOWN)));
        let noted = (Arc::clone(&unwritable), Arc::clone(&newest));
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || run(opened, &waiting, &noted.0, &noted.1))
            .map_err(|e| OpenError::Io {
                place,
                reason: e.to_string(),
            })?;
        Ok(Self(Mutex::new(Way {
            jobs: Some(jobs),
            thread: Some(thread),
            unwritable,
            newest,
        })))
    }

    fn way(&self) -> MutexGuard<'_, Way> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread, which ends now that nobody can send any more.
    fn end(&self) -> Option<JoinHandle<()>> {
        let mut way = self.way();
        way.jobs = None;
        way.thread.take()
    }

    pub async fn close(&self) {
        let Some(thread) = self.end() else { return };
        if !matches!(tokio::task::spawn_blocking(|| thread.join()).await, Ok(Ok(()))) {
            tracing::error!("the store's writer did not end well");
        }
    }

    /// Why nothing can be committed, since the last commit that failed.
    pub fn unwritable(&self) -> Option<String> {
        self.way().unwritable.told()
    }

    /// The number of the last commit, where it is known without asking the file.
    pub fn newest(&self) -> Option<u64> {
        self.way().newest.get()
    }

    pub async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        let (answer, answered) = oneshot::channel();
        let jobs = self.way().jobs.clone();
        let sent = jobs.is_some_and(|jobs| jobs.send(Job { batch, answer }).is_ok());
        if !sent {
            return Err(gone());
        }
        super::answered(answered).await
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(thread) = self.end()
            && thread.join().is_err()
        {
            tracing::error!("the store's writer ended in a panic");
        }
    }
}

fn run(opened: Opened, waiting: &mpsc::Receiver<Job>, unwritable: &Unwritable, newest: &Newest) {
    let Opened {
        connection,
        dir,
        path,
        cluster,
        ..
    } = opened;
    let mut file = File {
        path,
        connection,
        is_sound: true,
    };
    if let Ok(revision) = sql::last_revision(&file.connection) {
        newest.set(revision);
    }
    let mut last = 0;
    loop {
        let patience = unwritable.is_so().then_some(TRY_AGAIN);
        let first = match next(waiting, patience) {
            Ok(first) => first,
            Err(RecvTimeoutError::Timeout) => {
                file.try_again(unwritable);
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let jobs = std::iter::once(first).chain(waiting.try_iter()).take(GROUP);
        let (batches, answers): (Vec<_>, Vec<_>) = jobs.map(|job| (job.batch, job.answer)).unzip();
        let results = file.commit_group(&batches);
        // Before anybody is answered: whoever was refused finds out why.
        if unwritable.note(&results) {
            file.try_again(unwritable);
        }
        newest.note(&results);
        let committed = results.iter().flatten().map(|committed| committed.revision);
        if let Some(revision) = committed.max() {
            last = revision;
            dir.saw(&cluster, last);
        }
        for (result, answer) in results.into_iter().zip(answers) {
            // Whoever asked may have gone away; what is committed stays committed.
            let _ = answer.send(result);
        }
    }
    if last > 0 {
        dir.note(&cluster, last);
    }
    file.close();
    // Only now may another process have it.
    drop(dir);
}

/// Waits for the next job, for ever or for so long.
fn next(waiting: &mpsc::Receiver<Job>, patience: Option<Duration>) -> Result<Job, RecvTimeoutError> {
    match patience {
        Some(patience) => waiting.recv_timeout(patience),
        None => waiting.recv().map_err(|_| RecvTimeoutError::Disconnected),
    }
}

/// The file, and who writes to it.
struct File {
    path: PathBuf,
    connection: Connection,
    /// The disk has not failed since it was opened.
    is_sound: bool,
}

impl File {
    fn commit_group(&mut self, batches: &[Batch]) -> Vec<Result<Committed, StoreError>> {
        if let Err(error) = self.make_sound() {
            tracing::warn!(%error, batches = batches.len(), "nothing was committed: the disk failed");
            return batches.iter().map(|_| Err(error.clone())).collect();
        }
        try_group(&self.connection, batches).unwrap_or_else(|error| {
            self.is_sound = !sql::is_of_the_disk(&error);
            not_committed(&self.connection, batches, &error)
        })
    }

    fn make_sound(&mut self) -> Result<(), StoreError> {
        if self.is_sound {
            return Ok(());
        }
        self.renew().map_err(|error| StoreError::Unavailable {
            hint: match &error {
                OpenError::Damaged { .. } | OpenError::Foreign { .. } => RESTORE,
                _ => "look at the disk that holds the data directory",
            },
            reason: format!("the disk failed, and {error}"),
        })
    }

    /// Writes something of which nothing comes, to see whether that is possible again.
    fn try_again(&mut self, unwritable: &Unwritable) {
        let tried = self.make_sound().and_then(|()| {
            open::touch(&self.connection).map_err(|error| {
                self.is_sound = !sql::is_of_the_disk(&error);
                sql::unavailable(&error)
            })
        });
        match tried {
            Ok(()) => unwritable.succeeded(),
            Err(StoreError::Unavailable { reason, hint }) => unwritable.failed(&reason, hint),
            Err(error) => unwritable.failed(&error.to_string(), "restart the manager"),
        }
    }

    /// The old connection goes after the new one has come: the last to go would take what failed for committed, as
    /// after a crash.
    fn renew(&mut self) -> Result<(), OpenError> {
        self.connection = open::renew(&self.path)?;
        self.is_sound = true;
        tracing::warn!(path = %self.path.display(), "the database was opened anew, and is sound");
        Ok(())
    }

    fn close(self) {
        let path = self.path.display();
        if !self.is_sound {
            return tracing::warn!(%path, "the disk failed; the store is checked at the next start");
        }
        if let Err(error) = open::close(self.connection) {
            tracing::warn!(%path, %error, "the store was not closed well; it is checked at the next start");
        }
    }
}

/// Commits the batches in one transaction: a refused batch leaves no trace and does not hurt the others;
/// an error of the database leaves none of them.
pub(super) fn commit_group(connection: &Connection, batches: &[Batch]) -> Vec<Result<Committed, StoreError>> {
    try_group(connection, batches).unwrap_or_else(|error| not_committed(connection, batches, &error))
}

fn not_committed(
    connection: &Connection,
    batches: &[Batch],
    error: &rusqlite::Error,
) -> Vec<Result<Committed, StoreError>> {
    if !connection.is_autocommit()
        && let Err(error) = connection.execute_batch("ROLLBACK")
    {
        tracing::error!(%error, "a failed transaction can't be rolled back");
    }
    tracing::warn!(%error, batches = batches.len(), "nothing was committed");
    batches.iter().map(|_| Err(sql::unavailable(error))).collect()
}

fn try_group(
    connection: &Connection,
    batches: &[Batch],
) -> rusqlite::Result<Vec<Result<Committed, StoreError>>> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let mut results = Vec::with_capacity(batches.len());
    for batch in batches {
        connection.execute_batch("SAVEPOINT batch")?;
        results.push(match sql::apply(connection, batch) {
            Ok(committed) => {
                connection.execute_batch("RELEASE batch")?;
                Ok(committed)
            }
            Err(NotApplied::Refused(error)) => {
                connection.execute_batch("ROLLBACK TO batch; RELEASE batch")?;
                Err(error)
            }
            Err(NotApplied::Failed(error)) => return Err(error),
        });
    }
    connection.execute_batch("COMMIT")?;
    Ok(results)
}

pub(super) fn gone() -> StoreError {
    StoreError::Unavailable {
        reason: "its writer has ended".to_owned(),
        hint: "restart the manager",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolwright_model::id::OperationId;
    use serde_json::value::to_raw_value;

    fn writing(id: &str, bytes: usize) -> Batch {
        let mut batch = Batch::new();
        batch.put_json("thing", id, to_raw_value(&"x".repeat(bytes)).unwrap());
        batch
    }

    fn ids(connection: &Connection) -> Vec<String> {
        let things = sql::list(connection, "thing").unwrap();
        things.into_iter().map(|document| document.unwrap().id).collect()
    }

    #[test]
    fn a_refused_batch_leaves_no_trace_and_hurts_nobody() {
        let connection = open::in_memory().unwrap();
        let mut refused = writing("b", 1);
        // The expectation is checked first, the journal last: both leave nothing behind.
        refused
            .line(&OperationId::new("op").unwrap(), 7, &"not the first")
            .unwrap();
        let results = commit_group(&connection, &[writing("a", 1), refused, writing("c", 1)]);
        assert!(results[0].is_ok() && results[2].is_ok(), "{results:?}");
        assert!(results[1].as_ref().unwrap_err().is_conflict());
        assert_eq!(ids(&connection), ["a", "c"]);
        assert_eq!(
            results[2].as_ref().unwrap().revision,
            2,
            "a refused batch takes no number"
        );
    }

    /// Fault 55: a full disk.
    #[test]
    fn a_full_disk_acknowledges_nothing_and_heals_by_itself() {
        let connection = open::in_memory().unwrap();
        let pages: i64 = connection
            .query_row("PRAGMA page_count", [], |row| row.get(0))
            .unwrap();
        let limit = |pages: i64| {
            let set = format!("PRAGMA max_page_count = {pages}");
            connection.query_row(&set, [], |_| Ok(())).unwrap();
        };
        limit(pages + 4);
        let results = commit_group(&connection, &[writing("small", 10), writing("big", 1 << 20)]);
        for result in &results {
            let error = result.as_ref().unwrap_err();
            assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
            assert!(error.to_string().contains("free some space"), "{error}");
        }
        assert!(ids(&connection).is_empty(), "reads go on, and see nothing of it");
        limit(pages + 1000);
        assert!(commit_group(&connection, &[writing("big", 1 << 20)])[0].is_ok());
        assert_eq!(ids(&connection), ["big"]);
    }

    /// Fault 55: a disk that failed. What is damaged by it is not written to.
    #[test]
    fn after_the_disk_failed_what_is_not_sound_is_not_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let opened = open::open(folder.path()).unwrap();
        let path = opened.path.clone();
        let mut file = File {
            path: opened.path,
            connection: opened.connection,
            is_sound: true,
        };
        assert!(file.commit_group(&[writing("a", 1 << 16)])[0].is_ok());
        let into_the_file = "PRAGMA wal_checkpoint(TRUNCATE)";
        file.connection.query_row(into_the_file, [], |_| Ok(())).unwrap();
        // A flush failed; and some of what was written is lost.
        file.is_sound = false;
        let whole = std::fs::read(&path).unwrap();
        let mut torn = whole.clone();
        let page = 4096;
        torn[page..].fill(0);
        std::fs::write(&path, torn).unwrap();
        let results = file.commit_group(&[writing("b", 1)]);
        let error = results[0].as_ref().unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
        assert!(error.is_damage(), "{error}");
        assert!(!file.is_sound, "it is not trusted");
        // Once it is mended it goes on, with what was acknowledged.
        std::fs::write(&path, whole).unwrap();
        assert!(file.commit_group(&[writing("b", 1)])[0].is_ok());
        assert!(file.is_sound);
        assert_eq!(ids(&file.connection), ["a", "b"]);
    }

    /// A page that stays as it was is not written, so that a full disk would take that, too.
    #[test]
    fn what_is_written_to_try_the_disk_reaches_it() {
        let folder = tempfile::tempdir().unwrap();
        let opened = open::open(folder.path()).unwrap();
        let mut log = opened.path.clone().into_os_string();
        log.push("-wal");
        let length = || std::fs::metadata(&log).unwrap().len();
        for _ in 0..2 {
            let before = length();
            open::touch(&opened.connection).unwrap();
            assert!(length() > before, "{before} bytes as before");
        }
    }

    /// Fault 55: read-only.
    #[test]
    fn a_read_only_database_acknowledges_nothing() {
        let connection = open::in_memory().unwrap();
        connection.pragma_update(None, "query_only", true).unwrap();
        let results = commit_group(&connection, &[writing("a", 1)]);
        let error = results[0].as_ref().unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
        connection.pragma_update(None, "query_only", false).unwrap();
        assert!(commit_group(&connection, &[writing("a", 1)])[0].is_ok());
    }
}
