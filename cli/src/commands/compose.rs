//! `compose`: GPUs for one demand, now, all of them or none; or those that can be had, with `--partial-ok`.

use super::Outcome;
use super::change::{ChangeArgs, PartialArgs, StaleArgs};
use super::wanted::{self, WantedArgs};
use crate::api_client::{Api, ManagerArgs};
use crate::output::Output;
use poolwright_model::id::DemandId;
use poolwright_service::demand::DemandSpec;
use serde::Serialize;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, group = wanted::required())]
pub struct ComposeArgs {
    #[command(flatten)]
    wanted: WantedArgs,
    /// What to call it; without it a name is made up
    #[arg(long, value_name = "NAME")]
    name: Option<DemandId>,
    /// Where it can't be served: show everything that was tried, with its reason
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    stale: StaleArgs,
    #[command(flatten)]
    partial: PartialArgs,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    manager: ManagerArgs,
}

const EXAMPLES: &str = "\
Examples:
  poolwright compose 70B --task infer --name chat
  poolwright compose 8B --task lora --kind l40s-48gb --name tune
  poolwright compose --gpus 4 --kind h100-pcie-80gb
  poolwright compose models/ours/config.json --task full --set optimizer=adamw_8bit
  poolwright compose --phases run.toml --name pretrain   its first phase now, the others by the clock
  poolwright compose --gpus 2 --min-memory 40GiB --dry-run
  poolwright compose 8B --task infer --key job-17     may be repeated: it is composed once
  poolwright release chat --yes                       lets go of it again

Either a MODEL with its --task, or --gpus with their number; both may be held to one --kind.";

#[derive(Serialize)]
struct Compose {
    demand: DemandSpec,
}

pub async fn run(args: ComposeArgs, output: Output) -> Outcome {
    // A repeated request must be equal, so its key determines the name.
    let key = args.change.key();
    let key = key.map(|key| format!("{}/{key}", args.manager.username));
    let name = args.name.unwrap_or_else(|| args.wanted.name(key.as_deref()));
    let demand = args.wanted.spec(name)?;
    let api = Api::new(&args.manager)?;
    let what = Compose { demand };
    let allowed = (args.stale, args.partial);
    let made = args.change.make(&api, &["compose"], &what, allowed, output);
    made.await.map_err(|failure| failure.explained(args.explain))
}
