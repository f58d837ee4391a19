//! A line for each endpoint that does not answer, beside what is shown of the pool: what such an endpoint had is
//! shown as it was, or not at all; and for each operation that somebody must look at.

use crate::api_client::Api;
use crate::output::say;
use poolwright_service::Status;

const TOLD: usize = 5;

/// Says on stderr what is silent, and what needs somebody; `-o json` of `endpoint list` and of the manager's status have it as well.
pub async fn tell(api: &Api) {
    let status: Status = match api.get(&["status"]).await {
        Ok(status) => status,
        // What was asked for is shown already.
        Err(failure) => return tracing::debug!("what is silent is not known: {failure}"),
    };
    for silent in status.silent.iter().take(TOLD) {
        say(&silent.to_string());
    }
    if let Some(more) = status.silent.len().checked_sub(TOLD).filter(|more| *more > 0) {
        say(&format!("and {more} more do not answer: poolwright doctor"));
    }
    for alarm in status.alarms.iter().take(TOLD) {
        say(&format!("{alarm} (poolwright ops show {})", alarm.operation));
    }
    if let Some(more) = status.alarms.len().checked_sub(TOLD).filter(|more| *more > 0) {
        say(&format!(
            "and {more} more operations need somebody: poolwright doctor"
        ));
    }
}
