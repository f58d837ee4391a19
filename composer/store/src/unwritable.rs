//! Why nothing can be written just now: from the first commit that failed until something was written.
//!
//! A full disk and one that is read-only serve every read, so that nothing but a write tells. Whoever writes notes
//! here what came of it; whether it is over the writer itself tries, after a commit and now and then.

use crate::{Committed, StoreError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where nobody writes, it is tried so often whether that is possible again.
pub(crate) const TRY_AGAIN: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
pub(crate) struct Unwritable(Mutex<Option<Failure>>);

#[derive(Debug)]
struct Failure {
    reason: String,
    hint: &'static str,
    since: Instant,
}

impl Unwritable {
    /// What came of the batches of one transaction. One that was refused for what it expects says nothing. Says whether it
    /// is to be tried now if that is possible again: one that was committed and changed nothing has written nothing.
    pub fn note(&self, results: &[Result<Committed, StoreError>]) -> bool {
        let failed = results.iter().find_map(|result| match result {
            Err(StoreError::Unavailable { reason, hint }) => Some((reason, hint)),
            _ => None,
        });
        if let Some((reason, hint)) = failed {
            self.failed(reason, hint);
            return false;
        }
        self.is_so() && results.iter().any(Result::is_ok)
    }

    pub fn failed(&self, reason: &str, hint: &'static str) {
        let mut known = self.known();
        let since = known.as_ref().map_or_else(Instant::now, |known| known.since);
        *known = Some(Failure {
            reason: reason.to_owned(),
            hint,
            since,
        });
    }

    pub fn succeeded(&self) {
        if let Some(failure) = self.known().take() {
            let seconds = failure.since.elapsed().as_secs();
            tracing::warn!(seconds, "the store can be written to again");
        }
    }

    pub fn is_so(&self) -> bool {
        self.known().is_some()
    }

    /// For people; `None` where all is well, as far as is known.
    pub fn told(&self) -> Option<String> {
        let known = self.known();
        let Failure { reason, hint, since } = known.as_ref()?;
        let seconds = since.elapsed().as_secs();
        Some(format!(
            "the store can't be written to: {reason}; {hint}; for {seconds} s now"
        ))
    }

    fn known(&self) -> MutexGuard<'_, Option<Failure>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_so_from_a_failure_until_it_was_written_to_and_a_refusal_says_nothing() {
        let unavailable = |reason: &str| {
            Err(StoreError::Unavailable {
                reason: reason.to_owned(),
                hint: "free some space",
            })
        };
        let refused = Err(StoreError::Conflict {
            kind: "thing".to_owned(),
            id: "a".to_owned(),
            expected: None,
            found: Some(1),
        });
        let committed = Ok(Committed {
            revision: 1,
            last_event: 0,
        });
        let store = Unwritable::default();
        assert!(!store.note(&[refused.clone(), committed.clone()]));
        assert_eq!(store.told(), None);
        assert!(!store.note(&[unavailable("it is full")]));
        assert!(!store.note(std::slice::from_ref(&refused)));
        let told = store.told().unwrap();
        for part in ["it is full", "free some space", "for 0 s"] {
            assert!(told.contains(part), "{told}");
        }
        assert!(store.note(&[refused, committed]), "it is tried");
        assert!(store.told().is_some(), "by itself it proves nothing");
        store.succeeded();
        assert_eq!(store.told(), None);
    }
}
