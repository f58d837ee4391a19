//! Counts and spans, as people say them.

use std::ops::Range;

/// `1 GPU`, `4 GPUs`.
pub(super) fn gpus(count: impl Into<u32>) -> String {
    match count.into() {
        1 => "1 GPU".to_owned(),
        n => format!("{n} GPUs"),
    }
}

/// `1 more GPU`, `4 more GPUs`.
pub(super) fn more_gpus(count: impl Into<u32>) -> String {
    match count.into() {
        1 => "1 more GPU".to_owned(),
        n => format!("{n} more GPUs"),
    }
}

/// `slot 7`, `slots 2 to 3`.
pub(super) fn slots(window: &Range<usize>) -> String {
    match window.len() {
        0 | 1 => format!("slot {}", window.start),
        _ => format!("slots {} to {}", window.start, window.end - 1),
    }
}
