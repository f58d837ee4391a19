//! A term before rounding.

use crate::estimate::Term;

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
