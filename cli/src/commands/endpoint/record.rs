//! `endpoint record`: a redacted copy of what a service shows, for tests and for others.

use crate::access::AccessArgs;
use crate::commands::Outcome;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::{Output, human, say};
use crate::progress::Progress;
use crate::stop::Stop;
use crate::tables;
use crate::wire_up::{self, RedfishConnector};
use jiff::tz::TimeZone;
use poolwright_executor::{Clock, SystemClock};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct RecordArgs {
    /// Address of the service
    #[arg(long, value_name = "URL")]
    endpoint: String,
    /// New folder for the copy
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    access: AccessArgs,
    /// Requests under way at once; 4 suits a BMC
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: Option<u16>,
}

const EXAMPLES: &str = "\
Examples:
  poolwright endpoint record --endpoint https://box-1 --username admin --password-file pw --ca ca.pem --out box-1
  poolwright emulate --tree box-1 --listen 127.0.0.1:8443

Names that identify are replaced, secrets are taken out; manifest.json says how many. Look through the copy
before you pass it on.";

pub async fn run(args: RecordArgs, output: Output) -> Outcome {
    let connector = RedfishConnector::with_concurrency(args.concurrency.map(usize::from));
    let spec = args.access.endpoint(None, &args.endpoint);
    let today = SystemClock.now().to_zoned(TimeZone::UTC).date();
    let progress = Progress::requests("recording");
    let recorded = wire_up::record(&connector, &spec, &args.out, today, &progress, &Stop::heard()).await;
    drop(progress);
    let manifest = recorded?;
    output.show_as(&manifest, &tables::pairs(&manifest), |_| {
        human::outline(&manifest)
    })?;
    say(&format!(
        "recorded in {0}; look through it before you pass it on, then: poolwright emulate --tree {0}",
        args.out.display()
    ));
    match manifest.truncated {
        true => Err(Failure::new(
            ExitCode::Partial,
            "the service shows more than a recording may hold",
        )
        .with_hint("what was recorded can be used; manifest.json says that it was cut off")),
        false => Ok(ExitCode::Ok),
    }
}
