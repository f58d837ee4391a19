//! `schedule`: recomposition by the calendar.

use super::Outcome;
use super::get::list;
use super::model_file;
use super::removed;
use super::wanted::WantedArgs;
use crate::api_client::{Api, ManagerArgs};
use crate::confirm::ConfirmArgs;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::{Output, human};
use crate::tables;
use poolwright_model::id::{DemandId, ScheduleId};
use poolwright_service::ScheduleStatus;
use poolwright_service::schedule::ScheduleSpec;
use poolwright_service::window::WindowSpec;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub struct ScheduleArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Want something while a window is open, and suspend other demands meanwhile; at once, if it is open now
    #[command(after_help = ADD)]
    Add(Box<AddArgs>),
    /// List all schedules
    #[command(after_help = "Example:\n  poolwright schedule list")]
    List(ManagerArgs),
    /// Show one
    #[command(after_help = "Example:\n  poolwright schedule show nights")]
    Show(OneArgs),
    /// Leave it out until it is resumed
    #[command(after_help = "Example:\n  poolwright schedule pause nights")]
    Pause(OneArgs),
    /// Let it go on
    #[command(after_help = "Example:\n  poolwright schedule resume nights")]
    Resume(OneArgs),
    /// Forget it; what its demands hold is let go at once, and what it suspended comes back
    #[command(after_help = "Example:\n  poolwright schedule remove nights --yes")]
    Remove(RemoveArgs),
    /// Show what ran by the calendar
    #[command(after_help = "Example:\n  poolwright schedule runs -o json")]
    Runs(ManagerArgs),
}

const ADD: &str = "\
Examples:
  poolwright schedule add nights --opens \"0 20 * * *\" --closes \"30 7 * * *\" --zone Europe/Berlin \\
      8B --task full --suspends chat
  poolwright schedule add --file nights.toml

A file (TOML or JSON) may want several things:
  id = \"nights\"
  suspends = [\"chat\"]
  window = { opens = \"0 20 * * *\", closes = \"30 7 * * *\", zone = \"Europe/Berlin\" }
  [[demands]]
  id = \"train\"
  model = \"8B\"
  task = \"full\"";

#[derive(Debug, clap::Args)]
struct AddArgs {
    /// Its name
    #[arg(value_name = "NAME", required_unless_present = "file")]
    name: Option<ScheduleId>,
    /// When it opens: a cron expression of five fields
    #[arg(long, value_name = "CRON", required_unless_present = "file")]
    opens: Option<String>,
    /// When it closes
    #[arg(long, value_name = "CRON", required_unless_present = "file")]
    closes: Option<String>,
    /// Time zone of both, by its IANA name
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    zone: String,
    /// Demand that is not wanted while it is open; may be given several times
    #[arg(long, value_name = "DEMAND")]
    suspends: Vec<DemandId>,
    /// Name of the demand that it makes; without it that of the schedule
    #[arg(long, value_name = "NAME")]
    demand_name: Option<DemandId>,
    #[command(flatten)]
    wanted: WantedArgs,
    /// The whole schedule from a file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "opens", "closes", "suspends", "model", "phases", "gpus"])]
    file: Option<PathBuf>,
    #[command(flatten)]
    manager: ManagerArgs,
}

#[derive(Debug, clap::Args)]
struct OneArgs {
    #[arg(value_name = "SCHEDULE")]
    id: ScheduleId,
    #[command(flatten)]
    manager: ManagerArgs,
}

#[derive(Debug, clap::Args)]
struct RemoveArgs {
    #[command(flatten)]
    one: OneArgs,
    #[command(flatten)]
    confirm: ConfirmArgs,
}

pub async fn run(args: ScheduleArgs, output: Output) -> Outcome {
    match args.action {
        Action::Add(args) => {
            let spec = spec(&args)?;
            let status: ScheduleStatus = Api::new(&args.manager)?.post(&["schedules"], &spec).await?;
            output.show(&status, &tables::schedules(std::slice::from_ref(&status)))?;
        }
        Action::List(manager) => list(&Api::new(&manager)?, "schedules", output, tables::schedules).await?,
        Action::Show(one) => {
            let found: Value = Api::new(&one.manager)?
                .get(&["schedules", one.id.as_str()])
                .await?;
            output.show_as(&found, &tables::pairs(&found), |_| human::outline(&found))?;
        }
        Action::Pause(one) => switch(&one, "pause", output).await?,
        Action::Resume(one) => switch(&one, "resume", output).await?,
        Action::Remove(RemoveArgs { one, confirm }) => {
            let api = Api::new(&one.manager)?;
            confirm.confirm(&format!(
                "forget schedule {}, let go of what its demands hold, and bring back what it suspends",
                one.id
            ))?;
            api.delete(&["schedules", one.id.as_str()]).await?;
            removed::show("schedule", &one.id, output)?;
        }
        Action::Runs(manager) => {
            list(
                &Api::new(&manager)?,
                "schedule-runs",
                output,
                tables::schedule_runs,
            )
            .await?
        }
    }
    Ok(ExitCode::Ok)
}

async fn switch(one: &OneArgs, verb: &str, output: Output) -> Result<(), Failure> {
    let path = ["schedules", one.id.as_str(), verb];
    let status: ScheduleStatus = Api::new(&one.manager)?.post(&path, &json!({})).await?;
    output.show(&status, &tables::schedules(std::slice::from_ref(&status)))
}

fn spec(args: &AddArgs) -> Result<ScheduleSpec, Failure> {
    if let Some(file) = &args.file {
        return read(file);
    }
    let (Some(id), Some(opens), Some(closes)) = (args.name.clone(), args.opens.clone(), args.closes.clone())
    else {
        return Err(Failure::usage("a schedule needs a name, --opens and --closes")
            .with_hint("see --help for examples"));
    };
    let demands = match args.wanted.is_given() {
        false => Vec::new(),
        true => {
            let name = args
                .demand_name
                .clone()
                .unwrap_or_else(|| DemandId::from_lossy(id.as_str()));
            vec![args.wanted.spec(name)?]
        }
    };
    let window = WindowSpec {
        opens,
        closes,
        zone: args.zone.clone(),
    };
    Ok(ScheduleSpec {
        id,
        window,
        demands,
        suspends: args.suspends.clone(),
        paused: false,
    })
}

fn read(file: &Path) -> Result<ScheduleSpec, Failure> {
    let text = fs::read_to_string(file).map_err(|error| Failure::file(file, "read", &error))?;
    let parsed = match file.extension().is_some_and(|ending| ending == "json") {
        true => serde_json::from_str(&text).map_err(|error| error.to_string()),
        false => toml::from_str(&text).map_err(|error| error.to_string()),
    };
    let mut spec: ScheduleSpec = parsed.map_err(|error| {
        Failure::usage(format!("{}: {}", file.display(), error.trim_end()))
            .with_hint("poolwright schedule add --help shows a whole file")
    })?;
    for demand in &mut spec.demands {
        model_file::send_along(demand, file)?;
    }
    Ok(spec)
}
