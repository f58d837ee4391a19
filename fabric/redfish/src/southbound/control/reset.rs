//! Cleaning a GPU that was given back: `#Processor.Reset`, and seeing that it happened.
//!
//! A yes is not a reset. Seen is it when the processor was found in another state than Enabled and is Enabled
//! again, when its ETag changed, or when the service made a task of it that ended well. A service that shows
//! none of these can't tell.

use super::{Call, Failed, identity};
use crate::client::Answer;
use poolwright_driver::{DriverError, ResetSeen};
use poolwright_model::control::ControlPoint;
use poolwright_model::fault::FaultKind;
use poolwright_redfish_model::{self as redfish, Action};
use serde::Serialize;
use std::time::Duration;
use tokio::time::Instant;

/// What is asked for, the most thorough first.
const RESET_TYPES: [&str; 4] = ["ForceRestart", "PowerCycle", "FullPowerCycle", "GracefulRestart"];

/// How long a reset may take to show that it began.
const BEGINS_WITHIN: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Reset<'a> {
    reset_type: &'a str,
}

/// Resets all processors of an unbound unit.
pub(super) async fn reset(call: &Call<'_>, unit: &ControlPoint) -> Result<ResetSeen, DriverError> {
    let processors = identity::processors(call, unit).await?;
    let mut seen = if processors.is_empty() {
        ResetSeen::CannotTell
    } else {
        ResetSeen::Done
    };
    for path in processors {
        if reset_one(call, &path).await? == ResetSeen::CannotTell {
            seen = ResetSeen::CannotTell;
        }
    }
    Ok(seen)
}

async fn reset_one(call: &Call<'_>, path: &str) -> Result<ResetSeen, DriverError> {
    let before = call.read::<redfish::Processor>(path).await?;
    let action = before
        .value
        .actions
        .as_deref()
        .and_then(|actions| actions.reset.as_deref());
    let Some((target, kind)) = action.and_then(target_and_type) else {
        return Ok(ResetSeen::CannotTell);
    };
    let answer = match call.post(target, &Reset { reset_type: kind }).await {
        Ok(answer) => answer,
        Err(Failed::Ended(error)) => return Err(error),
        Err(Failed::Stale(error)) => return Err(crate::southbound::errors::driver_error(&error)),
    };
    wait_until_ready(call, path, before.etag, &answer).await
}

/// Where to send it and what to ask for; `None` where the service takes nothing that we know.
fn target_and_type(action: &Action) -> Option<(&str, &'static str)> {
    let target = action.target.as_deref()?;
    let kind = match action.allowable_values("ResetType") {
        Some(allowed) => RESET_TYPES
            .into_iter()
            .find(|kind| allowed.iter().any(|value| value == kind))?,
        None => RESET_TYPES[0],
    };
    Some((target, kind))
}

/// Reads until it is Enabled again. An error from here on says that the outcome is unknown.
async fn wait_until_ready(
    call: &Call<'_>,
    path: &str,
    etag_before: Option<String>,
    answer: &Answer,
) -> Result<ResetSeen, DriverError> {
    let begins_by = Instant::now() + BEGINS_WITHIN;
    let mut happened = answer.task.is_some();
    let mut pause = FIRST_PAUSE;
    loop {
        let unread = |error: DriverError| {
            DriverError::unknown(format!("reset was accepted; reading {path} back failed: {error}"))
                .with_fault(error.fault)
        };
        let now = call.read::<redfish::Processor>(path).await.map_err(unread)?;
        let changed = etag_before
            .as_ref()
            .zip(now.etag.as_ref())
            .is_some_and(|(before, now)| before != now);
        let Some(state) = now
            .value
            .status
            .as_deref()
            .and_then(|status| status.state.as_ref())
        else {
            return Ok(ResetSeen::CannotTell);
        };
        let ready = *state == redfish::State::Enabled;
        happened |= changed || !ready;
        match (ready, happened) {
            (true, true) => return Ok(ResetSeen::Done),
            (true, false) if Instant::now() >= begins_by => return Ok(ResetSeen::CannotTell),
            _ => {}
        }
        if Instant::now() + pause >= call.until {
            let message = format!("reset was accepted; at the deadline {path} is {state}, not yet Enabled");
            return Err(DriverError::unknown(message).with_fault(FaultKind::Timeout));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_service_allows_is_asked_for() {
        let action = Action::at("/redfish/v1/x/Actions/Processor.Reset");
        assert_eq!(target_and_type(&action).unwrap().1, "ForceRestart");
        let graceful = action
            .clone()
            .with_allowable_values("ResetType", &["Nmi", "GracefulRestart"]);
        assert_eq!(target_and_type(&graceful).unwrap().1, "GracefulRestart");
        let none = action.with_allowable_values("ResetType", &["Suspend"]);
        assert!(target_and_type(&none).is_none());
        assert!(target_and_type(&Action::default()).is_none());
    }
}
