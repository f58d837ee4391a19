//! The names that an agent tells a GPU by: they are kept with it, shown, and asked with from then on.

use super::failure::printable;
use poolwright_driver::Learned;

/// Longer than any name that a host has for a GPU.
const LONGEST: usize = 64;

/// Which of the names is none; `None` where all of them may be.
pub(super) fn refused(learned: &Learned) -> Option<String> {
    let names = [
        ("address", Some(&learned.address)),
        ("slot", learned.slot.as_ref()),
        ("PCIe serial number", learned.pcie_serial.as_ref()),
        ("board serial number", learned.board_serial.as_ref()),
        ("firmware version", learned.firmware.as_ref()),
        ("UUID", learned.uuid.as_ref()),
    ];
    let (what, name) = names
        .into_iter()
        .find_map(|(what, name)| Some((what, name.filter(|name| !is_plain(name))?)))?;
    let begins: String = printable(name).chars().take(LONGEST).collect();
    Some(format!(
        "tells of {} what is no {what}, {begins:?}: that has at most {LONGEST} characters, none of which controls anything",
        learned.gpu
    ))
}

fn is_plain(name: &str) -> bool {
    name.chars().count() <= LONGEST && !name.chars().any(char::is_control)
}
