//! The policies that are compared, one file each: a ground to play on, and rules for the queue.
//!
//! All run on the same queue code, so that a difference between two is a difference of their rules or grounds and not of
//! their bookkeeping.

mod fifo;
mod has;
mod pool_easy;
mod poolwright;
mod sjf;
mod static_partition;
mod static_shared_easy;
mod static_shared_ordered;

use crate::apportion::apportion;
use crate::scenario::Scenario;
use crate::workload::Workload;
use poolwright_planner::engine::{Class, Millis, Pool, Rules};
use serde::Serialize;

/// What a policy has to work with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ground {
    /// Static servers, each tenant's own: as many as its share of all GPU-hours asks for, known beforehand, and at least
    /// what its widest job needs.
    Partitions,
    /// Static servers that everybody shares.
    Servers,
    /// Hosts with slots, and GPUs that attach to any of them.
    Pool,
}

/// A policy: its name, what it is, where it works and how it decides.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    pub name: &'static str,
    pub about: &'static str,
    pub ground: Ground,
    pub rules: fn(&Scenario) -> Rules,
}

/// All that are known, in the order in which they are shown.
pub const ALL: [Policy; 8] = [
    static_partition::POLICY,
    static_shared_easy::POLICY,
    static_shared_ordered::POLICY,
    fifo::POLICY,
    sjf::POLICY,
    pool_easy::POLICY,
    has::POLICY,
    poolwright::POLICY,
];

/// The policy of that name.
#[must_use]
pub fn named(name: &str) -> Option<Policy> {
    ALL.into_iter().find(|policy| policy.name == name)
}

impl Policy {
    /// The pools that it works with: one for all, or one a tenant.
    ///
    /// # Errors
    ///
    /// What is too small to be shared out, in words.
    pub fn pools(&self, scenario: &Scenario, workload: &Workload) -> Result<Vec<Pool>, String> {
        let each = scenario.server.gpus;
        match self.ground {
            Ground::Pool => Ok(vec![pool(scenario, workload)]),
            Ground::Servers => Ok(vec![Pool::fixed(workload.classes.clone(), each)]),
            Ground::Partitions => partitions(scenario, workload),
        }
    }
}

/// How long GPUs stay attached and idle in a pool.
pub(crate) fn stay(scenario: &Scenario) -> Option<Millis> {
    Some((scenario.pool.idle_detach_s * 1000.0) as Millis)
}

fn pool(scenario: &Scenario, workload: &Workload) -> Pool {
    let hosts = workload.gpus().div_ceil(scenario.pool.gpus_per_host);
    let slots = vec![scenario.pool.slots_per_host; hosts as usize];
    Pool::composable(workload.classes.clone(), &slots, scenario.pool.spread)
}

fn partitions(scenario: &Scenario, workload: &Workload) -> Result<Vec<Pool>, String> {
    let each = scenario.server.gpus;
    let mut of_tenants: Vec<Vec<Class>> = vec![Vec::new(); workload.tenants];
    for (index, class) in workload.classes.iter().enumerate() {
        let mut demands = vec![0.0; workload.tenants];
        let mut least = vec![0; workload.tenants];
        for job in workload.jobs.iter().filter(|job| job.class == index) {
            demands[job.tenant] += job.gpu_seconds();
            least[job.tenant] = least[job.tenant].max(job.gpus.div_ceil(each));
        }
        let servers = class.gpus / each;
        let shares = apportion(servers, &demands, &least).ok_or_else(|| {
            format!(
                "{} tenants need {} servers of {each} GPUs for the widest job of each, and there are {servers}",
                least.iter().filter(|least| **least > 0).count(),
                least.iter().sum::<u32>(),
            )
        })?;
        for (tenant, servers) in shares.into_iter().enumerate() {
            let gpus = servers * each;
            of_tenants[tenant].push(Class {
                gpus,
                ..class.clone()
            });
        }
    }
    Ok(of_tenants
        .into_iter()
        .map(|classes| Pool::fixed(classes, each))
        .collect())
}
