//! `size calibrate`: measured peaks correct the constants of frameworks and engines, and what they change is said.

use crate::commands::Outcome;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::human::counted;
use crate::output::{Cell, Format, Output, Table, column, say};
use poolwright_sizing::Calibration;
use poolwright_sizing::calibration::{Calibrated, FEWEST_ROWS, Refused, calibrate};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub struct CalibrateArgs {
    /// Measured peaks, a row each
    #[arg(value_name = "MEASURED.csv")]
    measured: PathBuf,
    /// Write the corrections to this file, for `size --calibration`
    #[arg(long, value_name = "FILE.json")]
    out: Option<PathBuf>,
}

pub const EXAMPLES: &str = "\
Examples:
  poolwright size calibrate measured.csv
  poolwright size calibrate measured.csv --out here.json && poolwright size 8B --task full --calibration here.json

Columns are those of `size --batch`, and peak_gib. metric is `reserved` by PyTorch's allocator, or `device` as NVML \
shows it for the process; engine is the version of a serving engine. Measure on the GPUs that you size for.

The difference from the prediction is a factor on the memory reserved by PyTorch's allocator, or GiB outside it, or \
both: the choice with the best predictions of each row from the others. Of a server it is GiB beside weights and cache. A \
correction needs 3 rows, of jobs of different sizes, stays within limits, and must be better than none. Each is printed \
here and noted at every estimate.

Exit code 2 where the rows correct nothing.";

pub fn run(args: &CalibrateArgs, output: Output) -> Outcome {
    let file = &args.measured;
    let text = fs::read_to_string(file).map_err(|error| Failure::file(file, "read", &error))?;
    let calibrated = calibrate(&text).map_err(|error| {
        Failure::usage(format!("{}: {error}", file.display()))
            .with_hint("the first line names the columns; every other line has as many fields")
    })?;
    output.show_as(&calibrated, &table(&calibrated), |width| {
        shown(&calibrated, width)
    })?;
    if output.format == Format::Csv {
        refusals(&calibrated).iter().for_each(|line| say(line));
    }
    if calibrated.calibration.is_empty() {
        let message = format!("{} corrects no constant", file.display());
        return Err(Failure::usage(message)
            .with_hint("the reasons are above; poolwright size calibrate --help has the columns"));
    }
    if let Some(out) = &args.out {
        let text = calibrated.calibration.to_json();
        let text = text.map_err(|error| Failure::new(ExitCode::Generic, error.to_string()))?;
        fs::write(out, text).map_err(|error| Failure::file(out, "written", &error))?;
    }
    Ok(ExitCode::Ok)
}

/// The corrections of a file.
pub fn read(file: &Path) -> Result<Calibration, Failure> {
    let text = fs::read_to_string(file).map_err(|error| Failure::file(file, "read", &error))?;
    Calibration::parse(&file.display().to_string(), &text).map_err(|error| {
        Failure::usage(error.to_string())
            .with_hint("poolwright size calibrate MEASURED.csv --out FILE makes such a file")
    })
}

fn table(calibrated: &Calibrated) -> Table {
    let mut table = Table::new([
        column("FRAMEWORK"),
        column("CONSTANT"),
        column("CHANGE").named("change_middle"),
        column("CHANGE OF BOUND").named("change_safe"),
        column("ROWS"),
        column("ERROR BEFORE").named("error_before"),
        column("ERROR AFTER").named("error_after"),
    ]);
    for correction in &calibrated.calibration.corrections {
        let figure = |value: f64| Cell::both(correction.constant.words(value), value);
        let error = |value: f64| Cell::both(format!("{value:.1} %"), value);
        table.row([
            Cell::text(&correction.framework),
            Cell::text(correction.constant),
            figure(correction.change.middle),
            figure(correction.change.safe),
            Cell::text(correction.rows),
            error(correction.error_before),
            error(correction.error_after),
        ]);
    }
    table
}

fn shown(calibrated: &Calibrated, width: Option<u16>) -> String {
    let mut lines = Vec::new();
    let corrected = calibrated.calibration.corrections.len();
    if corrected > 0 {
        lines.push(table(calibrated).render(width));
        lines.push(format!(
            "A change is a factor on the prediction, or a difference in GiB. Errors are means over the rows; after: each \
             row from the others, without those of its model where there are {FEWEST_ROWS} models or more. Bounds keep \
             their distance from the middle, and cover all rows."
        ));
    }
    lines.extend(refusals(calibrated));
    lines.join("\n")
}

/// Corrections that were not made and rows without use, with their reasons.
fn refusals(calibrated: &Calibrated) -> Vec<String> {
    let mut lines = Vec::new();
    for refused in &calibrated.refused_corrections {
        lines.push(format!("Not corrected: {}: {}", refused.what, refused.why));
    }
    if !calibrated.refused_rows.is_empty() {
        lines.push(format!(
            "{} not used:",
            counted(calibrated.refused_rows.len(), "row")
        ));
    }
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for Refused { what, why } in &calibrated.refused_rows {
        by_reason.entry(why).or_default().push(what);
    }
    let listed = by_reason
        .iter()
        .map(|(why, rows)| format!("  {}: {why}", some_of(rows)));
    lines.extend(listed);
    lines
}

/// The first names of a list, and how many there are beyond.
fn some_of(names: &[&str]) -> String {
    const SHOWN: usize = 3;
    match names.len() {
        few if few <= SHOWN => names.join(", "),
        many => format!("{} and {} more", names[..SHOWN].join(", "), many - SHOWN),
    }
}
