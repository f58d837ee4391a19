//! Wrong passwords, counted: after some in a row an account is locked for a while. Each manager counts for itself, and
//! forgets it when it stops.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Wrong passwords in a row after which an account is locked.
pub const THRESHOLD: u32 = 5;
/// How long it is locked, and after how long without a wrong one counting begins anew.
pub const LOCKED: Duration = Duration::from_secs(15 * 60);
/// Names that are counted at a time: nobody fills the memory with names that there are not.
const MOST_NAMES: usize = 10_000;

#[derive(Debug, Clone, Copy)]
struct Wrong {
    times: u32,
    last: Instant,
}

/// How often the password was wrong of late, by account.
#[derive(Debug, Default)]
pub(crate) struct Lockout(Mutex<HashMap<String, Wrong>>);

impl Lockout {
    pub fn is_locked(&self, name: &str) -> bool {
        let counted = self.lock().get(name).copied();
        counted.is_some_and(|wrong| wrong.times >= THRESHOLD && wrong.last.elapsed() < LOCKED)
    }

    /// Counts one; whether the account is locked by it.
    pub fn wrong(&self, name: &str) -> bool {
        let now = Instant::now();
        let mut counted = self.lock();
        if counted.len() >= MOST_NAMES {
            counted.retain(|_, wrong| now - wrong.last < LOCKED);
        }
        if counted.len() >= MOST_NAMES && !counted.contains_key(name) {
            return false;
        }
        let wrong = counted
            .entry(name.to_owned())
            .or_insert(Wrong { times: 0, last: now });
        if now - wrong.last >= LOCKED {
            wrong.times = 0;
        }
        wrong.times += 1;
        wrong.last = now;
        wrong.times == THRESHOLD
    }

    pub fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Wrong>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn five_in_a_row_lock_an_account_for_a_quarter_of_an_hour() {
        let lockout = Lockout::default();
        for _ in 0..4 {
            assert!(!lockout.wrong("admin"));
        }
        assert!(!lockout.is_locked("admin"));
        assert!(lockout.wrong("admin"));
        assert!(lockout.is_locked("admin"));
        assert!(!lockout.is_locked("other"));
        tokio::time::advance(LOCKED).await;
        assert!(!lockout.is_locked("admin"));
        assert!(!lockout.wrong("admin"), "counting begins anew");
        assert!(!lockout.is_locked("admin"));
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_there_are_not_fill_no_memory() {
        let lockout = Lockout::default();
        for name in 0..2 * MOST_NAMES {
            lockout.wrong(&name.to_string());
        }
        assert_eq!(lockout.lock().len(), MOST_NAMES);
    }
}
