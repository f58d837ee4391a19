//! A host that starts between two steps: what it was made to let go of it has again.
//!
//! Which start a host was drained under is kept with the step; before the GPU is unbound it is compared with the one
//! that runs. A host that doesn't tell its starts is taken for one that did not start again.

use crate::context::Context;
use crate::host;
use crate::ledger::Halt;
use crate::live::Live;
use crate::pause::Pass;
use poolwright_driver::{DriverError, ErrorKind};
use poolwright_model::step::{Target, Verb};

/// Which start of the host runs; `None` where nobody there can tell.
pub(crate) async fn boot(cx: &Context, target: &Target) -> Result<Option<String>, DriverError> {
    match cx.metal.started(target).await {
        Err(error) if error.kind == ErrorKind::CannotTell => Ok(None),
        Err(error) => {
            let message = format!("{} doesn't say since when it runs: {error}", target.host);
            Err(DriverError::no_effect(message).with_hint("see why, or force with a reason"))
        }
        boot => boot,
    }
}

/// Sees to it that the host that runs has let go of the GPUs: drains it again where it has started since it did. An
/// error means that nothing may be unbound.
pub(crate) async fn drained(
    cx: &Context,
    live: &Live,
    target: &Target,
    pass: Pass<'_>,
) -> Result<Result<(), DriverError>, Halt> {
    let (before, is_forced) =
        live.ask(|operation| (drained_under(operation, target), operation.force.is_some()));
    let Some(before) = before else {
        return Ok(Ok(()));
    };
    let has_started = match boot(cx, target).await {
        Ok(now) => now.is_some_and(|now| now != before),
        Err(_) if is_forced => false,
        Err(error) => return Ok(Err(error)),
    };
    if !has_started {
        return Ok(Ok(()));
    }
    tracing::warn!(operation = %live.id, host = %target.host, "started again after it was drained: drained once more");
    match host::let_go(cx, target, pass).await? {
        Err(error) if !is_forced => Ok(Err(error)),
        _ => Ok(host::nobody_uses(cx, live, target).await),
    }
}

/// The start under which the host let go of what is to be unbound.
fn drained_under(operation: &crate::Operation, target: &Target) -> Option<String> {
    let mut steps = operation.steps.iter();
    let drain = steps.find(|record| {
        let of = &record.step.target;
        record.step.verb == Verb::Drain && of.unit == target.unit && of.host_port == target.host_port
    })?;
    drain.boot.clone()
}
