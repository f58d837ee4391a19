//! The host's side: whether there is room, whether it sees a GPU, who uses it.
//!
//! A BMC answers some of it; an agent on the host answers all of it.

use crate::DriverError;
use async_trait::async_trait;
use poolwright_model::id::{ControlEndpointId, GpuId, HostId, HostPortId};
use std::time::Duration;

/// What the host is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostTarget {
    pub host: HostId,
    pub host_port: HostPortId,
    pub gpus: Vec<GpuId>,
    /// UUIDs or serial numbers by which the host knows these GPUs.
    pub known_as: Vec<String>,
}

/// Room for more GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Room {
    Enough,
    /// Names what is missing: slots, bridge window, bus numbers.
    NotEnough {
        reason: String,
    },
    CannotTell {
        reason: String,
    },
}

/// Whether the host sees the GPUs as it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Confirmation {
    /// Seen; `evidence` says by whom, such as `bmc host-1`.
    Seen {
        evidence: String,
    },
    /// Not seen, or not all of them.
    NotSeen {
        reason: String,
    },
    CannotTell {
        reason: String,
    },
}

/// Somebody who uses a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub gpu: GpuId,
    pub pid: Option<u32>,
    pub command: String,
}

/// Something that speaks for a host: its BMC, or an agent on it.
#[async_trait]
pub trait HostSide: Send + Sync {
    /// The endpoint that answers; for evidence and faults.
    fn endpoint(&self) -> &ControlEndpointId;

    /// Whether the host has room for the GPUs. Changes nothing.
    async fn preflight(&self, target: &HostTarget, deadline: Duration) -> Result<Room, DriverError>;

    /// Looks once whether the host sees the GPUs. Changes nothing; the caller repeats it.
    async fn verify(&self, target: &HostTarget, deadline: Duration) -> Result<Confirmation, DriverError>;

    /// Who uses the GPUs. `Err` of kind `CannotTell` where this endpoint doesn't know.
    async fn holders(&self, target: &HostTarget, deadline: Duration) -> Result<Vec<Holder>, DriverError>;

    /// Whether a host can be made to let go of GPUs through this endpoint at all. Where not, [`HostSide::drain`] and
    /// [`HostSide::undrain`] say so and send nothing.
    fn can_drain(&self) -> bool {
        true
    }

    /// Makes the host let go of the GPUs. `CannotTell` where this endpoint can't do that.
    async fn drain(&self, target: &HostTarget, deadline: Duration) -> Result<(), DriverError>;

    /// Takes a drain back.
    async fn undrain(&self, target: &HostTarget, deadline: Duration) -> Result<(), DriverError>;

    /// Ends the session at the service. Called once, at exit.
    async fn close(&self) {}
}
