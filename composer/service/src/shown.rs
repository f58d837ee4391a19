//! The pool as it is shown: what was seen, in one, with what is written down laid over it. Pure.
//!
//! Kept, and made anew only where something changed: what a plan costs does not grow with the pool.

use crate::books::{Pages, Since};
use crate::missing::{Vanished, show_missing};
use crate::view::{Known, LookedAt, overlay};
use poolwright_inventory::Snapshot;
use poolwright_model::composable::WhyNot;
use poolwright_model::id::{ControlEndpointId, GpuId, UnitId};
use poolwright_model::topology::{Gpu, Topology};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// What all endpoints showed last, in one.
pub(crate) struct Joined {
    pub snapshot: Snapshot,
    /// What was there before.
    pub vanished: Vanished,
    /// The endpoints that answered when they were looked at last.
    pub answered: BTreeSet<ControlEndpointId>,
    places: Places,
}

/// Where GPUs stand in the list, by what may be told of them.
#[derive(Default)]
struct Places {
    at_endpoint: HashMap<ControlEndpointId, Vec<usize>>,
    of_unit: HashMap<UnitId, Vec<usize>>,
}

impl Joined {
    pub fn new(snapshot: Snapshot, vanished: Vanished, answered: BTreeSet<ControlEndpointId>) -> Self {
        let mut places = Places::default();
        for (place, gpu) in snapshot.topology.gpus.iter().enumerate() {
            places.of_unit.entry(gpu.unit.clone()).or_default().push(place);
            for at in &gpu.control {
                let there = places.at_endpoint.entry(at.endpoint.clone()).or_default();
                there.push(place);
            }
        }
        Self {
            snapshot,
            vanished,
            answered,
            places,
        }
    }

    /// Where the GPUs stand that something was written about, or that are bound at these endpoints. What that costs does
    /// not grow with the pool.
    fn touched(&self, since: &Since<'_>, read: &BTreeSet<ControlEndpointId>) -> BTreeSet<usize> {
        let gpus = &self.snapshot.topology.gpus;
        let gpu = |id: &&GpuId| gpus.binary_search_by(|gpu| gpu.id.cmp(id)).ok();
        let written = since.gpus.iter().filter_map(gpu);
        let units = since
            .units
            .iter()
            .filter_map(|unit| self.places.of_unit.get(*unit));
        let endpoints = read.iter().filter_map(|id| self.places.at_endpoint.get(id));
        written.chain(units.chain(endpoints).flatten().copied()).collect()
    }
}

/// Endpoints of which nothing may be had, and why.
pub(crate) type Closed = BTreeMap<ControlEndpointId, WhyNot>;

/// All that the pool is shown by.
pub(crate) struct Facts<'a> {
    pub joined: &'a Arc<Joined>,
    pub pages: &'a Pages,
    /// Endpoints of which nothing may be had, and why.
    pub closed: Arc<Closed>,
    pub looked_at: &'a LookedAt,
    /// What everything was ever called.
    pub ids: &'a Topology,
}

/// See the module.
pub(crate) struct Shown {
    joined: Arc<Joined>,
    version: u64,
    closed: Arc<Closed>,
    snapshot: Arc<Snapshot>,
}

impl Shown {
    pub fn new(facts: Facts<'_>) -> Self {
        let mut snapshot = facts.joined.snapshot.clone();
        let known = facts.known();
        snapshot
            .topology
            .gpus
            .iter_mut()
            .for_each(|gpu| overlay(gpu, &known));
        show_missing(
            &mut snapshot,
            &facts.joined.vanished,
            &facts.pages.compositions,
            facts.ids,
            &facts.joined.answered,
        );
        Self {
            joined: facts.joined.clone(),
            version: facts.pages.version(),
            snapshot: Arc::new(snapshot),
            closed: facts.closed,
        }
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.clone()
    }

    /// What it is now: changed where something was written down, or read at one of these endpoints, since; or made anew.
    pub fn renewed(mut self, facts: Facts<'_>, read: &BTreeSet<ControlEndpointId>) -> Self {
        let same = Arc::ptr_eq(&self.joined, facts.joined) && self.closed == facts.closed;
        if same && read.is_empty() && self.version == facts.pages.version() {
            return self;
        }
        let since = facts.pages.since(self.version).filter(|_| same);
        let Some(since) = since.filter(|since| self.shows_all(since)) else {
            return Self::new(facts);
        };
        let touched = self.joined.touched(&since, read);
        let seen = &self.joined.snapshot.topology.gpus;
        let known = facts.known();
        let laid_over = |at: usize| {
            let mut gpu = seen[at].clone();
            overlay(&mut gpu, &known);
            gpu
        };
        let touched = touched.into_iter().map(|at| (at, laid_over(at)));
        // As a rule what was read again is as it was, and then nobody has to look at the pool anew.
        let shown = &self.snapshot.topology.gpus;
        let changed: Vec<(usize, Gpu)> = touched.filter(|(at, gpu)| shown[*at] != *gpu).collect();
        if !changed.is_empty() {
            // Whoever looks at the last answer keeps it as it is.
            let shown = &mut Arc::make_mut(&mut self.snapshot).topology.gpus;
            changed.into_iter().for_each(|(at, gpu)| shown[at] = gpu);
        }
        self.version = facts.pages.version();
        debug_assert_eq!(*self.snapshot, *Self::new(facts).snapshot, "as if made anew");
        self
    }

    /// Whether nothing is missing, and nothing is that compositions gained: then GPUs stand where they were seen.
    fn shows_all(&self, since: &Since<'_>) -> bool {
        let (seen, shown) = (&self.joined.snapshot.topology.gpus, &self.snapshot.topology.gpus);
        let is_seen = |id: &&GpuId| seen.binary_search_by(|gpu| gpu.id.cmp(id)).is_ok();
        seen.len() == shown.len() && since.held.iter().all(is_seen)
    }
}

impl Facts<'_> {
    fn known(&self) -> Known<'_> {
        Known {
            pages: self.pages,
            closed: &self.closed,
            looked_at: self.looked_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sight::tests::topology;

    /// GPUs that stand in a box each.
    fn joined(gpus: usize) -> Joined {
        let one = topology(None).gpus.remove(0);
        let gpus = (0..gpus).map(|nth| {
            let mut gpu = one.clone();
            gpu.id = format!("gpu-{nth:04}").parse().unwrap();
            gpu.unit = format!("unit-{nth}").parse().unwrap();
            gpu.control[0].endpoint = format!("box-{nth}").parse().unwrap();
            gpu
        });
        let snapshot = Snapshot {
            taken_at: jiff::Timestamp::UNIX_EPOCH,
            topology: Topology {
                gpus: gpus.collect(),
                ..Topology::default()
            },
            endpoints: Vec::new(),
            faults: Vec::new(),
            requests: 0,
            elapsed_ms: 0,
            contested: false,
        };
        Joined::new(snapshot, Vanished::default(), BTreeSet::new())
    }

    #[test]
    fn what_is_looked_at_after_a_change_does_not_grow_with_the_pool() {
        let (gpu, unit) = ("gpu-0003".parse().unwrap(), "unit-5".parse().unwrap());
        let since = Since {
            gpus: [&gpu].into(),
            units: [&unit].into(),
            ..Since::default()
        };
        let read = BTreeSet::from(["box-7".parse().unwrap(), "gone".parse().unwrap()]);
        for pool in [10, 1_000] {
            assert_eq!(joined(pool).touched(&since, &read), [3, 5, 7].into());
        }
    }
}
