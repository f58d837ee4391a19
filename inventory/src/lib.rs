//! What we know: a snapshot with its faults, the identity of a GPU across its names, and the difference
//! between two snapshots. Pure: `poolwright-collector` asks the drivers.

mod snapshot;

pub use snapshot::Snapshot;
