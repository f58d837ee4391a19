//! `limits`: how much may happen by itself.

use super::Outcome;
use crate::api_client::{Api, ManagerArgs};
use crate::exit_code::ExitCode;
use crate::output::Output;
use crate::tables;
use poolwright_service::LimitsStatus;
use poolwright_service::limits::NewLimits;
use poolwright_terminal::duration;
use std::time::Duration;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct LimitsArgs {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    manager: ManagerArgs,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Set some limits; the others stay
    #[command(after_help = SET)]
    Set(SetArgs),
}

const EXAMPLES: &str = "\
Examples:
  poolwright limits
  poolwright limits set --per-hour 2000

They hold for what runs by itself (schedules), and never for what an operator asks for. A plan that would exceed one is
not begun: `schedule list`, `why` and `doctor` say which, and when it will be.";

const SET: &str = "\
Examples:
  poolwright limits set --per-hour 2000 --per-tenant 1000
  poolwright limits set --per-plan 16
  poolwright limits set --hold 10m

A move is one GPU that one operation binds, unbinds, or both. What a limit held back is tried again at once.";

#[derive(Debug, clap::Args)]
struct SetArgs {
    #[command(flatten)]
    new: NewArgs,
    #[command(flatten)]
    manager: ManagerArgs,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
struct NewArgs {
    /// GPUs that one plan may move
    #[arg(long, value_name = "GPUS")]
    per_plan: Option<u32>,
    /// Moves in an hour, of all GPUs
    #[arg(long, value_name = "MOVES")]
    per_hour: Option<u32>,
    /// Moves in an hour, to or from one host
    #[arg(long, value_name = "MOVES")]
    per_host: Option<u32>,
    /// Moves in an hour, of one tenant's GPUs
    #[arg(long, value_name = "MOVES")]
    per_tenant: Option<u32>,
    /// Moves in an hour, of one GPU
    #[arg(long, value_name = "MOVES")]
    per_gpu: Option<u32>,
    /// How long a GPU that was moved stays where it is, such as 10m; 1h at most, 0s for not at all
    #[arg(long, value_name = "TIME", value_parser = duration)]
    hold: Option<Duration>,
    /// Operations in a row that ended badly, after which automation is paused
    #[arg(long, value_name = "COUNT")]
    failures: Option<u32>,
    /// How many percent of an endpoint's GPUs may vanish in one look before that is a fault of the endpoint
    #[arg(long, value_name = "PERCENT")]
    vanished: Option<u32>,
    /// How much later than first expected a job with a reservation may start, such as 30m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    slip: Option<Duration>,
}

impl From<NewArgs> for NewLimits {
    fn from(args: NewArgs) -> Self {
        let seconds = |span: Duration| u32::try_from(span.as_secs()).unwrap_or(u32::MAX);
        Self {
            per_plan: args.per_plan,
            per_hour: args.per_hour,
            per_host: args.per_host,
            per_tenant: args.per_tenant,
            per_gpu: args.per_gpu,
            hold_s: args.hold.map(seconds),
            failures: args.failures,
            vanished: args.vanished,
            slip_s: args.slip.map(seconds),
        }
    }
}

pub async fn run(args: LimitsArgs, output: Output) -> Outcome {
    let status: LimitsStatus = match args.action {
        None => Api::new(&args.manager)?.get(&["limits"]).await?,
        Some(Action::Set(SetArgs { new, manager })) => {
            let new = NewLimits::from(new);
            Api::new(&manager)?.post(&["limits"], &new).await?
        }
    };
    output.show(&status, &tables::limits(&status))?;
    Ok(ExitCode::Ok)
}
