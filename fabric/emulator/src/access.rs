//! Who may ask: one account, by Basic or by sessions.
//!
//! The password is kept as a salted SHA-256 and compared in constant time. That is cheap on purpose: it is
//! checked at every request of a rack of a thousand endpoints, and the password is a generated one of 128 bits.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use subtle::ConstantTimeEq;

use crate::clock::later;
use crate::subscriptions::Subscriptions;

/// The one account of a rack.
pub(crate) struct Account {
    username: String,
    salt: [u8; 16],
    hash: [u8; 32],
}

impl Account {
    pub fn new(username: &str, password: &str) -> Result<Self, getrandom::Error> {
        let mut salt = [0; 16];
        getrandom::fill(&mut salt)?;
        Ok(Self {
            username: username.to_owned(),
            salt,
            hash: hash(&salt, password.as_bytes()),
        })
    }

    fn matches(&self, username: &str, password: &str) -> bool {
        let right_name = username.as_bytes().ct_eq(self.username.as_bytes());
        let right_password = hash(&self.salt, password.as_bytes()).ct_eq(&self.hash);
        (right_name & right_password).into()
    }
}

/// 128 random bits, as text: a password or a session's token.
pub(crate) fn secret() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

fn hash(salt: &[u8], text: &[u8]) -> [u8; 32] {
    Sha256::new()
        .chain_update(salt)
        .chain_update(text)
        .finalize()
        .into()
}

/// The door of one endpoint.
pub(crate) struct Access {
    username: String,
    /// As all of the rack, until it is given a password of its own.
    account: Mutex<Arc<Account>>,
    most: usize,
    sessions: Mutex<Sessions>,
    /// Who is pushed what happens here.
    pub subscriptions: Arc<Subscriptions>,
}

struct Sessions {
    idle: Duration,
    next: u64,
    /// By the hash of the token: what is looked up is not the secret itself.
    open: BTreeMap<[u8; 32], Session>,
}

struct Session {
    id: String,
    created: Timestamp,
    used: Timestamp,
}

/// A session, as it is told.
pub(crate) struct SessionInfo {
    pub id: String,
    pub user: String,
    pub created: Timestamp,
}

/// Why nobody was let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoginError {
    Refused,
    TooMany,
    NoRandomness,
}

impl Access {
    pub fn new(account: Arc<Account>, most: usize, idle: Duration) -> Self {
        let sessions = Sessions {
            idle,
            next: 0,
            open: BTreeMap::new(),
        };
        Self {
            username: account.username.clone(),
            account: Mutex::new(account),
            most,
            sessions: Mutex::new(sessions),
            subscriptions: Arc::default(),
        }
    }

    pub fn username(&self) -> &str {
        &self.username
    }

    /// Another password, for as long as the emulator runs. Sessions stay.
    pub fn set_password(&self, password: &str) -> Result<(), getrandom::Error> {
        let account = Account::new(&self.username, password)?;
        *self.account.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(account);
        Ok(())
    }

    fn matches(&self, username: &str, password: &str) -> bool {
        let account = Arc::clone(&self.account.lock().unwrap_or_else(PoisonError::into_inner));
        account.matches(username, password)
    }

    /// Whether an `Authorization` header lets in.
    pub fn basic(&self, header: &str) -> bool {
        let Some((scheme, encoded)) = header.split_once(' ') else {
            return false;
        };
        if !scheme.eq_ignore_ascii_case("Basic") {
            return false;
        }
        let decoded = STANDARD
            .decode(encoded.trim())
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok());
        let decoded = decoded.unwrap_or_default();
        decoded
            .split_once(':')
            .is_some_and(|(username, password)| self.matches(username, password))
    }

    /// Whether an `X-Auth-Token` header lets in; the session is used by that.
    pub fn token(&self, token: &str, now: Timestamp) -> bool {
        let mut sessions = self.lock();
        sessions.expire(now);
        let session = sessions.open.get_mut(&hash(&[], token.as_bytes()));
        session.map(|session| session.used = now).is_some()
    }

    /// Opens a session: its id and its token.
    pub fn log_in(
        &self,
        username: &str,
        password: &str,
        now: Timestamp,
    ) -> Result<(String, String), LoginError> {
        if !self.matches(username, password) {
            return Err(LoginError::Refused);
        }
        let token = secret().map_err(|_| LoginError::NoRandomness)?;
        let mut sessions = self.lock();
        sessions.expire(now);
        if sessions.open.len() >= self.most {
            return Err(LoginError::TooMany);
        }
        sessions.next += 1;
        let id = sessions.next.to_string();
        let session = Session {
            id: id.clone(),
            created: now,
            used: now,
        };
        sessions.open.insert(hash(&[], token.as_bytes()), session);
        Ok((id, token))
    }

    /// Those that are open, oldest first.
    pub fn sessions(&self, now: Timestamp) -> Vec<SessionInfo> {
        let mut sessions = self.lock();
        sessions.expire(now);
        let info = |session: &Session| SessionInfo {
            id: session.id.clone(),
            user: self.username.clone(),
            created: session.created,
        };
        let mut all: Vec<SessionInfo> = sessions.open.values().map(info).collect();
        all.sort_by_key(|session| (session.id.len(), session.id.clone()));
        all
    }

    pub fn end(&self, id: &str) {
        self.lock().open.retain(|_, session| session.id != id);
    }

    pub fn end_all(&self) {
        self.lock().open.clear();
    }

    pub fn idle(&self) -> Duration {
        self.lock().idle
    }

    pub fn set_idle(&self, idle: Duration) {
        self.lock().idle = idle;
    }

    fn lock(&self) -> MutexGuard<'_, Sessions> {
        // The table is whole after every step, so a panic elsewhere does not spoil it.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sessions {
    fn expire(&mut self, now: Timestamp) {
        let idle = self.idle;
        self.open.retain(|_, session| now < later(session.used, idle));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn door(most: usize) -> (Access, String) {
        let password = secret().unwrap();
        let account = Arc::new(Account::new("admin", &password).unwrap());
        (Access::new(account, most, Duration::from_secs(60)), password)
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn basic_wants_the_right_name_and_password() {
        let (door, password) = door(4);
        let header = |text: &str| format!("Basic {}", STANDARD.encode(text));
        assert!(door.basic(&header(&format!("admin:{password}"))));
        for wrong in [
            "admin:",
            "admin",
            ":",
            "root:x",
            &format!("Admin:{password}"),
            &format!("admin:{password}x"),
        ] {
            assert!(!door.basic(&header(wrong)), "{wrong}");
        }
        for wrong in ["", "Basic", "Basic ???", &format!("Bearer {password}")] {
            assert!(!door.basic(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_session_ends_when_it_lies_idle() {
        let (door, password) = door(4);
        let (_, token) = door.log_in("admin", &password, at(0)).unwrap();
        assert!(door.token(&token, at(50)));
        assert!(door.token(&token, at(100)), "it was used in between");
        assert!(!door.token(&token, at(160)));
        assert!(!door.token("", at(0)));
    }

    #[test]
    fn there_are_only_so_many_sessions() {
        let (door, password) = door(2);
        let first = door.log_in("admin", &password, at(0)).unwrap();
        door.log_in("admin", &password, at(0)).unwrap();
        assert_eq!(door.log_in("admin", &password, at(0)), Err(LoginError::TooMany));
        door.end(&first.0);
        assert!(!door.token(&first.1, at(0)));
        door.log_in("admin", &password, at(0)).unwrap();
        assert_eq!(door.log_in("admin", "", at(0)), Err(LoginError::Refused));
    }
}
