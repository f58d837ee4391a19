//! Measured rows beside their predictions, and the reasons for rows without use.

use super::{Level, Refused, is_server};
use crate::batch::{self, Metric};
use crate::csv::{self, CsvError, Row};
use crate::error::SizingError;
use crate::job::Job;

/// Of a peak over its prediction.
const CREDIBLE: std::ops::RangeInclusive<f64> = 0.5..=2.0;

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Measured {
    pub model: String,
    /// The framework, or the engine.
    pub software: String,
    pub server: bool,
    pub gpus: u64,
    /// Predicted GiB reserved by PyTorch's allocator, or of a server's weights and cache.
    pub inside: Level,
    /// Predicted GiB beside it; none in a row of the allocator's own figure.
    pub overhead: Level,
    /// A peak of the whole process, not of the allocator.
    pub of_process: bool,
    /// GiB.
    pub peak: f64,
}

pub(super) fn read(text: &str) -> Result<(Vec<Measured>, Vec<Refused>), CsvError> {
    let (mut rows, mut refused) = (Vec::new(), Vec::new());
    csv::read(text, |row| match measured(row) {
        Ok(measured) => rows.push(measured),
        Err(error) => refused.push(Refused {
            what: batch::id(row),
            why: error.to_string(),
        }),
    })?;
    Ok((rows, refused))
}

fn measured(row: &Row<'_>) -> Result<Measured, SizingError> {
    let peak = peak(row)?;
    let of_process = match batch::metric(row)? {
        Some(Metric::Reserved) => false,
        Some(Metric::Device) => true,
        other => {
            let found = other.map_or("empty", Metric::name);
            let allowed = "reserved, device; memory allocated is a formula and has no constant to correct";
            return Err(SizingError::bad("metric", found, allowed));
        }
    };
    let case = batch::case(row)?;
    if matches!(case.job, Job::Inference(_)) && row.get("engine").or(row.get("framework")).is_none() {
        let allowed = "the version that was measured, or a library in the column framework";
        return Err(SizingError::bad("engine", "empty", allowed));
    }
    let metric = if of_process {
        Metric::Device
    } else {
        Metric::Reserved
    };
    let held = batch::held(row, &case, metric)?;
    let predicted = held.reserved.middle + held.overhead.middle;
    if !CREDIBLE.contains(&(peak / predicted)) {
        let allowed = "half to twice the prediction, beyond which it was another job than in the row";
        return Err(SizingError::bad("peak_gib", "far off", allowed));
    }
    Ok(Measured {
        model: case.model.name.clone(),
        software: case.software().to_owned(),
        server: is_server(case.software()),
        gpus: case.parallel.gpus(),
        inside: held.reserved,
        overhead: held.overhead,
        of_process,
        peak,
    })
}

/// GiB.
fn peak(row: &Row<'_>) -> Result<f64, SizingError> {
    let allowed = "a number of GiB above 0, at most 10000";
    let text = row
        .get("peak_gib")
        .ok_or_else(|| SizingError::bad("peak_gib", "empty", allowed))?;
    let number = text.parse::<f64>().ok();
    let sound = number.filter(|gib| *gib > 0.0 && *gib <= 10_000.0);
    sound.ok_or_else(|| SizingError::bad("peak_gib", format_args!("{text:?}"), allowed))
}
