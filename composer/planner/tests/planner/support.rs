//! A small rack for tests, and one way to plan on it that checks everything each time.

use jiff::Timestamp;
use poolwright_inventory::Snapshot;
use poolwright_model::composable::Composability;
use poolwright_model::control::{ControlPoint, ControlStyle};
use poolwright_model::id::*;
use poolwright_model::lifecycle::GpuState;
use poolwright_model::step::{Step, Verb};
use poolwright_model::topology::*;
use poolwright_model::units::{Bytes, LinkWidth};
use poolwright_planner::*;
use poolwright_sizing::need::{GpuSet, Need};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone)]
pub struct Rack {
    pub snapshot: Snapshot,
    pub held: Vec<Composition>,
    pub reserved: Vec<Reserved>,
    pub demands: Vec<Demand>,
    pub cordoned: Cordoned,
    pub promises: Promises,
    pub uplinks: Uplinks,
    plans: u32,
}

pub fn gib(gib: f64) -> Bytes {
    Bytes::from_gib(gib)
}

impl Rack {
    pub fn new() -> Self {
        Self {
            snapshot: Snapshot {
                taken_at: Timestamp::UNIX_EPOCH,
                topology: Topology::default(),
                endpoints: vec![],
                faults: vec![],
                requests: 0,
                elapsed_ms: 0,
                contested: false,
            },
            held: vec![],
            reserved: vec![],
            demands: vec![],
            cordoned: Cordoned::default(),
            promises: Promises::default(),
            uplinks: Uplinks::default(),
            plans: 0,
        }
    }

    pub fn topology(&mut self) -> &mut Topology {
        &mut self.snapshot.topology
    }

    /// So many GPUs of a kind on a switch; `at` is `fabric/switch`. The fabric's manager has its name.
    pub fn gpus(mut self, at: &str, kind: &str, memory_gib: f64, count: usize) -> Self {
        for _ in 0..count {
            self.gpu(at, kind, memory_gib);
        }
        self
    }

    /// Adds one GPU and names it `g001`, `g002`, ….
    pub fn gpu(&mut self, at: &str, kind: &str, memory_gib: f64) -> GpuId {
        let (fabric, switch) = at.split_once('/').unwrap();
        let id = GpuId::new(format!("g{:03}", self.snapshot.topology.gpus.len() + 1)).unwrap();
        let unit = UnitId::new(id.as_str()).unwrap();
        self.topology().units.push(Unit {
            id: unit.clone(),
            gpus: vec![id.clone()],
        });
        self.topology().gpus.push(Gpu {
            id: id.clone(),
            vendor: None,
            model: None,
            memory_bytes: Some(gib(memory_gib)),
            uuid: Some(format!("GPU-{id}")),
            serial: Some(format!("serial-{id}")),
            pcie_serial: None,
            pci_ids: None,
            profile: Some(kind.into()),
            chassis: None,
            slot: None,
            functions: vec![],
            partitions: vec![],
            ports: vec![FabricPort {
                fabric: FabricId::new(fabric).unwrap(),
                switch: Some(SwitchId::new(switch).unwrap()),
                port: None,
            }],
            unit,
            composability: Composability::YES,
            host: None,
            host_port: None,
            state: GpuState::Free,
            health: Health::Ok,
            firmware: None,
            locator: None,
            link: LinkWidth::default(),
            control: vec![point(fabric, id.as_str())],
            seen_by: BTreeSet::new(),
        });
        id
    }

    /// Makes one unit of GPUs that were added one by one, numbered from 1.
    pub fn solder(mut self, numbers: std::ops::RangeInclusive<usize>) -> Self {
        let gpus = numbers.map(|n| n - 1).collect::<Vec<_>>();
        let unit = UnitId::new(format!("board-{}", gpus[0] + 1)).unwrap();
        let ids: Vec<GpuId> = gpus
            .iter()
            .map(|at| self.snapshot.topology.gpus[*at].id.clone())
            .collect();
        for at in gpus {
            let gpu = &mut self.snapshot.topology.gpus[at];
            let fabric = gpu.ports[0].fabric.clone();
            gpu.control = vec![point(fabric.as_str(), unit.as_str())];
            gpu.unit = unit.clone();
        }
        self.topology().units.retain(|unit| !ids.contains(&unit.gpus[0]));
        self.topology().units.push(Unit { id: unit, gpus: ids });
        self
    }

    /// A host with one port; `at` is `fabric/switch`.
    pub fn host(self, name: &str, at: &str, slots: u32) -> Self {
        self.host_with(name, &[(at, slots)])
    }

    pub fn host_with(mut self, name: &str, ports: &[(&str, u32)]) -> Self {
        let port = |(number, (at, slots)): (usize, &(&str, u32))| {
            let (fabric, switch) = at.split_once('/').unwrap();
            let id = format!("{name}/p{number}");
            HostPort {
                id: HostPortId::new(&id).unwrap(),
                fabric: FabricId::new(fabric).unwrap(),
                switch: Some(SwitchId::new(switch).unwrap()),
                port: None,
                uuid: None,
                slot: None,
                slots: *slots,
                slots_known: true,
                free_window_bytes: None,
                free_buses: None,
                link: LinkWidth::default(),
                control: Some(point(fabric, &id)),
            }
        };
        let host = Host {
            id: HostId::new(name).unwrap(),
            name: name.into(),
            power_state: PowerState::On,
            power_restore_policy: None,
            ports: ports.iter().enumerate().map(port).collect(),
            uuid: None,
            serial: None,
            model: None,
            bmc: None,
            seen_by: BTreeSet::new(),
        };
        self.topology().hosts.push(host);
        self
    }

    pub fn cable(mut self, fabric: &str, a: &str, b: &str) -> Self {
        let end = |switch| (SwitchId::new(switch).unwrap(), None);
        self.topology().links.push(Link {
            fabric: FabricId::new(fabric).unwrap(),
            a: end(a),
            b: end(b),
        });
        self
    }

    /// Limits the GPUs attached across the uplinks of a switch; `at` is `fabric/switch`.
    pub fn uplink(mut self, at: &str, gpus: u32) -> Self {
        self.uplinks.most.insert(switch_at(at), gpus);
        self
    }

    /// GPUs that are bound across the uplinks of each switch that is named, and nothing else: as the hardware has it.
    pub fn across(&self) -> BTreeMap<&(FabricId, SwitchId), u32> {
        let mut across: BTreeMap<_, u32> = self.uplinks.most.keys().map(|uplink| (uplink, 0)).collect();
        if across.is_empty() {
            return across;
        }
        let Topology { gpus, hosts, .. } = &self.snapshot.topology;
        let ports = hosts.iter().flat_map(|host| &host.ports);
        let ports: BTreeMap<&HostPortId, &HostPort> = ports.map(|port| (&port.id, port)).collect();
        for gpu in gpus {
            let port = gpu.host_port.as_ref().and_then(|port| ports.get(port));
            let Some(port) = port else { continue };
            let own = gpu.ports.iter().filter(|own| own.fabric == port.fabric);
            let own: Vec<&SwitchId> = own.map(|own| own.switch.as_ref().unwrap()).collect();
            let of_port = port.switch.as_ref().unwrap();
            if !own.contains(&of_port) {
                for switch in own.first().into_iter().flat_map(|own| [*own, of_port]) {
                    if let Some(count) = across.get_mut(&(port.fabric.clone(), switch.clone())) {
                        *count += 1;
                    }
                }
            }
        }
        across
    }

    pub fn want(mut self, id: &str, need: Need) -> Self {
        self.demand(id, 0, need);
        self
    }

    pub fn demand(&mut self, id: &str, priority: i32, need: Need) {
        self.demands.push(Demand {
            id: DemandId::new(id).unwrap(),
            tenant: TenantId::new("acme").unwrap(),
            priority,
            need,
            created: Timestamp::UNIX_EPOCH,
        });
    }

    pub fn forget(&mut self, id: &str) {
        self.demands.retain(|demand| demand.id.as_str() != id);
    }

    pub fn gpu_mut(&mut self, id: &str) -> &mut Gpu {
        let gpus = &mut self.snapshot.topology.gpus;
        gpus.iter_mut().find(|gpu| gpu.id.as_str() == id).unwrap()
    }

    pub fn host_mut(&mut self, id: &str) -> &mut Host {
        let hosts = &mut self.snapshot.topology.hosts;
        hosts.iter_mut().find(|host| host.id.as_str() == id).unwrap()
    }

    /// Somebody else binds a GPU to a host's first port.
    pub fn foreign(&mut self, gpu: &str, host: &str) {
        let port = self.host_mut(host).ports[0].id.clone();
        let host = HostId::new(host).unwrap();
        let gpu = self.gpu_mut(gpu);
        gpu.host = Some(host);
        gpu.host_port = Some(port);
        gpu.state = GpuState::Bound;
    }

    pub fn world(&self) -> World<'_> {
        World {
            snapshot: &self.snapshot,
            held: &self.held,
            reserved: &self.reserved,
            demands: &self.demands,
            cordoned: &self.cordoned,
            promises: &self.promises,
            uplinks: &self.uplinks,
        }
    }

    pub fn input(&self) -> PlanInput<'_> {
        PlanInput {
            id: PlanId::new(format!("plan-{}", self.plans)).unwrap(),
            parent: None,
            now: Timestamp::UNIX_EPOCH,
            seed: 7,
            world: self.world(),
        }
    }

    /// Plans, and holds the plan to everything that must be so for every plan.
    pub fn plan(&self) -> Plan {
        let plan = poolwright_planner::plan(&self.input());
        self.holds(&plan);
        assert_eq!(
            plan,
            poolwright_planner::plan(&self.input()),
            "the same input gives the same plan"
        );
        self.every_demand_has_its_answer(&plan);
        plan
    }

    /// What must be so for every plan, also a direct one.
    pub fn holds(&self, plan: &Plan) {
        let found = check(plan, &self.world());
        assert!(found.is_empty(), "{found:#?}\n{plan:#?}");
        assert_eq!(
            plan.stale(&self.snapshot),
            vec![],
            "a plan is not stale on its own snapshot"
        );
        let saved = serde_json::to_string(plan).unwrap();
        assert_eq!(
            *plan,
            serde_json::from_str(&saved).unwrap(),
            "a plan survives being saved"
        );
        assert!(!explain(plan).is_empty());
    }

    fn every_demand_has_its_answer(&self, plan: &Plan) {
        let after = plan.after(&self.held);
        for demand in &self.demands {
            let held = after.iter().any(|c| c.demand.as_ref() == Some(&demand.id));
            let unplaced = plan.unplaced.iter().find(|unplaced| unplaced.demand == demand.id);
            let changed = unplaced.is_some_and(|unplaced| !unplaced.holding.is_empty());
            assert!(
                held != unplaced.is_some() || changed,
                "{} is lost: {plan:#?}",
                demand.id
            );
            assert!(unplaced.is_none_or(|unplaced| unplaced.tried.len() == demand.need.alternatives.len()));
        }
        for composition in &after {
            let Some(id) = &composition.demand else { continue };
            let wanted = self.demands.iter().any(|demand| demand.id == *id);
            let deferred = plan.deferred.iter().any(|deferred| {
                let other = self.held.iter().find(|c| c.id == deferred.composition);
                other.is_some_and(|other| other.demand.as_ref() == Some(id))
            });
            assert!(wanted || deferred, "{} is kept for nobody", composition.id);
        }
    }

    /// Plans, does the steps in an order that a seed picks of those allowed, and watches the hardware.
    pub fn apply(&mut self, seed: u64) -> Plan {
        let plan = self.plan();
        self.execute(&plan, seed);
        plan
    }

    pub fn execute(&mut self, plan: &Plan, seed: u64) {
        let mut chance = fastrand::Rng::with_seed(seed);
        let mut waits: Vec<usize> = plan.steps.iter().map(|step| step.after.len()).collect();
        let mut followers: Vec<Vec<usize>> = vec![vec![]; plan.steps.len()];
        for step in &plan.steps {
            step.after
                .iter()
                .for_each(|after| followers[*after as usize].push(step.index as usize));
        }
        let mut ready: Vec<usize> = (0..waits.len()).filter(|step| waits[*step] == 0).collect();
        let mut done = 0;
        while !ready.is_empty() {
            let step = ready.swap_remove(chance.usize(..ready.len()));
            self.perform(&plan.steps[step]);
            done += 1;
            for follower in &followers[step] {
                waits[*follower] -= 1;
                if waits[*follower] == 0 {
                    ready.push(*follower);
                }
            }
        }
        assert_eq!(done, plan.steps.len(), "the steps wait for each other");
        self.held = plan.after(&self.held);
        self.plans += 1;
    }

    /// What real hardware would do, and refuse.
    fn perform(&mut self, step: &Step) {
        let target = &step.target;
        let counts = |rack: &Self| -> Vec<u32> { rack.across().into_values().collect() };
        let before = match step.verb {
            Verb::Bind => counts(self),
            _ => Vec::new(),
        };
        for id in &target.gpus {
            let gpu = self.gpu_mut(id.as_str());
            match step.verb {
                Verb::Preflight | Verb::Verify | Verb::Ready | Verb::Drain => {}
                Verb::Bind => {
                    assert_eq!(gpu.host_port, None, "{step}: bound already");
                    assert_eq!(gpu.state, GpuState::Free, "{step}: not clean");
                    gpu.host_port = Some(target.host_port.clone());
                    gpu.host = Some(target.host.clone());
                    gpu.state = GpuState::Attached;
                }
                Verb::Unbind => {
                    assert_eq!(
                        gpu.host_port.as_ref(),
                        Some(&target.host_port),
                        "{step}: not bound there"
                    );
                    gpu.host_port = None;
                    gpu.host = None;
                    gpu.state = GpuState::Dirty;
                }
                Verb::Reset => {
                    assert_eq!(gpu.host_port, None, "{step}: reset while bound");
                    gpu.state = GpuState::Free;
                }
            }
        }
        if step.verb == Verb::Bind {
            let gpus = self.snapshot.topology.gpus.iter();
            let used = gpus
                .filter(|gpu| gpu.host_port.as_ref() == Some(&target.host_port))
                .count() as u32;
            let (_, port) = self.snapshot.topology.host_port(&target.host_port).unwrap();
            assert!(used <= port.slots, "{step}: {used} of {} slots", port.slots);
            for ((uplink, most), (was, is)) in self.uplinks.most.iter().zip(before.iter().zip(counts(self))) {
                assert!(
                    is <= *most || is <= *was,
                    "{step}: {is} across {uplink:?}, which may carry {most}"
                );
            }
        }
    }

    pub fn used_slots(&self) -> BTreeMap<HostPortId, u32> {
        let mut used = BTreeMap::new();
        for port in self
            .snapshot
            .topology
            .gpus
            .iter()
            .filter_map(|gpu| gpu.host_port.clone())
        {
            *used.entry(port).or_default() += 1;
        }
        used
    }
}

/// A switch by `fabric/switch`.
pub fn switch_at(at: &str) -> (FabricId, SwitchId) {
    let (fabric, switch) = at.split_once('/').unwrap();
    (FabricId::new(fabric).unwrap(), SwitchId::new(switch).unwrap())
}

pub fn point(endpoint: &str, address: &str) -> ControlPoint {
    ControlPoint {
        endpoint: ControlEndpointId::new(endpoint).unwrap(),
        style: ControlStyle::Zones,
        address: address.into(),
    }
}

pub fn set(kind: Option<&str>, count: u32, memory_gib: f64, group: u32) -> GpuSet {
    GpuSet {
        kind: kind.map(Into::into),
        count,
        min_memory_per_gpu: gib(memory_gib),
        group,
    }
}

pub fn need(alternatives: Vec<GpuSet>, spannable: bool) -> Need {
    Need {
        advice: Vec::new(),
        label: "a model".into(),
        task: None,
        alternatives,
        spannable,
        elastic: false,
        explanation: vec![],
    }
}

/// Where a plan puts a demand: hosts with the numbers of GPUs, in the order of the parts.
pub fn hosts_of(plan: &Plan, demand: &str) -> Vec<(String, u32)> {
    let compositions = plan.composes.iter();
    let mut mine: Vec<&Composition> = compositions
        .filter(|c| c.demand.as_ref().is_some_and(|d| d.as_str() == demand))
        .collect();
    mine.sort_by_key(|c| c.part);
    mine.iter().map(|c| (c.host.to_string(), c.gpu_count())).collect()
}

/// The GPUs that a plan gives a demand, in the order of their ids.
pub fn gpus_of(plan: &Plan, demand: &str) -> Vec<String> {
    let compositions = plan.composes.iter();
    let mine = compositions.filter(|c| c.demand.as_ref().is_some_and(|d| d.as_str() == demand));
    let mut gpus: Vec<String> = mine.flat_map(|c| c.gpus()).map(GpuId::to_string).collect();
    gpus.sort();
    gpus
}

/// Two hosts and two switches, four GPUs of 80 GiB on each, cabled.
pub fn two_switches() -> Rack {
    Rack::new()
        .gpus("f/s1", "h100", 80.0, 4)
        .gpus("f/s2", "h100", 80.0, 4)
        .host("host-1", "f/s1", 8)
        .host("host-2", "f/s2", 8)
        .cable("f", "s1", "s2")
}

pub fn reason<'p>(plan: &'p Plan, demand: &str) -> &'p Reason {
    let unplaced = plan.unplaced.iter().find(|u| u.demand.as_str() == demand);
    &unplaced.expect("it is not served").tried[0].reason
}
