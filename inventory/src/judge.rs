//! What may be moved, decided when everything that was seen is known. Unknown means not composable.

use crate::gpus::best_name;
use crate::merge::Knowledge;
use poolwright_model::composable::{Composability, WhyNotKind};
use poolwright_model::control::ControlStyle;
use poolwright_model::fault::{Fault, FaultKind};
use poolwright_model::id::{ControlEndpointId, FabricId};
use poolwright_model::topology::{Gpu, Health, Topology};
use std::collections::{BTreeSet, HashSet};

/// One GPU told in two ways: the same name, but another UUID or serial number; or two endpoints that each
/// say that it is theirs to bind.
pub(crate) fn contradictions<'a>(
    gpu: &mut Gpu,
    told: impl Iterator<Item = &'a Gpu>,
    faults: &mut Vec<Fault>,
) {
    let lower = |text: &Option<String>| text.as_deref().map(|t| t.trim().to_lowercase());
    let (mut uuids, mut serials) = (BTreeSet::new(), BTreeSet::new());
    for other in told {
        uuids.extend(lower(&other.uuid));
        serials.extend(lower(&other.serial));
    }
    let owners = gpu.control.iter().map(|at| at.endpoint.to_string());
    let owners: BTreeSet<_> = owners.collect();
    for (what, all) in [
        ("told with several UUIDs", uuids),
        ("told with several serial numbers", serials),
        ("claimed by several endpoints", owners),
    ] {
        if all.len() > 1 {
            let all = all.into_iter().collect::<Vec<_>>().join(", ");
            let message = format!("{what}: {all}");
            let source = gpu
                .seen_by
                .iter()
                .map(ControlEndpointId::as_str)
                .collect::<Vec<_>>()
                .join(", ");
            faults.push(Fault::new(
                source,
                FaultKind::Conflict,
                format!("GPU {}: {message}", best_name(gpu)),
            ));
            gpu.composability = Composability::no(WhyNotKind::Conflict, message);
        }
    }
}

/// Matches hardware profiles, fills in what they and the PCI id database know, and closes GPUs that can't be moved safely.
pub(crate) fn judge(topology: &mut Topology, knowledge: Knowledge<'_>) {
    let reachable: HashSet<_> = topology
        .hosts
        .iter()
        .flat_map(|host| &host.ports)
        .filter_map(|port| {
            port.control
                .as_ref()
                .map(|control| (port.fabric.clone(), control.endpoint.clone(), control.style))
        })
        .collect();
    for gpu in &mut topology.gpus {
        let kind = knowledge
            .profiles
            .identify(gpu.pci_ids.as_ref(), gpu.model.as_deref(), gpu.memory_bytes);
        if let Some(ids) = &gpu.pci_ids {
            gpu.vendor = gpu
                .vendor
                .take()
                .or_else(|| knowledge.names.vendor(ids).map(str::to_owned));
            gpu.model = gpu
                .model
                .take()
                .or_else(|| knowledge.names.device(ids).map(str::to_owned));
        }
        gpu.profile = kind.map(|kind| kind.name.clone());
        gpu.memory_bytes = gpu.memory_bytes.or(kind.map(|kind| kind.memory()));
        if gpu.composability.is_composable() {
            gpu.composability = first_reason(gpu, |key| reachable.contains(key));
        }
    }
}

/// A fabric, and how one of its managers binds in it.
type Way = (FabricId, ControlEndpointId, ControlStyle);

fn first_reason(gpu: &Gpu, reachable: impl Fn(&Way) -> bool) -> Composability {
    if gpu.uuid.is_none() && gpu.serial.is_none() && gpu.pcie_serial.is_none() {
        return Composability::no(
            WhyNotKind::NoIdentity,
            "identified by location only: it shows neither UUID nor serial number",
        );
    }
    if gpu.control.is_empty() {
        return match gpu.ports.is_empty() {
            true => Composability::no(WhyNotKind::NoFabric, "no fabric that was asked shows it"),
            false => Composability::no(
                WhyNotKind::NoControl,
                "its fabric offers no way to bind it that we know",
            ),
        };
    }
    let has_way = gpu.control.iter().any(|control| {
        gpu.ports
            .iter()
            .any(|at| reachable(&(at.fabric.clone(), control.endpoint.clone(), control.style)))
    });
    if !has_way {
        return Composability::no(WhyNotKind::NoHost, "no host port of its fabric can be bound to");
    }
    if gpu.memory_bytes.is_none() {
        return Composability::no(
            WhyNotKind::NoMemorySize,
            "neither its manager nor a hardware profile says how much memory it has",
        );
    }
    if gpu.health == Health::Critical {
        return Composability::no(WhyNotKind::Unhealthy, "its manager reports health Critical");
    }
    Composability::YES
}
