//! The pool's snapshot as it is sent: written once, and sent again as it is for as long as it is the same.
//!
//! Looks come by the second, and as a rule find nothing new: then the time of the look is all that is written anew.
//! Invariant: what is sent is, byte for byte, the snapshot with that time.

use super::Sent;
use axum::body::Bytes;
use poolwright_service::{LastLook, Snapshot};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The last one that was asked for.
#[derive(Clone, Default)]
pub(crate) struct WrittenSnapshot(Arc<Mutex<Option<Written>>>);

#[derive(Clone)]
struct Written {
    /// Which snapshot it is. It is not kept alive: nobody has a use for an old one.
    of: Weak<Snapshot>,
    /// All but the time, which comes first.
    rest: Bytes,
}

impl WrittenSnapshot {
    pub fn of(&self, last: &LastLook) -> serde_json::Result<Sent<Snapshot>> {
        let head = format!("{{\"taken_at\":{}", serde_json::to_string(&last.taken_at)?);
        Ok(Sent {
            parts: [head.into(), self.rest(&last.snapshot)?],
            of: PhantomData,
        })
    }

    fn rest(&self, snapshot: &Arc<Snapshot>) -> serde_json::Result<Bytes> {
        let kept = self.lock().clone();
        // What somebody still points at, be it weakly, has its address to itself.
        if let Some(kept) = kept.filter(|kept| kept.of.as_ptr() == Arc::as_ptr(snapshot)) {
            return Ok(kept.rest);
        }
        // Side by side it may be written twice.
        let all = Bytes::from(serde_json::to_vec(&**snapshot)?);
        let rest = all.slice(end_of_time(&all)..);
        *self.lock() = Some(Written {
            of: Arc::downgrade(snapshot),
            rest: rest.clone(),
        });
        Ok(rest)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Written>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the time ends: in it there is no comma, and behind it one.
fn end_of_time(snapshot: &[u8]) -> usize {
    let comma = snapshot.iter().position(|byte| *byte == b',');
    comma.unwrap_or(snapshot.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn snapshot(gpus: u64) -> Arc<Snapshot> {
        let snapshot = json!({
            "taken_at": "2026-01-01T00:00:00.25Z", "gpus": [], "hosts": [], "fabrics": [], "faults": [],
            "requests": gpus, "elapsed_ms": 0,
        });
        Arc::new(serde_json::from_value(snapshot).unwrap())
    }

    /// What is sent of a look, and the part of it that is kept.
    fn sent(by: &WrittenSnapshot, snapshot: &Arc<Snapshot>, taken_at: &str) -> (Vec<u8>, Bytes) {
        let last = LastLook {
            snapshot: snapshot.clone(),
            taken_at: taken_at.parse().unwrap(),
        };
        let [head, rest] = by.of(&last).unwrap().parts;
        ([&head[..], &rest[..]].concat(), rest)
    }

    #[test]
    fn a_snapshot_is_written_once_and_its_time_with_each_look() {
        let written = WrittenSnapshot::default();
        let first = snapshot(1);
        let mut kept: Option<Bytes> = None;
        for taken_at in ["2026-01-01T00:00:00.25Z", "2026-01-01T00:00:02Z"] {
            let (all, rest) = sent(&written, &first, taken_at);
            let anew = Snapshot {
                taken_at: taken_at.parse().unwrap(),
                ..Snapshot::clone(&first)
            };
            assert_eq!(all, serde_json::to_vec(&anew).unwrap());
            let again = kept.replace(rest.clone());
            assert!(
                again.is_none_or(|again| again.as_ptr() == rest.as_ptr()),
                "written again"
            );
        }
        let next = snapshot(2);
        let (all, _) = sent(&written, &next, "2026-01-01T00:00:03Z");
        assert_eq!(serde_json::from_slice::<Snapshot>(&all).unwrap().requests, 2);
    }

    #[test]
    fn a_snapshot_that_is_changed_where_it_lies_is_written_anew() {
        let written = WrittenSnapshot::default();
        let mut shown = snapshot(1);
        sent(&written, &shown, "2026-01-01T00:00:00Z");
        assert_eq!(Arc::strong_count(&shown), 1, "nobody else keeps it");
        Arc::make_mut(&mut shown).requests = 7;
        let (all, _) = sent(&written, &shown, "2026-01-01T00:00:00Z");
        assert_eq!(serde_json::from_slice::<Snapshot>(&all).unwrap().requests, 7);
    }
}
