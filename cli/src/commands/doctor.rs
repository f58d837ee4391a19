//! `doctor`: looks at everything that an operator should know.

use super::Outcome;
use crate::api_client::{Api, ManagerArgs};
use crate::exit_code::ExitCode;
use crate::output::Output;
use crate::tables;
use poolwright_service::{Check, CheckResult};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  poolwright doctor\n  poolwright doctor -o json\n\nExit code 1 where there is a problem."
)]
pub struct DoctorArgs {
    #[command(flatten)]
    manager: ManagerArgs,
}

pub async fn run(args: DoctorArgs, output: Output) -> Outcome {
    let checks: Vec<Check> = Api::new(&args.manager)?.get(&["doctor"]).await?;
    output.show(&checks, &tables::checks(&checks))?;
    let problem = checks.iter().any(|check| check.result == CheckResult::Problem);
    Ok(if problem { ExitCode::Generic } else { ExitCode::Ok })
}
