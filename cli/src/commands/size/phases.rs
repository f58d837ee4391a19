//! `size --phases`: a run over time, as windows with a need each.

use super::answer::calibrated;
use super::{answered, read_model};
use crate::commands::{Outcome, model_file};
use crate::failure::Failure;
use crate::output::human::{duration, wrapped};
use crate::output::{Cell, Output, Table, column};
use crate::service_failure::refused;
use jiff::{SignedDuration, Timestamp};
use poolwright_service::phases::RunSpec;
use poolwright_sizing::fit::Division;
use poolwright_sizing::need::NeedWindow;
use poolwright_sizing::phases::{PhaseKind, Scheduled};
use poolwright_sizing::{Calibration, Offer};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// The fixed form in JSON. A window's need is what a demand takes while the window is open.
#[derive(Serialize)]
struct Answer<'a> {
    model: &'a str,
    /// Of the whole run.
    seconds: u64,
    phases: Vec<Part<'a>>,
}

#[derive(Serialize)]
struct Part<'a> {
    kind: PhaseKind,
    starts: Option<Timestamp>,
    ends: Option<Timestamp>,
    division: Division,
    tokens_per_s: Option<f64>,
    #[serde(flatten)]
    window: &'a NeedWindow,
}

const LEGEND: [&str; 2] = [
    "Each phase on the smallest set that holds it, at its estimated speed; the planner may take any set that is as fast.",
    "Checkpoints, failures and the moves between phases take their time on top.",
];

/// What a run is sized on, and with.
pub struct Pool<'a> {
    pub offers: &'a [Offer],
    pub host_slots: Option<u32>,
    pub calibration: &'a Calibration,
}

pub fn run(file: &Path, pool: &Pool<'_>, start: Option<Timestamp>, output: Output) -> Outcome {
    let here = |mut failure: Failure| {
        failure.message = format!("{}: {}", file.display(), failure.message);
        failure
    };
    let run = read(file)?;
    // A config.json is looked for from where the run's file is.
    let model = read_model(&model_file::beside(file, &run.model).to_string_lossy()).map_err(here)?;
    let scheduled = run.schedule_of(&model, pool.offers, pool.host_slots, pool.calibration);
    let scheduled = scheduled.map_err(|error| here(refused(error)).explained(true))?;
    let answer = Answer {
        model: &run.model,
        seconds: scheduled.last().map_or(0, |last| last.window.end_s),
        phases: scheduled.iter().map(|phase| part(phase, start)).collect(),
    };
    let table = table(&scheduled, &answer);
    output.show_as(&answer, &table, |width| {
        let whole = duration(answer.seconds as f64);
        let mut lines = vec![
            format!("{} in {whole}", run.model),
            String::new(),
            table.render(width),
        ];
        let said = LEGEND.iter().map(|line| (*line).to_owned());
        let said = said.chain(calibrated(scheduled.iter().map(|phase| &phase.set)));
        lines.extend(
            model
                .warning()
                .into_iter()
                .chain(said)
                .map(|line| wrapped(&line, width)),
        );
        lines.join("\n")
    })?;
    Ok(answered(&model))
}

/// The run that a file describes.
pub fn read(file: &Path) -> Result<RunSpec, Failure> {
    let text = fs::read_to_string(file).map_err(|error| Failure::file(file, "read", &error))?;
    toml::from_str(&text).map_err(|error| {
        Failure::usage(format!("{}: {}", file.display(), error.to_string().trim_end())).with_hint(
            "a run has a model, and [[phase]] tables with kind, tokens or hours, and name, job, set, gpus and gpu",
        )
    })
}

fn part(phase: &Scheduled, start: Option<Timestamp>) -> Part<'_> {
    // A moment beyond the calendar is none.
    let at = |seconds: u64| {
        let after = SignedDuration::from_secs(i64::try_from(seconds).ok()?);
        start?.checked_add(after).ok()
    };
    Part {
        kind: phase.kind,
        starts: at(phase.window.start_s),
        ends: at(phase.window.end_s),
        division: phase.set.division,
        tokens_per_s: phase.set.tokens_per_s(),
        window: &phase.window,
    }
}

fn table(scheduled: &[Scheduled], answer: &Answer<'_>) -> Table {
    let mut table = Table::new([
        column("PHASE"),
        column("AFTER").named("start_s"),
        column("LASTS").named("seconds"),
        column("STARTS").if_any().if_room(),
        column("ENDS").if_any().if_room(),
        column("GPUS").named("count"),
        column("KIND"),
        column("GROUP").if_room(),
        column("HOSTS").if_any().if_room(),
        column("SAFE PER GPU").named("safe_bytes_per_gpu"),
        column("TOKENS/S").named("tokens_per_s").if_any().if_room(),
        column("OTHER SETS").named("alternatives").if_room(),
    ]);
    for (phase, part) in scheduled.iter().zip(&answer.phases) {
        let window = &phase.window;
        let time = |seconds: u64| Cell::both(duration(seconds as f64), seconds);
        let rate = |rate: f64| Cell::both(format!("{rate:.0}"), rate);
        table.row([
            Cell::text(&window.phase),
            time(window.start_s),
            time(window.end_s - window.start_s),
            Cell::at(part.starts),
            Cell::at(part.ends),
            Cell::text(phase.set.set.count),
            Cell::maybe(phase.set.set.kind.as_ref()),
            Cell::text(phase.set.set.group),
            Cell::maybe(phase.set.hosts),
            Cell::bytes(phase.set.estimate.safe),
            part.tokens_per_s.map_or_else(Cell::nothing, rate),
            Cell::text(window.need.alternatives.len() - 1),
        ]);
    }
    table
}
