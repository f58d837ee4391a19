//! A store that tells how long its commits take.

use poolwright_store::{Batch, Committed, Layer, Store, StoreError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What was seen of commits since it was asked last.
#[derive(Debug, Default)]
pub struct Seen {
    /// How long each caller waited.
    pub commits: Vec<Duration>,
    /// In which at least one commit was under way: those that overlap count once.
    pub busy: Duration,
}

#[derive(Default)]
struct Meter {
    seen: Seen,
    under_way: usize,
    busy_since: Option<Instant>,
}

pub struct Metered {
    store: Arc<dyn Store>,
    meter: Mutex<Meter>,
}

impl Metered {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            meter: Mutex::default(),
        }
    }

    pub fn take(&self) -> Seen {
        let mut meter = self.lock();
        if let Some(since) = meter.busy_since {
            meter.seen.busy += since.elapsed();
            meter.busy_since = Some(Instant::now());
        }
        std::mem::take(&mut meter.seen)
    }

    fn begins(&self) {
        let mut meter = self.lock();
        meter.under_way += 1;
        meter.busy_since.get_or_insert_with(Instant::now);
    }

    fn ends(&self, took: Duration) {
        let mut meter = self.lock();
        meter.seen.commits.push(took);
        meter.under_way -= 1;
        if meter.under_way == 0
            && let Some(since) = meter.busy_since.take()
        {
            meter.seen.busy += since.elapsed();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Meter> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Layer for Metered {
    fn below(&self) -> &dyn Store {
        &*self.store
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        let began = Instant::now();
        self.begins();
        let committed = self.store.commit(batch).await;
        self.ends(began.elapsed());
        committed
    }
}
