//! Traces and scenarios as they are found: several dialects, and mistakes that are named.

use crate::support::SMALL;
use flate2::{Compression, write::GzEncoder};
use poolwright_simulator::experiment::ExperimentError;
use poolwright_simulator::replay::Stopped;
use poolwright_simulator::{Experiment, Scenario, Simulation, Trace, compare, html, policies};
use std::io::Write;
use std::path::Path;

const SMALL_TRACE: &str = include_str!("../data/small.csv");

#[test]
fn a_trace_is_read_plain_and_packed() {
    let plain = Trace::read(SMALL_TRACE.as_bytes()).unwrap();
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    packer.write_all(SMALL_TRACE.as_bytes()).unwrap();
    let packed = packer.finish().unwrap();
    assert_eq!(Trace::read(packed.as_slice()).unwrap(), plain);
    assert_eq!(plain.jobs.len(), 60);
    assert_eq!(plain.tenants.len(), 3);
    assert_eq!((plain.jobs[0].submit_s, plain.without_run_time), (0.0, 1));
    let cut = Trace::read(&packed[..packed.len() / 2]).unwrap_err().to_string();
    assert!(cut.starts_with("can't be read: "), "{cut}");
}

#[test]
fn other_dialects_are_understood() {
    let acme = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue\n\
        dlc1,u1,1,8,96,Pretrain,COMPLETED,2023-03-01 10:00:00+08:00,,,3600,5\n\
        dlc2,u2,1,0,96,Other,COMPLETED,2023-03-01 10:00:00+08:00,,,3600,5\n\
        dlc3,u1,1,16,96,Eval,FAILED,2023-03-01 10:01:00+08:00,,,60.5,5\n";
    let trace = Trace::parse(acme).unwrap();
    assert_eq!((trace.jobs.len(), trace.without_gpus), (2, 1));
    assert_eq!(
        (
            trace.jobs[1].submit_s,
            trace.jobs[1].duration_s,
            trace.jobs[1].gpus
        ),
        (60.0, 60.5, 16)
    );
    let spot = "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type\n\
        j1,o1,A10,12,1,4,100,50,HP\nj2,o2,A10,6,0.5,1,160,20,Spot\n";
    let trace = Trace::parse(spot).unwrap();
    let gpus: Vec<u32> = trace.jobs.iter().map(|job| job.gpus).collect();
    assert_eq!((gpus, trace.jobs[1].submit_s), (vec![4, 1], 60.0));
}

#[test]
fn a_wrong_value_is_named_with_its_line_and_column() {
    let refused = |row: &str| {
        Trace::parse(&format!(
            "job_id,tenant,submit_s,duration_s,gpus\na,t,0,5,1\n{row}\n"
        ))
        .unwrap_err()
        .to_string()
    };
    for (row, expected) in [
        (
            "b,t,0,5,many",
            "line 3, column gpus: \"many\" is not a number of GPUs from 0 to a million",
        ),
        (
            "b,t,0,5,1000000000",
            "line 3, column gpus: \"1000000000\" is not a number of GPUs from 0 to a million",
        ),
        (
            "b,t,0,-5,1",
            "line 3, column duration_s: \"-5\" is not a number of seconds from 0 to a thousand million",
        ),
        (
            "b,t,0,NaN,1",
            "line 3, column duration_s: \"NaN\" is not a number of seconds from 0 to a thousand million",
        ),
        (
            "b,t,soon,5,1",
            "line 3, column submit_s: \"soon\" is not seconds, or a date and time",
        ),
        (
            "b,t,,5,1",
            "line 3, column submit_s: \"\" is not seconds, or a date and time",
        ),
        ("b,t,0,5", "line 3: 4 fields under a header of 5"),
    ] {
        assert_eq!(refused(row), expected);
    }
    let no_column = Trace::parse("job_id,tenant,submit_s,duration_s\na,t,0,5\n")
        .unwrap_err()
        .to_string();
    assert!(
        no_column.starts_with("no column of GPUs; found none of gpus, gpu_num, gpu_request"),
        "{no_column}"
    );
    let empty = Trace::parse("job_id,tenant,submit_s,duration_s,gpus\na,t,0,0,1\n")
        .unwrap_err()
        .to_string();
    assert_eq!(
        empty,
        "no job in it that ran on a GPU (0 rows without GPUs, 1 that did not run)"
    );
}

#[test]
fn a_wrong_scenario_is_refused_with_the_field_and_what_is_allowed() {
    let refused = |from: &str, to: &str| {
        assert!(SMALL.contains(from));
        Scenario::parse(&SMALL.replace(from, to)).unwrap_err().to_string()
    };
    for (from, to, expected) in [
        (
            "loads = [0.5]",
            "loads = [0]",
            "replay.loads is 0; allowed is 0.01 to 10",
        ),
        (
            "loads = [0.5]",
            "loads = []",
            "replay.loads: how many is 0; allowed is 1 to 1000",
        ),
        (
            "active_w = 100",
            "active_w = -1",
            "gpu.active_w is -1; allowed is 0 to 100000",
        ),
        (
            "active_w = 100",
            "active_w = nan",
            "gpu.active_w is NaN; allowed is 0 to 100000",
        ),
        (
            "slots_per_host = 4",
            "slots_per_host = 0",
            "pool.slots_per_host is 0; allowed is 1 to 256",
        ),
        (
            "default = \"made up\"",
            "gpu = \"made up\"",
            "source.server is missing",
        ),
    ] {
        let message = refused(from, to);
        assert!(message.starts_with(expected), "{message}");
    }
    assert!(refused("idle_w = 10", "idle_watts = 10").contains("idle_watts"));
    let class = "\n[[class]]\nname = \"a\"\nmemory_gib = 24\nshare_of_jobs = 0.4\n";
    let message = Scenario::parse(&format!("{SMALL}{class}"))
        .unwrap_err()
        .to_string();
    assert_eq!(message, "class.share_of_jobs, all together, is 0.4; allowed is 1");
}

#[test]
fn the_scenarios_that_come_with_it_are_sound() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hw-profiles/scenarios");
    let mut found = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let scenario = Scenario::parse(&std::fs::read_to_string(&path).unwrap());
        let scenario = scenario.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(
            Some(scenario.name.as_str()),
            path.file_stem().and_then(|stem| stem.to_str())
        );
        found += 1;
    }
    assert_eq!(found, 7);
}

#[test]
fn a_whole_experiment_gives_figures_parts_and_a_report() {
    let trace = Trace::parse(SMALL_TRACE).unwrap();
    let scenario = Scenario::parse(&SMALL.replace("loads = [0.5]", "loads = [0.5, 0.9]")).unwrap();
    let experiment = Experiment {
        trace: &trace,
        scenario: &scenario,
        policies: &policies::ALL,
    };
    let mut ticks = 0;
    let mut clock = || {
        ticks += 1000;
        Ok(ticks)
    };
    let results = experiment.run(&mut clock, &mut |_| {}).unwrap();
    assert_eq!(results.policies.len() + results.left_out.len(), 16);
    let outcome = results
        .policies
        .iter()
        .find(|one| one.policy == "poolwright")
        .unwrap();
    assert_eq!((outcome.decision.mean_us, outcome.metrics.jobs), (1.0, 60));
    let value = serde_json::to_value(outcome).unwrap();
    for key in [
        "policy",
        "jct_mean_s",
        "jct_p50_s",
        "jct_p95_s",
        "jct_p99_s",
        "wait_mean_s",
        "wait_p95_s",
        "utilization",
        "stranded_gpu_h",
        "attaches",
        "energy_kwh",
        "by_width",
    ] {
        assert!(value.get(key).is_some(), "{key}");
    }
    let steps = compare::decompose(&results.policies);
    assert!(steps.iter().any(|step| step.what == "composing"));
    let labels = compare::synthetic(&scenario, &results.policies);
    let first = &results.policies[0];
    let equal = compare::equivalent(&trace, &scenario, &policies::ALL[0], first, &mut || Ok(0)).unwrap();
    let report = html::report("<small>", &scenario, &results, &steps, &[equal], &labels);
    for part in [
        "By width",
        "As fast in the mean",
        "stranded GPU-h",
        "µs a decision",
        "What each part brings",
    ] {
        assert!(report.contains(part), "{part}");
    }
    assert!(report.contains("&lt;small&gt;") && report.matches("<svg").count() == 6);
    assert!(!report.contains("http"), "nothing is loaded from elsewhere");
}

#[test]
fn fewer_gpus_of_a_better_policy_are_as_fast() {
    let trace = Trace::parse(SMALL_TRACE).unwrap();
    let scenario = Scenario::parse(SMALL).unwrap();
    let all = [policies::named("fifo").unwrap(), policies::named("sjf").unwrap()];
    let experiment = Experiment {
        trace: &trace,
        scenario: &scenario,
        policies: &all,
    };
    let results = experiment.run(&mut || Ok(0), &mut |_| {}).unwrap();
    let fifo = &results.policies[0];
    let itself = compare::equivalent(&trace, &scenario, &all[0], fifo, &mut || Ok(0)).unwrap();
    assert!(itself.gpus.unwrap() <= fifo.gpus, "{itself:?}");
    let sjf = compare::equivalent(&trace, &scenario, &all[1], fifo, &mut || Ok(0)).unwrap();
    assert!(sjf.gpus <= itself.gpus, "{sjf:?} {itself:?}");
    assert!(sjf.jct_mean_s <= fifo.metrics.jct_mean_s);
}

#[test]
fn what_is_stopped_has_no_answer() {
    let trace = Trace::parse(SMALL_TRACE).unwrap();
    let scenario = Scenario::parse(SMALL).unwrap();
    let all = [policies::named("fifo").unwrap(), policies::named("sjf").unwrap()];
    let simulation = Simulation {
        experiment: Experiment {
            trace: &trace,
            scenario: &scenario,
            policies: &all,
        },
        file: "small",
        as_fast_as: Some(all[0]),
    };
    let answer = |most: u64| {
        let mut looks = 0;
        let mut clock = || {
            looks += 1;
            if looks > most { Err(Stopped) } else { Ok(looks) }
        };
        let answer = simulation.answer(&mut clock, &mut |_| {});
        (answer, looks)
    };
    let (whole, looks) = answer(u64::MAX);
    let whole = whole.unwrap();
    assert_eq!((whole.equivalence.len(), whole.trace.jobs), (1, trace.jobs.len()));
    // In the first run, between two, and while GPUs are counted that are as fast.
    for most in [0, 1, looks / 3, looks / 2, looks - 1] {
        let (stopped, looked) = answer(most);
        assert_eq!(
            (stopped.unwrap_err(), looked),
            (ExperimentError::Stopped(Stopped), most + 1)
        );
    }
}
