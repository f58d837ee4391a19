//! Denials that are alike, counted: the first is written down at once, and how many followed within a minute is one
//! entry. Invariant: whoever is refused again and again writes no more than [`KINDS`] entries a minute in all.

use super::Record;
use std::collections::HashMap;
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
    last: Record,
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
                (kind.more, kind.last) = (kind.more + 1, record);
                None
            }
            Some(kind) => {
                let times = kind.more + 1;
                (kind.since, kind.more, kind.last) = (now, 0, record.clone());
                Some(Record { times, ..record })
            }
            None => {
                let (more, last) = (0, record.clone());
                counted.insert(
                    key,
                    Counted {
                        since: now,
                        more,
                        last,
                    },
                );
                Some(record)
            }
        }
    }

    /// All that is counted and not written down yet. Counting begins anew.
    pub fn take(&self) -> Vec<Record> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let kinds = counted.drain().map(|(_, kind)| kind);
        let more = kinds.filter(|kind| kind.more > 0);
        more.map(|kind| Record {
            times: kind.more,
            ..kind.last
        })
        .collect()
    }
}
