//! Measured peaks correct the constants of a framework or a serving engine: within stated limits, and never
//! silently.
//!
//! What can be corrected is what no formula gives: the factor by which PyTorch's allocator reserves more than is
//! predicted, and what the process holds outside it, a constant. Rows of the whole process show the sum of both. So each
//! term is fitted alone, then both together, and the fit counts that predicts each row best from the others: a
//! proportional effect does not become a constant, nor the other way round. Every other term is refused with its error.
//! Medians are taken, so one odd row moves little; bounds cover every row that was used, and are lowered only by many.

mod fitted;
mod rows;

use crate::csv::CsvError;
use crate::error::DataError;
use crate::estimate::{Estimate, Term};
use crate::named::named;
use poolwright_model::units::Bytes;
use serde::{Deserialize, Serialize};

named! {
    /// What can be corrected.
    Constant("constant") {
        /// Reserved by PyTorch's allocator over what is predicted, on one GPU. A factor, of the middle and of the bound.
        AllocatorAlone = "allocator-alone",
        /// The same where GPUs work together.
        AllocatorTogether = "allocator-together",
        /// Held by a process of PyTorch outside the allocator, on one GPU. GiB.
        ContextAlone = "context-alone",
        /// The same where GPUs work together, with the communication library.
        ContextTogether = "context-together",
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
struct Allowed {
    middle: (f64, f64),
    safe: (f64, f64),
}

impl Constant {
    fn allowed(self) -> Allowed {
        let (middle, safe) = match self {
            Constant::AllocatorAlone | Constant::AllocatorTogether => ((0.7, 1.6), (0.7, 2.0)),
            Constant::ContextAlone => ((0.1, 2.0), (0.1, 3.0)),
            Constant::ContextTogether => ((0.1, 8.0), (0.1, 12.0)),
            Constant::EngineAlone | Constant::EngineTogether => ((0.1, 16.0), (0.1, 24.0)),
        };
        Allowed { middle, safe }
    }

    fn is_factor(self) -> bool {
        matches!(self, Constant::AllocatorAlone | Constant::AllocatorTogether)
    }

    pub fn unit(self) -> &'static str {
        if self.is_factor() { "x" } else { "GiB" }
    }

    fn allocator(gpus: u64) -> Self {
        match gpus {
            0 | 1 => Constant::AllocatorAlone,
            _ => Constant::AllocatorTogether,
        }
    }

    /// What is outside PyTorch's allocator in a process of a library.
    fn context(gpus: u64) -> Self {
        match gpus {
            0 | 1 => Constant::ContextAlone,
            _ => Constant::ContextTogether,
        }
    }

    fn engine(gpus: u64) -> Self {
        match gpus {
            0 | 1 => Constant::EngineAlone,
            _ => Constant::EngineTogether,
        }
    }
}

/// A middle estimate and the bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    pub middle: f64,
    pub safe: f64,
}

impl Level {
    /// From bytes.
    pub(crate) fn gib(middle: f64, safe: f64) -> Level {
        let gib = f64::from(1 << 30);
        Level {
            middle: middle / gib,
            safe: safe / gib,
        }
    }

    /// GiB of terms together.
    pub(crate) fn of<'a>(terms: impl IntoIterator<Item = &'a Term>) -> Level {
        terms.into_iter().fold(Level::default(), |sum, term| {
            sum + Level {
                middle: term.point.gib(),
                safe: term.safe.gib(),
            }
        })
    }

    /// As it is written down; a bound is never rounded down.
    fn rounded(self) -> Level {
        Level {
            middle: rounded(self.middle),
            safe: (self.safe * 1e4 - 1e-6).ceil() / 1e4,
        }
    }
}

impl std::ops::Add for Level {
    type Output = Level;

    fn add(self, other: Level) -> Level {
        Level {
            middle: self.middle + other.middle,
            safe: self.safe + other.safe,
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

/// Reads measured peaks: the columns of `size --batch`, and `peak_gib`, `metric` and, of serving, `engine`.
pub fn calibrate(csv: &str) -> Result<Calibrated, CsvError> {
    let (rows, refused_rows) = rows::read(csv)?;
    let mut calibrated = Calibrated {
        calibration: Calibration::default(),
        refused_corrections: Vec::new(),
        refused_rows,
    };
    for group in fitted::groups(&rows) {
        let (corrections, refused) = fitted::corrections(&group);
        calibrated.calibration.corrections.extend(corrections);
        calibrated.refused_corrections.extend(refused);
    }
    Ok(calibrated)
}

impl Correction {
    /// Whether it is within the limits.
    fn check(&self) -> Result<(), String> {
        let Allowed { middle, safe } = self.constant.allowed();
        let unit = self.constant.unit();
        let within =
            |what: &str, figure: f64, (least, most): (f64, f64)| match (least..=most).contains(&figure) {
                true => Ok(()),
                false => Err(format!(
                    "{what}{figure:.3} {unit} is out of the limits, {least:.3} to {most} {unit}"
                )),
            };
        within("", self.after.middle, middle)?;
        // A factor of the bound has nothing to do with the one of the middle.
        let least = if self.constant.is_factor() {
            safe.0
        } else {
            self.after.middle
        };
        within("a bound of ", self.after.safe, (least, safe.1))
    }

    /// `pytorch context-alone 0.700 GiB -> 0.620 GiB (safe 0.900 -> 0.700), from 12 rows`.
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

    /// What the allocator reserves for tensors with such a bound, where that is `found`; in any unit.
    pub(crate) fn reserved(&self, software: &str, gpus: u64, found: Level, tensors_safe: f64) -> Level {
        let Some(correction) = self.of(software, Constant::allocator(gpus)) else {
            return found;
        };
        let middle = found.middle * correction.after.middle;
        let safe = found.safe * correction.after.safe;
        Level {
            middle,
            safe: safe.max(middle).max(tensors_safe),
        }
    }

    /// GiB outside the allocator of a library, where that is `found`.
    pub(crate) fn outside(&self, software: &str, gpus: u64, found: Level) -> Level {
        self.of(software, Constant::context(gpus))
            .map_or(found, |correction| correction.after)
    }

    /// Its bound.
    pub(crate) fn outside_safe(&self, software: &str, gpus: u64, found: Bytes) -> Bytes {
        let level = Level {
            middle: 0.0,
            safe: found.gib(),
        };
        Bytes::from_gib(self.outside(software, gpus, level).safe)
    }

    /// An estimate with what was corrected.
    pub(crate) fn corrected(&self, estimate: Estimate, software: &str, gpus: u64) -> Estimate {
        let mut estimate = estimate;
        if let Some(correction) = self.of(software, Constant::allocator(gpus)) {
            let inside = || {
                estimate
                    .terms
                    .iter()
                    .filter(|term| !OUTSIDE.contains(&term.name.as_str()))
            };
            let tensors = Level::of(inside().filter(|term| term.name != ALLOCATOR));
            let reserved = self.reserved(software, gpus, Level::of(inside()), tensors.safe);
            let share = Level {
                middle: (reserved.middle - tensors.middle).max(0.0),
                safe: (reserved.safe - tensors.safe).max(0.0),
            };
            estimate = estimate.with(&[ALLOCATOR], ALLOCATOR, share, self.told(correction));
        }
        for (constant, names, name) in [
            (Constant::context(gpus), OUTSIDE, "context"),
            (Constant::engine(gpus), ENGINE, "engine"),
        ] {
            if let Some(correction) = self.of(software, constant) {
                estimate = estimate.with(names, name, correction.after, self.told(correction));
            }
        }
        estimate
    }
}

/// The term of what the allocator reserves beyond live tensors.
const ALLOCATOR: &str = "allocator";

/// The terms of what a process holds outside PyTorch's allocator.
const OUTSIDE: &[&str] = &["context", "kernels", "non-torch", "collectives", "stage links"];

/// The terms of what a serving engine holds beside weights, cache and logits.
const ENGINE: &[&str] = &[
    "activations",
    "non-torch",
    "collectives",
    "stage links",
    "graphs",
    "context",
];

impl Estimate {
    /// With one term in place of those of these names, and a note of it.
    fn with(self, names: &[&str], name: &str, held: Level, note: String) -> Estimate {
        let mut terms = self.terms;
        terms.retain(|term| !names.contains(&term.name.as_str()));
        terms.push(Term {
            name: name.to_owned(),
            formula: note.clone(),
            point: Bytes::from_gib(held.middle),
            safe: Bytes::from_gib(held.safe.max(held.middle)),
            estimate: false,
        });
        let mut notes = self.notes;
        notes.push(note);
        Estimate {
            on_host: self.on_host,
            ..Estimate::of(terms, notes)
        }
    }
}
