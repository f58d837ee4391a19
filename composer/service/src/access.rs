//! Session and lockout limits of API clients. An administrator sets them, and all managers of a store share them.

use crate::accounts::lockout;
use crate::error::{ErrorCode, ServiceError};
use jiff::SignedDuration;
use poolwright_store::{Batch, Store, StoreError, Stored, Versioned, read};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};

/// Seconds that may be set (DSP8010 has them so for sessions): a client that asks once in a while is not logged out
/// between, and nothing lasts for weeks.
pub const SECONDS: RangeInclusive<u32> = 30..=86_400;
/// Allowed lockout thresholds. Lower ones lock out users after typing errors; NIST SP 800-63B, 5.2.2 allows at most
/// 100.
pub const WRONG_PASSWORDS: RangeInclusive<u32> = 3..=100;

/// Session and lockout limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AccessRules {
    /// Idle timeout of a session.
    pub idle_s: u32,
    /// Maximum duration of a session.
    pub longest_s: u32,
    /// Consecutive wrong passwords at one account from one source before logins are delayed.
    pub wrong_passwords: u32,
    /// The longest delay.
    pub locked_s: u32,
    /// Time after the last wrong password, and the delay that followed it, until the counter resets.
    pub forgotten_s: u32,
}

impl Default for AccessRules {
    fn default() -> Self {
        Self {
            idle_s: 30 * 60,
            longest_s: 12 * 60 * 60,
            wrong_passwords: 5,
            locked_s: 15 * 60,
            forgotten_s: 15 * 60,
        }
    }
}

impl Stored for AccessRules {
    const KIND: &'static str = "access-rules";
    fn id(&self) -> &'static str {
        "clients"
    }
}

impl AccessRules {
    pub fn idle(&self) -> SignedDuration {
        SignedDuration::from_secs(self.idle_s.into())
    }

    pub fn longest(&self) -> SignedDuration {
        SignedDuration::from_secs(self.longest_s.into())
    }

    /// Lockout policy.
    pub fn lockout(&self) -> lockout::Rule {
        lockout::Rule {
            threshold: self.wrong_passwords,
            locked: SignedDuration::from_secs(self.locked_s.into()),
            forgotten: SignedDuration::from_secs(self.forgotten_s.into()),
        }
    }

    /// Refuses values out of bounds, for every caller.
    fn check(&self) -> Result<(), ServiceError> {
        let seconds = [self.idle_s, self.longest_s, self.locked_s, self.forgotten_s];
        let in_range = seconds.iter().all(|seconds| SECONDS.contains(seconds))
            && WRONG_PASSWORDS.contains(&self.wrong_passwords);
        match in_range && self.forgotten_s <= self.locked_s {
            true => Ok(()),
            false => Err(
                ServiceError::bad_request("sessions and locks can't last so long or short").with_hint(
                    "times are 30 to 86400 seconds, wrong passwords 3 to 100, and they are forgotten no later than a \
                     lock ends",
                ),
            ),
        }
    }
}

/// The rules as they were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    pub rules: AccessRules,
    revision: Option<u64>,
}

/// The rules of a store. Every request reads them, so they are cached until the next commit to the store.
pub struct Access {
    store: Arc<dyn Store>,
    /// With the store's last commit when they were read.
    last: Mutex<Option<(u64, Kept)>>,
}

impl Access {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            last: Mutex::default(),
        }
    }

    #[crate::boxed]
    pub async fn rules(&self) -> Result<AccessRules, StoreError> {
        Ok(self.kept().await?.rules)
    }

    /// The same, to be changed.
    #[crate::boxed]
    pub async fn kept(&self) -> Result<Kept, StoreError> {
        let revision = self.store.revision().await?;
        let known = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, kept)) = known
            && at == revision
        {
            return Ok(kept);
        }
        let kept = match read::<AccessRules>(self.store.as_ref(), AccessRules::default().id()).await {
            Ok(Some(Versioned { value, revision })) => Kept {
                rules: value,
                revision: Some(revision),
            },
            // Every login reads the rules, also that of the administrator who discards damaged ones.
            Ok(None) | Err(StoreError::Damaged { .. }) => Kept {
                rules: AccessRules::default(),
                revision: None,
            },
            Err(error) => return Err(error),
        };
        // The rules may be newer than `revision`. That is harmless: the next request then reloads them.
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((revision, kept));
        Ok(kept)
    }

    /// Sets others, in place of those that were read, together with what else is to be written.
    pub(crate) async fn set(
        &self,
        rules: AccessRules,
        read: &Kept,
        mut with: Batch,
    ) -> Result<(), ServiceError> {
        rules.check()?;
        if rules == read.rules {
            return Ok(());
        }
        with.expect(AccessRules::KIND, rules.id(), read.revision)
            .put(&rules)?;
        match self.store.commit(with).await {
            Ok(_) => {
                tracing::warn!(?rules, "how long sessions and locks last");
                Ok(())
            }
            Err(StoreError::Conflict { .. }) => {
                let text = "the session and lock durations were changed at the same time by another request";
                Err(ServiceError::new(ErrorCode::Stale, text)
                    .with_hint("read them again, then repeat the change"))
            }
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolwright_store::SqliteStore;

    #[tokio::test]
    async fn what_one_manager_sets_another_has_at_once_and_of_two_one_is_refused() {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().unwrap());
        let (here, there) = (Access::new(store.clone()), Access::new(store));
        let (mine, theirs) = (here.kept().await.unwrap(), there.kept().await.unwrap());
        assert_eq!(mine.rules, AccessRules::default());
        let rules = AccessRules {
            idle_s: 60,
            ..mine.rules
        };
        here.set(rules, &mine, Batch::new()).await.unwrap();
        assert_eq!(there.rules().await.unwrap(), rules);
        let late = AccessRules {
            locked_s: 3600,
            ..theirs.rules
        };
        let refused = there.set(late, &theirs, Batch::new()).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::Stale);
        assert_eq!(here.rules().await.unwrap(), rules);
    }

    #[tokio::test]
    async fn what_is_out_of_its_bounds_is_kept_by_nobody() {
        let access = Access::new(Arc::new(SqliteStore::in_memory().unwrap()));
        let kept = access.kept().await.unwrap();
        let changed: [fn(&mut AccessRules); 6] = [
            |rules| rules.idle_s = 29,
            |rules| rules.longest_s = 86_401,
            |rules| rules.wrong_passwords = 0,
            |rules| rules.wrong_passwords = 101,
            |rules| rules.locked_s = 29,
            |rules| rules.forgotten_s = rules.locked_s + 1,
        ];
        for change in changed {
            let mut rules = kept.rules;
            change(&mut rules);
            let refused = access.set(rules, &kept, Batch::new()).await.unwrap_err();
            assert_eq!(refused.code, ErrorCode::BadRequest, "{rules:?}");
        }
        assert_eq!(access.kept().await.unwrap(), kept);
    }
}
