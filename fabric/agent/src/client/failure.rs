//! Why there was no answer, in words that lead on.

use poolwright_model::fault::FaultKind;
use rustls::CertificateError;
use std::error::Error;
use std::io;

/// Whether the agent may have got the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    No,
    Perhaps,
}

/// What is told of it.
pub(super) struct Failure {
    pub sent: Sent,
    pub message: String,
    pub hint: Option<String>,
    pub fault: FaultKind,
}

pub(super) fn of(error: &reqwest::Error) -> Failure {
    if let Some(tls) = causes(error).find_map(|cause| cause.downcast_ref::<rustls::Error>()) {
        return of_tls(tls);
    }
    let timed_out = error.is_timeout();
    Failure {
        sent: if error.is_connect() {
            Sent::No
        } else {
            Sent::Perhaps
        },
        message: match (error.is_connect(), timed_out) {
            (true, true) => "can't be reached: no connection within 5 s".to_owned(),
            (true, false) => format!("can't be reached: {}", innermost(error)),
            _ => format!("gave no answer: {}", innermost(error)),
        },
        hint: Some("see on the host whether its agent runs: systemctl status poolwright-agent".to_owned()),
        fault: if timed_out {
            FaultKind::Timeout
        } else {
            FaultKind::Unreachable
        },
    }
}

/// Nothing is served before both sides have shown who they are, so nothing was done.
fn of_tls(error: &rustls::Error) -> Failure {
    use CertificateError as Wrong;
    let (message, hint) = match error {
        rustls::Error::InvalidCertificate(wrong) => match wrong {
            Wrong::Expired | Wrong::ExpiredContext { .. } => (
                "shows a certificate that has expired".to_owned(),
                "enrol it again: poolwright host token, then poolwright-agent enrol on the host",
            ),
            Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => (
                "shows the certificate of another host".to_owned(),
                "see whether the address that it was enrolled with is still this host's",
            ),
            Wrong::UnknownIssuer | Wrong::BadSignature => (
                "shows a certificate that this manager's authority has not signed".to_owned(),
                "see who listens there; enrol the agent again if it is the right one",
            ),
            other => (
                format!("shows a certificate that can't be used: {other}"),
                "enrol it again: poolwright host token, then poolwright-agent enrol on the host",
            ),
        },
        rustls::Error::AlertReceived(alert) => (
            format!("refuses this manager's certificate ({alert:?})"),
            "it was enrolled by another manager's authority, or one of the two clocks is wrong",
        ),
        other => (
            format!("does not come to a secure connection: {other}"),
            "see what listens at this address",
        ),
    };
    Failure {
        sent: Sent::No,
        message,
        hint: Some(hint.to_owned()),
        fault: FaultKind::Tls,
    }
}

/// The deepest cause's words.
pub(super) fn innermost(error: &(dyn Error + 'static)) -> String {
    printable(&causes(error).last().map(ToString::to_string).unwrap_or_default())
}

/// The error and its causes. An `io::Error` leaves the error that it wraps out of its `source`.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&cause| {
        let wrapped = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        wrapped
            .map(|inner| inner as &(dyn Error + 'static))
            .or_else(|| cause.source())
    })
}

/// Words of somebody else, fit to be shown: at most 500 characters, none of them one that controls a terminal.
pub(super) fn printable(words: &str) -> String {
    let shown = words.chars().map(|c| if c.is_control() { ' ' } else { c });
    shown.take(500).collect()
}
