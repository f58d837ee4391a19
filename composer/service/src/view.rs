//! What the hardware showed, seen with what we know of it: what operations wrote down since, and whose each
//! binding is. Pure.

use poolwright_executor::GpuRecord;
use poolwright_inventory::Snapshot;
use poolwright_model::composable::{Composability, WhyNot, WhyNotKind};
use poolwright_model::control::ControlPoint;
use poolwright_model::id::{ControlEndpointId, GpuId, UnitId};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::Gpu;
use poolwright_store::Versioned;
use std::collections::{BTreeMap, BTreeSet};

/// What we know of the pool beside what it shows.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// What operations wrote down last of each GPU.
    pub records: BTreeMap<GpuId, Versioned<GpuRecord>>,
    /// Units of our compositions.
    pub ours: BTreeSet<UnitId>,
    /// Units that running operations have in hand.
    pub in_hand: BTreeSet<UnitId>,
    /// Endpoints that were not adopted.
    pub observed: BTreeSet<ControlEndpointId>,
    /// Endpoints of which nothing may be had, and why.
    pub closed: BTreeMap<ControlEndpointId, WhyNot>,
    pub looked_at: LookedAt,
}

/// How far the store was when it was read who is bound where. What was written later was read from the hardware
/// later, too.
#[derive(Debug, Clone, Default)]
pub struct LookedAt {
    pub endpoints: BTreeMap<ControlEndpointId, u64>,
    /// Units that the last look at their endpoint could not read.
    pub units: BTreeMap<ControlPoint, u64>,
}

impl LookedAt {
    fn unit(&self, at: &ControlPoint) -> Option<u64> {
        let unit = self.units.get(at).or_else(|| self.endpoints.get(&at.endpoint));
        unit.copied()
    }
}

impl Known {
    /// Where a GPU could be bound, and nothing may be changed.
    fn observed_at<'g>(&self, gpu: &'g Gpu) -> Option<&'g ControlEndpointId> {
        let mut endpoints = gpu.control.iter().map(|at| &at.endpoint);
        endpoints.find(|endpoint| self.observed.contains(*endpoint))
    }

    /// Why nothing may be had where a GPU could be bound.
    fn closed_at(&self, gpu: &Gpu) -> Option<&WhyNot> {
        let mut endpoints = gpu.control.iter().map(|at| &at.endpoint);
        endpoints.find_map(|endpoint| self.closed.get(endpoint))
    }

    /// What was written down of a GPU after the look at whoever binds it.
    fn newer(&self, gpu: &Gpu) -> Option<&GpuRecord> {
        let record = self.records.get(&gpu.id)?;
        let looked_at = gpu.control.iter().filter_map(|at| self.looked_at.unit(at));
        let looked_at = looked_at.min().unwrap_or(u64::MAX);
        (record.revision > looked_at).then_some(&record.value)
    }
}

/// Puts what we know over what was seen. Whichever is newer is right about a binding; what only we can know
/// (dirty, indeterminate, quarantined) is added.
pub fn overlay(snapshot: &mut Snapshot, known: &Known) {
    for gpu in &mut snapshot.topology.gpus {
        let record = known.records.get(&gpu.id).map(|record| &record.value);
        let in_hand = known.in_hand.contains(&gpu.unit);
        let mut ours = in_hand || known.ours.contains(&gpu.unit);
        if let Some(newer) = known.newer(gpu) {
            gpu.host.clone_from(&newer.host);
            gpu.host_port.clone_from(&newer.host_port);
            gpu.state = newer.state;
            // What an operation of ours wrote down is its doing.
            ours = true;
        }
        match (gpu.host_port.is_some(), record.map(|record| record.state)) {
            (_, Some(held @ (GpuState::Indeterminate | GpuState::Quarantined))) => gpu.state = held,
            (false, _) if why_not(gpu) == Some(WhyNotKind::HostGone) => gpu.state = GpuState::Foreign,
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
                gpu.state = GpuState::Attached;
            }
            // A host was given it since its last reset, whoever took it away again.
            (false, Some(_))
                if gpu.host.is_none()
                    && !in_hand
                    && gpu.state == GpuState::Free
                    && record.is_some_and(|record| !record.clean) =>
            {
                gpu.state = GpuState::Dirty;
            }
            _ => {}
        }
        if !ours
            && gpu.composability.is_composable()
            && let Some(why) = known.closed_at(gpu)
        {
            gpu.composability = Composability(Some(why.clone()));
        }
        if !ours
            && gpu.composability.is_composable()
            && let Some(endpoint) = known.observed_at(gpu)
        {
            let detail = format!(
                "{endpoint} is only observed until it is adopted (poolwright endpoint adopt {endpoint})"
            );
            gpu.composability = Composability::no(WhyNotKind::ObserveOnly, detail);
        }
    }
}

fn why_not(gpu: &Gpu) -> Option<WhyNotKind> {
    gpu.composability.0.as_ref().map(|why| why.kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    const LOOKED_AT: u64 = 10;

    fn a_look(host_port: Option<&str>) -> Snapshot {
        let bound = host_port.map(|_| "host-1");
        let json = serde_json::json!({"gpus": [{
            "id": "g", "vendor": null, "model": null, "memory_bytes": null, "uuid": null, "serial": null, "pci_ids": null,
            "chassis": null, "slot": null, "functions": [], "partitions": [], "ports": [], "unit": "g",
            "composable": true, "why_not": null, "host": bound, "host_port": host_port,
            "state": if bound.is_some() { "bound" } else { "free" }, "health": "ok",
            "control": [{"endpoint": "box", "style": "zones", "address": "/g"}],
        }], "hosts": [], "fabrics": []});
        Snapshot {
            taken_at: Timestamp::UNIX_EPOCH,
            topology: serde_json::from_value(json).unwrap(),
            endpoints: vec![],
            faults: vec![],
            requests: 0,
            elapsed_ms: 0,
        }
    }

    fn one_gpu(host_port: Option<&str>, known: &Known) -> (GpuState, Option<WhyNotKind>) {
        let mut snapshot = a_look(host_port);
        overlay(&mut snapshot, known);
        let gpu = &snapshot.topology.gpus[0];
        (gpu.state, gpu.composability.0.as_ref().map(|why| why.kind))
    }

    fn unit() -> UnitId {
        UnitId::new("g").unwrap()
    }

    fn recorded(state: GpuState, host_port: Option<&str>, revision: u64) -> Known {
        let value = GpuRecord {
            gpu: GpuId::new("g").unwrap(),
            unit: unit(),
            state,
            clean: state == GpuState::Free,
            host: host_port.map(|_| "host-1".parse().unwrap()),
            host_port: host_port.map(|port| port.parse().unwrap()),
            composition: None,
            tenant: None,
            operation: None,
            since: Timestamp::UNIX_EPOCH,
        };
        Known {
            records: BTreeMap::from([(value.gpu.clone(), Versioned { value, revision })]),
            looked_at: LookedAt {
                endpoints: BTreeMap::from([("box".parse().unwrap(), LOOKED_AT)]),
                ..LookedAt::default()
            },
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
            ours: BTreeSet::from([unit()]),
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
    fn nothing_is_to_be_had_where_we_only_look() {
        let observed = Known {
            observed: BTreeSet::from(["box".parse().unwrap()]),
            ..Known::default()
        };
        let observe_only = Some(WhyNotKind::ObserveOnly);
        assert_eq!(one_gpu(None, &observed), (GpuState::Free, observe_only));
        let foreign = (GpuState::Foreign, Some(WhyNotKind::Foreign));
        assert_eq!(one_gpu(Some("p"), &observed), foreign);
    }

    #[test]
    fn what_only_we_can_know_is_added() {
        let before = |state| recorded(state, None, LOOKED_AT);
        assert_eq!(one_gpu(None, &before(GpuState::Dirty)).0, GpuState::Dirty);
        assert_eq!(one_gpu(None, &before(GpuState::Free)).0, GpuState::Free);
        assert_eq!(
            one_gpu(None, &before(GpuState::Quarantined)).0,
            GpuState::Quarantined
        );
        assert_eq!(
            one_gpu(None, &before(GpuState::Attached)).0,
            GpuState::Dirty,
            "somebody else took it from its host, and nobody reset it"
        );
    }

    #[test]
    fn whichever_is_newer_is_right_about_a_binding() {
        let later = LOOKED_AT + 1;
        assert_eq!(
            one_gpu(Some("p"), &recorded(GpuState::Free, None, later)),
            (GpuState::Free, None),
            "released and reset since it was seen bound: not foreign"
        );
        let mut bound = recorded(GpuState::Attached, Some("p"), later);
        bound.ours = BTreeSet::from([unit()]);
        let mut snapshot = a_look(None);
        overlay(&mut snapshot, &bound);
        let gpu = &snapshot.topology.gpus[0];
        assert_eq!(gpu.state, GpuState::Attached);
        assert_eq!(gpu.host_port.as_ref().unwrap().as_str(), "p");
        let mut earlier = recorded(GpuState::Free, None, LOOKED_AT);
        assert_eq!(one_gpu(Some("p"), &earlier).0, GpuState::Foreign);
        let unread = a_look(None).topology.gpus[0].control[0].clone();
        earlier.looked_at.units.insert(unread, LOOKED_AT - 1);
        assert_eq!(
            one_gpu(Some("p"), &earlier).0,
            GpuState::Free,
            "the last look could not read this one"
        );
    }
}
