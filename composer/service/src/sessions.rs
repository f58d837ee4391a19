//! Sessions of the API's clients: a token that stands for name and password for a while.
//!
//! They are kept in the store, so that one that was opened at a manager is good at every other. Of the token only a
//! digest is kept: whoever reads the store can't use it. Invariant: an account has at most [`MOST`] at a time, however
//! many managers it logs in at.

use crate::access::{Access, AccessRules, Kept};
use crate::accounts::{Account, AccountVersion, Principal};
use crate::clock::Clock;
use crate::error::{ErrorCode, ServiceError};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use poolwright_store::{Batch, Store, StoreError, Stored, Versioned, read, read_all};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// Sessions of one account at a time.
pub const MOST: usize = 64;
/// Minimum interval between two records of a session's use, so that not every request writes to the store. A tenth of
/// the idle timeout, if that is shorter.
const NOTED_EACH: SignedDuration = SignedDuration::from_mins(1);
/// How often a login is tried that others come in the way of.
const TRIES: usize = 16;
/// Random bytes of a session's name, and of the secret that follows it in a token: two hexadecimal digits each.
const ID_BYTES: usize = 12;
const SECRET_BYTES: usize = 32;

/// A session as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Its name; it opens nothing.
    pub id: String,
    pub account: String,
    pub opened: Timestamp,
    /// When it was used last, to the minute or more exactly.
    pub used: Timestamp,
    /// SHA-256 of the secret part of its token, in base64.
    digest: String,
    /// Sessions of earlier versions have none, and are over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bound_to: Option<AccountVersion>,
}

impl Session {
    fn is_over(&self, rules: &AccessRules, now: Timestamp) -> bool {
        self.bound_to.is_none()
            || now.duration_since(self.used) > rules.idle() + noted_each(rules)
            || now.duration_since(self.opened) > rules.longest()
    }

    /// Whether it was opened for this version of an account.
    pub(crate) fn is_of(&self, version: &AccountVersion) -> bool {
        self.bound_to.as_ref() == Some(version)
    }

    fn is_of_account(&self, id: &str) -> bool {
        self.bound_to.as_ref().is_some_and(|version| version.id == id)
    }
}

/// How much later than its idle timeout a session may end.
fn noted_each(rules: &AccessRules) -> SignedDuration {
    NOTED_EACH.min(rules.idle() / 10)
}

impl Stored for Session {
    const KIND: &'static str = "session";
    fn id(&self) -> &str {
        &self.id
    }
}

/// Written with each login of an account: so logins come one after another, at all managers.
#[derive(Serialize, Deserialize)]
pub(crate) struct Logins {
    account: String,
}

impl Stored for Logins {
    const KIND: &'static str = "logins";
    fn id(&self) -> &str {
        &self.account
    }
}

/// Selects the sessions of one account, or of all accounts.
#[derive(Debug, Clone, Copy)]
pub enum Whose<'a> {
    /// By the account's id.
    Account(&'a str),
    Anybody,
}

impl Whose<'_> {
    fn has(self, session: &Session) -> bool {
        match self {
            Self::Account(id) => session.is_of_account(id),
            Self::Anybody => true,
        }
    }
}

/// A session that was opened just now.
pub struct Opened {
    pub session: Session,
    /// What its client shows from now on. It is told once, and kept nowhere.
    pub token: String,
}

/// The sessions of all managers of a store.
pub struct Sessions {
    store: Arc<dyn Store>,
    access: Access,
    clock: Arc<dyn Clock>,
    /// Held while somebody logs in here: only other managers come in the way.
    login: tokio::sync::Mutex<()>,
}

impl Sessions {
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self {
            access: Access::new(store.clone()),
            store,
            clock,
            login: tokio::sync::Mutex::default(),
        }
    }

    /// How long they last.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Sets how long sessions last. Sessions that expired under the old rules stay expired.
    #[crate::boxed]
    pub async fn set_rules(&self, rules: AccessRules, read: &Kept) -> Result<(), ServiceError> {
        let mut batch = Batch::new();
        self.forget_over(&read.rules, self.clock.now(), &mut batch)
            .await?;
        self.access.set(rules, read, batch).await
    }

    /// Opens one for an account whose password was right when it was read: where the account was changed since, its
    /// password may be another one. Those that are over are forgotten meanwhile.
    #[crate::boxed]
    pub async fn open(&self, principal: &Principal) -> Result<Opened, ServiceError> {
        let _login = self.login.lock().await;
        for _ in 0..TRIES {
            match self.try_to_open(principal).await {
                // Somebody logged in elsewhere at the same moment.
                Err(NotOpened::Store(StoreError::Conflict { .. })) => {}
                Err(NotOpened::Store(error)) => return Err(error.into()),
                Err(NotOpened::Refused(error)) => return Err(error),
                Ok(opened) => return Ok(opened),
            }
        }
        let message = format!("too many log in as {} at other managers just now", principal.name);
        Err(ServiceError::new(ErrorCode::Unavailable, message).with_hint("try again in a moment"))
    }

    async fn try_to_open(&self, principal: &Principal) -> Result<Opened, NotOpened> {
        let (account, seen) = (principal.name.as_str(), principal.revision);
        let last = read::<Logins>(self.store.as_ref(), account).await?;
        let (now, rules) = (self.clock.now(), self.access.rules().await?);
        let mut batch = Batch::new();
        let is = self.store.get(Account::KIND, account).await?;
        if is.map(|is| is.revision) != Some(seen) {
            let message = format!("the account {account} was changed at this very moment");
            let refused = ServiceError::new(ErrorCode::Unavailable, message).with_hint("log in again");
            return Err(NotOpened::Refused(refused));
        }
        batch.expect(Account::KIND, account, Some(seen));
        let mut open = 0;
        for Versioned { value, .. } in read_all::<Session>(self.store.as_ref()).await? {
            match value.is_over(&rules, now) {
                true => drop(batch.delete(Session::KIND, &value.id)),
                false => open += usize::from(value.is_of_account(&principal.version.id)),
            }
        }
        if open >= MOST {
            let message = format!("{account} has {open} sessions open, and no more are allowed");
            let hint = format!(
                "end an unused session, or wait: sessions end after {} s without a request",
                rules.idle_s
            );
            let refused = ServiceError::new(ErrorCode::Unavailable, message).with_hint(hint);
            return Err(NotOpened::Refused(refused));
        }
        let (id, secret) = (random::<ID_BYTES>()?, random::<SECRET_BYTES>()?);
        let session = Session {
            id: id.clone(),
            account: account.to_owned(),
            opened: now,
            used: now,
            digest: digest(&secret),
            bound_to: Some(principal.version.clone()),
        };
        let logins = Logins {
            account: account.to_owned(),
        };
        batch
            .expect(Logins::KIND, account, last.map(|last| last.revision))
            .put(&logins)?
            .put(&session)?;
        self.store.commit(batch).await?;
        let token = format!("{id}{secret}");
        Ok(Opened { session, token })
    }

    /// Whether a session of this version of an account is still open, for checks during one long response. Counts as a
    /// use.
    #[crate::boxed]
    pub async fn goes_on(&self, version: &AccountVersion, id: &str) -> Result<bool, ServiceError> {
        let Some(Versioned { value, revision }) = read::<Session>(self.store.as_ref(), id).await? else {
            return Ok(false);
        };
        let goes_on = value.is_of(version) && self.is_used(&value, revision).await?;
        Ok(goes_on)
    }

    /// The session that a token belongs to, if it is a good one. Using it keeps it from ending. It admits no request by
    /// itself: [`Accounts::of_session`] checks that the account is as it was.
    ///
    /// [`Accounts::of_session`]: crate::accounts::Accounts::of_session
    #[crate::boxed]
    pub async fn of(&self, token: &str) -> Result<Option<Session>, ServiceError> {
        let is_one = token.len() == 2 * (ID_BYTES + SECRET_BYTES) && token.is_ascii();
        let Some((id, secret)) = is_one.then(|| token.split_at(2 * ID_BYTES)) else {
            return Ok(None);
        };
        let Some(Versioned { value, revision }) = read::<Session>(self.store.as_ref(), id).await? else {
            return Ok(None);
        };
        let right: bool = digest(secret).as_bytes().ct_eq(value.digest.as_bytes()).into();
        match right && self.is_used(&value, revision).await? {
            true => Ok(Some(value)),
            false => Ok(None),
        }
    }

    /// Notes that one is used, if it is not over.
    async fn is_used(&self, session: &Session, revision: u64) -> Result<bool, ServiceError> {
        let (now, rules) = (self.clock.now(), self.access.rules().await?);
        if session.is_over(&rules, now) {
            return Ok(false);
        }
        if now.duration_since(session.used) > noted_each(&rules) {
            self.note_use(session, revision, now).await;
        }
        Ok(true)
    }

    /// That it is used. Where that can't be written now, the next request does.
    async fn note_use(&self, session: &Session, revision: u64, now: Timestamp) {
        let used = Session {
            used: now,
            ..session.clone()
        };
        let mut batch = Batch::new();
        batch.expect(Session::KIND, &session.id, Some(revision));
        let noted = match batch.put(&used) {
            Ok(_) => self.store.commit(batch).await.map(drop),
            Err(error) => Err(error),
        };
        match noted {
            // Another request has noted it, or ended the session.
            Ok(()) | Err(StoreError::Conflict { .. }) => {}
            Err(error) => tracing::warn!(
                session = session.id,
                "that it is used is not written down: {error}"
            ),
        }
    }

    /// Those of an account, or of all, that are not over, the oldest first.
    pub async fn all(&self, whose: Whose<'_>) -> Result<Vec<Session>, ServiceError> {
        let (now, rules) = (self.clock.now(), self.access.rules().await?);
        let kept = read_all::<Session>(self.store.as_ref()).await?.into_iter();
        let kept = kept.map(|found| found.value);
        let mut open: Vec<_> = kept
            .filter(|session| whose.has(session) && !session.is_over(&rules, now))
            .collect();
        open.sort_by(|a, b| (a.opened, &a.id).cmp(&(b.opened, &b.id)));
        Ok(open)
    }

    /// An open session that `whose` selects.
    pub async fn one(&self, whose: Whose<'_>, id: &str) -> Result<Session, ServiceError> {
        let found = read::<Session>(self.store.as_ref(), id).await?;
        let found = found.map(|found| found.value);
        let (now, rules) = (self.clock.now(), self.access.rules().await?);
        let open = found.filter(|it| whose.has(it) && !it.is_over(&rules, now));
        open.ok_or_else(|| {
            ServiceError::new(ErrorCode::NotFound, format!("there is no session {id:?}")).with_hint(
                "it may have ended: GET /redfish/v1/SessionService/Sessions has those that are open",
            )
        })
    }

    /// Ends a session that `whose` selects, at all managers at once.
    pub async fn end(&self, whose: Whose<'_>, id: &str) -> Result<(), ServiceError> {
        let session = self.one(whose, id).await?;
        let mut batch = Batch::new();
        batch.delete(Session::KIND, &session.id);
        self.store.commit(batch).await?;
        Ok(())
    }

    /// Forgets those that are over; how many.
    pub(crate) async fn prune(&self, now: Timestamp) -> Result<usize, ServiceError> {
        let mut batch = Batch::new();
        let rules = self.access.rules().await?;
        let over = self.forget_over(&rules, now, &mut batch).await?;
        if over > 0 {
            self.store.commit(batch).await?;
        }
        Ok(over)
    }

    /// The same, with a commit.
    async fn forget_over(
        &self,
        rules: &AccessRules,
        now: Timestamp,
        batch: &mut Batch,
    ) -> Result<usize, ServiceError> {
        let mut over = 0;
        for found in read_all::<Session>(self.store.as_ref()).await? {
            if found.value.is_over(rules, now) {
                batch.delete(Session::KIND, &found.value.id);
                over += 1;
            }
        }
        Ok(over)
    }
}

/// Ends the sessions of an account with the commit that changes it. One may stay, and is bound to the changed account. A
/// login at the same moment refuses the commit.
pub(crate) async fn end_those_of(
    store: &dyn Store,
    account: &Account,
    stays: Option<&str>,
    batch: &mut Batch,
) -> Result<(), StoreError> {
    let (name, version) = (account.id(), account.version());
    let last = read::<Logins>(store, name).await?;
    let logins = Logins {
        account: name.to_owned(),
    };
    batch
        .expect(Logins::KIND, name, last.map(|last| last.revision))
        .put(&logins)?;
    for Versioned { value, .. } in read_all::<Session>(store).await? {
        if value.account != name {
            continue;
        }
        if stays == Some(value.id.as_str()) && value.is_of_account(&version.id) {
            let bound_to = Some(version.clone());
            batch.put(&Session { bound_to, ..value })?;
        } else {
            batch.delete(Session::KIND, &value.id);
        }
    }
    Ok(())
}

/// Why there is no session.
enum NotOpened {
    Refused(ServiceError),
    Store(StoreError),
}

impl From<StoreError> for NotOpened {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<ServiceError> for NotOpened {
    fn from(error: ServiceError) -> Self {
        Self::Refused(error)
    }
}

fn digest(secret: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(secret))
}

/// So many random bytes, in hexadecimal digits.
pub(crate) fn random<const BYTES: usize>() -> Result<String, ServiceError> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| {
        let message = format!("the machine gives no random bytes: {error}");
        ServiceError::new(ErrorCode::Internal, message)
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
