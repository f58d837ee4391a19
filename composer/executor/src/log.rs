//! The log of operations: a line where one starts, fails, is resumed and ends, within spans that name the operation and
//! the step. The messages are constant; the details are fields.

use crate::line::{Line, Noted};
use crate::operation::{Operation, StepRecord, StopCause};
use crate::state::StepState;
use poolwright_model::id::HostId;
use tracing::{Span, info, info_span, warn};

/// By default a manager logs this target at `info`, and all others at `warn`.
const TARGET: &str = "poolwright::operation";

/// The parent of the log messages about an operation.
pub(crate) fn span(operation: &Operation) -> Span {
    info_span!(target: TARGET, "operation", id = %operation.id, kind = ?operation.kind)
}

/// The parent of the log messages about one of its steps.
pub(crate) fn step_span(operation: &Operation, index: u32) -> Span {
    operation.step(index).map_or_else(Span::none, |record| {
        let target = &record.step.target;
        info_span!(
            target: TARGET,
            "step",
            unit = %target.unit,
            endpoint = %target.unit_at.endpoint,
            verb = %record.step.verb,
        )
    })
}

/// Logs a journal line that has been applied to the operation.
pub(crate) fn line(noted: &Noted, operation: &Operation) {
    let state = operation.state;
    match &noted.line {
        Line::Started => info!(
            target: TARGET,
            by = operation.by,
            units = operation.units().len(),
            steps = operation.steps.len(),
            "operation started"
        ),
        // The operation keeps the first reason, and later ones are not logged.
        Line::Unwind(stop) if operation.stop.as_ref() == Some(stop) => match &stop.cause {
            StopCause::Cancelled(_) => info!(target: TARGET, reason = stop.message, "operation cancelled"),
            StopCause::Failed(step) => warn!(target: TARGET, step, reason = stop.message, "operation failed"),
            StopCause::Deadline => warn!(target: TARGET, reason = stop.message, "operation failed"),
        },
        // A silent endpoint leaves many of these: not logged while another one of the operation is unknown.
        Line::Step(step) | Line::CleanUp(step) if step.state == StepState::Indeterminate => {
            let is_another = |record: &&StepRecord| record.step.index != step.index;
            let others = operation.steps.iter().filter(is_another);
            let mut states = others.flat_map(|record| {
                let reset = operation.clean_up(record.step.index);
                [Some(record.state), reset.map(|line| line.state)]
            });
            if !states.any(|state| state == Some(StepState::Indeterminate)) {
                let unit = operation
                    .step(step.index)
                    .map(|record| record.step.target.unit.as_str());
                warn!(target: TARGET, unit, reason = step.error, "outcome unknown");
            }
        }
        Line::LeftOut { units } => {
            if let Some(first) = units.first() {
                let reason = &first.why;
                warn!(target: TARGET, units = units.len(), first = %first.unit, reason, "units left out");
            }
        }
        _ if state.has_ended() => info!(
            target: TARGET,
            %state,
            seconds = noted.at.duration_since(operation.created).as_secs(),
            reason = operation.error(),
            "operation ended"
        ),
        _ => {}
    }
}

/// Logs that this manager resumes an operation of an earlier run or of another manager.
pub(crate) fn resumed(operation: &Operation) {
    let through = operation.steps.iter().filter(|record| record.state.is_through());
    info!(
        target: TARGET,
        state = %operation.state,
        steps = operation.steps.len(),
        steps_done = through.count(),
        "operation resumed"
    );
}

/// Logs that an operation detaches GPUs whose use no agent checks. No alarm: hosts without an agent are common.
pub(crate) fn use_not_checked(host: &HostId, gpus: usize, reason: &str) {
    info!(target: TARGET, %host, gpus, reason, "use not checked");
}
