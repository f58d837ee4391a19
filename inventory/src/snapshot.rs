//! Everything that was seen in one look, in the words of the fixed JSON form.

use jiff::Timestamp;
use poolwright_model::fault::Fault;
use poolwright_model::topology::Topology;
use serde::{Deserialize, Serialize};

/// One look at the hardware, with what went wrong while looking. Immutable once made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// When the look began.
    pub taken_at: Timestamp,
    #[serde(flatten)]
    pub topology: Topology,
    pub faults: Vec<Fault>,
    /// Requests sent to all endpoints together.
    pub requests: u64,
    /// How long the look took, in milliseconds.
    pub elapsed_ms: u64,
}
