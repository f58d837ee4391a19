//! What a plan rests on, so that it applies only if that still stands.

use jiff::Timestamp;
use poolwright_inventory::Snapshot;
use poolwright_model::id::{HostId, HostPortId, UnitId};
use poolwright_model::lifecycle::GpuState;
use poolwright_model::topology::{Gpu, Topology};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The snapshot, and how it showed every unit and host port that the plan changes or counts on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reads {
    pub taken_at: Timestamp,
    pub units: BTreeMap<UnitId, Standing>,
    pub ports: BTreeMap<HostPortId, PortReading>,
}

/// How a unit was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "as", rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", schemars(rename = "ReadStanding"))]
pub enum Standing {
    Free,
    Dirty,
    Bound {
        port: HostPortId,
    },
    /// On a host by a port that is not known, or in a state that is neither free nor bound.
    Other {
        state: GpuState,
        host: Option<HostId>,
    },
}

/// How a host port was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PortReading {
    /// How many GPUs it can take.
    pub slots: u32,
    /// What was bound to it, whoever bound it.
    pub bound: BTreeSet<UnitId>,
}

/// Something that the plan rests on and that is no longer so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Stale {
    Unit {
        unit: UnitId,
        was: Standing,
        now: Option<Standing>,
    },
    Port {
        port: HostPortId,
        was: PortReading,
        now: Option<PortReading>,
    },
}

impl Reads {
    /// Reads these units and ports from a snapshot. What the snapshot doesn't have is left out.
    pub fn of<'a>(
        snapshot: &Snapshot,
        units: impl IntoIterator<Item = &'a UnitId>,
        ports: impl IntoIterator<Item = &'a HostPortId>,
    ) -> Self {
        let (units, ports): (BTreeSet<_>, BTreeSet<_>) =
            (units.into_iter().collect(), ports.into_iter().collect());
        let seen = Seen::of(
            &snapshot.topology,
            |unit| units.contains(unit),
            |port| ports.contains(port),
        );
        let units = units
            .into_iter()
            .filter_map(|unit| Some((unit.clone(), seen.units.get(unit)?.clone())));
        let ports = ports
            .into_iter()
            .filter_map(|port| Some((port.clone(), seen.ports.get(port)?.clone())));
        Self {
            taken_at: snapshot.taken_at,
            units: units.collect(),
            ports: ports.collect(),
        }
    }

    /// What another snapshot shows differently; empty where everything still stands.
    pub fn stale(&self, now: &Snapshot) -> Vec<Stale> {
        let (units, ports) = (&self.units, &self.ports);
        let seen = Seen::of(
            &now.topology,
            |unit| units.contains_key(unit),
            |port| ports.contains_key(port),
        );
        let units = self.units.iter().filter_map(|(unit, was)| {
            let now = seen.units.get(unit);
            (now != Some(was)).then(|| Stale::Unit {
                unit: unit.clone(),
                was: was.clone(),
                now: now.cloned(),
            })
        });
        let ports = self.ports.iter().filter_map(|(port, was)| {
            let now = seen.ports.get(port);
            (now != Some(was)).then(|| Stale::Port {
                port: port.clone(),
                was: was.clone(),
                now: now.cloned(),
            })
        });
        units.chain(ports).collect()
    }
}

/// What a snapshot shows of these units and ports, in the words of [`Reads`].
struct Seen<'a> {
    units: BTreeMap<&'a UnitId, Standing>,
    ports: BTreeMap<&'a HostPortId, PortReading>,
}

impl<'a> Seen<'a> {
    fn of(
        topology: &'a Topology,
        has_unit: impl Fn(&UnitId) -> bool,
        has_port: impl Fn(&HostPortId) -> bool,
    ) -> Self {
        let mut units: BTreeMap<&UnitId, Standing> = BTreeMap::new();
        let mut ports: BTreeMap<&HostPortId, PortReading> = BTreeMap::new();
        let all = topology.hosts.iter().flat_map(|host| &host.ports);
        for port in all.filter(|port| has_port(&port.id)) {
            let reading = PortReading {
                slots: port.slots,
                bound: BTreeSet::new(),
            };
            ports.insert(&port.id, reading);
        }
        for gpu in &topology.gpus {
            if has_unit(&gpu.unit) {
                let standing = Standing::of(gpu);
                units
                    .entry(&gpu.unit)
                    .and_modify(|unit| unit.join(&standing))
                    .or_insert(standing);
            }
            if let Some(port) = gpu.host_port.as_ref().and_then(|id| ports.get_mut(id)) {
                port.bound.insert(gpu.unit.clone());
            }
        }
        Self { units, ports }
    }
}

impl Standing {
    fn of(gpu: &Gpu) -> Self {
        match (&gpu.host_port, gpu.state) {
            (Some(port), _) => Self::Bound { port: port.clone() },
            (None, GpuState::Free) if gpu.host.is_none() => Self::Free,
            (None, GpuState::Dirty) if gpu.host.is_none() => Self::Dirty,
            (None, state) => Self::Other {
                state,
                host: gpu.host.clone(),
            },
        }
    }

    /// A unit stands as its least free GPU does.
    fn join(&mut self, gpu: &Standing) {
        let rank = |standing: &Standing| match standing {
            Self::Free => 0,
            Self::Dirty => 1,
            Self::Bound { .. } => 2,
            Self::Other { .. } => 3,
        };
        if rank(gpu) > rank(self) {
            *self = gpu.clone();
        }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free => f.write_str("free"),
            Self::Dirty => f.write_str("unbound and not reset yet"),
            Self::Bound { port } => write!(f, "bound to {port}"),
            Self::Other { state, host: None } => write!(f, "{state}"),
            Self::Other {
                state,
                host: Some(host),
            } => write!(f, "{state} on {host}"),
        }
    }
}

impl fmt::Display for PortReading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound: Vec<_> = self.bound.iter().map(UnitId::as_str).collect();
        match bound.as_slice() {
            [] => write!(f, "{} slots, nothing bound", self.slots),
            bound => write!(f, "{} slots, bound: {}", self.slots, bound.join(", ")),
        }
    }
}

impl fmt::Display for Stale {
    /// Such as `unit gpu-1 was free, and is bound to host-2/p0 now`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unit { unit, was, now: None } => write!(f, "unit {unit} was {was}, and is not seen now"),
            Self::Unit {
                unit,
                was,
                now: Some(now),
            } => write!(f, "unit {unit} was {was}, and is {now} now"),
            Self::Port { port, was, now: None } => {
                write!(f, "host port {port} had {was}, and is not seen now")
            }
            Self::Port {
                port,
                was,
                now: Some(now),
            } => write!(f, "host port {port} had {was}, and has {now} now"),
        }
    }
}
