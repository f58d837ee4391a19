//! Every request but the probes says who asks: with a name and a password (HTTP Basic), or with the token of a session
//! (`X-Auth-Token`), or with a certificate that a machine has for an account's name. Over TLS. An agent is enrolled by its
//! token alone.

use crate::Api;
use crate::api::{LARGEST_BODY, privileges};
use crate::audit::{self, Lacks, Trail};
use crate::certificate::Shown;
use crate::foreign::FOREIGN;
use crate::limits::{self, Unread};
use crate::problem::Problem;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::SignedDuration;
use poolwright_service::accounts::{AccountVersion, Grants, Login, Principal, Privilege, Role, Source};
use poolwright_service::{Composer, ErrorCode, ServiceError};
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// Redfish's header for a session's token.
pub const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// The account that asks, for handlers behind [`require`].
#[derive(Clone)]
pub struct Asker {
    pub account: String,
    /// Sessions, tokens and subscriptions are bound to it.
    pub version: AccountVersion,
    pub role: Role,
    /// What it may do where.
    pub grants: Arc<Grants>,
    /// Nothing may be done but to give it another password.
    pub must_change_password: bool,
    /// The session that it asks by, if it does.
    pub session: Option<String>,
}

impl From<Principal> for Asker {
    fn from(account: Principal) -> Self {
        Self {
            account: account.name.clone(),
            version: account.version,
            role: account.role,
            grants: Arc::new(Grants {
                account: account.name,
                role: account.role,
                bindings: account.bindings,
            }),
            must_change_password: account.must_change_password,
            session: None,
        }
    }
}

impl Asker {
    /// The manager, asked by this account: what it may not change there is refused.
    pub fn composer(&self, api: &Api) -> Composer {
        api.composer.asked_by(self.grants.clone())
    }
}

/// Where a privilege is enough that an account has in a scope alone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Nowhere: it must have it everywhere.
    Everywhere,
    /// Where [`Asker::composer`] is asked, which looks at what is touched.
    Scoped,
}

/// Why nobody is let in.
pub enum Denied {
    /// It is not known who asks; what is missing, in words.
    Unknown(String),
    /// A page of another site asks; how that is seen, in words.
    Foreign(String),
    /// It is known who asks, and that account may not; what it lacks, in words.
    Forbidden(String),
    /// The account must be given another password first; its name.
    PasswordChange(String),
    /// It can't be looked up now.
    Failed(ServiceError),
}

impl From<ServiceError> for Denied {
    fn from(error: ServiceError) -> Self {
        Self::Failed(error)
    }
}

/// Lets a request through whose password or token is right; the rest are told nothing but that.
pub async fn require(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    let trail = match Trail::found(request.extensions()) {
        Ok(trail) => trail,
        Err(error) => return Problem(error).into_response(),
    };
    let (method, pattern) = (request.method(), pattern(&request));
    if privileges::is_enrolment(method, pattern) {
        // Its token says who may; its handler writes it down.
        return match bounded(&api, request, audit::SMALL).await {
            Ok(request) => next.run(request).await,
            Err(error) => Problem(error).into_response(),
        };
    }
    let asker = match who_asks(&api, request.headers(), request.extensions()).await {
        Ok(asker) => asker,
        Err(denied) => return denied.into_response(),
    };
    trail.is(&asker);
    let (privilege, reach) = privileges::needed(method, pattern);
    let only_asks = privileges::only_asks(method, pattern);
    let mut held = None;
    if let Err(denied) = may(&asker, privilege, reach) {
        return denied.into_response();
    }
    request.extensions_mut().insert(asker);
    let request = if audit::reads(request.method()) {
        Ok(request)
    } else if let Some(asks) = only_asks {
        trail.only_asks();
        let room = api.rooms.of(asks);
        let bytes = room.takes(request.body());
        match room.take(bytes, api.limits.room).await {
            Ok(taken) => {
                held = Some(taken);
                bounded(&api, request, room.most).await
            }
            Err(full) => Err(full),
        }
    } else {
        written_down(&api, &trail, request).await
    };
    let response = match request {
        Ok(request) => next.run(request).await,
        Err(error) => Problem(error).into_response(),
    };
    drop(held);
    response
}

/// A request with its body, of which no more is read.
async fn bounded(api: &Api, request: Request, most: usize) -> Result<Request, ServiceError> {
    let (parts, body) = request.into_parts();
    let body = read(api, body, most).await?;
    Ok(Request::from_parts(parts, body.into()))
}

/// A request for a change, once it is in the audit log.
async fn written_down(api: &Api, trail: &Trail, request: Request) -> Result<Request, ServiceError> {
    let (parts, body) = request.into_parts();
    let body = read(api, body, LARGEST_BODY).await?;
    trail.begin(&body).await?;
    Ok(Request::from_parts(parts, Body::from(body)))
}

async fn read(api: &Api, body: Body, most: usize) -> Result<Bytes, ServiceError> {
    let within = api.limits.body;
    let read = limits::read(body, most, within).await;
    read.map_err(|unread| match unread {
        Unread::TooLong => {
            let text = format!("the body is longer than {most} bytes, which is the most that is read here");
            ServiceError::new(ErrorCode::TooLarge, text).with_hint("send less at once")
        }
        Unread::BrokeOff => {
            let text = format!("the body broke off, or took longer than {within:?}");
            ServiceError::bad_request(text).with_hint("send it again, without a break")
        }
    })
}

/// Whether an account may do what needs a privilege.
pub fn may(asker: &Asker, privilege: Privilege, reach: Reach) -> Result<(), Denied> {
    let account = &asker.account;
    if asker.must_change_password {
        return Err(Denied::PasswordChange(account.clone()));
    }
    let grants = &asker.grants;
    match grants.everywhere(privilege) || reach == Reach::Scoped && grants.somewhere(privilege) {
        true => Ok(()),
        false if grants.somewhere(privilege) => Err(Denied::Forbidden(format!(
            "that needs the privilege {privilege:?} everywhere, and {account} has it in a scope alone"
        ))),
        false => Err(Denied::Forbidden(format!(
            "that needs the privilege {privilege:?}, and {account} has the role {}",
            asker.role
        ))),
    }
}

/// The route that a request was found to take, below `/api/v1`; empty where there is none.
fn pattern(request: &Request) -> &str {
    let matched = request.extensions().get::<MatchedPath>();
    let below = matched.and_then(|matched| matched.as_str().strip_prefix("/api/v1"));
    below.unwrap_or_default()
}

/// The account that a request shows the password or a token of; else that which its machine's certificate is for.
pub async fn who_asks(api: &Api, headers: &HeaderMap, extensions: &Extensions) -> Result<Asker, Denied> {
    if let Some(token) = headers.get(TOKEN) {
        let session = api.sessions.of(token.to_str().unwrap_or_default()).await?;
        let over = "there is no such session, or it is over: open another one with name and password";
        let Some(session) = session else {
            return Err(Denied::Unknown(over.to_owned()));
        };
        // Deleting, disabling or changing an account ends its sessions.
        return match api.accounts.of_session(&session).await? {
            Some(account) => Ok(Asker {
                session: Some(session.id),
                ..account.into()
            }),
            None => Err(Denied::Unknown(over.to_owned())),
        };
    }
    let Some((name, password)) = credentials(headers) else {
        let shown = extensions.get::<Shown>();
        for name in shown.iter().flat_map(|shown| shown.0.iter()) {
            if let Some(account) = api.accounts.principal(name).await? {
                return Ok(account.into());
            }
        }
        let missing = "give a name and a password (HTTP Basic), or the token of a session (X-Auth-Token)";
        return Err(Denied::Unknown(missing.to_owned()));
    };
    Ok(log_in(api, &name, &password, source(extensions)).await?.into())
}

/// The client that sent a request.
pub fn source(extensions: &Extensions) -> Source {
    let from = extensions.get::<ConnectInfo<SocketAddr>>();
    Source::of(from.map_or(Ipv6Addr::UNSPECIFIED.into(), |from| from.0.ip()))
}

/// The account with this name and password.
pub async fn log_in(api: &Api, name: &str, password: &str, from: Source) -> Result<Principal, Denied> {
    match api.accounts.verify(name, password, from).await? {
        Login::Right(account) => Ok(account),
        Login::Wrong => Err(wrong_password(api, name).await),
        Login::Locked { account, until } => {
            tracing::warn!(account, %until, "refused: the password is right, and logins are delayed");
            // Rounded up, so that the delay is over at the time shown.
            let until = (until + SignedDuration::from_secs(1)).strftime("%H:%M:%S");
            Err(Denied::Unknown(format!(
                "{account} is locked until {until} UTC after wrong passwords: wait, or run poolwright account unlock {account} --data-dir DIR on the manager's machine"
            )))
        }
    }
}

pub fn credentials(headers: &HeaderMap) -> Option<(String, String)> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (name, password) = text.split_once(':')?;
    Some((name.to_owned(), password.to_owned()))
}

/// The password is not this account's, or there is no such account: which, is not told.
async fn wrong_password(api: &Api, name: &str) -> Denied {
    // A name that no account has may be a password in the wrong place: it is not logged.
    let is_account = api.accounts.is_account(name).await.unwrap_or_default();
    let account = is_account.then_some(name);
    // The audit log counts denials and logs a flood as one line.
    tracing::debug!(account, "refused: wrong name or password");
    Denied::Unknown("the name or the password is wrong".to_owned())
}

/// What to do before anything else.
pub fn password_change(account: &str) -> String {
    format!(
        "{account} must be given another password first: PATCH /redfish/v1/AccountService/Accounts/{account}"
    )
}

impl IntoResponse for Denied {
    fn into_response(self) -> Response {
        let forbidden = |why: String| {
            let body = serde_json::json!({ "error": { "code": "forbidden", "message": why } });
            let mut response = (StatusCode::FORBIDDEN, axum::Json(body)).into_response();
            response.extensions_mut().insert(Lacks(why));
            response
        };
        let why = match self {
            Self::Unknown(why) => why,
            Self::Foreign(why) => return forbidden(format!("{why} {FOREIGN}")),
            Self::Forbidden(why) => return forbidden(why),
            Self::PasswordChange(account) => return forbidden(password_change(&account)),
            Self::Failed(error) => return Problem(error).into_response(),
        };
        let body = serde_json::json!({ "error": { "code": "unauthenticated", "message": why } });
        let mut response = (StatusCode::UNAUTHORIZED, axum::Json(body)).into_response();
        let challenge = HeaderValue::from_static("Basic realm=\"Poolwright\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        response
    }
}
