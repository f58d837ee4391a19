//! `schedule`: recomposition by the calendar.

mod next;

use super::Outcome;
use super::declare;
use super::get::list;
use super::model_file;
use super::number::within;
use super::removed;
use super::wanted::WantedArgs;
use super::written;
use crate::api_client::{Api, ManagerArgs};
use crate::detach::{Ask, ConfirmDetachArgs};
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::{Output, human, say};
use crate::tables;
use jiff::civil::Date;
use poolwright_executor::{Clock, SystemClock};
use poolwright_model::id::{DemandId, ScheduleId};
use poolwright_service::hooks::HookName;
use poolwright_service::ladder::Ladder;
use poolwright_service::occurrence::{Missed, Overlap};
use poolwright_service::runner::ScheduleRun;
use poolwright_service::schedule::ScheduleSpec;
use poolwright_service::window::WindowSpec;
use poolwright_service::{Declaration, ScheduleStatus};
use poolwright_terminal::{duration, some_time};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
    #[command(after_help = "Example:\n  poolwright schedule pause nights --yes")]
    Pause(SwitchArgs),
    /// Let it go on
    #[command(after_help = "Example:\n  poolwright schedule resume nights --yes")]
    Resume(SwitchArgs),
    /// Forget it; what its demands hold is let go at once, and what it suspended comes back
    #[command(after_help = "Example:\n  poolwright schedule remove nights --yes")]
    Remove(SwitchArgs),
    /// Show when windows open next
    #[command(after_help = next::EXAMPLES)]
    Next(Box<next::NextArgs>),
    /// Open its window now
    #[command(
        after_help = "Examples:\n  poolwright schedule run nights\n  poolwright schedule run nights --for 2h --yes --max-detach 8"
    )]
    Run(RunArgs),
    /// Show what ran by the calendar
    #[command(
        visible_alias = "history",
        after_help = "Examples:\n  poolwright schedule runs -o json\n  poolwright schedule runs nights --count 20"
    )]
    Runs(RunsArgs),
}

const ADD: &str = "\
Examples:
  poolwright schedule add nights --opens \"0 20 * * *\" --closes \"30 7 * * *\" --zone Europe/Berlin \\
      8B --task full --suspends chat
  poolwright schedule add weekends --weekly \"SAT,SUN 00:00-24:00\" --gpus 8 --overlap queue --suspends chat
  poolwright schedule add nights --weekly \"daily 20:00-07:30\" --gpus 8 --suspends chat --back-by-close \\
      --notice 10m --notify tell --checkpoint save --checkpoint-limit 5m --grace 5m --may-stop --reclaim 30m
  poolwright schedule add fair --weekly \"daily 08:00-18:00\" --gpus 4 --first-day 2026-12-07 --last-day 2026-12-11
  poolwright schedule add --file nights.toml

Where a local time is skipped because clocks are set forward, the first moment after the gap counts; where one comes
twice, the first of both.

A file (TOML, YAML or JSON) may want several things:
  id = \"nights\"
  suspends = [\"chat\"]
  overlap = \"queue\"
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
    #[command(flatten)]
    window: WindowArgs,
    /// Demand that is not wanted while it is open; may be given several times
    #[arg(long, value_name = "DEMAND")]
    suspends: Vec<DemandId>,
    /// Name of the demand that it makes; without it that of the schedule
    #[arg(long, value_name = "NAME")]
    demand_name: Option<DemandId>,
    /// Where it opens while another schedule runs that suspends the same: both run, this opening is skipped, or it is
    /// queued until the other is over
    #[arg(long, value_name = "both|skip|queue", default_value = "both", value_parser = named::<Overlap>)]
    overlap: Overlap,
    /// An opening that was missed for 5 minutes, because the manager was down or automation paused: made up for while
    /// the window is still open, or skipped
    #[arg(long, value_name = "make-up|skip", default_value = "make-up", value_parser = named::<Missed>)]
    missed: Missed,
    /// What it suspends is back when the window closes: it ends so much earlier as recompositions took so far (p95)
    #[arg(long)]
    back_by_close: bool,
    #[command(flatten)]
    lending: LendingArgs,
    #[command(flatten)]
    wanted: WantedArgs,
    /// The whole schedule from a file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "opens", "closes", "weekly", "suspends", "model", "phases", "gpus", "overlap", "missed", "back_by_close", "notice", "notify", "checkpoint", "reclaim", "alert"])]
    file: Option<PathBuf>,
    #[command(flatten)]
    detach: ConfirmDetachArgs,
    #[command(flatten)]
    manager: ManagerArgs,
}

/// How what is lent comes back. Hooks are commands that `poolwright serve --hooks FILE` knows by name.
#[derive(Debug, Clone, clap::Args)]
struct LendingArgs {
    /// So long before it is taken back the borrower is told
    #[arg(long, value_name = "TIME", value_parser = duration)]
    notice: Option<Duration>,
    /// Hook that tells it
    #[arg(long, value_name = "HOOK", requires = "notice")]
    notify: Option<HookName>,
    /// Hook that decides by its exit status: with 0 it may be taken, with anything else not yet
    #[arg(long, value_name = "HOOK")]
    checkpoint: Option<HookName>,
    /// The longest that one run of it may take; 60s if nothing is said
    #[arg(long, value_name = "TIME", requires = "checkpoint", value_parser = some_time)]
    checkpoint_limit: Option<Duration>,
    /// How long a checkpoint that did not succeed is tried again before --may-stop decides
    #[arg(long, value_name = "TIME", requires = "checkpoint", value_parser = duration)]
    grace: Option<Duration>,
    /// After the grace it is taken all the same, unless a GPU of it is in use
    #[arg(long, requires = "checkpoint")]
    may_stop: bool,
    /// What is suspended is guaranteed to be back so long after the borrower was first asked
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    reclaim: Option<Duration>,
    /// Hook that is run once where a return is going to be late
    #[arg(long, value_name = "HOOK")]
    alert: Option<HookName>,
}

impl LendingArgs {
    fn ladder(&self) -> Result<Option<Ladder>, Failure> {
        if self.notice.is_none() && self.checkpoint.is_none() {
            return Ok(None);
        }
        Ok(Some(Ladder {
            notice_s: self.notice.map_or(Ok(0), |time| seconds("--notice", time))?,
            notify: self.notify.clone(),
            checkpoint: self.checkpoint.clone(),
            checkpoint_s: self
                .checkpoint_limit
                .map(|time| seconds("--checkpoint-limit", time))
                .transpose()?,
            grace_s: self.grace.map_or(Ok(0), |time| seconds("--grace", time))?,
            may_stop: self.may_stop,
        }))
    }
}

fn seconds(option: &str, time: Duration) -> Result<u32, Failure> {
    let whole = u32::try_from(time.as_secs())
        .ok()
        .filter(|_| time.subsec_nanos() == 0);
    whole.ok_or_else(|| {
        Failure::usage(format!(
            "{option}: whole seconds are wanted, and at most 136 years"
        ))
    })
}

/// When a window is open.
#[derive(Debug, Clone, clap::Args)]
struct WindowArgs {
    /// When it opens: a cron expression of five fields
    #[arg(long, value_name = "CRON", requires = "closes")]
    opens: Option<String>,
    /// When it closes
    #[arg(long, value_name = "CRON", requires = "opens")]
    closes: Option<String>,
    /// A range of the week instead of both, such as "MON-FRI 20:00-07:30" or "daily 00:00-06:00"; may be given several
    /// times
    #[arg(long, value_name = "RANGE", conflicts_with_all = ["opens", "closes"])]
    weekly: Vec<String>,
    /// Time zone, by its IANA name
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    zone: String,
    /// It opens on no day before this one
    #[arg(long, value_name = "DATE")]
    first_day: Option<Date>,
    /// When this day is over it is closed for good
    #[arg(long, value_name = "DATE")]
    last_day: Option<Date>,
}

impl WindowArgs {
    /// Nothing where no time is given.
    fn spec(&self) -> Option<WindowSpec> {
        let given = self.opens.is_some() || self.closes.is_some() || !self.weekly.is_empty();
        given.then(|| WindowSpec {
            opens: self.opens.clone().unwrap_or_default(),
            closes: self.closes.clone().unwrap_or_default(),
            weekly: self.weekly.clone(),
            zone: self.zone.clone(),
            first_day: self.first_day,
            last_day: self.last_day,
        })
    }
}

/// A word of a few, as files have it.
fn named<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(Value::from(text)).map_err(|error| error.to_string())
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    #[command(flatten)]
    one: OneArgs,
    #[command(flatten)]
    detach: ConfirmDetachArgs,
    /// For so long; without it until its window would close next
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    lasts: Option<Duration>,
}

#[derive(Debug, clap::Args)]
struct RunsArgs {
    /// Only of this one
    #[arg(value_name = "SCHEDULE")]
    id: Option<ScheduleId>,
    /// Only the latest
    #[arg(long, value_name = "N", value_parser = within::<u32>(1, 100_000), allow_negative_numbers = true)]
    count: Option<u32>,
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

/// A schedule that is switched or removed: GPUs of its own demands, or of those that it suspends, are detached.
#[derive(Debug, clap::Args)]
struct SwitchArgs {
    #[command(flatten)]
    one: OneArgs,
    #[command(flatten)]
    detach: ConfirmDetachArgs,
}

/// The demands whose GPUs are detached at once when `after` replaces `before`: while it is open those that it suspends,
/// and its own that it ends or changes.
pub(super) fn detached_at_once(before: Option<&ScheduleSpec>, after: &ScheduleSpec) -> BTreeSet<DemandId> {
    if before == Some(after) {
        return BTreeSet::new();
    }
    let now = SystemClock.now();
    // The manager refuses an invalid window with the reason.
    let window = after.window.parse(now);
    let opens = !after.paused && window.is_ok_and(|window| window.is_open(now));
    let suspended = after.suspends.iter().filter(|_| opens).cloned();
    let own = before.iter().flat_map(|before| &before.demands);
    let ended = own.filter(|demand| !opens || !after.demands.contains(demand));
    suspended.chain(ended.map(|demand| demand.id.clone())).collect()
}

/// The demands whose GPUs are detached once nothing keeps schedules from being followed: what the open ones suspend, and
/// what the closed ones wanted.
pub(super) async fn detached_when_followed(api: &Api) -> Result<BTreeSet<DemandId>, Failure> {
    let all: Vec<ScheduleStatus> = api.get(&["schedules"]).await?;
    let followed = all.iter().filter(|status| !status.schedule.spec.paused);
    let detached = followed.flat_map(|status| -> Vec<DemandId> {
        match status.open {
            true => status.schedule.spec.suspends.clone(),
            false => status.schedule.own_demands().cloned().collect(),
        }
    });
    Ok(detached.collect())
}

pub async fn run(args: ScheduleArgs, output: Output) -> Outcome {
    match args.action {
        Action::Add(args) => {
            let spec = spec(&args)?;
            let api = Api::new(&args.manager)?;
            let suspended = detached_at_once(None, &spec);
            let what = format!("add schedule {}, which takes effect at once", spec.id);
            args.detach
                .check_demands(&api, &suspended, &what, Ask::IfDetached)
                .await?;
            let status: ScheduleStatus = api.post(&["schedules"], &spec).await?;
            output.show(&status, &tables::schedules(std::slice::from_ref(&status)))?;
            let (demands, schedules) = (Vec::new(), vec![spec]);
            return Ok(declare::report_unfit(&api, Declaration { demands, schedules }).await);
        }
        Action::List(manager) => list(&Api::new(&manager)?, "schedules", output, tables::schedules).await?,
        Action::Show(one) => {
            let found: Value = Api::new(&one.manager)?
                .get(&["schedules", one.id.as_str()])
                .await?;
            output.show_as(&found, &tables::pairs(&found), |_| human::outline(&found))?;
        }
        Action::Pause(args) => switch(&args, true, output).await?,
        Action::Resume(args) => switch(&args, false, output).await?,
        Action::Remove(SwitchArgs { one, detach }) => {
            let api = Api::new(&one.manager)?;
            let what = format!(
                "forget schedule {}, let go of what its demands hold, and bring back what it suspends",
                one.id
            );
            let kept: ScheduleStatus = api.get(&["schedules", one.id.as_str()]).await?;
            let own = kept.schedule.own_demands().cloned().collect();
            detach.check_demands(&api, &own, &what, Ask::Always).await?;
            api.delete(&["schedules", one.id.as_str()]).await?;
            removed::show("schedule", &one.id, output)?;
        }
        Action::Next(args) => next::run(*args, output).await?,
        Action::Run(args) => {
            // Longer than any run may be: the manager says how long that is.
            let seconds = args
                .lasts
                .map(|lasts| u32::try_from(lasts.as_secs()).unwrap_or(u32::MAX));
            let path = ["schedules", args.one.id.as_str(), "run"];
            let api = Api::new(&args.one.manager)?;
            let kept: ScheduleStatus = api.get(&["schedules", args.one.id.as_str()]).await?;
            let suspended = kept.schedule.spec.suspends.into_iter().collect();
            let what = format!("run schedule {}", args.one.id);
            args.detach
                .check_demands(&api, &suspended, &what, Ask::IfDetached)
                .await?;
            let status: ScheduleStatus = api.post(&path, &json!({ "for_s": seconds })).await?;
            output.show(&status, &tables::schedules(std::slice::from_ref(&status)))?;
            if let Some(run) = &status.schedule.by_hand {
                say(&format!("it runs until {}", run.until));
            }
        }
        Action::Runs(RunsArgs { id, count, manager }) => {
            let count = count.map(|count| count.to_string());
            let only = [
                ("schedule", id.as_ref().map(ScheduleId::as_str)),
                ("most", count.as_deref()),
            ];
            let query: Vec<(&str, &str)> = only
                .into_iter()
                .filter_map(|(key, value)| Some((key, value?)))
                .collect();
            let runs: Vec<ScheduleRun> = Api::new(&manager)?.get_where(&["schedule-runs"], &query).await?;
            output.show(&runs, &tables::schedule_runs(&runs))?;
        }
    }
    Ok(ExitCode::Ok)
}

async fn switch(SwitchArgs { one, detach }: &SwitchArgs, pause: bool, output: Output) -> Result<(), Failure> {
    let api = Api::new(&one.manager)?;
    let verb = check_switch(&api, &one.id, pause, *detach).await?;
    let path = ["schedules", one.id.as_str(), verb];
    let status: ScheduleStatus = api.post(&path, &json!({})).await?;
    output.show(&status, &tables::schedules(std::slice::from_ref(&status)))
}

/// Confirms that a schedule is paused or resumed, which takes effect at once. Returns the verb.
pub(super) async fn check_switch(
    api: &Api,
    id: &ScheduleId,
    pause: bool,
    detach: ConfirmDetachArgs,
) -> Result<&'static str, Failure> {
    let verb = match pause {
        true => "pause",
        false => "resume",
    };
    let kept: ScheduleStatus = api.get(&["schedules", id.as_str()]).await?;
    let before = kept.schedule.spec;
    let after = ScheduleSpec {
        paused: pause,
        ..before.clone()
    };
    let demands = detached_at_once(Some(&before), &after);
    let what = format!("{verb} schedule {id}");
    detach
        .check_demands(api, &demands, &what, Ask::IfDetached)
        .await?;
    Ok(verb)
}

fn spec(args: &AddArgs) -> Result<ScheduleSpec, Failure> {
    if let Some(file) = &args.file {
        return read(file);
    }
    let (Some(id), Some(window)) = (args.name.clone(), args.window.spec()) else {
        return Err(
            Failure::usage("a schedule needs a name, and either --opens and --closes or --weekly")
                .with_hint("see --help for examples"),
        );
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
    Ok(ScheduleSpec {
        id,
        window,
        demands,
        suspends: args.suspends.clone(),
        paused: false,
        overlap: args.overlap,
        missed: args.missed,
        back_by_close: args.back_by_close,
        ladder: args.lending.ladder()?,
        reclaim_s: args
            .lending
            .reclaim
            .map(|time| seconds("--reclaim", time))
            .transpose()?,
        alert: args.lending.alert.clone(),
    })
}

fn read(file: &Path) -> Result<ScheduleSpec, Failure> {
    let mut spec: ScheduleSpec = written::read(file, "poolwright schedule add --help shows a whole file")?;
    for demand in &mut spec.demands {
        model_file::send_along(demand, file)?;
    }
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(first_day: Option<&str>, gpus: u32) -> ScheduleSpec {
        serde_json::from_value(json!({
            "id": "nights",
            "window": {"weekly": ["daily 00:00-24:00"], "first_day": first_day},
            "suspends": ["chat"],
            "demands": [{"id": "train", "gpus": gpus}, {"id": "tune", "gpus": 1}],
        }))
        .unwrap()
    }

    /// Fault 79: a schedule takes effect at once.
    #[test]
    fn an_open_schedule_detaches_other_gpus_than_one_that_ends() {
        let demands = |before: Option<&ScheduleSpec>, after: &ScheduleSpec| -> Vec<String> {
            let demands = detached_at_once(before, after);
            demands.iter().map(ToString::to_string).collect()
        };
        let (open, closed) = (schedule(None, 4), schedule(Some("2099-12-01"), 4));
        let paused = ScheduleSpec {
            paused: true,
            ..open.clone()
        };
        assert_eq!(demands(None, &closed), [""; 0]);
        assert_eq!(demands(None, &open), ["chat"]);
        assert_eq!(demands(Some(&open), &open), [""; 0]);
        assert_eq!(demands(Some(&open), &schedule(None, 2)), ["chat", "train"]);
        assert_eq!(demands(Some(&open), &closed), ["train", "tune"]);
        assert_eq!(demands(Some(&open), &paused), ["train", "tune"]);
        assert_eq!(demands(Some(&paused), &open), ["chat"]);
    }
}
