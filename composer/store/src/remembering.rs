//! A store whose documents can be read while it does not answer: as they were read or written last.
//!
//! For a store on another machine. What is told from memory is marked by [`Store::silence`]. While it is silent one
//! at a time asks it, every few seconds; nobody else waits for it, and who would commit is refused at once, with
//! nothing sent. Invariants: nothing is committed here; the journal, open operations and events are never told from memory, so that nobody carries
//! on by what may be old. Whoever changes something by what it read commits first, and is refused.

use crate::{Batch, Committed, Damaged, Document, Event, JournalLine, Order, Original, Store, StoreError};
use async_trait::async_trait;
use poolwright_model::id::OperationId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// While it is silent it is asked again so long after it gave no answer.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// Longer than it may take to give no answer. Whoever asks may go away before.
const ASKING: Duration = Duration::from_secs(45);

/// Documents remembered that were read one by one.
const SINGLE: usize = 4096;

/// See the module.
pub struct Remembering {
    store: Arc<dyn Store>,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    silence: Option<Silence>,
    /// Commits of ours so far: a read that was overtaken by one is not kept.
    commits: u64,
    /// All documents of the kinds that were listed.
    kinds: BTreeMap<String, BTreeMap<String, Document>>,
    single: BTreeMap<(String, String), Option<Document>>,
    /// The newest of a kind, and how many were asked for.
    latest: BTreeMap<String, (usize, Vec<Document>)>,
    counts: BTreeMap<String, u64>,
    revision: Option<u64>,
    restored: Option<Option<String>>,
    cluster: Option<Option<String>>,
}

struct Silence {
    reason: String,
    hint: &'static str,
    since: Instant,
    /// Then somebody asks.
    next: Instant,
}

impl Remembering {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            memory: Mutex::default(),
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read<T>(
        &self,
        ask: impl Future<Output = Result<T, StoreError>> + Send,
        keep: impl FnOnce(&mut Memory, &T) + Send,
        recall: impl Fn(&Memory) -> Option<T> + Send,
    ) -> Result<T, StoreError> {
        let commits = {
            let mut memory = self.memory();
            if memory.is_not_to_be_asked()
                && let Some(known) = recall(&memory)
            {
                return Ok(known);
            }
            memory.commits
        };
        let answer = ask.await;
        let mut memory = self.memory();
        match answer {
            Ok(value) => {
                memory.silence = None;
                if memory.commits == commits {
                    keep(&mut memory, &value);
                }
                Ok(value)
            }
            Err(error) => {
                memory.note(&error);
                match memory.silence {
                    Some(_) => recall(&memory).ok_or(error),
                    None => Err(error),
                }
            }
        }
    }
}

impl Memory {
    /// Silent, and somebody asks, or did a moment ago. Else whoever comes now asks.
    fn is_not_to_be_asked(&mut self) -> bool {
        let Some(silence) = &mut self.silence else {
            return false;
        };
        let now = Instant::now();
        let waits = now < silence.next;
        if !waits {
            silence.next = now + ASKING;
        }
        waits
    }

    /// What an error says of the store.
    fn note(&mut self, error: &StoreError) {
        let StoreError::Unavailable { reason, hint } = error else {
            // It answered.
            self.silence = None;
            return;
        };
        let now = Instant::now();
        let since = self.silence.as_ref().map_or(now, |silence| silence.since);
        self.silence = Some(Silence {
            reason: reason.clone(),
            hint,
            since,
            next: now + ASK_AGAIN,
        });
    }

    /// What whoever would commit is told; nothing was sent.
    fn refusal(&mut self) -> Option<StoreError> {
        let waits = self.is_not_to_be_asked();
        let silence = self.silence.as_ref().filter(|_| waits)?;
        Some(StoreError::Unavailable {
            reason: silence.reason.clone(),
            hint: silence.hint,
        })
    }

    /// What a commit of ours made of what is remembered.
    fn committed(&mut self, written: &[(String, String, Option<Document>)], revision: u64) {
        self.silence = None;
        self.commits += 1;
        self.revision = self.revision.max(Some(revision));
        for (kind, id, document) in written {
            self.counts.remove(kind);
            if let Some(known) = self.kinds.get_mut(kind) {
                match document {
                    Some(document) => known.insert(id.clone(), document.clone()),
                    None => known.remove(id),
                };
            }
            if let Some(known) = self.single.get_mut(&(kind.clone(), id.clone())) {
                known.clone_from(document);
            }
            if let Some((most, known)) = self.latest.get_mut(kind) {
                known.retain(|document| document.id != *id);
                known.splice(0..0, document.clone());
                known.truncate(*most);
            }
        }
    }

    fn forget(&mut self) {
        self.kinds.clear();
        self.single.clear();
        self.latest.clear();
        self.counts.clear();
    }

    fn latest(&self, kind: &str, limit: u32) -> Option<Vec<Document>> {
        let limit = limit as usize;
        if let Some((most, known)) = self.latest.get(kind)
            && (limit <= *most || known.len() < *most)
        {
            return Some(known.iter().take(limit).cloned().collect());
        }
        let mut all: Vec<Document> = self.kinds.get(kind)?.values().cloned().collect();
        all.sort_by(|a, b| b.revision.cmp(&a.revision).then_with(|| a.id.cmp(&b.id)));
        all.truncate(limit);
        Some(all)
    }
}

#[async_trait]
impl Store for Remembering {
    async fn get(&self, kind: &str, id: &str) -> Result<Option<Document>, StoreError> {
        let key = (kind.to_owned(), id.to_owned());
        let recall = |memory: &Memory| match memory.kinds.get(kind) {
            Some(known) => Some(known.get(id).cloned()),
            None => memory.single.get(&key).cloned(),
        };
        let keep = |memory: &mut Memory, found: &Option<Document>| {
            if memory.single.len() >= SINGLE {
                memory.single.clear();
            }
            memory.single.insert(key.clone(), found.clone());
        };
        self.read(self.store.get(kind, id), keep, recall).await
    }

    async fn list(&self, kind: &str) -> Result<Vec<Document>, StoreError> {
        let recall = |memory: &Memory| Some(memory.kinds.get(kind)?.values().cloned().collect());
        let keep = |memory: &mut Memory, found: &Vec<Document>| {
            let by_id = found
                .iter()
                .map(|document| (document.id.clone(), document.clone()));
            memory.kinds.insert(kind.to_owned(), by_id.collect());
            memory.single.retain(|(of, _), _| of != kind);
        };
        self.read(self.store.list(kind), keep, recall).await
    }

    async fn written(&self, kind: &str, order: Order, limit: u32) -> Result<Vec<Document>, StoreError> {
        if order != Order::LatestFirst {
            return self.store.written(kind, order, limit).await;
        }
        let recall = |memory: &Memory| memory.latest(kind, limit);
        let keep = |memory: &mut Memory, found: &Vec<Document>| {
            let most = limit as usize;
            memory.latest.insert(kind.to_owned(), (most, found.clone()));
        };
        self.read(self.store.written(kind, order, limit), keep, recall)
            .await
    }

    async fn count(&self, kind: &str) -> Result<u64, StoreError> {
        let recall = |memory: &Memory| match memory.kinds.get(kind) {
            Some(known) => Some(known.len() as u64),
            None => memory.counts.get(kind).copied(),
        };
        let keep = |memory: &mut Memory, count: &u64| {
            memory.counts.insert(kind.to_owned(), *count);
        };
        self.read(self.store.count(kind), keep, recall).await
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        if let Some(refusal) = self.memory().refusal() {
            return Err(refusal);
        }
        let (writes, discards) = (batch.writes.clone(), !batch.discarded.is_empty());
        let answer = self.store.commit(batch).await;
        let mut memory = self.memory();
        match &answer {
            Ok(committed) => {
                if discards {
                    // Memory may have it from before it was damaged.
                    memory.forget();
                }
                let written = writes.into_iter().map(|write| {
                    let document = write.json.map(|json| Document {
                        kind: write.kind.clone(),
                        id: write.id.clone(),
                        revision: committed.revision,
                        json,
                    });
                    (write.kind, write.id, document)
                });
                memory.committed(&written.collect::<Vec<_>>(), committed.revision);
            }
            Err(error) => memory.note(error),
        }
        answer
    }

    async fn revision(&self) -> Result<u64, StoreError> {
        let keep = |memory: &mut Memory, revision: &u64| memory.revision = Some(*revision);
        self.read(self.store.revision(), keep, |memory| memory.revision)
            .await
    }

    async fn restored(&self) -> Result<Option<String>, StoreError> {
        let keep = |memory: &mut Memory, found: &Option<String>| memory.restored = Some(found.clone());
        self.read(self.store.restored(), keep, |memory| memory.restored.clone())
            .await
    }

    async fn cluster(&self) -> Result<Option<String>, StoreError> {
        let keep = |memory: &mut Memory, found: &Option<String>| memory.cluster = Some(found.clone());
        self.read(self.store.cluster(), keep, |memory| memory.cluster.clone())
            .await
    }

    fn silence(&self) -> Option<String> {
        let memory = self.memory();
        let silence = memory.silence.as_ref()?;
        let seconds = silence.since.elapsed().as_secs();
        let because = StoreError::Unavailable {
            reason: silence.reason.clone(),
            hint: silence.hint,
        };
        Some(format!("{because}; for {seconds} s now"))
    }

    fn unwritable(&self) -> Option<String> {
        self.store.unwritable()
    }

    fn damaged(&self) -> Vec<Damaged> {
        self.store.damaged()
    }

    async fn verify(&self) -> Result<Vec<Damaged>, StoreError> {
        self.store.verify().await
    }

    async fn before_flip(&self, kind: &str, id: &str) -> Result<Option<Vec<Original>>, StoreError> {
        self.store.before_flip(kind, id).await
    }

    async fn journal(&self, operation: &OperationId, after: u64) -> Result<Vec<JournalLine>, StoreError> {
        self.store.journal(operation, after).await
    }

    async fn open_operations(&self) -> Result<Vec<OperationId>, StoreError> {
        self.store.open_operations().await
    }

    async fn events_after(&self, seq: u64, limit: u32) -> Result<Vec<Event>, StoreError> {
        self.store.events_after(seq, limit).await
    }
}
