//! What a host holds for a demand.

use jiff::Timestamp;
use poolwright_model::control::ControlPoint;
use poolwright_model::id::{CompositionId, DemandId, GpuId, HostId, HostPortId, TenantId, UnitId};
use poolwright_model::identity::GpuIdentity;
use poolwright_model::step::Target;
use poolwright_model::topology::{Gpu, PciIds, Topology};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A host and the GPUs that it holds for a demand. All compositions of one demand belong together: they come
/// into being together or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Composition {
    pub id: CompositionId,
    /// `None`: attached by name, or kept. No demand keeps it and none releases it; it stands until it is detached.
    pub demand: Option<DemandId>,
    /// `None` only where it was attached by name.
    pub tenant: Option<TenantId>,
    pub host: HostId,
    /// In the order of the units' ids; never empty.
    pub held: Vec<Held>,
    /// Which one of its demand's compositions this is, from 1.
    pub part: u32,
    /// How many compositions its demand has together.
    pub parts: u32,
    /// For people: what it is held for.
    pub label: String,
    /// Nobody uses it: it is at its host because its tenant is expected to want it soon, and goes as soon as somebody
    /// else needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
}

/// What is attached and idle, for what is expected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Kept {
    pub since: Timestamp,
    /// By when it is expected to be wanted.
    pub by: Timestamp,
    /// The demand that held it, where it is one of several parts that served it together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_of: Option<DemandId>,
}

/// One unit held at one host port, with all that is needed to let go of it without any other document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Held {
    pub unit: UnitId,
    /// All GPUs of the unit.
    pub gpus: Vec<GpuId>,
    pub host_port: HostPortId,
    /// The unit at its fabric's manager.
    pub unit_at: ControlPoint,
    /// The host port at the same manager.
    pub port_at: ControlPoint,
    /// The UUIDs, else serial numbers, by which the host knows the GPUs; fewer than GPUs where unknown.
    #[serde(default)]
    pub known_as: Vec<String>,
    /// What the host's kernel calls the slot of the port, where the fabric knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// The PCI ids that each of the GPUs has, where its fabric tells them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<PciIds>,
    /// The identity of each GPU. Empty in what earlier versions wrote.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<GpuIdentity>,
}

impl Held {
    /// What a step does something to.
    pub fn target(&self, host: &HostId) -> Target {
        Target {
            unit: self.unit.clone(),
            gpus: self.gpus.clone(),
            host: host.clone(),
            host_port: self.host_port.clone(),
            unit_at: self.unit_at.clone(),
            port_at: self.port_at.clone(),
            known_as: self.known_as.clone(),
            slot: self.slot.clone(),
            ids: self.ids.clone(),
            identities: self.identities.clone(),
        }
    }

    /// The same unit at the address at which its endpoint showed it last, and with the identities of its GPUs, where
    /// either is not as recorded.
    fn as_observed(&self, topology: &Topology) -> Option<Self> {
        let unit_at = observed_address(&self.gpus, &self.unit_at, topology)?;
        let known = !self.identities.is_empty();
        if known && *unit_at == self.unit_at {
            return None;
        }
        let gpus = self.gpus.iter().filter_map(|id| find(topology, id));
        Some(Self {
            unit_at: unit_at.clone(),
            identities: match known {
                true => self.identities.clone(),
                false => gpus.map(GpuIdentity::of).collect(),
            },
            ..self.clone()
        })
    }

    /// Whether both are the same GPUs at the same host port. Their addresses may have changed.
    pub fn is_same(&self, other: &Self) -> bool {
        self.unit == other.unit
            && self.gpus == other.gpus
            && self.host_port == other.host_port
            && self.port_at == other.port_at
            && self.unit_at.endpoint == other.unit_at.endpoint
    }

    /// How many slots it takes at its host port.
    pub fn slots(&self) -> u32 {
        u32::try_from(self.gpus.len()).unwrap_or(u32::MAX)
    }
}

/// The list is in the order of the ids.
fn find<'t>(topology: &'t Topology, id: &GpuId) -> Option<&'t Gpu> {
    let at = topology.gpus.binary_search_by(|gpu| gpu.id.cmp(id)).ok()?;
    topology.gpus.get(at)
}

/// The address of these GPUs in the latest observation of their endpoint: the recorded address if they are still there.
pub fn observed_address<'t>(
    gpus: &[GpuId],
    recorded: &ControlPoint,
    topology: &'t Topology,
) -> Option<&'t ControlPoint> {
    let gpus: Option<Vec<&Gpu>> = gpus.iter().map(|id| find(topology, id)).collect();
    let gpus = gpus?;
    let (first, others) = gpus.split_first()?;
    let is_at_same_manager =
        |at: &&ControlPoint| (&at.endpoint, at.style) == (&recorded.endpoint, recorded.style);
    let points = first.control.iter().filter(is_at_same_manager);
    let mut points = points.filter(|at| others.iter().all(|gpu| gpu.control.contains(at)));
    let there = points.clone().find(|at| *at == recorded);
    there.or_else(|| points.next())
}

/// These compositions at the addresses at which endpoints showed their GPUs last: firmware renumbers its resources, and cards
/// are moved between slots.
pub fn as_observed(mut held: Arc<Vec<Composition>>, topology: &Topology) -> Arc<Vec<Composition>> {
    let mut observed = Vec::new();
    for (nth, composition) in held.iter().enumerate() {
        let units = composition.held.iter().enumerate();
        observed.extend(units.filter_map(|(unit, held)| Some((nth, unit, held.as_observed(topology)?))));
    }
    if !observed.is_empty() {
        let held = Arc::make_mut(&mut held);
        for (nth, unit, now) in observed {
            held[nth].held[unit] = now;
        }
    }
    held
}

impl Composition {
    pub fn gpus(&self) -> impl Iterator<Item = &GpuId> {
        self.held.iter().flat_map(|held| &held.gpus)
    }

    pub fn gpu_count(&self) -> u32 {
        self.held.iter().map(Held::slots).sum()
    }

    /// The same composition with only these units of it.
    pub fn with(&self, held: Vec<Held>) -> Self {
        Self { held, ..self.clone() }
    }
}
