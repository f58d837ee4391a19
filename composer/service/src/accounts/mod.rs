//! Who may ask, and for what. Passwords are kept as argon2id hashes; no password is built in.
//!
//! * [`role`]: what an account is allowed. [`scope`]: and where. [`password`]: how passwords are kept and made. [`lockout`]: wrong ones.
//!
//! Hashing is dear on purpose (about 20 ms), so a pair of name and password that was right is remembered
//! for a short while, as a keyed digest that only this process can make. It holds for the account as it was then:
//! whatever changes the account, at whichever manager, ends it.
//!
//! Invariant: there is always an administrator who may log in.

pub mod lockout;
pub mod password;
pub mod role;
pub mod scope;

pub use role::{Privilege, Role};
pub use scope::{Binding, Grants, Scope};

use self::lockout::Lockout;
use crate::access::Access;
use crate::clock::WallClock;
use crate::composer::{Thing, Turn, tell};
use crate::error::{ErrorCode, ServiceError};
use crate::sessions;
use poolwright_executor::Clock as _;
use poolwright_store::{Batch, Store, StoreError, Stored, Versioned, read, read_all};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// The account that the first start makes.
pub const ADMIN: &str = "admin";

/// How long a right password is remembered.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Passwords that are hashed side by side; more wait.
const HASHES_AT_ONCE: usize = 2;
/// Accounts that there may be.
const MOST: usize = 1_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Account {
    name: String,
    /// PHC string of argon2id.
    password_hash: String,
    #[serde(default, skip_serializing_if = "Role::is_administrator")]
    role: Role,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    bindings: Vec<Binding>,
    /// Nobody logs in to one that is not enabled.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    enabled: bool,
    /// Nothing may be done but to give it another password.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    must_change_password: bool,
}

fn yes() -> bool {
    true
}

impl Stored for Account {
    const KIND: &'static str = "account";
    fn id(&self) -> &str {
        &self.name
    }
}

/// An account, as it may be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AccountShown {
    pub name: String,
    pub role: Role,
    /// Roles that it has in a scope, beside its own.
    #[serde(default)]
    pub bindings: Vec<Binding>,
    pub enabled: bool,
    pub must_change_password: bool,
    /// After too many wrong passwords at this manager.
    pub locked: bool,
    /// Goes up with each change, also with one that can't be seen.
    pub revision: u64,
}

/// An account to be made.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAccount {
    pub name: String,
    pub password: String,
    pub role: Role,
    #[serde(default)]
    pub bindings: Vec<Binding>,
    #[serde(default = "yes")]
    pub enabled: bool,
    #[serde(default)]
    pub must_change_password: bool,
}

/// What is to be different; `None` stays.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccountChange {
    pub password: Option<String>,
    pub role: Option<Role>,
    /// All that there are to be.
    pub bindings: Option<Vec<Binding>>,
    pub enabled: Option<bool>,
    pub must_change_password: Option<bool>,
    /// Wrong passwords are forgotten.
    pub unlock: bool,
    /// The revision that this rests on: another one is left as it is.
    pub seen: Option<u64>,
    /// The session by which another password is asked for: it stays.
    #[serde(skip)]
    pub session: Option<String>,
}

/// How often a change that rests on no revision is tried that others come in the way of.
const CHANGE_TRIES: usize = 16;

/// Accounts that were read when this was the store's last commit.
#[derive(Default)]
struct Read {
    revision: u64,
    accounts: HashMap<String, Versioned<Account>>,
}

/// The accounts of this manager.
pub struct Accounts {
    store: Arc<dyn Store>,
    access: Access,
    key: [u8; 32],
    right: Mutex<HashMap<[u8; 32], Instant>>,
    hashing: Semaphore,
    memory: password::Memory,
    lockout: Lockout,
    read: Mutex<Read>,
    /// Compared with where there is no such account, so that both take the same time.
    nobody: String,
}

impl Accounts {
    /// Opens the accounts. Where there is no administrator yet, draws a password, has it told, and makes one.
    /// It is told before the account is made: an account whose password nobody has would lock everybody out. Where
    /// another manager made one in that very moment, it is taken back: it opens nothing.
    pub async fn open(
        store: Arc<dyn Store>,
        tell: impl FnOnce(&str) -> Result<(), ServiceError>,
        take_back: impl FnOnce() -> Result<(), ServiceError>,
    ) -> Result<Self, ServiceError> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(password::no_randomness)?;
        let memory = password::Memory::default();
        let nobody = password::hash(password::random()?, &memory).await?;
        let accounts = Self {
            access: Access::new(store.clone()),
            store,
            key,
            right: Mutex::default(),
            hashing: Semaphore::new(HASHES_AT_ONCE),
            memory,
            read: Mutex::default(),
            lockout: Lockout::default(),
            nobody,
        };
        if read::<Account>(accounts.store.as_ref(), ADMIN).await?.is_some() {
            return Ok(accounts);
        }
        // Another administrator has deleted that one.
        if accounts
            .all()
            .await?
            .iter()
            .any(|account| account.is_administrator())
        {
            return Ok(accounts);
        }
        let drawn = password::random()?;
        let account = first(accounts.hashed(drawn.clone()).await?);
        tell(&drawn)?;
        let mut batch = Batch::new();
        batch.expect(Account::KIND, ADMIN, None).put(&account)?;
        match accounts.store.commit(batch).await {
            Err(StoreError::Conflict { .. }) => take_back()?,
            result => drop(result?),
        }
        Ok(accounts)
    }

    /// Gives the administrator a new password, which is told before it holds: one that nobody was told would lock
    /// everybody out. The old one opens nothing from then on.
    pub async fn renew(
        &self,
        tell: impl FnOnce(&str) -> Result<(), ServiceError>,
    ) -> Result<(), ServiceError> {
        let found = read::<Account>(self.store.as_ref(), ADMIN).await?;
        let drawn = password::random()?;
        let account = first(self.hashed(drawn.clone()).await?);
        tell(&drawn)?;
        let mut batch = Batch::new();
        let revision = found.map(|found| found.revision);
        batch.expect(Account::KIND, ADMIN, revision).put(&account)?;
        self.store.commit(batch).await?;
        self.lockout.forget(ADMIN);
        Ok(())
    }

    /// All accounts, by name.
    pub async fn all(&self) -> Result<Vec<AccountShown>, ServiceError> {
        let mut all = Vec::new();
        for account in read_all::<Account>(self.store.as_ref()).await? {
            all.push(self.shown(&account).await?);
        }
        Ok(all)
    }

    /// An account by its name.
    pub async fn one(&self, name: &str) -> Result<Option<AccountShown>, ServiceError> {
        match self.read(name).await? {
            Some(account) => Ok(Some(self.shown(&account).await?)),
            None => Ok(None),
        }
    }

    async fn shown(
        &self,
        Versioned { value, revision }: &Versioned<Account>,
    ) -> Result<AccountShown, ServiceError> {
        Ok(AccountShown {
            name: value.name.clone(),
            role: value.role,
            bindings: value.bindings.clone(),
            enabled: value.enabled,
            must_change_password: value.must_change_password,
            locked: self.is_locked(&value.name).await?,
            revision: *revision,
        })
    }

    /// The rule is looked up only where a password was wrong.
    async fn is_locked(&self, name: &str) -> Result<bool, ServiceError> {
        if !self.lockout.has_counted(name) {
            return Ok(false);
        }
        let rule = self.access.rules().await?.lockout();
        Ok(self.lockout.is_locked(name, &rule))
    }

    async fn count_wrong(&self, name: &str) -> Result<(), ServiceError> {
        let rule = self.access.rules().await?.lockout();
        if self.lockout.wrong(name, &rule) {
            let seconds = rule.locked.as_secs();
            tracing::warn!(account = %name, "locked for {seconds} s after wrong passwords");
        }
        Ok(())
    }

    /// Makes an account.
    pub async fn add(&self, new: NewAccount) -> Result<AccountShown, ServiceError> {
        check_name(&new.name)?;
        password::check(&new.password, &new.name)?;
        scope::check(&new.bindings)?;
        if self.all().await?.len() >= MOST {
            let text = format!("there are {MOST} accounts, and no more are kept");
            return Err(
                ServiceError::new(ErrorCode::Conflict, text).with_hint("delete one that is not needed")
            );
        }
        let account = Account {
            password_hash: self.hashed(new.password).await?,
            name: new.name,
            role: new.role,
            bindings: in_order(new.bindings),
            enabled: new.enabled,
            must_change_password: new.must_change_password,
        };
        let mut batch = Batch::new();
        batch.expect(Account::KIND, &account.name, None).put(&account)?;
        tell_of(&account.name, Turn::Added, &mut batch)?;
        match self.store.commit(batch).await {
            Err(StoreError::Conflict { .. }) => {
                let text = format!("there is an account {} already", account.name);
                Err(ServiceError::new(ErrorCode::Conflict, text)
                    .with_hint("change that one, or take another name"))
            }
            Err(error) => Err(error.into()),
            Ok(_) => self.found(&account.name).await,
        }
    }

    /// Changes an account. With another password all its sessions end, but for the one that asks for it. Of two at once that rest on no revision
    /// the second is made of what the first has left; neither is lost.
    pub async fn change(&self, name: &str, mut change: AccountChange) -> Result<AccountShown, ServiceError> {
        self.as_seen(name, change.seen).await?;
        let hash = match change.password.take() {
            Some(new) => {
                password::check(&new, name)?;
                self.is_another(name, &new).await?;
                Some(self.hashed(new).await?)
            }
            None => None,
        };
        let mut tries = 1;
        loop {
            match self.changed_once(name, &change, hash.as_ref()).await {
                // A login at the same moment, too, makes a commit stale; a change of the account itself stays one.
                Err(error) if error.code == ErrorCode::Stale && tries < CHANGE_TRIES => tries += 1,
                Err(error) => return Err(error),
                Ok(()) => break,
            }
        }
        if change.unlock {
            self.lockout.forget(name);
        }
        self.found(name).await
    }

    /// Refuses the current password as the new one while the account must change its password.
    async fn is_another(&self, name: &str, password: &str) -> Result<(), ServiceError> {
        let found = read::<Account>(self.store.as_ref(), name).await?;
        let Some(account) = found
            .map(|found| found.value)
            .filter(|it| it.must_change_password)
        else {
            return Ok(());
        };
        let _permit = self.hashing.acquire().await.map_err(|e| password::internal(&e))?;
        match password::matches(account.password_hash, password.to_owned(), &self.memory).await? {
            false => Ok(()),
            true => Err(
                ServiceError::bad_request(format!("{name} has this password already"))
                    .with_hint("it must be given another one"),
            ),
        }
    }

    /// One try, with the password's hash.
    async fn changed_once(
        &self,
        name: &str,
        change: &AccountChange,
        hash: Option<&String>,
    ) -> Result<(), ServiceError> {
        let found = self.as_seen(name, change.seen).await?;
        let mut account = found.value.clone();
        if let Some(hash) = hash {
            account.password_hash.clone_from(hash);
            account.must_change_password = false;
        }
        account.role = change.role.unwrap_or(account.role);
        if let Some(bindings) = &change.bindings {
            scope::check(bindings)?;
            account.bindings = in_order(bindings.clone());
        }
        account.enabled = change.enabled.unwrap_or(account.enabled);
        account.must_change_password = change
            .must_change_password
            .unwrap_or(account.must_change_password);
        if account == found.value {
            return Ok(());
        }
        let mut batch = Batch::new();
        self.one_stays(name, Some(&account), &mut batch).await?;
        batch
            .expect(Account::KIND, name, Some(found.revision))
            .put(&account)?;
        if hash.is_some() {
            sessions::end_those_of(self.store.as_ref(), name, change.session.as_deref(), &mut batch).await?;
        }
        tell_of(name, Turn::Changed, &mut batch)?;
        self.store.commit(batch).await?;
        Ok(())
    }

    /// An account as the store has it. Every request asks for one, and it is read anew only after something was written.
    async fn read(&self, name: &str) -> Result<Option<Versioned<Account>>, ServiceError> {
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
        let found = read::<Account>(self.store.as_ref(), name).await?;
        let mut last = self.lock_read();
        // What is newer than it says is as good.
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

    /// Deletes an account, of the revision that was seen if there is one, and ends its sessions.
    pub async fn remove(&self, name: &str, seen: Option<u64>) -> Result<(), ServiceError> {
        let mut tries = 1;
        loop {
            match self.removed_once(name, seen).await {
                Err(error) if error.code == ErrorCode::Stale && tries < CHANGE_TRIES => tries += 1,
                done => return done,
            }
        }
    }

    async fn removed_once(&self, name: &str, seen: Option<u64>) -> Result<(), ServiceError> {
        let found = self.as_seen(name, seen).await?;
        let mut batch = Batch::new();
        self.one_stays(name, None, &mut batch).await?;
        batch
            .expect(Account::KIND, name, Some(found.revision))
            .delete(Account::KIND, name);
        sessions::end_those_of(self.store.as_ref(), name, None, &mut batch).await?;
        tell_of(name, Turn::Removed, &mut batch)?;
        self.store.commit(batch).await?;
        Ok(())
    }

    async fn as_seen(&self, name: &str, seen: Option<u64>) -> Result<Versioned<Account>, ServiceError> {
        let found = read::<Account>(self.store.as_ref(), name).await?;
        let found = found.ok_or_else(|| ServiceError::not_found("account", name))?;
        if seen.is_none_or(|seen| seen == found.revision) {
            return Ok(found);
        }
        let text = format!("the account {name} was changed meanwhile");
        Err(ServiceError::new(ErrorCode::Stale, text).with_hint("read it again, then repeat the change"))
    }

    /// Somebody must be left who can undo it: the batch holds only while that one stays as it is.
    async fn one_stays(
        &self,
        name: &str,
        becomes: Option<&Account>,
        batch: &mut Batch,
    ) -> Result<(), ServiceError> {
        let is_one = |account: &Account| account.enabled && account.role == Role::Administrator;
        if becomes.is_some_and(is_one) {
            return Ok(());
        }
        let all = self.all().await?;
        let mut others = all.iter().filter(|other| other.name != name);
        if let Some(other) = others.find(|other| other.is_administrator()) {
            batch.expect(Account::KIND, &other.name, Some(other.revision));
            return Ok(());
        }
        let text = format!("{name} is the last administrator who may log in");
        Err(ServiceError::new(ErrorCode::Conflict, text).with_hint("make another one first"))
    }

    async fn found(&self, name: &str) -> Result<AccountShown, ServiceError> {
        let found = self.one(name).await?;
        found.ok_or_else(|| ServiceError::not_found("account", name))
    }

    async fn hashed(&self, password: String) -> Result<String, ServiceError> {
        let _permit = self.hashing.acquire().await.map_err(|e| password::internal(&e))?;
        password::hash(password, &self.memory).await
    }

    /// The account, if this is its password, it may log in, and it is not locked.
    pub async fn verify(&self, name: &str, password: &str) -> Result<Option<AccountShown>, ServiceError> {
        if password.len() > password::LONGEST
            || name.len() > password::LONGEST
            || self.is_locked(name).await?
        {
            return Ok(None);
        }
        let found = self.read(name).await?;
        let digest = self.digest(name, password, found.as_ref().map_or(0, |found| found.revision));
        if !self.remembered(&digest) {
            let hash = found
                .as_ref()
                .map_or(&self.nobody, |found| &found.value.password_hash);
            let _permit = self.hashing.acquire().await.map_err(|e| password::internal(&e))?;
            // Somebody may have asked with it while we waited.
            let right = self.remembered(&digest)
                || password::matches(hash.clone(), password.to_owned(), &self.memory).await?;
            if found.is_none() || !right {
                self.count_wrong(name).await?;
                return Ok(None);
            }
            self.remember(digest);
        }
        self.lockout.forget(name);
        match found {
            Some(found) if found.value.enabled => Ok(Some(self.shown(&found).await?)),
            _ => Ok(None),
        }
    }

    fn digest(&self, name: &str, password: &str, revision: u64) -> [u8; 32] {
        // Lengths first, so that ("ab", "c") and ("a", "bc") differ.
        let mut digest = Sha256::new();
        digest.update(self.key);
        digest.update(revision.to_be_bytes());
        digest.update((name.len() as u64).to_be_bytes());
        digest.update(name);
        digest.update(password);
        digest.finalize().into()
    }

    fn remembered(&self, digest: &[u8; 32]) -> bool {
        let right = self.right.lock().unwrap_or_else(PoisonError::into_inner);
        right.get(digest).is_some_and(|until| Instant::now() < *until)
    }

    fn remember(&self, digest: [u8; 32]) {
        let now = Instant::now();
        let mut right = self.right.lock().unwrap_or_else(PoisonError::into_inner);
        right.retain(|_, until| now < *until);
        right.insert(digest, now + REMEMBERED);
    }
}

impl AccountShown {
    fn is_administrator(&self) -> bool {
        self.enabled && self.role == Role::Administrator
    }
}

fn first(password_hash: String) -> Account {
    Account {
        name: ADMIN.into(),
        password_hash,
        role: Role::Administrator,
        bindings: Vec::new(),
        enabled: true,
        must_change_password: false,
    }
}

/// Tells whoever listens what became of an account.
fn tell_of(name: &str, became: Turn, batch: &mut Batch) -> Result<(), StoreError> {
    tell(batch, WallClock.now(), Thing::Account(name.to_owned()), became)
}

/// Said twice, or in another order, they are the same.
fn in_order(bindings: Vec<Binding>) -> Vec<Binding> {
    let set: BTreeSet<Binding> = bindings.into_iter().collect();
    set.into_iter().collect()
}

/// A name stands in addresses, logs and headers.
fn check_name(name: &str) -> Result<(), ServiceError> {
    const LONGEST: usize = 63;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if !name.is_empty() && name.len() <= LONGEST && name.chars().all(plain) && !name.starts_with(['.', '-']) {
        return Ok(());
    }
    let hint =
        "a name has 1 to 63 letters, digits, dots, dashes and underscores, and begins with none of . and -";
    Err(ServiceError::bad_request(format!("{name:?} can't be the name of an account")).with_hint(hint))
}
