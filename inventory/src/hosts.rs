//! Hosts and their ports, joined from the fabric's end (which port leads to whom) and the host's own end
//! (its name, its power, its hot-plug slots).

use crate::fields::{fill, not_taken};
use crate::merge::View;
use crate::names::{self, Name, Sighting};
use crate::scope::Scope;
use poolwright_model::fault::{Fault, FaultKind};
use poolwright_model::id::{FabricId, HostId, HostPortId};
use poolwright_model::topology::{Host, HostPort, PowerState, Topology};
use std::collections::{BTreeSet, HashMap};

/// The joined hosts, and by which id each view's hosts and ports are known now.
pub(crate) struct Hosts {
    pub hosts: Vec<Host>,
    pub host_ids: HashMap<(usize, HostId), HostId>,
    pub port_ids: HashMap<(usize, HostPortId), (HostId, HostPortId)>,
}

pub(crate) fn join(views: &[View], scope: &Scope, last: Option<&Topology>, faults: &mut Vec<Fault>) -> Hosts {
    let named: Vec<Vec<Vec<Name>>> = views
        .iter()
        .map(|view| view.topology.hosts.iter().map(names::of_host).collect())
        .collect();
    let found = names::group(&named);
    for (name, sightings) in &found.claimed_twice {
        let who: Vec<_> = sightings
            .iter()
            .map(|at| format!("{} at {}", host_at(views, *at).name, views[at.0].source))
            .collect();
        faults.push(Fault::new(
            views[sightings[0].0].source.as_str(),
            FaultKind::Conflict,
            format!("several hosts claim {name}: {}", who.join(", ")),
        ));
    }
    let uuids = named.iter().flatten().filter_map(|names| names::uuid_in(names));
    let mut ids = Ids::new(last, uuids.map(str::to_owned).collect());
    let had = ports_of(last);
    let mut joined = Hosts {
        hosts: Vec::new(),
        host_ids: HashMap::new(),
        port_ids: HashMap::new(),
    };
    for group in &found.groups {
        join_one(views, scope, group, &mut ids, &had, &mut joined);
    }
    joined
}

fn host_at(views: &[View], (view, place): Sighting) -> &Host {
    &views[view].topology.hosts[place]
}

fn join_one(
    views: &[View],
    scope: &Scope,
    group: &[Sighting],
    ids: &mut Ids,
    had: &PortIds,
    joined: &mut Hosts,
) {
    // The host's own BMC knows it best.
    let mut members = group.to_vec();
    members.sort_by_key(|at| (host_at(views, *at).bmc.is_none(), *at));
    let mut host = host_at(views, members[0]).clone();
    host.ports.clear();
    host.seen_by = members.iter().map(|at| views[at.0].source.clone()).collect();
    for other in members[1..].iter().map(|at| host_at(views, *at)) {
        fill(&mut host.uuid, &other.uuid);
        fill(&mut host.serial, &other.serial);
        fill(&mut host.model, &other.model);
        if host.power_state == PowerState::Unknown {
            host.power_state = other.power_state;
        }
        host.power_restore_policy = host.power_restore_policy.or(other.power_restore_policy);
    }
    host.id = ids.give(&host);
    for at in &members {
        joined
            .host_ids
            .insert((at.0, host_at(views, *at).id.clone()), host.id.clone());
    }
    host.ports = join_ports(views, scope, &members, &host.id, had, joined);
    joined.hosts.push(host);
}

/// The fabric's end carries the control point; the host's end of the same adapter carries the slots.
fn join_ports(
    views: &[View],
    scope: &Scope,
    members: &[Sighting],
    host: &HostId,
    had: &PortIds,
    joined: &mut Hosts,
) -> Vec<HostPort> {
    let ports = || {
        members
            .iter()
            .flat_map(|at| host_at(views, *at).ports.iter().map(move |port| (at.0, port)))
    };
    let (fabric_ends, host_ends): (Vec<_>, Vec<_>) =
        ports().partition(|(_, port)| port.fabric != FabricId::unknown());
    let mut result: Vec<HostPort> = Vec::new();
    let mut used: BTreeSet<usize> = BTreeSet::new();
    let mut local_ids: Vec<Vec<(usize, HostPortId)>> = Vec::new();
    for (view, end) in fabric_ends {
        let mut port = end.clone();
        port.fabric = scope.fabric(view, &end.fabric);
        let mut locals = vec![(view, end.id.clone())];
        let other = host_ends
            .iter()
            .position(|(_, host_end)| end.uuid.is_some() && host_end.uuid == end.uuid);
        if let Some(other) = other.filter(|other| used.insert(*other)) {
            let (view, host_end) = &host_ends[other];
            port.slots = host_end.slots;
            port.slots_known = host_end.slots_known;
            port.free_window_bytes = port.free_window_bytes.or(host_end.free_window_bytes);
            port.slot = port.slot.take().or_else(|| host_end.slot.clone());
            port.free_buses = port.free_buses.or(host_end.free_buses);
            locals.push((*view, host_end.id.clone()));
        }
        result.push(port);
        local_ids.push(locals);
    }
    for (index, (view, host_end)) in host_ends.iter().enumerate() {
        if !used.contains(&index) {
            result.push((*host_end).clone());
            local_ids.push(vec![(*view, host_end.id.clone())]);
        }
    }
    name_ports(result, local_ids, host, had, joined)
}

/// Ids that ports have, by what stays of a port: its host, its fabric and its adapter's durable name.
type PortIds = HashMap<(HostId, FabricId, String), HostPortId>;

fn ports_of(last: Option<&Topology>) -> PortIds {
    let hosts = last.iter().flat_map(|t| &t.hosts);
    let ports = hosts.flat_map(|host| host.ports.iter().map(move |port| (host, port)));
    ports
        .filter_map(|(host, port)| Some((place_of(&host.id, port)?, port.id.clone())))
        .collect()
}

fn place_of(host: &HostId, port: &HostPort) -> Option<(HostId, FabricId, String)> {
    let uuid = port.uuid.as_ref()?;
    Some((host.clone(), port.fabric.clone(), uuid.to_lowercase()))
}

/// The id that a port had; else `host:fabric`, numbered where a host has several ports in one fabric.
fn name_ports(
    ports: Vec<HostPort>,
    local_ids: Vec<Vec<(usize, HostPortId)>>,
    host: &HostId,
    had: &PortIds,
    joined: &mut Hosts,
) -> Vec<HostPort> {
    let mut both: Vec<_> = ports.into_iter().zip(local_ids).collect();
    both.sort_by(|(a, _), (b, _)| {
        (&a.fabric, &a.switch, &a.port, &a.uuid).cmp(&(&b.fabric, &b.switch, &b.port, &b.uuid))
    });
    let mut count: HashMap<FabricId, usize> = HashMap::new();
    for (port, _) in &both {
        *count.entry(port.fabric.clone()).or_default() += 1;
    }
    let mut given: BTreeSet<HostPortId> = BTreeSet::new();
    let known: Vec<Option<HostPortId>> = both
        .iter()
        .map(|(port, _)| {
            let id = had.get(&place_of(host, port)?)?;
            given.insert(id.clone()).then(|| id.clone())
        })
        .collect();
    let mut number: HashMap<FabricId, usize> = HashMap::new();
    both.into_iter()
        .zip(known)
        .map(|((mut port, locals), known)| {
            let n = number.entry(port.fabric.clone()).or_default();
            *n += 1;
            port.id = known.unwrap_or_else(|| {
                let text = match count[&port.fabric] {
                    1 => format!("{host}:{}", port.fabric),
                    _ => format!("{host}:{}:{n}", port.fabric),
                };
                HostPortId::from_lossy(&not_taken(text, |text| given.contains(text)))
            });
            given.insert(port.id.clone());
            for local in locals {
                joined.port_ids.insert(local, (host.clone(), port.id.clone()));
            }
            port
        })
        .collect()
}

/// Gives every host its id: the one that it had, else its name, else its serial number or UUID.
///
/// A host that only its fabric knew has an id made of its UUID. Once its BMC tells its name it is called by
/// that, unless it holds GPUs: then others know it by the id that it has.
struct Ids {
    /// With the UUIDs of the hosts.
    known: HashMap<Name, (Option<String>, HostId)>,
    /// The UUIDs in the views. A known host with one of them is not also another host in the same enclosure, which has the
    /// same serial number.
    present: BTreeSet<String>,
    holding: BTreeSet<HostId>,
    given: BTreeSet<HostId>,
}

impl Ids {
    fn new(last: Option<&Topology>, present: BTreeSet<String>) -> Self {
        let hosts = || last.iter().flat_map(|t| &t.hosts);
        // One that was called otherwise since goes by its name.
        let before = hosts().filter(|host| is_provisional(host));
        let known = before
            .chain(hosts().filter(|host| !is_provisional(host)))
            .flat_map(|host| {
                let names = names::of_host(host);
                let uuid = names::uuid_in(&names).map(str::to_owned);
                let known = move |name: Name| (name, (uuid.clone(), host.id.clone()));
                names.into_iter().map(known)
            })
            .collect();
        let holding = last
            .iter()
            .flat_map(|t| &t.gpus)
            .filter_map(|gpu| gpu.host.clone())
            .collect();
        Self {
            known,
            present,
            holding,
            given: BTreeSet::new(),
        }
    }

    fn give(&mut self, host: &Host) -> HostId {
        let names = names::of_host(host);
        let provisional = names.first().map(unnamed);
        let outgrown = |id: &HostId| {
            host.bmc.is_some() && provisional.as_deref() == Some(id.as_str()) && !self.holding.contains(id)
        };
        let own = names::uuid_in(&names);
        let had = names
            .iter()
            .filter_map(|name| self.known.get(name))
            .find(|(uuid, _)| {
                let is_here = uuid.as_ref().is_some_and(|uuid| self.present.contains(uuid));
                !is_here || names::may_be(own, uuid.as_deref())
            })
            .map(|(_, id)| id)
            .filter(|id| !self.given.contains(*id) && !outgrown(id));
        let id = had.cloned().unwrap_or_else(|| {
            let taken = |text: &str| {
                self.given.contains(text) || self.known.values().any(|(_, id)| id.as_str() == text)
            };
            let named = host.bmc.is_some() || names.is_empty();
            let wanted = provisional
                .clone()
                .filter(|_| !named)
                .unwrap_or_else(|| host.name.clone());
            HostId::from_lossy(&not_taken(HostId::from_lossy(&wanted).to_string(), taken))
        });
        self.given.insert(id.clone());
        id
    }
}

/// What a host is called of which only a name that people don't use is known.
fn unnamed(name: &Name) -> String {
    let (Name::Uuid(text) | Name::Serial(text) | Name::PcieSerial(text)) = name;
    format!("host-{text}")
}

/// Whether a host is still called by a name that people don't use.
pub fn is_provisional(host: &Host) -> bool {
    names::of_host(host)
        .first()
        .is_some_and(|name| unnamed(name) == host.id.as_str())
}
