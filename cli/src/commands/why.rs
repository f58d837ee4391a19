//! `why`: why a demand is served, or is not.

use super::Outcome;
use crate::api_client::{Api, ManagerArgs};
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::names;
use crate::output::human::{counted, hung};
use crate::output::{Output, Table};
use crate::tables::yes_no;
use poolwright_service::Why;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct WhyArgs {
    /// The demand, as `demand/NAME` or NAME
    #[arg(value_name = "demand/NAME")]
    what: String,
    /// Show how its size came about, too
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    manager: ManagerArgs,
}

const EXAMPLES: &str = "\
Examples:
  poolwright why demand/chat
  poolwright why chat --explain
  poolwright why chat -o json";

pub async fn run(args: WhyArgs, output: Output) -> Outcome {
    let name = match args.what.split_once('/') {
        None => args.what.as_str(),
        Some(("demand", name)) => name,
        Some((kind, _)) => {
            return Err(Failure::usage(format!("why {kind}/… is not known"))
                .with_hint("ask for a demand: demand/NAME"));
        }
    };
    let api = Api::new(&args.manager)?;
    let why: Why = match api.get(&["demands", name, "why"]).await {
        Ok(why) => why,
        Err(failure) => return Err(names::suggest(&api, failure, &[("demands", name)]).await),
    };
    let mut table = Table::new(["BECAUSE"]);
    why.because.iter().for_each(|line| table.row([line.clone()]));
    output.show_as(&why, &table, |width| {
        let held: u32 = why.holds.iter().map(|composition| composition.gpu_count()).sum();
        let mut lines = vec![format!(
            "demand {name}: {}; wanted now: {}; holds {}",
            why.demand.demand.need.label,
            yes_no(why.wanted_now),
            counted(held as usize, "GPU")
        )];
        let explanation = why.explanation.iter().filter(|_| args.explain);
        lines.extend(
            why.because
                .iter()
                .chain(explanation)
                .map(|line| hung(line, width)),
        );
        lines.join("\n")
    })?;
    Ok(ExitCode::Ok)
}
