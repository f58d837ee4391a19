//! Everything that was seen in one look, in the words of the fixed JSON form.

use jiff::Timestamp;
use poolwright_model::driver_label::DriverLabel;
use poolwright_model::fault::Fault;
use poolwright_model::id::ControlEndpointId;
use poolwright_model::topology::Topology;
use serde::{Deserialize, Serialize};

/// One look at the hardware, with what went wrong while looking. Immutable once made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Snapshot {
    /// When the last look began that found it so.
    pub taken_at: Timestamp,
    #[serde(flatten)]
    pub topology: Topology,
    /// Who answered at the endpoints, by their ids.
    #[serde(default)]
    pub endpoints: Vec<EndpointSeen>,
    pub faults: Vec<Fault>,
    /// Requests sent to all endpoints together.
    pub requests: u64,
    /// How long the look took, in milliseconds.
    pub elapsed_ms: u64,
    /// A GPU is seen on a host that its fabric did not bind it to: which of both is right hangs on who was asked last.
    #[serde(skip)]
    pub contested: bool,
}

impl Snapshot {
    /// The faults of endpoints that could not be read at all: their source is the endpoint, and no place in it.
    pub fn unread_endpoints(&self) -> impl Iterator<Item = &Fault> {
        let whole = |fault: &&Fault| !fault.source.contains(' ');
        let answered = |fault: &&Fault| self.endpoints.iter().any(|seen| seen.id.as_str() == fault.source);
        self.faults
            .iter()
            .filter(move |fault| whole(fault) && !answered(fault))
    }
}

/// An endpoint that answered: who it says that it is, and how far its driver can be relied upon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EndpointSeen {
    pub id: ControlEndpointId,
    #[serde(flatten)]
    pub label: DriverLabel,
}
