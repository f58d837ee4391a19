//! The one way in which an operation changes.
//!
//! An entry is checked against what is legal, committed with the GPUs' states and the events, and only
//! then true in memory. If the store can't be written to, nothing goes on until it can. Entries that come
//! while another is being committed are committed together (group commit): a wide plan does not pay one
//! flush of the disk for each line.
//!
//! A commit runs in a task of its own: a caller that goes away, by a panic or because its client hung up,
//! never leaves memory and store apart.
//!
//! What changes nothing outside, and would only be looked at again after a restart, need not be on the disk before
//! the next line: it is *carried*, true in memory at once, and committed with whatever is written next, or after
//! [`CARRIED`].

use crate::clock::Clock;
use crate::context::Context;
use crate::gpus::Gpus;
use crate::ledger::{Before, Entry, Halt, Ledger};
use crate::line::Noted;
use crate::log;
use crate::observed::Observed;
use crate::operation::Operation;
use crate::options::Options;
use poolwright_model::id::OperationId;
use poolwright_store::{Batch, JournalLine, Store, StoreError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tracing::Span;

/// More for the same commit; is told the operation as it will be.
pub(crate) type More = Box<dyn FnOnce(&Operation, &mut Batch) -> Result<(), StoreError> + Send>;

/// What is carried is committed after so long at the latest.
const CARRIED: Duration = Duration::from_secs(1);

/// What is true in memory already, and committed with the next entry.
#[derive(Clone)]
struct Carried {
    batch: Batch,
    lines: Vec<Noted>,
    /// The line that they follow.
    after: u64,
}

struct Queued {
    entry: Entry,
    more: Option<More>,
    answer: oneshot::Sender<Result<(), Halt>>,
}

/// The ledger, and what of it is not in the store yet.
struct Book {
    ledger: Ledger,
    carried: Option<Carried>,
}

pub(crate) struct Journal {
    id: OperationId,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    options: Options,
    /// Held while something is being committed, so that lines stay in order.
    book: Arc<tokio::sync::Mutex<Book>>,
    queue: Mutex<Vec<Queued>>,
    /// What everybody sees: the ledger's operation, and what it waits for just now.
    pub seen: Observed<Operation>,
    pub parked: Observed<bool>,
    /// The parent of the log messages about the operation.
    pub span: Span,
}

impl Journal {
    pub fn new(cx: &Context, operation: Operation, gpus: Gpus) -> Self {
        Self {
            id: operation.id.clone(),
            span: log::span(&operation),
            store: Arc::clone(&cx.store),
            clock: Arc::clone(&cx.clock),
            options: cx.options.clone(),
            seen: Observed::new(operation.clone()),
            book: Arc::new(tokio::sync::Mutex::new(Book {
                ledger: Ledger { operation, gpus },
                carried: None,
            })),
            queue: Mutex::default(),
            parked: Observed::new(false),
        }
    }

    /// Asks about the GPUs that the operation has in hand.
    pub async fn ask_gpus<T>(&self, question: impl FnOnce(&Gpus) -> T) -> T {
        question(&self.book.lock().await.ledger.gpus)
    }

    /// Writes an entry. When this returns well, it is on the disk.
    pub async fn write(self: &Arc<Self>, entry: Entry, more: Option<More>) -> Result<(), Halt> {
        let (answer, answered) = oneshot::channel();
        self.queue().push(Queued { entry, more, answer });
        let journal = Arc::clone(self);
        tokio::spawn(async move { journal.commit_queued().await });
        answered
            .await
            .unwrap_or_else(|_| Err(Halt::Broken("a commit ended without an answer".to_owned())))
    }

    /// Takes an entry that is carried: see the module. When this returns well, it is true in memory.
    pub async fn carry(self: &Arc<Self>, entry: Entry) -> Result<(), Halt> {
        let mut book = self.book.lock().await;
        let Book { ledger, carried } = &mut *book;
        if let Some(halt) = ledger.refuses(&entry, self.parked.look(|parked| *parked)) {
            return Err(halt);
        }
        let is_first = carried.is_none();
        let mut carrying = carried.clone().unwrap_or_else(|| Carried::after(ledger));
        let mut before = Before::default();
        let noted = ledger.add(entry, self.clock.now(), &mut carrying.batch, &mut before);
        match noted {
            Ok(noted) => {
                self.publish(&noted);
                carrying.lines.extend(noted);
                *carried = Some(carrying);
            }
            Err(halt) => {
                ledger.restore(before);
                return Err(halt);
            }
        }
        if is_first {
            // Not the journal itself: nothing is written for an operation that nobody here works at any more.
            let journal = Arc::downgrade(self);
            tokio::spawn(async move {
                tokio::time::sleep(CARRIED).await;
                if let Some(journal) = journal.upgrade() {
                    journal.commit_all().await;
                }
            });
        }
        Ok(())
    }

    /// Asks the store, however long it can't answer; says so in the meantime.
    pub async fn patiently<T, F>(&self, ask: impl Fn() -> F) -> Result<T, Halt>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut pauses = self.options.pauses();
        loop {
            match ask().await {
                Ok(answer) => {
                    if self.seen.look(|operation| operation.waiting_for.is_some()) {
                        self.seen.change(|operation| operation.waiting_for = None);
                    }
                    return Ok(answer);
                }
                Err(StoreError::Conflict { kind, id, .. }) => {
                    let message = format!("{kind} {id} was written by somebody else");
                    return Err(Halt::Fenced { kind, message });
                }
                Err(error @ (StoreError::Malformed { .. } | StoreError::Damaged { .. })) => {
                    return Err(Halt::broken(&error));
                }
                Err(error @ StoreError::Unavailable { .. }) => {
                    tracing::warn!(operation = %self.id, %error, "waiting for the store");
                    let waiting_for = Some(format!("the store: {error}"));
                    self.seen.change(|operation| operation.waiting_for = waiting_for);
                    self.pause(pauses.next().unwrap_or(self.options.last_pause))
                        .await?;
                }
            }
        }
    }

    async fn pause(&self, pause: Duration) -> Result<(), Halt> {
        tokio::select! {
            biased;
            () = self.parked.until(|parked| *parked) => Err(Halt::Parked),
            () = tokio::time::sleep(pause) => Ok(()),
        }
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Vec<Queued>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits whatever waits, and what is carried with it. Who comes second finds nothing to do.
    async fn commit_queued(&self) {
        let mut book = self.book.lock().await;
        loop {
            let group = self.next_group();
            if group.is_empty() {
                return;
            }
            self.commit_group(&mut book, group).await;
        }
    }

    /// The same, and what is carried also where nothing waits.
    pub async fn commit_all(&self) {
        self.commit_queued().await;
        let mut book = self.book.lock().await;
        if book.carried.is_some() {
            self.commit_group(&mut book, Vec::new()).await;
        }
    }

    /// What can be committed together: an entry with more to it is for itself, so that its conflicts are
    /// its own.
    fn next_group(&self) -> Vec<Queued> {
        let mut queue = self.queue();
        let plain = queue.iter().take_while(|queued| queued.more.is_none()).count();
        let size = plain.max(1).min(queue.len());
        queue.drain(..size).collect()
    }

    async fn commit_group(&self, book: &mut Book, group: Vec<Queued>) {
        let Book { ledger, carried } = book;
        let mut before = Before::default();
        let (mut carrying, mut answers) = (
            carried.clone().unwrap_or_else(|| Carried::after(ledger)),
            Vec::new(),
        );
        let known = carrying.lines.len();
        let mut broken = None;
        for Queued { entry, more, answer } in group {
            if let Some(halt) = ledger.refuses(&entry, self.parked.look(|parked| *parked)) {
                reply(answer, Err(halt));
                continue;
            }
            answers.push(answer);
            match self.prepare(ledger, entry, more, &mut carrying.batch, &mut before) {
                Ok(noted) => carrying.lines.extend(noted),
                Err(halt) => broken = Some(halt),
            }
        }
        if answers.is_empty() && known == 0 {
            return;
        }
        let committed = match broken {
            Some(halt) => Err(halt),
            None => self.commit(&carrying).await,
        };
        match committed {
            Ok(()) => {
                self.publish(&carrying.lines[known..]);
                *carried = None;
            }
            // What is carried goes on being so.
            Err(_) => ledger.restore(before),
        }
        for answer in answers {
            reply(answer, committed.clone());
        }
    }

    /// Commits, however long the store can't answer. A try whose answer was lost may have been committed: then
    /// the next one finds our own lines in its way.
    async fn commit(&self, Carried { batch, lines, after }: &Carried) -> Result<(), Halt> {
        let in_doubt = AtomicBool::new(false);
        self.patiently(|| async {
            let error = match self.store.commit(batch.clone()).await {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            match &error {
                StoreError::Conflict { .. } if in_doubt.load(Ordering::Relaxed) => {
                    match self.is_written(*after, lines).await? {
                        true => Ok(()),
                        false => Err(error),
                    }
                }
                StoreError::Unavailable { .. } => {
                    in_doubt.store(true, Ordering::Relaxed);
                    Err(error)
                }
                _ => Err(error),
            }
        })
        .await
    }

    /// Whether these are the lines that the journal has after line `after`.
    async fn is_written(&self, after: u64, lines: &[Noted]) -> Result<bool, StoreError> {
        let written = self.store.journal(&self.id, after).await?;
        let same = |(written, line): (&JournalLine, &Noted)| {
            serde_json::from_str::<Noted>(written.json.get()).is_ok_and(|written| written == *line)
        };
        Ok(written.len() == lines.len() && written.iter().zip(lines).all(same))
    }

    fn prepare(
        &self,
        ledger: &mut Ledger,
        entry: Entry,
        more: Option<More>,
        batch: &mut Batch,
        before: &mut Before,
    ) -> Result<Vec<Noted>, Halt> {
        let noted = ledger.add(entry, self.clock.now(), batch, before)?;
        if let Some(more) = more {
            more(&ledger.operation, batch).map_err(|e| Halt::broken(&e))?;
        }
        Ok(noted)
    }

    fn publish(&self, lines: &[Noted]) {
        self.seen.change(|operation| {
            let _entered = self.span.enter();
            for line in lines {
                // The ledger took the same lines a moment ago.
                if let Err(error) = operation.apply(line) {
                    tracing::error!(operation = %self.id, %error, "what is seen differs from the journal");
                }
                log::line(line, operation);
            }
        });
    }
}

impl Carried {
    /// Nothing yet.
    fn after(ledger: &Ledger) -> Self {
        Self {
            batch: Batch::new(),
            lines: Vec::new(),
            after: ledger.operation.seq,
        }
    }
}

fn reply(answer: oneshot::Sender<Result<(), Halt>>, result: Result<(), Halt>) {
    // Whoever asked may be gone; what is committed stays committed.
    let _ = answer.send(result);
}
