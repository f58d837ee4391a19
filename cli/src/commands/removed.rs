//! What every removal shows: what there is no more of.

use crate::failure::Failure;
use crate::output::Output;
use crate::tables;
use serde::Serialize;
use std::fmt::Display;

/// In JSON `{"removed": "demand", "id": "chat"}`.
#[derive(Serialize)]
struct Removed {
    removed: &'static str,
    id: String,
}

/// Shows that a thing of this kind is forgotten.
pub fn show(kind: &'static str, id: impl Display, output: Output) -> Result<(), Failure> {
    let removed = Removed {
        removed: kind,
        id: id.to_string(),
    };
    output.show_as(&removed, &tables::pairs(&removed), |_| {
        format!("{kind} {id} is forgotten")
    })
}
