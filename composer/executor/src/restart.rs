//! A host that starts between two steps: what it was made to let go of it has again, and what it said of its room was
//! said by a kernel that runs no more.
//!
//! Which start a host was drained under, or asked for room, is kept with the step; before the GPU is unbound, or once the
//! host sees it, it is compared with the one that runs. A host that doesn't tell its starts is taken for one that did not
//! start again.

use crate::context::Context;
use crate::host;
use crate::ledger::Halt;
use crate::live::Live;
use crate::operation::Operation;
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
/// error means that nothing may be unbound. Gives what it could not put back then.
pub(crate) async fn drained(
    cx: &Context,
    live: &Live,
    target: &Target,
    pass: Pass<'_>,
) -> Result<Result<Vec<String>, DriverError>, Halt> {
    let (before, is_forced) =
        live.ask(|operation| (under(operation, Verb::Drain, target), operation.force.is_some()));
    let Some(before) = before else {
        return Ok(Ok(Vec::new()));
    };
    let has_started = match boot(cx, target).await {
        Ok(now) => now.is_some_and(|now| now != before),
        Err(_) if is_forced => false,
        Err(error) => return Ok(Err(error)),
    };
    if !has_started {
        return Ok(Ok(Vec::new()));
    }
    tracing::warn!(operation = %live.id, host = %target.host, "started again after it was drained: drained once more");
    match host::let_go(cx, target, pass).await? {
        Ok(left) => Ok(host::nobody_uses(cx, live, target).await.map(|()| left)),
        Err(error) if is_forced => Ok(Ok(vec![host::untold(&error)])),
        Err(error) => Ok(Err(error)),
    }
}

/// That the host has started since it said that there is room, for people. It is no failure: the host is seen to have the
/// GPUs, or not, under the start that runs.
pub(crate) async fn since_preflight(cx: &Context, live: &Live, target: &Target) -> Option<String> {
    let before = live.ask(|operation| under(operation, Verb::Preflight, target))?;
    let now = cx.metal.started(target).await.ok()??;
    (now != before).then(|| format!("{} has started again since it was asked for room", target.host))
}

/// The start of the host under which a step was done.
fn under(operation: &Operation, verb: Verb, target: &Target) -> Option<String> {
    operation.step_of(verb, target)?.boot.clone()
}
