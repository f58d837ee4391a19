//! `size --pool`: the GPUs of a pool, and what joins them, in place of the catalogue's.

use crate::exit_code::ExitCode;
use crate::failure::Failure;
use poolwright_model::profile::GpuKind;
use poolwright_service::{Snapshot, most_slots, pool_kinds, size};
use poolwright_sizing::Offer;
use std::fs;
use std::path::Path;

/// What a snapshot has of these kinds, or of all where none is named; and how many GPUs a host takes.
pub fn of(
    file: &Path,
    kinds: &[&GpuKind],
    host_slots: Option<u32>,
) -> Result<(Vec<Offer>, Option<u32>), Failure> {
    let text = fs::read_to_string(file).map_err(|error| Failure::file(file, "read", &error))?;
    let snapshot: Snapshot = serde_json::from_str(&text).map_err(|error| {
        Failure::usage(format!("{} is no snapshot: {error}", file.display()))
            .with_hint("make one: poolwright discover --endpoint URL -o json")
    })?;
    let mut offers = size::pool_offers(&pool_kinds(&snapshot));
    let wanted = |offer: &Offer| {
        let named = |kind: &&GpuKind| offer.kind.as_deref() == Some(kind.name.as_str());
        kinds.is_empty() || kinds.iter().any(named)
    };
    offers.retain(wanted);
    if offers.is_empty() {
        let message = format!("{} has no such GPU that can be composed", file.display());
        return Err(Failure::new(ExitCode::NotFound, message).with_hint(
            "leave --kind out, or see what is there and why it is not composable: poolwright get gpus",
        ));
    }
    Ok((offers, host_slots.or(most_slots(&snapshot))))
}
