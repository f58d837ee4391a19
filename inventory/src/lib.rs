//! The state of the pool: a snapshot with its faults, and the identity of a GPU across its names. Pure:
//! `poolwright-collector` asks the drivers.
//!
//! The way through: views of single endpoints ([`View`]) → [`merge`] joins what is one thing under several
//! names, keeps the ids of the last snapshot, matches hardware profiles and judges what is composable →
//! [`Snapshot`].
//!
//! Invariants: the same views and the same last snapshot give the same snapshot; a GPU keeps its id as
//! long as any of its names is known; two that claim one name are both in conflict, and neither is
//! composable. What [`remember`] keeps is enough for that, across restarts too.

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

pub use hosts::is_provisional;
pub use merge::{Knowledge, Merged, View, merge};
pub use pci_names::PciNames;
pub use remember::remember;
pub use snapshot::{EndpointSeen, Snapshot};
