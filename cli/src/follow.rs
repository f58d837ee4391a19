//! Waiting for an operation: its steps as they happen, on stderr. Who stops waiting is told how to go on.

use crate::api_client::Api;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::names;
use crate::output::human::counted;
use crate::output::say;
use crate::progress::Progress;
use crate::service_failure::operation_exit_code;
use poolwright_executor::{Operation, StepRecord, StepState};
use poolwright_model::id::OperationId;
use poolwright_model::step::Verb;
use poolwright_terminal::duration;
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

/// Between two looks at an operation.
const PAUSE: Duration = Duration::from_millis(200);
/// The longest that one look is waited for.
const LOOK: Duration = Duration::from_secs(30);
/// How long a manager that does not answer is asked again: a restart takes a few seconds.
const ABSENCE: Duration = Duration::from_secs(30);

/// Hears Ctrl-C from now on, also while something else is being done.
pub fn interrupts() -> Result<Signal, Failure> {
    signal(SignalKind::interrupt()).map_err(|error| {
        Failure::new(ExitCode::Generic, format!("Ctrl-C can't be heard: {error}"))
            .with_hint("use --no-wait, and poolwright ops wait later")
    })
}

/// Follows an operation until it is over or needs somebody. A manager that is gone for a while is asked again: the
/// operation is in its journal, and goes on with it.
pub async fn follow(
    api: &Api,
    id: &OperationId,
    timeout: Duration,
    interrupts: &mut Signal,
) -> Result<Operation, Failure> {
    let deadline = Instant::now() + timeout;
    let progress = Progress::spinner(format!("operation {id}"));
    let mut told = Told::default();
    let mut absent_since: Option<Instant> = None;
    loop {
        let looked = tokio::select! {
            looked = look(api, id) => looked,
            _ = interrupts.recv() => return Err(detached(id)),
        };
        let now = Instant::now();
        match looked {
            Ok(operation) => {
                absent_since = None;
                tell(&progress, &operation, &mut told);
                if operation.is_settled() {
                    return Ok(operation);
                }
                if now >= deadline {
                    return Err(late(&operation, timeout));
                }
            }
            Err(failure) if failure.may_pass => {
                if absent_since.is_none() {
                    let again = ABSENCE.min(deadline.saturating_duration_since(now)).as_secs();
                    progress.note(&format!("{}; asking again for up to {again} s", failure.message));
                    progress.doing(format!("waiting for the manager to carry on operation {id}"));
                }
                let since = *absent_since.get_or_insert(now);
                if now >= deadline || now - since >= ABSENCE {
                    return Err(lost(id, failure, now >= deadline, timeout));
                }
            }
            Err(failure) => return Err(failure),
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            _ = interrupts.recv() => return Err(detached(id)),
        }
    }
}

async fn look(api: &Api, id: &OperationId) -> Result<Operation, Failure> {
    let path = ["operations", id.as_str()];
    match tokio::time::timeout(LOOK, api.get(&path)).await {
        Ok(looked) => match looked {
            Err(failure) => Err(names::suggest(api, failure, &[("operations", id.as_str())]).await),
            found => found,
        },
        Err(_) => {
            let message = format!("the manager gave no answer within {} s", LOOK.as_secs());
            Err(Failure::new(ExitCode::Unavailable, message).that_may_pass())
        }
    }
}

fn detached(id: &OperationId) -> Failure {
    Failure::new(
        ExitCode::Interrupted,
        format!("no longer waiting; operation {id} goes on"),
    )
    .with_hint(format!(
        "cancel it and undo its steps: poolwright ops cancel {id}; wait for it again: poolwright ops wait {id}"
    ))
}

/// The manager did not come back while it was waited for.
fn lost(id: &OperationId, failure: Failure, in_time: bool, timeout: Duration) -> Failure {
    let (code, waited) = match in_time {
        true => (ExitCode::Timeout, timeout),
        false => (ExitCode::Unavailable, ABSENCE),
    };
    let message = format!(
        "what became of operation {id} could not be asked within {} s: {}",
        waited.as_secs(),
        failure.message
    );
    Failure::new(code, message).with_hint(format!(
        "it is in the journal, and goes on with the manager; once that answers: poolwright ops wait {id}"
    ))
}

/// What has been told of each step.
#[derive(Default)]
struct Told(Vec<StepState>);

/// Tells of each step that came to rest since the last look.
fn tell(progress: &Progress, operation: &Operation, told: &mut Told) {
    for line in news(operation, told) {
        progress.note(&line);
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

/// The finished steps, a line each. Equal answers of one host for several GPUs share a line: its checks before the
/// first change, and the steps that it can't do.
fn news(operation: &Operation, Told(told): &mut Told) -> Vec<String> {
    told.resize(operation.steps.len(), StepState::Pending);
    let mut lines = Vec::new();
    for (at, record) in operation.steps.iter().enumerate() {
        if !is_at_rest(record) || told[at] == record.state {
            continue;
        }
        let alike: Vec<usize> = match (record.step.verb, record.state) {
            (verb @ Verb::Preflight, _) | (verb, StepState::NotPossible) => {
                let of_host = |(_, other): &(usize, &StepRecord)| {
                    other.step.verb == verb && other.step.target.host == record.step.target.host
                };
                let questions = || operation.steps.iter().enumerate().filter(of_host);
                if !operation.is_settled() && questions().any(|(_, other)| !is_at_rest(other)) {
                    continue;
                }
                let answered_alike = |(place, other): &(usize, &StepRecord)| {
                    other.state == record.state
                        && detail(other) == detail(record)
                        && told[*place] != other.state
                };
                questions()
                    .filter(answered_alike)
                    .map(|(place, _)| place)
                    .collect()
            }
            _ => vec![at],
        };
        let gpus: usize = alike
            .iter()
            .map(|place| operation.steps[*place].step.target.gpus.len())
            .sum();
        let (host, many) = (&record.step.target.host, counted(gpus, "GPU"));
        let what = match (alike.as_slice(), record.step.verb) {
            ([_], _) => record.step.to_string(),
            (_, Verb::Preflight) => format!("ask {host} for room for {many}"),
            (_, Verb::Ready) => format!("make {many} ready on {host}"),
            (_, verb) => format!("{verb} {many} on {host}"),
        };
        let why = detail(record).map_or_else(String::new, |detail| format!(" ({detail})"));
        lines.push(match (record.step.verb, record.state) {
            (Verb::Drain, StepState::NotPossible) => format!("  {many} on {host}: use not checked{why}"),
            _ => format!("  {what}: {}{why}", record.state),
        });
        for place in alike {
            told[place] = record.state;
        }
    }
    lines
}

fn is_at_rest(record: &StepRecord) -> bool {
    !matches!(
        record.state,
        StepState::Pending | StepState::Running | StepState::Undoing
    )
}

/// A step's error or evidence. An error begins with the step, which its line names already.
fn detail(record: &StepRecord) -> Option<&str> {
    let said = record.error.as_deref().or(record.evidence.as_deref())?;
    let of_step = said.strip_prefix(&record.step.to_string());
    Some(of_step.and_then(|rest| rest.strip_prefix(": ")).unwrap_or(said))
}

fn late(operation: &Operation, timeout: Duration) -> Failure {
    let waits = match operation.waits().as_slice() {
        [] => String::new(),
        waits => format!("; it waits for {}", waits.join("; ")),
    };
    let message = format!(
        "operation {} is {} after {timeout:?}, and goes on{waits}",
        operation.id, operation.state
    );
    Failure::new(ExitCode::Timeout, message)
        .with_hint(format!("wait for it again: poolwright ops wait {}", operation.id))
}

/// Says on stderr how it ended, and gives the exit code of that.
pub fn conclude(operation: &Operation) -> ExitCode {
    let code = operation_exit_code(operation);
    if code != ExitCode::Ok {
        let why = operation
            .error()
            .unwrap_or_else(|| "no reason was given".to_owned());
        let hint = match code {
            ExitCode::Indeterminate => format!(
                "look at the hardware, then: poolwright ops resolve {}",
                operation.id
            ),
            ExitCode::Partial => {
                format!("the rest stands; each step: poolwright ops show {}", operation.id)
            }
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
