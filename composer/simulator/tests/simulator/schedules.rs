//! Schedules and figures that were worked out by hand.

use crate::support::{SMALL, began, job, run, small, workload};
use poolwright_simulator::metrics::{Metrics, quantile};
use poolwright_simulator::replay::{Replayed, replay};
use poolwright_simulator::workload::Workload;
use poolwright_simulator::{Runtimes, Scenario, policies};

/// Two short narrow jobs, a wide one behind them, then narrow ones of which some fit before it.
fn seven() -> Workload {
    let jobs = vec![
        job(0, 0, 10, 1),
        job(0, 0, 10, 1),
        job(0, 1, 5, 4),
        job(0, 2, 20, 1),
        job(0, 3, 4, 1),
        job(0, 4, 3, 2),
        job(0, 5, 2, 2),
    ];
    workload(jobs, 4)
}

#[test]
fn each_policy_makes_the_schedule_that_its_rules_say() {
    // The wide job has its turn at 10, when all that runs has ended; what ends until then goes before it.
    let reserved = [0.0, 0.0, 10.0, 15.0, 3.0, 7.0, 15.0];
    for (policy, expected) in [
        ("static-shared-easy", reserved),
        ("static-shared-ordered", reserved),
        ("pool-easy", reserved),
        ("poolwright", reserved),
        // Nothing passes the wide job.
        ("fifo", [0.0, 0.0, 10.0, 15.0, 15.0, 15.0, 18.0]),
        // Everything that fits passes it; at 10 the shorter of two goes first.
        ("sjf", [0.0, 0.0, 22.0, 2.0, 3.0, 12.0, 10.0]),
        // The same, but the earlier of two goes first.
        ("has", [0.0, 0.0, 22.0, 2.0, 3.0, 10.0, 13.0]),
    ] {
        let run = run(policy, &small(), &seven(), Runtimes::Known);
        assert_eq!(began(&run), expected, "{policy}");
    }
}

#[test]
fn promised_windows_are_served_in_time_and_jobs_with_limits_run_up_to_them() {
    // Half of the 4 GPUs, from 20 s to 56 s of every hour.
    let window = "[[window]]\nname = \"night\"\nshare_of_gpus = 0.5\ngpus_per_set = 2\n\
                  from_h = 0.00555556\nhours = 0.01\nevery_h = 1\n[source]";
    let scenario = Scenario::parse(&SMALL.replace("[source]", window)).unwrap();
    let jobs = || {
        let jobs = vec![
            job(0, 0, 10, 2),
            job(0, 0, 15, 4),
            job(0, 12, 30, 2),
            job(0, 25, 5, 2),
        ];
        workload(jobs, 4)
    };
    for policy in ["static-shared-easy", "pool-easy", "poolwright"] {
        let run = run(policy, &scenario, &jobs(), Runtimes::Known);
        assert_eq!(began(&run), [0.0, 56.0, 12.0, 42.0], "{policy}");
        let windows = Metrics::of(&run).windows.unwrap();
        assert_eq!((windows.admitted, windows.served), (1.0, 1.0), "{policy}");
        assert_eq!((windows.refused, windows.latest_s), (0.0, 0.0), "{policy}");
        // A promise that is never kept counts, too.
        let never = Replayed {
            windows: Vec::new(),
            ..run
        };
        let windows = Metrics::of(&never).windows.unwrap();
        assert_eq!((windows.admitted, windows.served), (1.0, 0.0), "{policy}");
    }
    // Predictions are no limits: the promised GPUs stay free from the start.
    let run = run("poolwright", &scenario, &jobs(), Runtimes::Predicted);
    assert_eq!(Metrics::of(&run).windows.unwrap().served, 1.0);
    assert_eq!(began(&run), [0.0, 56.0, 12.0, 42.0]);
}

#[test]
fn partitions_do_not_lend() {
    let jobs = vec![job(0, 0, 10, 2), job(0, 1, 10, 2), job(1, 2, 5, 1)];
    let run = run("static-partition", &small(), &workload(jobs, 4), Runtimes::Known);
    assert_eq!(began(&run), [0.0, 10.0, 2.0]);
}

#[test]
fn partitions_too_small_for_their_widest_jobs_are_refused() {
    let jobs = vec![job(0, 0, 10, 4), job(1, 1, 10, 1)];
    let policy = policies::named("static-partition").unwrap();
    let refused = replay(
        &policy,
        &small(),
        &workload(jobs, 4),
        Runtimes::Known,
        &mut || Ok(0),
    );
    assert_eq!(
        refused.unwrap_err().to_string(),
        "2 tenants need 3 servers of 2 GPUs for the widest job of each, and there are 2"
    );
}

#[test]
fn a_job_that_nothing_could_hold_is_counted_and_not_waited_for() {
    let jobs = vec![job(0, 0, 10, 5), job(0, 1, 10, 1)];
    let run = run("fifo", &small(), &workload(jobs, 4), Runtimes::Known);
    assert_eq!((run.refused.as_slice(), run.records.len()), (&[0][..], 1));
}

#[test]
fn the_figures_of_a_static_schedule() {
    let metrics = Metrics::of(&run("static-shared-easy", &small(), &seven(), Runtimes::Known));
    // Completion after 10, 10, 14, 33, 4, 6 and 12 seconds; waits of 0, 0, 9, 13, 0, 3 and 10.
    assert!((metrics.jct_mean_s - 89.0 / 7.0).abs() < 1e-9);
    assert_eq!((metrics.jct_p50_s, metrics.wait_mean_s), (10.0, 5.0));
    assert!((metrics.jct_p95_s - (14.0 + 0.7 * 19.0)).abs() < 1e-9);
    // Until the last submission at 5: two GPUs for three seconds, three for two, of four for five.
    assert_eq!(metrics.utilization, 0.6);
    // A job of one GPU waits beside two free ones for a second, beside one for four.
    assert!((metrics.stranded_gpu_h - 6.0 / 3600.0).abs() < 1e-12);
    // 74 GPU-seconds at 100 W, the other 66 of 35 seconds at 10 W, two servers at 50 W.
    assert!((metrics.energy_kwh - 11_560.0 / 3.6e6).abs() < 1e-12);
    assert_eq!((metrics.attaches, metrics.makespan_s), (0.0, 35.0));
    let widths: Vec<_> = metrics
        .by_width
        .iter()
        .map(|width| (width.gpus.as_str(), width.jobs))
        .collect();
    assert_eq!(widths, [("1", 4), ("2", 2), ("4", 1)]);
    assert_eq!(metrics.by_width[2].jct_mean_s, 14.0);
    // 10/10, 10/10, 14/10, 33/20, 4/10, 6/10 and 12/10: run times under ten seconds count as ten.
    assert!((metrics.slowdown_mean - (1.0 + 1.0 + 1.4 + 1.65 + 0.4 + 0.6 + 1.2) / 7.0).abs() < 1e-9);
}

#[test]
fn the_figures_of_a_pool() {
    let mut scenario = small();
    scenario.attach.base_s = 2.0;
    scenario.attach.per_gpu_s = 1.0;
    let jobs = vec![job(0, 0, 10, 1), job(0, 20, 10, 1)];
    let run = run("poolwright", &scenario, &workload(jobs, 2), Runtimes::Known);
    // Three seconds to attach each time: five seconds after it was given back the GPU has left.
    assert_eq!(began(&run), [3.0, 23.0]);
    let metrics = Metrics::of(&run);
    assert_eq!(
        (metrics.attaches, metrics.detaches, metrics.attach_mean_s),
        (2.0, 1.0, 3.0)
    );
    // 20 s at 100 W, 11 s attached and idle at 10 W, 35 s detached at 1 W; the host 26 s at 30 W and 7 s at 15 W; the
    // fabric of two GPUs for 33 s at 2 W.
    assert!((metrics.energy_kwh - 3162.0 / 3.6e6).abs() < 1e-12);
}

#[test]
fn what_is_still_attached_is_not_attached_again() {
    let mut scenario = small();
    scenario.attach.base_s = 2.0;
    let jobs = vec![job(0, 0, 10, 1), job(0, 14, 10, 1)];
    let run = run("poolwright", &scenario, &workload(jobs, 2), Runtimes::Known);
    assert_eq!(began(&run), [2.0, 14.0]);
}

#[test]
fn a_gpu_that_must_leave_another_host_first_costs_a_detach() {
    let mut scenario = small();
    scenario.attach.per_gpu_s = 1.0;
    scenario.detach.per_gpu_s = 2.0;
    // All four GPUs are idle on two hosts of two when a job wants them on one host: two come over.
    scenario.pool.slots_per_host = 4;
    let jobs = vec![job(0, 0, 10, 3), job(0, 0, 10, 1), job(0, 15, 5, 4)];
    scenario.pool.idle_detach_s = 100.0;
    let run = run("has", &scenario, &workload(jobs, 4), Runtimes::Known);
    let hosts: Vec<usize> = run
        .records
        .iter()
        .flat_map(|record| record.parts.iter().map(|part| part.host))
        .collect();
    // Best fit put both on the first host.
    assert_eq!(hosts, [0, 0, 0]);
    assert_eq!(began(&run), [3.0, 1.0, 15.0]);
}

#[test]
fn loose_estimates_keep_a_job_from_going_before_its_turn() {
    // Twice its four seconds still end before 10 + 1; three times do not.
    let run_with = |looseness: f64| {
        let mut workload = seven();
        workload.jobs[4].looseness = looseness;
        for index in [0, 1] {
            workload.jobs[index].looseness = 1.0;
        }
        began(&run("static-shared-easy", &small(), &workload, Runtimes::Loose))[4]
    };
    assert_eq!(run_with(1.5), 3.0);
    assert_eq!(run_with(3.0), 15.0);
}

#[test]
fn quantiles_lie_between_values_in_proportion() {
    assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.5), 2.5);
    assert_eq!(quantile(&[1.0, 2.0], 1.0), 2.0);
    assert_eq!(quantile(&[], 0.5), 0.0);
}
