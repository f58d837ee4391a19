//! GPUs that were there and are not seen any more, shown as such with whoever holds them. Pure.
//!
//! Two things tell that a GPU should be there: an earlier look of this manager, and a composition that holds it.
//! What an endpoint had that is silent, or was removed, is not missing.

use jiff::Timestamp;
use poolwright_inventory::Snapshot;
use poolwright_model::composable::{Composability, WhyNotKind};
use poolwright_model::fault::{Fault, FaultKind};
use poolwright_model::id::{ControlEndpointId, GpuId};
use poolwright_model::lifecycle::{GpuEvent, GpuState};
use poolwright_model::topology::{Gpu, Health, Topology};
use poolwright_planner::{Composition, Held};
use std::collections::{BTreeMap, BTreeSet};

/// A GPU as it was seen last.
#[derive(Debug, Clone)]
pub struct Gone {
    gpu: Gpu,
    since: Timestamp,
}

/// The GPUs that earlier looks showed and the latest does not.
#[derive(Debug, Clone, Default)]
pub struct Vanished(BTreeMap<GpuId, Gone>);

impl Vanished {
    /// As they were seen last.
    pub fn gpus(&self) -> impl Iterator<Item = &Gpu> {
        self.0.values().map(|gone| &gone.gpu)
    }

    /// Goes on from one look to the next. `last` is when all was still as before; `endpoints` are those that are looked at
    /// still.
    pub fn compare(
        &mut self,
        before: &Snapshot,
        last: Timestamp,
        after: &Snapshot,
        endpoints: &BTreeSet<ControlEndpointId>,
    ) {
        let seen: BTreeSet<&GpuId> = after.topology.gpus.iter().map(|gpu| &gpu.id).collect();
        for gpu in before.topology.gpus.iter().filter(|gpu| !seen.contains(&gpu.id)) {
            let gone = Gone {
                gpu: gpu.clone(),
                since: last,
            };
            self.0.entry(gpu.id.clone()).or_insert(gone);
        }
        let is_looked_at = |gpu: &Gpu| gpu.control.iter().any(|at| endpoints.contains(&at.endpoint));
        // What only a host showed goes when it is unbound, and is in its box under another name.
        self.0
            .retain(|id, gone| !seen.contains(id) && is_looked_at(&gone.gpu));
    }
}

/// Adds what is missing to the snapshot, in the state that its life has for it, and says so among the faults.
/// `named` is what everything was ever called; `answered` are the endpoints that answered last.
pub fn show_missing(
    snapshot: &mut Snapshot,
    vanished: &Vanished,
    compositions: &[Composition],
    named: &Topology,
    answered: &BTreeSet<ControlEndpointId>,
) {
    let seen: BTreeSet<GpuId> = snapshot.topology.gpus.iter().map(|gpu| gpu.id.clone()).collect();
    let mut missing: BTreeMap<GpuId, Missing<'_>> = BTreeMap::new();
    for gone in vanished.0.values().filter(|gone| !seen.contains(&gone.gpu.id)) {
        missing.insert(gone.gpu.id.clone(), Missing::since(gone));
    }
    for composition in compositions {
        for held in &composition.held {
            let is_missing = |id: &&GpuId| !seen.contains(*id) && answered.contains(&held.unit_at.endpoint);
            for id in held.gpus.iter().filter(is_missing) {
                let known = missing.remove(id).or_else(|| Missing::held(id, held, named));
                if let Some(mut known) = known {
                    known.holder = Some(composition);
                    missing.insert(id.clone(), known);
                }
            }
        }
    }
    for missing in missing.into_values() {
        snapshot.faults.push(missing.fault());
        snapshot.topology.gpus.push(missing.gpu());
    }
    snapshot.faults.sort();
    snapshot.topology.gpus.sort_by(|a, b| a.id.cmp(&b.id));
}

/// A GPU that should be there.
struct Missing<'a> {
    gpu: Gpu,
    since: Option<Timestamp>,
    holder: Option<&'a Composition>,
}

impl<'a> Missing<'a> {
    fn since(gone: &Gone) -> Self {
        Self {
            gpu: gone.gpu.clone(),
            since: Some(gone.since),
            holder: None,
        }
    }

    /// Of one that this manager never saw; its names are from before.
    fn held(id: &GpuId, held: &Held, named: &Topology) -> Option<Self> {
        let gpu = named.gpus.iter().find(|gpu| gpu.id == *id)?;
        let gpu = Gpu {
            state: GpuState::Bound,
            control: vec![held.unit_at.clone()],
            ..gpu.clone()
        };
        Some(Self {
            gpu,
            since: None,
            holder: None,
        })
    }

    /// Such as `not seen since 2026-03-02T12:00:00Z; c-1 on host-1 holds it for demand chat`.
    fn told(&self) -> String {
        let since = match self.since {
            Some(since) => format!("not seen since {since}"),
            None => "not seen since the manager started".to_owned(),
        };
        match self.holder {
            None => since,
            Some(Composition { id, host, demand, .. }) => {
                let demand = demand.as_ref().map(|demand| format!(" for demand {demand}"));
                format!("{since}; {id} on {host} holds it{}", demand.unwrap_or_default())
            }
        }
    }

    fn fault(&self) -> Fault {
        let place = self.gpu.control.first();
        let place = place.map_or_else(
            || self.gpu.id.to_string(),
            |at| format!("{} {}", at.endpoint, at.address),
        );
        let message = format!("{} is missing: {}", self.gpu.id, self.told());
        Fault::new(place, FaultKind::Missing, message)
    }

    fn gpu(self) -> Gpu {
        let told = self.told();
        // A state of an operation is the operation's to end.
        let state = self.gpu.state.next(GpuEvent::Vanished).unwrap_or(self.gpu.state);
        Gpu {
            state,
            host: None,
            host_port: None,
            health: Health::Unknown,
            composability: Composability::no(WhyNotKind::Missing, told),
            ..self.gpu
        }
    }
}
