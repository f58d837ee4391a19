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

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    fn one_gpu(host_port: Option<&str>, known: &Known) -> (GpuState, Option<WhyNotKind>) {
        let bound = host_port.map(|_| "host-1");
        let json = serde_json::json!({"gpus": [{
            "id": "g", "vendor": null, "model": null, "memory_bytes": null, "uuid": null, "serial": null, "pci_ids": null,
            "chassis": null, "slot": null, "functions": [], "partitions": [], "ports": [], "unit": "g",
            "composable": true, "why_not": null, "host": bound, "host_port": host_port,
            "state": if bound.is_some() { "bound" } else { "free" }, "health": "ok",
        }], "hosts": [], "fabrics": []});
        let topology = serde_json::from_value(json).unwrap();
        let mut snapshot = Snapshot {
            taken_at: Timestamp::UNIX_EPOCH,
            topology,
            faults: vec![],
            requests: 0,
            elapsed_ms: 0,
        };
        overlay(&mut snapshot, known);
        let gpu = &snapshot.topology.gpus[0];
        (gpu.state, gpu.composability.0.as_ref().map(|why| why.kind))
    }

    fn recorded(state: GpuState) -> Known {
        Known {
            states: BTreeMap::from([(GpuId::new("g").unwrap(), state)]),
            ..Known::default()
        }
    }

    #[test]
    fn a_binding_that_is_not_ours_is_foreign() {
        assert_eq!(
            one_gpu(Some("p"), &Known::default()),
            (GpuState::Foreign, Some(WhyNotKind::Foreign))
        );
        let ours = Known {
            ours: BTreeSet::from([UnitId::new("g").unwrap()]),
            ..Known::default()
        };
        assert_eq!(one_gpu(Some("p"), &ours), (GpuState::Bound, None));
        let in_hand = Known {
            in_hand: ours.ours.clone(),
            ..Known::default()
        };
        assert_eq!(one_gpu(Some("p"), &in_hand), (GpuState::Bound, None));
    }

    #[test]
    fn what_only_we_can_know_is_added_and_the_hardware_is_right_about_bindings() {
        assert_eq!(one_gpu(None, &recorded(GpuState::Dirty)).0, GpuState::Dirty);
        assert_eq!(
            one_gpu(None, &recorded(GpuState::Quarantined)).0,
            GpuState::Quarantined
        );
        assert_eq!(
            one_gpu(None, &recorded(GpuState::Attached)).0,
            GpuState::Free,
            "recorded as attached, seen free"
        );
    }
}
