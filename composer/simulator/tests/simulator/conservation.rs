//! What must hold in every run: each job once, no GPU in two places, no host with more than its slots; and the same seed,
//! the same run.

use crate::support::{run, small};
use poolwright_simulator::replay::Replayed;
use poolwright_simulator::scenario::MemoryClass;
use poolwright_simulator::workload::{Workload, WorkloadError};
use poolwright_simulator::{Runtimes, Scenario, Trace, policies, trace::TraceJob};
use std::collections::BTreeMap;

/// Bursts of jobs of mixed widths, more than the hardware can take at once.
fn trace(seed: u64) -> Trace {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut submit_s = 0.0;
    let jobs = (0..400).map(|index| {
        submit_s += if rng.u8(0..4) == 0 { rng.f64() * 60.0 } else { 0.0 };
        TraceJob {
            id: format!("job-{index}"),
            tenant: rng.usize(0..3),
            submit_s,
            duration_s: 1.0 + rng.f64() * 100.0,
            gpus: [1, 1, 1, 2, 2, 3, 4, 7][rng.usize(0..8)],
            min_gpu_mem_gib: None,
            gpu_type: None,
        }
    });
    Trace {
        jobs: jobs.collect(),
        tenants: ["a", "b", "c"].map(str::to_owned).to_vec(),
        ..Trace::default()
    }
}

fn scenario(classes: bool) -> Scenario {
    let mut scenario = small();
    scenario.attach.base_s = 5.0;
    scenario.attach.sigma = 0.5;
    scenario.detach.base_s = 3.0;
    if classes {
        scenario.classes = [("24gb", 24, 0.5), ("48gb", 48, 0.3), ("80gb", 80, 0.2)]
            .map(|(name, memory_gib, share_of_jobs)| MemoryClass {
                name: name.to_owned(),
                memory_gib,
                share_of_jobs,
            })
            .to_vec();
    }
    scenario
}

/// Counts for itself, from the records alone, what is held where at each moment.
fn audit(run: &Replayed, workload: &Workload, scenario: &Scenario, composable: bool) {
    assert!(run.refused.is_empty());
    let mut once: Vec<u32> = run.records.iter().map(|record| record.job).collect();
    once.sort_unstable();
    assert_eq!(once, (0..workload.jobs.len() as u32).collect::<Vec<_>>());
    let slots = if composable {
        scenario.pool.slots_per_host
    } else {
        scenario.server.gpus
    };
    let mut changes = Vec::new();
    for record in &run.records {
        let job = &workload.jobs[record.job as usize];
        assert!(
            record.submitted == job.submit
                && record.granted >= record.submitted
                && record.began >= record.granted
        );
        assert_eq!(record.ended, record.began + job.run_time, "it runs to its end");
        assert!(record.class >= job.class, "its memory suffices");
        let held: u32 = record.parts.iter().map(|part| part.gpus).sum();
        assert!(held >= job.gpus && (!composable || held == job.gpus));
        let hosts = if job.gpus <= slots {
            1
        } else {
            job.gpus.div_ceil(2) as usize
        };
        assert!(
            record.parts.len() <= hosts,
            "{} GPUs on {} hosts",
            job.gpus,
            record.parts.len()
        );
        for part in &record.parts {
            let host = (record.pool, part.host);
            changes.push((record.granted, i64::from(part.gpus), host, record.class));
            changes.push((record.ended, -i64::from(part.gpus), host, record.class));
        }
    }
    // What ends at a moment is given back before anything starts at it.
    changes.sort_by_key(|(at, gpus, ..)| (*at, *gpus));
    let (mut of_host, mut of_class) = (BTreeMap::new(), BTreeMap::new());
    for (_, gpus, host, class) in changes {
        let held = of_host.entry(host).or_insert(0);
        *held += gpus;
        assert!(
            (0..=i64::from(slots)).contains(held),
            "host {host:?} holds {held}"
        );
        let used = of_class.entry(class).or_insert(0);
        *used += gpus;
        assert!((0..=i64::from(workload.classes[class].gpus)).contains(used));
    }
}

#[test]
fn nothing_is_lost_doubled_or_overfilled_under_any_policy() {
    for (seed, classes) in [(1, false), (2, false), (3, true), (4, true)] {
        let scenario = scenario(classes);
        let workload = Workload::new(&trace(seed), &scenario, 0.9, seed).unwrap();
        for policy in policies::ALL {
            let composable = policy.ground == policies::Ground::Pool;
            if policy.ground == policies::Ground::Partitions && policy.pools(&scenario, &workload).is_err() {
                // Too few servers for the widest job of each tenant: refused, as another test shows.
                continue;
            }
            for runtimes in Runtimes::ALL {
                let run = run(policy.name, &scenario, &workload, runtimes);
                audit(&run, &workload, &scenario, composable);
            }
        }
    }
}

#[test]
fn the_same_seed_is_the_same_run_and_another_is_not() {
    let scenario = scenario(true);
    let records = |seed: u64| {
        let workload = Workload::new(&trace(1), &scenario, 0.9, seed).unwrap();
        run("poolwright", &scenario, &workload, Runtimes::Loose).records
    };
    assert_eq!(records(1), records(1));
    assert_ne!(records(1), records(2));
}

#[test]
fn the_load_decides_how_many_gpus_there_are_or_how_fast_jobs_come() {
    let (trace, mut scenario) = (trace(1), small());
    let half = Workload::new(&trace, &scenario, 0.5, 1).unwrap();
    let whole = Workload::new(&trace, &scenario, 1.0, 1).unwrap();
    assert!((half.offered_load - 0.5).abs() < 0.02, "{}", half.offered_load);
    assert!(half.gpus().abs_diff(2 * whole.gpus()) <= 2);
    assert_eq!(half.window(), whole.window());
    scenario.replay.gpus = Some(40);
    let slow = Workload::new(&trace, &scenario, 0.5, 1).unwrap();
    let fast = Workload::new(&trace, &scenario, 1.0, 1).unwrap();
    assert_eq!((slow.gpus(), fast.gpus()), (40, 40));
    assert!(slow.window().abs_diff(2 * fast.window()) <= 2);
    scenario.replay.gpus = Some(4);
    let refused = Workload::new(&trace, &scenario, 0.5, 1).unwrap_err().to_string();
    assert!(refused.contains("needs 7 GPUs; the scenario has 4"), "{refused}");
}

#[test]
fn jobs_and_loads_that_no_pool_is_large_enough_for_are_refused() {
    let (usual, mut scenario) = (trace(1), small());
    let refused = |trace: &Trace, scenario: &Scenario, load: f64| {
        let refused = Workload::new(trace, scenario, load, 1).unwrap_err();
        assert!(matches!(refused, WorkloadError::TooManyGpus { .. }), "{refused}");
        assert!(refused.to_string().contains("simulated at most"), "{refused}");
    };
    let (mut wide, mut long) = (usual.clone(), usual.clone());
    wide.jobs[0].gpus = u32::MAX;
    long.jobs[0].duration_s = 1e300;
    for trace in [&wide, &long] {
        refused(trace, &scenario, 1.0);
    }
    refused(&usual, &scenario, 1e-300);
    // Where the scenario says how many there are, the job is too wide for them.
    scenario.replay.gpus = Some(u32::MAX);
    refused(&usual, &scenario, 1.0);
    scenario.replay.gpus = Some(1_000_000);
    let too_wide = Workload::new(&wide, &scenario, 1.0, 1).unwrap_err();
    assert!(
        too_wide.to_string().contains("needs 4294967295 GPUs"),
        "{too_wide}"
    );
    let mut scenario = small();
    scenario.windows = Scenario::built_in("windows").unwrap().unwrap().windows;
    scenario.windows[0].gpus_per_set = 1;
    scenario.replay.gpus = Some(20);
    let too_many = Workload::new(&usual, &scenario, 1e-6, 1).unwrap_err().to_string();
    assert!(
        too_many.contains("windows while jobs are submitted, and 20000 are simulated at most"),
        "{too_many}"
    );
    let usual = Workload::new(&usual, &small(), 1.0, 1).unwrap();
    assert_eq!(usual.with_servers(&small(), u32::MAX), None);
}
