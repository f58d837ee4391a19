//! The lines of an operation's journal.

use crate::left_out::LeftOut;
use crate::operation::Stop;
use crate::state::StepState;
use jiff::Timestamp;
use poolwright_driver::Learned;
use serde::{Deserialize, Serialize};

/// A line, and when it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Noted {
    pub at: Timestamp,
    #[serde(flatten)]
    pub line: Line,
}

/// What is written down about an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
pub enum Line {
    /// Together with the claims, the plan and the operation's document.
    Submitted,
    Started,
    /// Another manager carries it on: whoever worked at it before writes nothing more.
    Adopted,
    /// An intent, before anything is sent; or an outcome, after it was seen.
    Step(StepLine),
    /// The same of a reset beside the steps: of the unit of the step with this index, which is given back.
    CleanUp(StepLine),
    /// From here on nothing new begins, and what was done is undone.
    Unwind(Stop),
    /// From here on it goes on without these units, and what was done for them is undone.
    LeftOut {
        units: Vec<LeftOut>,
    },
    /// The outcome of a step is unknown for longer than is usual: somebody was told.
    Overdue {
        message: String,
    },
    /// An undo failed, and everything that can be undone was.
    Quarantined,
    /// An operator says: try again.
    Retried {
        by: String,
        reason: String,
    },
    /// The end: every goal holds.
    Completed,
    /// The end: everything is as it was before.
    RolledBack,
    /// The end: an operator takes things as the fabric shows them.
    Accepted {
        by: String,
        reason: String,
    },
}

/// A step's new state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepLine {
    pub index: u32,
    pub state: StepState,
    #[serde(default)]
    pub attempts: u32,
    #[serde(default)]
    pub unsure: bool,
    /// The task in which the service still goes on with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Which start of the host it was done under, where the host says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What the host has told of its GPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learned: Vec<Learned>,
    /// What the host could not put back as it was when it let go of its GPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
}

impl StepLine {
    pub fn new(index: u32, state: StepState) -> Self {
        Self {
            index,
            state,
            attempts: 0,
            unsure: false,
            task: None,
            boot: None,
            evidence: None,
            error: None,
            learned: Vec::new(),
            left: Vec::new(),
        }
    }
}
