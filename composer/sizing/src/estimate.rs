//! The value of an estimate: named terms, each with the formula that gave it, and their sum.

use poolwright_model::units::Bytes;
use serde::{Deserialize, Serialize};

/// How the evidence of a constant begins that is a guess, and a note about it.
pub(crate) const ESTIMATE: &str = "estimate";

/// How notes begin that everybody should see, asked for or not.
pub const WARNING: &str = "warning:";
pub const OFFLOADED: &str = "offloaded:";

/// How the note ends about such constants.
const GUESSED: &str = ": no figure of its own was found";

/// One part of what a GPU must hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Term {
    pub name: String,
    /// The formula with its numbers in place.
    pub formula: String,
    /// The middle estimate.
    pub point: Bytes,
    /// What to count on when deciding whether it fits; not below `point`.
    pub safe: Bytes,
    /// A constant that nobody measured, as its evidence says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimate: bool,
}

impl Term {
    /// A term of so many bytes whose bound is the estimate times `safe_factor`.
    pub(crate) fn new(name: &str, bytes: f64, safe_factor: f64, formula: String) -> Self {
        Term {
            name: name.to_owned(),
            formula,
            point: whole(bytes),
            safe: whole(bytes * safe_factor.max(1.0)),
            estimate: false,
        }
    }

    /// A constant in GiB.
    pub(crate) fn constant(name: &str, range: &crate::constants::Range) -> Self {
        Term {
            name: name.to_owned(),
            formula: if range.safe > range.point {
                format!("{} GiB, at most {}: {}", range.point, range.safe, range.evidence)
            } else {
                format!("{} GiB: {}", range.point, range.evidence)
            },
            point: Bytes::from_gib(range.point),
            safe: Bytes::from_gib(range.safe.max(range.point)),
            estimate: range.evidence.starts_with(ESTIMATE),
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

/// To the next whole byte; a formula's value is never negative.
pub(crate) fn whole(bytes: f64) -> Bytes {
    Bytes(bytes.max(0.0).ceil() as u64)
}

/// What one GPU of a set must hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    pub terms: Vec<Term>,
    /// Sum of the terms.
    pub point: Bytes,
    pub safe: Bytes,
    /// What each GPU's process holds in the host's memory, where a job is offloaded.
    pub on_host: Option<Bytes>,
    /// What the figures rest on, where that is not plain.
    pub notes: Vec<String>,
}

impl Estimate {
    pub(crate) fn of(terms: Vec<Term>, mut notes: Vec<String>) -> Self {
        notes.retain(|note| !note.ends_with(GUESSED));
        let guessed: Vec<&str> = terms
            .iter()
            .filter(|t| t.estimate)
            .map(|t| t.name.as_str())
            .collect();
        if !guessed.is_empty() {
            notes.push(format!("{ESTIMATE}: {}{GUESSED}", guessed.join(", ")));
        }
        let point = terms.iter().map(|t| t.point).sum();
        let safe = terms.iter().map(|t| t.safe).sum();
        Estimate {
            terms,
            point,
            safe,
            on_host: None,
            notes,
        }
    }

    /// A line a term, the sum, and the notes.
    pub fn explain(&self) -> Vec<String> {
        let line = |name: &str, point: Bytes, safe: Bytes| {
            let bound = if safe > point {
                format!(" (safe {:.2})", safe.gib())
            } else {
                String::new()
            };
            format!("{name} {:.2} GiB{bound}", point.gib())
        };
        let terms = self
            .terms
            .iter()
            .map(|t| format!("{}: {}", line(&t.name, t.point, t.safe), t.formula));
        let sum = line("per GPU", self.point, self.safe);
        terms.chain([sum]).chain(self.notes.iter().cloned()).collect()
    }
}

/// `8030261248` as `8,030,261,248`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_add_up_and_explain_themselves() {
        let gib = (1u64 << 30) as f64;
        let terms = vec![
            Term::new("weights", 2.0 * gib, 1.0, "2 B x 1".into()),
            Term::new("cache", gib, 1.5, "1 x 1".into()),
        ];
        let estimate = Estimate::of(terms, vec!["a note".into()]);
        assert_eq!(
            (estimate.point, estimate.safe),
            (Bytes::from_gib(3.0), Bytes::from_gib(3.5))
        );
        assert_eq!(
            estimate.explain(),
            [
                "weights 2.00 GiB: 2 B x 1",
                "cache 1.00 GiB (safe 1.50): 1 x 1",
                "per GPU 3.00 GiB (safe 3.50)",
                "a note"
            ]
        );
    }

    #[test]
    fn a_constant_says_its_figures_and_its_evidence() {
        let range = |safe| crate::constants::Range {
            point: 0.4,
            safe,
            evidence: "a log".into(),
        };
        let formula = |safe| Term::constant("context", &range(safe)).formula;
        assert_eq!(formula(0.5), "0.4 GiB, at most 0.5: a log");
        assert_eq!(formula(0.4), "0.4 GiB: a log");
    }

    #[test]
    fn digits_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(8_030_261_248), "8,030,261,248");
    }
}
