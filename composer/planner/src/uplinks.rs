//! Uplinks of switches: the operator's limit of GPUs attached across those of each switch at a time, and their current
//! number.
//!
//! A GPU that is attached to a host port at another switch than its own counts in the uplinks of both switches, while
//! it is attached or being attached, by Poolwright or not. A GPU at several switches of the port's fabric counts at the
//! nearest of them, and among equally near ones at the first by name. A fabric that does not show its switches counts
//! as one switch. Without a limit, nothing is counted.

use crate::composition::Held;
use crate::plan::{Plan, World};
use poolwright_model::id::{FabricId, GpuId, HostId, HostPortId, SwitchId, UnitId};
use poolwright_model::topology::{Gpu, HostPort, SwitchGraph, Topology};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

/// GPUs that may be attached across the uplinks of switches at a time; any number where a switch is not named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uplinks {
    pub most: BTreeMap<(FabricId, SwitchId), u32>,
}

/// Uplinks that would carry more than they may.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FullUplink {
    pub fabric: FabricId,
    pub switch: SwitchId,
    /// GPUs that may be attached across them.
    pub most: u32,
    /// GPUs that are, or are on their way.
    pub carried: u32,
    /// GPUs that it would be.
    pub needed: u32,
}

impl FullUplink {
    /// The command that raises the limit to the needed number.
    pub fn to_raise(&self) -> String {
        let Self {
            fabric,
            switch,
            needed,
            ..
        } = self;
        format!("poolwright uplink set {fabric}/{switch} --gpus {needed}")
    }
}

impl fmt::Display for FullUplink {
    /// Such as `the uplinks of switch box-1/s2 may carry 8 GPUs and carry 6: with these it would be 10`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            fabric,
            switch,
            most,
            carried,
            needed,
        } = self;
        let gpus = if *most == 1 { "GPU" } else { "GPUs" };
        write!(
            f,
            "the uplinks of switch {fabric}/{switch} may carry {most} {gpus} and carry {carried}: with these it would be \
             {needed}"
        )
    }
}

impl std::error::Error for FullUplink {}

/// Uplinks with a capacity that a plan attaches GPUs across.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crossed {
    pub fabric: FabricId,
    pub switch: SwitchId,
    pub most: u32,
    pub before: u32,
    /// Once the plan is done.
    pub after: u32,
}

impl Crossed {
    /// Where it would be more than may be. What carries too much already, as its capacity was lowered, gets no more.
    pub fn full(&self) -> Option<FullUplink> {
        (self.after > self.most && self.after > self.before).then(|| FullUplink {
            fabric: self.fabric.clone(),
            switch: self.switch.clone(),
            most: self.most,
            carried: self.before,
            needed: self.after,
        })
    }
}

/// How many GPUs are attached across the uplinks of each switch that the world knows a capacity of, or are on their
/// way.
pub fn carried(world: &World<'_>) -> BTreeMap<(FabricId, SwitchId), u32> {
    let uplinks = Load::of(world).uplinks.into_iter();
    let counts = uplinks.map(|uplink| ((uplink.fabric.clone(), uplink.switch.clone()), uplink.carried));
    counts.collect()
}

/// What a plan makes of the uplinks that it attaches GPUs across.
pub fn crossed(plan: &Plan, world: &World<'_>) -> Vec<Crossed> {
    let load = Load::of(world);
    if load.uplinks.is_empty() {
        return Vec::new();
    }
    let mut changes: BTreeMap<usize, (i64, bool)> = BTreeMap::new();
    let going = plan.releases.iter().flat_map(|c| &c.held);
    let gone: HashSet<(&UnitId, &HostPortId)> =
        going.clone().map(|held| (&held.unit, &held.host_port)).collect();
    for (uplink, gpus) in going.flat_map(|held| load.crossing_of(held)) {
        changes.entry(uplink).or_default().0 -= i64::from(gpus);
    }
    let coming = plan.composes.iter().flat_map(|c| &c.held);
    // `carried` already includes a unit that is there and stays.
    let coming = coming.filter(|held| gone.contains(&(&held.unit, &held.host_port)) || !load.is_there(held));
    for (uplink, gpus) in coming.flat_map(|held| load.crossing_of(held)) {
        let (change, comes) = changes.entry(uplink).or_default();
        *change += i64::from(gpus);
        *comes = true;
    }
    let crossed = changes.into_iter().filter(|(_, (_, comes))| *comes);
    crossed
        .map(|(at, (change, _))| {
            let uplink = &load.uplinks[at];
            let after = (i64::from(uplink.carried) + change).max(0);
            Crossed {
                fabric: uplink.fabric.clone(),
                switch: uplink.switch.clone(),
                most: uplink.most,
                before: uplink.carried,
                after: u32::try_from(after).unwrap_or(u32::MAX),
            }
        })
        .collect()
}

/// Uplinks by their places in [`Load::uplinks`], each with how many GPUs count there.
pub(crate) type Crossing = Vec<(usize, u32)>;

/// What uplinks with a capacity carry.
pub(crate) struct Load<'a> {
    pub uplinks: Vec<Uplink<'a>>,
    at: HashMap<Switch<'a>, usize>,
    gpus: HashMap<&'a GpuId, &'a Gpu>,
    ports: HashMap<&'a HostPortId, &'a HostPort>,
    /// GPUs that are recorded or being attached at ports, and not observed as bound to them.
    coming: HashSet<(&'a GpuId, &'a HostPortId)>,
    /// How far switches are from those of host ports, where GPUs hang on several.
    distances: HashMap<Switch<'a>, BTreeMap<SwitchId, u32>>,
}

type Switch<'a> = (&'a FabricId, &'a SwitchId);

pub(crate) struct Uplink<'a> {
    pub fabric: &'a FabricId,
    pub switch: &'a SwitchId,
    pub most: u32,
    pub carried: u32,
}

impl Uplink<'_> {
    /// GPUs that may still be attached across them; negative where more are than may be.
    pub fn free(&self) -> i64 {
        i64::from(self.most) - i64::from(self.carried)
    }

    /// This uplink, as full for a total of `needed` GPUs.
    pub fn needing(&self, needed: u32) -> FullUplink {
        FullUplink {
            fabric: self.fabric.clone(),
            switch: self.switch.clone(),
            most: self.most,
            carried: self.carried,
            needed,
        }
    }
}

impl<'a> Load<'a> {
    pub fn of(world: &World<'a>) -> Self {
        let mut load = Self {
            uplinks: Vec::new(),
            at: HashMap::new(),
            gpus: HashMap::new(),
            ports: HashMap::new(),
            coming: HashSet::new(),
            distances: HashMap::new(),
        };
        if world.uplinks.most.is_empty() {
            return load;
        }
        for ((fabric, switch), most) in &world.uplinks.most {
            load.at.insert((fabric, switch), load.uplinks.len());
            load.uplinks.push(Uplink {
                fabric,
                switch,
                most: *most,
                carried: 0,
            });
        }
        let topology = &world.snapshot.topology;
        load.gpus = topology.gpus.iter().map(|gpu| (&gpu.id, gpu)).collect();
        let ports = topology.hosts.iter().flat_map(|host| &host.ports);
        load.ports = ports.map(|port| (&port.id, port)).collect();
        let fabrics: BTreeSet<&FabricId> = world.uplinks.most.keys().map(|(fabric, _)| fabric).collect();
        let is_several = |fabric: &&FabricId| topology.gpus.iter().any(|gpu| hangs_on_several(gpu, fabric));
        let fabrics: BTreeSet<&FabricId> = fabrics.into_iter().filter(is_several).collect();
        load.distances = distances(topology, &fabrics);
        load.count(world);
        load
    }

    fn count(&mut self, world: &World<'a>) {
        let topology = &world.snapshot.topology;
        let hosts: HashMap<&HostId, &Vec<HostPort>> = topology
            .hosts
            .iter()
            .map(|host| (&host.id, &host.ports))
            .collect();
        for gpu in &topology.gpus {
            let crossing = match (&gpu.host_port, &gpu.host) {
                (Some(port), _) => self.ports.get(port).map(|port| self.crossing([gpu], port)),
                // The port is unknown: assume the one at which the GPU crosses the fewest uplinks.
                (None, Some(host)) => {
                    let ports = hosts.get(host).into_iter().flat_map(|ports| ports.iter());
                    let ports = ports.filter(|port| gpu.ports.iter().any(|at| at.fabric == port.fabric));
                    let crossings = ports.map(|port| (self.crossing([gpu], port), &port.id));
                    let least = crossings.min_by_key(|(crossing, port)| (crossing.len(), *port));
                    least.map(|(crossing, _)| crossing)
                }
                (None, None) => None,
            };
            self.add(crossing.unwrap_or_default());
        }
        let recorded = world.held.iter().flat_map(|c| &c.held);
        for held in recorded {
            for gpu in &held.gpus {
                self.comes(gpu, &held.host_port);
            }
        }
        let underway: HashMap<&UnitId, &HostPortId> = world
            .reserved
            .iter()
            .filter_map(|reserved| Some((&reserved.unit, reserved.host_port.as_ref()?)))
            .collect();
        for gpu in topology.gpus.iter().filter(|_| !underway.is_empty()) {
            if let Some(port) = underway.get(&gpu.unit) {
                self.comes(&gpu.id, port);
            }
        }
    }

    /// Counts a GPU at a port where it is not seen bound.
    fn comes(&mut self, gpu: &'a GpuId, port: &'a HostPortId) {
        let Some((known, at)) = self.gpus.get(gpu).zip(self.ports.get(port)) else {
            return;
        };
        if known.host_port.as_ref() != Some(port) && self.coming.insert((gpu, port)) {
            let crossing = self.crossing([*known], at);
            self.add(crossing);
        }
    }

    fn add(&mut self, crossing: Crossing) {
        for (uplink, gpus) in crossing {
            self.uplinks[uplink].carried += gpus;
        }
    }

    /// In which uplinks with a capacity these GPUs count at a port.
    pub fn crossing<'g>(&self, gpus: impl IntoIterator<Item = &'g Gpu>, port: &HostPort) -> Crossing {
        let mut crossing: Crossing = Vec::new();
        let Some(here) = port.switch.as_ref().filter(|_| !self.uplinks.is_empty()) else {
            return crossing;
        };
        let mut count = |switch: &SwitchId| {
            if let Some(uplink) = self.at.get(&(&port.fabric, switch)) {
                match crossing.iter_mut().find(|(known, _)| known == uplink) {
                    Some((_, gpus)) => *gpus += 1,
                    None => crossing.push((*uplink, 1)),
                }
            }
        };
        for there in gpus.into_iter().filter_map(|gpu| self.far_end(gpu, port, here)) {
            count(here);
            count(there);
        }
        crossing
    }

    /// The uplinks of a port's switch, if they have a capacity.
    pub fn of_port(&self, port: &HostPort) -> Option<&Uplink<'a>> {
        let at = self.at.get(&(&port.fabric, port.switch.as_ref()?))?;
        Some(&self.uplinks[*at])
    }

    /// The uplinks that a held unit crosses at its port; GPUs and ports that are not observed count in none.
    pub fn crossing_of(&self, held: &Held) -> Crossing {
        let Some(port) = self.ports.get(&held.host_port) else {
            return Vec::new();
        };
        let gpus = held.gpus.iter().filter_map(|gpu| self.gpus.get(gpu).copied());
        self.crossing(gpus, port)
    }

    /// Whether a unit is counted at its port.
    fn is_there(&self, held: &Held) -> bool {
        let is_seen = |gpu: &GpuId| {
            let known = self.gpus.get(gpu);
            known.is_some_and(|gpu| gpu.host_port.as_ref() == Some(&held.host_port))
        };
        let mut gpus = held.gpus.iter();
        gpus.all(|gpu| is_seen(gpu) || self.coming.contains(&(gpu, &held.host_port)))
    }

    /// The switch of a GPU, where a port at another one is bound to it.
    fn far_end<'g>(&self, gpu: &'g Gpu, port: &HostPort, here: &SwitchId) -> Option<&'g SwitchId> {
        let mut nearest: Option<(u32, &SwitchId)> = None;
        for at in gpu.ports.iter().filter(|at| at.fabric == port.fabric) {
            let there = at.switch.as_ref().filter(|there| *there != here)?;
            let far = self.distances.get(&(&port.fabric, here));
            let hops = far.map_or(0, |far| far.get(there).copied().unwrap_or(u32::MAX));
            if nearest.is_none_or(|nearest| (hops, there) < nearest) {
                nearest = Some((hops, there));
            }
        }
        nearest.map(|(_, there)| there)
    }
}

fn hangs_on_several(gpu: &Gpu, fabric: &FabricId) -> bool {
    gpu.ports.iter().filter(|at| at.fabric == *fabric).count() > 1
}

/// The distances between switches of these fabrics, from those with host ports.
fn distances<'t>(
    topology: &'t Topology,
    fabrics: &BTreeSet<&FabricId>,
) -> HashMap<Switch<'t>, BTreeMap<SwitchId, u32>> {
    if fabrics.is_empty() {
        return HashMap::new();
    }
    let graph: SwitchGraph<'_> = topology.switch_graph();
    let ports = topology.hosts.iter().flat_map(|host| &host.ports);
    let switches: HashSet<Switch<'_>> = ports
        .filter(|port| fabrics.contains(&port.fabric))
        .filter_map(|port| Some((&port.fabric, port.switch.as_ref()?)))
        .collect();
    let far = |(fabric, from)| {
        let far = graph.distances(fabric, from).into_iter();
        far.map(|(to, hops)| (to.clone(), hops)).collect()
    };
    switches.into_iter().map(|from| (from, far(from))).collect()
}
