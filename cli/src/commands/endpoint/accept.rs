//! `endpoint accept`: believing a service that shows far less than before.

use super::Outcome;
use crate::api_client::{Api, ManagerArgs};
use crate::exit_code::ExitCode;
use crate::names;
use crate::output::human::counted;
use crate::output::{Cell, Output, Table, say};
use poolwright_model::id::ControlEndpointId;
use poolwright_service::Accepting;
use serde_json::json;

pub const EXAMPLES: &str = "\
Examples:
  poolwright endpoint accept box-1          what is gone
  poolwright endpoint accept box-1 --yes

Where more of a service's GPUs vanish in one look than `poolwright limits` allows, it is taken for a fault of the
service: what it had stays shown, nothing of it is composable, and nothing is done there by itself. It ends when they
are back, or when somebody says here that they were taken out.";

#[derive(Debug, clap::Args)]
pub struct AcceptArgs {
    #[arg(value_name = "NAME")]
    id: ControlEndpointId,
    /// Believe it; without it, what is gone is only shown
    #[arg(long, short = 'y')]
    yes: bool,
    #[command(flatten)]
    manager: ManagerArgs,
}

pub async fn run(args: AcceptArgs, output: Output) -> Outcome {
    let api = Api::new(&args.manager)?;
    let path = ["endpoints", args.id.as_str(), "accept"];
    let accepting: Accepting = match api.post(&path, &json!({ "dry_run": !args.yes })).await {
        Ok(accepting) => accepting,
        Err(failure) => return Err(names::suggest(&api, failure, &[("endpoints", args.id.as_str())]).await),
    };
    output.show(&accepting, &table(&accepting))?;
    let gone = counted(accepting.gone.len(), "GPU");
    say(&match accepting.accepted {
        true => format!("{gone} missing from now on; {} left", accepting.left),
        false => format!(
            "{gone} gone, {} left; nothing was done; --yes accepts it",
            accepting.left
        ),
    });
    Ok(ExitCode::Ok)
}

fn table(accepting: &Accepting) -> Table {
    let mut table = Table::new(["GONE", "GPU", "COMPOSITION", "DEMAND"]);
    for lost in &accepting.gone {
        table.row([
            Cell::text(&lost.name),
            Cell::maybe(lost.gpu.as_ref()),
            Cell::maybe(lost.composition.as_ref()),
            Cell::maybe(lost.demand.as_ref()),
        ]);
    }
    table
}
