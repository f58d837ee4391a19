//! Run times of finished jobs, from which those of other jobs are expected.

use crate::job::{JobRun, millis};
use jiff::SignedDuration;
use poolwright_model::id::TenantId;
use poolwright_planner::engine::{History, Millis};
use std::collections::{BTreeMap, BTreeSet};

/// Run times of jobs that are over, as history for new ones.
pub struct RunTimes {
    history: History,
    numbers: BTreeMap<TenantId, usize>,
}

impl RunTimes {
    pub fn of(mut runs: Vec<JobRun>) -> Self {
        runs.retain(JobRun::teaches);
        runs.sort_by_key(|run| run.ended);
        let tenants: BTreeSet<TenantId> = runs.iter().map(|run| run.tenant.clone()).collect();
        let mut times = Self {
            history: History::default(),
            numbers: tenants.into_iter().zip(0..).collect(),
        };
        for run in runs {
            let tenant = times.number(&run.tenant);
            times.history.learn(tenant, run.gpus, millis(run.ran()));
            if let Some(said) = run.said_s {
                times
                    .history
                    .compare(tenant, said.saturating_mul(1000), millis(run.ran()));
            }
        }
        times
    }

    fn number(&self, tenant: &TenantId) -> usize {
        self.numbers.get(tenant).copied().unwrap_or(usize::MAX)
    }

    /// The expected run time of a job, by its tenant and number of GPUs.
    pub fn expected(&self, tenant: &TenantId, gpus: u32) -> SignedDuration {
        span(self.history.expected(self.number(tenant), gpus))
    }

    /// The expected run time of a job of which it is said how long it runs.
    pub fn corrected(&self, tenant: &TenantId, said: SignedDuration) -> SignedDuration {
        let corrected = millis(said) as f64 * self.history.excess(self.number(tenant));
        span(corrected as Millis)
    }

    /// The expected remaining run time of an overrunning job.
    pub fn remaining(&self, tenant: &TenantId, ran: SignedDuration) -> SignedDuration {
        span(self.history.remaining(self.number(tenant), millis(ran)))
    }
}

fn span(millis: Millis) -> SignedDuration {
    SignedDuration::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}
