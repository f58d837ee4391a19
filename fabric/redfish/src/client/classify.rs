//! From what reqwest, hyper, rustls and the kernel say to the errors of this client.

use std::error::Error as StdError;
use std::io;

use super::error::{Error, ErrorKind, NotSent, Unreadable};
use super::tls::TlsFault;

/// Linux: too many open files in the process, in the system.
const EMFILE: i32 = 24;
const ENFILE: i32 = 23;

/// Why a request got no answer.
pub(crate) enum Failure {
    /// It certainly did not reach the service.
    NotSent(ErrorKind),
    /// It may have, and no (usable) answer came.
    NoAnswer(Unreadable),
}

pub(crate) fn failure(error: &reqwest::Error) -> Failure {
    if error.is_builder() {
        return Failure::NotSent(NotSent::BadRequest(innermost(error)).into());
    }
    if error.is_connect() {
        return Failure::NotSent(connect(error, error.is_dns(), error.is_timeout()));
    }
    let why = innermost(error);
    // hyper's words for bytes that are no HTTP answer; it has no public type for them.
    if why.contains("invalid HTTP") || why.contains("message head is too large") {
        return Failure::NoAnswer(Unreadable::NotHttp(why));
    }
    Failure::NoAnswer(Unreadable::Lost(why))
}

/// Why a request certainly did not reach its service, in the words that this client has for it: for other users of
/// reqwest in this workspace. `None` where it may have arrived.
pub fn unreached(request: &str, error: &reqwest::Error) -> Option<Error> {
    match failure(error) {
        Failure::NotSent(kind) => Some(Error::harmless(request, kind)),
        Failure::NoAnswer(_) => None,
    }
}

fn connect(error: &(dyn StdError + 'static), dns: bool, timeout: bool) -> ErrorKind {
    let mut io_kind = None;
    for cause in causes(error) {
        if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
            return TlsFault::of(tls).into();
        }
        let Some(io) = cause.downcast_ref::<io::Error>() else {
            continue;
        };
        if matches!(io.raw_os_error(), Some(EMFILE | ENFILE)) {
            return NotSent::TooManyOpenFiles.into();
        }
        io_kind = Some(io.kind());
    }
    let why = innermost(error);
    if dns {
        return NotSent::UnknownHost(why).into();
    }
    if timeout {
        return NotSent::ConnectTimeout.into();
    }
    match io_kind {
        Some(io::ErrorKind::ConnectionRefused) => NotSent::ConnectionRefused.into(),
        Some(
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable | io::ErrorKind::NotConnected,
        ) => NotSent::Unreachable(why).into(),
        // TCP stood, and the other side hung up on our hello.
        Some(io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => TlsFault::HungUp(why).into(),
        _ => NotSent::Other(why).into(),
    }
}

/// The deepest cause's words: what the kernel or the parser said.
pub(crate) fn innermost(error: &(dyn StdError + 'static)) -> String {
    let deepest = causes(error).last().map(ToString::to_string).unwrap_or_default();
    super::message::printable(&deepest)
}

/// The error and its causes. An `io::Error` that wraps another error leaves that one out of its `source`, so it is
/// looked at by hand.
fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&cause| {
        let wrapped = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        wrapped
            .map(|inner| inner as &(dyn StdError + 'static))
            .or_else(|| cause.source())
    })
}

/// What serde_json says about a body.
pub(crate) fn json(error: &serde_json::Error) -> Unreadable {
    let why = super::message::printable(&error.to_string());
    match error.classify() {
        serde_json::error::Category::Data => Unreadable::WrongShape(why),
        // serde_json has no category of its own for its depth limit of 128.
        _ if why.contains("recursion limit") => Unreadable::TooDeep,
        _ => Unreadable::NotJson(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_shape_and_syntax_are_told_apart() {
        let deep = "[".repeat(100_000);
        let error = serde_json::from_str::<serde_json::Value>(&deep).unwrap_err();
        assert_eq!(json(&error), Unreadable::TooDeep);
        let error = serde_json::from_str::<u8>("\"x\"").unwrap_err();
        assert!(matches!(json(&error), Unreadable::WrongShape(_)));
        for cut in ["{\"a\":", "{\"a\":1}x", "{\"a\":\"\u{0}\"}"] {
            let error = serde_json::from_str::<serde_json::Value>(cut).unwrap_err();
            assert!(matches!(json(&error), Unreadable::NotJson(_)), "{cut}");
        }
    }

    #[test]
    fn what_keeps_a_connection_from_standing_is_named() {
        let os = |code| connect(&io::Error::from_raw_os_error(code), false, false);
        assert_eq!(os(EMFILE), NotSent::TooManyOpenFiles.into());
        assert_eq!(os(ENFILE), NotSent::TooManyOpenFiles.into());
        // Linux: ECONNREFUSED, EHOSTUNREACH, ENETUNREACH.
        assert_eq!(os(111), NotSent::ConnectionRefused.into());
        // ECONNRESET: it may pass, as for one that stops just now.
        assert!(matches!(os(104), ErrorKind::Tls(TlsFault::HungUp(_))));
        assert!(matches!(os(113), ErrorKind::NotSent(NotSent::Unreachable(_))));
        assert!(matches!(os(101), ErrorKind::NotSent(NotSent::Unreachable(_))));
        let other = io::Error::other("x");
        assert_eq!(
            connect(&other, true, false),
            NotSent::UnknownHost("x".into()).into()
        );
        assert_eq!(connect(&other, false, true), NotSent::ConnectTimeout.into());
        // A resolver that can't open a file says nothing about the name.
        assert_eq!(
            connect(&io::Error::from_raw_os_error(EMFILE), true, false),
            NotSent::TooManyOpenFiles.into()
        );
    }

    #[test]
    fn an_error_wrapped_by_io_is_seen() {
        let wrapped = io::Error::new(io::ErrorKind::InvalidData, rustls::Error::HandshakeNotComplete);
        assert!(causes(&wrapped).any(|cause| cause.is::<rustls::Error>()));
    }
}
