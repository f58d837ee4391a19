//! Plans over time, as solutions of the schema `cps-1` have them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Who runs where on which GPUs, and what is attached where in each slot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// Every demand of the problem, in its order.
    pub demands: Vec<Served>,
    /// GPUs by host, by group as `KIND@SWITCH`, by slot. What is never attached is left out.
    pub attached: BTreeMap<String, BTreeMap<String, Vec<u16>>>,
}

/// What a demand gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    pub demand: String,
    /// `None`: it is not served.
    pub host: Option<String>,
    /// GPUs by group as `KIND@SWITCH`.
    #[serde(default)]
    pub gpus: BTreeMap<String, u16>,
}

impl Served {
    /// GPUs of all groups; `None` where it is not served.
    #[must_use]
    pub fn got(&self) -> Option<u32> {
        let counts = self.gpus.values().map(|count| u32::from(*count));
        self.host.as_ref().map(|_| counts.sum())
    }
}
