//! Failed logins, counted in the store before a password is hashed: all managers share the counters, and they survive a
//! restart. A refused attempt costs no hash, and while its source is delayed no commit.

use super::lockout::{AccountFailures, Admission, Attempt, Met, SourceFailures};
use crate::access::Access;
use crate::clock::Clock;
use crate::error::{ErrorCode, ServiceError};
use jiff::Timestamp;
use poolwright_store::{Batch, Store, StoreError, Stored, Versioned, read, read_all};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How often a change is tried while others change the same document.
const TRIES: usize = 64;

/// Counters of attempts that came while the store took no writes. They apply at this manager, as long as that lasts.
#[derive(Debug, Default)]
struct InMemory {
    pages: HashMap<String, SourceFailures>,
    accounts: HashMap<String, AccountFailures>,
}

impl InMemory {
    fn knows(&self, attempt: &Attempt) -> bool {
        let of_account = |id: &String| self.accounts.contains_key(id);
        self.pages.contains_key(&attempt.page) || attempt.account.as_ref().is_some_and(of_account)
    }

    fn forget(&mut self, attempt: &Attempt) {
        self.pages.remove(&attempt.page);
        if let Some(id) = &attempt.account {
            self.accounts.remove(id);
        }
    }
}

/// The counters of a store.
pub(crate) struct Failures {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// One policy for all counters: by a shorter one the others would be forgotten too early.
    access: Access,
    in_memory: Mutex<InMemory>,
}

impl Failures {
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self {
            access: Access::new(store.clone()),
            store,
            clock,
            in_memory: Mutex::default(),
        }
    }

    /// Counts an attempt before its password is checked.
    pub async fn admit(&self, attempt: &Attempt) -> Result<Admission, ServiceError> {
        let rule = self.access.rules().await?.lockout();
        self.change(attempt, |met, now| met.admit(attempt, &rule, now))
            .await
    }

    /// The password of a counted attempt was right.
    pub async fn forgive(&self, attempt: &Attempt) -> Result<(), ServiceError> {
        self.change(attempt, |met, _| met.forgive(attempt)).await
    }

    /// The password of an early attempt was right. Returns the end of the delay.
    pub async fn give_back(&self, attempt: &Attempt) -> Result<Option<Timestamp>, ServiceError> {
        let rule = self.access.rules().await?.lockout();
        self.change(attempt, |met, now| met.give_back(attempt, &rule, now))
            .await
    }

    /// The ids of the accounts at which logins are delayed, from some sources or from all.
    pub async fn delayed(&self) -> Result<BTreeSet<String>, ServiceError> {
        let (rule, now) = (self.access.rules().await?.lockout(), self.clock.now());
        let pages = read_all::<SourceFailures>(self.store.as_ref()).await?;
        let accounts = read_all::<AccountFailures>(self.store.as_ref()).await?;
        let names = pages.into_iter().flat_map(|page| page.value.delayed(&rule, now));
        let accounts = accounts.into_iter().map(|account| account.value);
        let delayed = accounts.filter(|account| account.is_delayed(&rule, now));
        Ok(names.chain(delayed.map(|account| account.account)).collect())
    }

    /// Forgets all failures at an account, and ends the delays of all sources.
    pub async fn unlock(&self, account: &str) -> Result<(), ServiceError> {
        let mut tries = 1;
        loop {
            match self.unlocked_once(account).await {
                Err(StoreError::Conflict { .. }) if tries < TRIES => tries += 1,
                Err(error) => return Err(error.into()),
                Ok(()) => return Ok(()),
            }
        }
    }

    async fn unlocked_once(&self, account: &str) -> Result<(), StoreError> {
        let mut batch = Batch::new();
        for Versioned { mut value, revision } in read_all::<SourceFailures>(self.store.as_ref()).await? {
            value.unlock(account);
            batch.expect(SourceFailures::KIND, &value.page, Some(revision));
            write(&mut batch, &value, value.is_empty())?;
        }
        batch.delete(AccountFailures::KIND, account);
        self.store.commit(batch).await?;
        Ok(())
    }

    /// Changes the counters of an attempt. After a conflict it changes the counters that were committed meanwhile.
    async fn change<T>(
        &self,
        attempt: &Attempt,
        act: impl Fn(&mut Met, Timestamp) -> T,
    ) -> Result<T, ServiceError> {
        for _ in 0..TRIES {
            match self.changed_once(attempt, &act).await {
                Ok((done, is_committed)) => {
                    if is_committed {
                        self.in_memory().forget(attempt);
                    } else if self.in_memory().knows(attempt) {
                        return Ok(self.changed_in_memory(attempt, act));
                    }
                    return Ok(done);
                }
                Err(StoreError::Conflict { .. }) => {}
                // An administrator must be able to log in on a full disk, and guesses must stay delayed.
                Err(error) => {
                    tracing::debug!(%error, "failed logins are counted in memory");
                    return Ok(self.changed_in_memory(attempt, act));
                }
            }
        }
        let message = "too many log in from the same address at once";
        Err(ServiceError::new(ErrorCode::Unavailable, message).with_hint("try again in a moment"))
    }

    /// Whether anything was committed: nothing where the counters stay as they are.
    async fn changed_once<T>(
        &self,
        attempt: &Attempt,
        act: impl Fn(&mut Met, Timestamp) -> T,
    ) -> Result<(T, bool), StoreError> {
        let (page, of_page) = apart(read::<SourceFailures>(self.store.as_ref(), &attempt.page).await?);
        let (account, of_account) = match &attempt.account {
            Some(id) => apart(read::<AccountFailures>(self.store.as_ref(), id).await?),
            None => (None, None),
        };
        let before = Met::of(attempt, page, account);
        let mut met = before.clone();
        let done = act(&mut met, self.clock.now());
        if met == before {
            return Ok((done, false));
        }
        let mut batch = Batch::new();
        batch.expect(SourceFailures::KIND, &met.page.page, of_page);
        write(&mut batch, &met.page, met.page.is_empty())?;
        if let Some(account) = &met.account {
            batch.expect(AccountFailures::KIND, &account.account, of_account);
            write(&mut batch, account, account.is_empty())?;
        }
        self.store.commit(batch).await?;
        Ok((done, true))
    }

    fn in_memory(&self) -> MutexGuard<'_, InMemory> {
        self.in_memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed_in_memory<T>(&self, attempt: &Attempt, act: impl Fn(&mut Met, Timestamp) -> T) -> T {
        let mut kept = self.in_memory();
        let account = attempt.account.as_ref().and_then(|id| kept.accounts.remove(id));
        let mut met = Met::of(attempt, kept.pages.remove(&attempt.page), account);
        let done = act(&mut met, self.clock.now());
        kept.pages.insert(attempt.page.clone(), met.page);
        if let Some(account) = met.account {
            kept.accounts.insert(account.account.clone(), account);
        }
        done
    }
}

fn apart<T>(found: Option<Versioned<T>>) -> (Option<T>, Option<u64>) {
    found.map(|found| (found.value, found.revision)).unzip()
}

/// Writes a document, or deletes one without failures.
fn write<T: Stored>(batch: &mut Batch, value: &T, is_empty: bool) -> Result<(), StoreError> {
    match is_empty {
        true => drop(batch.delete(T::KIND, value.id())),
        false => drop(batch.put(value)?),
    }
    Ok(())
}
