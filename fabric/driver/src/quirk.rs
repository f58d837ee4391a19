//! Named deviations of products from the standard, as data with their evidence.

use serde::Serialize;

/// One deviation. Code asks "does this product have the quirk `name`?", never "is this vendor X?".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Quirk {
    /// Kebab-case, such as `members-count-lies`.
    pub name: &'static str,
    /// What the product does, and what we do about it.
    pub what: &'static str,
    /// Where it was seen.
    pub evidence: &'static str,
}
