//! Server-sent events (DSP0266): one stream of what happens, for as long as a client stays.

use super::choice;
use super::ear::{Ear, Ended, Wish};
use super::hub::Seat;
use super::news::EventId;
use crate::auth::Asker;
use crate::redfish::Redfish;
use crate::redfish::message::Refusal;
use axum::body::{Body, Bytes};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use futures_util::stream;
use poolwright_service::accounts::{AccountVersion, Accounts};
use poolwright_service::sessions::Sessions;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// After so long with nothing to tell a line shows that somebody is there.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream;charset=utf-8");

/// Opens a stream.
pub(crate) async fn open(redfish: &Redfish, asker: &Asker, parts: &Parts) -> Result<Response, Refusal> {
    accepts(&parts.headers)?;
    let filter = choice::of_query(parts.uri.query().unwrap_or_default())?;
    let seen = last_event_id(&parts.headers)?;
    let api = &redfish.api;
    api.composer.may_be_asked()?;
    // Whoever sits down first and looks at the log then misses nothing.
    let seat = api.hub.sit(asker, api.composer.clock().now());
    let (seat, heard) = seat.ok_or_else(no_seat)?;
    let last = api.composer.last_happened().await?;
    let mut ear = Ear::new(api.composer.clone(), heard, Wish::Filter(filter), last);
    if let Some(seen) = seen.filter(|seen| seen.seq <= last) {
        ear = ear.after(seen);
    }
    let report = api.hub.report(&api.composer).await?;
    ear.take_report(report);
    let proof = match &asker.session {
        Some(session) => Proof::Session(session.clone()),
        None => Proof::Account(asker.version.clone()),
    };
    let listener = Listener {
        ear,
        seat,
        accounts: api.accounts.clone(),
        sessions: api.sessions.clone(),
        account: asker.account.clone(),
        proof,
        begun: false,
        over: false,
    };
    let events = stream::unfold(listener, |mut listener| async move {
        let next = listener.next().await?;
        Some((Ok::<_, Infallible>(next), listener))
    });
    let mut response = Response::new(Body::from_stream(events));
    response.headers_mut().insert(header::CONTENT_TYPE, EVENT_STREAM);
    Ok(response)
}

fn no_seat() -> Refusal {
    let text = "As many streams are open as there may be.";
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let next = "Close one that nobody reads.";
    Refusal::new(status, "EventSubscriptionLimitExceeded", &[], text, next)
}

fn accepts(headers: &HeaderMap) -> Result<(), Refusal> {
    let values = headers.get_all(header::ACCEPT);
    let all: Vec<&str> = values.iter().filter_map(|value| value.to_str().ok()).collect();
    let kinds = all.iter().flat_map(|value| value.split(','));
    let mut kinds = kinds.map(|kind| kind.split(';').next().unwrap_or_default().trim());
    if all.is_empty() || kinds.any(|kind| matches!(kind, "*/*" | "text/*" | "text/event-stream")) {
        return Ok(());
    }
    let text = "What is here is a stream of events, and the client takes none.";
    let next = "Say Accept: text/event-stream.";
    let status = StatusCode::NOT_ACCEPTABLE;
    Err(Refusal::new(status, "HeaderInvalid", &["Accept"], text, next))
}

/// The last event that the client has.
fn last_event_id(headers: &HeaderMap) -> Result<Option<EventId>, Refusal> {
    let Some(value) = headers.get("last-event-id") else {
        return Ok(None);
    };
    let read = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    read.map(Some).ok_or_else(|| {
        let text = "Last-Event-ID is no id that this service gave.";
        let status = StatusCode::BAD_REQUEST;
        let next = "Give the id of an event as it came, or leave it out.";
        Refusal::new(status, "HeaderInvalid", &["Last-Event-ID"], text, next)
    })
}

/// The credential that admitted the client.
enum Proof {
    Session(String),
    /// The account as it was then.
    Account(AccountVersion),
}

struct Listener {
    ear: Ear,
    seat: Seat,
    accounts: Arc<Accounts>,
    sessions: Arc<Sessions>,
    account: String,
    proof: Proof,
    begun: bool,
    over: bool,
}

impl Listener {
    /// What is sent next; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if !std::mem::replace(&mut self.begun, true) {
            return Some(Bytes::from_static(b": what happens from now on\nretry: 5000\n\n"));
        }
        if self.over {
            return None;
        }
        tokio::select! {
            biased;
            _ = self.seat.ends.changed() => None,
            heard = self.ear.next() => match heard {
                Ok(letter) if self.may_listen().await => Some(letter.streamed),
                Ok(_) | Err(Ended::Silent) => None,
                Err(Ended::TooSlow) => {
                    tracing::info!(account = %self.account, "a stream of events is ended: its client reads too slowly");
                    self.over = true;
                    let word = b": this client reads too slowly; the rest comes after its Last-Event-ID\n\n";
                    Some(Bytes::from_static(word))
                }
            },
            () = tokio::time::sleep(KEEP_ALIVE) => {
                let line = Bytes::from_static(b": nothing new\n\n");
                self.may_listen().await.then_some(line)
            }
        }
    }

    /// Whether the account is as it was when the stream began, and its session has not ended.
    async fn may_listen(&self) -> bool {
        let account = self.accounts.principal(&self.account).await.ok().flatten();
        let Some(account) = account else {
            return false;
        };
        match &self.proof {
            Proof::Session(id) => self
                .sessions
                .goes_on(&account.version, id)
                .await
                .unwrap_or_default(),
            Proof::Account(version) => *version == account.version,
        }
    }
}
