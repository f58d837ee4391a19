//! The gate that every request passes: it puts the credentials on, keeps one session for all, opens it again once
//! when it has lapsed, and shuts for good before refused credentials can lock the account.
//!
//! As long as the credentials have not been accepted, requests pass one at a time: a wrong password costs at most
//! [`Limits::refusals`](super::Limits) tries, however many requests wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base64::Engine as _;
use bytes::Bytes;
use http::header::LOCATION;
use http::{HeaderValue, Method, StatusCode};
use serde::Serialize;
use tokio::sync::{Mutex, MutexGuard};

use super::auth::Secret;
use super::deadline::Deadline;
use super::document::Annotations;
use super::error::{Error, ErrorKind, NotSent, Refusal, Result, Unreadable};
use super::exchange::{Credential, Reply, Request, Wire};
use super::path::Place;
use super::refusals::Refusals;
use super::{Auth, Renewal};

pub(crate) struct Gate {
    auth: Auth,
    /// The collection that sessions are created in.
    sessions: Place,
    /// Whether the service says that it has it. Where it doesn't, a refusal there says nothing of sessions.
    advertised: bool,
    /// The service root is read without credentials.
    root_is_open: bool,
    held: Mutex<Option<Arc<Held>>>,
    /// How many sessions were opened so far.
    opened: AtomicU64,
    /// A session was asked for, and the service has none.
    only_basic: AtomicBool,
    /// They may be good no more, so they are not tried again.
    no_more: AtomicBool,
    /// The credentials were accepted, and have not been refused since.
    accepted: AtomicBool,
    refusals: Refusals,
    limit: u32,
}

/// Where sessions are created.
pub(crate) enum Sessions {
    /// The service root says so.
    Advertised(Place),
    /// The root says nothing, or can't be asked.
    Standard(Place),
}

/// What is put on requests.
struct Held {
    credential: Credential,
    session: Option<Session>,
}

struct Session {
    /// Which one of this gate's it is, from 1.
    nth: u64,
    /// What to DELETE at the end; `None` where the service did not say.
    place: Option<Place>,
}

/// The right to send one request. Holds the turn while the credentials are not accepted yet.
pub(crate) struct Ticket<'a> {
    held: Option<Arc<Held>>,
    turn: Option<MutexGuard<'a, Option<Arc<Held>>>>,
    /// Its session was opened for this request, which is the first one in it.
    fresh: bool,
}

impl Ticket<'_> {
    pub(crate) fn credential(&self) -> Option<&Credential> {
        self.held.as_ref().map(|held| &held.credential)
    }

    /// Whether a 401 may just mean that the session has lapsed.
    pub(crate) fn may_have_lapsed(&self) -> bool {
        !self.fresh && self.held.as_ref().is_some_and(|held| held.session.is_some())
    }
}

impl Gate {
    /// `sessions` is where the service root says that sessions are, else where the standard puts them.
    pub(crate) fn new(auth: Auth, sessions: Sessions, refusals: Refusals, limit: u32) -> Self {
        let (sessions, advertised) = match sessions {
            Sessions::Advertised(place) => (place, true),
            Sessions::Standard(place) => (place, false),
        };
        Self {
            auth,
            sessions,
            advertised,
            root_is_open: false,
            held: Mutex::new(None),
            opened: AtomicU64::new(0),
            only_basic: AtomicBool::new(false),
            no_more: AtomicBool::new(false),
            accepted: AtomicBool::new(false),
            refusals,
            limit: limit.max(1),
        }
    }

    /// The same, for a service that shows its root to everybody, as the standard wants it.
    pub(crate) fn with_open_root(mut self) -> Self {
        self.root_is_open = true;
        self
    }

    /// Logs in before the first request where a session is wanted, so that a wrong password shows at once.
    pub(crate) async fn log_in_early(&self, wire: &Wire) -> Result<()> {
        if matches!(self.auth, Auth::Session { .. }) {
            let request = Request::get(&self.sessions, wire.limits.answer_bytes);
            self.ticket(wire, &request, Renewal::Renew).await?;
        }
        Ok(())
    }

    /// Lets one request pass, logging in first where that is needed. The caller holds a slot of the wire.
    pub(crate) async fn ticket(
        &self,
        wire: &Wire,
        request: &Request<'_>,
        renewal: Renewal,
    ) -> Result<Ticket<'_>> {
        // A wrong password at an open place may cost a try at the account, and a right one proves nothing there.
        if self.auth == Auth::None || (self.root_is_open && is_root(request.place)) {
            return Ok(Ticket {
                held: None,
                turn: None,
                fresh: false,
            });
        }
        let turn = self.held.lock().await;
        if let Renewal::Only(nth) = renewal
            && !self.is_in_session(turn.as_deref(), nth)
        {
            return Err(Error::harmless(request.name(), ErrorKind::SessionEnded));
        }
        self.pass(turn, wire, request, false).await
    }

    /// Whether what is held is that session. Where there are none, nobody can end one.
    fn is_in_session(&self, held: Option<&Held>, nth: u64) -> bool {
        match held {
            Some(held) => held.session.as_ref().is_none_or(|session| session.nth == nth),
            None => !matches!(self.auth, Auth::Session { .. }) || self.only_basic.load(Ordering::Acquire),
        }
    }

    /// Which session it is that was opened last; 0: none yet.
    pub(crate) fn nth_session(&self) -> u64 {
        self.opened.load(Ordering::Acquire)
    }

    /// After a 401 to a session's token: the session opened again, by the request that comes first. `again`: the session
    /// that another request opened was refused as well. Some services end a session after a few requests, so this
    /// request then opens one, and is the first in it.
    pub(crate) async fn renew<'a>(
        &'a self,
        stale: Ticket<'a>,
        wire: &Wire,
        request: &Request<'_>,
        again: bool,
    ) -> Result<Ticket<'a>> {
        let mut turn = match stale.turn {
            Some(turn) => turn,
            None => self.held.lock().await,
        };
        let unchanged = match (turn.as_ref(), stale.held.as_ref()) {
            (Some(now), Some(then)) => Arc::ptr_eq(now, then),
            _ => false,
        };
        if !unchanged && !again {
            return self.pass(turn, wire, request, false).await;
        }
        let old = turn.take();
        let fresh = self.pass(turn, wire, request, true).await?;
        self.discard(wire, old.as_deref(), &fresh).await;
        Ok(fresh)
    }

    /// Deletes the session that a new one replaces: a service that answered 401 for another reason than its age
    /// would otherwise keep it, and run out of sessions.
    async fn discard(&self, wire: &Wire, old: Option<&Held>, fresh: &Ticket<'_>) {
        let place = |held: &Held| held.session.as_ref().and_then(|session| session.place.clone());
        let Some(old) = old.and_then(place) else { return };
        // Some services give the same id again.
        if fresh.held.as_deref().and_then(place).as_ref() == Some(&old) {
            return;
        }
        let request = Request::delete_session(&old, wire.limits.answer_bytes);
        let gone = wire
            .exchange(&request, fresh.credential(), Deadline::after(wire.limits.request))
            .await;
        tracing::debug!(session = %old, deleted = gone.is_ok(), "the session was replaced");
    }

    fn check_open(&self, request: &Request<'_>) -> Result<()> {
        match self.is_shut() {
            true => Err(Error::harmless(request.name(), self.refused(None))),
            false => Ok(()),
        }
    }

    /// Whether the credentials were refused so often that they are sent no more.
    pub(crate) fn is_shut(&self) -> bool {
        self.auth != Auth::None && self.refusals.is_shut(self.limit)
    }

    async fn pass<'a>(
        &'a self,
        mut turn: MutexGuard<'a, Option<Arc<Held>>>,
        wire: &Wire,
        request: &Request<'_>,
        fresh: bool,
    ) -> Result<Ticket<'a>> {
        self.check_open(request)?;
        let held = match turn.as_ref() {
            Some(held) => Arc::clone(held),
            None => {
                let opened = Arc::new(self.log_in(wire).await?);
                // A refused session may have been the last try that Basic could have been.
                self.check_open(request)?;
                *turn = Some(Arc::clone(&opened));
                opened
            }
        };
        let turn = (fresh || !self.accepted.load(Ordering::Acquire)).then_some(turn);
        Ok(Ticket {
            held: Some(held),
            turn,
            fresh,
        })
    }

    /// Takes the ticket back with the answer that it led to, and turns a refusal of the credentials into an error.
    pub(crate) fn judge(
        &self,
        ticket: Ticket<'_>,
        request: &Request<'_>,
        outcome: Result<Reply>,
    ) -> Result<Reply> {
        let Ok(reply) = &outcome else { return outcome };
        if ticket.held.is_none() {
            return outcome;
        }
        if reply.status.is_success() {
            self.note_accepted();
        } else if let Some(refusal) = refusal_of_credentials(reply) {
            return Err(Error::harmless(request.name(), self.note_refused(refusal)));
        }
        outcome
    }

    /// The same for an outcome that is no longer a reply.
    pub(crate) fn judge_result<T>(
        &self,
        ticket: Ticket<'_>,
        request: &Request<'_>,
        outcome: Result<T>,
    ) -> Result<T> {
        drop(ticket);
        match outcome {
            Ok(good) => {
                self.note_accepted();
                Ok(good)
            }
            Err(error) => match error.kind() {
                ErrorKind::Refused(refusal) if matches!(refusal.status, 401 | 403) => Err(Error::harmless(
                    request.name(),
                    self.note_refused(refusal.clone()),
                )),
                _ => Err(error),
            },
        }
    }

    fn note_accepted(&self) {
        // Loads first: in the usual case nothing changes, and nothing is written that other cores read.
        if !self.accepted.load(Ordering::Acquire) {
            self.accepted.store(true, Ordering::Release);
        }
        self.refusals.clear();
    }

    fn note_refused(&self, answer: Refusal) -> ErrorKind {
        self.accepted.store(false, Ordering::Release);
        self.refusals.note();
        self.refused(Some(answer))
    }

    pub(crate) fn refused(&self, answer: Option<Refusal>) -> ErrorKind {
        self.refusals.refused(answer, self.limit)
    }

    /// Lets requests pass again after the credentials were refused too often.
    pub(crate) fn reset(&self) {
        self.refusals.clear();
    }

    pub(crate) fn log_in_no_more(&self, no_more: bool) {
        self.no_more.store(no_more, Ordering::Release);
    }

    async fn log_in(&self, wire: &Wire) -> Result<Held> {
        if self.no_more.load(Ordering::Acquire) {
            return Err(self.unusable(
                "this client logs in no more: its service is out of use, or its password is being changed",
            ));
        }
        match &self.auth {
            Auth::Session { user, password } if !self.only_basic.load(Ordering::Acquire) => {
                match self.open_session(wire, user, password).await? {
                    Some(held) => Ok(held),
                    None => {
                        tracing::debug!(endpoint = %wire.base, "no SessionService: Basic with every request");
                        self.only_basic.store(true, Ordering::Release);
                        self.basic(user, password)
                    }
                }
            }
            Auth::Session { user, password } | Auth::Basic { user, password } => self.basic(user, password),
            // `ticket` lets requests without credentials pass before this.
            Auth::None => Err(self.unusable("there are no credentials to log in with")),
        }
    }

    fn basic(&self, user: &str, password: &Secret) -> Result<Held> {
        if user.contains(':') {
            return Err(self.unusable("a user name with a colon can't be sent by HTTP Basic"));
        }
        let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{}", password.expose()));
        let value = HeaderValue::from_str(&format!("Basic {pair}"))
            .map_err(|_| self.unusable("these credentials can't be put in a header"))?;
        Ok(Held {
            credential: Credential::basic(value),
            session: None,
        })
    }

    fn unusable(&self, why: &str) -> Error {
        Error::harmless(
            format!("log in at {}", self.sessions.url()),
            NotSent::BadRequest(why.into()),
        )
    }

    /// A new session; `None` where the service has no sessions.
    async fn open_session(&self, wire: &Wire, user: &str, password: &Secret) -> Result<Option<Held>> {
        #[derive(Serialize)]
        #[serde(rename_all = "PascalCase")]
        struct Login<'a> {
            user_name: &'a str,
            password: &'a str,
        }
        let login = serde_json::to_vec(&Login {
            user_name: user,
            password: password.expose(),
        })
        .map_err(|_| self.unusable("these credentials can't be written as JSON"))?;
        let request = Request {
            method: Method::POST,
            place: &self.sessions,
            body: Some(Bytes::from(login)),
            if_match: None,
            cap: wire.limits.answer_bytes,
            changes: false,
        };
        let reply = wire
            .exchange(&request, None, Deadline::after(wire.limits.request))
            .await?;
        match reply.status {
            status if status.is_success() => {}
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
                return Ok(None);
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                // It may have cost a try at the account, so it is counted either way.
                let refused = self.note_refused(reply.refusal());
                if !self.advertised {
                    return Ok(None);
                }
                return Err(Error::harmless(request.name(), refused));
            }
            _ => return Err(request.refused(&reply)),
        }
        let token = reply.headers.get("x-auth-token").cloned();
        let token = token.ok_or_else(|| request.unusable(Unreadable::NoToken))?;
        // Behind a tunnel a service may name itself by an address that we can't use; the body has a plain path.
        let place = reply
            .header(LOCATION)
            .and_then(|link| Place::resolve(&wire.base, link).ok());
        let place = place.or_else(|| {
            let link = Annotations::of(&reply.body).ok()?.id?;
            Place::resolve(&wire.base, &link).ok()
        });
        self.note_accepted();
        Ok(Some(Held {
            credential: Credential::token(token),
            session: Some(Session {
                nth: self.opened.fetch_add(1, Ordering::AcqRel) + 1,
                place,
            }),
        }))
    }

    pub(crate) fn auth(&self) -> &Auth {
        &self.auth
    }

    /// The collection of sessions.
    pub(crate) fn sessions(&self) -> &Place {
        &self.sessions
    }

    /// The path of our own session; `None` where we have none, or the service did not say.
    pub(crate) async fn own_session(&self) -> Option<String> {
        let held = self.held.lock().await;
        let session = held.as_ref()?.session.as_ref()?;
        Some(session.place.as_ref()?.as_str().to_owned())
    }

    /// Deletes the session, if there is one. The caller holds a slot of the wire.
    pub(crate) async fn close(&self, wire: &Wire) -> Result<()> {
        let Some(held) = self.held.lock().await.take() else {
            return Ok(());
        };
        let Some(Session {
            place: Some(place), ..
        }) = &held.session
        else {
            return Ok(());
        };
        let request = Request::delete_session(place, wire.limits.answer_bytes);
        let reply = wire
            .exchange(
                &request,
                Some(&held.credential),
                Deadline::after(wire.limits.request),
            )
            .await?;
        match reply.status {
            status if status.is_success() => Ok(()),
            // It has lapsed already.
            StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND | StatusCode::GONE => Ok(()),
            _ => Err(request.refused(&reply)),
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if self
            .held
            .get_mut()
            .as_ref()
            .is_some_and(|held| held.session.is_some())
        {
            tracing::warn!(sessions = %self.sessions.url(), "a session was left open: close() was not called");
        }
    }
}

fn is_root(place: &Place) -> bool {
    matches!(place.as_str().trim_end_matches('/'), "/redfish" | "/redfish/v1")
}

/// A 401 or 403 that speaks of the credentials. A lack of privilege for one resource says that they are right.
fn refusal_of_credentials(reply: &Reply) -> Option<Refusal> {
    if !matches!(reply.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return None;
    }
    let refusal = reply.refusal();
    let lacks_privilege =
        reply.status == StatusCode::FORBIDDEN && refusal.message.is("InsufficientPrivilege");
    (!lacks_privilege).then_some(refusal)
}
