//! Denials that are alike, counted: the first is written down at once, and how many followed within a minute is one
//! entry. Invariant: whoever is refused again and again writes no more than [`KINDS`] entries a minute in all.

use super::Record;
use super::entry::ADDRESSES;
use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

const WINDOW: Duration = Duration::from_secs(60);
/// Of so many kinds one keeps count; what comes beyond is counted as one kind.
const KINDS: usize = 256;

/// See the module.
#[derive(Default)]
pub(super) struct Denials {
    counted: Mutex<HashMap<Key, Counted>>,
}

/// What makes two denials alike: of an account, what it may not; of strangers, where they are.
type Key = (String, Option<String>, Option<(String, String)>);

struct Counted {
    since: Instant,
    /// Beyond the one that was written down.
    more: u64,
    /// Hashes of their paths, because a client chooses the length of a path.
    paths: BTreeSet<u64>,
    last: Record,
}

impl Counted {
    fn begin(now: Instant, last: Record) -> Self {
        Self {
            since: now,
            more: 0,
            paths: BTreeSet::new(),
            last,
        }
    }

    fn one_more(&mut self, record: Record) {
        self.more += 1;
        if self.addresses() < ADDRESSES {
            let mut hasher = DefaultHasher::new();
            record.on.hash(&mut hasher);
            self.paths.insert(hasher.finish());
        }
        self.last = record;
    }

    fn addresses(&self) -> u64 {
        self.paths.len() as u64
    }

    /// The entry about all denials after the first.
    fn summary(self) -> Record {
        Record {
            times: self.more,
            paths: self.addresses(),
            ..self.last
        }
    }
}

fn key(record: &Record) -> Key {
    let known = record.role.is_some();
    let what = known.then(|| (record.what.clone(), record.on.clone()));
    (record.from.clone(), record.by.clone(), what)
}

impl Denials {
    /// What is to be written down now: the first of its kind, or all that followed one within its minute.
    pub fn count(&self, record: Record, now: Instant) -> Option<Record> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = key(&record);
        if counted.len() >= KINDS && !counted.contains_key(&key) {
            key = Key::default();
        }
        match counted.get_mut(&key) {
            Some(kind) if now.duration_since(kind.since) < WINDOW => {
                kind.one_more(record);
                None
            }
            Some(kind) => {
                kind.one_more(record.clone());
                let kind = std::mem::replace(kind, Counted::begin(now, record));
                Some(kind.summary())
            }
            None => {
                counted.insert(key, Counted::begin(now, record.clone()));
                Some(record)
            }
        }
    }

    /// All that is counted and not written down yet. Counting begins anew.
    pub fn take(&self) -> Vec<Record> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let kinds = counted.drain().map(|(_, kind)| kind);
        let more = kinds.filter(|kind| kind.more > 0);
        more.map(Counted::summary).collect()
    }
}
