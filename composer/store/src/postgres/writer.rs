//! The one task that writes. It takes all batches that wait, applies each in a savepoint of its own, and
//! commits them together: one flush for all (group commit). A caller is answered only after that flush.
//!
//! When the connection breaks while a commit is under way, nobody knows whether it happened. The
//! transaction's number was noted before, so the server is asked what became of it, for as long as it
//! takes; until then nothing else is written, and who comes new is told to come back. A transaction has that number
//! at one server in one of its lives only: a standby that was promoted may not have it, or have given its number to
//! another one. Where such a one answers nobody knows, and whoever waits is told so.

use super::connect::Connections;
use super::sql::{self, NotApplied, numbered};
use crate::data_dir::DataDir;
use crate::format::{self, FORMAT};
use crate::statements::LAST_REVISION;
use crate::{Batch, Committed, StoreError};
use deadpool_postgres::{Client, GenericClient, PoolError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::error::SqlState;

/// Batches in one commit, so that no caller waits for an endless one.
const GROUP: usize = 256;
/// How long a group may take.
const WRITE: Duration = Duration::from_secs(30);
/// How long the server is given to tell what became of a commit, before it is asked again.
const LOOK_UP: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(2);

type Answer = Result<Committed, StoreError>;

/// A batch, and who waits for it.
struct Job {
    batch: Batch,
    answer: oneshot::Sender<Answer>,
}

/// The way to the task. When dropped, what was handed over is still committed.
pub(super) struct Writer {
    jobs: mpsc::UnboundedSender<Job>,
}

impl Writer {
    /// `dir`: where the last commit is written down, for a manager.
    pub fn start(connections: Arc<Connections>, dir: Option<DataDir>, cluster: String) -> Self {
        let (jobs, waiting) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let last = run(&connections, waiting, dir.as_ref(), &cluster).await;
            if let Some(dir) = dir.filter(|_| last > 0) {
                dir.note(&cluster, last);
            }
        });
        Self { jobs }
    }

    pub async fn commit(&self, batch: Batch) -> Answer {
        let (answer, answered) = oneshot::channel();
        if self.jobs.send(Job { batch, answer }).is_err() {
            return Err(gone());
        }
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}

fn gone() -> StoreError {
    StoreError::Unavailable {
        reason: "its writer has ended".to_owned(),
        hint: "restart the manager",
    }
}

/// Until nobody can ask any more. Tells the number of the last commit.
async fn run(
    connections: &Connections,
    mut waiting: mpsc::UnboundedReceiver<Job>,
    dir: Option<&DataDir>,
    cluster: &str,
) -> u64 {
    let mut last = 0;
    let mut kept: Option<Connected> = None;
    let mut group = Vec::new();
    while waiting.recv_many(&mut group, GROUP).await > 0 {
        let (batches, answers): (Vec<_>, Vec<_>) = group.drain(..).map(|job| (job.batch, job.answer)).unzip();
        let results = match commit_group(connections, &mut kept, &batches, last).await {
            Ok(results) => results,
            Err(NotCommitted::Certainly(error)) => repeated(&error, batches.len()),
            Err(NotCommitted::Perhaps { sent, results }) => {
                match became(connections, &sent, &mut waiting).await {
                    Became::Committed => results,
                    Became::Aborted => repeated(&interrupted(), batches.len()),
                    Became::Unknown => repeated(&another_server(), batches.len()),
                }
            }
        };
        let committed = results.iter().flatten().map(|committed| committed.revision);
        if let Some(newest) = committed.max() {
            last = newest;
            // A few bytes, and once in a thousand commits a small file: not worth a thread of its own.
            if let Some(dir) = dir {
                dir.saw(cluster, last);
            }
        }
        for (result, answer) in results.into_iter().zip(answers) {
            // Whoever asked may have gone away; what is committed stays committed.
            let _ = answer.send(result);
        }
    }
    last
}

fn repeated(error: &StoreError, times: usize) -> Vec<Answer> {
    tracing::warn!(%error, batches = times, "not committed, as far as is known");
    std::iter::repeat_with(|| Err(error.clone()))
        .take(times)
        .collect()
}

fn went_back(stood: u64, last: u64) -> StoreError {
    StoreError::Unavailable {
        reason: format!(
            "the database was restored to an earlier state while this manager ran: its last commit is number {stood}, and this manager wrote number {last}"
        ),
        hint: "restart the manager: it changes nothing until you have accepted that",
    }
}

fn taken_over() -> StoreError {
    StoreError::Unavailable {
        reason: "a newer Poolwright has taken the database over, and keeps documents there that this one would damage"
            .to_owned(),
        hint: "stop this manager and start it again with the version that the others have",
    }
}

fn interrupted() -> StoreError {
    StoreError::Unavailable {
        reason: "the database dropped the connection before it committed".to_owned(),
        hint: "look at whether the database is up and can be reached; it is tried again",
    }
}

fn another_server() -> StoreError {
    StoreError::Unavailable {
        reason: "another database server answers than the one that a commit was sent to: nobody knows whether it was \
                 committed"
            .to_owned(),
        hint: "look whether it was done before you ask again; let the standby of the database be a synchronous one",
    }
}

/// A connection, and what it leads to.
struct Connected {
    client: Client,
    server: Option<String>,
}

/// A commit that was sent.
struct Sent {
    /// The transaction's number.
    transaction: String,
    /// Where it has that number.
    server: Option<String>,
}

/// Why a group has no answers yet.
enum NotCommitted {
    Certainly(StoreError),
    /// The answer to the commit was lost. `results` hold if it happened.
    Perhaps {
        sent: Sent,
        results: Vec<Answer>,
    },
}

/// Commits the batches in one transaction: a refused batch leaves no trace and does not hurt the others.
/// A connection that failed is thrown away.
async fn commit_group(
    connections: &Connections,
    kept: &mut Option<Connected>,
    batches: &[Batch],
    last: u64,
) -> Result<Vec<Answer>, NotCommitted> {
    let Connected { client, server } = match kept.take() {
        Some(kept) if !kept.client.is_closed() => kept,
        _ => connected(connections).await.map_err(NotCommitted::Certainly)?,
    };
    let applied = match tokio::time::timeout(WRITE, apply_group(&client, batches)).await {
        Ok(Ok(applied)) => applied,
        Ok(Err(error)) => {
            throw_away(client);
            return Err(NotCommitted::Certainly(sql::unavailable(&PoolError::Backend(
                error,
            ))));
        }
        Err(_) => {
            throw_away(client);
            return Err(NotCommitted::Certainly(sql::silent(WRITE)));
        }
    };
    let Applied {
        stood,
        transaction,
        is_newer,
        results,
    } = applied;
    if is_newer {
        throw_away(client);
        return Err(NotCommitted::Certainly(taken_over()));
    }
    if stood < last {
        // What we wrote is gone: nothing may be done by what is there, and nothing written on top of it.
        throw_away(client);
        return Err(NotCommitted::Certainly(went_back(stood, last)));
    }
    match tokio::time::timeout(WRITE, client.batch_execute("COMMIT")).await {
        Ok(Ok(())) => {
            *kept = Some(Connected { client, server });
            Ok(results)
        }
        // However it failed: whether the server did it is for the server to say.
        _ => {
            throw_away(client);
            let sent = Sent { transaction, server };
            Err(NotCommitted::Perhaps { sent, results })
        }
    }
}

async fn connected(connections: &Connections) -> Result<Connected, StoreError> {
    let client = connections
        .get()
        .await
        .map_err(|error| sql::unavailable(&error))?;
    match tokio::time::timeout(LOOK_UP, server(&client)).await {
        Ok(Ok(server)) => Ok(Connected { client, server }),
        Ok(Err(error)) => {
            throw_away(client);
            Err(sql::unavailable(&error))
        }
        Err(_) => {
            throw_away(client);
            Err(sql::silent(LOOK_UP))
        }
    }
}

/// A connection in an unknown state must not be used again: closing it rolls back what was not committed.
fn throw_away(client: Client) {
    drop(Client::take(client));
}

/// A group that lacks its commit.
struct Applied {
    /// The number of the last commit before it.
    stood: u64,
    /// The transaction's number.
    transaction: String,
    /// A newer Poolwright has taken the database over: nothing was applied.
    is_newer: bool,
    /// They hold once it is committed.
    results: Vec<Answer>,
}

/// All but the commit.
async fn apply_group(client: &Client, batches: &[Batch]) -> Result<Applied, tokio_postgres::Error> {
    client.batch_execute("BEGIN").await?;
    // From here on we are alone among all managers.
    let lock = client
        .prepare_cached(&format!("{LAST_REVISION} FOR UPDATE"))
        .await?;
    let stood = client
        .query_one(&lock, &[])
        .await?
        .get::<_, i64>(0)
        .unsigned_abs();
    let number = client
        .prepare_cached(&format!(
            "SELECT pg_current_xact_id()::text, (SELECT value FROM marker WHERE name = '{FORMAT}')"
        ))
        .await?;
    let row = client.query_one(&number, &[]).await?;
    let (transaction, format): (String, Option<String>) = (row.get(0), row.get(1));
    let is_newer = format::is_newer(format.as_deref());
    if is_newer {
        // It is rolled back with the connection.
        return Ok(Applied {
            stood,
            transaction,
            is_newer,
            results: Vec::new(),
        });
    }
    let mut results = Vec::with_capacity(batches.len());
    for batch in batches {
        client.batch_execute("SAVEPOINT batch").await?;
        results.push(match sql::apply(client, batch).await {
            Ok(committed) => {
                client.batch_execute("RELEASE batch").await?;
                Ok(committed)
            }
            Err(NotApplied::Refused(error)) => {
                client.batch_execute("ROLLBACK TO batch; RELEASE batch").await?;
                Err(error)
            }
            Err(NotApplied::Failed(error)) => return Err(error),
        });
    }
    Ok(Applied {
        stood,
        transaction,
        is_newer,
        results,
    })
}

/// What became of a transaction whose answer was lost.
enum Became {
    Committed,
    Aborted,
    /// It is not for the server that answers now to say.
    Unknown,
}

/// Asked until the server knows.
async fn became(
    connections: &Connections,
    sent: &Sent,
    waiting: &mut mpsc::UnboundedReceiver<Job>,
) -> Became {
    let mut pause = FIRST_PAUSE;
    loop {
        match tokio::time::timeout(LOOK_UP, status(connections, sent)).await {
            Ok(Ok(Some(became))) => return became,
            Ok(Ok(None)) => tracing::warn!(sent.transaction, "a commit goes on still"),
            Ok(Err(error)) => {
                tracing::warn!(sent.transaction, %error, "a commit's outcome is not known yet");
            }
            Err(_) => tracing::warn!(sent.transaction, "a commit's outcome is not told in time"),
        }
        refuse_while(pause, waiting).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

/// Answers whoever comes new, so that nobody waits for somebody else's outcome.
async fn refuse_while(pause: Duration, waiting: &mut mpsc::UnboundedReceiver<Job>) {
    let end = tokio::time::Instant::now() + pause;
    while let Ok(Some(job)) = tokio::time::timeout_at(end, waiting.recv()).await {
        let _ = job.answer.send(Err(interrupted()));
    }
    tokio::time::sleep_until(end).await;
}

/// `None`: not yet.
async fn status(connections: &Connections, sent: &Sent) -> Result<Option<Became>, PoolError> {
    let client = connections.get().await?;
    if sent.server.is_none() || server(&client).await? != sent.server {
        return Ok(Some(Became::Unknown));
    }
    let text = numbered("SELECT pg_xact_status(?1::text::xid8)");
    let status: Option<String> = client.query_one(&text, &[&sent.transaction]).await?.get(0);
    Ok(match status.as_deref() {
        Some("committed") => Some(Became::Committed),
        Some("aborted") => Some(Became::Aborted),
        _ => None,
    })
}

/// Which server it is, and which of its lives: it begins another one (a timeline) when it is promoted or restored.
/// `None` where it does not tell.
async fn server(client: &Client) -> Result<Option<String>, PoolError> {
    const SERVER: &str = "SELECT system_identifier::text || '/' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) \
                          FROM pg_control_system()";
    match client.query_one(SERVER, &[]).await {
        Ok(row) => Ok(Some(row.get(0))),
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
