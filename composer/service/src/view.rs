//! What the hardware showed, seen with what we know of it: our own recorded states, and whose each
//! binding is. Pure.

use poolwright_inventory::Snapshot;
use poolwright_model::composable::{Composability, WhyNotKind};
use poolwright_model::id::{GpuId, UnitId};
use poolwright_model::lifecycle::GpuState;
use std::collections::{BTreeMap, BTreeSet};

/// What we know of the pool beside what it shows.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// The state that the last operation left each GPU in.
    pub states: BTreeMap<GpuId, GpuState>,
    /// Units of our compositions.
    pub ours: BTreeSet<UnitId>,
    /// Units that running operations have in hand.
    pub in_hand: BTreeSet<UnitId>,
}

/// Puts what we know over what was seen. Where the two disagree about a binding the hardware is right;
/// what only we can know (dirty, indeterminate, quarantined) is added.
pub fn overlay(snapshot: &mut Snapshot, known: &Known) {
    for gpu in &mut snapshot.topology.gpus {
        let recorded = known.states.get(&gpu.id).copied();
        let ours = known.ours.contains(&gpu.unit) || known.in_hand.contains(&gpu.unit);
        match (gpu.host_port.is_some(), recorded) {
            (_, Some(held @ (GpuState::Indeterminate | GpuState::Quarantined))) => gpu.state = held,
            (false, Some(GpuState::Dirty)) if gpu.host.is_none() => gpu.state = GpuState::Dirty,
            (true, _) if !ours => {
                gpu.state = GpuState::Foreign;
                if gpu.composability.is_composable() {
                    let host = gpu.host.as_ref().map_or("a host", |host| host.as_str());
                    let detail = format!("bound to {host} by somebody else; it is left alone");
                    gpu.composability = Composability::no(WhyNotKind::Foreign, detail);
                }
            }
            // The host's BMC may not show what the executor confirmed by other means.
            (true, Some(GpuState::Attached)) if gpu.state == GpuState::Bound => {
                gpu.state = GpuState::Attached
            }
            _ => {}
        }
    }
}
