//! `diff`: what is recorded against what was found.

use super::Outcome;
use crate::api_client::{Api, ManagerArgs};
use crate::exit_code::ExitCode;
use crate::output::human::counted;
use crate::output::{Output, say};
use crate::tables;
use poolwright_service::Drift;
use serde_json::{Value, json};

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct DiffArgs {
    /// Look at every endpoint first; without it, it is as the last look found it
    #[arg(long)]
    look: bool,
    #[command(flatten)]
    manager: ManagerArgs,
}

const EXAMPLES: &str = "\
Examples:
  poolwright diff
  poolwright diff --look -o json

Exit code 0 where everything is as recorded, 1 where something is not. It changes nothing, and the manager repairs
nothing of it by itself.";

pub async fn run(args: DiffArgs, output: Output) -> Outcome {
    let api = Api::new(&args.manager)?;
    if args.look {
        api.post::<Value>(&["discover"], &json!({})).await?;
    }
    let drifts: Vec<Drift> = api.get(&["drift"]).await?;
    output.show(&drifts, &tables::drifts(&drifts))?;
    if drifts.is_empty() {
        say("everything is as recorded");
        return Ok(ExitCode::Ok);
    }
    say(&format!("{} not as recorded", counted(drifts.len(), "GPU")));
    Ok(ExitCode::Generic)
}
