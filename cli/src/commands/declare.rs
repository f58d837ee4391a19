//! `apply -f`: what is wanted, declared in a file, set against what the manager keeps.

use super::change::{ChangeArgs, PartialArgs, StaleArgs};
use super::{Outcome, model_file, plan, queue, schedule, written};
use crate::api_client::Api;
use crate::detach::{self, Ask, ConfirmDetachArgs, Detached};
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::{Cell, Output, Table, column, say};
use poolwright_model::id::DemandId;
use poolwright_planner::Plan;
use poolwright_service::schedule::ScheduleSpec;
use poolwright_service::{Declaration, Declared, DeclaredEntry, Difference, ScheduleStatus, schedule_of};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;

pub const HELP: &str = "\
A file says what is wanted (TOML; or YAML or JSON, with the same names):
  [[demands]]
  id = \"chat\"
  model = \"70B\"
  task = \"infer\"
  concurrency = 64
  tenant = \"web\"
  priority = 10
  [[demands]]
  id = \"batch\"
  gpus = 8
  kind = \"h100-pcie-80gb\"
  window = { weekly = [\"SAT,SUN 00:00-24:00\"], zone = \"Europe/Berlin\" }
  [[schedules]]
  id = \"nights\"
  suspends = [\"chat\"]
  window = { opens = \"0 20 * * *\", closes = \"30 7 * * *\", zone = \"Europe/Berlin\" }
  demands = [{ id = \"train\", model = \"8B\", task = \"full\" }]";

#[derive(Serialize)]
struct Declare<'a> {
    what: &'a Declaration,
    dry_run: bool,
}

/// Stores the declaration in the file, or shows its differences. Changed schedules take effect at once: GPUs that they
/// detach are confirmed first.
pub async fn run(
    api: &Api,
    file: &Path,
    dry_run: bool,
    detach: ConfirmDetachArgs,
) -> Result<Declared, Failure> {
    let mut what: Declaration = written::read(file, "poolwright apply --help shows a whole file")?;
    let of_schedules = what
        .schedules
        .iter_mut()
        .flat_map(|schedule| &mut schedule.demands);
    for demand in what.demands.iter_mut().chain(of_schedules) {
        model_file::send_along(demand, file)?;
    }
    let mut demands = detached_at_once(api, &what).await?;
    demands.extend(queue::may_stop_others(api, &what.demands).await?);
    let detached = Detached::by_demands(api, &demands, &BTreeSet::new()).await?;
    if dry_run {
        detach::tell(api, &detached).await;
        detach.allow(&detached)?;
    } else {
        let action = format!("apply {}", file.display());
        detach.check(api, &detached, &action, Ask::IfDetached).await?;
    }
    let request = Declare { what: &what, dry_run };
    let declared = api.post(&["declare"], &request).await;
    declared.map_err(|refused| written::told(refused, file, &names(&what)))
}

/// The demands whose GPUs are detached at once by the schedules of a declaration, and by its demands with windows.
async fn detached_at_once(api: &Api, what: &Declaration) -> Result<BTreeSet<DemandId>, Failure> {
    let windowed = what.demands.iter().filter(|demand| demand.window.is_some());
    let declared = what.schedules.iter().cloned();
    let declared: Vec<ScheduleSpec> = declared.chain(windowed.cloned().map(schedule_of)).collect();
    if declared.is_empty() {
        return Ok(BTreeSet::new());
    }
    let kept: Vec<ScheduleStatus> = api.get(&["schedules"]).await?;
    let detached = declared.iter().flat_map(|after| {
        let mut kept = kept.iter().map(|kept| &kept.schedule.spec);
        schedule::detached_at_once(kept.find(|before| before.id == after.id), after)
    });
    Ok(detached.collect())
}

/// The names of all that is declared.
fn names(what: &Declaration) -> Vec<String> {
    let schedules = what.schedules.iter();
    let of_schedules = schedules.clone().flat_map(|schedule| &schedule.demands);
    let demands = what.demands.iter().chain(of_schedules);
    // The demand of a schedule says more of where it is than the schedule.
    let demands = demands.map(|demand| demand.id.to_string());
    demands
        .chain(schedules.map(|schedule| schedule.id.to_string()))
        .collect()
}

/// Reports new demands that do not fit in the pool beside all others, and the exit code that says so.
pub async fn report_unfit(api: &Api, what: Declaration) -> ExitCode {
    let request = Declare {
        what: &what,
        dry_run: true,
    };
    // It is kept: that this can't be told now is no failure.
    let judged: Result<Declared, Failure> = api.post(&["declare"], &request).await;
    let entries = judged.iter().flat_map(|declared| &declared.entries);
    let lines: Vec<String> = entries.flat_map(lacks).collect();
    lines.iter().for_each(|line| say(line));
    exit_code(lines.is_empty())
}

fn exit_code(all_fit: bool) -> ExitCode {
    match all_fit {
        true => ExitCode::Ok,
        false => ExitCode::Partial,
    }
}

/// Shows it, and says how to go on.
pub fn show(declared: &Declared, output: Output) -> Outcome {
    output.show_as(declared, &table(declared), |width| {
        let mut lines = vec![table(declared).render(width)];
        lines.extend(declared.entries.iter().flat_map(told));
        lines.join("\n")
    })?;
    let lacks = declared
        .entries
        .iter()
        .any(|entry| !entry.does_not_fit.is_empty());
    say(match (declared.dry_run, lacks) {
        (true, _) => "this was a dry run: nothing was kept",
        (false, true) => {
            "kept; what does not fit is served as soon as there is room: poolwright plan shows why not"
        }
        (false, false) => {
            "kept; demands are served by the next plan that is applied, schedules by the calendar"
        }
    });
    Ok(exit_code(!lacks))
}

fn table(declared: &Declared) -> Table {
    let mut table = Table::new([
        column("KIND"),
        column("NAME").named("id"),
        column("DIFFERENCE"),
        column("FITS"),
    ]);
    for entry in &declared.entries {
        table.row([
            crate::tables::word(&entry.kind),
            Cell::text(&entry.id),
            crate::tables::word(&entry.difference),
            Cell::yes(entry.does_not_fit.is_empty()),
        ]);
    }
    table
}

/// What is different about it, and why it does not fit.
fn told(entry: &DeclaredEntry) -> Vec<String> {
    let fields = entry
        .fields
        .iter()
        .filter(|_| entry.difference == Difference::Changed);
    let fields = fields.map(|field| format!("{}: {field}", entry.id));
    fields.chain(lacks(entry)).collect()
}

/// What there is no room for, and what would help.
fn lacks(entry: &DeclaredEntry) -> Vec<String> {
    let lacks = entry.does_not_fit.iter().flat_map(|lack| {
        let reason = format!("{} does not fit: {}", lack.demand, lack.reason);
        let help = lack.help.iter().map(|help| format!("  would help: {help}"));
        [reason].into_iter().chain(help)
    });
    lacks.collect()
}

/// Schedules, jobs and other operators may change the pool between a plan and its application.
const MOST_PLANS: u32 = 4;

/// Serves all that is wanted, by a plan that is made now.
pub async fn serve(
    api: &Api,
    declared: &Declared,
    change: &ChangeArgs,
    allowed: (ConfirmDetachArgs, StaleArgs, PartialArgs),
    output: Output,
) -> Outcome {
    for entry in &declared.entries {
        let what = match entry.difference {
            Difference::New => "is new",
            Difference::Changed => "is changed",
            Difference::Same => "is as it was",
        };
        say(&format!("{} {what}", entry.id));
        told(entry).iter().for_each(|line| say(line));
    }
    say("the file is kept; a plan serves it");
    let (mut left, mut before) = (MOST_PLANS, None);
    let (lacks, done) = loop {
        left -= 1;
        let made: Plan = api.post(&["plan"], &serde_json::json!({})).await?;
        match plan::carry_out(api, &made, change, allowed, output).await {
            Err(stale)
                if stale.code == ExitCode::Stale && left > 0 && before.as_ref() != Some(&stale.message) =>
            {
                say(&format!("planned again: {}", stale.message));
                before = Some(stale.message);
            }
            done => break (!made.unplaced.is_empty(), done),
        }
    };
    // A repeated try makes another plan, so a key can't stand for it.
    let done = done.map_err(|failure| match failure.code {
        ExitCode::Indeterminate => {
            failure.with_hint("look: poolwright ops list; repeat it: served demands stay as they are")
        }
        // The file is.
        _ if failure.hint.as_deref().is_some_and(|hint| hint.starts_with("nothing was changed")) => failure.with_hint(
            "the file is kept, and this plan was not applied; to serve it later: poolwright plan --out FILE, then poolwright \
             apply FILE",
        ),
        _ => failure,
    })?;
    Ok(match (done, lacks) {
        (ExitCode::Ok, true) => ExitCode::Partial,
        (done, _) => done,
    })
}
