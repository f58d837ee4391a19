//! Who may ask. Passwords are kept as argon2id hashes; no password is built in.
//!
//! Hashing is dear on purpose (about 20 ms), so a pair of name and password that was right is remembered
//! for a short while, as a keyed digest that only this process can make.

use crate::error::{ErrorCode, ServiceError};
use argon2::Argon2;
use argon2::password_hash::{PasswordHasher, PasswordVerifier, phc::PasswordHash};
use poolwright_store::{Batch, Store, StoreError, Stored, read, read_all};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// The account that the first start makes.
pub const ADMIN: &str = "admin";

/// How long a right password is remembered.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Passwords that are hashed side by side; more wait.
const HASHES_AT_ONCE: usize = 2;
/// Longer ones are refused before any work is done.
const LONGEST_PASSWORD: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Account {
    name: String,
    /// PHC string of argon2id.
    password_hash: String,
}

impl Stored for Account {
    const KIND: &'static str = "account";
    fn id(&self) -> &str {
        &self.name
    }
}

/// The accounts of this manager.
pub struct Accounts {
    store: Arc<dyn Store>,
    key: [u8; 32],
    right: Mutex<HashMap<[u8; 32], Instant>>,
    hashing: Semaphore,
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
        getrandom::fill(&mut key).map_err(no_randomness)?;
        let nobody = hash(random_password()?).await?;
        let accounts = Self {
            store,
            key,
            right: Mutex::default(),
            hashing: Semaphore::new(HASHES_AT_ONCE),
            nobody,
        };
        if read::<Account>(accounts.store.as_ref(), ADMIN).await?.is_some() {
            return Ok(accounts);
        }
        let password = random_password()?;
        let account = Account {
            name: ADMIN.into(),
            password_hash: hash(password.clone()).await?,
        };
        tell(&password)?;
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
        let password = random_password()?;
        let account = Account {
            name: ADMIN.into(),
            password_hash: hash(password.clone()).await?,
        };
        tell(&password)?;
        let mut batch = Batch::new();
        let revision = found.map(|found| found.revision);
        batch.expect(Account::KIND, ADMIN, revision).put(&account)?;
        self.store.commit(batch).await?;
        self.right.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Ok(())
    }

    /// The names of all accounts, in their order.
    pub async fn names(&self) -> Result<Vec<String>, ServiceError> {
        let accounts = read_all::<Account>(self.store.as_ref()).await?.into_iter();
        Ok(accounts.map(|found| found.value.name).collect())
    }

    /// Whether this is the account's password.
    pub async fn verify(&self, name: &str, password: &str) -> Result<bool, ServiceError> {
        if password.len() > LONGEST_PASSWORD || name.len() > LONGEST_PASSWORD {
            return Ok(false);
        }
        let digest = self.digest(name, password);
        if self.remembered(&digest) {
            return Ok(true);
        }
        let found = read::<Account>(self.store.as_ref(), name).await?;
        let known = found.is_some();
        let expected = found.map_or_else(|| self.nobody.clone(), |found| found.value.password_hash);
        let _permit = self.hashing.acquire().await.map_err(|e| internal(&e))?;
        let right = known & matches(expected, password.to_owned()).await?;
        if right {
            self.remember(digest);
        }
        Ok(right)
    }

    fn digest(&self, name: &str, password: &str) -> [u8; 32] {
        // Lengths first, so that ("ab", "c") and ("a", "bc") differ.
        let mut digest = Sha256::new();
        digest.update(self.key);
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

async fn hash(password: String) -> Result<String, ServiceError> {
    let hashed = tokio::task::spawn_blocking(move || {
        Argon2::default()
            .hash_password(password.as_bytes())
            .map(|hash| hash.to_string())
    });
    hashed.await.map_err(|e| internal(&e))?.map_err(|e| internal(&e))
}

async fn matches(hash: String, password: String) -> Result<bool, ServiceError> {
    let verified = tokio::task::spawn_blocking(move || {
        PasswordHash::new(&hash).map(|hash| {
            Argon2::default()
                .verify_password(password.as_bytes(), &hash)
                .is_ok()
        })
    });
    verified
        .await
        .map_err(|e| internal(&e))?
        .map_err(|e| internal(&e))
}

/// 24 characters of 32, without those that are mistaken for each other: 120 bits.
fn random_password() -> Result<String, ServiceError> {
    const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes).map_err(no_randomness)?;
    Ok(bytes
        .iter()
        .map(|byte| char::from(ALPHABET[usize::from(byte % 32)]))
        .collect())
}

fn no_randomness(error: getrandom::Error) -> ServiceError {
    ServiceError::new(
        ErrorCode::Internal,
        format!("the machine gives no random bytes: {error}"),
    )
}

fn internal(error: &dyn std::fmt::Display) -> ServiceError {
    ServiceError::new(
        ErrorCode::Internal,
        format!("the password can't be checked: {error}"),
    )
}
