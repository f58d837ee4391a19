//! The audit log: who asked for which change and what came of it, and who was denied what.
//!
//! * [`entry`]: what an entry says, and how it is bound to the one before it. [`said`](mod@said): what of a body is kept.
//! * [`denials`]: many that are alike are one entry, so that nobody who is refused can fill the log.
//!
//! It is in the store, so that managers of one store have one log. Invariants: a change that can't be written down is not
//! begun; entries are numbered without gaps, each with the digest of the one before; what is forgotten of the past is a
//! beginning, whose last digest is kept ([`Head::before`]).

mod denials;
mod entry;
mod said;

pub use entry::{Broken, Entry, Kind, Mark, Record};
pub use said::said;

use self::denials::Denials;
use crate::clock::Clock;
use crate::error::{ErrorCode, ServiceError};
use jiff::{SignedDuration, Timestamp};
use poolwright_store::{Batch, Order, Store, StoreError, Stored, Versioned, read, written};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

/// Entries are kept for so long,
pub const KEPT: SignedDuration = SignedDuration::from_hours(365 * 24);
/// and not more than these.
pub const MOST: u64 = 100_000;
/// Entries in one commit: those that come while another commit is under way.
const AT_ONCE: usize = 64;
/// Pages that are forgotten in one commit.
const PAGES: u32 = 100;
/// How often a commit is tried that other managers come in the way of.
const TRIES: usize = 16;

/// Where the log begins and ends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Head {
    /// The last entry that is forgotten.
    pub before: Mark,
    /// The last entry that there is.
    pub last: Mark,
}

impl Stored for Head {
    const KIND: &'static str = "audit-head";
    fn id(&self) -> &'static str {
        "head"
    }
}

/// Entries that were committed together.
#[derive(Serialize, Deserialize)]
pub(crate) struct Page {
    /// The number of its first entry, with zeros before it.
    id: String,
    entries: Vec<Entry>,
}

impl Stored for Page {
    const KIND: &'static str = "audit";
    fn id(&self) -> &str {
        &self.id
    }
}

fn page_id(first: u64) -> String {
    format!("{first:016}")
}

/// A record on its way, and who waits for its number.
type Waiting = (Record, oneshot::Sender<Result<u64, ServiceError>>);

/// The log of all managers of a store.
pub struct Audit {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    waiting: Mutex<Vec<Waiting>>,
    denials: Denials,
    /// Held while something is committed: here only other managers come in the way. The head as it was committed last.
    turn: tokio::sync::Mutex<Option<Versioned<Head>>>,
}

impl Audit {
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            clock,
            waiting: Mutex::default(),
            denials: Denials::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Writes a record down, and says its number. It goes on if nobody waits for it any more.
    pub async fn note(self: &Arc<Self>, record: Record) -> Result<u64, ServiceError> {
        let (told, answer) = oneshot::channel();
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.push((record, told));
        }
        let log = self.clone();
        tokio::spawn(async move { log.write_waiting().await });
        let answer = answer.await;
        answer.unwrap_or_else(|_| {
            let text = "the manager stops, and it is not known whether this is in the audit log";
            Err(ServiceError::new(ErrorCode::Unavailable, text))
        })
    }

    /// Writes down that somebody was denied something; those that are alike are counted.
    pub async fn deny(self: &Arc<Self>, record: Record) {
        if let Some(record) = self.denials.count(record, tokio::time::Instant::now()) {
            self.note_denial(record).await;
        }
    }

    /// Writes down what was only counted so far.
    pub async fn write_denials(self: &Arc<Self>) {
        for record in self.denials.take() {
            self.note_denial(record).await;
        }
    }

    async fn note_denial(self: &Arc<Self>, record: Record) {
        tracing::warn!(
            from = record.from,
            account = record.by,
            status = record.status,
            requests = record.times,
            addresses = %record.addresses(),
            "requests denied"
        );
        if let Err(error) = self.note(record).await {
            tracing::warn!("that somebody was denied something is not in the audit log: {error}");
        }
    }

    /// Commits what waits, all of it together. Of those that are told nothing another commit has taken care.
    async fn write_waiting(&self) {
        let mut turn = self.turn.lock().await;
        let (records, tell): (Vec<Record>, Vec<_>) = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let all = waiting.len().min(AT_ONCE);
            waiting.drain(..all).unzip()
        };
        if records.is_empty() {
            return;
        }
        let first = self.append(&mut turn, &records).await;
        for (tell, at) in tell.into_iter().zip(0..) {
            // Whoever waited may be gone.
            let _ = tell.send(first.clone().map(|first| first + at));
        }
    }

    /// Commits records after all that there are; the number of the first.
    async fn append(
        &self,
        known: &mut Option<Versioned<Head>>,
        records: &[Record],
    ) -> Result<u64, ServiceError> {
        for _ in 0..TRIES {
            let before = match known.take() {
                Some(head) => Some(head),
                None => match self.stored_head().await {
                    // Another manager wrote at the same moment.
                    Err(StoreError::Conflict { .. }) => continue,
                    found => found?,
                },
            };
            let (mut head, revision) = match before {
                Some(head) => (head.value, Some(head.revision)),
                None => (Head::default(), None),
            };
            let first = head.last.seq + 1;
            let now = self.clock.now();
            let mut entries = Vec::with_capacity(records.len());
            for record in records {
                let entry = Entry::after(&head.last, now, record.clone());
                let entry =
                    entry.map_err(|error| ServiceError::new(ErrorCode::Internal, error.to_string()))?;
                head.last = entry.mark();
                entries.push(entry);
            }
            let page = Page {
                id: page_id(first),
                entries,
            };
            let mut batch = Batch::new();
            batch
                .expect(Head::KIND, head.id(), revision)
                .put(&head)?
                .put(&page)?;
            match self.store.commit(batch).await {
                Ok(committed) => {
                    *known = Some(Versioned {
                        value: head,
                        revision: committed.revision,
                    });
                    return Ok(first);
                }
                // Another manager wrote at the same moment.
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => {
                    let text = format!("it can't be written to the audit log, so it is not done: {error}");
                    return Err(ServiceError {
                        message: text,
                        ..error.into()
                    });
                }
            }
        }
        let text = "other managers write to the audit log all the time, so it is not done";
        Err(ServiceError::new(ErrorCode::Unavailable, text).with_hint("try again in a moment"))
    }

    /// Where it begins and ends.
    #[crate::boxed]
    pub async fn head(&self) -> Result<Head, ServiceError> {
        match read::<Head>(self.store.as_ref(), Head::default().id()).await {
            Err(StoreError::Damaged { .. }) => Ok(self.head_of_entries().await?),
            found => Ok(found?.map(|found| found.value).unwrap_or_default()),
        }
    }

    /// The head as it is stored. A damaged one is written again: without it no change could be written down, also not the
    /// request that discards it.
    async fn stored_head(&self) -> Result<Option<Versioned<Head>>, StoreError> {
        match read::<Head>(self.store.as_ref(), Head::default().id()).await {
            Err(StoreError::Damaged { .. }) => {}
            found => return found,
        }
        let head = self.head_of_entries().await?;
        let mut batch = Batch::new();
        batch
            .expect(Page::KIND, &page_id(head.last.seq + 1), None)
            .put(&head)?;
        let revision = self.store.commit(batch).await?.revision;
        tracing::warn!("damaged head of the audit log written again from its entries");
        Ok(Some(Versioned {
            value: head,
            revision,
        }))
    }

    /// What the entries say of the head. Of those that were forgotten they say nothing: after them the first entry counts as
    /// forgotten, too.
    async fn head_of_entries(&self) -> Result<Head, StoreError> {
        let earliest = Order::EarliestFirst { after: 0 };
        let first = written::<Page>(self.store.as_ref(), earliest, PAGES).await?;
        let last = written::<Page>(self.store.as_ref(), Order::LatestFirst, PAGES).await?;
        let first = first.first().and_then(|page| page.value.entries.first());
        let last = last.first().and_then(|page| page.value.entries.last());
        Ok(Head {
            before: first
                .filter(|entry| entry.seq > 1)
                .map(Entry::mark)
                .unwrap_or_default(),
            last: last.map(Entry::mark).unwrap_or_default(),
        })
    }

    /// Whether the entries of a page, or later ones, were forgotten.
    pub(crate) async fn has_forgotten(&self, page: &str) -> Result<bool, ServiceError> {
        let before = self.head().await?.before;
        Ok(page <= page_id(before.seq).as_str())
    }

    /// At most so many of the latest, the earliest of them first.
    #[crate::boxed]
    pub async fn latest(&self, most: u32) -> Result<Vec<Entry>, ServiceError> {
        let pages = written::<Page>(self.store.as_ref(), Order::LatestFirst, most).await?;
        let latest = pages
            .into_iter()
            .flat_map(|page| page.value.entries.into_iter().rev());
        let mut latest: Vec<Entry> = latest.take(most as usize).collect();
        latest.reverse();
        Ok(latest)
    }

    /// At most so many after a number.
    #[crate::boxed]
    pub async fn after(&self, seq: u64, most: u32) -> Result<Vec<Entry>, ServiceError> {
        let page = self.page_of(seq).await?;
        let after = page.as_ref().map_or(0, |page| page.revision);
        let order = Order::EarliestFirst { after };
        let pages = written::<Page>(self.store.as_ref(), order, most).await?;
        let entries = page.into_iter().chain(pages).flat_map(|page| page.value.entries);
        Ok(entries
            .filter(|entry| entry.seq > seq)
            .take(most as usize)
            .collect())
    }

    /// One of them.
    #[crate::boxed]
    pub async fn one(&self, seq: u64) -> Result<Option<Entry>, ServiceError> {
        let page = self.page_of(seq).await?;
        let mut entries = page.into_iter().flat_map(|page| page.value.entries);
        Ok(entries.find(|entry| entry.seq == seq))
    }

    /// The page that has an entry: it begins with that number or with one not far before it.
    async fn page_of(&self, seq: u64) -> Result<Option<Versioned<Page>>, ServiceError> {
        for first in (seq.saturating_sub(AT_ONCE as u64 - 1).max(1)..=seq).rev() {
            if let Some(page) = read::<Page>(self.store.as_ref(), &page_id(first)).await? {
                let has_it = page.value.entries.iter().any(|entry| entry.seq == seq);
                return Ok(has_it.then_some(page));
            }
        }
        Ok(None)
    }

    /// Forgets those that are old, and those that are too many: whole pages, from the first.
    #[crate::boxed]
    pub async fn prune(&self, now: Timestamp) -> Result<u64, ServiceError> {
        let mut forgotten = 0;
        loop {
            // Whoever has something to write comes between.
            let mut turn = self.turn.lock().await;
            *turn = None;
            let Some(found) = self.stored_head().await? else {
                return Ok(forgotten);
            };
            let mut head = found.value;
            let first = Order::EarliestFirst { after: 0 };
            let pages = written::<Page>(self.store.as_ref(), first, PAGES).await?;
            let mut batch = Batch::new();
            let before = head.before.seq;
            for Versioned { value: page, .. } in &pages {
                let Some(last) = page.entries.last() else { break };
                let kept = head.last.seq - head.before.seq;
                if (now.duration_since(last.at) <= KEPT && kept <= MOST) || last.seq == head.last.seq {
                    break;
                }
                head.before = last.mark();
                batch.delete(Page::KIND, &page.id);
            }
            if head.before.seq == before {
                return Ok(forgotten);
            }
            forgotten += head.before.seq - before;
            batch
                .expect(Head::KIND, head.id(), Some(found.revision))
                .put(&head)?;
            self.store.commit(batch).await?;
        }
    }
}
