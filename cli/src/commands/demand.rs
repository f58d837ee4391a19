//! `demand`: what is wanted, to be served by the next plan that is applied.

use super::wanted::{self, WantedArgs};
use super::{Outcome, removed};
use crate::api_client::{Api, ManagerArgs};
use crate::confirm::ConfirmArgs;
use crate::exit_code::ExitCode;
use crate::names;
use crate::output::{Output, say};
use crate::tables;
use poolwright_model::id::DemandId;
use poolwright_service::demand::DemandRecord;

#[derive(Debug, clap::Args)]
pub struct DemandArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Keep a demand; `plan` and `apply` serve it
    #[command(
        after_help = "Examples:\n  poolwright demand add chat 70B --task infer --priority 10\n  \
        poolwright demand add batch --gpus 8 --kind h100-pcie-80gb\n  \
        poolwright demand add pretrain --phases run.toml --start 2026-12-01T20:00:00Z\n  \
        poolwright plan --out plan.json && poolwright apply plan.json"
    )]
    Add(Box<AddArgs>),
    /// Forget a demand; the next plan that is applied lets go of what it holds
    #[command(after_help = "Example:\n  poolwright demand remove chat --yes")]
    Remove(RemoveArgs),
    /// List all demands
    #[command(after_help = "Example:\n  poolwright demand list -o json")]
    List(ManagerArgs),
}

#[derive(Debug, clap::Args)]
#[command(group = wanted::required())]
struct AddArgs {
    /// Its name from now on
    #[arg(value_name = "NAME")]
    name: DemandId,
    #[command(flatten)]
    wanted: WantedArgs,
    /// Where it fits nowhere: show every kind of GPU with its reason
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    manager: ManagerArgs,
}

#[derive(Debug, clap::Args)]
struct RemoveArgs {
    #[arg(value_name = "NAME")]
    name: DemandId,
    #[command(flatten)]
    confirm: ConfirmArgs,
    #[command(flatten)]
    manager: ManagerArgs,
}

pub async fn run(args: DemandArgs, output: Output) -> Outcome {
    match args.action {
        Action::Add(args) => {
            let args = *args;
            let spec = args.wanted.spec(args.name)?;
            let kept = Api::new(&args.manager)?.post(&["demands"], &spec).await;
            let record: DemandRecord = kept.map_err(|failure| failure.explained(args.explain))?;
            output.show(&record, &tables::demands(std::slice::from_ref(&record)))?;
            match record.course {
                Some(course) => say(&format!(
                    "its phases get their GPUs by the clock, from {} to {}",
                    course.starts,
                    course.ends()
                )),
                None => say(
                    "it is served by the next plan that is applied: poolwright plan --out FILE, poolwright apply FILE",
                ),
            }
        }
        Action::Remove(args) => {
            let api = Api::new(&args.manager)?;
            args.confirm.confirm(&format!("forget demand {}", args.name))?;
            if let Err(failure) = api.delete(&["demands", args.name.as_str()]).await {
                return Err(names::suggest(&api, failure, &[("demands", args.name.as_str())]).await);
            }
            removed::show("demand", &args.name, output)?;
            say("the next plan that is applied lets go of what it holds");
        }
        Action::List(manager) => {
            let demands: Vec<DemandRecord> = Api::new(&manager)?.get(&["demands"]).await?;
            output.show(&demands, &tables::demands(&demands))?;
        }
    }
    Ok(ExitCode::Ok)
}
