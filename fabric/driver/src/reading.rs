//! What a host measures of its GPUs: numbers that change all the time, each as it was when it was read.

use crate::LinkSeen;
use serde::{Deserialize, Serialize};

/// A GPU of a host, measured once, as the host sees it. `None`: the host doesn't say, which is no zero.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reading {
    /// Where it sits on this host, such as `0000:41:00.0`.
    pub address: String,
    pub slot: Option<String>,
    /// UUIDs and serial numbers.
    pub known_as: Vec<String>,
    /// Its link as it is. An idle GPU slows it down.
    pub link: Option<LinkSeen>,
    pub best_link: Option<LinkSeen>,
    /// Errors on its link that the link itself put right.
    pub correctable: Option<Counted>,
    pub memory_bytes: Option<u64>,
    pub memory_used_bytes: Option<u64>,
    /// The share of recent time in which the GPU was busy.
    pub utilization_percent: Option<u32>,
    pub power_mw: Option<u32>,
    /// Since its driver was loaded.
    pub energy_mj: Option<u64>,
    pub temperature_c: Option<u32>,
}

/// A counter that only grows until it restarts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    pub count: u64,
    /// Identifies the counter and its start: counts with different values are not comparable.
    pub since: String,
}

impl Counted {
    /// The increase since an earlier count; `None` if the counter restarted in between.
    pub fn after(&self, earlier: &Self) -> Option<u64> {
        let same = self.since == earlier.since;
        same.then(|| self.count.checked_sub(earlier.count))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_began_anew_is_no_difference() {
        let counted = |count, since: &str| Counted {
            count,
            since: since.to_owned(),
        };
        assert_eq!(counted(5, "a").after(&counted(3, "a")), Some(2));
        assert_eq!(counted(3, "a").after(&counted(3, "a")), Some(0));
        assert_eq!(counted(2, "a").after(&counted(3, "a")), None, "it went back");
        assert_eq!(counted(5, "b").after(&counted(3, "a")), None, "another count");
        assert_eq!(counted(u64::MAX, "a").after(&counted(0, "a")), Some(u64::MAX));
    }
}
