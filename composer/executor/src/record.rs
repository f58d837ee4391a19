//! What the executor keeps in the store, beside operations.
//!
//! Invariant: a unit with a [`Claim`] is written about by the claim's operation alone. Whoever else wants
//! to change a [`GpuRecord`] (drift, cordon, adoption) does so with the expectation that there is no
//! claim on its unit.

use crate::operation::{Operation, OperationKind};
use jiff::Timestamp;
use poolwright_driver::Learned;
use poolwright_model::id::{CompositionId, GpuId, HostId, HostPortId, OperationId, TenantId, UnitId};
use poolwright_model::lifecycle::GpuState;
use poolwright_planner::{Composition, Plan};
use poolwright_store::Stored;
use serde::de::IntoDeserializer;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// A unit is in the hands of one operation, and of no other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub unit: UnitId,
    pub operation: OperationId,
    #[serde(deserialize_with = "known_kind")]
    pub kind: OperationKind,
    pub by: String,
    pub since: Timestamp,
    /// Where the operation puts the unit, if it does.
    pub host_port: Option<HostPortId>,
}

impl Claim {
    pub fn of(operation: &Operation, unit: &UnitId, goes_to: Option<&HostPortId>) -> Self {
        Self {
            unit: unit.clone(),
            operation: operation.id.clone(),
            kind: operation.kind,
            by: operation.by.clone(),
            since: operation.created,
            host_port: goes_to.cloned(),
        }
    }
}

/// A claim of an operation that can't be read is a claim all the same: its kind may be one of a newer Poolwright.
fn known_kind<'de, D: Deserializer<'de>>(from: D) -> Result<OperationKind, D::Error> {
    let kind = String::deserialize(from)?;
    let known: Result<_, serde::de::value::Error> = OperationKind::deserialize(kind.into_deserializer());
    Ok(known.unwrap_or(OperationKind::Unreadable))
}

impl Stored for Claim {
    const KIND: &'static str = "claim";
    fn id(&self) -> &str {
        self.unit.as_str()
    }
}

/// Where a GPU is in its life, and who holds it or held it last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuRecord {
    pub gpu: GpuId,
    pub unit: UnitId,
    pub state: GpuState,
    /// It was attached when its host was asked to let go of it, and is again where that changed nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_attached: bool,
    /// No host was given it since its last reset.
    pub clean: bool,
    /// Where it is bound, or was asked to be.
    pub host: Option<HostId>,
    pub host_port: Option<HostPortId>,
    pub composition: Option<CompositionId>,
    /// Who holds it; while it is not clean, who held it last.
    pub tenant: Option<TenantId>,
    /// The operation that wrote this.
    pub operation: Option<OperationId>,
    pub since: Timestamp,
    /// Under which names hosts have seen it, and what the last one told of it. Stays when it is let go of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned: Option<Learned>,
    /// The same of who it was before, where the last host saw another GPU in its place: until somebody has looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned_before: Option<Learned>,
    /// What hosts could not put back as it was when they let go of it: no reset is known to. Until somebody has looked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
}

impl GpuRecord {
    /// Takes in what a host told.
    pub(crate) fn learn(&mut self, told: &Learned) {
        let Some(known) = self.learned.take() else {
            self.learned = Some(told.clone());
            return;
        };
        if told.differs_from(&known).is_none() {
            self.learned = Some(told.clone().beside(&known));
            return;
        }
        self.learned = Some(told.clone());
        // Who it was at first, however often it changes.
        self.learned_before.get_or_insert(known);
    }

    /// Takes in what a host could not put back.
    pub(crate) fn leave(&mut self, left: &[String]) {
        for what in left {
            if !self.left.contains(what) {
                self.left.push(what.clone());
            }
        }
    }

    /// How it is another GPU than before; `None` where it is not, or somebody has looked since.
    pub fn is_another(&self) -> Option<String> {
        let (now, before) = (self.learned.as_ref()?, self.learned_before.as_ref()?);
        let seen = || format!("it is told of in two ways: last at {}", now.address);
        Some(now.differs_from(before).unwrap_or_else(seen))
    }
}

impl Stored for GpuRecord {
    const KIND: &'static str = "gpu-state";
    fn id(&self) -> &str {
        self.gpu.as_str()
    }
}

/// A composition that stands, with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CompositionRecord {
    #[serde(flatten)]
    pub composition: Composition,
    /// For each unit, who confirmed it: an agent, a BMC, or the fabric alone.
    pub evidence: BTreeMap<UnitId, String>,
    /// The operation that wrote this.
    pub operation: OperationId,
    pub since: Timestamp,
}

impl Stored for CompositionRecord {
    const KIND: &'static str = "composition";
    fn id(&self) -> &str {
        self.composition.id.as_str()
    }
}

/// The plan of an operation, under the operation's id. Never changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRecord {
    pub operation: OperationId,
    pub plan: Plan,
}

impl Stored for PlanRecord {
    const KIND: &'static str = "plan";
    fn id(&self) -> &str {
        self.operation.as_str()
    }
}
