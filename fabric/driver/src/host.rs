//! The host's side: whether there is room, whether it sees a GPU, who uses it.
//!
//! A BMC answers some of it; an agent on the host answers all of it.

use crate::{Ailment, DriverError, Learned, Reading};
use async_trait::async_trait;
use poolwright_model::id::{ControlEndpointId, GpuId, HostId, HostPortId};
use poolwright_model::topology::PciIds;
use poolwright_model::units::Bytes;
use std::fmt;
use std::time::Duration;

/// What the host is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostTarget {
    pub host: HostId,
    pub host_port: HostPortId,
    pub gpus: Vec<GpuId>,
    /// UUIDs or serial numbers by which the host knows these GPUs. Where there is none, and a slot, whatever sits there is
    /// meant.
    pub known_as: Vec<String>,
    /// What the host's kernel calls the slot of this port, where the fabric knows it.
    pub slot: Option<String>,
    /// Where this host's kernel had these GPUs when it told of them last: one that is dead has no other name.
    pub seen_at: Vec<String>,
    /// The PCI ids that each of these GPUs has, where that is known.
    pub ids: Option<PciIds>,
    /// What the largest register of each wants of the window above it, where that is known.
    pub largest_bar: Option<Bytes>,
    /// Number of the lease under which a manager asks: who has a lower one than was seen before changes nothing. `None`
    /// where there is but one manager.
    pub epoch: Option<u64>,
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
    /// Seen; `evidence` says by whom, such as `bmc host-1`, and `learned` what it has told of each of them.
    Seen {
        evidence: String,
        learned: Vec<Learned>,
    },
    /// Not seen, or not all of them. Where others sit in the slot that was named, they are `learned`: no wait brings
    /// those that were meant.
    NotSeen {
        reason: String,
        learned: Vec<Learned>,
    },
    CannotTell {
        reason: String,
    },
}

impl Confirmation {
    /// They are not there, or not all of them, and may still come.
    pub fn not_seen(reason: impl Into<String>) -> Self {
        Self::NotSeen {
            reason: reason.into(),
            learned: Vec::new(),
        }
    }
}

/// Somebody who uses a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub gpu: GpuId,
    pub pid: Option<u32>,
    pub command: String,
}

impl fmt::Display for Holder {
    /// Such as `gpu-1 by python3 train.py (process 4711)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gpu, pid, command } = self;
        match pid {
            Some(pid) => write!(f, "{gpu} by {command} (process {pid})"),
            None => write!(f, "{gpu} by {command}"),
        }
    }
}

/// The refusal to let go of GPUs that somebody uses. `place` is where, such as ` on host-1`.
pub fn in_use(place: &str, holders: &[Holder]) -> DriverError {
    let names: Vec<_> = holders.iter().map(Holder::to_string).collect();
    let message = format!("in use{place}: {}", names.join(", "));
    DriverError::no_effect(message).with_hint("end it, or force with a reason")
}

/// Something that speaks for a host: its BMC, or an agent on it.
#[async_trait]
pub trait HostSide: Send + Sync {
    /// The endpoint that answers; for evidence and faults.
    fn endpoint(&self) -> &ControlEndpointId;

    /// Which start of the host this is: another name after each. `None` where this endpoint can't tell.
    async fn started(
        &self,
        _target: &HostTarget,
        _deadline: Duration,
    ) -> Result<Option<String>, DriverError> {
        Ok(None)
    }

    /// Whether the host has room for the GPUs. Changes nothing.
    async fn preflight(&self, target: &HostTarget, deadline: Duration) -> Result<Room, DriverError>;

    /// Looks once whether the host sees the GPUs. Changes nothing; the caller repeats it.
    async fn verify(&self, target: &HostTarget, deadline: Duration) -> Result<Confirmation, DriverError>;

    /// Who uses the GPUs. `Err` of kind `CannotTell` where this endpoint doesn't know.
    async fn holders(&self, target: &HostTarget, deadline: Duration) -> Result<Vec<Holder>, DriverError>;

    /// GPUs of the host that fail, and how, with those that should be there and are gone. Changes nothing; `CannotTell`
    /// where this endpoint doesn't know.
    async fn ailing(
        &self,
        _expected: &[HostTarget],
        _deadline: Duration,
    ) -> Result<Vec<Ailment>, DriverError> {
        let message = format!("{} does not tell which GPUs fail", self.endpoint());
        Err(DriverError::cannot_tell(message))
    }

    /// Measures each GPU that the host has, once. Changes nothing; `CannotTell` where this endpoint doesn't measure.
    async fn readings(&self, _deadline: Duration) -> Result<Vec<Reading>, DriverError> {
        let message = format!("{} does not measure its GPUs", self.endpoint());
        Err(DriverError::cannot_tell(message))
    }

    /// Whether a host can be made to let go of GPUs through this endpoint at all. Where not, [`HostSide::drain`] and
    /// [`HostSide::undrain`] say so and send nothing.
    fn can_drain(&self) -> bool {
        true
    }

    /// Makes the host let go of the GPUs: new work is stopped first, then it is seen who uses them, and while somebody does
    /// it is refused ([`in_use`]) and nothing of it is left. `CannotTell` where this endpoint can't do that.
    async fn drain(&self, target: &HostTarget, deadline: Duration) -> Result<(), DriverError>;

    /// What the host could not put back as it was when it let go of the GPUs, each with the reason: they are not clean for
    /// anybody else. Asked after [`HostSide::drain`], and changes nothing; `CannotTell` where this endpoint doesn't know.
    async fn left(&self, _target: &HostTarget, _deadline: Duration) -> Result<Vec<String>, DriverError> {
        let message = format!("{} does not tell what GPUs were set to", self.endpoint());
        Err(DriverError::cannot_tell(message))
    }

    /// Takes a drain back.
    async fn undrain(&self, target: &HostTarget, deadline: Duration) -> Result<(), DriverError>;

    /// Whether GPUs can be made ready through this endpoint at all. Where not, [`HostSide::make_ready`] and
    /// [`HostSide::unready`] are not called.
    fn can_make_ready(&self) -> bool {
        false
    }

    /// Sees that GPUs that came are well, gives them the host's profile, and tells its software of them; gives what was
    /// seen and done. Where it fails nothing of it is left. Doing it twice is as good as once.
    async fn make_ready(&self, _target: &HostTarget, _deadline: Duration) -> Result<String, DriverError> {
        let message = format!("{} does not make GPUs ready", self.endpoint());
        Err(DriverError::cannot_tell(message))
    }

    /// Takes that back: they are as they came.
    async fn unready(&self, _target: &HostTarget, _deadline: Duration) -> Result<(), DriverError> {
        let message = format!("{} does not make GPUs ready", self.endpoint());
        Err(DriverError::cannot_tell(message))
    }

    /// Ends the session at the service. Called once, at exit.
    async fn close(&self) {}
}
