//! What all changes have in common: a dry run, a key, waiting, and how the result is shown.

use super::Outcome;
use crate::api_client::Api;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::follow::{WaitArgs, conclude, follow, interrupts, some_time};
use crate::output::{Output, say};
use crate::paused;
use crate::tables;
use poolwright_planner::explain;
use poolwright_service::{Change, How, Operation};
use serde::Serialize;
use std::time::Duration;

/// How a change is made.
#[derive(Debug, Clone, clap::Args)]
pub struct ChangeArgs {
    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,
    /// The same key again is the same operation: for repeating what may have been done
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Undo whatever is not done within this time, such as 10m
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    deadline: Option<Duration>,
    #[command(flatten)]
    wait: WaitArgs,
}

/// Pulling GPUs that somebody uses, and giving up those that are gone.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ForceArgs {
    /// Pull GPUs although they are in use, and give up those that are gone; say why with --reason
    #[arg(long, requires = "reason")]
    force: bool,
    /// Why they are pulled; it is kept with the operation
    #[arg(long, value_name = "TEXT", requires = "force")]
    reason: Option<String>,
}

/// Whole seconds, and never none.
fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs().max(1)).unwrap_or(u32::MAX)
}

/// Resting a change on what was seen before.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct StaleArgs {
    /// Go by what was seen last, also of endpoints that do not answer now; it is kept with the operation
    #[arg(long)]
    allow_stale: bool,
}

/// A part, rather than nothing.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct PartialArgs {
    /// Go on without GPUs that fail, rather than undo everything; exit code 8 where some are left out
    #[arg(long)]
    partial_ok: bool,
}

/// What a change may do beyond the usual.
#[derive(Debug, Clone, Default)]
pub struct Allowed {
    force: Option<String>,
    stale: bool,
    partial: bool,
}

impl From<ForceArgs> for Allowed {
    fn from(force: ForceArgs) -> Self {
        (force, StaleArgs::default()).into()
    }
}

impl From<(StaleArgs, PartialArgs)> for Allowed {
    fn from((stale, partial): (StaleArgs, PartialArgs)) -> Self {
        Self {
            stale: stale.allow_stale,
            partial: partial.partial_ok,
            ..Self::default()
        }
    }
}

impl From<(ForceArgs, PartialArgs)> for Allowed {
    fn from((force, partial): (ForceArgs, PartialArgs)) -> Self {
        Self {
            force: force.reason,
            partial: partial.partial_ok,
            ..Self::default()
        }
    }
}

impl From<(ForceArgs, StaleArgs)> for Allowed {
    fn from((force, stale): (ForceArgs, StaleArgs)) -> Self {
        Self {
            force: force.reason,
            stale: stale.allow_stale,
            ..Self::default()
        }
    }
}

#[derive(Serialize)]
struct Request<'a, T> {
    #[serde(flatten)]
    what: &'a T,
    how: How,
}

impl ChangeArgs {
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Asks the manager for a change, waits for it unless told not to, and shows what came of it.
    pub async fn make(
        &self,
        api: &Api,
        path: &[&str],
        what: &impl Serialize,
        allowed: impl Into<Allowed>,
        output: Output,
    ) -> Outcome {
        self.make_known(api, path, what, allowed, None, output).await
    }

    /// The same, for a change that is one also where nothing is done on the hardware: `done` says what is so then.
    pub async fn make_known(
        &self,
        api: &Api,
        path: &[&str],
        what: &impl Serialize,
        allowed: impl Into<Allowed>,
        done: Option<&str>,
        output: Output,
    ) -> Outcome {
        // A dry run under a key would be answered with the operation of that key.
        let key = (!self.dry_run).then(|| {
            self.key
                .clone()
                .unwrap_or_else(|| uuid::Uuid::new_v4().simple().to_string())
        });
        let Allowed {
            force,
            stale,
            partial,
        } = allowed.into();
        let how = How {
            dry_run: self.dry_run,
            key: key.clone(),
            force,
            allow_stale: stale,
            partial_ok: partial,
            deadline_s: self.deadline.map(seconds),
            seen: None,
        };
        let asked = api.post::<Change>(path, &Request { what, how }).await;
        let mut change = asked.map_err(|failure| match (failure.code, &key) {
            (ExitCode::Indeterminate, Some(key)) => failure.with_hint(format!(
                "repeat it with --key {key}: it is done once, and you see what became of it"
            )),
            _ => failure,
        })?;
        let Some(started) = &change.operation else {
            show(&change, done, output)?;
            say(match (self.dry_run, change.replayed, done) {
                (true, ..) => "this was a dry run: nothing was done",
                (false, true, _) => "asked for before under this key, and there was nothing to do",
                (false, false, Some(_)) => "nothing was to be done on the hardware: no operation was started",
                (false, false, None) => "there was nothing to do on the hardware: no operation was started",
            });
            if self.dry_run {
                paused::tell(api, &change.plan).await;
            }
            return Ok(ExitCode::Ok);
        };
        let mut interrupts = interrupts()?;
        say(&match (change.replayed, started.state.has_ended()) {
            (false, _) => format!("operation {} started", started.id),
            (true, false) => format!("operation {} does it already", started.id),
            (true, true) => format!("already done by operation {}", started.id),
        });
        if !self.wait.waits() {
            show(&change, done, output)?;
            say(&format!("wait for it: poolwright ops wait {}", started.id));
            return Ok(ExitCode::Ok);
        }
        // What is over was told when it was done.
        let ended = match change.replayed && started.is_settled() {
            true => started.clone(),
            false => follow(api, &started.id, self.wait.timeout, &mut interrupts).await?,
        };
        let code = conclude(&ended);
        change.operation = Some(ended);
        show(&change, done, output)?;
        Ok(code)
    }
}

const STEPS_SHOWN: usize = 50;

fn show(change: &Change, done: Option<&str>, output: Output) -> Result<(), Failure> {
    output.show_as(change, &tables::plan_steps(&change.plan), |_| {
        // What was planned reads as if it were so. Of an operation that failed that is not said.
        let failed = change.operation.as_ref().filter(|operation| has_failed(operation));
        if let Some(operation) = failed {
            return format!("operation {} is {}", operation.id, operation.state);
        }
        let mut lines = match (done, change.plan.steps.is_empty()) {
            (Some(done), true) => vec![done.to_owned()],
            (Some(done), false) => [vec![done.to_owned()], explain(&change.plan)].concat(),
            (None, _) => explain(&change.plan),
        };
        let given_up = change.given_up.iter();
        lines.extend(given_up.map(|gpu| {
            format!("{gpu} is given up: it is not where it was put; if it comes back it is reset before anybody gets it")
        }));
        lines.extend(change.advice.iter().cloned());
        let steps = &change.plan.steps;
        // What would be done, where it can be taken in at a glance; `-o csv` has the steps of any plan.
        if change.operation.is_none() && steps.len() <= STEPS_SHOWN {
            lines.extend(steps.iter().map(|step| format!("  {}. {step}", step.index + 1)));
        }
        lines.extend(
            change
                .operation
                .as_ref()
                .map(|operation| format!("operation {} is {}", operation.id, operation.state)),
        );
        lines.join("\n")
    })
}

/// It is settled, and what it was to do is not so, or not known to be.
fn has_failed(operation: &Operation) -> bool {
    let code = ExitCode::of_operation(operation);
    operation.is_settled() && !matches!(code, ExitCode::Ok | ExitCode::Partial)
}

/// How an operation ended whose steps were told while it ran.
pub fn show_ended(operation: &Operation, output: Output) -> Result<(), Failure> {
    output.show_as(operation, &tables::steps(operation), |width| {
        tables::operations(std::slice::from_ref(operation)).render(width)
    })
}

/// The table of operations, for a single one.
pub fn show_operation(operation: &Operation, output: Output) -> Result<(), Failure> {
    output.show_as(operation, &tables::steps(operation), |width| {
        let summary = tables::operations(std::slice::from_ref(operation)).render(width);
        format!("{summary}\n{}", tables::steps(operation).render(width))
    })
}
