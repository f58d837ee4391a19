//! What is recorded against what is found: where the fabric is not as our compositions have it, and what is bound
//! beside them. Pure. It is reported and never repaired by itself: whoever changed the fabric may have meant it.

use poolwright_inventory::Snapshot;
use poolwright_model::composable::WhyNotKind;
use poolwright_model::id::{CompositionId, ControlEndpointId, DemandId, GpuId, HostId, HostPortId, UnitId};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::Gpu;
use poolwright_planner::{Composition, Held};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One GPU that is not where it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Drift {
    pub gpu: GpuId,
    pub kind: DriftKind,
    /// Who should hold it; `None` where nobody should.
    pub composition: Option<CompositionId>,
    pub demand: Option<DemandId>,
    /// Where it should be bound.
    pub wanted: Option<HostPortId>,
    /// Where it is bound, as seen last.
    pub found: Option<HostPortId>,
    /// More, for people.
    pub detail: Option<String>,
}

/// In the order in which they are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum DriftKind {
    /// The endpoint that binds it gives no answer: nobody knows.
    Unreadable,
    /// It is held, and no endpoint shows it.
    Missing,
    /// Two claim to be it, or it is told in two ways.
    Conflict,
    /// It is held for, or bound to, a host that nobody shows any more.
    HostGone,
    /// It is held and bound as recorded, and its endpoint shows it at another address: renumbered, or moved to another slot.
    Moved,
    /// It is held, and bound to another port.
    Elsewhere,
    /// It is held, and bound to nothing.
    Unbound,
    /// It is bound, and nobody of ours holds it.
    Foreign,
}

impl fmt::Display for DriftKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unreadable => "unreadable",
            Self::Missing => "missing",
            Self::Conflict => "conflict",
            Self::HostGone => "host-gone",
            Self::Moved => "moved",
            Self::Elsewhere => "elsewhere",
            Self::Unbound => "unbound",
            Self::Foreign => "foreign",
        })
    }
}

impl fmt::Display for Drift {
    /// Such as `gpu-1 of chat-1 should be bound to host-2/p0, and is bound to nothing`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.gpu)?;
        if let Some(composition) = &self.composition {
            write!(f, " of {composition}")?;
        }
        match (self.kind, &self.wanted, &self.found) {
            (DriftKind::Moved, ..) => f.write_str(" has moved"),
            (DriftKind::Elsewhere, Some(wanted), Some(found)) => {
                write!(f, " is bound to {found}, not to {wanted}")
            }
            (DriftKind::Unbound, Some(wanted), _) => {
                write!(f, " should be bound to {wanted}, and is bound to nothing")
            }
            (DriftKind::HostGone, Some(wanted), _) => {
                write!(f, " should be bound to {wanted}, and its host is not shown")
            }
            (DriftKind::HostGone, ..) => f.write_str(" is bound to a host that is gone"),
            (DriftKind::Missing, ..) => f.write_str(" is not seen"),
            (DriftKind::Foreign, _, Some(found)) => write!(f, " is bound to {found} by somebody else"),
            (kind, ..) => write!(f, ": {kind}"),
        }?;
        match &self.detail {
            Some(detail) => write!(f, " ({detail})"),
            None => Ok(()),
        }
    }
}

/// What is known beside the snapshot.
pub struct Recorded<'a> {
    pub compositions: &'a [Composition],
    /// Units that running operations have in hand: they are on their way.
    pub in_hand: &'a BTreeSet<UnitId>,
    /// Endpoints that gave no answer in the last look, with what was wrong.
    pub silent: &'a BTreeMap<ControlEndpointId, String>,
    /// Endpoints that are only observed: what is bound there is not our business.
    pub observed: &'a BTreeSet<ControlEndpointId>,
    /// Hosts that are shown by fabrics alone, and are known to be gone, with how.
    pub gone: &'a BTreeMap<HostId, String>,
    /// GPUs that are out of use because nobody can say which they are, with why.
    pub mistaken: &'a BTreeMap<GpuId, String>,
}

impl Recorded<'_> {
    fn conflict(&self, gpu: &Gpu) -> Option<String> {
        let why = gpu.composability.0.as_ref();
        let seen = why.filter(|why| matches!(why.kind, WhyNotKind::Conflict | WhyNotKind::Disputed));
        let seen = seen.map(|why| why.detail.clone());
        seen.or_else(|| self.mistaken.get(&gpu.id).cloned())
    }
}

/// Every GPU that is not as recorded: those of compositions first.
pub fn drift(snapshot: &Snapshot, recorded: &Recorded<'_>) -> Vec<Drift> {
    let topology = &snapshot.topology;
    let gpus: BTreeMap<&GpuId, &Gpu> = topology.gpus.iter().map(|gpu| (&gpu.id, gpu)).collect();
    let hosts: BTreeSet<&HostId> = topology.hosts.iter().map(|host| &host.id).collect();
    let mut drifts = Vec::new();
    let mut held_gpus: BTreeSet<&GpuId> = BTreeSet::new();
    for composition in recorded.compositions {
        for held in &composition.held {
            held_gpus.extend(&held.gpus);
            if recorded.in_hand.contains(&held.unit) {
                continue;
            }
            for id in &held.gpus {
                let gpu = gpus.get(id).copied();
                let host_gone = match hosts.contains(&composition.host) {
                    true => recorded.gone.get(&composition.host).cloned(),
                    false => Some(format!("nobody shows {}", composition.host)),
                };
                if let Some((kind, detail)) = compare(composition, held, gpu, host_gone, recorded) {
                    drifts.push(Drift {
                        gpu: id.clone(),
                        kind,
                        composition: Some(composition.id.clone()),
                        demand: composition.demand.clone(),
                        wanted: Some(held.host_port.clone()),
                        found: gpu.and_then(|gpu| gpu.host_port.clone()),
                        detail,
                    });
                }
            }
        }
    }
    let others = topology.gpus.iter().filter(|gpu| {
        let ours_to_tell = gpu
            .control
            .iter()
            .all(|at| !recorded.observed.contains(&at.endpoint));
        ours_to_tell && !held_gpus.contains(&gpu.id) && !recorded.in_hand.contains(&gpu.unit)
    });
    drifts.extend(others.filter_map(|gpu| beside(gpu, recorded)));
    drifts
}

/// How a GPU that is held is not as recorded.
fn compare(
    composition: &Composition,
    held: &Held,
    gpu: Option<&Gpu>,
    host_gone: Option<String>,
    recorded: &Recorded<'_>,
) -> Option<(DriftKind, Option<String>)> {
    if let Some(why) = recorded.silent.get(&held.unit_at.endpoint) {
        return Some((DriftKind::Unreadable, Some(why.clone())));
    }
    let Some(gpu) = gpu.filter(|gpu| gpu.state != GpuState::Missing) else {
        return Some((DriftKind::Missing, None));
    };
    if let Some(why) = recorded.conflict(gpu) {
        return Some((DriftKind::Conflict, Some(why)));
    }
    if let Some(why) = host_gone {
        return Some((DriftKind::HostGone, Some(let_go_by_force(composition, &why))));
    }
    if let Some(why) = nowhere(gpu) {
        return Some((DriftKind::HostGone, Some(let_go_by_force(composition, &why))));
    }
    match &gpu.host_port {
        Some(port) if *port == held.host_port => {
            moved(held, gpu).map(|detail| (DriftKind::Moved, Some(detail)))
        }
        Some(_) => Some((DriftKind::Elsewhere, None)),
        None => Some((DriftKind::Unbound, None)),
    }
}

/// Where its endpoint shows it, if not at the recorded address. Changes use the address that was observed.
fn moved(held: &Held, gpu: &Gpu) -> Option<String> {
    let mut points = gpu
        .control
        .iter()
        .filter(|at| at.endpoint == held.unit_at.endpoint);
    let is_there = points.clone().any(|at| *at == held.unit_at);
    let now = points.next().filter(|_| !is_there)?;
    Some(format!(
        "{} shows it at {}, recorded is {}; changes use the former",
        now.endpoint, now.address, held.unit_at.address
    ))
}

/// A GPU that nobody of ours holds, and that is not simply there to be had.
fn beside(gpu: &Gpu, recorded: &Recorded<'_>) -> Option<Drift> {
    let host = gpu.host.as_ref();
    let host_gone = host.and_then(|host| recorded.gone.get(host).cloned());
    let (kind, detail) = match recorded.conflict(gpu) {
        Some(why) => (DriftKind::Conflict, Some(why)),
        None => match nowhere(gpu).or(host_gone.filter(|_| gpu.state == GpuState::Foreign)) {
            Some(why) => (
                DriftKind::HostGone,
                Some(format!("{why}; unbind it at its fabric's own manager")),
            ),
            None if gpu.state == GpuState::Foreign => (DriftKind::Foreign, None),
            None => return None,
        },
    };
    Some(Drift {
        gpu: gpu.id.clone(),
        kind,
        composition: None,
        demand: None,
        wanted: None,
        found: gpu.host_port.clone(),
        detail,
    })
}

/// What it is bound to, where no host is shown at that.
fn nowhere(gpu: &Gpu) -> Option<String> {
    let why = gpu.composability.0.as_ref()?;
    (why.kind == WhyNotKind::HostGone).then(|| why.detail.clone())
}

/// What to do about a GPU of ours that no host will ever let go of.
fn let_go_by_force(composition: &Composition, why: &str) -> String {
    let id = &composition.id;
    format!("{why}; give it up: poolwright release composition/{id} --force --reason WHY")
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use serde_json::json;

    fn seen(port: Option<&str>, why_not: Option<&str>) -> Snapshot {
        let json = json!({"gpus": [{
            "id": "g", "vendor": null, "model": null, "memory_bytes": null, "uuid": null, "serial": null, "pci_ids": null,
            "chassis": null, "slot": null, "functions": [], "partitions": [], "ports": [], "unit": "g",
            "composable": why_not.is_none(), "why_not": why_not, "host": port.map(|_| "h"), "host_port": port,
            "state": if port.is_some() { "bound" } else { "free" }, "health": "ok",
            "control": [{"endpoint": "box", "style": "zones", "address": "/g"}],
        }], "hosts": [{"id": "h", "name": "h", "power_state": "on", "ports": []}], "fabrics": []});
        Snapshot {
            taken_at: Timestamp::UNIX_EPOCH,
            topology: serde_json::from_value(json).unwrap(),
            endpoints: vec![],
            faults: vec![],
            requests: 0,
            elapsed_ms: 0,
            contested: false,
        }
    }

    fn held_at(port: &str) -> Composition {
        let point = |at: &str| json!({"endpoint": "box", "style": "zones", "address": at});
        serde_json::from_value(json!({
            "id": "c", "demand": "d", "tenant": "t", "host": "h", "part": 1, "parts": 1, "label": "",
            "held": [{"unit": "g", "gpus": ["g"], "host_port": port, "unit_at": point("/g"), "port_at": point(port)}],
        }))
        .unwrap()
    }

    /// What is told of the one GPU.
    fn told(snapshot: &Snapshot, compositions: &[Composition], silent: bool) -> Option<DriftKind> {
        let silent = silent.then(|| ("box".parse().unwrap(), "no answer".to_owned()));
        let recorded = Recorded {
            compositions,
            in_hand: &BTreeSet::new(),
            silent: &silent.into_iter().collect(),
            observed: &BTreeSet::new(),
            gone: &BTreeMap::new(),
            mistaken: &BTreeMap::new(),
        };
        let drifts = drift(snapshot, &recorded);
        assert!(drifts.len() <= 1, "{drifts:?}");
        drifts.first().map(|drift| drift.kind)
    }

    /// Fault 72: `diff` reports the move.
    #[test]
    fn a_gpu_at_another_address_is_told_as_moved() {
        let mut held = held_at("p");
        held.held[0].unit_at.address = "/before".to_owned();
        let found = told(&seen(Some("p"), None), &[held], false);
        assert_eq!(found, Some(DriftKind::Moved));
    }

    #[test]
    fn what_is_held_is_compared_with_what_is_found() {
        let held = [held_at("p")];
        assert_eq!(told(&seen(Some("p"), None), &held, false), None);
        let told_of = |port| told(&seen(port, None), &held, false);
        assert_eq!(told_of(Some("q")), Some(DriftKind::Elsewhere));
        assert_eq!(told_of(None), Some(DriftKind::Unbound));
        assert_eq!(
            told(&seen(Some("p"), None), &held, true),
            Some(DriftKind::Unreadable),
            "it was there when the endpoint answered last"
        );
        let mut gone = seen(None, None);
        gone.topology.gpus.clear();
        assert_eq!(told(&gone, &held, false), Some(DriftKind::Missing));
        let nowhere = seen(None, Some("host-gone: bound to /zone, where no host is shown"));
        assert_eq!(told(&nowhere, &held, false), Some(DriftKind::HostGone));
        assert_eq!(
            told(&nowhere, &[], false),
            Some(DriftKind::HostGone),
            "nobody of ours holds it"
        );
        let mut hostless = seen(Some("p"), None);
        hostless.topology.hosts.clear();
        assert_eq!(told(&hostless, &held, false), Some(DriftKind::HostGone));
    }

    #[test]
    fn a_host_whose_bmc_is_another_hosts_now_is_gone() {
        let mut seen = seen(Some("p"), None);
        let gone = BTreeMap::from([("h".parse().unwrap(), "its BMC shows h-2 now".to_owned())]);
        let (nothing, nobody) = (BTreeSet::new(), BTreeSet::new());
        let silent = BTreeMap::new();
        let held = [held_at("p")];
        let mut recorded = Recorded {
            compositions: &held,
            in_hand: &nothing,
            silent: &silent,
            observed: &nobody,
            gone: &gone,
            mistaken: &BTreeMap::new(),
        };
        let told = drift(&seen, &recorded).remove(0);
        assert_eq!(told.kind, DriftKind::HostGone, "although it is bound as recorded");
        let said = told.to_string();
        assert!(
            said.contains("shows h-2 now") && said.contains("release composition/c --force"),
            "{said}"
        );
        seen.topology.gpus[0].state = GpuState::Foreign;
        recorded.compositions = &[];
        let told = drift(&seen, &recorded).remove(0);
        assert_eq!(told.kind, DriftKind::HostGone);
        assert!(told.detail.unwrap().contains("unbind it"));
    }

    #[test]
    fn two_that_claim_one_are_told_whoever_holds_them() {
        let twins = seen(Some("p"), Some("conflict: box and box-2 both claim serial 7"));
        assert_eq!(told(&twins, &[held_at("p")], false), Some(DriftKind::Conflict));
        assert_eq!(told(&twins, &[], false), Some(DriftKind::Conflict));
    }

    #[test]
    fn what_operations_have_in_hand_is_on_its_way_and_what_is_only_observed_is_not_ours_to_tell() {
        let mut foreign = seen(Some("p"), Some("foreign: bound by somebody else"));
        foreign.topology.gpus[0].state = GpuState::Foreign;
        assert_eq!(told(&foreign, &[], false), Some(DriftKind::Foreign));
        let (unit, endpoint) = ("g".parse().unwrap(), "box".parse().unwrap());
        let (in_hand, observed) = (BTreeSet::from([unit]), BTreeSet::from([endpoint]));
        let mut recorded = Recorded {
            compositions: &[],
            in_hand: &BTreeSet::new(),
            silent: &BTreeMap::new(),
            observed: &observed,
            gone: &BTreeMap::new(),
            mistaken: &BTreeMap::new(),
        };
        assert!(drift(&foreign, &recorded).is_empty());
        let (held, nothing) = ([held_at("q")], BTreeSet::new());
        recorded = Recorded {
            in_hand: &in_hand,
            observed: &nothing,
            compositions: &held,
            ..recorded
        };
        assert!(drift(&foreign, &recorded).is_empty());
    }
}
