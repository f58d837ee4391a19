//! Waiting for an operation: its steps as they happen, on stderr. Who stops waiting is told how to go on.

use crate::api_client::Api;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::say;
use crate::progress::Progress;
use poolwright_executor::{Operation, OperationState, StepState};
use poolwright_model::id::OperationId;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// Whether to wait for the operation that a command starts, and how long.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct WaitArgs {
    /// Wait until it is over, and show its steps (this is the default)
    #[arg(long, overrides_with = "no_wait")]
    wait: bool,
    /// Only start it, and print its id
    #[arg(long, overrides_with = "wait")]
    no_wait: bool,
    /// The longest to wait; then the operation goes on by itself
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    pub timeout: Duration,
}

impl WaitArgs {
    pub fn waits(self) -> bool {
        !self.no_wait
    }
}

/// Reads `90s`, `10m`, `1h 30m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text
        .parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|signed| Duration::try_from(signed).ok());
    parsed.ok_or_else(|| format!("{text:?} is not a time: write 90s, 10m or 1h 30m"))
}

/// Between two looks at an operation.
const PAUSE: Duration = Duration::from_millis(200);

/// Hears Ctrl-C from now on, also while something else is being done.
pub fn interrupts() -> Result<Signal, Failure> {
    signal(SignalKind::interrupt()).map_err(|error| {
        Failure::new(ExitCode::Generic, format!("Ctrl-C can't be heard: {error}"))
            .with_hint("use --no-wait, and poolwright ops wait later")
    })
}

/// Follows an operation until it is over or needs somebody.
pub async fn follow(
    api: &Api,
    id: &OperationId,
    timeout: Duration,
    interrupts: &mut Signal,
) -> Result<Operation, Failure> {
    let deadline = Instant::now() + timeout;
    let progress = Progress::spinner(format!("operation {id}"));
    let mut told = Vec::new();
    loop {
        let operation: Operation =
            api.get(&["operations", id.as_str()])
                .await
                .map_err(|failure| match failure.code {
                    // The journal has it: a manager that comes back carries it on.
                    ExitCode::Unavailable => {
                        failure.with_hint(format!("it goes on with the manager: poolwright ops wait {id}"))
                    }
                    _ => failure,
                })?;
        tell(&progress, &operation, &mut told);
        if operation.is_settled() {
            return Ok(operation);
        }
        if Instant::now() >= deadline {
            return Err(late(&operation, timeout));
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            _ = interrupts.recv() => {
                return Err(Failure::new(ExitCode::Timeout, format!("no longer waiting; operation {id} goes on"))
                    .with_hint(format!("wait for it again: poolwright ops wait {id}")));
            }
        }
    }
}

/// Tells of each step that came to rest since the last look.
fn tell(progress: &Progress, operation: &Operation, told: &mut Vec<StepState>) {
    told.resize(operation.steps.len(), StepState::Pending);
    for (record, told) in operation.steps.iter().zip(told) {
        let at_rest = !matches!(
            record.state,
            StepState::Pending | StepState::Running | StepState::Undoing
        );
        if at_rest && *told != record.state {
            *told = record.state;
            let detail = record.error.as_ref().or(record.evidence.as_ref());
            let detail = detail.map_or_else(String::new, |detail| format!(" ({detail})"));
            progress.note(&format!("  {}: {}{detail}", record.step, record.state));
        }
    }
    let through = operation
        .steps
        .iter()
        .filter(|record| record.state.is_through())
        .count();
    let waits = operation
        .waits()
        .into_iter()
        .next()
        .map_or_else(String::new, |what| format!(", waiting for {what}"));
    progress.doing(format!(
        "{} is {}: {through} of {} steps done{waits}",
        operation.id,
        operation.state,
        operation.steps.len()
    ));
}

fn late(operation: &Operation, timeout: Duration) -> Failure {
    let waits = match operation.waits().as_slice() {
        [] => String::new(),
        waits => format!("; it waits for {}", waits.join("; ")),
    };
    let message = format!(
        "operation {} is {} after {} s, and goes on{waits}",
        operation.id,
        operation.state,
        timeout.as_secs()
    );
    Failure::new(ExitCode::Timeout, message)
        .with_hint(format!("wait for it again: poolwright ops wait {}", operation.id))
}

/// Says on stderr how it ended, and gives the exit code of that.
pub fn conclude(operation: &Operation) -> ExitCode {
    let code = ExitCode::of_operation(operation.state);
    if operation.state != OperationState::Completed {
        let why = operation
            .error()
            .unwrap_or_else(|| "no reason was given".to_owned());
        let hint = match code {
            ExitCode::Indeterminate => format!(
                "look at the hardware, then: poolwright ops resolve {}",
                operation.id
            ),
            _ => format!(
                "everything is as it was before; see poolwright ops show {}",
                operation.id
            ),
        };
        let failure = Failure::new(
            code,
            format!("operation {} is {}: {why}", operation.id, operation.state),
        );
        say(&failure.with_hint(hint).to_string());
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1h 30m"), Ok(Duration::from_secs(5400)));
        for wrong in ["", "soon", "-5s", "10"] {
            assert!(duration(wrong).unwrap_err().contains("90s"), "{wrong}");
        }
    }
}
