//! What the NVIDIA driver wrote of its GPUs into the kernel's log: errors with a number, called Xid.

use crate::address::Address;
use serde::Serialize;

/// One error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Xid {
    /// Of the record in the kernel's log.
    pub sequence: u64,
    pub function: Address,
    pub number: u32,
    /// What follows it, as the driver wrote it.
    pub says: String,
}

/// `NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.`
pub(crate) fn parse(sequence: u64, message: &str) -> Option<Xid> {
    let rest = message.strip_prefix("NVRM: Xid (PCI:")?;
    let (place, rest) = rest.split_once("): ")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (number, says) = rest.split_at(digits);
    let place = match place.contains('.') {
        true => place.to_owned(),
        false => format!("{place}.0"),
    };
    Some(Xid {
        sequence,
        function: place.parse().ok()?,
        number: number.parse().ok()?,
        says: says.trim_start_matches([',', ' ']).trim_end().to_owned(),
    })
}
