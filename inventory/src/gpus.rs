//! GPUs, joined from the box that they sit in and the hosts that see them.

use crate::fields::{fill, fill_list, not_taken};
use crate::hosts::Hosts;
use crate::judge;
use crate::merge::View;
use crate::names::{self, Name, Sighting};
use crate::scope::Scope;
use jiff::Timestamp;
use poolwright_model::composable::{Composability, WhyNotKind};
use poolwright_model::fault::{Fault, FaultKind};
use poolwright_model::id::{GpuId, HostId, UnitId};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::{Gpu, Health, Topology, Unit};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The joined GPUs and the units that they form.
pub(crate) struct Gpus {
    pub gpus: Vec<Gpu>,
    pub units: Vec<Unit>,
    /// See [`Snapshot::contested`](crate::Snapshot).
    pub contested: bool,
}

pub(crate) fn join(
    views: &[View],
    scope: &Scope,
    hosts: &Hosts,
    last: Option<&Topology>,
    faults: &mut Vec<Fault>,
) -> Gpus {
    let named: Vec<Vec<Vec<Name>>> = views
        .iter()
        .map(|view| view.topology.gpus.iter().map(names::of_gpu).collect())
        .collect();
    let found = names::group(&named);
    let doubted: HashMap<Sighting, &Name> = found
        .claimed_twice
        .iter()
        .flat_map(|(name, all)| all.iter().map(move |at| (*at, name)))
        .collect();
    for (name, sightings) in &found.claimed_twice {
        let who: BTreeSet<_> = sightings.iter().map(|at| place(views, *at)).collect();
        faults.push(Fault::new(
            views[sightings[0].0].source.as_str(),
            FaultKind::Conflict,
            format!(
                "several GPUs claim {name}: {}",
                who.into_iter().collect::<Vec<_>>().join("; ")
            ),
        ));
    }
    let uuids = named.iter().flatten().filter_map(|names| names::uuid_in(names));
    let mut ids = Ids::new(last, uuids.collect());
    let mut gpus = Vec::with_capacity(found.groups.len());
    let mut unit_keys: HashMap<(usize, UnitId), Vec<usize>> = HashMap::new();
    let mut contested = false;
    for group in &found.groups {
        let (mut gpu, is_contested) = join_one(views, scope, hosts, group, faults);
        contested |= is_contested;
        gpu.id = ids.give(&gpu, &place(views, group[0]));
        if let Some(name) = group.iter().find_map(|at| doubted.get(at)) {
            gpu.composability = Composability::no(
                WhyNotKind::Conflict,
                format!("another GPU claims the same {name}"),
            );
        }
        for at in group {
            unit_keys
                .entry((at.0, gpu_at(views, *at).unit.clone()))
                .or_default()
                .push(gpus.len());
        }
        gpus.push(gpu);
    }
    let units = form_units(&mut gpus, unit_keys.into_values());
    Gpus {
        gpus,
        units,
        contested,
    }
}

fn gpu_at(views: &[View], (view, index): Sighting) -> &Gpu {
    &views[view].topology.gpus[index]
}

fn place(views: &[View], at: Sighting) -> String {
    let gpu = gpu_at(views, at);
    let chassis = gpu.chassis.as_ref().map_or("", |c| c.as_str());
    format!(
        "{} {chassis} {}",
        views[at.0].source,
        gpu.slot.as_deref().unwrap_or(gpu.id.as_str())
    )
}

/// The fabric's word counts for where it is and to what it is bound; the host's word for what it sees. Says also whether
/// they differ.
fn join_one(
    views: &[View],
    scope: &Scope,
    hosts: &Hosts,
    group: &[Sighting],
    faults: &mut Vec<Fault>,
) -> (Gpu, bool) {
    let mut members = group.to_vec();
    members.sort_by_key(|at| {
        let gpu = gpu_at(views, *at);
        (gpu.control.is_empty(), gpu.ports.is_empty(), *at)
    });
    let mut gpu = gpu_at(views, members[0]).clone();
    gpu.chassis = gpu.chassis.map(|chassis| scope.chassis(members[0].0, &chassis));
    gpu.ports.clear();
    gpu.control.clear();
    gpu.seen_by = members.iter().map(|at| views[at.0].source.clone()).collect();
    for at in &members {
        let other = gpu_at(views, *at);
        fill(&mut gpu.vendor, &other.vendor);
        fill(&mut gpu.model, &other.model);
        fill(&mut gpu.memory_bytes, &other.memory_bytes);
        fill(&mut gpu.uuid, &other.uuid);
        fill(&mut gpu.serial, &other.serial);
        fill(&mut gpu.pcie_serial, &other.pcie_serial);
        fill(&mut gpu.pci_ids, &other.pci_ids);
        fill(
            &mut gpu.chassis,
            &other.chassis.as_ref().map(|chassis| scope.chassis(at.0, chassis)),
        );
        fill(&mut gpu.slot, &other.slot);
        fill(&mut gpu.firmware, &other.firmware);
        fill(&mut gpu.locator, &other.locator);
        fill(&mut gpu.link.generation, &other.link.generation);
        fill(&mut gpu.link.lanes, &other.link.lanes);
        fill_list(&mut gpu.functions, &other.functions);
        fill_list(&mut gpu.partitions, &other.partitions);
        gpu.ports.extend(other.ports.iter().cloned().map(|mut port| {
            port.fabric = scope.fabric(at.0, &port.fabric);
            port
        }));
        gpu.control.extend(other.control.iter().cloned());
        gpu.health = worse(gpu.health, other.health);
    }
    gpu.ports.sort();
    gpu.ports.dedup();
    gpu.control.sort();
    gpu.control.dedup();
    judge::contradictions(&mut gpu, members.iter().map(|at| gpu_at(views, *at)), faults);
    let contested = where_bound(&mut gpu, views, hosts, &members, faults);
    (gpu, contested)
}

fn worse(a: Health, b: Health) -> Health {
    match (a, b) {
        (Health::Unknown, known) | (known, Health::Unknown) => known,
        (a, b) => a.max(b),
    }
}

/// Decides host, port and state from what the fabric says and what hosts see, and says whether they differ.
fn where_bound(
    gpu: &mut Gpu,
    views: &[View],
    hosts: &Hosts,
    members: &[Sighting],
    faults: &mut Vec<Fault>,
) -> bool {
    let bound = members.iter().find_map(|at| {
        let port = gpu_at(views, *at).host_port.clone()?;
        hosts.port_ids.get(&(at.0, port)).cloned()
    });
    let by_fabric = members
        .iter()
        .filter(|at| !gpu_at(views, **at).control.is_empty());
    let asked_fabric = by_fabric.map(|at| views[at.0].at).max();
    // With the time of the latest look of each host.
    let mut seen_on: BTreeMap<&HostId, Timestamp> = BTreeMap::new();
    for at in members {
        let seen = gpu_at(views, *at);
        let host = seen.host.as_ref().filter(|_| seen.host_port.is_none());
        if let Some(host) = host.and_then(|host| hosts.host_ids.get(&(at.0, host.clone()))) {
            let latest = seen_on.entry(host).or_insert(views[at.0].at);
            *latest = views[at.0].at.max(*latest);
        }
    }
    (gpu.host, gpu.host_port, gpu.state) = match &bound {
        Some((host, port)) if seen_on.contains_key(host) => {
            (Some(host.clone()), Some(port.clone()), GpuState::Attached)
        }
        Some((host, port)) => (Some(host.clone()), Some(port.clone()), GpuState::Bound),
        None if asked_fabric.is_some() => (None, None, GpuState::Free),
        None => match seen_on.keys().next() {
            Some(host) => (Some((*host).clone()), None, GpuState::Attached),
            None => (None, None, GpuState::Free),
        },
    };
    seen_on.retain(|host, _| Some(*host) != gpu.host.as_ref());
    let elsewhere: Vec<&str> = seen_on
        .iter()
        // It may have been moved since.
        .filter(|(_, seen)| asked_fabric.is_none_or(|asked| **seen >= asked))
        .map(|(host, _)| host.as_str())
        .collect();
    if !elsewhere.is_empty() {
        let owner = gpu.host.as_ref().map_or("nobody".to_owned(), HostId::to_string);
        let message = format!("bound to {owner}, but seen on {}", elsewhere.join(", "));
        let source = gpu.seen_by.first().map_or(String::new(), ToString::to_string);
        faults.push(Fault::new(
            source,
            FaultKind::Conflict,
            format!("GPU {}: {message}", best_name(gpu)),
        ));
        gpu.composability = Composability::no(WhyNotKind::Disputed, message);
    }
    !seen_on.is_empty()
}

pub(crate) fn best_name(gpu: &Gpu) -> String {
    names::of_gpu(gpu)
        .first()
        .map_or_else(|| gpu.id.to_string(), Name::to_string)
}

/// GPUs that any view puts into one unit are one unit.
fn form_units(gpus: &mut [Gpu], together: impl Iterator<Item = Vec<usize>>) -> Vec<Unit> {
    let mut unit_of: Vec<usize> = (0..gpus.len()).collect();
    for set in together.filter(|set| set.len() > 1) {
        let first = set.iter().map(|i| unit_of[*i]).min().unwrap_or_default();
        let old: BTreeSet<usize> = set.iter().map(|i| unit_of[*i]).collect();
        unit_of
            .iter_mut()
            .filter(|unit| old.contains(*unit))
            .for_each(|unit| *unit = first);
    }
    let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (gpu, unit) in unit_of.iter().enumerate() {
        members.entry(*unit).or_default().push(gpu);
    }
    let mut units = Vec::with_capacity(members.len());
    for indices in members.into_values() {
        let mut ids: Vec<GpuId> = indices.iter().map(|i| gpus[*i].id.clone()).collect();
        ids.sort();
        let text = if ids.len() == 1 {
            ids[0].to_string()
        } else {
            format!("unit-{}", ids[0])
        };
        let unit = UnitId::from_lossy(&text);
        indices.iter().for_each(|i| gpus[*i].unit = unit.clone());
        units.push(Unit { id: unit, gpus: ids });
    }
    units
}

/// Gives each GPU its id: the one that it had under any of its names, else one made of the strongest name. A GPU with
/// another UUID is another GPU: all GPUs of a board have the board's serial number.
struct Ids<'a> {
    /// With the UUIDs of the GPUs.
    known: HashMap<Name, Vec<(Option<String>, GpuId)>>,
    /// Ids of known GPUs with a UUID, which keep them while they are absent.
    reserved: BTreeSet<GpuId>,
    /// The UUIDs in the views.
    present: BTreeSet<&'a str>,
    given: BTreeSet<GpuId>,
}

impl<'a> Ids<'a> {
    fn new(last: Option<&Topology>, present: BTreeSet<&'a str>) -> Self {
        let mut known: HashMap<Name, Vec<(Option<String>, GpuId)>> = HashMap::new();
        let mut reserved = BTreeSet::new();
        for gpu in last.into_iter().flat_map(|topology| &topology.gpus) {
            let names = names::of_gpu(gpu);
            let uuid = names::uuid_in(&names).map(str::to_owned);
            reserved.extend(uuid.as_ref().map(|_| gpu.id.clone()));
            for name in names {
                let gpus = known.entry(name).or_default();
                gpus.push((uuid.clone(), gpu.id.clone()));
            }
        }
        Self {
            known,
            reserved,
            present,
            given: BTreeSet::new(),
        }
    }

    fn give(&mut self, gpu: &Gpu, place: &str) -> GpuId {
        let names = names::of_gpu(gpu);
        let own = names::uuid_in(&names);
        // A GPU without a UUID is none of those that the views show with theirs.
        let may_be = |uuid: Option<&str>| match own {
            Some(_) => names::may_be(own, uuid),
            None => uuid.is_none_or(|uuid| !self.present.contains(uuid)),
        };
        let mut known = names.iter().filter_map(|name| self.known.get(name));
        let had = known
            .find_map(|gpus| only(gpus.iter().filter(|(uuid, _)| may_be(uuid.as_deref()))))
            .map(|(_, id)| id)
            .filter(|id| !self.given.contains(*id));
        let id = had.cloned().unwrap_or_else(|| {
            let wanted = match names.first() {
                Some(Name::Uuid(uuid)) => format!(
                    "gpu-{}",
                    uuid.chars().filter(|c| *c != '-').take(12).collect::<String>()
                ),
                Some(Name::Serial(serial)) => format!("gpu-s{serial}"),
                Some(Name::PcieSerial(serial)) => format!("gpu-d{serial}"),
                None => format!("gpu-at-{place}"),
            };
            let taken = |text: &str| self.given.contains(text) || self.reserved.contains(text);
            GpuId::from_lossy(&not_taken(GpuId::from_lossy(&wanted).to_string(), taken))
        });
        self.given.insert(id.clone());
        id
    }
}

/// The only item; `None` if there are several.
fn only<T>(mut items: impl Iterator<Item = T>) -> Option<T> {
    let first = items.next()?;
    items.next().is_none().then_some(first)
}
