//! `gpu`: GPUs that are suspect, or failed, out of use and back, and what each has gone through.

use super::Outcome;
use crate::api_client::{Api, ManagerArgs};
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::names;
use crate::output::{Output, say};
use crate::tables;
use poolwright_executor::{Clock, SystemClock};
use poolwright_model::id::GpuId;
use poolwright_service::quarantine::{BurnIn, Cause, Failure as Failed, History, Quarantine};
use poolwright_service::suspicion::Suspicion;
use poolwright_terminal::some_time;
use serde_json::json;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub struct GpuArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List GPUs that are out of use
    #[command(after_help = "Example:\n  poolwright gpu list")]
    List(ManagerArgs),
    /// List GPUs that are suspect: in use, and with more errors on their links than a sound one has
    #[command(after_help = "Example:\n  poolwright gpu suspects")]
    Suspects(ManagerArgs),
    /// Say what a GPU has gone through: failures, burn-ins, what it replaced
    #[command(after_help = "Example:\n  poolwright gpu history gpu-9f3a")]
    History(OneArgs),
    /// Take a GPU that failed out of use: it is given to nobody, and whoever holds it is given another one
    #[command(after_help = QUARANTINE)]
    Quarantine(QuarantineArgs),
    /// Have a GPU burnt in; it is in use again once that passed
    #[command(after_help = RETURN)]
    Return(ReturnArgs),
    /// Light the light that shows where a GPU sits, or put it out
    #[command(after_help = LOCATE)]
    Locate(LocateArgs),
    /// Say that another GPU came in the place of one: both keep their histories, and each names the other
    #[command(after_help = "Example:\n  poolwright gpu replace gpu-9f3a gpu-77b1")]
    Replace(ReplaceArgs),
}

const QUARANTINE: &str = "\
Examples:
  poolwright gpu quarantine gpu-9f3a --xid 79
  poolwright gpu quarantine gpu-9f3a --reason \"its fan rattles\"

Nothing is moved by this: a job that uses it goes on. The next plan gives whoever holds it another one (poolwright plan). The \
scheduler is told by the hook `quarantine` of `poolwright serve --hooks`, which finds the GPU in POOLWRIGHT_GPU.";

const RETURN: &str = "\
Examples:
  poolwright gpu return gpu-9f3a
  poolwright gpu return gpu-9f3a --limit 4h --no-wait

The burn-in is the hook `burn-in` of `poolwright serve --hooks`: a command of yours that finds the GPU in POOLWRIGHT_GPU and \
ends with 0 where it is well. There is no other way back.";

const LOCATE: &str = "\
Examples:
  poolwright gpu locate gpu-9f3a
  poolwright gpu locate gpu-9f3a --off

It is the light of its device or of its slot (Redfish: LocationIndicatorActive), where its box has one that can be switched.";

#[derive(Debug, clap::Args)]
struct LocateArgs {
    #[arg(value_name = "GPU")]
    gpu: GpuId,
    /// Put it out
    #[arg(long)]
    off: bool,
    #[command(flatten)]
    manager: ManagerArgs,
}

#[derive(Debug, clap::Args)]
struct OneArgs {
    #[arg(value_name = "GPU")]
    gpu: GpuId,
    #[command(flatten)]
    manager: ManagerArgs,
}

#[derive(Debug, clap::Args)]
struct QuarantineArgs {
    #[arg(value_name = "GPU")]
    gpu: GpuId,
    #[command(flatten)]
    cause: CauseArgs,
    /// What happened, in words
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    #[command(flatten)]
    manager: ManagerArgs,
}

#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct CauseArgs {
    /// The NVIDIA driver reported this error
    #[arg(long, value_name = "NUMBER")]
    xid: Option<u32>,
    /// Its link reported a fatal error
    #[arg(long)]
    fatal_aer: bool,
    /// It went without a word
    #[arg(long)]
    gone: bool,
}

impl CauseArgs {
    fn cause(&self) -> Cause {
        match self.xid {
            Some(number) => Cause::Xid(number),
            None if self.fatal_aer => Cause::FatalAer,
            None if self.gone => Cause::Gone,
            None => Cause::Reported,
        }
    }
}

#[derive(Debug, clap::Args)]
struct ReturnArgs {
    #[arg(value_name = "GPU")]
    gpu: GpuId,
    /// The burn-in is ended after so long, and has not passed then
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = some_time)]
    limit: Duration,
    /// Only begin it
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    manager: ManagerArgs,
}

#[derive(Debug, clap::Args)]
struct ReplaceArgs {
    #[arg(value_name = "OLD")]
    old: GpuId,
    #[arg(value_name = "NEW")]
    new: GpuId,
    #[command(flatten)]
    manager: ManagerArgs,
}

pub async fn run(args: GpuArgs, output: Output) -> Outcome {
    match args.action {
        Action::List(manager) => {
            let all: Vec<Quarantine> = Api::new(&manager)?.get(&["quarantine"]).await?;
            output.show(&all, &tables::quarantined(&all))?;
            Ok(ExitCode::Ok)
        }
        Action::Suspects(manager) => {
            let all: Vec<Suspicion> = Api::new(&manager)?.get(&["suspects"]).await?;
            output.show(&all, &tables::suspects(&all))?;
            Ok(ExitCode::Ok)
        }
        Action::History(OneArgs { gpu, manager }) => {
            let api = Api::new(&manager)?;
            let history = known(&api, &gpu, history(&api, &gpu).await).await?;
            show(&history, output)
        }
        Action::Quarantine(args) => quarantine(args, output).await,
        Action::Return(args) => give_back(args, output).await,
        Action::Locate(LocateArgs { gpu, off, manager }) => {
            let api = Api::new(&manager)?;
            let located = api
                .post(&["gpus", gpu.as_str(), "locate"], &json!({ "lit": !off }))
                .await;
            show(&known(&api, &gpu, located).await?, output)
        }
        Action::Replace(ReplaceArgs { old, new, manager }) => {
            let api = Api::new(&manager)?;
            let path = ["gpus", old.as_str(), "replaced"];
            let replaced = api.post(&path, &json!({ "by": new })).await;
            let history = known(&api, &new, known(&api, &old, replaced).await).await?;
            show(&history, output)
        }
    }
}

async fn quarantine(args: QuarantineArgs, output: Output) -> Outcome {
    let api = Api::new(&args.manager)?;
    let failed = Failed {
        cause: args.cause.cause(),
        says: args.reason,
        firmware: None,
        event: None,
    };
    let path = ["gpus", args.gpu.as_str(), "quarantine"];
    let kept: Quarantine = known(&api, &args.gpu, api.post(&path, &failed).await).await?;
    output.show(&kept, &tables::quarantined(std::slice::from_ref(&kept)))?;
    say("it is given to nobody; whoever holds it is given another one by the next plan: poolwright plan");
    Ok(ExitCode::Ok)
}

async fn give_back(args: ReturnArgs, output: Output) -> Outcome {
    let api = Api::new(&args.manager)?;
    let path = ["gpus", args.gpu.as_str(), "return"];
    let body = json!({ "limit_s": args.limit.as_secs().max(1) });
    let begun: Quarantine = known(&api, &args.gpu, api.post(&path, &body).await).await?;
    if args.no_wait {
        output.show(&begun, &tables::quarantined(std::slice::from_ref(&begun)))?;
        return Ok(ExitCode::Ok);
    }
    say(&format!(
        "GPU {} is burnt in; Ctrl-C ends this wait and not the burn-in",
        args.gpu
    ));
    let began = begun.burn_in.map(|burn_in| burn_in.began);
    loop {
        let now = history(&api, &args.gpu).await?;
        let this_one = |burn_in: &&BurnIn| Some(burn_in.began) == began;
        let Some(quarantine) = &now.quarantine else {
            say("its burn-in passed: it is in use again");
            return show(&now, output);
        };
        let Some(burn_in) = quarantine.burn_in.as_ref().filter(this_one) else {
            let message = format!("somebody else began another burn-in of GPU {}", args.gpu);
            return Err(Failure::new(ExitCode::Conflict, message));
        };
        if burn_in.ended.is_none() && SystemClock.now() > burn_in.until {
            let message = format!(
                "nobody says how the burn-in of GPU {} ended: its manager may have stopped",
                args.gpu
            );
            return Err(
                Failure::new(ExitCode::Indeterminate, message).with_hint("have it burnt in once more")
            );
        }
        // One that passed ends the quarantine with the manager's next poll, if not at once.
        if let Some(end) = burn_in.ended.as_ref().filter(|end| !end.is_success()) {
            let message = format!("the burn-in of GPU {} did not pass: {end}", args.gpu);
            return Err(Failure::new(ExitCode::Generic, message).with_hint(format!(
                "it stays out of use: poolwright gpu history {}",
                args.gpu
            )));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Between two looks at a burn-in.
const PAUSE: Duration = Duration::from_secs(1);

async fn history(api: &Api, gpu: &GpuId) -> Result<History, Failure> {
    api.get(&["gpus", gpu.as_str(), "history"]).await
}

async fn known<T>(api: &Api, gpu: &GpuId, answer: Result<T, Failure>) -> Result<T, Failure> {
    match answer {
        Ok(answer) => Ok(answer),
        Err(failure) => Err(names::suggest(api, failure, &[("gpus", gpu.as_str())]).await),
    }
}

fn show(history: &History, output: Output) -> Outcome {
    output.show_as(history, &tables::strikes(history), |width| {
        tables::history(history, width)
    })?;
    Ok(ExitCode::Ok)
}
