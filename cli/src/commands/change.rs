//! What all changes have in common: a dry run, a key, waiting, and how the result is shown.

use super::Outcome;
use crate::api_client::Api;
use crate::detach::{self, Ask, ConfirmDetachArgs, Detached};
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::follow::{WaitArgs, conclude, follow, interrupts};
use crate::output::{Output, say};
use crate::paused;
use crate::service_failure::operation_exit_code;
use crate::tables;
use poolwright_model::step::Step;
use poolwright_planner::{Plan, explain};
use poolwright_service::{Change, How, Operation, SkippedStep};
use poolwright_terminal::some_time;
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

/// The confirmation of a change that detaches GPUs.
pub struct Guarded<'a> {
    pub detach: ConfirmDetachArgs,
    /// The action to confirm, such as `release chat`.
    pub what: String,
    pub ask: Ask,
    /// The plan, unless only the manager can make it.
    pub plan: Option<&'a Plan>,
}

/// Options of a change that are not in [`Allowed`].
#[derive(Clone, Copy, Default)]
struct Beside<'a> {
    guarded: Option<&'a Guarded<'a>>,
    /// The change may detach no more GPUs.
    max_detach: Option<u32>,
    /// The result to show where no hardware is changed.
    done: Option<&'a str>,
}

impl ChangeArgs {
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Whether it says how an operation is to run.
    pub fn begins(&self) -> bool {
        self.key.is_some() || self.deadline.is_some() || !self.wait.waits()
    }

    /// The key that the user gave.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Asks the manager for a change that detaches GPUs. Without `--yes` it first shows them and asks for confirmation.
    pub async fn make_guarded(
        &self,
        api: &Api,
        path: &[&str],
        what: &impl Serialize,
        allowed: impl Into<Allowed>,
        guarded: &Guarded<'_>,
        output: Output,
    ) -> Outcome {
        let allowed = allowed.into();
        let most = match self.dry_run || guarded.detach.confirm.yes {
            true => guarded.detach.max_detach,
            false => Some(self.confirmed(api, path, what, &allowed, guarded).await?),
        };
        let beside = Beside {
            guarded: Some(guarded),
            max_detach: most,
            done: None,
        };
        self.run(api, path, what, allowed, beside, output).await
    }

    /// The number of GPUs that the user confirmed; the change itself may detach no more.
    async fn confirmed(
        &self,
        api: &Api,
        path: &[&str],
        what: &impl Serialize,
        allowed: &Allowed,
        guarded: &Guarded<'_>,
    ) -> Result<u32, Failure> {
        let detached = match guarded.plan {
            Some(plan) => Detached::by_plan(plan),
            None => {
                let how = How {
                    dry_run: true,
                    ..self.how(allowed)
                };
                match api.post::<Change>(path, &Request { what, how }).await {
                    Ok(change) => Detached::by_plan(&change.plan),
                    // It may have been done before under this key. Then the manager replays the result; with a limit of
                    // 0 it refuses everything else.
                    Err(failure)
                        if self.key.is_some()
                            && matches!(failure.code, ExitCode::NotFound | ExitCode::Conflict) =>
                    {
                        return Ok(0);
                    }
                    Err(failure) if failure.code == ExitCode::Indeterminate => {
                        let message = format!("the dry run was not answered: {}", failure.message);
                        return Err(Failure::new(ExitCode::Unavailable, message)
                            .with_hint("nothing was changed; try again"));
                    }
                    Err(failure) => return Err(failure),
                }
            }
        };
        let Guarded {
            detach, what, ask, ..
        } = guarded;
        detach.check(api, &detached, what, *ask).await?;
        Ok(detached.count())
    }

    fn how(&self, allowed: &Allowed) -> How {
        How {
            dry_run: self.dry_run,
            force: allowed.force.clone(),
            allow_stale: allowed.stale,
            partial_ok: allowed.partial,
            deadline_s: self.deadline.map(seconds),
            ..How::default()
        }
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
        let beside = Beside {
            done,
            ..Beside::default()
        };
        self.run(api, path, what, allowed.into(), beside, output).await
    }

    async fn run(
        &self,
        api: &Api,
        path: &[&str],
        what: &impl Serialize,
        allowed: Allowed,
        beside: Beside<'_>,
        output: Output,
    ) -> Outcome {
        let Beside {
            guarded,
            max_detach,
            done,
        } = beside;
        // A dry run changes nothing, so it needs no key.
        let key = (!self.dry_run).then(|| {
            self.key
                .clone()
                .unwrap_or_else(|| uuid::Uuid::new_v4().simple().to_string())
        });
        let how = How {
            key: key.clone(),
            max_detach,
            ..self.how(&allowed)
        };
        let request = Request { what, how };
        let mut interrupts = interrupts()?;
        let asked = tokio::select! {
            biased;
            asked = api.post::<Change>(path, &request) => asked,
            _ = interrupts.recv() => return Err(interrupted(key.as_deref())),
        };
        let mut change = asked.map_err(|failure| match (failure.code, &key) {
            (ExitCode::Indeterminate, Some(key)) => failure.with_hint(format!(
                "repeat it with --key {key}: it is done once, and you see what became of it"
            )),
            _ => failure,
        })?;
        if let Some(guarded) = guarded {
            let detached = Detached::by_plan(&change.plan);
            if self.dry_run {
                guarded.detach.allow(&detached)?;
            }
            // The question showed it already.
            if !change.replayed && (self.dry_run || guarded.detach.confirm.yes) {
                detach::tell(api, &detached).await;
            }
        }
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
        say(&match (change.replayed, started.state.has_ended()) {
            (false, _) => format!("operation {} started", started.id),
            (true, false) => format!("operation {} does it already", started.id),
            (true, true) if has_failed(started) => format!(
                "operation {} ended under this key; to try again, use another key",
                started.id
            ),
            (true, true) => format!("already done by operation {}", started.id),
        });
        if !self.wait.waits() {
            show(&change, done, output)?;
            if started.state.has_ended() {
                return Ok(conclude(started));
            }
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

/// The failure for Ctrl-C before the manager answered.
fn interrupted(key: Option<&str>) -> Failure {
    let again = match key {
        Some(key) => format!("; or repeat it with --key {key}: it is done once"),
        None => String::new(),
    };
    Failure::new(
        ExitCode::Interrupted,
        "interrupted before the manager answered: the operation may have started",
    )
    .with_hint(format!(
        "look: poolwright ops list; then poolwright ops wait OPERATION, or poolwright ops cancel OPERATION{again}"
    ))
}

const STEPS_SHOWN: usize = 50;

fn show(change: &Change, done: Option<&str>, output: Output) -> Result<(), Failure> {
    // What an operation skipped is in its own steps.
    let skipped = change.operation.is_none().then_some(change.skipped.as_slice());
    output.show_as(change, &tables::plan_steps(&change.plan, skipped), |_| {
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
            let line = |step: &Step| format!("  {}. {step}{}", step.index + 1, note_of(step, &change.skipped));
            lines.extend(steps.iter().map(line));
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

fn note_of(step: &Step, skipped: &[SkippedStep]) -> String {
    let found = skipped.iter().find(|skipped| skipped.index == step.index);
    found
        .map(|found| format!(" (skipped: {})", found.reason))
        .unwrap_or_default()
}

/// It is settled, and what it was to do is not so, or not known to be.
fn has_failed(operation: &Operation) -> bool {
    let code = operation_exit_code(operation);
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
