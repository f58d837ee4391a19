//! A Redfish client: it carries bytes and JSON, and knows of Redfish only what the protocol (DSP0266) asks of it:
//! sessions, tasks, pages of collections, error messages.
//!
//! What holds everywhere in here:
//!
//! - **A service is not trusted.** Its bodies are capped while they arrive and while they are unpacked, its links lead
//!   nowhere but to itself, a redirect is followed only if it adds or removes a trailing slash, its pages and members
//!   are counted, its words are cleaned before they are shown.
//! - **Every wait is bounded** and its error says what was waited for.
//! - **No write is sent twice on a guess.** [`Error::effect`] says whether anything may have changed.
//! - **Credentials are never tried to death**: after three refusals in a row nothing is sent any more, also by a
//!   client that comes later ([`Refusals`]).
//!
//! Start at [`Client::connect`].
//!
//! ```no_run
//! # async fn example() -> Result<(), poolwright_redfish::client::Error> {
//! use poolwright_redfish::client::{Auth, Client, Endpoint, Secret, Tls, WriteOptions};
//!
//! let endpoint = Endpoint::new("https://bmc-17")?
//!     .auth(Auth::session("operator", Secret::new(std::fs::read_to_string("password").unwrap_or_default())))
//!     .tls(Tls::Ca(std::fs::read("ca.pem").unwrap_or_default()));
//! let client = Client::connect(endpoint).await?;
//! let zone = client.get("/redfish/v1/Fabrics/PCIe/Zones/1").await?;
//! let change = serde_json::json!({ "Links": { "Endpoints": [] } });
//! client.patch(zone.path(), &change, WriteOptions::default().if_match(zone.etag())).await?;
//! client.close().await
//! # }
//! ```

mod auth;
mod body;
mod classify;
mod collection;
mod deadline;
mod document;
mod endpoint;
mod error;
mod exchange;
mod expand;
mod hint;
mod limits;
mod lookup;
mod message;
mod path;
mod refusals;
mod retry;
mod root;
mod session;
mod sessions;
mod stream;
mod task;
mod tls;
mod transport;
mod write;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::header::ETAG;
use serde::de::DeserializeOwned;
use url::Url;

pub use auth::{Auth, Secret};
pub use classify::unreached;
pub use collection::{Collection, Member};
pub use document::{Answer, Document, Resource};
pub use endpoint::Endpoint;
pub use error::{Effect, Error, ErrorKind, LinkFault, NotSent, Refusal, Result, Unreadable};
pub use limits::Limits;
pub use message::Message;
pub use refusals::Refusals;
pub use task::TaskState;
pub use tls::{Fingerprint, Tls, TlsFault, client_config};
pub use transport::Transport;
pub use write::WriteOptions;

use deadline::Deadline;
use exchange::{Reply, Request, Wire};
use expand::Expand;
use path::Place;
use session::{Gate, Sessions};

/// One Redfish service, ready to be asked. Cloning shares everything: session, slots, counters.
///
/// Call [`Client::close`] when done: dropping can't delete the session.
#[derive(Clone)]
pub struct Client(Arc<Inner>, Renewal);

/// What becomes of a request whose session has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// A new session is opened, and a request that changes nothing goes out again.
    Renew,
    /// It goes out in the nth session of this client, or fails.
    Only(u64),
}

struct Inner {
    wire: Wire,
    gate: Gate,
    expand: Expand,
    /// The service refused an ETag that it had given.
    refuses_etags: AtomicBool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.base())
    }
}

impl Client {
    /// Reads the service root without credentials, so that a stranger gets none, then logs in where a session is
    /// wanted. A wrong host, CA or password, and something that is not Redfish, each fail here with their own error.
    pub async fn connect(endpoint: Endpoint) -> Result<Self> {
        endpoint.check()?;
        let transport = Transport::for_endpoint(&endpoint)?;
        Self::connect_over(endpoint, transport).await
    }

    /// The same over connections that are shared with other endpoints of the same TLS settings.
    pub async fn connect_over(endpoint: Endpoint, transport: Transport) -> Result<Self> {
        endpoint.check()?;
        if !transport.fits(&endpoint) {
            return Err(Error::harmless(
                format!("address {}", endpoint.base()),
                NotSent::OtherTransport,
            ));
        }
        let wire = Wire::new(&endpoint, transport);
        let limit = endpoint.limits.refusals;
        if endpoint.auth != Auth::None && endpoint.refusals.is_shut(limit) {
            let kind = endpoint.refusals.refused(None, limit);
            return Err(Error::harmless(format!("log in at {}", endpoint.base()), kind));
        }
        let gate = |sessions| Gate::new(endpoint.auth.clone(), sessions, endpoint.refusals.clone(), limit);
        let (root, gate) = match root::read(&wire, None).await {
            Ok(mut root) => {
                let sessions = match root.sessions.take() {
                    Some(place) => Sessions::Advertised(place),
                    None => Sessions::Standard(root::standard_sessions(&wire)?),
                };
                (root, gate(sessions).with_open_root())
            }
            // By the standard the root is open to everybody; some services guard it all the same.
            Err(error) if matches!(error.status(), Some(401 | 403)) && endpoint.auth != Auth::None => {
                let sessions = Sessions::Standard(root::standard_sessions(&wire)?);
                let gate = gate(sessions);
                (Self::guarded_root(&wire, &gate).await?, gate)
            }
            Err(error) => return Err(error),
        };
        let inner = Inner {
            wire,
            gate,
            expand: Expand::new(root.expand),
            refuses_etags: AtomicBool::new(false),
        };
        let client = Self(Arc::new(inner), Renewal::Renew);
        client.0.gate.log_in_early(&client.0.wire).await?;
        Ok(client)
    }

    /// The same client, bound to the session that there is now, be there another one later. Whoever ends that session
    /// stops all that is asked through this one, however late it comes ([`ErrorKind::SessionEnded`]). One that is
    /// bound already stays so.
    #[must_use]
    pub fn in_this_session(&self) -> Self {
        let session = match self.1 {
            Renewal::Renew => Renewal::Only(self.0.gate.nth_session()),
            bound => bound,
        };
        Self(Arc::clone(&self.0), session)
    }

    /// The endpoint's address: scheme, host and port.
    pub fn base(&self) -> &Url {
        &self.0.wire.base
    }

    pub fn limits(&self) -> &Limits {
        &self.0.wire.limits
    }

    /// Whether the service offers `$expand`, and was found not to expand.
    pub fn expand_is_a_lie(&self) -> bool {
        self.0.expand.is_a_lie()
    }

    /// Whether the service refused a write with the ETag that it gives.
    pub fn refuses_its_etags(&self) -> bool {
        self.0.refuses_etags.load(Ordering::Relaxed)
    }

    /// Whether this is the first such refusal.
    pub(crate) fn found_refused_etag(&self) -> bool {
        !self.0.refuses_etags.swap(true, Ordering::Relaxed)
    }

    /// Whether members of a collection come with it in one answer (`$expand`), as far as is known.
    pub fn expands(&self) -> bool {
        self.0.expand.query().is_some()
    }

    /// HTTP requests sent so far, logins and retries included.
    pub fn requests(&self) -> u64 {
        self.0.wire.requests()
    }

    /// A JSON object. `path` is a link as a document gives it: an absolute path, or a URL of this endpoint.
    pub async fn get(&self, path: &str) -> Result<Document> {
        let place = self.place(path, "GET")?;
        self.get_document(Request::get(&place, self.limits().document_bytes))
            .await
    }

    /// A JSON object, read as `T`.
    pub async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<Resource<T>> {
        let document = self.get(path).await?;
        Ok(Resource {
            path: document.path().to_owned(),
            etag: document.etag(),
            value: document.parse()?,
        })
    }

    /// Reads bytes that were got from `path` as `T`.
    pub(crate) fn parse<T: DeserializeOwned>(&self, path: &str, bytes: &[u8]) -> Result<T> {
        document::parse(bytes).map_err(|why| Error::harmless(format!("GET {}{path}", self.base()), why))
    }

    /// Whatever is there, such as `$metadata`: bytes, not looked at.
    pub async fn get_bytes(&self, path: &str) -> Result<Bytes> {
        let place = self.place(path, "GET")?;
        Ok(self
            .send(&Request::get(&place, self.limits().document_bytes), None)
            .await?
            .body)
    }

    /// Deletes the session. The client can still be used, and would log in again.
    pub async fn close(&self) -> Result<()> {
        let _slot = self.0.wire.slot().await;
        self.0.gate.close(&self.0.wire).await
    }

    /// From now on no session is opened: the one that there is serves until it ends. Or they are opened again.
    pub fn log_in_no_more(&self, no_more: bool) {
        self.0.gate.log_in_no_more(no_more);
    }

    /// Lets requests pass again after [`ErrorKind::CredentialsRefused`] stopped them, because somebody set things
    /// right on the service.
    pub fn reset_refusals(&self) {
        self.0.gate.reset();
    }

    /// The error with which everything ends by now, where the credentials were refused so often that nothing is
    /// sent any more.
    pub fn shut_out(&self) -> Option<Error> {
        let gate = &self.0.gate;
        let request = || format!("log in at {}", self.base());
        gate.is_shut()
            .then(|| Error::harmless(request(), gate.refused(None)))
    }

    async fn get_document(&self, request: Request<'_>) -> Result<Document> {
        let reply = self.send(&request, None).await?;
        document::looks_like_json_object(&reply.body).map_err(|why| request.unusable(why))?;
        if let Some(message) = message::in_place_of_document(&reply.body) {
            return Err(Error::harmless(request.name(), ErrorKind::ErrorBody(message)));
        }
        let etag = reply.header(ETAG).map(str::to_owned);
        Ok(Document::new(request.place.clone(), etag, reply.body))
    }

    /// Sends it: in its turn, with credentials, again where that is safe. Any error status is an error.
    async fn send(&self, request: &Request<'_>, overall: Option<Deadline>) -> Result<Reply> {
        let Inner { wire, gate, .. } = &*self.0;
        let _slot = wire.slot().await;
        let mut deadline = None;
        let mut attempt = 0;
        loop {
            let mut ticket = gate.ticket(wire, request, self.1).await?;
            let deadline =
                *deadline.get_or_insert_with(|| Deadline::after(wire.limits.request).or_sooner(overall));
            let mut outcome = wire.exchange(request, ticket.credential(), deadline).await;
            let mut renewed = false;
            while ticket.may_have_lapsed() && outcome.as_ref().is_ok_and(|reply| reply.status == 401) {
                if self.1 != Renewal::Renew {
                    return Err(Error::harmless(request.name(), ErrorKind::SessionEnded));
                }
                // A 401 says that nothing was done, so even a write may go out again.
                ticket = gate.renew(ticket, wire, request, renewed).await?;
                renewed = true;
                outcome = wire.exchange(request, ticket.credential(), deadline).await;
            }
            let outcome = gate.judge(ticket, request, outcome);
            match retry::pause(request, &outcome, attempt, &wire.limits) {
                Some(pause) if pause < deadline.remaining() => tokio::time::sleep(pause).await,
                _ => return settle(request, outcome?),
            }
            attempt += 1;
        }
    }

    async fn guarded_root(wire: &Wire, gate: &Gate) -> Result<root::ServiceRoot> {
        let place = wire.resolve("/redfish/v1/", || format!("GET {}", wire.base))?;
        let request = Request::get(&place, wire.limits.document_bytes);
        let ticket = gate.ticket(wire, &request, Renewal::Renew).await?;
        let root = root::read(wire, ticket.credential()).await;
        let root = gate.judge_result(ticket, &request, root);
        if root.is_err()
            && let Err(error) = gate.close(wire).await
        {
            tracing::warn!(%error, "the session could not be deleted");
        }
        root
    }

    fn place(&self, link: &str, method: &str) -> Result<Place> {
        self.0.wire.resolve(link, || format!("{method} {}", self.base()))
    }

    fn expand(&self) -> &Expand {
        &self.0.expand
    }
}

fn settle(request: &Request<'_>, reply: Reply) -> Result<Reply> {
    if reply.status.is_client_error() || reply.status.is_server_error() {
        return Err(request.refused(&reply));
    }
    Ok(reply)
}
