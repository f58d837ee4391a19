//! What was measured of GPUs, with when that was: what is old says so, and is never told as if it were now. Pure.

use crate::composer::Observed;
use crate::suspicion::Suspicion;
use jiff::Timestamp;
use poolwright_driver::{LinkSeen, Reading};
use poolwright_model::id::{GpuId, HostId};
use poolwright_model::topology::Gpu;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Measured longer ago than so many times the rate, it is old.
const RATES: u32 = 2;

/// What was measured of a GPU last, and how old that is. `None`: its host doesn't say, which is no zero.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Telemetry {
    pub gpu: GpuId,
    /// Whose agent told it.
    pub host: HostId,
    /// It is no older than this.
    pub at: Timestamp,
    /// How long ago that was when this was answered.
    pub age_s: u64,
    /// That is longer ago than two times the rate: how it is now is not known.
    pub stale: bool,
    /// Of the time, how much something ran on it.
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
    /// Errors on its link since its ends came, that were put right.
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
    /// As it is told at a time, where it is measured at this rate.
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

/// A GPU as it is seen, with what was measured of it last, and what is thought of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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
