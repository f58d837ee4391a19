//! A term before rounding.

use crate::estimate::Term;

/// A formula with its numbers, where somebody is to read it: a search looks at thousands of estimates for their bytes
/// alone.
macro_rules! words {
    ($rank:expr, $($format:tt)*) => {
        if $rank.words {
            format!($($format)*)
        } else {
            String::new()
        }
    };
}
pub(super) use words;

#[derive(Clone, Debug)]
pub(super) struct Part {
    pub name: &'static str,
    pub bytes: f64,
    pub formula: String,
}

impl Part {
    pub fn new(name: &'static str, bytes: f64, formula: String) -> Self {
        Part { name, bytes, formula }
    }

    pub fn term(self, safe_factor: f64) -> Term {
        Term::new(self.name, self.bytes, safe_factor, self.formula)
    }
}
