//! Ids that outlive a look, an endpoint that is silent for a while, and the process: what is to be kept so
//! that everything goes on being called as it was called first.

use crate::fields::fill;
use crate::{hosts, names};
use poolwright_model::composable::Composability;
use poolwright_model::id::HostId;
use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::{Chassis, Fabric, Gpu, Health, Host, HostPort, PowerState, Topology};
use poolwright_model::units::LinkWidth;
use std::collections::{BTreeMap, BTreeSet};

/// Adds what was seen to what was ever seen: ids with the names that they go by, and nothing else. The result
/// is a `last` for [`merge`](crate::merge). Says whether it names anything that it did not before.
///
/// Names are only added: whoever sees less of a thing than another one did takes nothing away. So of several that
/// remember together each comes to an end, and nobody writes for ever what the next one takes back.
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
    let gpus = join(
        &mut known.gpus,
        seen.gpus.iter().map(gpu),
        |gpu| gpu.id.clone(),
        add_gpu,
    );
    let hosts = seen.hosts.iter().map(names_of_host);
    let hosts = join(&mut known.hosts, hosts, |host| host.id.clone(), add_host);
    forget_outgrown(known, seen);
    let fabrics = seen.fabrics.iter().map(name_of_fabric);
    let fabrics = join(
        &mut known.fabrics,
        fabrics,
        |fabric| fabric.id.clone(),
        add_fabric,
    );
    // The first endpoint of a chassis remains its endpoint.
    let first = |chassis: &mut Chassis, before: &Chassis| {
        chassis.clone_from(before);
        false
    };
    let chassis = seen.chassis.iter().cloned();
    let chassis = join(&mut known.chassis, chassis, |chassis| chassis.id.clone(), first);
    gpus | hosts | fabrics | chassis
}

/// `add` adds to what was just seen what was known of the same thing, and says whether the former has news.
fn join<T: Clone, Id: Ord>(
    known: &mut Vec<T>,
    seen: impl Iterator<Item = T>,
    id: impl Fn(&T) -> Id,
    add: impl Fn(&mut T, &T) -> bool,
) -> bool {
    let mut all: BTreeMap<Id, T> = known.iter().map(|one| (id(one), one.clone())).collect();
    let mut news = false;
    for mut one in seen {
        news |= match all.get(&id(&one)) {
            Some(before) => add(&mut one, before),
            None => true,
        };
        all.insert(id(&one), one);
    }
    *known = all.into_values().collect();
    news
}

fn add_gpu(gpu: &mut Gpu, before: &Gpu) -> bool {
    fill(&mut gpu.uuid, &before.uuid);
    fill(&mut gpu.serial, &before.serial);
    fill(&mut gpu.pcie_serial, &before.pcie_serial);
    let known = names::of_gpu(before);
    let named = names::of_gpu(gpu).iter().any(|name| !known.contains(name));
    named || (gpu.host.is_some() && gpu.host != before.host)
}

fn add_host(host: &mut Host, before: &Host) -> bool {
    // Its id was made of it; a fabric may call it otherwise.
    host.name.clone_from(&before.name);
    fill(&mut host.uuid, &before.uuid);
    fill(&mut host.serial, &before.serial);
    let known = names::of_host(before);
    let mut news = names::of_host(host).iter().any(|name| !known.contains(name));
    for port in &mut host.ports {
        match before.ports.iter().find(|known| known.id == port.id) {
            Some(known) => {
                fill(&mut port.uuid, &known.uuid);
                news |= (&port.fabric, &port.uuid) != (&known.fabric, &known.uuid);
            }
            None => news = true,
        }
    }
    let is_seen = |known: &&HostPort| host.ports.iter().any(|port| port.id == known.id);
    let unseen: Vec<HostPort> = before
        .ports
        .iter()
        .filter(|known| !is_seen(known))
        .cloned()
        .collect();
    host.ports.extend(unseen);
    host.ports.sort_by(|a, b| a.id.cmp(&b.id));
    news
}

fn add_fabric(fabric: &mut Fabric, before: &Fabric) -> bool {
    fill(&mut fabric.endpoint, &before.endpoint);
    fabric.endpoint != before.endpoint
}

/// Of a host that has a name now, the one made of its UUID or serial number is used up: else who does not see its
/// BMC would go on calling it by that.
fn forget_outgrown(known: &mut Topology, seen: &Topology) {
    let named = seen.hosts.iter().filter(|host| !hosts::is_provisional(host));
    let names: BTreeSet<names::Name> = named.flat_map(names::of_host).collect();
    let ids: BTreeSet<&HostId> = seen.hosts.iter().map(|host| &host.id).collect();
    let is_outgrown = |host: &Host| {
        let same = names::of_host(host).iter().any(|name| names.contains(name));
        same && hosts::is_provisional(host) && !ids.contains(&host.id)
    };
    known.hosts.retain(|host| !is_outgrown(host));
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
        firmware: None,
        locator: None,
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
        slot: port.slot.clone(),
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
        power_restore_policy: None,
        model: None,
        bmc: None,
        seen_by: BTreeSet::new(),
    }
}

/// How much goes on in it comes and goes.
fn name_of_fabric(fabric: &Fabric) -> Fabric {
    Fabric {
        switches: 0,
        ports: 0,
        endpoints: 0,
        zones: 0,
        connections: 0,
        ..fabric.clone()
    }
}
