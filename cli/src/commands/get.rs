//! `get NOUN`: lists what the manager knows.

use super::Outcome;
use crate::api_client::{Api, ManagerArgs};
use crate::drifting;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::{Output, Table};
use crate::silence;
use crate::tables;
use clap::ValueEnum;
use poolwright_model::topology::{Gpu, Host};
use poolwright_planner::Composition;
use poolwright_service::Observed;
use poolwright_service::closure::{HostClosure, HostShown};
use serde::Serialize;
use serde::de::DeserializeOwned;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct GetArgs {
    /// What to list
    #[arg(value_name = "NOUN")]
    noun: Noun,
    #[command(flatten)]
    manager: ManagerArgs,
}

const EXAMPLES: &str = "\
Examples:
  poolwright get gpus
  poolwright get ops -o json
  poolwright hosts                 the same as `poolwright get hosts`

The manager is found by --server or POOLWRIGHT_SERVER, and believed by --ca or POOLWRIGHT_CA.";

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Noun {
    #[value(alias = "gpu")]
    Gpus,
    /// The latest telemetry of GPUs, with its age
    Telemetry,
    #[value(alias = "host")]
    Hosts,
    #[value(alias = "fabric")]
    Fabrics,
    #[value(alias = "switch")]
    Switches,
    #[value(alias = "fault")]
    Faults,
    #[value(alias = "composition")]
    Compositions,
    #[value(alias = "demand")]
    Demands,
    #[value(alias = "schedule")]
    Schedules,
    #[value(alias = "op", alias = "operations")]
    Ops,
    #[value(alias = "endpoint")]
    Endpoints,
    #[value(alias = "pause")]
    Pauses,
}

impl Noun {
    /// Whether it is as the endpoints showed it.
    fn is_seen(self) -> bool {
        matches!(
            self,
            Self::Gpus | Self::Hosts | Self::Fabrics | Self::Switches | Self::Endpoints
        )
    }
}

pub async fn run(args: GetArgs, output: Output) -> Outcome {
    let api = Api::new(&args.manager)?;
    match args.noun {
        Noun::Gpus => gpus(&api, output).await,
        Noun::Telemetry => list(&api, "telemetry", output, tables::telemetry).await,
        Noun::Hosts => hosts(&api, output).await,
        Noun::Fabrics => list(&api, "fabrics", output, tables::fabrics).await,
        Noun::Switches => list(&api, "switches", output, tables::switches).await,
        Noun::Faults => list(&api, "faults", output, tables::faults).await,
        Noun::Compositions => compositions(&api, output).await,
        Noun::Demands => list(&api, "demands", output, tables::demands).await,
        Noun::Schedules => list(&api, "schedules", output, tables::schedules).await,
        Noun::Ops => list(&api, "operations", output, tables::operations).await,
        Noun::Endpoints => list(&api, "endpoints", output, tables::endpoints).await,
        Noun::Pauses => list(&api, "pauses", output, tables::pauses).await,
    }?;
    if args.noun.is_seen() {
        silence::tell(&api).await;
    }
    Ok(ExitCode::Ok)
}

/// Everything of one kind.
pub async fn list<T: Serialize + DeserializeOwned>(
    api: &Api,
    path: &str,
    output: Output,
    table: fn(&[T]) -> Table,
) -> Result<(), Failure> {
    let found: Vec<T> = api.get(&[path]).await?;
    output.show(&found, &table(&found))
}

/// The table says who holds each GPU, which the compositions know.
async fn gpus(api: &Api, output: Output) -> Result<(), Failure> {
    let gpus: Vec<Observed<Gpu>> = api.get(&["gpus"]).await?;
    let compositions: Vec<Composition> = api.get(&["compositions"]).await?;
    let drift = drifting::known(api).await;
    let table = tables::held_gpus(&gpus, &compositions, &drift);
    output.show_as(&gpus, &table, |width| {
        table.render(width) + &tables::not_composable(gpus.iter().map(|gpu| &gpu.what))
    })?;
    drifting::say_of(&drift);
    Ok(())
}

async fn compositions(api: &Api, output: Output) -> Result<(), Failure> {
    list(api, "compositions", output, tables::compositions).await?;
    drifting::tell(api).await;
    Ok(())
}

/// The table says how many GPUs a host holds, which the GPUs know.
async fn hosts(api: &Api, output: Output) -> Result<(), Failure> {
    let hosts: Vec<HostShown> = api.get(&["hosts"]).await?;
    let gpus: Vec<Gpu> = api.get(&["gpus"]).await?;
    let shown: Vec<Host> = hosts.iter().map(|host| host.seen.what.clone()).collect();
    let closures = hosts.iter().filter_map(|host| host.closure.clone());
    let closures: Vec<HostClosure> = closures.collect();
    output.show(&hosts, &tables::hosts(&shown, &gpus, Some(&closures)))
}
