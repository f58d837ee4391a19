//! A value that others wait on.

use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// As `tokio::sync::watch`, but those that wait are woken in the order in which they came. `watch` wakes them in a
/// random one, and then the same operations on the same hardware would not run the same way twice.
pub(crate) struct Observed<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Default> Default for Observed<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Observed<T> {
    pub fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            changed: Notify::new(),
        }
    }

    pub fn look<R>(&self, question: impl FnOnce(&T) -> R) -> R {
        question(&self.value())
    }

    pub fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.value());
        self.changed.notify_waiters();
    }

    /// Returns once it is so.
    pub async fn until(&self, is_so: impl Fn(&T) -> bool) {
        let mut changed = pin!(self.changed.notified());
        loop {
            // In line before the look: a change right after it is not missed.
            changed.as_mut().enable();
            if self.look(&is_so) {
                return;
            }
            changed.as_mut().await;
            changed.set(self.changed.notified());
        }
    }

    fn value(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test]
    async fn those_that_wait_are_woken_in_the_order_in_which_they_came() {
        let number = Arc::new(Observed::new(0));
        let woken = Arc::new(Mutex::new(Vec::new()));
        let waits = (0..100).map(|waiter| {
            let (number, woken) = (number.clone(), woken.clone());
            tokio::spawn(async move {
                number.until(|number| *number == 2).await;
                woken.lock().unwrap().push(waiter);
            })
        });
        let waits: Vec<_> = waits.collect();
        // First all wait, then none of them is content.
        for change in [1, 2] {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            number.change(|number| *number = change);
        }
        for wait in waits {
            wait.await.unwrap();
        }
        assert_eq!(*woken.lock().unwrap(), (0..100).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn nobody_waits_for_what_is_so_already() {
        Observed::new(7).until(|number| *number == 7).await;
    }
}
