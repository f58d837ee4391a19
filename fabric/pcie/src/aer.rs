//! Advanced Error Reporting: errors that a function has counted since it came.

use crate::attribute::{Reader, decimal};
use serde::Serialize;
use std::path::Path;

/// Errors on the link of a function. What is fatal ends the link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ErrorCounts {
    pub correctable: u64,
    pub nonfatal: u64,
    pub fatal: u64,
}

/// `None`: it doesn't count, or the kernel doesn't look.
pub(crate) fn read(reader: &Reader, function: &Path) -> Option<ErrorCounts> {
    let count = |name: &str| reader.value_if_any(&function.join(name), total);
    Some(ErrorCounts {
        correctable: count("aer_dev_correctable")?,
        nonfatal: count("aer_dev_nonfatal")?,
        fatal: count("aer_dev_fatal")?,
    })
}

/// A line for each error with its count, and last the sum: `TOTAL_ERR_FATAL 0`.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("TOTAL_ERR"))?;
    decimal(line.split_ascii_whitespace().nth(1)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_read() {
        assert_eq!(total("Undefined 0\nDLP 2\nTOTAL_ERR_FATAL 3"), Some(3));
        assert_eq!(total("TOTAL_ERR_FATAL"), None);
        assert_eq!(total("DLP 2"), None);
    }
}
