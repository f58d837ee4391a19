//! What each measured row says of a constant, or why it says nothing.

use super::{ENGINE, Level, Refused, Sample, Scale, beside, reserved};
use crate::batch::{self, Case};
use crate::csv::{self, CsvError, Row};
use crate::error::SizingError;
use crate::inference::{self, Layout};
use crate::job::{Inference, Job};
use crate::overhead::{self, Card};
use crate::training;

const GIB: f64 = (1u64 << 30) as f64;

/// The vendor of the GPUs where a row does not say.
const USUAL_VENDOR: &str = "NVIDIA";

pub(super) fn read(text: &str) -> Result<(Vec<Sample>, Vec<Refused>), CsvError> {
    let (mut samples, mut refused) = (Vec::new(), Vec::new());
    csv::read(text, |row| match sample(row) {
        Ok(sample) => samples.push(sample),
        Err(error) => refused.push(Refused {
            what: batch::id(row),
            why: error.to_string(),
        }),
    })?;
    Ok((samples, refused))
}

fn sample(row: &Row<'_>) -> Result<Sample, SizingError> {
    let peak = peak(row)?;
    let case = batch::case(row)?;
    let sample = match &case.job {
        Job::Training(_) => trained(row, &case, peak)?,
        Job::Inference(job) => served(row, &case, job, peak)?,
    };
    let (least, most) = sample.constant.allowed().row;
    if (least..=most).contains(&sample.said) {
        return Ok(sample);
    }
    let found = format!("{:.3} {}", sample.said, sample.constant.unit());
    let allowed = format!("{least} to {most}: beyond it was another job than the row says");
    Err(SizingError::bad(sample.constant.name(), found, &allowed))
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

fn vendor<'a>(row: &'a Row<'_>) -> &'a str {
    row.get("vendor").unwrap_or(USUAL_VENDOR)
}

/// How much is reserved over live tensors.
fn trained(row: &Row<'_>, case: &Case, peak: f64) -> Result<Sample, SizingError> {
    let Job::Training(job) = &case.job else {
        return Err(SizingError::bad("task", case.job.task(), "a training task"));
    };
    let gpus = case.parallel.gpus();
    let outside: f64 = match row.get("metric") {
        Some("reserved") => 0.0,
        // What the driver shows holds the context and the communication library, too.
        Some("device") => overhead::terms(Card::from(vendor(row)), &job.software(), &case.parallel)
            .iter()
            .map(|term| term.point.gib())
            .sum(),
        other => {
            let found = other.map_or_else(|| "empty".to_owned(), |other| format!("{other:?}"));
            let allowed = "reserved, device; memory allocated is a formula and has no constant to correct";
            return Err(SizingError::bad("metric", found, allowed));
        }
    };
    let live = training::peak(&case.model, job, &case.parallel)?;
    let reserves = training::reserved(
        &case.model,
        &live,
        job,
        &case.parallel,
        &training::Once::default(),
    )?;
    let gib = live.bytes / GIB;
    Ok(Sample {
        framework: job.framework.clone(),
        constant: reserved(gpus),
        before: Level {
            middle: reserves.middle / live.bytes,
            safe: reserves.safe / live.bytes,
        },
        said: (peak - outside) / gib,
        scale: Scale::Times(gib),
    })
}

/// What the engine holds beside weights and cache.
fn served(row: &Row<'_>, case: &Case, job: &Inference, peak: f64) -> Result<Sample, SizingError> {
    if row.get("metric") != Some("device") {
        let found = row.get("metric").unwrap_or("empty");
        let allowed = "device: what an engine holds is seen from outside";
        return Err(SizingError::bad("metric", found, allowed));
    }
    let job = Inference {
        engine: row
            .get("engine")
            .ok_or_else(|| SizingError::bad("engine", "empty", "the version that was measured"))?
            .to_owned(),
        ..job.clone()
    };
    let layout = Layout {
        tensor: case.parallel.tensor,
        pipeline: case.parallel.pipeline,
    };
    let estimate = inference::estimate(&case.model, &job, layout, Card::from(vendor(row)))?;
    let held = |of: &dyn Fn(&crate::Term) -> f64, beside: bool| -> f64 {
        let terms = estimate.terms.iter();
        terms
            .filter(|term| ENGINE.contains(&term.name.as_str()) == beside)
            .map(of)
            .sum()
    };
    let tensors = held(&|term| term.point.gib(), false);
    Ok(Sample {
        framework: job.engine,
        constant: beside(layout.gpus()),
        before: Level {
            middle: held(&|term| term.point.gib(), true),
            safe: held(&|term| term.safe.gib(), true),
        },
        said: peak - tensors,
        scale: Scale::Plus(tensors),
    })
}
