//! Corrections of predictions from measured peaks, for a framework or a serving engine: within limits, and in sight.
//!
//! Two quantities without a formula are corrected: the memory reserved by PyTorch's allocator, by a factor, and the
//! overhead outside it, by a difference in GiB. Rows of the whole process show their sum. So each is fitted alone, then
//! both together, and the fit with the best predictions of other models counts; rows that don't separate them correct
//! neither. Bounds keep their distance from the middle, and cover all rows.

mod fitted;
mod rows;

use crate::constants::Constants;
use crate::csv::CsvError;
use crate::error::DataError;
pub use crate::estimate::Level;
use crate::estimate::{Estimate, Term};
use crate::named::named;
use poolwright_model::units::Bytes;
use serde::{Deserialize, Serialize};

named! {
    /// A quantity to correct.
    Constant("constant") {
        /// Memory reserved by PyTorch's allocator on one GPU: a factor.
        AllocatorAlone = "allocator-alone",
        /// The same on each GPU of several.
        AllocatorTogether = "allocator-together",
        /// Overhead of a PyTorch process outside the allocator, on one GPU: a difference in GiB.
        ContextAlone = "context-alone",
        /// The same on each GPU of several, with the communication library.
        ContextTogether = "context-together",
        /// Overhead of a serving engine beside weights and cache, on one GPU: a difference in GiB.
        EngineAlone = "engine-alone",
        /// The same on each GPU of several.
        EngineTogether = "engine-together",
    }
}

/// Fewer rows than this correct nothing.
pub const FEWEST_ROWS: usize = 3;

/// How a line begins that says what was corrected, and by which file.
pub const CALIBRATED: &str = "calibrated: ";

impl Constant {
    /// The least and the most of the middle, and the most of the bound.
    fn limits(self) -> (f64, f64, f64) {
        match self {
            Constant::AllocatorAlone | Constant::AllocatorTogether => (0.7, 1.6, 2.0),
            Constant::ContextAlone => (-0.5, 2.0, 3.0),
            Constant::ContextTogether => (-4.0, 8.0, 12.0),
            Constant::EngineAlone | Constant::EngineTogether => (-8.0, 16.0, 24.0),
        }
    }

    fn is_factor(self) -> bool {
        matches!(self, Constant::AllocatorAlone | Constant::AllocatorTogether)
    }

    /// A figure of it in words: `x 1.020` or `+1.000 GiB`.
    pub fn words(self, figure: f64) -> String {
        match self.is_factor() {
            true => format!("x {figure:.3}"),
            false => format!("{figure:+.3} GiB"),
        }
    }

    fn allocator(gpus: u64) -> Self {
        if gpus > 1 {
            Constant::AllocatorTogether
        } else {
            Constant::AllocatorAlone
        }
    }

    /// Overhead outside a library's allocator, or beside a server's weights and cache.
    fn overhead(server: bool, gpus: u64) -> Self {
        match (server, gpus > 1) {
            (false, false) => Constant::ContextAlone,
            (false, true) => Constant::ContextTogether,
            (true, false) => Constant::EngineAlone,
            (true, true) => Constant::EngineTogether,
        }
    }

    fn is_of(self, software: &str) -> bool {
        let is_engine = matches!(self, Constant::EngineAlone | Constant::EngineTogether);
        let constants = Constants::builtin();
        let known =
            constants.serving.engine(software).is_some() || constants.frameworks.named(software).is_some();
        known && is_engine == is_server(software)
    }
}

/// A server reserves its share of a GPU at the start, and has a figure of its own for its overhead.
pub(crate) fn is_server(software: &str) -> bool {
    let engine = Constants::builtin().serving.engine(software);
    engine.is_some_and(|engine| engine.reserved.is_none())
}

/// Names of the terms of the overhead.
pub(crate) fn overhead_terms(server: bool) -> &'static [&'static str] {
    if server { ENGINE } else { OUTSIDE }
}

/// A constant that rows corrected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Correction {
    /// Of a framework or a version of a serving engine, as sizing names it.
    pub framework: String,
    pub constant: Constant,
    /// Of the middle and of the bound: a factor on the prediction, or a difference in GiB.
    pub change: Level,
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
    if rows.is_empty() && refused_rows.is_empty() {
        return Err(CsvError::NoRows);
    }
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
    fn check(&self) -> Result<(), String> {
        let (least, most, safe_most) = self.constant.limits();
        let Level { middle, safe } = self.change;
        let within = |what: &str, figure: f64, least: f64, most: f64| match (least..=most).contains(&figure) {
            true => Ok(()),
            false => {
                let [figure, least, most] = [figure, least, most].map(|figure| self.constant.words(figure));
                Err(format!("{what}{figure} is out of the limits, {least} to {most}"))
            }
        };
        if !self.constant.is_of(&self.framework) {
            return Err("there is no such constant of such a framework or engine".into());
        }
        within("", middle, least, most)?;
        within("a bound of ", safe, middle, safe_most)
    }

    /// `pytorch allocator-alone x 1.020 (safe x 1.050), from 12 rows`.
    pub fn summary(&self) -> String {
        let Level { middle, safe } = self.change;
        let [middle, safe] = [middle, safe].map(|figure| self.constant.words(figure));
        format!(
            "{} {} {middle} (safe {safe}), from {} rows",
            self.framework, self.constant, self.rows
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

    pub fn to_json(&self) -> Result<String, DataError> {
        let text = serde_json::to_string_pretty(self);
        text.map(|text| text + "\n")
            .map_err(|error| DataError::new("calibration", error.to_string()))
    }

    pub fn is_empty(&self) -> bool {
        self.corrections.is_empty()
    }

    fn told(&self, correction: &Correction) -> String {
        let file = self.file.as_ref();
        let from = file.map_or_else(String::new, |file| format!(", in {file}"));
        format!("{CALIBRATED}{}{from}", correction.summary())
    }

    fn of(&self, framework: &str, constant: Constant) -> Option<&Correction> {
        let mut all = self.corrections.iter();
        all.find(|c| c.framework.eq_ignore_ascii_case(framework) && c.constant == constant)
    }

    /// Memory reserved by the allocator, at least the bound of the tensors; in any unit.
    pub(crate) fn reserved(&self, software: &str, gpus: u64, found: Level, tensors_safe: f64) -> Level {
        let Some(correction) = self.of(software, Constant::allocator(gpus)) else {
            return found;
        };
        let middle = found.middle * correction.change.middle;
        let safe = found.safe * correction.change.safe;
        Level {
            middle,
            safe: safe.max(middle).max(tensors_safe),
        }
    }

    /// Overhead in GiB.
    pub(crate) fn overhead(&self, software: &str, gpus: u64, found: Level) -> Level {
        let Some(correction) = self.of(software, Constant::overhead(is_server(software), gpus)) else {
            return found;
        };
        let Level { middle, safe } = found + correction.change;
        Level {
            middle: middle.max(0.0),
            safe: safe.max(middle).max(0.0),
        }
    }

    /// Its bound.
    pub(crate) fn overhead_safe(&self, software: &str, gpus: u64, found: Bytes) -> Bytes {
        let level = Level {
            middle: 0.0,
            safe: found.gib(),
        };
        Bytes::from_gib(self.overhead(software, gpus, level).safe)
    }

    pub(crate) fn corrected(&self, mut estimate: Estimate, software: &str, gpus: u64) -> Estimate {
        if self.is_empty() {
            return estimate;
        }
        let server = is_server(software);
        let names = overhead_terms(server);
        let is_overhead = |term: &&Term| names.contains(&term.name.as_str());
        if let Some(correction) = self.of(software, Constant::allocator(gpus)) {
            let inside = || estimate.terms.iter().filter(|term| !is_overhead(term));
            let tensors = Level::of(inside().filter(|term| term.name != ALLOCATOR));
            let reserved = self.reserved(software, gpus, Level::of(inside()), tensors.safe);
            let share = Level {
                middle: reserved.middle - tensors.middle,
                safe: reserved.safe - tensors.safe,
            };
            estimate = estimate.with(&[ALLOCATOR], ALLOCATOR, share, self.told(correction));
        }
        if let Some(correction) = self.of(software, Constant::overhead(server, gpus)) {
            let found = Level::of(estimate.terms.iter().filter(is_overhead));
            let name = if server { "engine" } else { "context" };
            let held = self.overhead(software, gpus, found);
            estimate = estimate.with(names, name, held, self.told(correction));
        }
        estimate
    }
}

/// The term of what the allocator reserves beyond live tensors.
const ALLOCATOR: &str = "allocator";

/// Terms of the overhead of a PyTorch process.
const OUTSIDE: &[&str] = &["context", "kernels", "non-torch", "collectives", "stage links"];

/// Terms of the overhead of a serving engine.
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
            point: Bytes::from_gib(held.middle.max(0.0)),
            safe: Bytes::from_gib(held.safe.max(held.middle).max(0.0)),
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
