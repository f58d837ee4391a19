//! From the client's errors to what the driver's callers decide on.

use crate::client::{Effect, Error, ErrorKind as Kind, LinkFault, Message, NotSent, Unreadable};
use poolwright_driver::{DriverError, ErrorKind, Late};
use poolwright_model::fault::{Fault, FaultKind};
use poolwright_model::id::ControlEndpointId;

/// The error of a request. `NoEffect` and its like only where the client is certain of it.
pub(crate) fn driver_error(error: &Error) -> DriverError {
    let mut told = DriverError::new(kind(error), error.to_string())
        .with_hint(error.hint())
        .with_fault(fault_kind(error))
        .with_late(late(error));
    if let Some(id) = error.message().and_then(|message| message.id.clone()) {
        told = told.with_message_id(id);
    }
    told
}

/// Whether a write may still have its effect after this.
fn late(error: &Error) -> Late {
    match (error.task(), error.kind()) {
        (Some(task), _) => Late::Task(task.to_owned()),
        (None, Kind::TaskFailed { .. }) => Late::Never,
        (None, Kind::SessionEnded) if error.effect() == Effect::None => Late::Never,
        (None, _) => Late::Perhaps,
    }
}

fn kind(error: &Error) -> ErrorKind {
    if error.effect() == Effect::Unknown {
        return ErrorKind::OutcomeUnknown;
    }
    match error.kind() {
        // Read back and asked anew, with all that is looked at before a request.
        Kind::SessionEnded => ErrorKind::OutcomeUnknown,
        Kind::CredentialsRefused { .. } => ErrorKind::CredentialsRefused,
        Kind::Refused(refusal) => match refusal.status {
            409 | 412 | 428 => ErrorKind::Conflict,
            405 | 501 => ErrorKind::CannotTell,
            _ => ErrorKind::NoEffect,
        },
        _ => ErrorKind::NoEffect,
    }
}

/// Whether the service refused a write because something changed since it was read: nothing was done, so it
/// may be read and tried again. 412 for `If-Match`, 428 for the ETags in an action's body (`Zone.AddEndpoint`).
pub(crate) fn is_stale(error: &Error) -> bool {
    error.effect() == Effect::None && matches!(error.status(), Some(412 | 428))
}

/// What the error says about the place that was read.
pub(crate) fn fault_kind(error: &Error) -> FaultKind {
    match error.kind() {
        Kind::NotSent(NotSent::ConnectTimeout) | Kind::DeadlineExceeded { .. } => FaultKind::Timeout,
        Kind::NotSent(_) => FaultKind::Unreachable,
        Kind::Tls(_) => FaultKind::Tls,
        Kind::Refused(refusal) => match refusal.status {
            401 | 403 => FaultKind::CredentialsRefused,
            404 | 410 => FaultKind::DanglingLink,
            405 | 501 => FaultKind::NotSupported,
            _ => FaultKind::ServerError,
        },
        Kind::ErrorBody(message) => of_error_body(message),
        Kind::OutcomeUnknown { .. } | Kind::TaskFailed { .. } => FaultKind::ServerError,
        Kind::Unreadable(Unreadable::TooLarge { .. }) | Kind::TooMany { .. } => FaultKind::TooLarge,
        Kind::Unreadable(Unreadable::Lost(_)) => FaultKind::Unreachable,
        Kind::Unreadable(_) => FaultKind::Malformed,
        Kind::NotRedfish { .. } => FaultKind::NotRedfish,
        Kind::CredentialsRefused { .. } | Kind::SessionEnded => FaultKind::CredentialsRefused,
        Kind::Redirected { .. } => FaultKind::OtherOrigin,
        Kind::Link {
            why: LinkFault::OtherOrigin | LinkFault::Climbs,
            ..
        } => FaultKind::OtherOrigin,
        Kind::Link { .. } => FaultKind::Malformed,
        Kind::PageLoop(_) => FaultKind::LinkLoop,
    }
}

/// What an error body says that came in place of a resource.
pub(crate) fn of_error_body(message: &Message) -> FaultKind {
    match message.says_missing() {
        true => FaultKind::DanglingLink,
        false => FaultKind::ServerError,
    }
}

/// A place that could not be read, as a fact of an observation.
pub(crate) fn fault(endpoint: &ControlEndpointId, path: &str, error: &Error) -> Fault {
    Fault::new(
        format!("{endpoint} {path}"),
        fault_kind(error),
        format!("{}; {}", error.kind(), error.hint()),
    )
}
