//! What goes into the audit log of each request: that somebody who may asks for a change, before it is begun, and what
//! came of it; that somebody is not let in, or may not, and what is lacking. Reads that are allowed leave no entry.
//!
//! Invariant: no handler that changes something is called before [`Trail::begin`] has written it down.

use crate::Api;
use crate::auth::{self, Asker};
use crate::limits;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{Extensions, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use poolwright_service::accounts::Source;
use poolwright_service::audit::{Kind, Record, said};
use poolwright_service::{ErrorCode, ServiceError};
use serde_json::{Map, Value};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest path that is written down.
const LONGEST: usize = 256;

/// The largest body that is read before anybody knows who asks.
pub(crate) const SMALL: usize = 4 << 10;

/// On an answer: the operation that was begun.
#[derive(Debug, Clone)]
pub(crate) struct Made(pub String);

/// On an answer: what whoever asks lacks.
#[derive(Debug, Clone)]
pub(crate) struct Lacks(pub String);

impl Lacks {
    /// That of an error that says so.
    pub fn of(error: &ServiceError) -> Option<Self> {
        let lacks = error
            .details
            .first()
            .filter(|_| error.code == ErrorCode::Forbidden);
        lacks.cloned().map(Self)
    }
}

/// What is known of a request while it is answered.
pub(crate) struct Trail {
    api: Api,
    what: Method,
    on: String,
    from: String,
    source: Source,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Whose name was given, be it right or not.
    claimed: Option<String>,
    who: Option<Asker>,
    /// The number of the entry that it was asked.
    begun: Option<u64>,
    answered: bool,
    /// Nothing is changed by it, whatever its method is.
    only_asks: bool,
}

/// Writes down that nobody waited for the answer.
struct Gone(Arc<Trail>);

/// Whether a method changes nothing.
pub(crate) fn reads(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Around everything that is answered.
pub(crate) async fn follow(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    let within = api.limits.body;
    let trail = Arc::new(Trail::of(api, &request));
    request.extensions_mut().insert(trail.clone());
    let gone = Gone(trail);
    let response = next.run(with_small_body(request, within).await).await;
    let lacks = response.extensions().get::<Lacks>().cloned();
    gone.0.ended(response.status(), made(&response), lacks).await;
    response
}

/// Reads a small body before the answer: hyper closes the connection after an answer to a request with an unread body. A body
/// that does not arrive in time counts as empty.
async fn with_small_body(request: Request, within: Duration) -> Request {
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if length.is_none_or(|length| length > SMALL) {
        return request;
    }
    let (parts, body) = request.into_parts();
    let body = limits::read(body, SMALL, within).await.unwrap_or_default();
    Request::from_parts(parts, Body::from(body))
}

impl Trail {
    fn of(api: Api, request: &Request) -> Self {
        let from = request.extensions().get::<ConnectInfo<SocketAddr>>();
        let claimed = auth::credentials(request.headers()).map(|(name, _)| name);
        Self {
            api,
            what: request.method().clone(),
            on: request.uri().path().chars().take(LONGEST).collect(),
            source: auth::source(request.extensions()),
            from: from.map_or_else(String::new, |from| from.0.ip().to_canonical().to_string()),
            known: Mutex::new(Known {
                claimed,
                ..Known::default()
            }),
        }
    }

    /// That of a request.
    pub fn found(extensions: &Extensions) -> Result<Arc<Self>, ServiceError> {
        let found = extensions.get::<Arc<Self>>().cloned();
        let text = "nobody writes down what is asked for here, so it is not done";
        found.ok_or_else(|| ServiceError::new(ErrorCode::Internal, text))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whose name was given.
    pub fn claims(&self, name: &str) {
        self.known().claimed = Some(name.to_owned());
    }

    /// The client that it came from.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Who it is.
    pub fn is(&self, asker: &Asker) {
        self.known().who = Some(asker.clone());
    }

    /// Writes down that somebody who may asks for a change. Where that can't be done the change must not be.
    pub async fn begin(&self, body: &[u8]) -> Result<(), ServiceError> {
        let body = serde_json::from_slice::<Value>(body).unwrap_or_default();
        self.begin_saying(said(&body)).await
    }

    /// The same, in words that are known to hold no secret.
    pub async fn begin_saying(&self, said: Map<String, Value>) -> Result<(), ServiceError> {
        let record = self.record(Kind::Asked, said);
        let seq = self.api.composer.audit().note(record).await?;
        self.known().begun = Some(seq);
        Ok(())
    }

    fn record(&self, kind: Kind, said: Map<String, Value>) -> Record {
        let known = self.known();
        let who = known.who.as_ref();
        Record {
            kind,
            by: who.map(|asker| asker.account.clone()),
            role: who.map(|asker| asker.role.to_string()),
            from: self.from.clone(),
            what: self.what.to_string(),
            on: self.on.clone(),
            said,
            answers: known.begun,
            status: None,
            made: None,
            times: 1,
            paths: 1,
        }
    }

    /// It changes nothing: only a denial is written down.
    pub fn only_asks(&self) {
        self.known().only_asks = true;
    }

    /// Writes down what came of it, or that it was denied.
    async fn ended(&self, status: StatusCode, made: Option<String>, lacks: Option<Lacks>) {
        let (begun, only_asks) = {
            let mut known = self.known();
            known.answered = true;
            (known.begun, known.only_asks)
        };
        let denied = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        // Of a login nothing is asked before: who it was is known with its answer.
        let login = !only_asks && !reads(&self.what) && status.is_success();
        let kind = match (denied, begun.is_some() || login) {
            (true, _) => Kind::Denied,
            (false, true) => Kind::Answered,
            (false, false) => return,
        };
        let mut record = self.record(kind, Map::new());
        record.status = Some(status.as_u16());
        record.made = made;
        if let Some(Lacks(lacks)) = lacks.filter(|_| denied) {
            let lacks: String = lacks.chars().take(LONGEST).collect();
            record.said.insert("lacks".to_owned(), lacks.into());
        }
        if record.by.is_none() {
            record.by = self.claimed().await;
        }
        let audit = self.api.composer.audit();
        match begun.is_none() && denied {
            true => audit.deny(record).await,
            false => told(audit.note(record).await),
        }
    }

    /// The account whose name was given, if there is one: what is none may be a password in the wrong place.
    async fn claimed(&self) -> Option<String> {
        let name = self.known().claimed.clone()?;
        let is_account = self.api.accounts.is_account(&name).await.ok()?;
        is_account.then_some(name)
    }
}

fn made(response: &Response) -> Option<String> {
    let operation = response.extensions().get::<Made>().map(|made| made.0.clone());
    let location = || {
        Some(
            response
                .headers()
                .get(header::LOCATION)?
                .to_str()
                .ok()?
                .to_owned(),
        )
    };
    operation.or_else(location)
}

fn told(noted: Result<u64, ServiceError>) {
    if let Err(error) = noted {
        tracing::warn!("what came of a change is not in the audit log: {}", error.message);
    }
}

impl Drop for Gone {
    fn drop(&mut self) {
        let known = self.0.known();
        let (begun, answered) = (known.begun, known.answered);
        drop(known);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if begun.is_some() && !answered {
            let trail = self.0.clone();
            runtime.spawn(async move {
                let record = trail.record(Kind::Answered, Map::new());
                told(trail.api.composer.audit().note(record).await);
            });
        }
    }
}
