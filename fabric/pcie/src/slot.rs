//! A hot-plug slot, as the kernel's hot-plug driver shows it.

use crate::address::Address;
use crate::attribute::{Reader, yes_or_no};
use serde::Serialize;
use std::path::Path;

/// A place that something can be plugged into.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Slot {
    /// Such as `10`, or `0-2` of ACPI.
    pub name: String,
    /// Where function 0 sits, or would.
    pub address: Address,
    pub powered: Option<bool>,
    /// Something is plugged in.
    pub occupied: Option<bool>,
}

/// `None`: it has no address that can be read.
pub(crate) fn read(reader: &Reader, name: &str, path: &Path) -> Option<Slot> {
    let address = reader.value(&path.join("address"), |text| format!("{text}.0").parse().ok())?;
    Some(Slot {
        name: name.to_string(),
        address,
        powered: reader.value_if_any(&path.join("power"), yes_or_no),
        occupied: reader.value_if_any(&path.join("adapter"), yes_or_no),
    })
}
