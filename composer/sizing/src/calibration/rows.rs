//! A measured row beside what is predicted for it, or why it says nothing.

use super::{ENGINE, Level, OUTSIDE, Refused};
use crate::batch::{self, Case, Metric};
use crate::constants::Constants;
use crate::csv::{self, CsvError, Row};
use crate::error::SizingError;
use crate::inference;
use crate::job::{Inference, Job};

/// Of a peak over what is predicted; beyond it the row is taken for another job than it says.
const CREDIBLE: std::ops::RangeInclusive<f64> = 0.5..=2.0;

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Measured {
    pub model: String,
    /// The framework, or the engine.
    pub software: String,
    /// It reserves its share at the start; what it holds beside weights and cache is its own.
    pub server: bool,
    pub gpus: u64,
    /// Predicted, in GiB: by PyTorch's allocator, or a server's weights and cache.
    pub inside: Level,
    /// Predicted beside it, in GiB.
    pub outside: Level,
    /// The peak is that of the whole process.
    pub whole: bool,
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
    let whole = match batch::metric(row)? {
        Some(Metric::Reserved) => false,
        Some(Metric::Device) => true,
        other => {
            let found = other.map_or("empty", Metric::name);
            let allowed = "reserved, device; memory allocated is a formula and has no constant to correct";
            return Err(SizingError::bad("metric", found, allowed));
        }
    };
    let case = batch::case(row)?;
    let gpus = case.parallel.gpus();
    let (software, server, inside, outside) = match &case.job {
        Job::Training(job) => {
            let held = batch::held(row, &case, Metric::Device)?;
            (job.framework.clone(), false, held.reserved, held.outside)
        }
        Job::Inference(job) => served(row, &case, job)?,
    };
    let measured = Measured {
        model: case.model.name.clone(),
        software,
        server,
        gpus,
        inside,
        outside,
        whole,
        peak,
    };
    measured.check()?;
    Ok(measured)
}

impl Measured {
    fn check(&self) -> Result<(), SizingError> {
        if self.server && !self.whole {
            let allowed = "device: what a server holds is seen from outside";
            return Err(SizingError::bad("metric", Metric::Reserved, allowed));
        }
        let outside = if self.whole { self.outside.middle } else { 0.0 };
        let predicted = self.inside.middle + outside;
        let (least, most) = (predicted * CREDIBLE.start(), predicted * CREDIBLE.end());
        if (least..=most).contains(&self.peak) {
            return Ok(());
        }
        let allowed = format!(
            "{least:.3} to {most:.3}, as {predicted:.3} are predicted: beyond it was another job than the row says"
        );
        Err(SizingError::bad("peak_gib", self.peak, &allowed))
    }
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

type Served = (String, bool, Level, Level);

/// By the engine that was measured, or the library that the framework's words name.
fn served(row: &Row<'_>, case: &Case, job: &Inference) -> Result<Served, SizingError> {
    if row.get("engine").or(row.get("framework")).is_none() {
        return Err(SizingError::bad(
            "engine",
            "empty",
            "the version that was measured",
        ));
    }
    let engine = row.get("engine").unwrap_or(&job.engine);
    let job = Inference {
        engine: engine.to_owned(),
        ..job.clone()
    };
    let layout = batch::served_layout(&case.parallel)?;
    let estimate = inference::estimate(&case.model, &job, layout, batch::card(row)?)?;
    let known = Constants::builtin().serving.engine(engine);
    let server = known.is_some_and(|engine| engine.reserved.is_none());
    let beside = if server { ENGINE } else { OUTSIDE };
    let is_beside = |name: &str| beside.contains(&name);
    let terms = || estimate.terms.iter();
    let inside = Level::of(terms().filter(|term| !is_beside(&term.name)));
    let outside = Level::of(terms().filter(|term| is_beside(&term.name)));
    Ok((job.engine, server, inside, outside))
}
