//! Wrong passwords, counted: after some in a row an account is locked for a while. Each manager counts for itself, and
//! forgets it when it stops.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Lockout policy for wrong passwords.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Consecutive wrong passwords that lock an account.
    pub threshold: u32,
    /// Duration of the lock.
    pub locked: Duration,
    /// Time after the last wrong password until the counter resets.
    pub forgotten: Duration,
}

impl Default for Rule {
    fn default() -> Self {
        Self {
            threshold: 5,
            locked: Duration::from_secs(15 * 60),
            forgotten: Duration::from_secs(15 * 60),
        }
    }
}

/// Names that are counted at a time: nobody fills the memory with names that there are not.
const MOST_NAMES: usize = 10_000;

#[derive(Debug, Clone, Copy)]
struct Wrong {
    times: u32,
    last: Instant,
}

impl Wrong {
    fn locks(&self, rule: &Rule) -> bool {
        self.times >= rule.threshold && self.last.elapsed() < rule.locked
    }

    fn counts(&self, rule: &Rule) -> bool {
        self.last.elapsed() < rule.forgotten
    }
}

/// How often the password was wrong of late, by account.
#[derive(Debug, Default)]
pub(crate) struct Lockout(Mutex<HashMap<String, Wrong>>);

impl Lockout {
    /// Whether any was wrong. Where none was, nothing is locked by any rule.
    pub fn has_counted(&self, name: &str) -> bool {
        self.lock().contains_key(name)
    }

    pub fn is_locked(&self, name: &str, rule: &Rule) -> bool {
        self.lock().get(name).is_some_and(|wrong| wrong.locks(rule))
    }

    /// Counts one; whether the account is locked by it.
    pub fn wrong(&self, name: &str, rule: &Rule) -> bool {
        let now = Instant::now();
        let mut counted = self.lock();
        if counted.len() >= MOST_NAMES {
            counted.retain(|_, wrong| wrong.locks(rule) || wrong.counts(rule));
        }
        if counted.len() >= MOST_NAMES && !counted.contains_key(name) {
            return false;
        }
        let wrong = counted
            .entry(name.to_owned())
            .or_insert(Wrong { times: 0, last: now });
        if !wrong.counts(rule) {
            wrong.times = 0;
        }
        wrong.times += 1;
        wrong.last = now;
        wrong.times == rule.threshold
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
        let (lockout, rule) = (Lockout::default(), Rule::default());
        for _ in 0..4 {
            assert!(!lockout.wrong("admin", &rule));
        }
        assert!(!lockout.is_locked("admin", &rule));
        assert!(lockout.wrong("admin", &rule));
        assert!(lockout.is_locked("admin", &rule));
        assert!(!lockout.is_locked("other", &rule) && !lockout.has_counted("other"));
        tokio::time::advance(rule.locked).await;
        assert!(!lockout.is_locked("admin", &rule));
        assert!(!lockout.wrong("admin", &rule), "counting begins anew");
        assert!(!lockout.is_locked("admin", &rule));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_counted_is_judged_by_the_rule_of_the_day() {
        let lockout = Lockout::default();
        let rule = Rule {
            threshold: 3,
            locked: Duration::from_secs(600),
            forgotten: Duration::from_secs(60),
        };
        for _ in 0..2 {
            lockout.wrong("admin", &rule);
        }
        tokio::time::advance(rule.forgotten).await;
        assert!(!lockout.wrong("admin", &rule), "the first again");
        assert!(!lockout.wrong("admin", &rule) && lockout.wrong("admin", &rule));
        tokio::time::advance(rule.forgotten).await;
        assert!(
            lockout.is_locked("admin", &rule),
            "a lock lasts longer than the count"
        );
        let shorter = Rule {
            locked: rule.forgotten,
            ..rule
        };
        assert!(!lockout.is_locked("admin", &shorter));
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_there_are_not_fill_no_memory() {
        let lockout = Lockout::default();
        for name in 0..2 * MOST_NAMES {
            lockout.wrong(&name.to_string(), &Rule::default());
        }
        assert_eq!(lockout.lock().len(), MOST_NAMES);
    }
}
