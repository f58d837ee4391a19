//! Whose turn it is: ranks of waiting jobs, and how much a tenant's use puts its jobs back.

use super::{Job, JobId, Millis, Urgency};
use crate::promise::Share;
use std::cmp::Reverse;
use std::collections::BTreeMap;

const HOUR: Millis = 3_600_000;

/// In which order jobs are looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// First come, first served.
    Arrival,
    /// The shortest expected run time first, however long others wait.
    Shortest,
    /// The least expected service first, with ageing. A job yields to what comes after it for a while that grows with
    /// the root of its GPU-hours and with the backlog: `pace` hours for a GPU-hour and each hour that the whole pool
    /// would need for what waits, at most `most`. So little is reordered where little waits; and however long a job, what
    /// is submitted after the longest such while never passes it.
    Ageing { pace: f64, most: f64 },
}

/// What a rank rests on beside the job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// Hours that all GPUs together would need for what waits, the job included. Jobs are compared by one backlog: by
    /// what each found when it came, the last jobs of a burst would yield for days to what the first yield to for hours.
    pub backlog_hours: f64,
    /// Slots of the largest host: a job that spans hosts counts as one that fills a host, for it is hard to place anyway.
    pub widest_host: u32,
}

impl Order {
    /// That with which replays of recorded jobs were best (`docs/SIMULATOR.md`): the policy `poolwright`, and the manager's.
    pub const OURS: Self = Self::Ageing {
        pace: 0.3,
        most: 25.0,
    };

    /// Whether ranks change with the backlog.
    pub(super) fn rests_on_backlog(&self) -> bool {
        matches!(self, Self::Ageing { .. })
    }

    /// The rank of a job: lower goes first.
    #[must_use]
    pub fn rank(&self, job: &Job, found: Found) -> Millis {
        match *self {
            Self::Arrival => job.submitted,
            Self::Shortest => job.expected,
            Self::Ageing { pace, most } => {
                let gpus = f64::from(job.gpus.min(found.widest_host));
                let gpu_hours = job.expected as f64 / HOUR as f64 * gpus;
                let hours = gpu_hours.sqrt() * (pace * found.backlog_hours).min(most);
                job.submitted.saturating_add((hours * HOUR as f64) as Millis)
            }
        }
    }
}

/// Whose turn it is: less goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    /// It is not within its tenant's guarantee.
    is_beyond: bool,
    at: Millis,
    /// It does not go before jobs of lower priority; else the highest priority goes first.
    passes_none: bool,
    priority: Reverse<i32>,
    /// By its rank and its tenant's use.
    own: Millis,
    id: JobId,
}

/// The earliest turns of waiting jobs by priority, if any of them preempts.
#[derive(Clone, Debug, Default)]
pub(super) struct Earliest(BTreeMap<i32, Millis>);

impl Earliest {
    pub fn meet(&mut self, priority: i32, own: Millis) {
        let known = self.0.entry(priority).or_insert(Millis::MAX);
        *known = own.min(*known);
    }

    /// The turn of a job whose rank and tenant would give it the turn `own`.
    pub fn turn(&self, (own, id): (Millis, JobId), urgency: Urgency, is_guaranteed: bool) -> Turn {
        let lower = self.0.range(..urgency.priority).map(|(_, own)| *own);
        let before = lower.min().filter(|before| urgency.preempts && *before <= own);
        Turn {
            is_beyond: !is_guaranteed,
            at: before.unwrap_or(own),
            passes_none: before.is_none(),
            priority: Reverse(before.map_or(0, |_| urgency.priority)),
            own,
            id,
        }
    }
}

/// What tenants hold now, against their shares.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    held: Vec<u64>,
    wanting: Vec<u64>,
    /// Of tenants with other shares than [`Share::default`].
    shares: BTreeMap<usize, Share>,
}

impl Shares {
    /// A tenant has a share, and holds these GPUs already.
    pub fn has(&mut self, tenant: usize, share: Share, gpus: u32) {
        self.wants(tenant);
        self.takes(tenant, gpus);
        if gpus == 0 {
            self.wanting[tenant] -= 1;
        }
        if share != Share::default() {
            self.shares.insert(tenant, share);
        }
    }

    pub fn wants(&mut self, tenant: usize) {
        if tenant >= self.held.len() {
            self.held.resize(tenant + 1, 0);
            self.wanting.resize(tenant + 1, 0);
        }
        self.wanting[tenant] += 1;
    }

    pub fn takes(&mut self, tenant: usize, gpus: u32) {
        self.held[tenant] += u64::from(gpus);
    }

    pub fn gives_back(&mut self, tenant: usize, gpus: u32) {
        self.held[tenant] = self.held[tenant].saturating_sub(u64::from(gpus));
        self.wanting[tenant] -= 1;
    }

    pub fn held_by(&self, tenant: usize) -> u32 {
        let held = self.held.get(tenant).copied().unwrap_or_default();
        u32::try_from(held).unwrap_or(u32::MAX)
    }

    pub fn share(&self, tenant: usize) -> Share {
        self.shares.get(&tenant).copied().unwrap_or_default()
    }

    /// Whether a tenant that gets so many more holds no more than it is guaranteed.
    pub fn guarantees(&self, tenant: usize, gpus: u32) -> bool {
        !self.shares.is_empty() && self.held_by(tenant).saturating_add(gpus) <= self.share(tenant).guaranteed
    }

    /// Whether a tenant that gets so many more holds no more than it may.
    pub fn allows(&self, tenant: usize, gpus: u32) -> bool {
        let most = self.share(tenant).most;
        most.is_none_or(|most| self.held_by(tenant).saturating_add(gpus) <= most)
    }

    /// How far the jobs of each tenant are put back: `weight` hours for each time that it holds its share over.
    pub fn delays(&self, weight: f64) -> Vec<Millis> {
        let share = |tenant: usize| match self.wanting[tenant] {
            0 => 0,
            _ => self.share(tenant).weight,
        };
        let held: Vec<(u64, u32)> = (0..self.held.len())
            .map(|tenant| (self.held[tenant], share(tenant)))
            .collect();
        delays(&held, weight)
    }
}

/// How far the jobs of each tenant are put back, of what each holds and the weight of its share; one without weight
/// wants nothing: `hours` for each time that it holds its share over. A tenant alone has all.
fn delays(held: &[(u64, u32)], hours: f64) -> Vec<Millis> {
    let all: u64 = held.iter().map(|(held, _)| held).sum();
    let weights: u64 = held.iter().map(|(_, weight)| u64::from(*weight)).sum();
    let tenants = held.iter().filter(|(_, weight)| *weight > 0).count();
    if hours <= 0.0 || all == 0 || tenants < 2 {
        return vec![0; held.len()];
    }
    let over = |(held, weight): &(u64, u32)| {
        let share = all as f64 * f64::from(*weight.max(&1)) / weights as f64;
        ((*held as f64 / share - 1.0).max(0.0) * hours * HOUR as f64) as Millis
    };
    held.iter().map(over).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(submitted: Millis, expected: Millis) -> Job {
        Job {
            id: 0,
            tenant: 0,
            gpus: 1,
            class: 0,
            upto: crate::engine::ANY_LARGER,
            submitted,
            expected,
            limit: None,
            urgency: Urgency::default(),
            avoids_closing_hosts: false,
        }
    }

    #[test]
    fn a_job_yields_by_its_service_and_the_backlog_and_not_for_ever() {
        let order = Order::Ageing { pace: 0.5, most: 3.0 };
        let yields = |expected, backlog_hours| {
            let found = Found {
                backlog_hours,
                widest_host: 16,
            };
            order.rank(&job(5, expected), found) - 5
        };
        assert_eq!(yields(HOUR, 2.0), HOUR);
        assert_eq!(yields(4 * HOUR, 2.0), 2 * HOUR, "four times as long: twice");
        assert_eq!(yields(HOUR, 0.0), 0, "nothing waits: first come, first served");
        assert_eq!(yields(100 * HOUR, 1000.0), 30 * HOUR, "and no longer");
        let wide = |gpus| {
            let found = Found {
                backlog_hours: 2.0,
                widest_host: 16,
            };
            order.rank(&Job { gpus, ..job(0, HOUR) }, found)
        };
        assert_eq!(wide(4), 2 * HOUR);
        assert_eq!((wide(16), wide(64)), (4 * HOUR, 4 * HOUR), "no host is wider");
    }

    #[test]
    fn who_holds_more_than_an_equal_share_is_put_back() {
        let mut shares = Shares::default();
        for (tenant, gpus) in [(0, 6), (1, 2)] {
            shares.wants(tenant);
            shares.takes(tenant, gpus);
        }
        assert_eq!(shares.delays(1.0), [HOUR / 2, 0]);
        assert_eq!(shares.delays(0.0), [0, 0]);
        shares.gives_back(1, 2);
        assert_eq!(shares.delays(1.0), [0, 0], "a tenant alone has all");
    }
}
