//! What one endpoint shows, with the faults met on the way.

use poolwright_model::driver_label::DriverLabel;
use poolwright_model::fault::Fault;
use poolwright_model::topology::Topology;

/// One endpoint's view. Its GPUs carry provisional ids; who they really are is decided by the inventory
/// from UUIDs and serial numbers, after all endpoints were asked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observation {
    pub topology: Topology,
    /// Who answered, and how far driving it can be relied upon.
    pub label: DriverLabel,
    /// The owner's mark that it carries, as anybody is shown it; `None` where it is blank, or can carry none.
    pub mark: Option<String>,
    pub faults: Vec<Fault>,
    /// Requests sent to get it.
    pub requests: u64,
    /// Deviations of the product that were worked around.
    pub quirks: Vec<crate::Quirk>,
}

/// Told while a long observation goes on, so that people see something.
pub trait Progress: Send + Sync {
    /// So many requests were answered since the last call, and so many more are known to be needed.
    fn advanced(&self, answered: u64, known: u64);
}

impl Progress for () {
    fn advanced(&self, _answered: u64, _known: u64) {}
}
