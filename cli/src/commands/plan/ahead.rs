//! `plan --ahead`: who will hold which GPUs when, as a manager's calendar goes on.

use super::drawn;
use super::picture::Picture;
use crate::api_client::Api;
use crate::commands::Outcome;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::human::{counted, hung, moment, under, wrapped};
use crate::output::{Cell, Format, Output, Table, column, write};
use poolwright_planner::horizon::Unserved;
use poolwright_service::{Ahead, HeldAhead, MOST_HOURS, Moment, Snapshot};
use poolwright_terminal::duration;
use std::time::Duration;

/// Whole hours.
pub fn hours(text: &str) -> Result<u32, String> {
    const HOUR: u64 = 3600;
    let asked: Duration = duration(text)?;
    let hours = u32::try_from(asked.as_secs().div_ceil(HOUR)).unwrap_or(u32::MAX);
    match (1..=MOST_HOURS).contains(&hours) {
        true => Ok(hours),
        false => Err(format!(
            "{text} is refused: 1h to {MOST_HOURS}h are planned ahead"
        )),
    }
}

pub async fn run(api: &Api, hours: u32, output: Output) -> Outcome {
    let hours = hours.to_string();
    let ahead: Ahead = api
        .get_where(&["plan-ahead"], &[("hours", hours.as_str())])
        .await?;
    if output.format == Format::Json || output.format == Format::Csv {
        output.show(&ahead, &held(&ahead.held))?;
        return Ok(ExitCode::Ok);
    }
    let snapshot: Snapshot = api.get(&["snapshot"]).await?;
    let drawn = drawn::drawn(&ahead, &snapshot).map_err(|invalid| {
        let message = format!("the plan can't be drawn: {invalid}");
        Failure::new(ExitCode::Generic, message).with_hint("-o json has all of it")
    })?;
    if output.format.is_picture() {
        let picture = Picture {
            name: "the pool",
            instance: &drawn.instance,
            problem: &drawn.problem,
            assignment: &drawn.assignment,
            unserved: &unserved(&ahead.moments),
            summary: &summary(&ahead),
            slot_names: &drawn.slot_names,
        };
        write(&match output.format {
            Format::Html => picture.html(),
            _ => picture.svg(),
        })?;
        return Ok(ExitCode::Ok);
    }
    output.show_as(&ahead, &held(&ahead.held), |width| {
        let mut lines = vec![wrapped(&summary(&ahead), width), String::new()];
        lines.extend(drawn::gantt(&drawn, &ahead, width));
        lines.push(String::new());
        lines.extend(ahead.moments.iter().flat_map(|at| told(at, width)));
        lines.join("\n")
    })?;
    Ok(ExitCode::Ok)
}

fn held(held: &[HeldAhead]) -> Table {
    let mut table = Table::new([
        column("HOST"),
        column("DEMAND"),
        column("TENANT"),
        column("GPUS"),
        column("FROM"),
        column("UNTIL"),
    ]);
    for held in held {
        table.row([
            Cell::text(&held.host),
            Cell::maybe(held.demand.as_ref()),
            Cell::maybe(held.tenant.as_ref()),
            Cell::text(held.gpus.len()),
            Cell::at(held.from),
            Cell::at(held.until),
        ]);
    }
    table
}

fn summary(ahead: &Ahead) -> String {
    let recomposes = |moment: &&Moment| moment.attaches + moment.detaches > 0;
    let changes = ahead.moments.iter().filter(recomposes).count();
    let changes = match changes {
        0 => "nothing changes".to_owned(),
        several => counted(several, "recomposition"),
    };
    format!("{} to {}: {changes}", moment(ahead.from), moment(ahead.until))
}

/// A moment in words: what is open, what moves, and what is not served.
fn told(at: &Moment, width: Option<u16>) -> Vec<String> {
    let open: Vec<&str> = at.open.iter().map(|schedule| schedule.as_str()).collect();
    let open = match open.is_empty() {
        true => "no schedule is open".to_owned(),
        false => format!("open: {}", open.join(", ")),
    };
    let moves = format!(
        "{}: {} attached, {} detached; {open}",
        moment(at.at),
        counted(at.attaches, "GPU"),
        counted(at.detaches, "GPU")
    );
    let mut lines = vec![wrapped(&moves, width)];
    for unserved in &at.unserved {
        let why = format!("{} is not served: {}", unserved.demand, unserved.reason);
        lines.push(hung(&why, width));
        let help = unserved.help.iter().map(|help| format!("would help: {help}"));
        lines.extend(help.map(|help| under(&help, width)));
    }
    lines
}

/// What is not served at some moment, each when that is first.
fn unserved(moments: &[Moment]) -> Vec<Unserved> {
    let mut all: Vec<Unserved> = Vec::new();
    for (at, unserved) in moments
        .iter()
        .flat_map(|at| at.unserved.iter().map(move |unserved| (at.at, unserved)))
    {
        if !all.iter().any(|known| known.demand == unserved.demand.as_str()) {
            all.push(Unserved {
                demand: unserved.demand.to_string(),
                reason: format!("at {}: {}", moment(at), unserved.reason),
                help: unserved.help.iter().cloned().collect(),
                partly: false,
            });
        }
    }
    all
}
