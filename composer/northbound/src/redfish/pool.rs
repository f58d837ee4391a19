//! The pool as one answer sees it: the last look and the compositions that stand, with an index, so that what one
//! resource costs does not grow with the pool.

use super::names::Names;
use super::written::Kept;
use poolwright_model::id::{ChassisId, CompositionId, HostId, SwitchId, UnitId};
use poolwright_model::topology::{Fabric, Gpu, Host, Switch, Topology, Unit};
use poolwright_service::{Composer, Composition, ServiceError, Snapshot};
use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

/// What a box holds, by place in the lists of the look.
#[derive(Debug, Default)]
pub(crate) struct InChassis {
    pub gpus: Vec<usize>,
    pub switches: Vec<usize>,
}

/// The pool and its index. Immutable.
pub(crate) struct Pool {
    pub snapshot: Arc<Snapshot>,
    pub compositions: Arc<Vec<Composition>>,
    /// Hosts, then compositions: both are systems.
    pub systems: Names,
    index: Arc<Index>,
    held: HashMap<CompositionId, usize>,
    by_host: HashMap<HostId, Vec<usize>>,
    composition_of: HashMap<UnitId, usize>,
    compositions_at: HashMap<HostId, Vec<usize>>,
    /// What was asked for of it, as it is sent.
    pub kept: Kept,
}

/// What there is, whoever has it: the same for one pool after the other, for as long as nothing comes or goes.
pub(crate) struct Index {
    pub gpus: Names,
    /// Hosts, then units: both are resource blocks.
    pub blocks: Names,
    pub fabrics: Names,
    pub chassis: Names,
    /// In the order of their ids.
    pub in_chassis: Vec<InChassis>,
    /// Switches of each fabric, with the names of its own.
    pub switches: Vec<(Names, Vec<usize>)>,
    /// Endpoints of each fabric: host ports, then GPUs.
    pub endpoints: Vec<Endpoints>,
    hosts: HashMap<HostId, usize>,
    units: HashMap<UnitId, usize>,
}

impl Deref for Pool {
    type Target = Index;

    fn deref(&self) -> &Index {
        &self.index
    }
}

/// Endpoints of one fabric.
#[derive(Debug, Default)]
pub(crate) struct Endpoints {
    pub names: Names,
    pub of: Vec<EndpointOf>,
}

/// What a resource block is: what is composed as a whole.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Block<'p> {
    Host(&'p Host),
    Unit(&'p Unit),
}

/// What an endpoint stands for, by place in the lists of the look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndpointOf {
    /// A host and which of its ports.
    Port(usize, usize),
    Gpu(usize),
}

impl Index {
    fn new(topology: &Topology) -> Self {
        let (chassis, in_chassis) = chassis(topology);
        let switches = topology.fabrics.iter().map(|fabric| switches(topology, fabric));
        Self {
            gpus: Names::of(topology.gpus.iter().map(|gpu| gpu.id.as_str())),
            blocks: Names::of(
                (topology.hosts.iter().map(|host| host.id.as_str()))
                    .chain(topology.units.iter().map(|unit| unit.id.as_str())),
            ),
            hosts: (topology.hosts.iter().enumerate())
                .map(|(index, host)| (host.id.clone(), index))
                .collect(),
            units: (topology.units.iter().enumerate())
                .map(|(index, unit)| (unit.id.clone(), index))
                .collect(),
            fabrics: Names::of(topology.fabrics.iter().map(|fabric| fabric.id.as_str())),
            chassis,
            in_chassis,
            switches: switches.collect(),
            endpoints: endpoints(topology),
        }
    }
}

/// Whether two lists have the same things in the same order.
fn same<T>(one: &[T], other: &[T], is_same: impl Fn(&T, &T) -> bool) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| is_same(a, b))
}

/// Whether both have the same index: they differ at most in who has what, and how it is.
fn hold_the_same(one: &Topology, other: &Topology) -> bool {
    let ports = |one: &Host, other: &Host| {
        same(&one.ports, &other.ports, |a, b| {
            (&a.id, &a.fabric) == (&b.id, &b.fabric)
        })
    };
    same(&one.gpus, &other.gpus, |a, b| {
        (&a.id, &a.chassis, &a.ports) == (&b.id, &b.chassis, &b.ports)
    }) && one.units == other.units
        && same(&one.hosts, &other.hosts, |a, b| a.id == b.id && ports(a, b))
        && same(&one.fabrics, &other.fabrics, |a, b| a.id == b.id)
        && same(&one.switches, &other.switches, |a, b| {
            (&a.id, &a.fabric, &a.chassis) == (&b.id, &b.fabric, &b.chassis)
        })
}

impl Pool {
    /// `last` is the one before, whose index is taken over where it is the same.
    fn new(snapshot: Arc<Snapshot>, compositions: Arc<Vec<Composition>>, last: Option<&Pool>) -> Self {
        let topology = &snapshot.topology;
        let hosts = topology.hosts.iter().map(|host| host.id.as_str());
        let systems = Names::of(hosts.chain(compositions.iter().map(|one| one.id.as_str())));
        let mut by_host: HashMap<HostId, Vec<usize>> = HashMap::new();
        for (index, gpu) in topology.gpus.iter().enumerate() {
            if let Some(host) = &gpu.host {
                by_host.entry(host.clone()).or_default().push(index);
            }
        }
        let mut composition_of = HashMap::new();
        let mut compositions_at: HashMap<HostId, Vec<usize>> = HashMap::new();
        for (index, composition) in compositions.iter().enumerate() {
            compositions_at
                .entry(composition.host.clone())
                .or_default()
                .push(index);
            composition_of.extend(composition.held.iter().map(|held| (held.unit.clone(), index)));
        }
        let same = last.filter(|last| hold_the_same(last.topology(), topology));
        let index = match same {
            Some(last) => last.index.clone(),
            None => Arc::new(Index::new(topology)),
        };
        let mut pool = Self {
            systems,
            index,
            held: (compositions.iter().enumerate())
                .map(|(index, one)| (one.id.clone(), index))
                .collect(),
            by_host,
            composition_of,
            compositions_at,
            snapshot,
            compositions,
            kept: Kept::default(),
        };
        if let Some(last) = same {
            pool.kept = last.kept.carried(|place| match place {
                ["CompositionService", "ResourceBlocks", name] => pool.has_the_same_block(last, name),
                _ => false,
            });
        }
        pool
    }

    /// Whether all that a resource block tells is as it was in a pool with the same index: what it is, and which systems
    /// it is a part of. There are as many of them as GPUs and hosts, and a change concerns a few.
    fn has_the_same_block(&self, last: &Self, name: &str) -> bool {
        match (self.block(name), last.block(name)) {
            (Some(Block::Unit(now)), Some(Block::Unit(then))) => {
                let system = |pool: &Self| {
                    let holder = pool.holder(&now.id)?;
                    Some(pool.composed(&holder.id)?.to_owned())
                };
                now == then && self.unit_gpus(now).eq(last.unit_gpus(then)) && system(self) == system(last)
            }
            (Some(Block::Host(now)), Some(Block::Host(then))) => {
                let systems = |pool: &Self| -> Vec<String> {
                    let composed = pool.compositions_at(&now.id);
                    let composed = composed.filter_map(|one| pool.composed(&one.id));
                    composed
                        .chain(pool.system_of(&now.id))
                        .map(str::to_owned)
                        .collect()
                };
                now == then && systems(self) == systems(last)
            }
            _ => false,
        }
    }

    pub fn topology(&self) -> &Topology {
        &self.snapshot.topology
    }

    pub fn host(&self, name: &str) -> Option<&Host> {
        self.topology().hosts.get(self.systems.find(name)?)
    }

    pub fn composition(&self, name: &str) -> Option<&Composition> {
        let hosts = self.topology().hosts.len();
        self.compositions
            .get(self.systems.find(name)?.checked_sub(hosts)?)
    }

    pub fn gpu(&self, name: &str) -> Option<&Gpu> {
        self.topology().gpus.get(self.gpus.find(name)?)
    }

    /// The system that a host is.
    pub fn system_of(&self, host: &HostId) -> Option<&str> {
        self.systems.at(*self.hosts.get(host)?)
    }

    /// The system that a composition is.
    pub fn composed(&self, composition: &CompositionId) -> Option<&str> {
        self.systems
            .at(self.topology().hosts.len() + self.held.get(composition)?)
    }

    /// The resource block that a host is.
    pub fn host_block(&self, host: &HostId) -> Option<&str> {
        self.blocks.at(*self.hosts.get(host)?)
    }

    /// The resource block that a unit is.
    pub fn unit_block(&self, unit: &UnitId) -> Option<&str> {
        self.blocks
            .at(self.topology().hosts.len() + self.units.get(unit)?)
    }

    /// What a resource block is.
    pub fn block(&self, name: &str) -> Option<Block<'_>> {
        let index = self.blocks.find(name)?;
        let topology = self.topology();
        match index.checked_sub(topology.hosts.len()) {
            None => Some(Block::Host(topology.hosts.get(index)?)),
            Some(unit) => Some(Block::Unit(topology.units.get(unit)?)),
        }
    }

    pub fn unit_gpus<'a>(&'a self, unit: &'a Unit) -> impl Iterator<Item = &'a Gpu> {
        let gpus = &self.topology().gpus;
        unit.gpus
            .iter()
            .filter_map(|id| gpus.get(self.gpus.index(id.as_str())?))
    }

    /// GPUs that a host has, whoever bound them there.
    pub fn gpus_at<'a>(&'a self, host: &HostId) -> impl Iterator<Item = &'a Gpu> {
        let held = self.by_host.get(host).into_iter().flatten();
        held.filter_map(|index| self.topology().gpus.get(*index))
    }

    pub fn compositions_at<'a>(&'a self, host: &HostId) -> impl Iterator<Item = &'a Composition> {
        let held = self.compositions_at.get(host).into_iter().flatten();
        held.filter_map(|index| self.compositions.get(*index))
    }

    /// What holds a unit.
    pub fn holder(&self, unit: &UnitId) -> Option<&Composition> {
        self.compositions.get(*self.composition_of.get(unit)?)
    }

    pub fn fabric(&self, name: &str) -> Option<(usize, &Fabric)> {
        let index = self.fabrics.find(name)?;
        Some((index, self.topology().fabrics.get(index)?))
    }

    /// A switch of the fabric at this place in the list.
    pub fn switch(&self, fabric: usize, name: &str) -> Option<&Switch> {
        let (names, of) = self.switches.get(fabric)?;
        self.topology().switches.get(*of.get(names.find(name)?)?)
    }

    /// The name of a switch in its fabric.
    pub fn switch_name(&self, fabric: usize, switch: &SwitchId) -> Option<&str> {
        self.switches.get(fabric)?.0.name(switch.as_str())
    }

    pub fn chassis_name(&self, chassis: &ChassisId) -> Option<&str> {
        self.chassis.name(chassis.as_str())
    }
}

fn chassis(topology: &Topology) -> (Names, Vec<InChassis>) {
    let mut found: BTreeMap<&ChassisId, InChassis> = BTreeMap::new();
    for (index, gpu) in topology.gpus.iter().enumerate() {
        if let Some(chassis) = &gpu.chassis {
            found.entry(chassis).or_default().gpus.push(index);
        }
    }
    for (index, switch) in topology.switches.iter().enumerate() {
        if let Some(chassis) = &switch.chassis {
            found.entry(chassis).or_default().switches.push(index);
        }
    }
    let names = Names::of(found.keys().map(|id| id.as_str()));
    (names, found.into_values().collect())
}

fn switches(topology: &Topology, fabric: &Fabric) -> (Names, Vec<usize>) {
    let switches = topology.switches.iter().enumerate();
    let (of, ids): (Vec<usize>, Vec<&str>) = switches
        .filter(|(_, switch)| switch.fabric == fabric.id)
        .map(|(index, switch)| (index, switch.id.as_str()))
        .unzip();
    (Names::of(ids), of)
}

fn endpoints(topology: &Topology) -> Vec<Endpoints> {
    let place: HashMap<_, _> = (topology.fabrics.iter().enumerate())
        .map(|(index, fabric)| (&fabric.id, index))
        .collect();
    let mut found: Vec<Vec<(&str, EndpointOf)>> = vec![Vec::new(); topology.fabrics.len()];
    for (at, host) in topology.hosts.iter().enumerate() {
        for (index, port) in host.ports.iter().enumerate() {
            if let Some(fabric) = place.get(&port.fabric) {
                found[*fabric].push((port.id.as_str(), EndpointOf::Port(at, index)));
            }
        }
    }
    for (at, gpu) in topology.gpus.iter().enumerate() {
        let mut fabrics: Vec<usize> = gpu
            .ports
            .iter()
            .filter_map(|port| place.get(&port.fabric).copied())
            .collect();
        fabrics.sort_unstable();
        fabrics.dedup();
        for fabric in fabrics {
            found[fabric].push((gpu.id.as_str(), EndpointOf::Gpu(at)));
        }
    }
    let named = |of: Vec<(&str, EndpointOf)>| Endpoints {
        names: Names::of(of.iter().map(|(id, _)| *id)),
        of: of.into_iter().map(|(_, of)| of).collect(),
    };
    found.into_iter().map(named).collect()
}

/// The last pool that was asked for; it is indexed anew only where something changed.
#[derive(Default)]
pub(crate) struct Indexed(Mutex<Option<Arc<Pool>>>);

impl Indexed {
    pub async fn pool(&self, composer: &Composer) -> Result<Arc<Pool>, ServiceError> {
        let snapshot = composer.snapshot().await?;
        let compositions = composer.held().await?;
        let last = self.lock().clone();
        let same = |last: &Arc<Pool>| {
            Arc::ptr_eq(&last.snapshot, &snapshot) && Arc::ptr_eq(&last.compositions, &compositions)
        };
        if let Some(last) = last.clone().filter(same) {
            return Ok(last);
        }
        let pool = Arc::new(Pool::new(snapshot, compositions, last.as_deref()));
        *self.lock() = Some(pool.clone());
        Ok(pool)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<Pool>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redfish::composition::Aside;
    use crate::redfish::written::{Form, Written};
    use poolwright_model::lifecycle::GpuState;
    use serde_json::json;

    fn snapshot(state: GpuState, gpus: &[&str]) -> Arc<Snapshot> {
        let gpu = |id: &&str| {
            json!({
                "id": id, "vendor": null, "model": null, "memory_bytes": null, "uuid": null, "serial": null,
                "pci_ids": null, "chassis": "box-1", "slot": null, "functions": [], "partitions": [], "ports": [],
                "unit": id, "composable": true, "why_not": null, "host": null, "host_port": null, "state": state,
                "health": "ok", "control": [],
            })
        };
        let gpus: Vec<_> = gpus.iter().map(gpu).collect();
        let snapshot = json!({
            "taken_at": "2026-01-01T00:00:00Z", "gpus": gpus, "hosts": [], "fabrics": [], "faults": [], "requests": 0,
            "elapsed_ms": 0,
        });
        Arc::new(serde_json::from_value(snapshot).unwrap())
    }

    #[test]
    fn what_is_there_is_indexed_again_only_when_something_comes_or_goes() {
        let pool = |state, gpus: &[&str], last| Pool::new(snapshot(state, gpus), Arc::default(), last);
        let first = pool(GpuState::Free, &["a", "b"], None);
        let bound = pool(GpuState::Bound, &["a", "b"], Some(&first));
        assert!(Arc::ptr_eq(&first.index, &bound.index), "only its state differs");
        assert_eq!(bound.gpu("a").unwrap().state, GpuState::Bound);
        let other = pool(GpuState::Bound, &["a", "c"], Some(&bound));
        assert!(!Arc::ptr_eq(&other.index, &bound.index));
        assert!(other.gpu("b").is_none() && other.gpu("c").is_some());
    }

    /// The states of the GPUs, which of them each composition holds, and the blocks that are otherwise than before.
    type Step = (
        [&'static str; 3],
        &'static [(&'static str, &'static str)],
        &'static [&'static str],
    );

    const BLOCKS: [&str; 4] = ["h", "a", "b", "c"];

    /// A host and three GPUs in these states, and which of them each composition holds.
    fn composed(states: [&str; 3], compositions: &[(&str, &str)]) -> (Arc<Snapshot>, Arc<Vec<Composition>>) {
        let mut shown = serde_json::to_value(&*snapshot(GpuState::Free, &["a", "b", "c"])).unwrap();
        for (gpu, state) in states.iter().enumerate() {
            shown["gpus"][gpu]["state"] = json!(state);
        }
        shown["hosts"] = json!([{"id": "h", "name": "h", "power_state": "on", "ports": []}]);
        shown["units"] = json!(["a", "b", "c"].map(|unit| json!({"id": unit, "gpus": [unit]})));
        let at = json!({"endpoint": "box-1", "style": "zones", "address": "/somewhere"});
        let held = |(id, unit): &(&str, &str)| {
            let held = json!({"unit": unit, "gpus": [unit], "host_port": "p", "unit_at": at, "port_at": at});
            json!({
                "id": id, "demand": null, "tenant": "t", "host": "h", "held": [held], "part": 1, "parts": 1, "label": "",
            })
        };
        let held: Vec<_> = compositions.iter().map(held).collect();
        (
            Arc::new(serde_json::from_value(shown).unwrap()),
            Arc::new(serde_json::from_value(json!(held)).unwrap()),
        )
    }

    fn written(pool: &Pool, name: &str) -> Arc<Written> {
        let place = ["CompositionService", "ResourceBlocks", name];
        let make = || {
            let block = crate::redfish::composition::block(pool, name, &Aside::default()).unwrap();
            Ok(Some(Written::of(&block)?))
        };
        pool.kept.get(&place, make).ok().unwrap().unwrap()
    }

    /// Of one pool after the other each block is as if it were written anew; what nothing happened to is not written again.
    #[test]
    fn blocks_that_nothing_happened_to_are_not_written_again() {
        let free = ["free", "free", "free"];
        let story: [Step; 6] = [
            (free, &[], &[]),
            (["bound", "free", "free"], &[], &["a"]),
            (["bound", "free", "free"], &[("one", "a")], &["h", "a"]),
            (
                ["bound", "bound", "free"],
                &[("one", "a"), ("two", "b")],
                &["h", "b"],
            ),
            (
                ["bound", "bound", "free"],
                &[("three", "a"), ("two", "b")],
                &["h", "a"],
            ),
            (free, &[], &["h", "a", "b"]),
        ];
        let mut last: Option<Pool> = None;
        for (states, compositions, changed) in story {
            let (snapshot, compositions) = composed(states, compositions);
            let pool = Pool::new(snapshot.clone(), compositions.clone(), last.as_ref());
            let anew = Pool::new(snapshot, compositions, None);
            for name in BLOCKS {
                let now = written(&pool, name);
                assert_eq!(now.bytes, written(&anew, name).bytes, "{name} in {states:?}");
                if let Some(last) = &last {
                    let is_the_same = Arc::ptr_eq(&now, &written(last, name));
                    assert_eq!(is_the_same, !changed.contains(&name), "{name} in {states:?}");
                }
            }
            last = Some(pool);
        }
    }
}
