//! Hosts and GPUs of a problem: what there is, and where.

use super::closed::Closed;
use super::{few, reach, uplinks};
use crate::horizon::cps1::{InstanceGpu, InstanceHost};
use crate::horizon::extended::{GpuExtension, Hops, HostExtension, HostFabric, Switch};
use crate::horizon::file::Entry;
use crate::plan::World;
use crate::survey::{Condition, Survey, UnitFacts, way};
use poolwright_model::id::{DemandId, GpuId, HostId, TenantId};
use poolwright_model::profile::Profiles;
use poolwright_model::topology::Gpu;
use poolwright_model::units::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap};

pub(super) struct Pool {
    pub hosts: Vec<HostAt>,
    pub gpus: Vec<GpuAt>,
    host_at: HashMap<HostId, usize>,
    gpu_at: HashMap<GpuId, usize>,
    /// What each kind has at least, by its name.
    pub kinds: BTreeMap<String, Bytes>,
    /// Cables between places, where these are not one.
    hops: BTreeMap<(String, String), u64>,
    left_out: usize,
    uplinks: uplinks::Uplinks,
}

pub(super) struct HostAt {
    pub id: HostId,
    pub slots: u64,
    pub place: String,
    /// Places whose GPUs can be attached.
    pub reach: BTreeSet<String>,
    /// It gets no GPU, even if the calendar asks for one.
    pub shut: bool,
    /// Ports that may be bound to.
    ports: usize,
}

pub(super) struct GpuAt {
    pub id: GpuId,
    /// As hardware profiles call it, else as its maker does.
    pub kind: String,
    pub place: String,
    pub memory: Bytes,
    pub at: Option<usize>,
    /// Attached by name, or in no condition to be moved.
    pub pinned: bool,
    pub demand: Option<DemandId>,
    pub tenant: Option<TenantId>,
    /// Held, and not available to another demand after its release.
    out_of_use: bool,
    watts: Option<(f64, Option<f64>)>,
    together: bool,
}

impl Pool {
    pub fn of(world: &World<'_>) -> Self {
        let open = crate::plan::Cordoned {
            closed: BTreeMap::new(),
            ..world.cordoned.clone()
        };
        let world = World {
            cordoned: &open,
            ..*world
        };
        let survey = Survey::of(&world);
        let mut pool = Self {
            hosts: Vec::new(),
            gpus: Vec::new(),
            host_at: HashMap::new(),
            gpu_at: HashMap::new(),
            kinds: BTreeMap::new(),
            hops: BTreeMap::new(),
            left_out: 0,
            uplinks: uplinks::Uplinks::default(),
        };
        let ways = reach::Ways::of(&survey);
        for facts in &survey.hosts {
            let bindable = facts.ports.iter().filter(|port| way(port.port).is_some());
            pool.host_at.insert(facts.host.id.clone(), pool.hosts.len());
            pool.hosts.push(HostAt {
                id: facts.host.id.clone(),
                slots: bindable.clone().map(|port| port.free.max(0).unsigned_abs()).sum(),
                place: reach::place_of_host(facts),
                reach: ways.of_host(facts, &mut pool.hops),
                shut: facts.closed.is_some(),
                ports: bindable.count(),
            });
        }
        for unit in &survey.units {
            pool.unit(&survey, unit);
        }
        for gpu in &pool.gpus {
            if let Some(host) = gpu.at {
                // `slots` has only the free slots so far: each attached GPU adds the one that it takes.
                pool.hosts[host].slots += 1;
                pool.hosts[host].reach.insert(gpu.place.clone());
            }
            let least = pool.kinds.entry(gpu.kind.clone()).or_insert(gpu.memory);
            *least = gpu.memory.min(*least);
        }
        pool.uplinks = uplinks::Uplinks::of(&world, &pool);
        pool
    }

    fn unit(&mut self, survey: &Survey<'_>, unit: &UnitFacts<'_>) {
        let holder = match unit.condition {
            Condition::Held(place) => survey.world.held.get(place),
            _ => None,
        };
        let free = matches!(unit.condition, Condition::Free | Condition::Dirty);
        let place = reach::place_of_unit(unit);
        for gpu in &unit.gpus {
            let port = gpu.host_port.as_ref();
            let seen = gpu.host.clone().or_else(|| {
                let (host, _) = survey.world.snapshot.topology.host_port(port?)?;
                Some(host.id.clone())
            });
            let host = holder.map(|c| c.host.clone()).or(seen);
            let at = host.and_then(|host| self.host_at.get(&host).copied());
            if !free && at.is_none() {
                self.left_out += 1;
                continue;
            }
            let moves = holder.is_some_and(|c| c.demand.is_some() || c.kept.is_some());
            self.gpu_at.insert(gpu.id.clone(), self.gpus.len());
            self.gpus.push(GpuAt {
                id: gpu.id.clone(),
                kind: kind(unit),
                place: place.clone(),
                memory: unit.memory,
                at,
                pinned: !free && !moves,
                demand: holder.and_then(|c| c.demand.clone()),
                tenant: holder.filter(|c| c.kept.is_none()).and_then(|c| c.tenant.clone()),
                out_of_use: !free && !unit.is_usable(),
                watts: watts(gpu),
                together: unit.gpus.len() > 1,
            });
        }
    }

    pub fn host(&self, id: &HostId) -> Option<usize> {
        self.host_at.get(id).copied()
    }

    pub fn gpu(&self, id: &GpuId) -> Option<&GpuAt> {
        self.gpus.get(*self.gpu_at.get(id)?)
    }

    /// The most GPUs that a host takes.
    pub fn widest(&self) -> u64 {
        self.hosts.iter().map(|host| host.slots).max().unwrap_or(0)
    }

    pub fn hosts(&self, closed: &Closed) -> Vec<Entry<InstanceHost, HostExtension>> {
        let places: BTreeSet<&String> = self.gpus.iter().map(|gpu| &gpu.place).collect();
        let hosts = self.hosts.iter().enumerate();
        let entry = |(at, host): (usize, &HostAt)| Entry {
            is: InstanceHost {
                id: host.id.to_string(),
                slots: host.slots,
                switch: host.place.clone(),
                host_on_w: 0.0,
                host_idle_w: 0.0,
            },
            more: HostExtension {
                closed: closed.windows(at),
                fabric: HostFabric {
                    // One that reaches nothing still has a switch of its own.
                    reach: (!places.iter().all(|place| host.reach.contains(*place))).then(|| {
                        let reach = host.reach.iter().filter(|place| places.contains(place));
                        let reach: Vec<String> = reach.cloned().collect();
                        match reach.is_empty() {
                            true => vec![host.place.clone()],
                            false => reach,
                        }
                    }),
                    ..HostFabric::default()
                },
            },
        };
        hosts.map(entry).collect()
    }

    pub fn gpus(&self) -> Vec<Entry<InstanceGpu, GpuExtension>> {
        let entry = |gpu: &GpuAt| {
            let (active, idle) = gpu.watts.unwrap_or_default();
            Entry {
                is: InstanceGpu {
                    id: gpu.id.to_string(),
                    kind: written(&gpu.kind),
                    mem_gb: gigabytes(self.kinds.get(&gpu.kind).copied().unwrap_or_default()),
                    switch: gpu.place.clone(),
                    active_w: active,
                    idle_w: idle.unwrap_or_default(),
                    attached_to: gpu.at.map(|host| self.hosts[host].id.to_string()),
                },
                more: GpuExtension {
                    pinned: gpu.pinned,
                    ..GpuExtension::default()
                },
            }
        };
        self.gpus.iter().map(entry).collect()
    }

    pub fn hops(&self) -> Vec<Hops> {
        let of_gpus = self.gpus.iter().map(|gpu| &gpu.place);
        let places: BTreeSet<&String> = of_gpus.chain(self.hosts.iter().map(|host| &host.place)).collect();
        let hops = self
            .hops
            .iter()
            .filter(|((from, to), hops)| **hops != 1 && places.contains(from) && places.contains(to));
        let hops = hops.map(|((from, to), hops)| Hops {
            from: from.clone(),
            to: to.clone(),
            hops: *hops,
        });
        hops.collect()
    }

    /// Switches whose uplinks have a capacity.
    pub fn switches(&self) -> Vec<Switch> {
        self.uplinks.told.clone()
    }

    /// Facts about hosts and GPUs that a problem can't express.
    pub fn not_said(&self) -> Vec<String> {
        let mut told = vec![
            "hosts count 0 W: no profile has their power; their limit of mapped BARs (GiB) is unknown"
                .to_owned(),
        ];
        let names = |which: &dyn Fn(&GpuAt) -> bool| {
            let gpus = self.gpus.iter().filter(|gpu| which(gpu));
            let kinds: BTreeSet<String> = gpus.map(|gpu| gpu.kind.clone()).collect();
            kinds.into_iter().collect::<Vec<String>>()
        };
        let count = |which: &dyn Fn(&GpuAt) -> bool| self.gpus.iter().filter(|gpu| which(gpu)).count();
        let unknown = names(&|gpu| gpu.watts.is_none_or(|(_, idle)| idle.is_none()));
        if !unknown.is_empty() {
            told.push(format!("unknown power counts as 0 W: {}", few(&unknown)));
        }
        let several: Vec<String> = self
            .hosts
            .iter()
            .filter(|host| host.ports > 1)
            .map(|host| host.id.to_string())
            .collect();
        if !several.is_empty() {
            told.push(format!(
                "the ports of a host are one here, with all slots together, so a plan may have more at one than it takes: {}",
                few(&several)
            ));
        }
        if self.left_out > 0 {
            told.push(format!(
                "GPUs that are not composable are left out: {}",
                self.left_out
            ));
        }
        let stays = count(&|gpu| gpu.pinned && gpu.demand.is_none() && gpu.out_of_use);
        if stays > 0 {
            told.push(format!(
                "GPUs at hosts that are not composable are pinned there: {stays}"
            ));
        }
        let failed = count(&|gpu| gpu.out_of_use && gpu.demand.is_some());
        if failed > 0 {
            told.push(format!(
                "GPUs that will be quarantined once released count as available: {failed}"
            ));
        }
        if count(&|gpu| gpu.together) > 0 {
            told.push("GPUs that are attached together, on one baseboard, count one by one".to_owned());
        }
        let differ = |kind: &&String| {
            let mut of_kind = self.gpus.iter().filter(|gpu| gpu.kind == **kind);
            of_kind.any(|gpu| Some(&gpu.memory) != self.kinds.get(*kind))
        };
        let differ: Vec<String> = self.kinds.keys().filter(differ).cloned().collect();
        if !differ.is_empty() {
            told.push(format!(
                "all of a kind have the memory of its smallest: {}",
                few(&differ)
            ));
        }
        told.extend(self.uplinks.not_said.iter().cloned());
        told
    }
}

fn kind(unit: &UnitFacts<'_>) -> String {
    unit.kind
        .as_ref()
        .map_or_else(|| "unknown".to_owned(), ToString::to_string)
}

/// A kind as a problem may call it.
pub(super) fn written(kind: &str) -> String {
    kind.replace('@', " at ")
}

pub(super) fn gigabytes(memory: Bytes) -> f64 {
    memory.0 as f64 / 1e9
}

/// At work, and idle, as far as a profile says so.
fn watts(gpu: &Gpu) -> Option<(f64, Option<f64>)> {
    let profile = Profiles::builtin().by_name(gpu.profile.as_deref()?)?;
    Some((profile.tdp_w?, profile.idle_w))
}
