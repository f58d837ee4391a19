//! The check of which GPU is at an address, which precedes each write there.

use crate::{DriverError, ErrorKind, Fabric, GpuIdentity};
use poolwright_model::control::ControlPoint;
use poolwright_model::fault::FaultKind;
use poolwright_model::identity::Match;
use std::time::Duration;

/// Reads the identities of the GPUs at an address, and refuses if they are other GPUs: firmware may have renumbered them, or
/// a technician exchanged cards.
pub async fn refuse_other_gpus(
    fabric: &dyn Fabric,
    (at, name): (&ControlPoint, &str),
    compare: impl Fn(&[GpuIdentity]) -> Match,
    deadline: Duration,
) -> Result<(), DriverError> {
    let unread = |error: DriverError| DriverError {
        message: format!("the identity of {name} can't be read: {error}"),
        // It was a read: nothing was changed. Refused credentials are not tried again.
        kind: match error.kind {
            ErrorKind::CredentialsRefused => error.kind,
            _ => ErrorKind::NoEffect,
        },
        ..error
    };
    let found = fabric.identify(at, deadline).await.map_err(unread)?;
    let Match::Changed(how) = compare(&found) else {
        return Ok(());
    };
    let ControlPoint {
        endpoint, address, ..
    } = at;
    let message =
        format!("identity changed: {address} at {endpoint} is not {name} any more ({how}); nothing was sent");
    Err(DriverError::no_effect(message)
        .with_fault(FaultKind::Conflict)
        .with_hint("run poolwright discover, then try again"))
}
