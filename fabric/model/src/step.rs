//! What an execution does to the hardware, with what it expects to find.
//!
//! A step is a value that says everything: a journal that holds it can be carried on after a crash
//! without the plan, the snapshot or the driver's memory. Each step has a precondition (`expect`) and a
//! goal that can be read back, so doing it twice has one effect: where the goal already holds nothing is
//! sent, where neither holds nothing is sent either and the operation stops.

use crate::control::ControlPoint;
use crate::id::{CompositionId, GpuId, HostId, HostPortId, UnitId};
use crate::identity::{GpuIdentity, Match, compare};
use crate::topology::PciIds;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A step of a plan or an operation. `index` is its place in the list; `after` are the steps that must be
/// done before it. Steps that do not depend on each other may run side by side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Step {
    pub index: u32,
    pub after: Vec<u32>,
    pub verb: Verb,
    pub target: Target,
    /// For which composition, also in a direct attach or detach; `None` only where there is none.
    pub composition: Option<CompositionId>,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// Ask the host whether there is room. Changes nothing.
    Preflight,
    /// Fabric: bind the unit to the host port. Expects it free.
    Bind,
    /// Host: wait until it sees the GPUs. Changes nothing.
    Verify,
    /// Host: see that the GPUs are well, give them its profile, and tell its software of them.
    Ready,
    /// Host: stop new work, and make sure that nobody uses the GPUs.
    Drain,
    /// Fabric: unbind the unit from the host port. Expects it bound there.
    Unbind,
    /// Fabric: reset the unit, and see that it was reset.
    Reset,
}

impl Verb {
    pub const ALL: [Self; 7] = [
        Self::Preflight,
        Self::Bind,
        Self::Verify,
        Self::Ready,
        Self::Drain,
        Self::Unbind,
        Self::Reset,
    ];

    /// Whether it changes something out there.
    pub const fn has_effect(self) -> bool {
        match self {
            Self::Preflight | Self::Verify => false,
            Self::Bind | Self::Ready | Self::Drain | Self::Unbind | Self::Reset => true,
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Preflight => "preflight",
            Self::Bind => "bind",
            Self::Verify => "verify",
            Self::Ready => "ready",
            Self::Drain => "drain",
            Self::Unbind => "unbind",
            Self::Reset => "reset",
        })
    }
}

/// What it is done to: a unit, and the host port that it goes to or comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Target {
    pub unit: UnitId,
    pub gpus: Vec<GpuId>,
    pub host: HostId,
    pub host_port: HostPortId,
    /// The unit at its fabric's manager.
    pub unit_at: ControlPoint,
    /// The host port at the same manager.
    pub port_at: ControlPoint,
    /// The NVIDIA UUIDs or serial numbers by which the host will know the GPUs, where we know them.
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

impl Target {
    /// Compares the GPUs at the address with the intended ones.
    pub fn compare(&self, found: &[GpuIdentity]) -> Match {
        if !self.identities.is_empty() {
            return compare(&self.identities, found);
        }
        let named: Vec<GpuIdentity> = self
            .known_as
            .iter()
            .map(|name| GpuIdentity::named(name))
            .collect();
        match named.len() == self.gpus.len() {
            true => compare(&named, found),
            false => Match::ByLocationOnly,
        }
    }
}

impl fmt::Display for Step {
    /// Such as `bind gpu-1 to host-2 (port host-2/p0)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Target {
            gpus,
            host,
            host_port,
            ..
        } = &self.target;
        let gpus = gpus.iter().map(GpuId::as_str).collect::<Vec<_>>().join(", ");
        match self.verb {
            Verb::Bind => write!(f, "bind {gpus} to {host} (port {host_port})"),
            Verb::Unbind => write!(f, "unbind {gpus} from {host} (port {host_port})"),
            Verb::Preflight => write!(f, "ask {host} for room for {gpus}"),
            Verb::Verify => write!(f, "confirm {gpus} on {host}"),
            Verb::Ready => write!(f, "make {gpus} ready on {host}"),
            Verb::Drain => write!(f, "drain {gpus} on {host}"),
            Verb::Reset => write!(f, "reset {gpus}"),
        }
    }
}
