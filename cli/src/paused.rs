//! A line for each pause that a plan would meet: to plan and to try goes on while something is paused, and whoever
//! reads the plan is told that it can't be carried out just now.

use crate::api_client::Api;
use crate::output::say;
use poolwright_model::id::ControlEndpointId;
use poolwright_planner::Plan;
use poolwright_service::{Pause, Paused};
use std::collections::BTreeSet;

/// Says on stderr which pauses hold this plan, and what was planned around.
pub async fn tell(api: &Api, plan: &Plan) {
    let pauses: Vec<Pause> = match api.get(&["pauses"]).await {
        Ok(pauses) => pauses,
        // What was asked for is shown already.
        Err(failure) => return tracing::debug!("what is paused is not known: {failure}"),
    };
    lines(&pauses, plan).iter().for_each(|line| say(line));
}

fn lines(pauses: &[Pause], plan: &Plan) -> Vec<String> {
    let steps = plan.steps.iter();
    let touched: BTreeSet<&ControlEndpointId> = steps.map(|step| &step.target.unit_at.endpoint).collect();
    let line = |pause: &Pause| {
        let holds = match &pause.what {
            Paused::All | Paused::Restored | Paused::Damaged(_) => !touched.is_empty(),
            Paused::Endpoint(endpoint) => touched.contains(endpoint),
            Paused::Automation | Paused::Schedule(_) => return None,
        };
        let resume = pause.what.resume();
        match (holds, &pause.what) {
            (true, _) => Some(format!(
                "can't be done just now: {pause}; let it go on first: {resume}"
            )),
            (false, Paused::Endpoint(_)) => Some(format!("planned around what is there: {pause} ({resume})")),
            (false, _) => None,
        }
    };
    pauses.iter().filter_map(line).collect()
}
