//! Who is pushed what happens at one service. They last as long as the emulator runs.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// So many at one service at most.
pub(crate) const MOST: usize = 8;

#[derive(Debug, Clone)]
pub(crate) struct Subscription {
    pub id: u64,
    pub destination: String,
    pub context: String,
}

#[derive(Debug, Default)]
pub(crate) struct Subscriptions(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    last: u64,
    all: Vec<Subscription>,
}

impl Subscriptions {
    /// Oldest first.
    pub fn all(&self) -> Vec<Subscription> {
        self.lock().all.clone()
    }

    /// Its number; `None` where there are enough.
    pub fn add(&self, destination: &str, context: &str) -> Option<u64> {
        let mut kept = self.lock();
        if kept.all.len() >= MOST {
            return None;
        }
        kept.last += 1;
        let id = kept.last;
        kept.all.push(Subscription {
            id,
            destination: destination.to_owned(),
            context: context.to_owned(),
        });
        Some(id)
    }

    pub fn remove(&self, id: u64) {
        self.lock().all.retain(|one| one.id != id);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // The list is whole after every step, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
