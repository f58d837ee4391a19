//! From the client's errors to what the driver's callers decide on.

use crate::client::{Effect, Error, ErrorKind as Kind, LinkFault, Message, NotSent, TlsFault, Unreadable};
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
        // A service that starts or stops hangs up, which says nothing about its certificate.
        Kind::Tls(TlsFault::HungUp(_)) => FaultKind::Unreachable,
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

/// Whether a fault says that an endpoint's systems, chassis or processors could not be read, so that hosts or GPUs may be
/// missing in the observation. A dangling link to a single resource is no such fault: real services have some.
pub fn hides_machines(fault: &Fault) -> bool {
    let Some((_, path)) = fault.source.split_once(' ') else {
        return false;
    };
    let Some(below) = path.strip_prefix("/redfish/v1/") else {
        return false;
    };
    let parts: Vec<&str> = below.trim_end_matches('/').split('/').collect();
    let (is_machine, is_list) = match parts[..] {
        ["Systems" | "Chassis"] => (true, true),
        ["Systems" | "Chassis", _]
        | ["Systems" | "Chassis", _, "Processors"]
        | ["Systems" | "Chassis", _, "Processors", _] => (true, false),
        _ => (false, false),
    };
    is_machine
        && match fault.kind {
            FaultKind::Unreachable
            | FaultKind::Timeout
            | FaultKind::Tls
            | FaultKind::CredentialsRefused
            | FaultKind::NotRedfish
            | FaultKind::OtherOrigin
            | FaultKind::LinkLoop
            | FaultKind::Malformed
            | FaultKind::TooLarge
            | FaultKind::ServerError => true,
            FaultKind::DanglingLink | FaultKind::NotSupported => is_list,
            FaultKind::Conflict
            | FaultKind::Quirk
            | FaultKind::Incomplete
            | FaultKind::Missing
            | FaultKind::NotLookedAt => false,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_systems_chassis_and_processors_hide_machines() {
        let hides = |source: &str, kind| hides_machines(&Fault::new(source, kind, "x"));
        for path in [
            "Systems",
            "Systems/1",
            "Systems/1/Processors",
            "Systems/1/Processors/GPU1",
            "Chassis/",
            "Chassis/1",
        ] {
            let source = format!("box-1 /redfish/v1/{path}");
            assert!(hides(&source, FaultKind::Malformed), "{path}");
            assert!(hides(&source, FaultKind::ServerError), "{path}");
            assert!(!hides(&source, FaultKind::Incomplete), "{path}");
            let is_list = matches!(path, "Systems" | "Chassis/");
            assert_eq!(hides(&source, FaultKind::DanglingLink), is_list, "{path}");
        }
        for source in [
            "box-1",
            "box-1 /redfish/v1/Systems/1/Memory",
            "box-1 /redfish/v1/Fabrics/1",
            "box-1 /redfish/v1/Chassis/1/PCIeDevices/1",
        ] {
            assert!(!hides(source, FaultKind::Malformed), "{source}");
        }
    }
}
