//! What is free just now, by kind and place: the ledger that placing draws from.
//!
//! Units that no plan needs to tell apart lie on one [`Shelf`], hosts that no plan needs to tell apart are
//! found under one likeness, and how far a port is from a shelf is worked out once for all ports of a
//! [`Site`]. So a search asks once for each sort of host and each shelf, and not for each host and GPU.

use crate::survey::{Condition, HostFacts, Survey, UnitFacts, way};
use crate::uplinks::Crossing;
use poolwright_model::control::{ControlPoint, ControlStyle};
use poolwright_model::id::{ControlEndpointId, FabricId, HostId, HostPortId, SwitchId};
use poolwright_model::topology::{HostPort, PowerState, SwitchGraph};
use poolwright_model::units::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap};

pub(crate) struct Capacity<'a> {
    /// Hosts that may be given GPUs, in the order of their ids.
    pub hosts: Vec<HostRoom<'a>>,
    pub shelves: Vec<Shelf<'a>>,
    /// The shelves of each kind.
    pub kinds: BTreeMap<String, Vec<usize>>,
    /// GPUs that may still be attached across each uplink; negative above its limit, empty without limits.
    pub uplinks: Vec<i64>,
    /// The uplinks that a unit of a shelf crosses at a site; empty without limits.
    crossings: Vec<Vec<Crossing>>,
    /// How many switch-to-switch cables lie between a site and a shelf; `None`: out of reach.
    hops: Vec<Vec<Option<u32>>>,
    alike: BTreeMap<Likeness, BTreeSet<usize>>,
    shelf_of: Vec<Option<usize>>,
    port_at: HashMap<&'a HostPortId, (usize, usize)>,
    host_at: HashMap<&'a HostId, usize>,
}

/// Free units that are all the same to a plan.
pub(crate) struct Shelf<'a> {
    pub memory: Bytes,
    /// GPUs in each unit.
    pub size: u32,
    /// Shelves with the same number sit on the same switch.
    pub place: usize,
    /// Clean ones first, then by id.
    units: BTreeSet<(Freshness, usize)>,
    key: ShelfKey<'a>,
    /// One of its units.
    sample: usize,
}

/// What has to be done before a unit can be bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Freshness {
    Clean,
    /// To be reset.
    Dirty,
    /// To be unbound and reset, in this plan.
    Released,
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

/// Where a host port is, as far as reach goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Site<'a> {
    fabric: &'a FabricId,
    switch: Option<&'a SwitchId>,
    manager: Manager<'a>,
}

pub(crate) struct HostRoom<'a> {
    pub id: &'a HostId,
    /// Nobody says that it is on.
    pub unsure: bool,
    /// Ports that can be bound to, in the order of their ids.
    pub ports: Vec<PortRoom<'a>>,
}

pub(crate) struct PortRoom<'a> {
    pub port: &'a HostPort,
    pub site: usize,
    pub free: i64,
}

/// Hosts that offer the same: the sites and free slots of their ports.
type Likeness = (bool, Vec<(usize, i64)>);

/// So many units of a shelf for a port of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pick {
    pub port: usize,
    pub shelf: usize,
    pub units: usize,
}

/// One unit that was taken, with what it takes to put it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    pub unit: usize,
    pub host: usize,
    pub port: usize,
    freshness: Freshness,
}

impl<'a> Capacity<'a> {
    pub fn of(survey: &Survey<'a>) -> Self {
        let mut sites = Interner::default();
        let open = survey.hosts.iter().filter(|host| host.closed.is_none());
        let hosts: Vec<HostRoom<'a>> = open.map(|facts| host_room(facts, &mut sites)).collect();
        let mut shelves: Vec<Shelf<'a>> = Vec::new();
        let mut keys = Interner::default();
        let mut places = Interner::default();
        let mut kinds: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        let mut shelf_of = vec![None; survey.units.len()];
        for (at, unit) in survey.units.iter().enumerate() {
            let freshness = match unit.condition {
                Condition::Free => Some(Freshness::Clean),
                Condition::Dirty => Some(Freshness::Dirty),
                Condition::Held(_) if unit.is_usable() => None,
                _ => continue,
            };
            let Some(key) = ShelfKey::of(unit) else { continue };
            let shelf = keys.number(key.clone());
            if shelf == shelves.len() {
                kinds.entry(key.kind.clone()).or_default().push(shelf);
                shelves.push(Shelf {
                    memory: key.memory,
                    size: u32::try_from(key.size).unwrap_or(u32::MAX),
                    place: places.number(key.place.clone()),
                    units: BTreeSet::new(),
                    key,
                    sample: at,
                });
            }
            shelf_of[at] = Some(shelf);
            if let Some(freshness) = freshness {
                shelves[shelf].units.insert((freshness, at));
            }
        }
        let graph = survey.world.snapshot.topology.switch_graph();
        let hops = sites
            .list
            .iter()
            .map(|site| site.hops(&graph, &shelves))
            .collect();
        let uplinks: Vec<i64> = survey.load.uplinks.iter().map(|uplink| uplink.free()).collect();
        let crossings = match uplinks.is_empty() {
            true => Vec::new(),
            false => crossings(survey, &hosts, &shelves, sites.list.len()),
        };
        let mut capacity = Self {
            port_at: HashMap::new(),
            host_at: hosts.iter().enumerate().map(|(at, host)| (host.id, at)).collect(),
            alike: BTreeMap::new(),
            hosts,
            shelves,
            kinds,
            uplinks,
            crossings,
            hops,
            shelf_of,
        };
        for host in 0..capacity.hosts.len() {
            for (at, room) in capacity.hosts[host].ports.iter().enumerate() {
                capacity.port_at.insert(&room.port.id, (host, at));
            }
            let likeness = capacity.hosts[host].likeness();
            capacity.alike.entry(likeness).or_default().insert(host);
        }
        capacity
    }

    /// One host of each sort: of those that offer the same, the one with the smallest id. Leaves some out.
    pub fn sorts_of_hosts<'s>(&'s self, but: &'s BTreeSet<usize>) -> impl Iterator<Item = usize> {
        let alike = self.alike.values();
        alike.filter_map(|hosts| hosts.iter().copied().find(|host| !but.contains(host)))
    }

    pub fn host_place(&self, id: &HostId) -> Option<usize> {
        self.host_at.get(id).copied()
    }

    /// Switch-to-switch cables between a port and a shelf; `None`: the shelf can't be bound to it.
    pub fn hops(&self, room: &PortRoom<'_>, shelf: usize) -> Option<u32> {
        self.hops[room.site][shelf]
    }

    /// In which uplinks a unit of a shelf counts at a port, with how many GPUs.
    pub fn crossing(&self, room: &PortRoom<'_>, shelf: usize) -> &[(usize, u32)] {
        let of_site = self.crossings.get(room.site);
        of_site.map_or(&[], |shelves| shelves[shelf].as_slice())
    }

    /// Takes units off the shelves and slots off the ports of a host. The picks are within what is free.
    pub fn take(&mut self, host: usize, picks: &[Pick]) -> Vec<Taken> {
        let mut taken = Vec::new();
        for pick in picks {
            let shelf = &mut self.shelves[pick.shelf];
            for _ in 0..pick.units {
                let Some((freshness, unit)) = shelf.units.pop_first() else {
                    break;
                };
                taken.push(Taken {
                    unit,
                    host,
                    port: pick.port,
                    freshness,
                });
            }
        }
        for unit in &taken {
            self.fill_port((unit.host, unit.port), i64::from(self.gpus_of(unit.unit)));
            self.cross(unit, -1);
        }
        taken
    }

    pub fn put_back(&mut self, taken: &[Taken]) {
        for back in taken {
            if let Some(shelf) = self.shelf_of[back.unit] {
                self.shelves[shelf].units.insert((back.freshness, back.unit));
            }
            self.fill_port((back.host, back.port), -i64::from(self.gpus_of(back.unit)));
            self.cross(back, 1);
        }
    }

    /// What a unit counts in uplinks is no longer free there, or is again.
    fn cross(&mut self, taken: &Taken, back: i64) {
        if let (Some(shelf), false) = (self.shelf_of[taken.unit], self.uplinks.is_empty()) {
            let site = self.hosts[taken.host].ports[taken.port].site;
            for (uplink, gpus) in &self.crossings[site][shelf] {
                self.uplinks[*uplink] += back * i64::from(*gpus);
            }
        }
    }

    /// Releases a held unit: frees its slots, its uplink capacity and, if it is reusable, the unit itself.
    pub fn release(&mut self, unit: usize, port: &HostPortId, (gpus, crossing): (u32, &Crossing)) {
        for (uplink, gpus) in crossing {
            self.uplinks[*uplink] += i64::from(*gpus);
        }
        if let Some(shelf) = self.shelf_of[unit] {
            self.shelves[shelf].units.insert((Freshness::Released, unit));
        }
        if let Some(at) = self.port_at.get(port).copied() {
            self.fill_port(at, -i64::from(gpus));
        }
    }

    /// Takes a release back, before anything else was taken.
    pub fn hold_again(&mut self, unit: usize, port: &HostPortId, (gpus, crossing): (u32, &Crossing)) {
        for (uplink, gpus) in crossing {
            self.uplinks[*uplink] -= i64::from(*gpus);
        }
        if let Some(shelf) = self.shelf_of[unit] {
            self.shelves[shelf].units.remove(&(Freshness::Released, unit));
        }
        if let Some(at) = self.port_at.get(port).copied() {
            self.fill_port(at, i64::from(gpus));
        }
    }

    /// Slots that are free at a port; `None` where nothing is given to its host.
    pub fn free_at(&self, port: &HostPortId) -> Option<i64> {
        let (host, port) = self.port_at.get(port).copied()?;
        Some(self.hosts[host].ports[port].free)
    }

    /// The shelf that a unit lies on, or would once it is released; `None` where it can't be given away.
    pub fn shelf_of(&self, unit: usize) -> Option<usize> {
        self.shelf_of[unit]
    }

    /// GPUs of a unit that can be given away.
    pub fn gpus_of(&self, unit: usize) -> u32 {
        self.shelf_of[unit].map_or(0, |shelf| self.shelves[shelf].size)
    }

    fn fill_port(&mut self, (host, port): (usize, usize), gpus: i64) {
        let old = self.hosts[host].likeness();
        self.hosts[host].ports[port].free -= gpus;
        let new = self.hosts[host].likeness();
        if let Some(hosts) = self.alike.get_mut(&old) {
            hosts.remove(&host);
            if hosts.is_empty() {
                self.alike.remove(&old);
            }
        }
        self.alike.entry(new).or_default().insert(host);
    }
}

impl Shelf<'_> {
    pub fn units_left(&self) -> usize {
        self.units.len()
    }

    pub fn gpus_left(&self) -> u32 {
        u32::try_from(self.units.len())
            .unwrap_or(u32::MAX)
            .saturating_mul(self.size)
    }
}

impl<'a> HostRoom<'a> {
    /// Free slots of all its ports.
    pub fn free(&self) -> i64 {
        self.ports.iter().map(|room| room.free.max(0)).sum()
    }

    fn likeness(&self) -> Likeness {
        let mut ports: Vec<_> = self.ports.iter().map(|room| (room.site, room.free)).collect();
        ports.sort_unstable();
        (self.unsure, ports)
    }
}

/// The uplinks that a unit of each shelf crosses at each site.
fn crossings(
    survey: &Survey<'_>,
    hosts: &[HostRoom<'_>],
    shelves: &[Shelf<'_>],
    sites: usize,
) -> Vec<Vec<Crossing>> {
    let mut ports: Vec<Option<&HostPort>> = vec![None; sites];
    for room in hosts.iter().flat_map(|host| &host.ports) {
        ports[room.site] = Some(room.port);
    }
    let at = |port: Option<&HostPort>| {
        let crossing = |shelf: &Shelf<'_>| {
            let gpus = survey.units[shelf.sample].gpus.iter().copied();
            port.map_or_else(Vec::new, |port| survey.load.crossing(gpus, port))
        };
        shelves.iter().map(crossing).collect()
    };
    ports.into_iter().map(at).collect()
}

fn host_room<'a>(facts: &HostFacts<'a>, sites: &mut Interner<Site<'a>>) -> HostRoom<'a> {
    let ports = facts.ports.iter().filter_map(|port| {
        let point = way(port.port)?;
        let site = Site {
            fabric: &port.port.fabric,
            switch: port.port.switch.as_ref(),
            manager: (&point.endpoint, point.style),
        };
        Some(PortRoom {
            port: port.port,
            site: sites.number(site),
            free: port.free,
        })
    });
    HostRoom {
        id: &facts.host.id,
        unsure: facts.host.power_state != PowerState::On,
        ports: ports.collect(),
    }
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

impl Site<'_> {
    /// How far each shelf is; a unit is as far as its farthest GPU.
    fn hops(&self, graph: &SwitchGraph<'_>, shelves: &[Shelf<'_>]) -> Vec<Option<u32>> {
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
            .map(|shelf| {
                let known = shelf.key.managers.contains(&self.manager);
                let far = shelf.key.place.iter().map(to_gpu).collect::<Option<Vec<_>>>();
                far.filter(|_| known)?.into_iter().max()
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
