//! `size --batch`: many cases from a CSV file; CSV out, or JSON where that is asked for.

use crate::commands::Outcome;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::{Format, Output, Table, write};
use poolwright_sizing::{Calibration, batch};
use serde::Serialize;
use std::fs;
use std::path::Path;

#[derive(Serialize)]
struct Case {
    id: String,
    predicted_gib: Option<f64>,
    safe_gib: Option<f64>,
    refused: Option<String>,
}

pub fn run(file: &Path, calibration: &Calibration, output: Output) -> Outcome {
    let text = fs::read_to_string(file).map_err(|error| Failure::file(file, "read", &error))?;
    let outcomes = batch::size_calibrated(&text, calibration).map_err(|error| {
        Failure::usage(format!("{}: {error}", file.display()))
            .with_hint("the first line names the columns; every other line has as many fields")
    })?;
    let code = match outcomes.iter().all(|outcome| outcome.result.is_err()) {
        true => ExitCode::Partial,
        false => ExitCode::Ok,
    };
    if output.format != Format::Json {
        write(&batch::to_csv(&outcomes))?;
        return Ok(code);
    }
    let cases = outcomes.into_iter().map(|outcome| match outcome.result {
        Ok(found) => Case {
            id: outcome.id,
            predicted_gib: Some(found.point.gib()),
            safe_gib: Some(found.safe.gib()),
            refused: None,
        },
        Err(why) => Case {
            id: outcome.id,
            predicted_gib: None,
            safe_gib: None,
            refused: Some(why.to_string()),
        },
    });
    output.show(&cases.collect::<Vec<_>>(), &Table::new::<&str>([]))?;
    Ok(code)
}
