//! GPUs whose links have more correctable errors than a sound link. Pure: counts and times are inputs.
//!
//! A corrected error costs only time, so a suspect GPU stays attached. Many of them announce a failure of the link, of
//! one of its ends or of their mounting, and need an inspection.
//!
//! Invariants: no errors are invented. A counter reset adds none, and errors from an interval without readings are
//! spread over that interval. While errors are counted, a gap in the counts never clears a suspicion.

use crate::host::HostPlace;
use jiff::{SignedDuration, Timestamp};
use poolwright_driver::Counted;
use poolwright_model::id::{GpuId, HostId};
use poolwright_model::topology::{Gpu, Host};
use poolwright_store::Stored;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Errors within an hour that a sound link doesn't have: eight a minute, at which NVIDIA's DCGM warns of PCIe replays.
/// To apply that rate to all correctable errors, and over an hour, is our choice.
pub const USUAL_THRESHOLD: u32 = 480;

/// An hour is counted in steps, so that memory per GPU is bounded. `STEPS` includes the current, incomplete step.
const STEP_S: i64 = 300;
const STEPS: i64 = 13;
/// Hysteresis: a GPU is sound again at the threshold divided by this, so that a rate near the threshold does not flap.
const SOUND: u64 = 2;
const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// A GPU that is suspect. It stays in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Suspicion {
    pub gpu: GpuId,
    pub since: Timestamp,
    /// The GPU's host at that time.
    pub host: HostId,
    /// Place of the GPU at that time. Errors at a later place are not included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<GpuPlace>,
    /// Correctable errors on its link within the hour before.
    pub errors: u64,
    /// More errors than this within an hour make a GPU suspect.
    pub threshold: u32,
}

/// Location of a GPU: its slot, and the location of its host, which may itself be moved.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GpuPlace {
    #[serde(default)]
    pub chassis: Option<String>,
    #[serde(default)]
    pub slot: Option<String>,
    /// Fabric ports and BMC of its host.
    #[serde(default)]
    pub host: HostPlace,
}

impl GpuPlace {
    pub(crate) fn of(gpu: &Gpu, host: Option<&Host>) -> Self {
        Self {
            chassis: gpu.chassis.as_ref().map(ToString::to_string),
            slot: gpu.slot.clone(),
            host: host.map(HostPlace::of).unwrap_or_default(),
        }
    }
}

impl Suspicion {
    /// Whether the errors that made it suspect were at another place than this.
    pub(crate) fn is_elsewhere(&self, place: &GpuPlace) -> bool {
        self.place.as_ref().is_some_and(|then| then != place)
    }

    /// Such as ` in Slot 3 of box-1 (PCIe/switch-1/U2 and BMC host-3-bmc)`.
    fn told_place(&self) -> String {
        let Some(GpuPlace { chassis, slot, host }) = &self.place else {
            return String::new();
        };
        let of = chassis.iter().map(|chassis| format!(" of {chassis}"));
        let slot = slot.iter().map(|slot| format!(" in {slot}")).chain(of);
        let mut told: String = slot.collect();
        if *host != HostPlace::default() {
            told.push_str(&format!(" ({host})"));
        }
        told
    }
}

impl fmt::Display for Suspicion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            since,
            host,
            errors,
            threshold,
            ..
        } = self;
        write!(
            f,
            "its link had {errors} correctable errors at {host}{} within an hour, and more than {threshold} are suspect; \
             since {since}",
            self.told_place()
        )
    }
}

impl Stored for Suspicion {
    const KIND: &'static str = "suspicion";
    fn id(&self) -> &str {
        self.gpu.as_str()
    }
}

/// Errors on a GPU's link within the last hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rate {
    last: Counted,
    looked: Timestamp,
    /// Counted without a gap since then.
    from: Timestamp,
    steps: BTreeMap<i64, u64>,
}

impl Rate {
    /// Starts with a first count. Earlier errors are unknown and don't count.
    pub fn new(counted: Counted, at: Timestamp) -> Self {
        Self {
            last: counted,
            looked: at,
            from: at,
            steps: BTreeMap::new(),
        }
    }

    /// Takes a later count.
    pub fn note(&mut self, counted: Counted, at: Timestamp) {
        match counted.after(&self.last) {
            Some(more) => {
                let of_hour = within_hour(more, at.duration_since(self.looked));
                if of_hour > 0 {
                    let step = self.steps.entry(step(at)).or_default();
                    *step = step.saturating_add(of_hour);
                }
            }
            None => self.from = at,
        }
        (self.last, self.looked) = (counted, at);
        let now = step(at);
        self.steps
            .retain(|step, _| (now - STEPS + 1..=now).contains(step));
    }

    /// Errors within the hour before the last count.
    pub fn errors(&self) -> u64 {
        self.steps.values().fold(0, |sum, more| sum.saturating_add(*more))
    }

    /// Judges the link: suspect, sound, or not known, which leaves the earlier judgement in force.
    pub fn judge(&self, threshold: u32) -> Judgement {
        let whole = self.looked.duration_since(self.from) >= HOUR;
        match self.errors() > u64::from(threshold) {
            true => Judgement::Suspect,
            false if whole && self.errors() <= u64::from(threshold) / SOUND => Judgement::Sound,
            false => Judgement::NotKnown,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    Suspect,
    /// Few errors in a whole hour of counting.
    Sound,
    NotKnown,
}

fn step(at: Timestamp) -> i64 {
    at.as_second().div_euclid(STEP_S)
}

/// The share of `more` errors, evenly spread over `over`, that falls into the last hour.
fn within_hour(more: u64, over: SignedDuration) -> u64 {
    let (hour, over) = (HOUR.as_secs().unsigned_abs(), over.as_secs());
    match u64::try_from(over) {
        Ok(over) if over > hour => {
            let part = u128::from(more) * u128::from(hour) / u128::from(over);
            u64::try_from(part).unwrap_or(u64::MAX)
        }
        _ => more,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_second(1_772_400_000 + 60 * minutes).unwrap()
    }

    fn counted(count: u64) -> Counted {
        told(count, "boot-1/0000:41:00.0@7")
    }

    fn told(count: u64, since: &str) -> Counted {
        Counted {
            count,
            since: since.to_owned(),
        }
    }

    /// The rate of a link from pairs of minute and count.
    fn rate(counts: &[(i64, u64)]) -> Rate {
        let (first, later) = counts.split_first().unwrap();
        let mut rate = Rate::new(counted(first.1), at(first.0));
        for (minutes, count) in later {
            rate.note(counted(*count), at(*minutes));
        }
        rate
    }

    #[test]
    fn what_was_counted_before_anybody_looked_is_no_flood() {
        let rate = rate(&[(0, 1_000_000), (1, 1_000_000)]);
        assert_eq!((rate.errors(), rate.judge(480)), (0, Judgement::NotKnown));
    }

    #[test]
    fn a_flood_is_suspect_at_once_and_a_trickle_is_sound_after_an_hour() {
        assert_eq!(rate(&[(0, 0), (1, 481)]).judge(480), Judgement::Suspect);
        assert_eq!(rate(&[(0, 0), (1, 480)]).judge(480), Judgement::NotKnown);
        let trickle: Vec<(i64, u64)> = (0..=60_i64).map(|n| (n, n.unsigned_abs() * 4)).collect();
        assert_eq!(rate(&trickle).judge(480), Judgement::Sound);
        let at_the_edge: Vec<(i64, u64)> = (0..=60_i64).map(|n| (n, n.unsigned_abs() * 7)).collect();
        assert_eq!(rate(&at_the_edge).judge(480), Judgement::NotKnown);
        let flood: Vec<(i64, u64)> = (0..=60_i64).map(|n| (n, n.unsigned_abs() * 10)).collect();
        assert_eq!(rate(&flood).judge(480), Judgement::Suspect);
    }

    #[test]
    fn what_is_longer_ago_than_an_hour_is_not_counted() {
        let mut rate = rate(&[(0, 0), (1, 5000)]);
        rate.note(counted(5001), at(50));
        assert_eq!(rate.errors(), 5001);
        rate.note(counted(5002), at(70));
        assert_eq!((rate.errors(), rate.judge(480)), (2, Judgement::Sound));
    }

    #[test]
    fn a_count_that_begins_anew_is_no_flood_and_says_nothing_of_the_hour() {
        for anew in [
            counted(3),
            told(100_000, "boot-2/0000:41:00.0@7"),
            told(u64::MAX, "boot-1/0000:41:00.0@8"),
        ] {
            let mut rate = rate(&[(0, 50_000), (90, 50_100)]);
            let before = rate.errors();
            rate.note(anew.clone(), at(91));
            assert!(rate.errors() <= before, "{anew:?}");
            assert_eq!(rate.judge(480), Judgement::NotKnown, "{anew:?}");
        }
    }

    #[test]
    fn what_came_while_nobody_looked_is_spread_over_that_time() {
        // Ten hours with 100 errors each.
        assert_eq!(rate(&[(0, 0), (600, 1000)]).errors(), 100);
        assert_eq!(rate(&[(0, 0), (600, u64::MAX)]).errors(), u64::MAX / 10);
    }

    #[test]
    fn a_clock_that_is_set_makes_no_errors() {
        let mut rate = rate(&[(0, 0), (1, 400), (-600, 400)]);
        assert_eq!(rate.errors(), 0, "what is to come has not come");
        rate.note(counted(401), at(600));
        assert!(rate.errors() <= 1);
    }

    proptest::proptest! {
        /// For any sequence of resets, gaps and reading times: the errors of an hour never exceed the growth of the
        /// counter, and memory stays bounded.
        #[test]
        fn no_more_is_counted_than_came(
            looks in proptest::collection::vec((-10_i64..200, 0_u64..2000, 0_u8..8), 1..200),
        ) {
            let (mut minutes, mut count, mut stay, mut grew) = (0, 0, 0, 0_u64);
            let mut rate = Rate::new(told(0, "0"), at(0));
            for (later, more, fate) in looks {
                minutes += later;
                match fate {
                    // It went back, under the same name or another.
                    0 => count = 0,
                    1 => (stay, count) = (stay + 1, more * 1000),
                    _ => (count, grew) = (count + more, grew + more),
                }
                rate.note(told(count, &stay.to_string()), at(minutes));
                proptest::prop_assert!(rate.errors() <= grew);
                proptest::prop_assert!(rate.steps.len() <= 12);
            }
        }
    }
}
