//! GPUs that failed: out of use until they have been burnt in, with the evidence, and every failure counted.

use crate::hooks::HookEnd;
use jiff::Timestamp;
use poolwright_executor::GpuRecord;
use poolwright_model::id::{GpuId, HostId};
use poolwright_model::topology::Gpu;
use poolwright_store::Stored;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Failures that are remembered of a GPU, and burn-ins that it passed: the latest.
const MOST_KEPT: usize = 100;

/// How a GPU failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Its driver reported this error, by NVIDIA's number.
    Xid(u32),
    /// A fatal error on its link, by PCI Express's Advanced Error Reporting.
    FatalAer,
    /// Gone without a word.
    Gone,
    /// Its host saw another GPU in its place, or one that is known by another name.
    Identity,
    /// Its last host could not put it back as it was.
    Unclean,
    /// Somebody says so.
    Reported,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Xid(number) => write!(f, "Xid {number}"),
            Self::FatalAer => f.write_str("fatal error on its link"),
            Self::Gone => f.write_str("gone without a word"),
            Self::Identity => f.write_str("another GPU than was known"),
            Self::Unclean => f.write_str("not put back as it was"),
            Self::Reported => f.write_str("reported"),
        }
    }
}

/// What somebody tells of a GPU that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    pub cause: Cause,
    /// In words: a line of the kernel's log, a ticket.
    #[serde(default)]
    pub says: String,
    /// That of the GPU, where it is known.
    #[serde(default)]
    pub firmware: Option<String>,
    /// Names this failure alone: told again, it is not counted once more.
    #[serde(default)]
    pub event: Option<String>,
}

/// What was known of a GPU when it failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    pub uuid: Option<String>,
    pub serial: Option<String>,
    pub pcie_serial: Option<String>,
    pub model: Option<String>,
    pub firmware: Option<String>,
    pub chassis: Option<String>,
    pub slot: Option<String>,
    pub host: Option<HostId>,
    /// In words, as whoever noticed it told it.
    #[serde(default)]
    pub says: String,
}

impl Evidence {
    pub fn of(gpu: &Gpu) -> Self {
        Self {
            uuid: gpu.uuid.clone(),
            serial: gpu.serial.clone(),
            pcie_serial: gpu.pcie_serial.clone(),
            model: gpu.model.clone(),
            firmware: None,
            chassis: gpu.chassis.as_ref().map(ToString::to_string),
            slot: gpu.slot.clone(),
            host: gpu.host.clone(),
            says: String::new(),
        }
    }

    /// Where it sat; two GPUs that fail in one place may both be well.
    pub fn place(&self) -> Option<(&str, &str)> {
        self.chassis.as_deref().zip(self.slot.as_deref())
    }
}

/// A GPU that is out of use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Quarantine {
    pub gpu: GpuId,
    pub since: Timestamp,
    /// Who put it there.
    pub by: String,
    pub cause: Cause,
    pub evidence: Evidence,
    /// How telling the scheduler went; `None` where no hook does, or it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<HookEnd>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burn_in: Option<BurnIn>,
}

/// The last burn-in of a GPU; the one that passes ends its quarantine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BurnIn {
    pub began: Timestamp,
    pub by: String,
    /// It is over by then, one way or the other.
    pub until: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<HookEnd>,
}

impl Quarantine {
    /// Why it is given to nobody.
    pub fn tell(&self) -> String {
        let Self {
            cause,
            since,
            evidence,
            ..
        } = self;
        let says = match evidence.says.as_str() {
            "" => String::new(),
            says => format!(" ({says})"),
        };
        format!(
            "{cause}{says}, since {since}; back once it is burnt in: poolwright gpu return {}",
            self.gpu
        )
    }
}

impl Stored for Quarantine {
    const KIND: &'static str = "quarantine";
    fn id(&self) -> &str {
        self.gpu.as_str()
    }
}

/// GPUs that nobody has and that their last host could not put back as they were, and what it left.
pub(crate) fn unclean<'r>(
    records: impl Iterator<Item = &'r GpuRecord>,
) -> impl Iterator<Item = (GpuId, String)> {
    let unclean = records.filter(|record| record.host.is_none() && !record.left.is_empty());
    unclean.map(|record| (record.gpu.clone(), record.left.join("; ")))
}

/// One failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Strike {
    pub at: Timestamp,
    pub cause: Cause,
    pub evidence: Evidence,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
}

/// What a GPU has gone through. It stays when the GPU goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GpuHistory {
    pub gpu: GpuId,
    #[serde(default)]
    pub strikes: Vec<Strike>,
    /// Burn-ins that it passed.
    #[serde(default)]
    pub passed: Vec<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_by: Option<Replacement>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<Replacement>,
}

/// Another GPU came in the place of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Replacement {
    pub gpu: GpuId,
    pub at: Timestamp,
    pub by: String,
}

impl GpuHistory {
    pub fn of(gpu: &GpuId) -> Self {
        Self {
            gpu: gpu.clone(),
            strikes: Vec::new(),
            passed: Vec::new(),
            replaced_by: None,
            replaces: None,
        }
    }

    /// Whether that failure was counted.
    pub fn knows(&self, event: &str) -> bool {
        let mut strikes = self.strikes.iter().rev();
        strikes.any(|strike| strike.event.as_deref() == Some(event))
    }

    pub fn strike(&mut self, strike: Strike) {
        keep(&mut self.strikes, strike);
    }

    /// A burn-in.
    pub fn passed(&mut self, at: Timestamp) {
        keep(&mut self.passed, at);
    }
}

/// The latest alone.
fn keep<T>(all: &mut Vec<T>, new: T) {
    if all.len() >= MOST_KEPT {
        all.remove(0);
    }
    all.push(new);
}

impl Stored for GpuHistory {
    const KIND: &'static str = "gpu-history";
    fn id(&self) -> &str {
        self.gpu.as_str()
    }
}

/// A GPU's history, with what happened to others in the place where it sits, or sat when it failed last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct History {
    #[serde(flatten)]
    pub of: GpuHistory,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Quarantine>,
    /// Failures in that place, of all GPUs that were there.
    pub strikes_of_slot: usize,
}
