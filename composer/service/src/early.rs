//! What is attached before a window opens, so that it is there when it does: how long attaches take here, measured by
//! endpoint, and what was decided for which opening.
//!
//! Nothing is done early on a guess: where too few attaches were measured, GPUs are attached at the opening.

use crate::returns::p95;
use jiff::{SignedDuration, Timestamp};
use poolwright_model::id::{ControlEndpointId, DemandId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// No GPU is attached sooner than this before it is wanted, however long attaches take.
pub const EARLIEST: SignedDuration = SignedDuration::from_hours(1);

/// What a schedule has attached before its window opens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Early {
    /// For this opening.
    pub opens: Timestamp,
    #[cfg_attr(feature = "schema", schemars(with = "BTreeSet<String>"))]
    pub demands: BTreeSet<DemandId>,
}

/// How long before an opening its GPUs are attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lead {
    /// The 95th percentile of the attaches that were measured.
    pub p95_s: u32,
    pub measured: u32,
    /// The endpoint at which they were; nothing for all endpoints together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub at: Option<ControlEndpointId>,
    /// So many are done one after the other.
    pub rounds: u32,
}

/// Seconds that attaches took, by endpoint: of GPUs that were attached side by side, those of one round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attaches {
    /// GPUs that are attached side by side at one endpoint.
    side_by_side: u32,
    took_s: BTreeMap<ControlEndpointId, Vec<u32>>,
}

impl Attaches {
    pub fn new(side_by_side: usize) -> Self {
        Self {
            side_by_side: u32::try_from(side_by_side).unwrap_or(u32::MAX).max(1),
            took_s: BTreeMap::new(),
        }
    }

    fn rounds(&self, gpus: u32) -> u32 {
        gpus.div_ceil(self.side_by_side).max(1)
    }

    /// So many GPUs were attached at an endpoint within this time.
    pub fn took(&mut self, endpoint: ControlEndpointId, gpus: u32, seconds: u32) {
        let each = seconds.div_ceil(self.rounds(gpus)).max(1);
        self.took_s.entry(endpoint).or_default().push(each);
    }

    /// For so many GPUs, if all were attached at the slowest of these endpoints; an endpoint of which too little is known
    /// counts as all together do. `None` where too little is known of all.
    pub fn lead(&self, gpus: u32, endpoints: &BTreeSet<ControlEndpointId>) -> Option<Lead> {
        let rounds = self.rounds(gpus);
        let lead = |at: Option<ControlEndpointId>, took_s: &[u32]| {
            Some(Lead {
                p95_s: p95(took_s)?,
                measured: u32::try_from(took_s.len()).unwrap_or(u32::MAX),
                at,
                rounds,
            })
        };
        let all: Vec<u32> = self.took_s.values().flatten().copied().collect();
        let of = |endpoint: &ControlEndpointId| {
            let there = self.took_s.get(endpoint);
            let there = there.and_then(|there| lead(Some(endpoint.clone()), there));
            there.or_else(|| lead(None, &all))
        };
        endpoints
            .iter()
            .filter_map(of)
            .max_by(|a, b| (a.p95_s, &b.at).cmp(&(b.p95_s, &a.at)))
    }
}

impl Lead {
    pub fn length(&self) -> SignedDuration {
        SignedDuration::from_secs(i64::from(self.p95_s) * i64::from(self.rounds)).min(EARLIEST)
    }

    /// From when GPUs are attached for an opening.
    pub fn before(&self, opens: Timestamp) -> Timestamp {
        opens.saturating_sub(self.length()).unwrap_or(opens)
    }
}

/// As people read it: how long before, and why.
impl fmt::Display for Lead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            p95_s,
            measured,
            rounds,
            ..
        } = self;
        write!(
            f,
            "{} s before: attaches take {p95_s} s, the 95th percentile of {measured}",
            self.length().as_secs()
        )?;
        if let Some(at) = &self.at {
            write!(f, " at {at}")?;
        }
        match rounds {
            1 => Ok(()),
            rounds => write!(f, ", {rounds} of them one after the other"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(name: &str) -> ControlEndpointId {
        ControlEndpointId::new(name).unwrap()
    }

    fn measured() -> Attaches {
        let mut attaches = Attaches::new(8);
        for _ in 0..5 {
            // 24 at once are three rounds.
            attaches.took(endpoint("quick"), 24, 30);
            attaches.took(endpoint("slow"), 4, 90);
        }
        attaches.took(endpoint("new"), 1, 700);
        attaches
    }

    fn lead(gpus: u32, at: &[&str]) -> Option<Lead> {
        measured().lead(gpus, &at.iter().map(|name| endpoint(name)).collect())
    }

    #[test]
    fn the_lead_is_what_attaches_take_by_how_many_come_one_after_the_other() {
        let quick = lead(8, &["quick"]).unwrap();
        assert_eq!((quick.p95_s, quick.rounds, quick.measured), (10, 1, 5));
        let more = lead(17, &["quick"]).unwrap();
        assert_eq!(more.length(), SignedDuration::from_secs(30));
        assert_eq!(
            more.to_string(),
            "30 s before: attaches take 10 s, the 95th percentile of 5 at quick, 3 of them one after the other"
        );
        let opens: Timestamp = "2026-03-02T20:00:00Z".parse().unwrap();
        assert_eq!(more.before(opens).to_string(), "2026-03-02T19:59:30Z");
    }

    #[test]
    fn the_slowest_that_could_serve_counts_and_an_hour_is_the_most() {
        assert_eq!(lead(2, &["quick", "slow"]).unwrap().at, Some(endpoint("slow")));
        let new = lead(2, &["quick", "new"]).unwrap();
        assert_eq!(
            (new.at, new.p95_s),
            (None, 700),
            "of which little is known counts as all do"
        );
        assert_eq!(lead(10_000, &["slow"]).unwrap().length(), EARLIEST);
    }

    #[test]
    fn nothing_is_done_early_on_a_guess() {
        let mut attaches = Attaches::new(8);
        for _ in 0..4 {
            attaches.took(endpoint("a"), 1, 20);
        }
        assert_eq!(attaches.lead(1, &BTreeSet::from([endpoint("a")])), None);
        assert_eq!(lead(1, &[]), None);
    }
}
