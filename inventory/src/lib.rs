//! What we know: a snapshot with its faults, the identity of a GPU across its names, and the difference
//! between two snapshots. Pure: `poolwright-collector` asks the drivers.
//!
//! The way through: views of single endpoints ([`View`]) → [`merge`] joins what is one thing under several
//! names, keeps the ids of the last snapshot, matches hardware profiles and judges what is composable →
//! [`Snapshot`] → [`SnapshotDiff`].
//!
//! Invariants: the same views and the same last snapshot give the same snapshot; a GPU keeps its id as
//! long as any of its names is known; two that claim one name are both in conflict, and neither is
//! composable. What [`remember`] keeps is enough for that, across restarts too.

mod diff;
mod fields;
mod gpus;
mod hosts;
mod judge;
mod merge;
mod names;
mod pci_names;
mod remember;
mod scope;
mod snapshot;

pub use diff::{Change, ListDiff, SnapshotDiff};
pub use hosts::is_provisional;
pub use merge::{Knowledge, Merged, View, merge};
pub use pci_names::PciNames;
pub use remember::remember;
pub use snapshot::{EndpointSeen, Snapshot};
