//! `ops`: operations, and what to do with those that need somebody.

use super::Outcome;
use super::change::{ChangeArgs, ForceArgs, Guarded, StaleArgs, show_ended, show_operation};
use crate::api_client::{Api, ManagerArgs};
use crate::detach::{Ask, ConfirmDetachArgs, Detached};
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::follow::{conclude, follow, interrupts};
use crate::names;
use crate::output::{Output, human::counted};
use crate::tables;
use clap::ValueEnum;
use poolwright_executor::Operation;
use poolwright_model::id::OperationId;
use poolwright_service::Resolution;
use poolwright_terminal::duration;
use serde_json::json;
use std::time::Duration;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  poolwright ops            the same as `poolwright ops list`")]
#[command(args_conflicts_with_subcommands = true)]
pub struct OpsArgs {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    manager: ManagerArgs,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List operations: the newest 50, and all that are unfinished
    #[command(
        after_help = "Examples:\n  poolwright ops list\n  poolwright ops list --unfinished\n  poolwright ops list --all -o json"
    )]
    List(ListArgs),
    /// Show one with its steps
    #[command(after_help = "Example:\n  poolwright ops show op-0199")]
    Show(OneArgs),
    /// Wait until it is over or needs somebody
    #[command(
        after_help = "Example:\n  poolwright ops wait op-0199 --timeout 5m\n\nExit code 7 when the time is up; the operation goes on."
    )]
    Wait(WaitOneArgs),
    /// Stop it, and undo what it has done
    #[command(after_help = "Example:\n  poolwright ops cancel op-0199 --reason \"wrong host\" --yes")]
    Cancel(CancelArgs),
    /// Take back one that is completed, by a new operation that does the contrary
    #[command(
        after_help = "Examples:\n  poolwright ops undo op-0199 --dry-run\n  poolwright ops undo op-0199 --yes\n\n\
        What it bound is unbound, what it unbound is bound again where it was; a demand that it composed is withdrawn,\n\
        one that it released is wanted again. Refused (exit code 5) where something has changed since."
    )]
    Undo(UndoArgs),
    /// Decide about one that is indeterminate or quarantined, after looking at the hardware
    #[command(
        after_help = "Examples:\n  poolwright ops resolve op-0199 --with retry --reason \"box is back\" --yes\n  \
        poolwright ops resolve op-0199 --with accept --reason \"checked at the rack\" --yes"
    )]
    Resolve(ResolveArgs),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// All that are kept: ended ones for 90 days, and of those at most 10,000
    #[arg(long, conflicts_with = "unfinished")]
    all: bool,
    /// Only those that have not ended
    #[arg(long)]
    unfinished: bool,
    #[command(flatten)]
    manager: ManagerArgs,
}

#[derive(Debug, clap::Args)]
struct OneArgs {
    /// Its id, or as much of its beginning as no other has
    #[arg(value_name = "OPERATION")]
    id: OperationId,
    #[command(flatten)]
    manager: ManagerArgs,
}

#[derive(Debug, clap::Args)]
struct WaitOneArgs {
    #[command(flatten)]
    one: OneArgs,
    /// The longest to wait
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    timeout: Duration,
}

#[derive(Debug, clap::Args)]
struct CancelArgs {
    #[command(flatten)]
    one: OneArgs,
    /// Why; it is kept with the operation
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    #[command(flatten)]
    detach: ConfirmDetachArgs,
}

#[derive(Debug, clap::Args)]
struct UndoArgs {
    #[command(flatten)]
    one: OneArgs,
    #[command(flatten)]
    force: ForceArgs,
    #[command(flatten)]
    stale: StaleArgs,
    #[command(flatten)]
    detach: ConfirmDetachArgs,
    #[command(flatten)]
    change: ChangeArgs,
}

#[derive(Debug, clap::Args)]
struct ResolveArgs {
    #[command(flatten)]
    one: OneArgs,
    /// What to do with it
    #[arg(long, value_name = "HOW")]
    with: With,
    /// Why; it is kept with the operation
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    detach: ConfirmDetachArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum With {
    /// Look again now, and go on from there
    Retry,
    /// End it with things as the fabric shows them; refused where the fabric can't say
    Accept,
    /// The same; what the fabric can't say anything of is bound to nothing
    AcceptFree,
    /// The same; what the fabric can't say anything of is bound where the operation had it
    AcceptBound,
}

impl From<With> for Resolution {
    fn from(with: With) -> Self {
        match with {
            With::Retry => Self::Retry,
            With::Accept => Self::Accept,
            With::AcceptFree => Self::AcceptFree,
            With::AcceptBound => Self::AcceptBound,
        }
    }
}

/// The operation that is meant: by its id, or by how the id of one alone begins.
async fn meant(api: &Api, typed: &OperationId) -> Result<OperationId, Failure> {
    let asked = api.get::<Operation>(&["operations", typed.as_str()]).await;
    let failure = match asked {
        Ok(operation) => return Ok(operation.id),
        Err(failure) if failure.code == ExitCode::NotFound => failure,
        Err(failure) => return Err(failure),
    };
    let everything = u32::MAX.to_string();
    let kept: Vec<Operation> = api.get_where(&["operations"], &[("most", &everything)]).await?;
    let ids = kept.into_iter().map(|operation| operation.id);
    let mut like: Vec<OperationId> = ids.filter(|id| id.as_str().starts_with(typed.as_str())).collect();
    match (like.pop(), like.as_slice()) {
        (None, _) => Err(names::suggest(api, failure, &[("operations", typed.as_str())]).await),
        (Some(one), []) => Ok(one),
        (Some(one), [.., other]) => {
            let message = format!(
                "the ids of {} operations begin with {typed}, such as {other} and {one}",
                like.len() + 1
            );
            Err(Failure::usage(message).with_hint("give more of it: poolwright ops list --all has them"))
        }
    }
}

async fn list(wanted: ListArgs, output: Output) -> Result<(), Failure> {
    let everything = u32::MAX.to_string();
    let query: &[(&str, &str)] = match (wanted.all, wanted.unfinished) {
        (true, _) => &[("most", &everything)],
        (false, true) => &[("unfinished", "true")],
        (false, false) => &[],
    };
    let found: Vec<Operation> = Api::new(&wanted.manager)?
        .get_where(&["operations"], query)
        .await?;
    output.show(&found, &tables::operations(&found))
}

pub async fn run(args: OpsArgs, output: Output) -> Outcome {
    let usual = ListArgs {
        all: false,
        unfinished: false,
        manager: args.manager,
    };
    match args.action.unwrap_or(Action::List(usual)) {
        Action::List(wanted) => list(wanted, output).await?,
        Action::Show(one) => {
            let api = Api::new(&one.manager)?;
            let id = meant(&api, &one.id).await?;
            let operation: Operation = api.get(&["operations", id.as_str()]).await?;
            show_operation(&operation, output)?;
        }
        Action::Wait(WaitOneArgs { one, timeout }) => {
            let api = Api::new(&one.manager)?;
            let mut interrupts = interrupts()?;
            let id = match meant(&api, &one.id).await {
                // A manager that is gone for a while is waited for.
                Err(failure) if failure.may_pass => one.id,
                found => found?,
            };
            let operation = follow(&api, &id, timeout, &mut interrupts).await?;
            show_ended(&operation, output)?;
            return Ok(conclude(&operation));
        }
        Action::Cancel(CancelArgs { one, reason, detach }) => {
            let api = Api::new(&one.manager)?;
            let id = meant(&api, &one.id).await?;
            let running: Operation = api.get(&["operations", id.as_str()]).await?;
            let detached = Detached::by_cancelling(&running);
            let what = format!("cancel operation {id}");
            detach.check(&api, &detached, &what, Ask::Always).await?;
            let path = ["operations", id.as_str(), "cancel"];
            let operation: Operation = api.post(&path, &json!({ "reason": reason })).await?;
            show_operation(&operation, output)?;
        }
        Action::Undo(UndoArgs {
            one,
            force,
            stale,
            detach,
            change,
        }) => {
            let api = Api::new(&one.manager)?;
            let id = meant(&api, &one.id).await?;
            let guarded = Guarded {
                detach,
                what: format!("undo operation {id}"),
                ask: Ask::Always,
                plan: None,
            };
            let path = ["operations", id.as_str(), "undo"];
            let allowed = (force, stale);
            return change
                .make_guarded(&api, &path, &json!({}), allowed, &guarded, output)
                .await;
        }
        Action::Resolve(ResolveArgs {
            one,
            with,
            reason,
            detach,
        }) => {
            let api = Api::new(&one.manager)?;
            let id = meant(&api, &one.id).await?;
            let open: Operation = api.get(&["operations", id.as_str()]).await?;
            if with == With::Retry {
                let what = format!("go on with operation {id}");
                let detached = Detached::by_going_on(&open);
                detach.check(&api, &detached, &what, Ask::IfDetached).await?;
            } else {
                let doubtful = Detached::in_doubt(&open, with == With::Accept);
                detach.allow(&doubtful)?;
                detach.confirm.confirm(&format!(
                    "end operation {id} with things as they are, with {} in doubt",
                    counted(doubtful.count() as usize, "GPU")
                ))?;
            }
            let path = ["operations", id.as_str(), "resolve"];
            let body = json!({ "resolution": Resolution::from(with), "reason": reason });
            let operation: Operation = api.post(&path, &body).await?;
            show_operation(&operation, output)?;
        }
    }
    Ok(ExitCode::Ok)
}
