//! Who may ask, and for what. Passwords are kept as argon2id hashes; no password is built in.
//!
//! * [`role`]: the privileges of an account. [`scope`]: their extent. [`password`]: hashes and random passwords.
//! * `login`: names and passwords become principals. [`lockout`], `failures`: wrong passwords.
//!
//! Invariants: there is always an administrator who may log in. An account has an id that no other account ever has, and a
//! generation that each change of its password, role, scopes or state raises. Sessions, tokens and subscriptions of an
//! earlier generation, or of another account of the same name, are not valid.

pub(crate) mod failures;
pub mod lockout;
mod login;
pub mod password;
pub mod role;
pub mod scope;

pub use lockout::Source;
pub use login::{Login, Principal};
pub use role::{Privilege, Role};
pub use scope::{Binding, Grants, Scope};

use self::failures::Failures;
use self::lockout::AccountFailures;
use self::login::{Read, Remembered};
use crate::audit::{Audit, Kind, Record};
use crate::clock::{Clock, WallClock};
use crate::composer::{Thing, Turn, tell};
use crate::error::{ErrorCode, ServiceError};
use crate::sessions;
use poolwright_executor::{Clock as _, Key, KeyRecord};
use poolwright_store::{Batch, Store, StoreError, Stored, Versioned, read, read_all};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

/// The account that the first start makes.
pub const ADMIN: &str = "admin";

/// Passwords that are hashed side by side; more wait.
const HASHES_AT_ONCE: usize = 2;
/// Accounts that there may be.
const MOST: usize = 1_000;
/// Random bytes of an account's id, two hexadecimal digits each.
const ID_BYTES: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Account {
    name: String,
    /// Random, and never given twice. Empty in documents of earlier versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    id: String,
    /// Raised by each change that ends sessions, tokens and subscriptions.
    #[serde(default, skip_serializing_if = "is_first")]
    generation: u64,
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn is_first(generation: &u64) -> bool {
    *generation == 0
}

impl Stored for Account {
    const KIND: &'static str = "account";
    #[expect(clippy::misnamed_getters, reason = "a document's id is the account's name")]
    fn id(&self) -> &str {
        &self.name
    }
}

impl Account {
    pub(crate) fn version(&self) -> AccountVersion {
        AccountVersion {
            id: self.id.clone(),
            generation: self.generation,
        }
    }

    /// Whether sessions, tokens and subscriptions of the account before the change must end.
    fn ends_sessions(&self, before: &Self) -> bool {
        self.password_hash != before.password_hash || self.has_other_rights(before)
    }

    fn has_other_rights(&self, before: &Self) -> bool {
        (self.role, &self.bindings, self.enabled) != (before.role, &before.bindings, before.enabled)
    }
}

/// An account as it was when a session, a token or a subscription was made for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountVersion {
    pub id: String,
    pub generation: u64,
}

/// The account of this name as it is now, if it may log in.
pub(crate) async fn version_of(store: &dyn Store, name: &str) -> Result<Option<AccountVersion>, StoreError> {
    let found = read::<Account>(store, name).await?;
    let found = found.map(|found| found.value);
    let may_log_in = found.filter(|account| account.enabled && !account.id.is_empty());
    Ok(may_log_in.map(|account| account.version()))
}

/// An account, as it may be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AccountShown {
    pub name: String,
    pub role: Role,
    /// Roles that it has in a scope, beside its own.
    #[serde(default)]
    pub bindings: Vec<Binding>,
    pub enabled: bool,
    pub must_change_password: bool,
    /// Logins are delayed after wrong passwords, from some addresses or from all.
    pub locked: bool,
    /// Goes up with each change, also with one that can't be seen.
    pub revision: u64,
}

/// An account to be made.
#[derive(Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// The accounts of this manager.
pub struct Accounts {
    store: Arc<dyn Store>,
    right: Remembered,
    hashing: Semaphore,
    memory: password::Memory,
    failures: Failures,
    read: Mutex<Read>,
    /// Compared for an unknown account, so that its answer takes the same time.
    decoy_hash: String,
}

impl Accounts {
    /// Opens the accounts. Where there is no administrator yet, draws a password, has it told, and makes one.
    /// It is told before the account is made: an account whose password nobody has would lock everybody out. Where
    /// another manager made one in that very moment, it is taken back: it opens nothing.
    pub async fn open(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        tell: impl FnOnce(&str) -> Result<(), ServiceError>,
        take_back: impl FnOnce() -> Result<(), ServiceError>,
    ) -> Result<Self, ServiceError> {
        let memory = password::Memory::default();
        let decoy_hash = password::hash(password::random()?, &memory).await?;
        let accounts = Self {
            right: Remembered::new()?,
            hashing: Semaphore::new(HASHES_AT_ONCE),
            memory,
            failures: Failures::new(store.clone(), clock),
            read: Mutex::default(),
            decoy_hash,
            store,
        };
        accounts.identify().await?;
        match read::<Account>(accounts.store.as_ref(), ADMIN).await {
            Ok(None) => {}
            // No login opens a damaged one until it is renewed.
            Ok(Some(_)) | Err(StoreError::Damaged { .. }) => return Ok(accounts),
            Err(error) => return Err(error.into()),
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
        let account = first(accounts.hashed(drawn.clone()).await?)?;
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
        let found = match read::<Account>(self.store.as_ref(), ADMIN).await {
            Err(StoreError::Damaged { .. }) => None,
            found => Some(found?),
        };
        let drawn = password::random()?;
        let mut account = first(self.hashed(drawn.clone()).await?)?;
        tell(&drawn)?;
        let mut batch = Batch::new();
        if let Some(found) = found {
            batch.expect(Account::KIND, ADMIN, found.as_ref().map(|found| found.revision));
            if let Some(before) = found.map(|found| found.value) {
                account.id = before.id;
                account.generation = before.generation + 1;
                sessions::end_those_of(self.store.as_ref(), &account, None, &mut batch).await?;
            }
        }
        batch.put(&account)?;
        self.store.commit(batch).await?;
        self.failures.unlock(&account.id).await
    }

    /// All accounts, by name.
    #[crate::boxed]
    pub async fn all(&self) -> Result<Vec<AccountShown>, ServiceError> {
        let all = read_all::<Account>(self.store.as_ref()).await?;
        let delayed = self.failures.delayed().await?;
        Ok(all.iter().map(|account| shown(account, &delayed)).collect())
    }

    /// An account by its name.
    #[crate::boxed]
    pub async fn one(&self, name: &str) -> Result<Option<AccountShown>, ServiceError> {
        match self.read(name).await? {
            Some(account) => Ok(Some(shown(&account, &self.failures.delayed().await?))),
            None => Ok(None),
        }
    }

    /// Makes an account.
    #[crate::boxed]
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
            id: sessions::random::<ID_BYTES>()?,
            generation: 0,
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

    /// Changes an account. With another password, role, scope or state all its sessions end, but for one that changed its
    /// own password and nothing else. Of two concurrent changes without a revision the second applies to the result of
    /// the first.
    #[crate::boxed]
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
            let account = self.as_seen(name, None).await?.value;
            self.failures.unlock(&account.id).await?;
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
        if account.ends_sessions(&found.value) {
            account.generation += 1;
            let stays = change.session.as_deref();
            let stays = stays.filter(|_| !account.has_other_rights(&found.value));
            sessions::end_those_of(self.store.as_ref(), &account, stays, &mut batch).await?;
        }
        batch
            .expect(Account::KIND, name, Some(found.revision))
            .put(&account)?;
        tell_of(name, Turn::Changed, &mut batch)?;
        self.store.commit(batch).await?;
        Ok(())
    }

    /// Deletes an account, of the revision that was seen if there is one, and ends its sessions.
    #[crate::boxed]
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
            .delete(Account::KIND, name)
            .delete(AccountFailures::KIND, &found.value.id);
        sessions::end_those_of(self.store.as_ref(), &found.value, None, &mut batch).await?;
        self.forget_keys(name, &mut batch).await?;
        tell_of(name, Turn::Removed, &mut batch)?;
        self.store.commit(batch).await?;
        Ok(())
    }

    /// Idempotency keys are stored under the account's name: another account of that name does not get their results.
    async fn forget_keys(&self, name: &str, batch: &mut Batch) -> Result<(), ServiceError> {
        let of_account = Key::id_of(name, "");
        for record in self.store.list(KeyRecord::KIND).await? {
            if record.id.starts_with(&of_account) {
                batch.delete(KeyRecord::KIND, &record.id);
            }
        }
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
}

impl AccountShown {
    fn is_administrator(&self) -> bool {
        self.enabled && self.role == Role::Administrator
    }
}

fn shown(Versioned { value, revision }: &Versioned<Account>, delayed: &BTreeSet<String>) -> AccountShown {
    AccountShown {
        name: value.name.clone(),
        role: value.role,
        bindings: value.bindings.clone(),
        enabled: value.enabled,
        must_change_password: value.must_change_password,
        locked: delayed.contains(&value.id),
        revision: *revision,
    }
}

fn first(password_hash: String) -> Result<Account, ServiceError> {
    Ok(Account {
        name: ADMIN.into(),
        id: sessions::random::<ID_BYTES>()?,
        generation: 0,
        password_hash,
        role: Role::Administrator,
        bindings: Vec::new(),
        enabled: true,
        must_change_password: false,
    })
}

/// Forgets the failed logins at an account. For the command line, also while a manager uses the store.
#[crate::boxed]
pub async fn unlock(store: Arc<dyn Store>, name: &str) -> Result<(), ServiceError> {
    let found = read::<Account>(store.as_ref(), name).await?;
    let account = found.ok_or_else(|| ServiceError::not_found("account", name))?;
    let audit = Arc::new(Audit::new(store.clone(), Arc::new(WallClock)));
    let on = format!("account/{name}");
    let record = |kind| Record::without_request(kind, "the command line", "unlock".to_owned(), on.clone());
    audit.note(record(Kind::Began)).await?;
    Failures::new(store, Arc::new(WallClock))
        .unlock(&account.value.id)
        .await?;
    audit.note(record(Kind::Ended)).await.map(drop)
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
