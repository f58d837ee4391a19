//! One HTTP exchange: a request goes out once, and a bounded answer or a typed error comes back.
//!
//! Nothing here retries or logs in. A redirect is followed only if it adds or removes a trailing slash. What an error says
//! about the effect is decided here, because only here it is known how far the request came.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, IF_MATCH, LOCATION};
use http::{HeaderName, Method, StatusCode};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use url::Url;

use super::body::{self, BodyFault};
use super::classify::{self, Failure};
use super::deadline::Deadline;
use super::error::{Error, ErrorKind, LinkFault, Refusal, Result, Unreadable};
use super::message;
use super::path::Place;
use super::{Endpoint, Limits, Transport};

/// What is sent.
pub(crate) struct Request<'a> {
    pub(crate) method: Method,
    pub(crate) place: &'a Place,
    pub(crate) body: Option<Bytes>,
    pub(crate) if_match: Option<HeaderValue>,
    /// Largest body of a good answer, in bytes.
    pub(crate) cap: usize,
    /// Whether it changes the machine. Logging in and out does not.
    pub(crate) changes: bool,
}

impl<'a> Request<'a> {
    pub(crate) fn get(place: &'a Place, cap: usize) -> Self {
        Self {
            method: Method::GET,
            place,
            body: None,
            if_match: None,
            cap,
            changes: false,
        }
    }

    /// Deletes one of our own sessions, which changes nothing on the machine.
    pub(crate) fn delete_session(session: &'a Place, cap: usize) -> Self {
        Self {
            method: Method::DELETE,
            place: session,
            body: None,
            if_match: None,
            cap,
            changes: false,
        }
    }

    /// Method and URL, for errors. The URL holds no credentials: see [`Place::resolve`].
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.method, self.place.url())
    }

    /// An error after it may have reached the service.
    pub(crate) fn unusable(&self, why: Unreadable) -> Error {
        if self.changes {
            let kind = ErrorKind::OutcomeUnknown {
                why: why.to_string(),
                answer: None,
            };
            Error::unknown(self.name(), kind)
        } else {
            Error::harmless(self.name(), why)
        }
    }

    fn overdue(&self, waiting_for: String, deadline: Deadline) -> Error {
        if self.changes {
            let why = format!("gave up after {:?}, waiting for {waiting_for}", deadline.span());
            Error::unknown(self.name(), ErrorKind::OutcomeUnknown { why, answer: None })
        } else {
            Error::harmless(
                self.name(),
                ErrorKind::DeadlineExceeded {
                    waiting_for,
                    after: deadline.span(),
                },
            )
        }
    }

    /// What an error status means for this request.
    pub(crate) fn refused(&self, reply: &Reply) -> Error {
        let refusal = reply.refusal();
        let says_no = !self.changes
            || reply.status.is_client_error()
            || reply.status == StatusCode::NOT_IMPLEMENTED
            || reply.is_busy_for_now();
        if says_no {
            Error::harmless(self.name(), ErrorKind::Refused(refusal))
        } else {
            let why = "the service failed while it worked on it".to_owned();
            Error::unknown(
                self.name(),
                ErrorKind::OutcomeUnknown {
                    why,
                    answer: Some(refusal),
                },
            )
        }
    }
}

/// What came back: any status but a redirect.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Reply {
    pub(crate) fn header(&self, name: impl http::header::AsHeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub(crate) fn refusal(&self) -> Refusal {
        Refusal {
            status: self.status.as_u16(),
            message: message::of_error_body(&self.body),
        }
    }

    /// Too busy to begin, and says when to come again: nothing was done.
    pub(crate) fn is_busy_for_now(&self) -> bool {
        self.status == StatusCode::TOO_MANY_REQUESTS
            || (self.status == StatusCode::SERVICE_UNAVAILABLE && self.headers.contains_key("retry-after"))
    }
}

/// What authenticates a request.
#[derive(Clone)]
pub(crate) struct Credential {
    pub(crate) header: HeaderName,
    pub(crate) value: HeaderValue,
}

impl Credential {
    pub(crate) fn basic(mut value: HeaderValue) -> Self {
        value.set_sensitive(true);
        Self {
            header: AUTHORIZATION,
            value,
        }
    }

    pub(crate) fn token(mut value: HeaderValue) -> Self {
        value.set_sensitive(true);
        Self {
            header: HeaderName::from_static("x-auth-token"),
            value,
        }
    }
}

/// The way to one endpoint.
pub(crate) struct Wire {
    transport: Transport,
    pub(crate) base: Url,
    pub(crate) limits: Limits,
    slots: Semaphore,
    /// Slots that are opened once the service turns out to be slow.
    kept_back: AtomicUsize,
    slow_in_row: AtomicU32,
    /// What nothing waits for queues here first: see [`Wire::leaf_turn`].
    leaf_turns: Semaphore,
    requests: AtomicU64,
}

const NEVER_CLOSED: &str = "the semaphore lives as long as the wire, and nobody closes it";

/// Requests under way at once at a service that answers [quickly](QUICK). More would not make it quicker, and each
/// takes a connection, which costs both sides more than a request does.
const ENOUGH_IF_QUICK: usize = 8;

/// An answer within this time is quick: there is little to wait for.
const QUICK: Duration = Duration::from_millis(3);

/// So many answers that were not quick, one after the other, make a slow service.
const SLOW_IN_ROW: u32 = 3;

impl Wire {
    pub(crate) fn new(endpoint: &Endpoint, transport: Transport) -> Self {
        let most = endpoint.limits.concurrency.max(1);
        let first = most.min(ENOUGH_IF_QUICK);
        Self {
            transport,
            base: endpoint.base().clone(),
            slots: Semaphore::new(first),
            kept_back: AtomicUsize::new(most - first),
            slow_in_row: AtomicU32::new(0),
            leaf_turns: Semaphore::new(most),
            limits: endpoint.limits.clone(),
            requests: AtomicU64::new(0),
        }
    }

    /// Waits for its turn among the requests to this endpoint. Each holder is bounded by its deadline, so the wait
    /// is bounded by the length of the queue.
    pub(crate) async fn slot(&self) -> SemaphorePermit<'_> {
        if self.kept_back.load(Ordering::Relaxed) > 0 {
            // A service that answers some requests quickly may still sit on others.
            match tokio::time::timeout(QUICK * 6, self.slots.acquire()).await {
                Ok(slot) => return slot.expect(NEVER_CLOSED),
                Err(_) => self.open_all_slots(),
            }
        }
        self.slots.acquire().await.expect(NEVER_CLOSED)
    }

    /// Goes before [`Self::slot`] for a resource that leads to no other. Of these no more than can be under way
    /// come to the queue for slots, so whatever leads on to others waits for one of them at most, not for all.
    pub(crate) async fn leaf_turn(&self) -> SemaphorePermit<'_> {
        self.leaf_turns.acquire().await.expect(NEVER_CLOSED)
    }

    /// A single answer may be late for reasons of our own; several in a row tell of the service.
    fn took(&self, time: Duration) {
        if time <= QUICK {
            self.slow_in_row.store(0, Ordering::Relaxed);
        } else if self.slow_in_row.fetch_add(1, Ordering::Relaxed) + 1 == SLOW_IN_ROW {
            self.open_all_slots();
        }
    }

    fn open_all_slots(&self) {
        // By whoever is first; nothing is left for the others.
        self.slots.add_permits(self.kept_back.swap(0, Ordering::Relaxed));
    }

    /// HTTP requests sent so far, logins and retries included.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(crate) fn resolve(&self, link: &str, request: impl FnOnce() -> String) -> Result<Place> {
        Place::resolve(&self.base, link).map_err(|why| link_error(request(), link, why))
    }

    /// Sends it. The caller holds a slot.
    pub(crate) async fn exchange(
        &self,
        request: &Request<'_>,
        credential: Option<&Credential>,
        deadline: Deadline,
    ) -> Result<Reply> {
        let response = self.sent(request, credential, None, deadline).await?;
        tracing::trace!(method = %request.method, place = %request.place, status = response.status().as_u16());
        self.receive(request, response, deadline).await
    }

    /// Sends it, and waits for the head of the answer. Follows one redirect that only adds or removes a trailing slash: some
    /// services answer only with it, or only without.
    pub(crate) async fn sent(
        &self,
        request: &Request<'_>,
        credential: Option<&Credential>,
        accept: Option<HeaderValue>,
        deadline: Deadline,
    ) -> Result<reqwest::Response> {
        let accept = accept.as_ref();
        let response = self
            .sent_to(request.place, request, credential, accept, deadline)
            .await?;
        let Some(place) = self.other_form(request, &response) else {
            return Ok(response);
        };
        drop(response);
        self.sent_to(&place, request, credential, accept, deadline).await
    }

    /// The target of a redirect that only adds or removes a trailing slash. A change is repeated there only after 307 and
    /// 308, which ask for the same request (RFC 9110): another redirect may come after the work.
    fn other_form(&self, request: &Request<'_>, response: &reqwest::Response) -> Option<Place> {
        let repeats = match response.status() {
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => !request.changes,
            _ => false,
        };
        let link = response.headers().get(LOCATION).filter(|_| repeats)?;
        let place = Place::resolve(&self.base, link.to_str().ok()?).ok()?;
        place.differs_by_a_slash(request.place).then_some(place)
    }

    async fn sent_to(
        &self,
        place: &Place,
        request: &Request<'_>,
        credential: Option<&Credential>,
        accept: Option<&HeaderValue>,
        deadline: Deadline,
    ) -> Result<reqwest::Response> {
        let mut outgoing = reqwest::Request::new(request.method.clone(), place.url());
        let headers = outgoing.headers_mut();
        if let Some(accept) = accept {
            headers.insert(ACCEPT, accept.clone());
        }
        if let Some(credential) = credential {
            headers.insert(credential.header.clone(), credential.value.clone());
        }
        if let Some(etag) = &request.if_match {
            headers.insert(IF_MATCH, etag.clone());
        }
        if let Some(body) = &request.body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *outgoing.body_mut() = Some(body.clone().into());
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        let began = Instant::now();
        let sent = tokio::time::timeout_at(deadline.at(), self.transport.http().execute(outgoing)).await;
        self.took(began.elapsed());
        match sent {
            Err(_) => Err(request.overdue("the answer".into(), deadline)),
            Ok(Err(e)) => Err(match classify::failure(&e.without_url()) {
                Failure::NotSent(kind) => Error::harmless(request.name(), kind),
                Failure::NoAnswer(why) => request.unusable(why),
            }),
            Ok(Ok(response)) => Ok(response),
        }
    }

    pub(crate) async fn receive(
        &self,
        request: &Request<'_>,
        mut response: reqwest::Response,
        deadline: Deadline,
    ) -> Result<Reply> {
        let status = response.status();
        if status.is_redirection() {
            return Err(redirected(request, &response));
        }
        let failed = status.is_client_error() || status.is_server_error();
        let cap = if failed {
            self.limits.answer_bytes
        } else {
            request.cap
        };
        let body = match body::read(&mut response, cap, deadline).await {
            Ok(body) => body,
            // The status says it all; the message is lost.
            Err(_) if failed => Bytes::new(),
            Err(BodyFault::Unusable(why)) => return Err(request.unusable(why)),
            Err(BodyFault::Deadline { got }) => {
                return Err(request.overdue(format!("the rest of the body ({got} bytes so far)"), deadline));
            }
        };
        let headers = std::mem::take(response.headers_mut());
        Ok(Reply {
            status,
            headers,
            body,
        })
    }
}

fn redirected(request: &Request<'_>, response: &reqwest::Response) -> Error {
    let to = response
        .headers()
        .get(LOCATION)
        .map(|to| String::from_utf8_lossy(to.as_bytes()).into_owned());
    let to = message::printable(&to.unwrap_or_default());
    let kind = ErrorKind::Redirected {
        status: response.status().as_u16(),
        to,
    };
    // A redirect may come after the work is done (303 is made for that).
    if request.changes {
        Error::unknown(request.name(), kind)
    } else {
        Error::harmless(request.name(), kind)
    }
}

pub(crate) fn link_error(request: String, link: &str, why: LinkFault) -> Error {
    Error::harmless(
        request,
        ErrorKind::Link {
            link: message::printable(link),
            why,
        },
    )
}
