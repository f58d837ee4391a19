//! `compose`: GPUs for one demand, now, all of them or none.

use super::Outcome;
use super::change::{ChangeArgs, ForceArgs};
use super::wanted::WantedArgs;
use crate::api_client::{Api, ManagerArgs};
use crate::output::Output;
use poolwright_model::id::DemandId;
use poolwright_service::demand::DemandSpec;
use serde::Serialize;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ComposeArgs {
    #[command(flatten)]
    wanted: WantedArgs,
    /// What to call it; without it a name is made up
    #[arg(long, value_name = "NAME")]
    name: Option<DemandId>,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    manager: ManagerArgs,
}

const EXAMPLES: &str = "\
Examples:
  poolwright compose 70B --task infer --name chat
  poolwright compose --gpus 4 --kind h100-pcie-80gb
  poolwright compose --gpus 2 --min-memory 40GiB --dry-run
  poolwright release chat --yes                       lets go of it again";

#[derive(Serialize)]
struct Compose {
    demand: DemandSpec,
}

pub async fn run(args: ComposeArgs, output: Output) -> Outcome {
    let demand = args
        .wanted
        .spec(args.name.unwrap_or_else(|| args.wanted.name()))?;
    let api = Api::new(&args.manager)?;
    args.change
        .make(&api, &["compose"], &Compose { demand }, ForceArgs::default(), output)
        .await
}
