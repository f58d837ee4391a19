//! Advanced Error Reporting: errors that a function has counted since it came.
//!
//! The kernel keeps these counts, and not the device: they restart when a function appears, and stay unchanged while it
//! does not answer. The sums of a root port for all functions below it (`aer_rootport_total_err_cor`) are not read:
//! they identify no function.
//!
//! Of a fatal error that an endpoint tells, Linux 6.1 counts nothing, for it does not ask the function across a link
//! that it takes for dead: it is in the kernel's log alone.

use crate::address::Address;
use crate::attribute::{Reader, decimal};
use serde::Serialize;
use std::path::Path;

/// Errors on the link of a function, as counted at this end. A fatal error ends the link; the link itself corrects a
/// correctable one. `None`: the kernel has no count, or an unreadable one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ErrorCounts {
    pub correctable: Option<u64>,
    pub nonfatal: Option<u64>,
    pub fatal: Option<u64>,
}

/// `None`: it doesn't count, or the kernel doesn't look. A count that can't be read takes none of the others with it.
pub(crate) fn read(reader: &Reader, function: &Path) -> Option<ErrorCounts> {
    let count = |name: &str| reader.value_if_any(&function.join(name), total);
    let counts = ErrorCounts {
        correctable: count("aer_dev_correctable"),
        nonfatal: count("aer_dev_nonfatal"),
        fatal: count("aer_dev_fatal"),
    };
    (counts != ErrorCounts::default()).then_some(counts)
}

/// A line for each error with its count, and last the sum: `TOTAL_ERR_FATAL 0`.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("TOTAL_ERR"))?;
    decimal(line.split_ascii_whitespace().nth(1)?)
}

/// A fatal error that one end of a link told, as the kernel logged it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FatalError {
    /// Of the record in the kernel's log.
    pub sequence: u64,
    /// Who told it: the function, or the port above.
    pub function: Address,
    /// How the kernel calls it, such as `type=Inaccessible, (Unregistered Agent ID)`.
    pub says: String,
}

/// `pci 0000:3b:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Inaccessible, (Unregistered Agent ID)`,
/// after the name of its driver where it has one.
pub(crate) fn fatal(sequence: u64, message: &str) -> Option<FatalError> {
    let (who, error) = message.split_once(": ")?;
    let function = who.split_once(' ')?.1.parse().ok()?;
    let error = error.strip_prefix("AER: ").unwrap_or(error);
    let (severity, says) = error
        .strip_prefix("PCIe Bus Error: severity=")?
        .split_once(", ")?;
    severity.ends_with(" (Fatal)").then(|| FatalError {
        sequence,
        function,
        says: says.trim_end().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_read() {
        assert_eq!(total("Undefined 0\nDLP 2\nTOTAL_ERR_FATAL 3"), Some(3));
        assert_eq!(total("TOTAL_ERR_FATAL"), None);
        assert_eq!(total("DLP 2"), None);
        for garbled in [
            "TOTAL_ERR_COR 0xffff",
            "TOTAL_ERR_COR -1",
            "TOTAL_ERR_COR 99999999999999999999",
        ] {
            assert_eq!(total(garbled), None, "{garbled}");
        }
    }
}
