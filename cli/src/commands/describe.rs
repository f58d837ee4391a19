//! `describe NOUN ID`: everything about one thing.

use super::Outcome;
use crate::api_client::{Api, ManagerArgs};
use crate::exit_code::ExitCode;
use crate::names;
use crate::output::{Output, human};
use crate::tables;
use clap::ValueEnum;
use serde_json::Value;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct DescribeArgs {
    /// What kind of thing
    #[arg(value_name = "NOUN")]
    noun: Noun,
    /// Which one; `poolwright get NOUN` shows the names
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    manager: ManagerArgs,
}

const EXAMPLES: &str = "\
Examples:
  poolwright describe host host-2
  poolwright describe demand chat -o json";

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Noun {
    #[value(alias = "gpus")]
    Gpu,
    #[value(alias = "hosts")]
    Host,
    #[value(alias = "fabrics")]
    Fabric,
    #[value(alias = "compositions")]
    Composition,
    #[value(alias = "demands")]
    Demand,
    #[value(alias = "ops", alias = "operation", alias = "operations")]
    Op,
    #[value(alias = "endpoints")]
    Endpoint,
    #[value(alias = "schedules")]
    Schedule,
}

impl Noun {
    fn path(self) -> &'static str {
        match self {
            Self::Gpu => "gpus",
            Self::Host => "hosts",
            Self::Fabric => "fabrics",
            Self::Composition => "compositions",
            Self::Demand => "demands",
            Self::Op => "operations",
            Self::Endpoint => "endpoints",
            Self::Schedule => "schedules",
        }
    }
}

pub async fn run(args: DescribeArgs, output: Output) -> Outcome {
    let api = Api::new(&args.manager)?;
    let found: Value = match api.get(&[args.noun.path(), &args.id]).await {
        Ok(found) => found,
        Err(failure) => return Err(names::suggest(&api, failure, &[(args.noun.path(), &args.id)]).await),
    };
    output.show_as(&found, &tables::pairs(&found), |_| human::outline(&found))?;
    Ok(ExitCode::Ok)
}
