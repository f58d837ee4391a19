//! The pool as it is shown: what was seen, in one, with what is written down laid over it. Pure.
//!
//! Kept, and made anew only where something changed: what a plan costs does not grow with the pool.

use crate::books::{Pages, Since};
use crate::missing::{Vanished, show_missing};
use crate::view::{Known, LookedAt, overlay};
use poolwright_inventory::Snapshot;
use poolwright_model::composable::WhyNot;
use poolwright_model::id::{ControlEndpointId, GpuId};
use poolwright_model::topology::{Gpu, Topology};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What all endpoints showed last, in one.
pub(crate) struct Joined {
    pub snapshot: Snapshot,
    /// What was there before.
    pub vanished: Vanished,
    /// The endpoints that answered when they were looked at last.
    pub answered: BTreeSet<ControlEndpointId>,
}

/// Endpoints of which nothing may be had, and why.
pub(crate) type Closed = BTreeMap<ControlEndpointId, WhyNot>;

/// All that the pool is shown by.
pub(crate) struct Facts<'a> {
    pub joined: &'a Arc<Joined>,
    pub pages: &'a Pages,
    /// Endpoints of which nothing may be had, and why.
    pub closed: Arc<Closed>,
    pub looked_at: Arc<LookedAt>,
    /// What everything was ever called.
    pub ids: &'a Topology,
}

/// See the module.
pub(crate) struct Shown {
    joined: Arc<Joined>,
    version: u64,
    closed: Arc<Closed>,
    looked_at: Arc<LookedAt>,
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
            looked_at: facts.looked_at,
            closed: facts.closed,
        }
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.clone()
    }

    /// What it is now: changed where something was written down or read since, or made anew.
    pub fn renewed(mut self, facts: Facts<'_>) -> Self {
        let same = Arc::ptr_eq(&self.joined, facts.joined) && self.closed == facts.closed;
        let read_again = !Arc::ptr_eq(&self.looked_at, &facts.looked_at);
        if same && !read_again && self.version == facts.pages.version() {
            return self;
        }
        let since = facts.pages.since(self.version).filter(|_| same);
        let Some(since) = since.filter(|since| self.shows_all(since)) else {
            return Self::new(facts);
        };
        let read_anew = facts.looked_at.since(&self.looked_at);
        let is_touched = |gpu: &Gpu| {
            let written = since.gpus.contains(&gpu.id) || since.units.contains(&gpu.unit);
            written || gpu.control.iter().any(|at| read_anew.contains(&at.endpoint))
        };
        let seen = &self.joined.snapshot.topology.gpus;
        let known = facts.known();
        let laid_over = |at: usize| {
            let mut gpu = seen[at].clone();
            overlay(&mut gpu, &known);
            gpu
        };
        let touched = (0..seen.len()).filter(|at| is_touched(&seen[*at]));
        let touched = touched.map(|at| (at, laid_over(at)));
        // As a rule what was read again is as it was, and then nobody has to look at the pool anew.
        let shown = &self.snapshot.topology.gpus;
        let changed: Vec<(usize, Gpu)> = touched.filter(|(at, gpu)| shown[*at] != *gpu).collect();
        if !changed.is_empty() {
            // Whoever looks at the last answer keeps it as it is.
            let shown = &mut Arc::make_mut(&mut self.snapshot).topology.gpus;
            changed.into_iter().for_each(|(at, gpu)| shown[at] = gpu);
        }
        self.version = facts.pages.version();
        self.looked_at = facts.looked_at.clone();
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
            looked_at: &self.looked_at,
        }
    }
}
