//! Plans over time, as solutions of the schema `cps-1` have them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Who runs where on which GPUs, and what is attached where in each slot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// Every demand of the problem, in its order; each part in each phase by itself.
    pub demands: Vec<Served>,
    /// GPUs by host, by group as `KIND@SWITCH`, by slot. What is never attached is left out.
    pub attached: BTreeMap<String, BTreeMap<String, Vec<u16>>>,
}

/// What a demand gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    pub demand: String,
    /// Which of its phases and parts, counted from 1, where it has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<usize>,
    /// `None`: it is not served.
    pub host: Option<String>,
    /// GPUs by group as `KIND@SWITCH`.
    #[serde(default)]
    pub gpus: BTreeMap<String, u16>,
}

impl Served {
    /// The demand, the phase and the part.
    #[must_use]
    pub fn key(&self) -> (&str, Option<usize>, Option<usize>) {
        (&self.demand, self.phase, self.part)
    }

    /// GPUs of all groups; `None` where it is not served.
    #[must_use]
    pub fn got(&self) -> Option<u32> {
        let counts = self.gpus.values().map(|count| u32::from(*count));
        self.host.as_ref().map(|_| counts.sum())
    }
}
