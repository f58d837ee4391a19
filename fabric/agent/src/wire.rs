//! What a manager and an agent say to each other: `POST /agent/v1/VERB`, JSON both ways.
//!
//! Invariants: a field that one side doesn't know is left alone by it, and one that is missing has a default, so that
//! agents and managers of versions next to each other work together. Of a version with another first number nothing is
//! believed.

use poolwright_driver::{Confirmation, DriverError, ErrorKind, Holder, HostTarget, Learned, Room};
use poolwright_model::id::GpuId;
use poolwright_model::topology::PciIds;
use poolwright_model::units::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What this side speaks.
pub const VERSION: &str = "1.0";
/// The name in a manager's certificate: nobody else is served.
pub const MANAGER: &str = "manager.poolwright";
/// Below it are the verbs.
pub const PATH: &str = "/agent/v1/";
/// The largest bodies, of a request and of an answer.
pub const LARGEST_REQUEST: usize = 64 << 10;
pub const LARGEST_ANSWER: usize = 1 << 20;

/// The name in the certificate of the agent on a host, by the UUID of its SMBIOS.
pub fn agent_name(smbios_uuid: &str) -> String {
    format!("agent-{}", smbios_uuid.to_ascii_lowercase())
}

/// A version that this side understands.
pub(crate) fn is_understood(version: &str) -> bool {
    let major = |version: &str| version.split('.').next().map(str::to_owned);
    major(version) == major(VERSION)
}

/// A request, whatever the verb.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// See [`HostTarget::epoch`].
    #[serde(default)]
    pub epoch: Option<u64>,
    #[serde(default)]
    pub target: Target,
}

/// The GPUs that a request is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    #[serde(default)]
    pub gpus: Vec<GpuId>,
    /// UUIDs and serial numbers.
    #[serde(default)]
    pub known_as: Vec<String>,
    /// As this host's kernel calls it.
    #[serde(default)]
    pub slot: Option<String>,
    /// See [`HostTarget::seen_at`].
    #[serde(default)]
    pub seen_at: Vec<String>,
    #[serde(default)]
    pub ids: Option<PciIds>,
    #[serde(default)]
    pub largest_bar: Option<Bytes>,
}

/// A request of the verb `ailing`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AilingAsked {
    /// GPUs that should be there.
    #[serde(default)]
    pub expected: Vec<Target>,
}

impl From<&HostTarget> for Request {
    fn from(target: &HostTarget) -> Self {
        Self {
            epoch: target.epoch,
            target: Target {
                gpus: target.gpus.clone(),
                known_as: target.known_as.clone(),
                slot: target.slot.clone(),
                seen_at: target.seen_at.clone(),
                ids: target.ids.clone(),
                largest_bar: target.largest_bar,
            },
        }
    }
}

/// An answer: what was asked for is `said`, or an `error` says why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    pub version: String,
    /// Another one after each start of the host.
    #[serde(default)]
    pub boot_id: Option<String>,
    /// The highest that was seen.
    #[serde(default)]
    pub epoch: Option<u64>,
    #[serde(default)]
    pub said: Option<Value>,
    #[serde(default)]
    pub error: Option<Refused>,
}

/// Why something was not said or done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub kind: Kind,
    pub message: String,
    #[serde(default)]
    pub hint: Option<String>,
}

/// See [`ErrorKind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    NoEffect,
    Conflict,
    CannotTell,
    /// Also what a newer agent may have a word for that this side doesn't know.
    #[serde(other)]
    OutcomeUnknown,
}

impl From<DriverError> for Refused {
    fn from(error: DriverError) -> Self {
        Self {
            kind: match error.kind {
                ErrorKind::NoEffect | ErrorKind::CredentialsRefused => Kind::NoEffect,
                ErrorKind::Conflict => Kind::Conflict,
                ErrorKind::CannotTell => Kind::CannotTell,
                ErrorKind::OutcomeUnknown => Kind::OutcomeUnknown,
            },
            message: error.message,
            hint: error.hint,
        }
    }
}

impl Kind {
    pub(crate) fn of_error(self) -> ErrorKind {
        match self {
            Self::NoEffect => ErrorKind::NoEffect,
            Self::Conflict => ErrorKind::Conflict,
            Self::CannotTell => ErrorKind::CannotTell,
            Self::OutcomeUnknown => ErrorKind::OutcomeUnknown,
        }
    }
}

/// The answer to `preflight`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "room", rename_all = "kebab-case")]
pub enum RoomSaid {
    Enough,
    NotEnough { reason: String },
    CannotTell { reason: String },
}

impl From<Room> for RoomSaid {
    fn from(room: Room) -> Self {
        match room {
            Room::Enough => Self::Enough,
            Room::NotEnough { reason } => Self::NotEnough { reason },
            Room::CannotTell { reason } => Self::CannotTell { reason },
        }
    }
}

impl From<RoomSaid> for Room {
    fn from(room: RoomSaid) -> Self {
        match room {
            RoomSaid::Enough => Self::Enough,
            RoomSaid::NotEnough { reason } => Self::NotEnough { reason },
            RoomSaid::CannotTell { reason } => Self::CannotTell { reason },
        }
    }
}

/// The answer to `verify`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum ConfirmationSaid {
    Seen {
        evidence: String,
        #[serde(default)]
        learned: Vec<Learned>,
    },
    NotSeen {
        reason: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        learned: Vec<Learned>,
    },
    CannotTell {
        reason: String,
    },
}

impl From<Confirmation> for ConfirmationSaid {
    fn from(confirmation: Confirmation) -> Self {
        match confirmation {
            Confirmation::Seen { evidence, learned } => Self::Seen { evidence, learned },
            Confirmation::NotSeen { reason, learned } => Self::NotSeen { reason, learned },
            Confirmation::CannotTell { reason } => Self::CannotTell { reason },
        }
    }
}

/// One who uses a GPU, in the answer to `holders`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderSaid {
    pub gpu: GpuId,
    #[serde(default)]
    pub pid: Option<u32>,
    pub command: String,
}

impl From<Holder> for HolderSaid {
    fn from(Holder { gpu, pid, command }: Holder) -> Self {
        Self { gpu, pid, command }
    }
}

impl From<HolderSaid> for Holder {
    fn from(HolderSaid { gpu, pid, command }: HolderSaid) -> Self {
        Self { gpu, pid, command }
    }
}

/// The answer to `ready`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadySaid {
    pub evidence: String,
}

/// The answer to what has nothing to tell but that it was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {}

/// The answer to `renew`: a request for a certificate (PKCS#10), in PEM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateRequest {
    pub csr: String,
}

/// The body of `renewed`: the certificate for that, in PEM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewCertificate {
    pub certificate: String,
}
