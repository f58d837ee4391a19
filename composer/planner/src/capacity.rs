//! Free capacity of an observed pool: its [`Room`], and the units and ports behind the counts.

use crate::room::{Freshness, HostLayout, Layout, Room, Shelf, Taken};
use crate::survey::{Condition, PortFacts, Survey, UnitFacts, way};
use crate::uplinks::Crossing;
use poolwright_model::control::{ControlPoint, ControlStyle};
use poolwright_model::id::{ControlEndpointId, FabricId, GpuId, HostId, HostPortId, SwitchId};
use poolwright_model::topology::{HostPort, PowerState, SwitchGraph};
use poolwright_model::units::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

pub(crate) struct Capacity<'a> {
    pub room: Room,
    /// The hosts of the room, in the order of their ids.
    host_ids: Vec<HostAt<'a>>,
    /// The units of each shelf: clean ones first, then by id.
    units: Vec<BTreeSet<(Freshness, usize)>>,
    shelf_of: Vec<Option<(usize, Freshness)>>,
    port_at: HashMap<&'a HostPortId, (usize, usize)>,
    host_at: HashMap<&'a HostId, usize>,
}

struct HostAt<'a> {
    id: &'a HostId,
    /// In the order of their ids.
    ports: Vec<&'a HostPort>,
}

/// For each GPU of a unit, the fabrics and switches that it hangs on.
type Place<'a> = BTreeSet<Vec<(&'a FabricId, Option<&'a SwitchId>)>>;
type Manager<'a> = (&'a ControlEndpointId, ControlStyle);

#[derive(Clone, PartialEq, Eq, Hash)]
struct ShelfKey<'a> {
    kind: String,
    memory: Bytes,
    size: usize,
    place: Place<'a>,
    /// How many GPUs are at each of these, in their order.
    spread: Vec<u32>,
    managers: BTreeSet<Manager<'a>>,
}

/// A new shelf, with one of its units.
struct Met<'a> {
    key: ShelfKey<'a>,
    sample: usize,
}

/// Where a host port is, as far as reach goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Site<'a> {
    fabric: &'a FabricId,
    switch: Option<&'a SwitchId>,
    manager: Manager<'a>,
}

impl Deref for Capacity<'_> {
    type Target = Room;
    fn deref(&self) -> &Room {
        &self.room
    }
}

impl DerefMut for Capacity<'_> {
    fn deref_mut(&mut self) -> &mut Room {
        &mut self.room
    }
}

impl<'a> Capacity<'a> {
    pub fn of(survey: &Survey<'a>) -> Self {
        Self::with(survey, |_| None)
    }

    /// The same, with shelves for units that a running operation moves, or just did: they can be given away later. Suspect
    /// units are given away last.
    pub fn with_units_in_motion(survey: &Survey<'a>, suspects: &BTreeSet<GpuId>) -> Self {
        Self::with(survey, |unit| match unit.condition {
            Condition::Reserved | Condition::Held(_) if unit.is_usable_later() => {
                Some((Freshness::Released, false))
            }
            Condition::Free | Condition::Dirty if unit.gpus.iter().any(|gpu| suspects.contains(&gpu.id)) => {
                Some((Freshness::Released, true))
            }
            _ => None,
        })
    }

    fn with(survey: &Survey<'a>, own: impl Fn(&UnitFacts<'a>) -> Option<(Freshness, bool)>) -> Self {
        let mut sites = Interner::default();
        let open = survey.hosts.iter().filter(|host| host.closed.is_none());
        let mut layout = Layout::default();
        let (mut hosts, mut free) = (Vec::new(), Vec::new());
        for facts in open {
            let first = layout.sites.len();
            let mut ports = Vec::new();
            for (port, site) in facts
                .ports
                .iter()
                .filter_map(|port| Some((port, Site::of(port)?)))
            {
                layout.sites.push(sites.number(site));
                free.push(port.free);
                ports.push(port.port);
            }
            layout.hosts.push(HostLayout {
                unsure: facts.host.power_state != PowerState::On,
                slots: ports.iter().map(|port| i64::from(port.slots)).sum(),
                ports: first..layout.sites.len(),
            });
            let id = &facts.host.id;
            hosts.push(HostAt { id, ports });
        }
        let mut met: Vec<Met<'a>> = Vec::new();
        let mut keys = Interner::default();
        let mut places = Interner::default();
        let mut kinds = Interner::default();
        let mut units: Vec<BTreeSet<(Freshness, usize)>> = Vec::new();
        let mut shelf_of = vec![None; survey.units.len()];
        for (at, unit) in survey.units.iter().enumerate() {
            let known = match unit.condition {
                Condition::Free => Some((Freshness::Clean, true)),
                Condition::Dirty => Some((Freshness::Dirty, true)),
                Condition::Held(_) if unit.is_usable() => Some((Freshness::Released, false)),
                _ => None,
            };
            let Some((freshness, is_free)) = own(unit).or(known) else {
                continue;
            };
            let Some(key) = ShelfKey::of(unit) else { continue };
            let shelf = keys.number(key.clone());
            if shelf == met.len() {
                let kind = kinds.number(key.kind.clone());
                layout.kind_of.push(kind);
                layout.kinds.entry(key.kind.clone()).or_default().push(shelf);
                layout.shelves.push(Shelf {
                    memory: key.memory,
                    size: u32::try_from(key.size).unwrap_or(u32::MAX),
                    place: places.number(key.place.clone()),
                });
                units.push(BTreeSet::new());
                met.push(Met { key, sample: at });
            }
            shelf_of[at] = Some((shelf, freshness));
            if is_free {
                units[shelf].insert((freshness, at));
            }
        }
        layout.kind_count = layout.kinds.len();
        let graph = survey.world.snapshot.topology.switch_graph();
        layout.reach = sites.list.iter().map(|site| site.reach(&graph, &met)).collect();
        let uplinks: Vec<i64> = survey.load.uplinks.iter().map(|uplink| uplink.free()).collect();
        if !uplinks.is_empty() {
            let ports = hosts.iter().flat_map(|host| host.ports.iter().copied());
            let ports = layout.sites.iter().copied().zip(ports);
            layout.crossings = crossings(survey, ports, &met, sites.list.len());
        }
        let mut room = Room::new(Arc::new(layout), free, uplinks);
        for (shelf, freshness) in units
            .iter()
            .enumerate()
            .flat_map(|(shelf, units)| units.iter().map(move |(freshness, _)| (shelf, *freshness)))
        {
            room.stock(shelf, freshness, 1);
        }
        let ports = hosts.iter().enumerate().flat_map(|(host, at)| {
            let ports = at.ports.iter().enumerate();
            ports.map(move |(port, is)| (&is.id, (host, port)))
        });
        Self {
            room,
            port_at: ports.collect(),
            host_at: hosts.iter().enumerate().map(|(at, host)| (host.id, at)).collect(),
            host_ids: hosts,
            units,
            shelf_of,
        }
    }

    pub fn host_place(&self, id: &HostId) -> Option<usize> {
        self.host_at.get(id).copied()
    }

    pub fn host_id(&self, host: usize) -> &'a HostId {
        self.host_ids[host].id
    }

    pub fn ports_of(&self, host: usize) -> &[&'a HostPort] {
        &self.host_ids[host].ports
    }

    /// Chooses the taken units: their places in the survey, each with its port.
    pub fn name(&mut self, taken: &[Taken]) -> Vec<(usize, &'a HostPortId)> {
        let named = taken.iter().filter_map(|taken| {
            let units = &mut self.units[taken.shelf];
            let first = *units.range((taken.freshness, 0)..).next()?;
            units.remove(&first);
            Some((first.1, &self.host_ids[taken.host].ports[taken.port].id))
        });
        named.collect()
    }

    /// Chooses a unit that was taken.
    pub fn choose(&mut self, unit: usize) {
        if let Some((shelf, _)) = self.shelf_of[unit] {
            self.units[shelf].retain(|(_, other)| *other != unit);
        }
    }

    /// Units of a shelf that can be taken.
    pub fn free_units(&self, shelf: usize) -> impl Iterator<Item = usize> {
        self.units[shelf].iter().map(|(_, unit)| *unit)
    }

    /// Takes a choice back; the caller puts the units back.
    pub fn unname(&mut self, units: impl IntoIterator<Item = usize>) {
        for unit in units {
            if let Some((shelf, freshness)) = self.shelf_of[unit] {
                self.units[shelf].insert((freshness, unit));
            }
        }
    }

    /// Releases a held unit: frees its slots, its uplink capacity and, if it is reusable, the unit itself.
    pub fn release(&mut self, unit: usize, port: &HostPortId, (gpus, crossing): (u32, &Crossing)) {
        for (uplink, gpus) in crossing {
            self.room.uplinks[*uplink] += i64::from(*gpus);
        }
        if let Some((shelf, _)) = self.shelf_of[unit]
            && self.units[shelf].insert((Freshness::Released, unit))
        {
            self.room.stock(shelf, Freshness::Released, 1);
        }
        if let Some(at) = self.port_at.get(port).copied() {
            self.room.fill_port(at, -i64::from(gpus));
        }
    }

    /// Takes a release back, before anything else was taken.
    pub fn hold_again(&mut self, unit: usize, port: &HostPortId, (gpus, crossing): (u32, &Crossing)) {
        for (uplink, gpus) in crossing {
            self.room.uplinks[*uplink] -= i64::from(*gpus);
        }
        if let Some((shelf, _)) = self.shelf_of[unit]
            && self.units[shelf].remove(&(Freshness::Released, unit))
        {
            self.room.stock(shelf, Freshness::Released, -1);
        }
        if let Some(at) = self.port_at.get(port).copied() {
            self.room.fill_port(at, i64::from(gpus));
        }
    }

    /// Slots that are free at a port; `None` where nothing is given to its host.
    pub fn free_at(&self, port: &HostPortId) -> Option<i64> {
        let (host, port) = self.port_place(port)?;
        Some(self.room.port(host, port).free)
    }

    /// The host and port of a room.
    pub fn port_place(&self, port: &HostPortId) -> Option<(usize, usize)> {
        self.port_at.get(port).copied()
    }

    /// The shelf that a unit lies on, or would once it is released; `None` where it can't be given away.
    pub fn shelf_of(&self, unit: usize) -> Option<usize> {
        self.shelf_of[unit].map(|(shelf, _)| shelf)
    }
}

/// The uplinks that a unit of each shelf crosses at each site.
fn crossings<'p>(
    survey: &Survey<'_>,
    ports: impl Iterator<Item = (usize, &'p HostPort)>,
    shelves: &[Met<'_>],
    sites: usize,
) -> Vec<Vec<Crossing>> {
    let mut at_site: Vec<Option<&HostPort>> = vec![None; sites];
    for (site, port) in ports {
        at_site[site] = Some(port);
    }
    let at = |port: Option<&HostPort>| {
        let crossing = |shelf: &Met<'_>| {
            let gpus = survey.units[shelf.sample].gpus.iter().copied();
            port.map_or_else(Vec::new, |port| survey.load.crossing(gpus, port))
        };
        shelves.iter().map(crossing).collect()
    };
    at_site.into_iter().map(at).collect()
}

impl<'a> ShelfKey<'a> {
    fn of(unit: &UnitFacts<'a>) -> Option<Self> {
        let places = unit.gpus.iter().map(|gpu| {
            let mut at: Vec<_> = gpu
                .ports
                .iter()
                .map(|at| (&at.fabric, at.switch.as_ref()))
                .collect();
            at.sort_unstable();
            at.dedup();
            at
        });
        let mut counts: BTreeMap<Vec<_>, u32> = BTreeMap::new();
        places.for_each(|place| *counts.entry(place).or_default() += 1);
        Some(Self {
            kind: unit.kind.as_ref()?.to_string(),
            memory: unit.memory,
            size: unit.gpus.len(),
            spread: counts.values().copied().collect(),
            place: counts.into_keys().collect(),
            managers: unit
                .points
                .iter()
                .map(|point: &&ControlPoint| (&point.endpoint, point.style))
                .collect(),
        })
    }
}

impl<'a> Site<'a> {
    /// Where a port is; `None`: it can't be bound to.
    fn of(port: &PortFacts<'a>) -> Option<Self> {
        let point = way(port.port)?;
        Some(Self {
            fabric: &port.port.fabric,
            switch: port.port.switch.as_ref(),
            manager: (&point.endpoint, point.style),
        })
    }

    /// The shelves in reach, and how far each is; a unit is as far as its farthest GPU.
    fn reach(&self, graph: &SwitchGraph<'_>, shelves: &[Met<'_>]) -> Vec<(usize, u32)> {
        let distances = self.switch.map(|switch| graph.distances(self.fabric, switch));
        let to_switch = |switch: Option<&SwitchId>| match (&distances, switch) {
            (Some(distances), Some(switch)) => distances.get(switch).copied(),
            // A fabric whose switches are not shown counts as one switch.
            _ => Some(0),
        };
        let to_gpu = |at: &Vec<(&FabricId, Option<&SwitchId>)>| {
            let here = at.iter().filter(|(fabric, _)| *fabric == self.fabric);
            here.filter_map(|(_, switch)| to_switch(*switch)).min()
        };
        shelves
            .iter()
            .enumerate()
            .filter_map(|(at, shelf)| {
                let known = shelf.key.managers.contains(&self.manager);
                let far = shelf.key.place.iter().map(to_gpu).collect::<Option<Vec<_>>>();
                Some((at, far.filter(|_| known)?.into_iter().max()?))
            })
            .collect()
    }
}

/// Numbers things in the order in which they come, each once.
struct Interner<T> {
    list: Vec<T>,
    numbers: HashMap<T, usize>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            numbers: HashMap::new(),
        }
    }
}

impl<T: Clone + Eq + std::hash::Hash> Interner<T> {
    fn number(&mut self, thing: T) -> usize {
        let next = self.list.len();
        *self.numbers.entry(thing.clone()).or_insert_with(|| {
            self.list.push(thing);
            next
        })
    }
}
