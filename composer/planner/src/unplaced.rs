//! Why a demand was not served, with the numbers, and what would help. [`mod@crate::explain`] says it in
//! sentences, the same everywhere.

use crate::uplinks::FullUplink;
use jiff::Timestamp;
use poolwright_model::id::{CompositionId, DemandId, FabricId, SwitchId, TenantId};
use poolwright_model::units::Bytes;
use poolwright_sizing::need::GpuSet;
use serde::{Deserialize, Serialize};

/// A demand that the plan doesn't serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unplaced {
    pub demand: DemandId,
    pub tenant: TenantId,
    pub label: String,
    /// What was tried, the nearest to success first. Empty only where the need names no GPUs at all.
    pub tried: Vec<Tried>,
    /// What it goes on holding: its need has changed, and the new need could not be placed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holding: Vec<CompositionId>,
}

/// One alternative of the need, and why it was not possible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tried {
    pub set: GpuSet,
    pub reason: Reason,
    /// Any one of these, or several of them together.
    pub helps: Vec<Help>,
}

/// Why a set of GPUs could not be found. All numbers count GPUs unless they say otherwise, at the moment when
/// the demand's turn came. `kind` is the kind that came nearest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "why", rename_all = "kebab-case")]
pub enum Reason {
    /// No GPU of the kind can be moved; `seen` of them are there but not composable.
    NoKind { kind: Option<String>, seen: u32 },
    /// The largest movable GPU of the kind has less memory than each GPU needs.
    MemoryTooSmall {
        kind: Option<String>,
        needed: Bytes,
        largest: Bytes,
    },
    /// Even if all of the kind were free, they would be too few.
    NotEnoughGpus {
        kind: String,
        needed: u32,
        free: u32,
        pool: u32,
    },
    /// There are enough of the kind, but too few are free.
    AllBusy {
        kind: String,
        needed: u32,
        free: u32,
        busy: Busy,
        held_by: Vec<Holder>,
    },
    /// No host may be given GPUs: so many are off, so many closed, so many have no port that can be bound to, and so many
    /// have what is kept for a tenant and can't be let go of just now.
    NoHost {
        off: u32,
        cordoned: u32,
        unbindable: u32,
        #[serde(default)]
        keeps: u32,
    },
    /// Enough GPUs are free, but no host has so many free slots. `largest`: slots of the largest host, used
    /// or not.
    NoHostWithSlots { needed: u32, best: u32, largest: u32 },
    /// Enough GPUs are free, but not within reach: `best` is the most that can be reached together.
    NotReachable {
        kind: String,
        needed: u32,
        free: u32,
        best: u32,
    },
    /// Free GPUs and free slots suffice, but not in the same places: `largest` is the most that could be had.
    Fragmented {
        kind: String,
        needed: u32,
        free: u32,
        largest: u32,
    },
    /// The uplinks of these switches are full. `largest` is the most that fits together now. `ever` is an upper bound of
    /// what fits if nothing else is attached, over all kinds that the set admits.
    Uplinks {
        kind: String,
        needed: u32,
        free: u32,
        largest: u32,
        ever: u32,
        full: Vec<FullUplink>,
    },
    /// Its tenant holds so many beside it, and may hold so many at most.
    TenantLimit {
        tenant: TenantId,
        needed: u32,
        holds: u32,
        most: u32,
    },
    /// It would be more than its tenant is guaranteed, and so many GPUs that are free are left for what another tenant is
    /// guaranteed and wants: first of all for this demand.
    Promised {
        tenant: TenantId,
        demand: DemandId,
        gpus: u32,
    },
    /// With it, so many GPUs would be missing when the lender is to have back what it lent.
    Owed {
        lender: DemandId,
        lent_to: String,
        due: Timestamp,
        gpus: u32,
    },
}

impl Reason {
    /// Whether it stays so whatever others let go of.
    pub fn is_never(&self) -> bool {
        match self {
            Self::NoKind { .. }
            | Self::MemoryTooSmall { .. }
            | Self::NotEnoughGpus { .. }
            | Self::NotReachable { .. } => true,
            Self::NoHostWithSlots { needed, largest, .. } => largest < needed,
            Self::TenantLimit { needed, most, .. } => most < needed,
            Self::Uplinks { needed, ever, .. } => ever < needed,
            Self::AllBusy { .. }
            | Self::NoHost { .. }
            | Self::Fragmented { .. }
            | Self::Promised { .. }
            | Self::Owed { .. } => false,
        }
    }
}

impl Unplaced {
    /// Whether it can't be served whatever others let go of.
    pub fn is_never(&self) -> bool {
        self.tried.iter().all(|tried| tried.reason.is_never())
    }
}

/// Where the GPUs of a kind are that are not free.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Busy {
    /// In compositions, also of this plan.
    pub held: u32,
    /// In use by running operations.
    pub reserved: u32,
    /// Bound by somebody else.
    pub foreign: u32,
    pub cordoned: u32,
    /// Their health is critical.
    pub unhealthy: u32,
    /// In a state that nobody may take them from: indeterminate, quarantined, missing.
    pub unsettled: u32,
    /// No manager can bind them as one unit.
    pub unbindable: u32,
}

/// A composition that holds GPUs of the kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Holder {
    pub composition: CompositionId,
    pub demand: Option<DemandId>,
    pub gpus: u32,
}

/// What would help.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Help {
    /// Put more GPUs of the kind into the pool.
    AddGpus {
        kind: Option<String>,
        gpus: u32,
        min_memory: Bytes,
    },
    /// Release compositions that hold so many of the kind.
    ReleaseGpus {
        kind: String,
        gpus: u32,
    },
    /// Running operations hold so many; plan again when they are done.
    WaitForOperations {
        gpus: u32,
    },
    /// So many are bound by somebody else: adopt or free them.
    FreeForeign {
        gpus: u32,
    },
    Uncordon {
        gpus: u32,
        hosts: u32,
    },
    /// So many are critical.
    RepairGpus {
        gpus: u32,
    },
    /// The outcome of an earlier operation on so many is open.
    ResolveGpus {
        gpus: u32,
    },
    /// So many are seen, but can't be moved.
    SeeWhyNotComposable {
        gpus: u32,
    },
    PowerOnHosts {
        hosts: u32,
    },
    /// Free so many slots on one host that has enough of them.
    FreeSlots {
        slots: u32,
    },
    /// Add a host with so many slots.
    AddHost {
        slots: u32,
    },
    /// The same set would fit now on several hosts.
    AllowSpanning,
    /// Cable hosts and GPUs to one fabric.
    Connect,
    /// Let go of so many that are attached across the uplinks of the switch.
    ReleaseAcross {
        fabric: FabricId,
        switch: SwitchId,
        gpus: u32,
    },
    /// Let so many be attached across the uplinks of the switch.
    RaiseUplinks {
        fabric: FabricId,
        switch: SwitchId,
        gpus: u32,
    },
    /// Let go of so many of what the tenant holds.
    ReleaseOf {
        tenant: TenantId,
        gpus: u32,
    },
    /// Let the tenant hold so many.
    RaiseLimit {
        tenant: TenantId,
        most: u32,
    },
    /// What is left for this demand is free for others once it is served, or gone.
    ServeFirst {
        demand: DemandId,
    },
    /// Ask again once what was lent is back.
    WaitForReturn {
        due: Timestamp,
    },
    /// Guarantee the tenant so many.
    Guarantee {
        tenant: TenantId,
        gpus: u32,
    },
}
