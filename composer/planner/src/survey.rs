//! What the snapshot and the records say about every unit and host port, worked out once for a plan.

use crate::composition::{Composition, Held};
use crate::plan::{Deferral, World};
use crate::uplinks::Load;
use poolwright_model::composable::WhyNotKind;
use poolwright_model::control::{ControlPoint, ControlStyle};
use poolwright_model::id::{GpuId, HostId, HostPortId, UnitId};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::{Gpu, Health, Host, HostPort, PowerState};
use poolwright_model::units::Bytes;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// All units, hosts and ports, each list in the order of its ids.
pub(crate) struct Survey<'a> {
    pub world: World<'a>,
    pub units: Vec<UnitFacts<'a>>,
    pub hosts: Vec<HostFacts<'a>>,
    /// Of the whole pool, also where only a part is surveyed.
    pub load: Load<'a>,
    unit_at: HashMap<&'a UnitId, usize>,
    port_at: HashMap<&'a HostPortId, (usize, usize)>,
}

/// What attaches together, and whether it may be given away.
pub(crate) struct UnitFacts<'a> {
    pub id: &'a UnitId,
    /// In the order of their ids; never empty.
    pub gpus: Vec<&'a Gpu>,
    /// `None`: not known, or several kinds in one unit.
    pub kind: Option<Cow<'a, str>>,
    /// Of its smallest GPU.
    pub memory: Bytes,
    /// Where all its GPUs together are named at managers that can bind them.
    pub points: Vec<&'a ControlPoint>,
    pub condition: Condition,
    /// What its condition would be if nobody had it.
    pub by_itself: Condition,
}

/// Whether a unit may be given away; the first that applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    /// In the hands of a running operation.
    Reserved,
    /// In the composition of this place in [`World::held`].
    Held(usize),
    Foreign,
    /// Can't be moved at all.
    NotComposable,
    /// Nobody knows where it is, or an operator must look first.
    Unsettled,
    Unhealthy,
    /// It failed, and is out of use until it has been burnt in.
    Quarantined,
    Cordoned,
    /// Its GPUs have no common way to be bound, or are of several kinds.
    Unbindable,
    /// Free once it is reset.
    Dirty,
    Free,
}

pub(crate) struct HostFacts<'a> {
    pub host: &'a Host,
    /// Why it is given nothing.
    pub closed: Option<Closed>,
    /// In the order of their ids.
    pub ports: Vec<PortFacts<'a>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closed {
    Off,
    Cordoned,
    Unbindable,
    /// What is kept there for a tenant can't be let go of just now, so nothing else comes beside it.
    Keeps,
}

pub(crate) struct PortFacts<'a> {
    pub port: &'a HostPort,
    /// Slots that nothing is in or on its way to; negative where more is bound than the limit says.
    pub free: i64,
}

impl UnitFacts<'_> {
    /// Whether it can be given to somebody, at once or after it was released.
    pub fn is_usable(&self) -> bool {
        matches!(self.by_itself, Condition::Free | Condition::Dirty)
    }

    /// The same once an operation that moves it, or just did, has ended and was observed.
    pub fn is_usable_later(&self) -> bool {
        use GpuState as S;
        let is_moving = |gpu: &&Gpu| {
            let moves = matches!(gpu.state, S::Reserved | S::Binding | S::Draining | S::Unbinding);
            match why_not(gpu) {
                Some(why) => why == WhyNotKind::Disputed,
                None => moves || settled(gpu.state),
            }
        };
        self.is_usable() || (!self.points.is_empty() && self.gpus.iter().all(is_moving))
    }

    /// Whether it serves nobody, wherever it is: it failed, or nobody can say which GPU it is. What is told in two ways in
    /// one look (asked before and after it was bound, say) is not: who holds it keeps it.
    pub fn is_out_of_use(&self) -> bool {
        self.by_itself == Condition::Quarantined
    }
}

impl<'a> Survey<'a> {
    /// Of all that there is.
    pub fn of(world: &World<'a>) -> Self {
        Self::within(world, |_| true, |_| true)
    }

    /// Of these units and hosts alone, with all that takes slots there: what is asked for by name costs the same in a
    /// large pool.
    pub fn near<'n>(
        world: &World<'a>,
        named: impl IntoIterator<Item = &'n UnitId>,
        hosts: impl IntoIterator<Item = &'n HostId>,
    ) -> Self {
        let topology = &world.snapshot.topology;
        let hosts: HashSet<&HostId> = hosts.into_iter().collect();
        let there = topology.hosts.iter().filter(|there| hosts.contains(&there.id));
        let ports: BTreeSet<&HostPortId> = there.flat_map(|host| &host.ports).map(|port| &port.id).collect();
        let at_host = |gpu: &&Gpu| match &gpu.host_port {
            Some(port) => ports.contains(port),
            None => gpu.host.as_ref().is_some_and(|host| hosts.contains(host)),
        };
        let seen = topology.gpus.iter().filter(at_host).map(|gpu| &gpu.unit);
        let held = world.held.iter().flat_map(|c| &c.held);
        let held = held
            .filter(|held| ports.contains(&held.host_port))
            .map(|held| &held.unit);
        let brought = world.reserved.iter();
        let brought = brought.filter(|r| r.host_port.as_ref().is_some_and(|port| ports.contains(port)));
        let mut units: HashSet<&UnitId> = named.into_iter().collect();
        units.extend(seen.chain(held).chain(brought.map(|r| &r.unit)));
        Self::within(world, |unit| units.contains(unit), |host| hosts.contains(host))
    }

    fn within(
        world: &World<'a>,
        has_unit: impl Fn(&UnitId) -> bool,
        has_host: impl Fn(&HostId) -> bool,
    ) -> Self {
        let mut members: BTreeMap<&UnitId, Vec<&Gpu>> = BTreeMap::new();
        for gpu in world
            .snapshot
            .topology
            .gpus
            .iter()
            .filter(|gpu| has_unit(&gpu.unit))
        {
            members.entry(&gpu.unit).or_default().push(gpu);
        }
        let listed: HashMap<&UnitId, &[GpuId]> = world
            .snapshot
            .topology
            .units
            .iter()
            .filter(|unit| has_unit(&unit.id))
            .map(|unit| (&unit.id, unit.gpus.as_slice()))
            .collect();
        let held_in: HashMap<&UnitId, usize> = world
            .held
            .iter()
            .enumerate()
            .flat_map(|(place, c)| c.held.iter().map(move |held| (&held.unit, place)))
            .filter(|(unit, _)| has_unit(unit))
            .collect();
        let reserved = world.reserved.iter().map(|r| &r.unit);
        let reserved: HashSet<&UnitId> = reserved.filter(|unit| has_unit(unit)).collect();
        let units: Vec<UnitFacts<'a>> = members
            .into_iter()
            .map(|(id, mut gpus)| {
                gpus.sort_by(|a, b| a.id.cmp(&b.id));
                let whole = listed
                    .get(id)
                    .is_none_or(|all| all.iter().all(|id| gpus.iter().any(|gpu| gpu.id == *id)));
                let owner = held_in.get(id).copied();
                unit_facts(world, id, gpus, whole, owner, reserved.contains(id))
            })
            .collect();
        let unit_at = units.iter().enumerate().map(|(at, unit)| (unit.id, at)).collect();
        let hosts = host_facts(world, &units, &has_unit, has_host);
        let ports = hosts.iter().enumerate();
        let port_at = ports
            .flat_map(|(h, host)| {
                let ports = host.ports.iter().enumerate();
                ports.map(move |(p, facts)| (&facts.port.id, (h, p)))
            })
            .collect();
        let mut survey = Self {
            world: *world,
            units,
            hosts,
            load: Load::of(world),
            unit_at,
            port_at,
        };
        survey.close_what_keeps();
        survey
    }

    fn close_what_keeps(&mut self) {
        let kept = self.world.held.iter().filter(|c| c.kept.is_some());
        let stuck = kept.filter(|c| self.deferral(c).is_some());
        let hosts: HashSet<&HostId> = stuck.map(|c| &c.host).collect();
        for facts in &mut self.hosts {
            if facts.closed.is_none() && hosts.contains(&facts.host.id) {
                facts.closed = Some(Closed::Keeps);
            }
        }
    }

    pub fn unit(&self, id: &UnitId) -> Option<&UnitFacts<'a>> {
        self.unit_place(id).map(|at| &self.units[at])
    }

    pub fn unit_place(&self, id: &UnitId) -> Option<usize> {
        self.unit_at.get(id).copied()
    }

    pub fn host(&self, id: &HostId) -> Option<&HostFacts<'a>> {
        let at = self.hosts.binary_search_by(|facts| facts.host.id.cmp(id)).ok()?;
        self.hosts.get(at)
    }

    pub fn port(&self, id: &HostPortId) -> Option<&PortFacts<'a>> {
        let (host, port) = *self.port_at.get(id)?;
        Some(&self.hosts[host].ports[port])
    }

    /// Why a composition can't be taken down, or changed, just now.
    pub fn deferral(&self, composition: &Composition) -> Option<Deferral> {
        composition.held.iter().find_map(|held| self.deferral_of(held))
    }

    /// Why a unit that is held can't be released just now.
    pub fn deferral_of(&self, held: &Held) -> Option<Deferral> {
        let unit = held.unit.clone();
        if self.world.reserved.iter().any(|reserved| reserved.unit == unit) {
            return Some(Deferral::InOperation { unit });
        }
        let Some(facts) = self.unit(&unit) else {
            return Some(Deferral::NotSeen { unit });
        };
        facts.gpus.iter().find_map(|gpu| match &gpu.host_port {
            Some(seen) if *seen != held.host_port => Some(Deferral::Elsewhere {
                unit: unit.clone(),
                recorded: held.host_port.clone(),
                seen: seen.clone(),
            }),
            None if why_not(gpu) == Some(WhyNotKind::HostGone) => Some(Deferral::Unsettled {
                gpu: gpu.id.clone(),
                state: GpuState::Foreign,
            }),
            _ if settled(gpu.state) => None,
            _ => Some(Deferral::Unsettled {
                gpu: gpu.id.clone(),
                state: gpu.state,
            }),
        })
    }
}

/// What a GPU is, for the rule that a composition has one kind: its hardware profile, else what its maker
/// calls it, else its PCI ids.
pub(crate) fn kind_of(gpu: &Gpu) -> Option<Cow<'_, str>> {
    let named = gpu.profile.as_deref().or(gpu.model.as_deref());
    named.map(Cow::Borrowed).or_else(|| {
        let ids = gpu.pci_ids.as_ref()?;
        Some(Cow::Owned(format!("{}:{}", ids.vendor, ids.device)))
    })
}

/// States in which a GPU stays until an event from outside; the others belong to an operation or an operator.
fn settled(state: GpuState) -> bool {
    use GpuState as S;
    matches!(state, S::Free | S::Dirty | S::Bound | S::Attached | S::Foreign)
}

fn unit_facts<'a>(
    world: &World<'a>,
    id: &'a UnitId,
    gpus: Vec<&'a Gpu>,
    whole: bool,
    owner: Option<usize>,
    reserved: bool,
) -> UnitFacts<'a> {
    let kind = kind_of(gpus[0]).filter(|kind| gpus.iter().all(|gpu| kind_of(gpu).as_ref() == Some(kind)));
    let points = common_points(&gpus);
    let bindable = whole && kind.is_some() && !points.is_empty();
    let by_itself = by_itself(world, &gpus, bindable);
    let condition = match (reserved, owner, by_itself) {
        (true, _, _) => Condition::Reserved,
        (_, Some(owner), _) => Condition::Held(owner),
        (_, _, Condition::NotComposable | Condition::Unsettled) => by_itself,
        _ if gpus.iter().any(|gpu| somebody_has(gpu)) => Condition::Foreign,
        _ => by_itself,
    };
    UnitFacts {
        id,
        kind,
        memory: gpus
            .iter()
            .map(|gpu| gpu.memory_bytes.unwrap_or_default())
            .min()
            .unwrap_or_default(),
        points,
        condition,
        by_itself,
        gpus,
    }
}

fn somebody_has(gpu: &Gpu) -> bool {
    use GpuState as S;
    let foreign = why_not(gpu) == Some(WhyNotKind::Foreign);
    foreign || gpu.host.is_some() || gpu.host_port.is_some() || !matches!(gpu.state, S::Free | S::Dirty)
}

fn why_not(gpu: &Gpu) -> Option<WhyNotKind> {
    gpu.composability.0.as_ref().map(|why| why.kind)
}

/// The condition of a unit, whoever has it.
fn by_itself(world: &World<'_>, gpus: &[&Gpu], bindable: bool) -> Condition {
    let any = |test: &dyn Fn(&Gpu) -> bool| gpus.iter().any(|gpu| test(gpu));
    let because = |kind: WhyNotKind| any(&|gpu| why_not(gpu) == Some(kind));
    let fixed = |gpu: &Gpu| why_not(gpu).is_some_and(|why| why != WhyNotKind::Foreign);
    if because(WhyNotKind::Missing) || any(&|gpu| gpu.state == GpuState::Missing) {
        Condition::Unsettled
    } else if because(WhyNotKind::Unhealthy) {
        Condition::Unhealthy
    } else if because(WhyNotKind::Quarantined) {
        Condition::Quarantined
    } else if because(WhyNotKind::Cordoned) {
        Condition::Cordoned
    } else if any(&|gpu| fixed(gpu) || gpu.memory_bytes.is_none()) {
        Condition::NotComposable
    } else if any(&|gpu| !settled(gpu.state)) {
        Condition::Unsettled
    } else if any(&|gpu| gpu.health == Health::Critical) {
        Condition::Unhealthy
    } else if any(&|gpu| world.cordoned.gpus.contains(&gpu.id)) {
        Condition::Cordoned
    } else if !bindable {
        Condition::Unbindable
    } else if any(&|gpu| gpu.state == GpuState::Dirty) {
        Condition::Dirty
    } else {
        Condition::Free
    }
}

/// The control points that every GPU of the unit has: the manager binds them as one.
fn common_points<'a>(gpus: &[&'a Gpu]) -> Vec<&'a ControlPoint> {
    let Some((first, others)) = gpus.split_first() else {
        return Vec::new();
    };
    first
        .control
        .iter()
        .filter(|point| point.style != ControlStyle::ReadOnly)
        .filter(|point| others.iter().all(|gpu| gpu.control.contains(point)))
        .collect()
}

fn host_facts<'a>(
    world: &World<'a>,
    units: &[UnitFacts<'a>],
    has_unit: impl Fn(&UnitId) -> bool,
    has_host: impl Fn(&HostId) -> bool,
) -> Vec<HostFacts<'a>> {
    let taken = Taken::of(world, units, has_unit);
    let mut hosts: Vec<HostFacts<'a>> = world
        .snapshot
        .topology
        .hosts
        .iter()
        .filter(|host| has_host(&host.id))
        .map(|host| {
            let mut ports: Vec<_> = host
                .ports
                .iter()
                .map(|port| PortFacts {
                    port,
                    free: taken.free(host, port),
                })
                .collect();
            ports.sort_by(|a, b| a.port.id.cmp(&b.port.id));
            HostFacts {
                host,
                closed: closed(world, host),
                ports,
            }
        })
        .collect();
    hosts.sort_by(|a, b| a.host.id.cmp(&b.host.id));
    hosts
}

fn closed(world: &World<'_>, host: &Host) -> Option<Closed> {
    if world.cordoned.closes(&host.id) {
        Some(Closed::Cordoned)
    } else if !matches!(host.power_state, PowerState::On | PowerState::Unknown) {
        Some(Closed::Off)
    } else if !host.ports.iter().any(|port| way(port).is_some()) {
        Some(Closed::Unbindable)
    } else {
        None
    }
}

/// Where a host port is bound to, if it can be.
pub(crate) fn way(port: &HostPort) -> Option<&ControlPoint> {
    port.control
        .as_ref()
        .filter(|point| point.style != ControlStyle::ReadOnly)
}

/// Which units take slots at which ports: what is seen there, what is recorded there, and what a running
/// operation brings there. A unit counts once a port.
#[derive(Default)]
struct Taken<'a> {
    at_port: HashMap<&'a HostPortId, BTreeMap<&'a UnitId, i64>>,
    /// GPUs of a fabric that a host has by a port that nobody knows: they count at each of its ports there.
    on_host: HashMap<(&'a HostId, &'a str), i64>,
    /// Recorded at the port, but not seen bound there: what the host counts as free may still shrink by it.
    coming: HashMap<&'a HostPortId, BTreeSet<&'a UnitId>>,
}

impl<'a> Taken<'a> {
    fn of(world: &World<'a>, units: &[UnitFacts<'a>], has_unit: impl Fn(&UnitId) -> bool) -> Self {
        let mut taken = Self::default();
        for gpu in units.iter().flat_map(|unit| unit.gpus.iter().copied()) {
            match (&gpu.host_port, &gpu.host) {
                (Some(port), _) => {
                    let units = taken.at_port.entry(port).or_default();
                    *units.entry(&gpu.unit).or_default() += 1;
                }
                (None, Some(host)) => {
                    let fabrics: BTreeSet<&str> = gpu.ports.iter().map(|at| at.fabric.as_str()).collect();
                    for fabric in fabrics {
                        *taken.on_host.entry((host, fabric)).or_default() += 1;
                    }
                }
                (None, None) => {}
            }
        }
        let sizes: HashMap<&UnitId, i64> = units.iter().map(|u| (u.id, u.gpus.len() as i64)).collect();
        let recorded = world.held.iter().flat_map(|c| &c.held);
        let recorded = recorded.map(|held| (&held.host_port, &held.unit, i64::from(held.slots())));
        let underway = world.reserved.iter().filter_map(|r| {
            let size = sizes.get(&r.unit).copied().unwrap_or(1);
            Some((r.host_port.as_ref()?, &r.unit, size))
        });
        for (port, unit, size) in recorded.chain(underway).filter(|(_, unit, _)| has_unit(unit)) {
            let units = taken.at_port.entry(port).or_default();
            if units.insert(unit, size).is_none() {
                taken.coming.entry(port).or_default().insert(unit);
            }
        }
        taken
    }

    fn free(&self, host: &Host, port: &HostPort) -> i64 {
        let at_port = self.at_port.get(&port.id);
        let used: i64 = at_port.into_iter().flat_map(BTreeMap::values).sum();
        let somewhere = self.on_host.get(&(&host.id, port.fabric.as_str()));
        let slots = i64::from(port.slots) - used - somewhere.copied().unwrap_or_default();
        // Each GPU needs a bus number of its own. Room for its BARs depends on its firmware, so that
        // question is left to the host's preflight.
        let Some(buses) = port.free_buses else {
            return slots;
        };
        let coming = self.coming.get(&port.id).into_iter().flatten();
        let coming: i64 = coming.filter_map(|unit| at_port?.get(*unit)).sum();
        slots.min(i64::from(buses) - coming)
    }
}
