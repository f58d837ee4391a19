//! The order of waiting jobs: jobs within their tenant's guarantee first, then queue order, in which jobs of tenants
//! above their share are put back. A preempting job comes no later than any job of lower priority.

use super::line::WaitingJob;
use super::outlook::Pass;
use crate::engine::order;
use crate::promise::width;
use jiff::{SignedDuration, Timestamp};
use poolwright_model::id::TenantId;
use std::collections::{BTreeMap, BTreeSet};

impl Pass<'_, '_> {
    /// Whose turn it is.
    pub(super) fn first_of(&self, left: &[&WaitingJob]) -> usize {
        let delays = self.delays();
        let own = |job: &WaitingJob| {
            let delay = delays.get(&job.demand.tenant).copied().unwrap_or_default();
            job.turn.saturating_add(delay).unwrap_or(Timestamp::MAX)
        };
        // The earliest turn of each priority, if any job preempts.
        let mut earliest: BTreeMap<i32, Timestamp> = BTreeMap::new();
        if left.iter().any(|job| job.preempts) {
            for job in left {
                let known = earliest.entry(job.demand.priority).or_insert(Timestamp::MAX);
                *known = own(job).min(*known);
            }
        }
        let turn = |job: &WaitingJob| {
            let lower = job.preempts.then(|| earliest.range(..job.demand.priority));
            let before = lower.and_then(|lower| lower.map(|(_, turn)| *turn).min());
            let turn = before.map_or(own(job), |before| before.min(own(job)));
            let goes_first = before.is_some_and(|before| before == turn);
            let place = (
                turn,
                !goes_first,
                -i64::from(job.demand.priority) * i64::from(goes_first),
            );
            (!self.is_guaranteed(job), place, own(job), job.demand.id.clone())
        };
        (0..left.len())
            .min_by_key(|at| turn(left[*at]))
            .unwrap_or_default()
    }

    pub(super) fn held_by(&self, tenant: &TenantId) -> u32 {
        self.holds.get(tenant).copied().unwrap_or_default()
    }

    pub(super) fn is_guaranteed(&self, job: &WaitingJob) -> bool {
        let tenant = &job.demand.tenant;
        self.held_by(tenant).saturating_add(width(&job.demand)) <= self.line.share(tenant).guaranteed
    }

    /// By how much the jobs of tenants that hold more than their shares are put back.
    fn delays(&self) -> BTreeMap<TenantId, SignedDuration> {
        let waiting = self.line.waiting.iter().map(|job| &job.demand.tenant);
        let tenants: BTreeSet<&TenantId> = waiting.chain(self.holds.keys()).collect();
        let held: Vec<(u64, u32)> = tenants
            .iter()
            .map(|tenant| (u64::from(self.held_by(tenant)), self.line.share(tenant).weight))
            .collect();
        let delays = order::delays(&held, self.line.fair_share);
        let spans = delays
            .into_iter()
            .map(|millis| SignedDuration::from_millis(i64::try_from(millis).unwrap_or(i64::MAX)));
        tenants.into_iter().cloned().zip(spans).collect()
    }
}
