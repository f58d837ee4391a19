//! Measured peaks correct the constants of a framework or a serving engine: within stated limits, and never
//! silently.
//!
//! What can be corrected is what no formula gives: how much more PyTorch's allocator reserves than the tensors need,
//! and what a serving engine holds beside weights and cache. The new middle is the median of what the rows say, so
//! one odd row moves it little; the bound covers every row that was used, and is lowered only by many. A correction
//! must come from enough rows, stay within its limits, and predict each row better from the others than before.

mod rows;

use crate::csv::CsvError;
use crate::error::DataError;
use crate::estimate::{Estimate, Term, whole};
use crate::named::named;
use crate::training::{Peak, Reserved};
use serde::{Deserialize, Serialize};

named! {
    /// What can be corrected.
    Constant("constant") {
        /// Reserved by the allocator over live tensors, on one GPU. A factor.
        ReservedAlone = "reserved-alone",
        /// The same where GPUs work together. A factor.
        ReservedTogether = "reserved-together",
        /// Held by a serving engine beside weights and cache, on one GPU alone. GiB.
        EngineAlone = "engine-alone",
        /// The same on each GPU of several. GiB.
        EngineTogether = "engine-together",
    }
}

/// Fewer rows than this correct nothing.
pub const FEWEST_ROWS: usize = 3;

/// With fewer rows than this a bound is only raised.
pub const ROWS_TO_LOWER_A_BOUND: usize = 10;

/// How a line begins that says what was corrected, and by which file.
pub const CALIBRATED: &str = "calibrated: ";

/// What a corrected constant may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowed {
    pub middle: (f64, f64),
    pub safe_most: f64,
    /// What one row may say; beyond it the row is taken for another job than it says.
    pub row: (f64, f64),
}

impl Constant {
    pub fn allowed(self) -> Allowed {
        match self {
            Constant::ReservedAlone | Constant::ReservedTogether => Allowed {
                middle: (1.0, 1.6),
                safe_most: 2.0,
                row: (0.9, 2.0),
            },
            Constant::EngineAlone | Constant::EngineTogether => Allowed {
                middle: (0.1, 16.0),
                safe_most: 24.0,
                row: (0.0, 24.0),
            },
        }
    }

    pub fn unit(self) -> &'static str {
        match self {
            Constant::ReservedAlone | Constant::ReservedTogether => "x",
            Constant::EngineAlone | Constant::EngineTogether => "GiB",
        }
    }
}

/// A middle estimate and the bound.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    pub middle: f64,
    pub safe: f64,
}

impl Level {
    /// As it is written down; a bound is never rounded down.
    fn rounded(self) -> Level {
        Level {
            middle: rounded(self.middle),
            safe: (self.safe * 1e4 - 1e-6).ceil() / 1e4,
        }
    }
}

fn rounded(figure: f64) -> f64 {
    (figure * 1e4).round() / 1e4
}

/// A constant that rows corrected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Correction {
    /// Of a framework or a version of a serving engine, as sizing names it.
    pub framework: String,
    pub constant: Constant,
    pub before: Level,
    pub after: Level,
    /// Rows used.
    pub rows: usize,
    /// Mean error of the predicted peaks of those rows in per cent; after: each predicted from the others.
    pub error_before: f64,
    pub error_after: f64,
}

/// What a file of corrections holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    pub corrections: Vec<Correction>,
    /// The file that it was read from: whatever it changes says so.
    #[serde(skip)]
    pub file: Option<String>,
}

/// Something that was left out, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The id of a row, or a framework with its constant.
    pub what: String,
    pub why: String,
}

/// What a table of measured peaks comes to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibrated {
    pub calibration: Calibration,
    pub refused_corrections: Vec<Refused>,
    pub refused_rows: Vec<Refused>,
}

/// What one row says of a constant.
#[derive(Clone, Debug, PartialEq)]
struct Sample {
    framework: String,
    constant: Constant,
    before: Level,
    /// What the constant would have to be.
    said: f64,
    /// What the constant multiplies or is added to, so that peaks can be compared.
    scale: Scale,
}

/// How a constant makes a peak.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scale {
    Times(f64),
    Plus(f64),
}

impl Scale {
    fn peak(self, constant: f64) -> f64 {
        match self {
            Scale::Times(gib) => gib * constant,
            Scale::Plus(gib) => gib + constant,
        }
    }
}

/// Reads measured peaks: the columns of `size --batch`, and `peak_gib`, `metric` and, of serving, `engine`.
pub fn calibrate(csv: &str) -> Result<Calibrated, CsvError> {
    let (samples, refused_rows) = rows::read(csv)?;
    let mut calibrated = Calibrated {
        calibration: Calibration::default(),
        refused_corrections: Vec::new(),
        refused_rows,
    };
    let mut left = samples;
    while let Some(first) = left.first() {
        let key = (first.framework.clone(), first.constant);
        let same = |sample: &Sample| (&sample.framework, sample.constant) == (&key.0, key.1);
        let (group, rest): (Vec<_>, Vec<_>) = left.iter().cloned().partition(same);
        match correct(&group) {
            Ok(correction) => calibrated.calibration.corrections.push(correction),
            Err(why) => calibrated.refused_corrections.push(Refused {
                what: format!("{} {}", key.0, key.1),
                why,
            }),
        }
        left = rest;
    }
    Ok(calibrated)
}

/// The correction that rows of one constant make, or why they make none.
fn correct(samples: &[Sample]) -> Result<Correction, String> {
    let [first, ..] = samples else {
        return Err("no row".into());
    };
    if samples.len() < FEWEST_ROWS {
        return Err(format!(
            "{} rows, and at least {FEWEST_ROWS} are needed",
            samples.len()
        ));
    }
    let (constant, before) = (first.constant, first.before);
    let said: Vec<f64> = samples.iter().map(|sample| sample.said).collect();
    let middle = median(said.clone());
    let largest = said.iter().copied().fold(f64::MIN, f64::max);
    let covers = largest.max(middle);
    let safe = if samples.len() < ROWS_TO_LOWER_A_BOUND {
        covers.max(before.safe)
    } else {
        covers
    };
    let correction = Correction {
        framework: first.framework.clone(),
        constant,
        before: before.rounded(),
        after: Level { middle, safe }.rounded(),
        rows: samples.len(),
        error_before: rounded(error(samples, |at| samples[at].before.middle)),
        error_after: rounded(error(samples, |at| median(without(&said, at)))),
    };
    correction.check()?;
    if correction.error_after >= correction.error_before {
        return Err(format!(
            "it would not help: {} rows are {:.1} % off as it is, and {:.1} % if each is predicted from the others",
            correction.rows, correction.error_before, correction.error_after
        ));
    }
    Ok(correction)
}

/// Mean error of the peaks in per cent.
fn error(samples: &[Sample], constant: impl Fn(usize) -> f64) -> f64 {
    let off = samples.iter().enumerate().map(|(at, sample)| {
        let (predicted, measured) = (sample.scale.peak(constant(at)), sample.scale.peak(sample.said));
        (predicted / measured - 1.0).abs()
    });
    100.0 * off.sum::<f64>() / samples.len() as f64
}

fn without(values: &[f64], at: usize) -> Vec<f64> {
    let others = values.iter().enumerate().filter(|(other, _)| *other != at);
    others.map(|(_, value)| *value).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => values[half],
        _ => (values[half - 1] + values[half]) / 2.0,
    }
}

impl Correction {
    /// Whether it is within the limits.
    fn check(&self) -> Result<(), String> {
        let Allowed {
            middle: (least, most),
            safe_most,
            ..
        } = self.constant.allowed();
        let unit = self.constant.unit();
        let Level { middle, safe } = self.after;
        if !(least..=most).contains(&middle) {
            return Err(format!(
                "{middle:.3} {unit} is out of the limits, {least} to {most} {unit}"
            ));
        }
        if !(middle..=safe_most).contains(&safe) {
            return Err(format!(
                "a bound of {safe:.3} {unit} is out of the limits, {middle:.3} to {safe_most} {unit}"
            ));
        }
        Ok(())
    }

    /// `pytorch reserved-alone 1.050 x -> 1.020 x (safe 1.250 -> 1.120), from 12 rows`.
    pub fn summary(&self) -> String {
        let unit = self.constant.unit();
        format!(
            "{} {} {:.3} {unit} -> {:.3} {unit} (safe {:.3} -> {:.3}), from {} rows",
            self.framework,
            self.constant,
            self.before.middle,
            self.after.middle,
            self.before.safe,
            self.after.safe,
            self.rows
        )
    }
}

impl Calibration {
    /// Reads a file that [`Calibration::to_json`] wrote; what is out of limits is refused, whoever wrote it.
    pub fn parse(file: &str, text: &str) -> Result<Calibration, DataError> {
        let read = serde_json::from_str(text).map_err(|e| {
            DataError::new(
                file,
                match e.is_data() {
                    true => e.to_string(),
                    false => format!("it is not JSON: {e}"),
                },
            )
        })?;
        let calibration = Calibration {
            file: Some(file.to_owned()),
            ..read
        };
        let mut seen = Vec::new();
        for correction in &calibration.corrections {
            let key = (&correction.framework, correction.constant);
            let refused = |why: String| DataError::new(file, format!("{} {}: {why}", key.0, key.1));
            correction.check().map_err(refused)?;
            if seen.contains(&key) {
                return Err(refused("it is corrected twice".into()));
            }
            seen.push(key);
        }
        Ok(calibration)
    }

    /// The file's text.
    pub fn to_json(&self) -> Result<String, DataError> {
        let text = serde_json::to_string_pretty(self);
        text.map(|text| text + "\n")
            .map_err(|error| DataError::new("calibration", error.to_string()))
    }

    pub fn is_empty(&self) -> bool {
        self.corrections.is_empty()
    }

    /// What a correction did, and where it is from.
    fn told(&self, correction: &Correction) -> String {
        let file = self.file.as_ref();
        let from = file.map_or_else(String::new, |file| format!(", in {file}"));
        format!("{CALIBRATED}{}{from}", correction.summary())
    }

    fn of(&self, framework: &str, constant: Constant) -> Option<&Correction> {
        let mut all = self.corrections.iter();
        all.find(|c| c.framework.eq_ignore_ascii_case(framework) && c.constant == constant)
    }

    /// What the allocator may reserve for the peak, in bytes, where that was corrected.
    pub(crate) fn reserved_safe(&self, framework: &str, gpus: u64, peak: &Peak) -> Option<f64> {
        self.reserved(framework, gpus, peak).map(|reserved| reserved.safe)
    }

    /// What the allocator reserves, corrected; None where it is as it was.
    pub(crate) fn reserved(&self, framework: &str, gpus: u64, peak: &Peak) -> Option<Reserved> {
        let level = self.of(framework, reserved(gpus))?.after;
        Some(Reserved {
            middle: peak.bytes * level.middle,
            safe: (peak.bytes * level.safe).max(peak.safe_bytes),
        })
    }

    /// A training estimate with the allocator's share of its peak as corrected.
    pub(crate) fn training(&self, estimate: Estimate, framework: &str, gpus: u64, peak: &Peak) -> Estimate {
        let bound = self.reserved_safe(framework, gpus, peak);
        let (Some(correction), Some(bound)) = (self.of(framework, reserved(gpus)), bound) else {
            return estimate;
        };
        let share = Term {
            name: ALLOCATOR.into(),
            formula: self.told(correction),
            point: whole(peak.bytes * (correction.after.middle - 1.0)),
            safe: whole(bound - peak.bytes),
            estimate: false,
        };
        estimate.with(&[ALLOCATOR], share, self.told(correction))
    }

    /// A serving estimate with what the engine holds beside weights and cache as corrected.
    pub(crate) fn serving(&self, estimate: Estimate, engine: &str, gpus: u64) -> Estimate {
        let constant = beside(gpus);
        let Some(correction) = self.of(engine, constant) else {
            return estimate;
        };
        let gib = poolwright_model::units::Bytes::from_gib;
        let held = Term {
            name: "engine".into(),
            formula: self.told(correction),
            point: gib(correction.after.middle),
            safe: gib(correction.after.safe),
            estimate: false,
        };
        estimate.with(&ENGINE, held, self.told(correction))
    }
}

/// The term of what the allocator reserves beyond live tensors.
const ALLOCATOR: &str = "allocator";

/// The terms of what an engine holds beside weights, cache and logits.
const ENGINE: [&str; 6] = [
    "activations",
    "non-torch",
    "collectives",
    "stage links",
    "graphs",
    "context",
];

fn reserved(gpus: u64) -> Constant {
    if gpus > 1 {
        Constant::ReservedTogether
    } else {
        Constant::ReservedAlone
    }
}

fn beside(gpus: u64) -> Constant {
    if gpus > 1 {
        Constant::EngineTogether
    } else {
        Constant::EngineAlone
    }
}

impl Estimate {
    /// With one term in place of those of these names, and a note of it.
    fn with(self, names: &[&str], term: Term, note: String) -> Estimate {
        let (gone, mut terms): (Vec<Term>, Vec<Term>) = self
            .terms
            .into_iter()
            .partition(|t| names.contains(&t.name.as_str()));
        drop(gone);
        terms.push(term);
        let mut notes = self.notes;
        notes.push(note);
        Estimate {
            on_host: self.on_host,
            ..Estimate::of(terms, notes)
        }
    }
}
