//! What can go wrong between us and a Redfish service, as values.
//!
//! An [`Error`] says *what* ([`Error::kind`]), *where* (method and URL, never credentials), *whether anything may
//! have changed* ([`Error::effect`], what safe execution decides on) and *what to do next* ([`Error::hint`]).

use std::fmt;
use std::time::Duration;

use super::message::Message;
use super::tls::TlsFault;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the client. Small to pass around, and free of secrets, so that it can be kept as a fact.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inner {
    request: String,
    kind: ErrorKind,
    effect: Effect,
    task: Option<String>,
}

/// Whether the request behind an error may have changed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Certainly not: it was not sent, it was refused, or it only reads.
    None,
    /// Nobody knows. Read back before anything else.
    Unknown,
}

impl Error {
    /// An error of a request (`GET https://…`) that has certainly changed nothing.
    pub(crate) fn harmless(request: impl Into<String>, kind: impl Into<ErrorKind>) -> Self {
        Self(Box::new(Inner {
            request: request.into(),
            kind: kind.into(),
            effect: Effect::None,
            task: None,
        }))
    }

    /// An error of a write that may have had its effect.
    pub(crate) fn unknown(request: impl Into<String>, kind: impl Into<ErrorKind>) -> Self {
        Self(Box::new(Inner {
            request: request.into(),
            kind: kind.into(),
            effect: Effect::Unknown,
            task: None,
        }))
    }

    /// The same error of a write that the service goes on with in this task.
    pub(crate) fn while_running(mut self, task: impl fmt::Display) -> Self {
        self.0.task = Some(task.to_string());
        self
    }

    /// The same error, as it reads once the write that it belongs to was accepted.
    pub(crate) fn after_the_write(mut self) -> Self {
        self.0.effect = Effect::Unknown;
        self
    }

    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    pub fn effect(&self) -> Effect {
        self.0.effect
    }

    /// The task in which the service may still go on with the write; [`Client::task`](super::Client::task) asks
    /// for it.
    pub fn task(&self) -> Option<&str> {
        self.0.task.as_deref()
    }

    /// Method and URL of the request, without credentials.
    pub fn request(&self) -> &str {
        &self.0.request
    }

    /// What the service answered, where it answered: the HTTP status.
    pub fn status(&self) -> Option<u16> {
        match &self.0.kind {
            ErrorKind::Refused(refusal) => Some(refusal.status),
            ErrorKind::CredentialsRefused { answer, .. } | ErrorKind::OutcomeUnknown { answer, .. } => {
                answer.as_ref().map(|refusal| refusal.status)
            }
            ErrorKind::Redirected { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// The service's own message, where it gave one (its Redfish MessageId and text).
    pub fn message(&self) -> Option<&Message> {
        match &self.0.kind {
            ErrorKind::Refused(refusal) => Some(&refusal.message),
            ErrorKind::ErrorBody(message) => Some(message),
            ErrorKind::CredentialsRefused { answer, .. } | ErrorKind::OutcomeUnknown { answer, .. } => {
                answer.as_ref().map(|refusal| &refusal.message)
            }
            ErrorKind::TaskFailed { messages, .. } => messages.first(),
            _ => None,
        }
    }

    /// Whether the place does not exist: 404 or 410, or an error body that says so.
    pub fn is_not_found(&self) -> bool {
        match &self.0.kind {
            ErrorKind::Refused(refusal) => matches!(refusal.status, 404 | 410),
            ErrorKind::ErrorBody(message) => message.says_missing(),
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.request, self.0.kind)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Error {}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ErrorKind {
    /// It never reached the service.
    #[error("not sent: {0}")]
    NotSent(#[from] NotSent),
    /// We and the service do not agree on who it is, or on how to speak in private.
    #[error("TLS: {0}")]
    Tls(#[from] TlsFault),
    /// The service said no, and that says that nothing changed: any 4xx, any error to a GET, and 501 or a 503 or 429
    /// with Retry-After to a write.
    #[error("refused with {0}")]
    Refused(Refusal),
    /// A write was sent, and the answer leaves open whether it was done: none came, it broke off, it is a 5xx, or it
    /// is not what a Redfish service says.
    #[error("sent, and the outcome is unknown: {why}{}", shown(.answer))]
    OutcomeUnknown { why: String, answer: Option<Refusal> },
    /// The answer to a GET is not a document that can be used.
    #[error("the answer is of no use: {0}")]
    Unreadable(#[from] Unreadable),
    /// A GET succeeded, and what came is an error body. Recorded trees have such where a link leads nowhere.
    #[error("an error in place of the document: {0}")]
    ErrorBody(Message),
    /// Something answers at that address, and it is not a Redfish service.
    #[error("this is not a Redfish service: {saw}")]
    NotRedfish { saw: String },
    /// The service does not take our user name and password. `answer` is absent where nothing was sent any more.
    #[error("credentials refused{} ({refusals} in a row; after {limit} nothing more is sent unless somebody asks)", shown(.answer))]
    CredentialsRefused {
        answer: Option<Refusal>,
        refusals: u32,
        limit: u32,
    },
    /// The session that it had to be sent in has ended: nothing was done. Whether it is still wanted is for the
    /// caller to say: somebody may have ended the session to stop it.
    #[error("the session has ended, so nothing was done")]
    SessionEnded,
    /// Redirects to another path or origin are not followed: they could carry credentials elsewhere.
    #[error(
        "redirected with {status} to {to:?}; a redirect is followed only if it adds or removes a trailing slash"
    )]
    Redirected { status: u16, to: String },
    /// A link that must not be followed, or that can't.
    #[error("link {link:?} not followed: {why}")]
    Link { link: String, why: LinkFault },
    /// The task behind an accepted write ended, and not well.
    #[error("task {task} ended as {state}{}", listed(.messages))]
    TaskFailed {
        task: String,
        state: String,
        messages: Vec<Message>,
    },
    /// A bounded wait came to its end.
    #[error("gave up after {after:?}, waiting for {waiting_for}")]
    DeadlineExceeded { waiting_for: String, after: Duration },
    /// A collection's pages lead back to one that was already read.
    #[error("the collection's pages run in a circle, back to {0:?}")]
    PageLoop(String),
    /// More pages or members than any real collection has.
    #[error("the collection has more than {limit} {what}")]
    TooMany { what: &'static str, limit: usize },
}

/// Why a request never left, or never arrived.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    #[error("no service address: {0}")]
    BadAddress(String),
    #[error("plain http to another machine would show the password to everybody on the way")]
    PlainHttp,
    #[error("the transport was made for other TLS settings than this endpoint's")]
    OtherTransport,
    #[error("the host name is not known ({0})")]
    UnknownHost(String),
    #[error("connection refused: the host is there, nothing listens on that port")]
    ConnectionRefused,
    #[error("no way to the host ({0})")]
    Unreachable(String),
    #[error("no connection in time")]
    ConnectTimeout,
    #[error("too many open files in this process")]
    TooManyOpenFiles,
    #[error("the request can't be written: {0}")]
    BadRequest(String),
    #[error("{0}")]
    Other(String),
}

/// An error status, with what the service says about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    pub message: Message,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, self.message)
    }
}

/// Why an answer can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("an HTML page")]
    Html,
    #[error("an empty body")]
    Empty,
    #[error("not JSON ({0})")]
    NotJson(String),
    #[error("JSON, but not of the expected shape ({0})")]
    WrongShape(String),
    #[error("JSON nested too deeply")]
    TooDeep,
    #[error("a body of more than {}", poolwright_model::units::Bytes(*limit as u64))]
    TooLarge { limit: usize },
    #[error("a compressed body that can't be unpacked ({0})")]
    Compressed(String),
    #[error("the connection was lost after {got} bytes of the body ({why})")]
    CutOff { got: usize, why: String },
    #[error("the connection was lost before the answer ({0})")]
    Lost(String),
    #[error("not HTTP ({0})")]
    NotHttp(String),
    #[error("the session was opened without an X-Auth-Token")]
    NoToken,
}

/// Why a link is not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LinkFault {
    #[error("it leads to another origin")]
    OtherOrigin,
    #[error("it climbs with \"..\"")]
    Climbs,
    #[error("it is not absolute")]
    Relative,
    #[error("it is malformed")]
    Malformed,
    #[error("there is none")]
    Missing,
}

fn shown(answer: &Option<Refusal>) -> String {
    answer
        .as_ref()
        .map(|refusal| format!(", {refusal}"))
        .unwrap_or_default()
}

fn listed(messages: &[Message]) -> String {
    /// Enough to understand; a task may list hundreds.
    const SHOWN: usize = 5;
    messages
        .iter()
        .take(SHOWN)
        .map(|message| format!("; {message}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_word_wide() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }

    #[test]
    fn says_what_and_where_and_keeps_the_message_id() {
        let refusal = Refusal {
            status: 412,
            message: Message {
                id: Some("Base.1.18.PreconditionFailed".into()),
                text: "The ETag differs.".into(),
            },
        };
        let error = Error::harmless(
            "PATCH https://bmc/redfish/v1/Systems/1",
            ErrorKind::Refused(refusal),
        );
        assert_eq!(
            error.to_string(),
            "PATCH https://bmc/redfish/v1/Systems/1: refused with 412: The ETag differs. (Base.1.18.PreconditionFailed)"
        );
        assert_eq!(error.status(), Some(412));
        assert!(error.message().unwrap().is("PreconditionFailed"));
        assert_eq!(error.effect(), Effect::None);
        assert_eq!(error.after_the_write().effect(), Effect::Unknown);
    }
}
