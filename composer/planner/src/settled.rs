//! The pool as it will be once something is over: whoever looks ahead takes what is let go of for free, by this one rule.

use crate::composition::Composition;
use poolwright_model::id::UnitId;
use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::Topology;
use std::collections::{BTreeMap, BTreeSet};

/// Of these units what is in one of these compositions is attached there, and all else is free. What is missing,
/// quarantined, or of an unknown outcome stays as it is: that it is over tells nothing of it.
pub fn settle(topology: &mut Topology, held: &[Composition], units: &BTreeSet<UnitId>) {
    let places = held.iter().flat_map(|c| {
        let held = c.held.iter();
        held.map(move |held| (&held.unit, (&c.host, &held.host_port)))
    });
    let places: BTreeMap<_, _> = places.collect();
    for gpu in topology.gpus.iter_mut().filter(|gpu| units.contains(&gpu.unit)) {
        use GpuState as S;
        if matches!(gpu.state, S::Indeterminate | S::Quarantined | S::Missing) {
            continue;
        }
        let place = places.get(&gpu.unit);
        gpu.state = if place.is_some() { S::Attached } else { S::Free };
        gpu.host = place.map(|(host, _)| (*host).clone());
        gpu.host_port = place.map(|(_, port)| (*port).clone());
    }
}
