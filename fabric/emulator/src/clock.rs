//! The time that a rack lives by: the real one behind HTTP, one moved by hand in simulations.
//!
//! Nothing in the rack ticks. Things that take time are due at an instant, and come true when the state is
//! next looked at after it; waiting for them is the caller's.

use jiff::Timestamp;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// `at` later by `by`; the end of time rather than an overflow.
pub(crate) fn later(at: Timestamp, by: Duration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// Where `now` comes from.
#[derive(Debug, Clone)]
pub enum Clock {
    /// Wall time at the start, carried on by a clock that is never set back.
    Real {
        start: Timestamp,
        since: tokio::time::Instant,
    },
    Manual(ManualClock),
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "the edge where real time comes in")]
    pub fn real() -> Self {
        Self::Real {
            start: Timestamp::now(),
            since: tokio::time::Instant::now(),
        }
    }

    pub fn now(&self) -> Timestamp {
        match self {
            Self::Real { start, since } => later(*start, since.elapsed()),
            Self::Manual(clock) => clock.now(),
        }
    }

    /// Returns when it is `until` or later.
    pub async fn sleep_until(&self, until: Timestamp) {
        match self {
            Self::Real { .. } => {
                let wait = Duration::try_from(until.duration_since(self.now())).unwrap_or_default();
                tokio::time::sleep(wait).await;
            }
            Self::Manual(clock) => clock.sleep_until(until).await,
        }
    }
}

/// A clock that stands still until it is moved. Clones show the same time.
#[derive(Debug, Clone)]
pub struct ManualClock {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    now: Timestamp,
    /// By when, then by who came first: the order in which sleepers wake does not depend on chance.
    sleepers: BTreeMap<(Timestamp, u64), Waker>,
    next: u64,
}

impl ManualClock {
    pub fn new(start: Timestamp) -> Self {
        let inner = Inner {
            now: start,
            sleepers: BTreeMap::new(),
            next: 0,
        };
        Self {
            inner: Arc::new(Mutex::new(inner)),
        }
    }

    pub fn now(&self) -> Timestamp {
        self.lock().now
    }

    pub fn advance(&self, by: Duration) {
        let to = later(self.now(), by);
        self.advance_to(to);
    }

    /// Moves on to the first instant that somebody sleeps for. False if nobody sleeps.
    pub fn advance_to_next(&self) -> bool {
        let next = self.lock().sleepers.keys().next().map(|(until, _)| *until);
        if let Some(until) = next {
            self.advance_to(until);
        }
        next.is_some()
    }

    fn advance_to(&self, to: Timestamp) {
        let mut inner = self.lock();
        inner.now = inner.now.max(to);
        let now = inner.now;
        let asleep = inner
            .sleepers
            .split_off(&(later(now, Duration::from_nanos(1)), 0));
        let awake = std::mem::replace(&mut inner.sleepers, asleep);
        drop(inner);
        awake.into_values().for_each(Waker::wake);
    }

    pub fn sleep_until(&self, until: Timestamp) -> Sleep {
        let mut inner = self.lock();
        inner.next += 1;
        let key = (until, inner.next);
        drop(inner);
        Sleep {
            clock: self.clone(),
            key,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // The guarded values are whole at every step, so a panic elsewhere does not spoil them.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for a [`ManualClock`].
#[derive(Debug)]
pub struct Sleep {
    clock: ManualClock,
    key: (Timestamp, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.clock.lock();
        if inner.now >= self.key.0 {
            inner.sleepers.remove(&self.key);
            return Poll::Ready(());
        }
        inner.sleepers.insert(self.key, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.clock.lock().sleepers.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sleepers_wake_in_the_order_of_time() {
        let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
        let woken = Arc::new(Mutex::new(Vec::new()));
        let tasks = [30, 10, 20].map(|seconds| {
            let (clock, woken) = (clock.clone(), Arc::clone(&woken));
            tokio::spawn(async move {
                clock
                    .sleep_until(later(Timestamp::UNIX_EPOCH, Duration::from_secs(seconds)))
                    .await;
                woken.lock().unwrap().push((seconds, clock.now().as_second()));
            })
        });
        for _ in 0..3 {
            tokio::task::yield_now().await;
            assert!(clock.advance_to_next());
        }
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*woken.lock().unwrap(), [(10, 10), (20, 20), (30, 30)]);
        assert!(!clock.advance_to_next(), "nobody sleeps any more");
    }

    #[tokio::test]
    async fn a_sleeper_that_gives_up_is_forgotten() {
        let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
        let mut sleep = Box::pin(clock.sleep_until(Timestamp::MAX));
        assert!(
            sleep
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
        drop(sleep);
        assert!(!clock.advance_to_next());
    }
}
