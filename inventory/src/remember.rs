//! Ids that outlive a look, an endpoint that is silent for a while, and the process: what is to be kept so
//! that everything goes on being called as it was called first.

use crate::hosts;
use poolwright_model::composable::Composability;
use poolwright_model::id::HostId;
use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::{Gpu, Health, Host, HostPort, PowerState, Topology};
use poolwright_model::units::LinkWidth;
use std::collections::{BTreeMap, BTreeSet};

/// Adds what was seen to what was ever seen: ids with the names that they go by, and nothing else. The result
/// is a `last` for [`merge`](crate::merge). Says whether anything is new.
pub fn remember(known: &mut Topology, seen: &Topology) -> bool {
    // Only these may be called otherwise one day: see the ids of hosts.
    let provisional: BTreeSet<&HostId> = seen
        .hosts
        .iter()
        .filter(|host| hosts::is_provisional(host))
        .map(|host| &host.id)
        .collect();
    let gpu = |gpu: &Gpu| Gpu {
        host: gpu.host.clone().filter(|host| provisional.contains(host)),
        ..names_of_gpu(gpu)
    };
    let gpus = join(&mut known.gpus, seen.gpus.iter().map(gpu), |gpu| gpu.id.clone());
    let hosts = join(&mut known.hosts, seen.hosts.iter().map(names_of_host), |host| {
        host.id.clone()
    });
    let fabrics = join(&mut known.fabrics, seen.fabrics.iter().cloned(), |fabric| {
        fabric.id.clone()
    });
    gpus | hosts | fabrics
}

fn join<T: PartialEq + Clone, Id: Ord>(
    known: &mut Vec<T>,
    seen: impl Iterator<Item = T>,
    id: impl Fn(&T) -> Id,
) -> bool {
    let mut all: BTreeMap<Id, T> = known.iter().map(|one| (id(one), one.clone())).collect();
    let mut news = false;
    for one in seen {
        news |= all.get(&id(&one)) != Some(&one);
        all.insert(id(&one), one);
    }
    if news {
        *known = all.into_values().collect();
    }
    news
}

fn names_of_gpu(gpu: &Gpu) -> Gpu {
    Gpu {
        id: gpu.id.clone(),
        uuid: gpu.uuid.clone(),
        serial: gpu.serial.clone(),
        pcie_serial: gpu.pcie_serial.clone(),
        chassis: gpu.chassis.clone(),
        unit: gpu.unit.clone(),
        vendor: None,
        model: None,
        memory_bytes: None,
        pci_ids: None,
        profile: None,
        slot: None,
        functions: Vec::new(),
        partitions: Vec::new(),
        ports: Vec::new(),
        composability: Composability::YES,
        host: None,
        host_port: None,
        state: GpuState::Free,
        health: Health::Unknown,
        link: LinkWidth::default(),
        control: Vec::new(),
        seen_by: BTreeSet::new(),
    }
}

fn names_of_host(host: &Host) -> Host {
    let port = |port: &HostPort| HostPort {
        id: port.id.clone(),
        fabric: port.fabric.clone(),
        uuid: port.uuid.clone(),
        switch: None,
        port: None,
        slots: 0,
        slots_known: false,
        free_window_bytes: None,
        free_buses: None,
        link: LinkWidth::default(),
        control: None,
    };
    Host {
        id: host.id.clone(),
        name: host.name.clone(),
        uuid: host.uuid.clone(),
        serial: host.serial.clone(),
        ports: host.ports.iter().map(port).collect(),
        power_state: PowerState::Unknown,
        model: None,
        bmc: None,
        seen_by: BTreeSet::new(),
    }
}
