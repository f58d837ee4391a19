//! Names, passwords and sessions become principals.
//!
//! Hashing is dear on purpose (about 20 ms), so a password that was right is remembered for a short while, as a keyed
//! digest that only this process can make. It is valid for the account's id and generation, and for the source that
//! showed it: guesses from elsewhere do not profit from it.

use super::lockout::{Admission, Attempt};
use super::scope::Binding;
use super::{Account, AccountVersion, Accounts, CHANGE_TRIES, ID_BYTES, Role, Source, password};
use crate::error::{ErrorCode, ServiceError};
use crate::sessions::{self, Session};
use crate::subscription::Subscription;
use jiff::Timestamp;
use poolwright_store::{Batch, StoreError, Stored as _, Versioned, read, read_all};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a right password is remembered.
const REMEMBERED: Duration = Duration::from_secs(60);

/// An account that may log in, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    pub name: String,
    /// Sessions, tokens and subscriptions are bound to it.
    pub version: AccountVersion,
    pub role: Role,
    pub bindings: Vec<Binding>,
    pub must_change_password: bool,
    pub(crate) revision: u64,
}

impl Principal {
    fn of(Versioned { value, revision }: Versioned<Account>) -> Option<Self> {
        value.enabled.then(|| Self {
            version: value.version(),
            name: value.name,
            role: value.role,
            bindings: value.bindings,
            must_change_password: value.must_change_password,
            revision,
        })
    }
}

/// The result of a login attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    Right(Principal),
    /// The name or the password is wrong, or it was not checked.
    Wrong,
    /// The password is right, and too many wrong ones came before: logins are delayed until then.
    Locked {
        account: String,
        until: Timestamp,
    },
}

impl Login {
    pub fn right(self) -> Option<Principal> {
        match self {
            Self::Right(principal) => Some(principal),
            Self::Wrong | Self::Locked { .. } => None,
        }
    }
}

/// Accounts that were read when this was the store's last commit.
#[derive(Default)]
pub(super) struct Read {
    revision: u64,
    accounts: HashMap<String, Versioned<Account>>,
}

/// Digests of passwords that were right, and until when they are remembered.
pub(super) struct Remembered {
    key: [u8; 32],
    until: Mutex<HashMap<[u8; 32], Instant>>,
}

impl Remembered {
    pub fn new() -> Result<Self, ServiceError> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(password::no_randomness)?;
        Ok(Self {
            key,
            until: Mutex::default(),
        })
    }

    fn digest(&self, version: &AccountVersion, source: Source, password: &str) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update(self.key);
        digest.update(version.generation.to_be_bytes());
        // Each but the last ends with a byte that it can't contain, so that ("ab", "c") and ("a", "bc") differ.
        for part in [version.id.clone(), source.to_string()] {
            digest.update(part);
            digest.update([0]);
        }
        digest.update(password);
        digest.finalize().into()
    }

    fn has(&self, digest: &[u8; 32]) -> bool {
        let until = self.lock();
        until.get(digest).is_some_and(|until| Instant::now() < *until)
    }

    fn put(&self, digest: [u8; 32]) {
        let now = Instant::now();
        let mut until = self.lock();
        until.retain(|_, until| now < *until);
        until.insert(digest, now + REMEMBERED);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Accounts {
    /// Checks a name and a password from a source. An attempt counts as a failure before its password is hashed, and no
    /// more than two are hashed at a time: of many at once, those beyond the threshold are refused without. A remembered
    /// password is never delayed, so guesses from the address of a client do not interrupt its work.
    #[crate::boxed]
    pub async fn verify(&self, name: &str, password: &str, from: Source) -> Result<Login, ServiceError> {
        if password.len() > password::LONGEST || name.len() > password::LONGEST {
            return Ok(Login::Wrong);
        }
        let found = self.read(name).await?;
        let attempt = Attempt::at(name, found.as_ref().map(|found| found.value.id.as_str()), from);
        let digest = found
            .as_ref()
            .map(|found| self.right.digest(&found.value.version(), from, password));
        let is_remembered = || digest.as_ref().is_some_and(|digest| self.right.has(digest));
        if is_remembered() {
            return Ok(admitted(found));
        }
        let _permit = self.hashing.acquire().await.map_err(|e| password::internal(&e))?;
        // Another request may have shown it while this one waited.
        if is_remembered() {
            return Ok(admitted(found));
        }
        let admission = self.failures.admit(&attempt).await?;
        if admission == Admission::Refused {
            return Ok(Login::Wrong);
        }
        let hash = found
            .as_ref()
            .map_or(&self.decoy_hash, |found| &found.value.password_hash);
        let is_right = password::matches(hash.clone(), password.to_owned(), &self.memory).await?;
        let (Some(found), Some(digest), true) = (found, digest, is_right) else {
            if let Admission::Counted(Some(until)) = admission {
                tracing::warn!(source = %from, %until, "logins are delayed after wrong passwords");
            }
            return Ok(Login::Wrong);
        };
        if admission == Admission::Early {
            if let Some(until) = self.failures.give_back(&attempt).await? {
                return Ok(match found.value.enabled {
                    true => Login::Locked {
                        account: found.value.name,
                        until,
                    },
                    false => Login::Wrong,
                });
            }
        } else {
            self.failures.forgive(&attempt).await?;
        }
        self.right.put(digest);
        Ok(admitted(Some(found)))
    }

    /// Whether an account has this password. For the manager itself: nothing is counted.
    #[crate::boxed]
    pub async fn has_password(&self, name: &str, password: &str) -> Result<bool, ServiceError> {
        let found = match read::<Account>(self.store.as_ref(), name).await {
            // No password opens a damaged account.
            Ok(None) | Err(StoreError::Damaged { .. }) => return Ok(false),
            Ok(Some(found)) => found,
            Err(error) => return Err(error.into()),
        };
        password::matches(found.value.password_hash, password.to_owned(), &self.memory).await
    }

    /// The account of this name, if it may log in.
    #[crate::boxed]
    pub async fn principal(&self, name: &str) -> Result<Option<Principal>, ServiceError> {
        Ok(self.read(name).await?.and_then(Principal::of))
    }

    /// The account that a session was opened for, if it is as it was then.
    #[crate::boxed]
    pub async fn of_session(&self, session: &Session) -> Result<Option<Principal>, ServiceError> {
        let found = self.principal(&session.account).await?;
        Ok(found.filter(|principal| session.is_of(&principal.version)))
    }

    /// Whether there is an account of this name.
    #[crate::boxed]
    pub async fn is_account(&self, name: &str) -> Result<bool, ServiceError> {
        Ok(self.read(name).await?.is_some())
    }

    /// An account as the store has it. Every request asks for one, and it is read anew only after something was written.
    pub(super) async fn read(&self, name: &str) -> Result<Option<Versioned<Account>>, ServiceError> {
        let revision = self.store.revision().await?;
        let known = |of: &mut Read| {
            if of.revision != revision {
                *of = Read {
                    revision,
                    accounts: HashMap::new(),
                };
            }
            of.accounts.get(name).cloned()
        };
        if let Some(account) = known(&mut self.lock_read()) {
            return Ok(Some(account));
        }
        let mut found = read::<Account>(self.store.as_ref(), name).await?;
        // A manager of an earlier version has written it.
        if found.as_ref().is_some_and(|found| found.value.id.is_empty()) {
            self.identify().await?;
            found = read::<Account>(self.store.as_ref(), name).await?;
        }
        let mut last = self.lock_read();
        // It may be newer than `revision`: that is harmless.
        if let Some(found) = &found
            && last.revision == revision
        {
            last.accounts.insert(name.to_owned(), found.clone());
        }
        Ok(found)
    }

    fn lock_read(&self) -> MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives an id to each account that an earlier version wrote, and binds the subscriptions of its name to it. Its
    /// sessions and tokens are over: they may be of an earlier account of that name.
    pub(super) async fn identify(&self) -> Result<(), ServiceError> {
        for _ in 0..CHANGE_TRIES {
            let mut batch = Batch::new();
            let mut named = HashMap::new();
            for Versioned { mut value, revision } in read_all::<Account>(self.store.as_ref()).await? {
                if value.id.is_empty() {
                    value.id = sessions::random::<ID_BYTES>()?;
                    batch
                        .expect(Account::KIND, &value.name, Some(revision))
                        .put(&value)?;
                    named.insert(value.name.clone(), value.version());
                }
            }
            if named.is_empty() {
                return Ok(());
            }
            for Versioned { mut value, revision } in read_all::<Subscription>(self.store.as_ref()).await? {
                if value.bound_to.is_none()
                    && let Some(version) = named.get(&value.account)
                {
                    value.bound_to = Some(version.clone());
                    batch
                        .expect(Subscription::KIND, &value.id, Some(revision))
                        .put(&value)?;
                }
            }
            match self.store.commit(batch).await {
                Ok(_) => return Ok(()),
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let message = "accounts change too often to give them ids";
        Err(ServiceError::new(ErrorCode::Unavailable, message).with_hint("try again in a moment"))
    }
}

fn admitted(found: Option<Versioned<Account>>) -> Login {
    found.and_then(Principal::of).map_or(Login::Wrong, Login::Right)
}
