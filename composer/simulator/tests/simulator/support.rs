//! Small hardware and small workloads for the tests.

use poolwright_planner::engine::{ANY_LARGER, Class};
use poolwright_simulator::replay::{Replayed, replay};
use poolwright_simulator::workload::{SimJob, Workload};
use poolwright_simulator::{Runtimes, Scenario, policies};

/// Two servers of 2 GPUs, or two hosts of 4 slots with 4 GPUs; attaching takes no time.
pub const SMALL: &str = r#"
name = "small"
description = "for tests"
[replay]
loads = [0.5]
seeds = [1]
runtimes = ["known"]
[server]
gpus = 2
power_w = 50
[pool]
gpus_per_host = 2
slots_per_host = 4
spread = 2
host_busy_w = 30
host_idle_w = 15
fabric_w_per_gpu = 2
idle_detach_s = 5
[gpu]
active_w = 100
idle_w = 10
detached_w = 1
[attach]
base_s = 0
sigma = 0
per_gpu_s = 0
[detach]
base_s = 0
sigma = 0
per_gpu_s = 0
[source]
default = "made up"
"#;

pub fn small() -> Scenario {
    Scenario::parse(SMALL).unwrap()
}

/// A job: tenant, seconds until it is submitted and that it runs, GPUs.
pub fn job(tenant: usize, submit_s: u64, run_s: u64, gpus: u32) -> SimJob {
    SimJob {
        tenant,
        gpus,
        class: 0,
        upto: ANY_LARGER,
        submit: submit_s * 1000,
        run_time: run_s * 1000,
        looseness: 2.0,
        noise: [0.0, 0.0],
    }
}

pub fn workload(jobs: Vec<SimJob>, gpus: u32) -> Workload {
    let tenants = jobs.iter().map(|job| job.tenant).max().unwrap_or(0) + 1;
    let class = Class {
        name: "any".to_owned(),
        memory_gib: 0,
        gpus,
    };
    Workload {
        jobs,
        tenants,
        classes: vec![class],
        watts: Vec::new(),
        offered_load: 0.5,
    }
}

pub fn run(policy: &str, scenario: &Scenario, workload: &Workload, runtimes: Runtimes) -> Replayed {
    let policy = policies::named(policy).unwrap();
    replay(&policy, scenario, workload, runtimes, &mut || Ok(0)).unwrap()
}

/// When each job began to compute, in seconds, by its number.
pub fn began(run: &Replayed) -> Vec<f64> {
    let mut began: Vec<(u32, f64)> = run
        .records
        .iter()
        .map(|record| (record.job, record.began as f64 / 1000.0))
        .collect();
    began.sort_by_key(|(job, _)| *job);
    began.into_iter().map(|(_, began)| began).collect()
}
