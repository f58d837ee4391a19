//! How long it takes until what was lent is back: measured, by endpoint, and assumed only where nothing was.
//!
//! A slow box makes a lend unsafe that a quick one would allow, so each endpoint counts by itself. One at which too few
//! were measured counts as all together do, and what rests on that says so.

use jiff::SignedDuration;
use poolwright_model::id::ControlEndpointId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How long a return takes, by recompositions by the clock that there were.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Returns {
    /// The 95th percentile of those that were measured; an assumption where there are too few.
    pub p95_s: u32,
    /// So many of the latest count.
    pub measured: u32,
    /// The endpoint at which they were measured, the slowest of those concerned; nothing for all endpoints together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<ControlEndpointId>,
    /// Endpoints concerned at which too few were measured: they count as all together do.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub too_few_at: BTreeSet<ControlEndpointId>,
}

/// Seconds that one recomposition took: in all, and until the last of it was done at each endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Took {
    pub in_all_s: u32,
    pub at_s: BTreeMap<ControlEndpointId, u32>,
}

impl Returns {
    /// Fewer say nothing.
    const ENOUGH: usize = 5;
    /// So many of the latest count.
    const LATEST: usize = 100;
    /// What is assumed until enough were measured.
    const ASSUMED_S: u32 = 300;

    /// Of the seconds that each took, the latest last, whatever it touched.
    pub fn of(took_s: &[u32]) -> Self {
        let latest = &took_s[took_s.len().saturating_sub(Self::LATEST)..];
        Self {
            p95_s: p95(latest).unwrap_or(Self::ASSUMED_S),
            measured: latest.len() as u32,
            at: None,
            too_few_at: BTreeSet::new(),
        }
    }

    /// Of a return that touches these endpoints: as long as the slowest of them takes.
    pub fn at(took: &[Took], endpoints: &BTreeSet<ControlEndpointId>) -> Self {
        let in_all: Vec<u32> = took.iter().map(|took| took.in_all_s).collect();
        let all = Self::of(&in_all);
        let mut too_few_at = BTreeSet::new();
        let mut slowest: Option<Self> = None;
        for endpoint in endpoints {
            let there: Vec<u32> = took
                .iter()
                .filter_map(|took| took.at_s.get(endpoint).copied())
                .collect();
            let of_it = match there.len() >= Self::ENOUGH {
                true => Self {
                    at: Some(endpoint.clone()),
                    ..Self::of(&there)
                },
                false => {
                    too_few_at.insert(endpoint.clone());
                    all.clone()
                }
            };
            if slowest.as_ref().is_none_or(|slowest| of_it.p95_s > slowest.p95_s) {
                slowest = Some(of_it);
            }
        }
        Self {
            too_few_at,
            ..slowest.unwrap_or(all)
        }
    }

    /// Whether it was measured, and not assumed.
    pub(crate) fn is_measured(&self) -> bool {
        self.measured as usize >= Self::ENOUGH
    }

    /// The whole seconds before the closing at which a return begins.
    pub(crate) fn early(&self) -> SignedDuration {
        SignedDuration::from_secs(i64::from(self.p95_s.max(1)))
    }
}

/// The 95th percentile; nothing where there are too few.
pub(crate) fn p95(took_s: &[u32]) -> Option<u32> {
    let mut sorted = took_s.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * 95).div_ceil(100);
    let p95 = sorted.get(rank.checked_sub(1)?).copied();
    p95.filter(|_| sorted.len() >= Returns::ENOUGH)
}

impl fmt::Display for Returns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { p95_s, measured, .. } = self;
        match (self.is_measured(), &self.at) {
            (true, Some(at)) => write!(f, "{p95_s} s, the 95th percentile of {measured} at {at}")?,
            (true, None) => write!(f, "{p95_s} s, the 95th percentile of {measured}")?,
            (false, _) => write!(
                f,
                "{p95_s} s, which is assumed until {} were measured",
                Self::ENOUGH
            )?,
        }
        if self.is_measured() && !self.too_few_at.is_empty() {
            let too_few: Vec<&str> = self.too_few_at.iter().map(ControlEndpointId::as_str).collect();
            write!(
                f,
                "; fewer than {} at {}, so all count there",
                Self::ENOUGH,
                too_few.join(", ")
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(name: &str) -> ControlEndpointId {
        ControlEndpointId::new(name).unwrap()
    }

    #[test]
    fn returns_are_measured() {
        let times: Vec<u32> = (1..=100).collect();
        let returns = Returns::of(&times);
        assert_eq!((returns.p95_s, returns.measured), (95, 100));
        assert_eq!(Returns::of(&[7, 9, 8, 40, 6]).p95_s, 40);
        assert_eq!(Returns::of(&[7, 9, 8, 40]).p95_s, 300, "too few");
        let old_and_new: Vec<u32> = [vec![900; 50], vec![10; 100]].concat();
        assert_eq!(Returns::of(&old_and_new).p95_s, 10, "the latest count");
    }

    #[test]
    fn a_slow_box_counts_by_itself_and_one_of_which_little_is_known_as_all_do() {
        let took = |of: &[(&str, u32)]| Took {
            in_all_s: of.iter().map(|(_, s)| *s).max().unwrap(),
            at_s: of.iter().map(|(name, s)| (endpoint(name), *s)).collect(),
        };
        let mut all = vec![took(&[("quick", 20)]); 80];
        all.extend(vec![took(&[("quick", 22), ("slow", 700)]); 5]);
        all.push(took(&[("new", 15)]));
        let at = |names: &[&str]| Returns::at(&all, &names.iter().map(|name| endpoint(name)).collect());

        let slow = at(&["quick", "slow"]);
        assert_eq!((slow.p95_s, slow.at), (700, Some(endpoint("slow"))));
        // Beside a slow box it was no slower itself.
        let quick = at(&["quick"]);
        assert_eq!((quick.p95_s, quick.measured), (22, 85));
        assert_eq!(quick.to_string(), "22 s, the 95th percentile of 85 at quick");
        let new = at(&["new"]);
        assert_eq!(
            (new.p95_s, &new.at),
            (Returns::at(&all, &BTreeSet::new()).p95_s, &None)
        );
        assert!(
            new.to_string()
                .contains("fewer than 5 at new, so all count there"),
            "{new}"
        );
    }
}
