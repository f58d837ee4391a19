//! `schedule next`: when windows open, of a manager's schedules or of one that is only thought of.

use super::{WindowArgs, read};
use crate::api_client::{Api, ManagerArgs};
use crate::commands::number::within;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::{Output, say};
use crate::tables;
use jiff::Timestamp;
use poolwright_executor::{Clock, SystemClock};
use poolwright_model::id::ScheduleId;
use poolwright_service::window::WindowSpec;
use poolwright_service::{DueOpening, MOST_OPENINGS, openings_of};
use std::path::PathBuf;

pub const EXAMPLES: &str = "\
Examples:
  poolwright schedule next --count 5
  poolwright schedule next nights
  poolwright schedule next --file nights.toml
  poolwright schedule next --weekly \"MON-FRI 20:00-07:30\" --zone Europe/Berlin --from 2026-10-23T12:00:00Z

A manager says from when GPUs are attached for each opening, too, and how that was measured. The last two ask no
manager: they show what a window would do before it is kept.";

#[derive(Debug, clap::Args)]
pub struct NextArgs {
    /// Only of this one
    #[arg(value_name = "SCHEDULE", conflicts_with_all = ["file", "opens", "weekly"])]
    id: Option<ScheduleId>,
    /// So many openings in all, the earliest of any schedule first
    #[arg(long, value_name = "N", default_value = "10", value_parser = within::<usize>(1, MOST_OPENINGS as u64), allow_negative_numbers = true)]
    count: usize,
    /// Of the schedule in this file, without a manager
    #[arg(long, value_name = "FILE", conflicts_with_all = ["opens", "weekly"])]
    file: Option<PathBuf>,
    #[command(flatten)]
    window: WindowArgs,
    /// After this moment, and not now; without a manager
    #[arg(long, value_name = "TIME")]
    from: Option<Timestamp>,
    #[command(flatten)]
    manager: ManagerArgs,
}

pub async fn run(args: NextArgs, output: Output) -> Result<(), Failure> {
    let (id, window) = match (&args.file, args.window.spec()) {
        (Some(file), _) => {
            let spec = read(file)?;
            (Some(spec.id), Some(spec.window))
        }
        (None, window) => (None, window),
    };
    let found = match window {
        Some(window) => of_window(id.as_ref(), &window, &args)?,
        None => of_manager(&args).await?,
    };
    output.show(&found, &tables::openings(&found))
}

fn of_window(
    id: Option<&ScheduleId>,
    window: &WindowSpec,
    args: &NextArgs,
) -> Result<Vec<DueOpening>, Failure> {
    let after = args.from.unwrap_or_else(|| SystemClock.now());
    let wrong =
        |error: String| Failure::usage(error).with_hint("poolwright schedule add --help has examples");
    let parsed = window.parse(after).map_err(|error| wrong(error.to_string()))?;
    if !parsed.ever_opens(after) {
        return Err(wrong(format!("this window never opens: {window}")));
    }
    let found = openings_of(id, &parsed, after, args.count);
    if found.is_empty() && parsed.is_open(after) {
        say("this window is open all the time: it opens no more, and never closes");
    }
    Ok(found)
}

async fn of_manager(args: &NextArgs) -> Result<Vec<DueOpening>, Failure> {
    if args.from.is_some() {
        let message = "--from is for a window that is given here: a manager tells what comes next";
        return Err(Failure::new(ExitCode::Usage, message).with_hint(
            "give the window, too: --file FILE, --weekly RANGE, or --opens CRON and --closes CRON",
        ));
    }
    let count = args.count.to_string();
    let mut query = vec![("most", count.as_str())];
    query.extend(args.id.iter().map(|id| ("schedule", id.as_str())));
    Api::new(&args.manager)?
        .get_where(&["schedule-openings"], &query)
        .await
}
