//! GPUs that failed: out of use until they have been burnt in, with the evidence, and every failure counted.

use crate::hooks::HookEnd;
use jiff::{SignedDuration, Timestamp};
use poolwright_driver::Whereabouts;
use poolwright_executor::GpuRecord;
use poolwright_model::id::{ControlEndpointId, GpuId, HostId};
use poolwright_model::topology::Gpu;
use poolwright_store::Stored;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Failures that are remembered of a GPU, and burn-ins that it passed: the latest.
const MOST_KEPT: usize = 100;

/// How a GPU failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
            firmware: gpu.firmware.clone(),
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Strike {
    pub at: Timestamp,
    pub cause: Cause,
    pub evidence: Evidence,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
}

/// What a GPU has gone through. It stays when the GPU goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuHistory {
    pub gpu: GpuId,
    #[serde(default)]
    pub strikes: Vec<Strike>,
    /// The last failure of each cause that was counted, for each start of its host: known also once its strike is
    /// forgotten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heard: Vec<Heard>,
    /// Burn-ins that it passed.
    #[serde(default)]
    pub passed: Vec<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_by: Option<Replacement>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<Replacement>,
}

/// Earlier versions kept no such number.
fn never(tries: &u32) -> bool {
    *tries == 0
}

/// The last attempt to switch the locator LED of a GPU. The record outlives the GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Light {
    pub gpu: GpuId,
    pub at: Timestamp,
    pub by: String,
    /// The requested state.
    pub lit: bool,
    /// Why the attempt failed, or why its result is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// The endpoint that switches the locator, also after no endpoint shows the GPU any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub endpoint: Option<ControlEndpointId>,
    #[serde(default)]
    pub place: Whereabouts,
    /// Consecutive failed attempts of the manager.
    #[serde(default, skip_serializing_if = "never")]
    pub tries: u32,
}

impl Light {
    /// Delay after the first failed attempt. It doubles with each further failure.
    const AGAIN: SignedDuration = SignedDuration::from_secs(30);
    /// Maximum delay between attempts.
    const RARELY: SignedDuration = SignedDuration::from_hours(1);

    /// Whether a retry is due: an unreachable endpoint may be back, or a pause may be over.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        let doubled = self.tries.saturating_sub(1).min(16);
        let wait = Self::AGAIN.saturating_mul(1 << doubled).min(Self::RARELY);
        self.tries > 0 && now.duration_since(self.at) >= wait
    }
}

impl Stored for Light {
    const KIND: &'static str = "gpu-light";
    fn id(&self) -> &str {
        self.gpu.as_str()
    }
}

impl fmt::Display for Light {
    /// Such as `its locator is lit since 2026-03-02T12:00:00Z, by the manager`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, by, .. } = self;
        match (self.lit, &self.failed) {
            (true, None) => write!(f, "its locator is lit since {at}, by {by}"),
            (false, None) => write!(f, "its locator was put out at {at}, by {by}"),
            (true, Some(why)) => write!(f, "its locator could not be lit at {at}, by {by}: {why}"),
            (false, Some(why)) => write!(f, "its locator could not be put out at {at}, by {by}: {why}"),
        }
    }
}

/// A failure that was counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Heard {
    pub cause: Cause,
    pub event: String,
}

impl Heard {
    /// Agents begin the name of a failure with the start of the host.
    fn start(&self) -> &str {
        self.event.split('/').next().unwrap_or_default()
    }
}

/// Another GPU came in the place of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
            heard: Vec::new(),
            passed: Vec::new(),
            replaced_by: None,
            replaces: None,
        }
    }

    /// Whether that failure was counted.
    pub fn knows(&self, event: &str) -> bool {
        let of_strikes = self.strikes.iter().filter_map(|strike| strike.event.as_deref());
        let heard = self.heard.iter().map(|heard| heard.event.as_str());
        of_strikes.chain(heard).any(|known| known == event)
    }

    pub fn strike(&mut self, strike: Strike) {
        if let Some(event) = strike.event.clone() {
            let cause = strike.cause;
            let last = Heard { cause, event };
            self.heard
                .retain(|known| known.cause != last.cause || known.start() != last.start());
            keep(&mut self.heard, last);
        }
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct History {
    #[serde(flatten)]
    pub of: GpuHistory,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Quarantine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub light: Option<Light>,
    /// Failures in that place, of all GPUs that were there.
    pub strikes_of_slot: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn struck(history: &mut GpuHistory, cause: Cause, event: &str) {
        history.strike(Strike {
            at: Timestamp::UNIX_EPOCH,
            cause,
            evidence: Evidence::default(),
            event: Some(event.to_owned()),
        });
    }

    #[test]
    fn the_last_failure_of_a_cause_is_known_also_once_its_strike_is_forgotten() {
        let mut history = GpuHistory::of(&GpuId::from_lossy("gpu-1"));
        struck(&mut history, Cause::FatalAer, "boot-1/aer/1");
        struck(&mut history, Cause::Xid(79), "boot-1/kmsg/8");
        struck(&mut history, Cause::Xid(79), "boot-2/kmsg/3");
        for n in 0..2 * MOST_KEPT {
            struck(&mut history, Cause::Xid(48), &format!("boot-2/kmsg/{}", 100 + n));
        }
        assert_eq!(history.strikes.len(), MOST_KEPT);
        for known in [
            "boot-1/aer/1",
            "boot-1/kmsg/8",
            "boot-2/kmsg/3",
            "boot-2/kmsg/299",
        ] {
            assert!(history.knows(known), "{known}");
        }
        assert!(!history.knows("boot-2/kmsg/300"));
        assert_eq!(history.heard.len(), 4, "one for each cause and start");
    }
}
