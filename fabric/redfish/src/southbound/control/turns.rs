//! Turns at what several changes rewrite: a zone's list of endpoints, a system's list of blocks.
//!
//! ETags alone keep changes apart, where a service gives them; turns spare our own changes the refusals, and
//! keep them apart where it gives none.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::OwnedMutexGuard;

/// Held while it is one's turn.
pub(crate) type Turn = OwnedMutexGuard<()>;

/// One queue for each address that somebody changes just now.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>);

impl Turns {
    /// Waits for its turn.
    pub(crate) async fn take(&self, address: &str) -> Turn {
        let queue = self.queue(address);
        queue.lock_owned().await
    }

    fn queue(&self, address: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        queues.retain(|_, queue| queue.strong_count() > 0);
        if let Some(queue) = queues.get(address).and_then(Weak::upgrade) {
            return queue;
        }
        let queue = Arc::default();
        queues.insert(address.to_owned(), Arc::downgrade(&queue));
        queue
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn one_at_a_time_and_nothing_is_left_behind() {
        let turns = Turns::default();
        let first = turns.take("/z/1").await;
        assert!(turns.take("/z/1").now_or_never().is_none());
        let other = turns.take("/z/2").now_or_never();
        assert!(other.is_some());
        drop((first, other));
        assert!(turns.take("/z/1").now_or_never().is_some());
        drop(turns.take("/z/3").await);
        assert!(turns.0.lock().unwrap().len() <= 2);
    }
}
