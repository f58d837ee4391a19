//! GPU readings with their time. Old readings are marked as stale and never shown as current. Pure.

use crate::composer::Observed;
use crate::suspicion::Suspicion;
use jiff::Timestamp;
use poolwright_driver::{LinkSeen, Reading};
use poolwright_model::id::{GpuId, HostId};
use poolwright_model::topology::Gpu;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A reading older than this many polling intervals is stale.
const RATES: u32 = 2;

/// The last reading of a GPU, and its age. `None`: the host does not report the value, which is not zero.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Telemetry {
    pub gpu: GpuId,
    /// The host whose agent reported it.
    pub host: HostId,
    /// The reading is no older than this.
    pub at: Timestamp,
    /// Age of the reading at the time of the answer.
    pub age_s: u64,
    /// The reading is older than two polling intervals: the current state is unknown.
    pub stale: bool,
    /// Share of the time in which the GPU was busy.
    pub utilization_percent: Option<u32>,
    pub memory_bytes: Option<u64>,
    pub memory_used_bytes: Option<u64>,
    pub power_mw: Option<u32>,
    /// Since its driver was loaded.
    pub energy_mj: Option<u64>,
    pub temperature_c: Option<u32>,
    /// An idle GPU slows its link down.
    pub link: Option<LinkSeen>,
    pub best_link: Option<LinkSeen>,
    /// Correctable errors on its link since both ends of the link were enumerated.
    pub correctable_errors: Option<u64>,
    /// Those of the hour before `at`, as far as they were counted.
    pub correctable_errors_in_hour: Option<u64>,
}

/// As it was measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Measurement {
    pub host: HostId,
    pub at: Timestamp,
    pub reading: Reading,
}

impl Measurement {
    /// The telemetry at `now`, with a polling interval of `rate`.
    pub fn told(&self, gpu: &GpuId, in_hour: Option<u64>, now: Timestamp, rate: Duration) -> Telemetry {
        // A clock that was set back makes nothing younger than now.
        let age = Duration::try_from(now.duration_since(self.at)).unwrap_or_default();
        let reading = &self.reading;
        Telemetry {
            gpu: gpu.clone(),
            host: self.host.clone(),
            at: self.at,
            age_s: age.as_secs(),
            stale: age > rate * RATES || self.at > now,
            utilization_percent: reading.utilization_percent,
            memory_bytes: reading.memory_bytes,
            memory_used_bytes: reading.memory_used_bytes,
            power_mw: reading.power_mw,
            energy_mj: reading.energy_mj,
            temperature_c: reading.temperature_c,
            link: reading.link,
            best_link: reading.best_link,
            correctable_errors: reading.correctable.as_ref().map(|counted| counted.count),
            correctable_errors_in_hour: in_hour,
        }
    }
}

/// An observed GPU with its last reading and its suspicion, if any.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuShown {
    #[serde(flatten)]
    pub seen: Observed<Gpu>,
    /// Why it is suspect, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspect: Option<Suspicion>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<Telemetry>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_old_says_so() {
        let at: Timestamp = "2026-03-02T12:00:00Z".parse().unwrap();
        let measured = Measurement {
            host: HostId::from_lossy("host-1"),
            at,
            reading: Reading {
                power_mw: Some(71_250),
                ..Reading::default()
            },
        };
        let told = |seconds: i64| {
            let now = at + jiff::SignedDuration::from_secs(seconds);
            let told = measured.told(&GpuId::from_lossy("g"), None, now, Duration::from_secs(30));
            assert_eq!((told.at, told.power_mw, told.energy_mj), (at, Some(71_250), None));
            (told.age_s, told.stale)
        };
        assert_eq!(told(0), (0, false));
        assert_eq!(told(60), (60, false));
        assert_eq!(told(61), (61, true));
        assert_eq!(told(86_400), (86_400, true));
        assert_eq!(told(-5), (0, true), "nobody knows how old it is");
    }
}
