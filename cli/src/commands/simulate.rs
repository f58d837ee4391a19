//! `simulate`: recorded jobs replayed against policies, and measured. Needs no manager and no hardware.

use super::Outcome as Ended;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::{Cell, Output, Table, column, in_csv, say};
use crate::progress::Progress;
use poolwright_simulator::scenario::{LEAST_LOAD, MOST_LOAD, ScenarioError};
use poolwright_simulator::{
    Experiment, Policy, Results, Runtimes, Scenario, Simulated, Simulation, Trace, html, policies,
};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct SimulateArgs {
    /// Recorded jobs, as CSV, plain or gzipped: our columns, AcmeTrace's or those of Alibaba's spot trace
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// The hardware, its watts and seconds, loads and seeds: a file, or one that comes with Poolwright, such as pool-k8
    #[arg(long, value_name = "FILE.toml|NAME", default_value = "pool-k16")]
    scenario: PathBuf,
    /// Which policies, with commas between them
    #[arg(long, value_name = "NAME", value_delimiter = ',', required = true, value_parser = parse_policy)]
    policy: Vec<Policy>,
    /// Offered loads, with commas between them, in place of the scenario's
    #[arg(long, value_name = "LOAD", value_delimiter = ',', value_parser = load)]
    load: Vec<f64>,
    /// Seeds, with commas between them, in place of the scenario's
    #[arg(long, value_name = "SEED", value_delimiter = ',')]
    seeds: Vec<u64>,
    /// What is known of run times: known, loose or predicted, with commas between them, in place of the scenario's
    #[arg(long, value_name = "HOW", value_delimiter = ',')]
    runtimes: Vec<Runtimes>,
    /// Also look for the GPUs with which each policy is as fast, in the mean, as this one
    #[arg(long, value_name = "NAME", value_parser = parse_policy)]
    as_fast_as: Option<Policy>,
    /// Also write a report with plots
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  poolwright simulate --trace jobs.csv.gz --scenario pool-k16 \\
    --policy static-partition,static-shared-easy,has,poolwright -o json
  poolwright simulate --trace jobs.csv --scenario pool.toml --policy static-shared-easy,poolwright --load 0.5,0.65,0.8 \\
    --runtimes known,loose,predicted --html report.html

Policies: static-partition, static-shared-easy, static-shared-ordered, fifo, sjf, pool-easy, has, poolwright. \
docs/SIMULATOR.md says what each is.

Columns: JCT is from submission to the end, WAIT from submission until the job computes, the mean and the percentiles all in \
hours; WIDEST the mean JCT of the widest jobs, in hours, too; US microseconds of a decision on this machine.

JSON: {policies, left_out, decomposition, equivalence, synthetic, trace, scenario}; each of policies is one policy at one \
load with one knowledge of run times: means over the seeds, and each seed's under seeds.";

pub(super) fn parse_policy(name: &str) -> Result<Policy, String> {
    policies::named(name).ok_or_else(|| {
        let known: Vec<&str> = policies::ALL.iter().map(|policy| policy.name).collect();
        format!("no such policy; known are {}", known.join(", "))
    })
}

fn load(text: &str) -> Result<f64, String> {
    let load = text.parse::<f64>().ok();
    let load = load.filter(|load| (LEAST_LOAD..=MOST_LOAD).contains(load));
    load.ok_or_else(|| format!("allowed: a number from {LEAST_LOAD} to {MOST_LOAD}, such as 0.65"))
}

/// The policies that are named, each once.
fn named_once(policies: &[Policy]) -> Vec<Policy> {
    let mut once: Vec<Policy> = Vec::new();
    for policy in policies {
        match once.iter().any(|known| known.name == policy.name) {
            true => say(&format!(
                "{} is named more than once, and replayed once",
                policy.name
            )),
            false => once.push(*policy),
        }
    }
    once
}

pub fn run(args: &SimulateArgs, output: Output) -> Ended {
    let policies = named_once(&args.policy);
    let trace = read_trace(&args.trace)?;
    let scenario = read_scenario(args)?;
    let simulation = Simulation {
        experiment: Experiment {
            trace: &trace,
            scenario: &scenario,
            policies: &policies,
        },
        file: &args.trace.display().to_string(),
        as_fast_as: args.as_fast_as,
    };
    let progress = Progress::spinner("replaying");
    let started = Instant::now();
    let mut clock = || Ok(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX));
    let simulated = simulation.answer(&mut clock, &mut |what| progress.doing(what));
    drop(progress);
    let simulated = simulated.map_err(|error| {
        let message = format!("{} on {}: {error}", simulation.file, args.scenario.display());
        Failure::usage(message).with_hint("change the scenario, or replay another trace on it")
    })?;
    let results = &simulated.results;
    for left in &results.left_out {
        say(&format!("{} is left out {}", left.policy, left.why));
    }
    warn_of_differences(&trace, results);
    if let Some(file) = &args.html {
        let report = html::report(
            simulation.file,
            &scenario,
            results,
            &simulated.decomposition,
            &simulated.equivalence,
            &simulated.synthetic,
        );
        fs::write(file, report).map_err(|error| Failure::file(file, "written", &error))?;
    }
    output.show_as(&simulated, &table(results), |width| text(&simulated, width))?;
    match results.policies.is_empty() {
        true => Err(Failure::usage("no policy could be run").with_hint("give more GPUs, or a lower --load")),
        false => Ok(ExitCode::Ok),
    }
}

/// Reports jobs that no figure includes, and loads that differ from the requested ones, once each.
fn warn_of_differences(trace: &Trace, results: &Results) {
    let refused = results.policies.iter().map(|outcome| outcome.metrics.refused);
    if let Some(refused) = refused.max().filter(|refused| *refused > 0) {
        say(&format!(
            "{refused} of {} jobs could never run on this hardware (memory or width), and no figure includes them",
            trace.jobs.len()
        ));
    }
    let mut reported: Vec<f64> = Vec::new();
    for outcome in &results.policies {
        let differs = (outcome.offered_load / outcome.load - 1.0).abs() > 0.01;
        if differs && !reported.contains(&outcome.load) {
            reported.push(outcome.load);
            say(&format!(
                "the load is {:.3} and not {}: whole servers that hold the widest job have {} GPUs",
                outcome.offered_load, outcome.load, outcome.gpus
            ));
        }
    }
}

pub(super) fn read_trace(file: &Path) -> Result<Trace, Failure> {
    let open = File::open(file).map_err(|error| Failure::file(file, "read", &error))?;
    let trace = Trace::read(open).map_err(|error| {
        Failure::usage(format!("{}: {error}", file.display())).with_hint(
            "mend the file there: a trace is CSV, plain or gzip, with a job a line below the names of its columns; one of \
             demand (time, tenant, gpus) is read by poolwright forecast --from FILE",
        )
    })?;
    if trace.rounded_up > 0 {
        say(&format!(
            "jobs that ask for a fraction of a GPU, replayed on whole GPUs: {}; loads and waits are higher than recorded",
            trace.rounded_up
        ));
    }
    Ok(trace)
}

/// A scenario that can't be replayed on, and what to do.
pub(super) fn refused_scenario(name: &str, error: &ScenarioError) -> Failure {
    Failure::usage(format!("{name}: {error}"))
        .with_hint("mend it there, or begin with one of hw-profiles/scenarios, which say what each key means")
}

/// A scenario's file, or one that comes with Poolwright by its name.
pub(super) fn named_scenario(named: &Path) -> Result<Scenario, Failure> {
    let refuse = |error| refused_scenario(&named.display().to_string(), &error);
    // A folder that happens to have the name of a scenario is none.
    let name = named.to_str().filter(|_| !named.is_file());
    if let Some(built_in) = name.and_then(Scenario::built_in) {
        return built_in.map_err(refuse);
    }
    let text = fs::read_to_string(named).map_err(|error| {
        let known: Vec<&str> = Scenario::built_in_names().collect();
        Failure::file(named, "read", &error)
            .with_hint(format!("give a file, or one of these: {}", known.join(", ")))
    })?;
    Scenario::parse(&text).map_err(refuse)
}

/// The scenario, with what the command line says in its place.
fn read_scenario(args: &SimulateArgs) -> Result<Scenario, Failure> {
    let mut scenario = named_scenario(&args.scenario)?;
    let replay = &mut scenario.replay;
    if let Some(policy) = &args.as_fast_as
        && !args.policy.iter().any(|one| one.name == policy.name)
    {
        let message = format!("--as-fast-as {}: it is not among the policies", policy.name);
        return Err(Failure::usage(message).with_hint("name it in --policy too"));
    }
    if !args.load.is_empty() {
        replay.loads.clone_from(&args.load);
    }
    if !args.seeds.is_empty() {
        replay.seeds.clone_from(&args.seeds);
    }
    if !args.runtimes.is_empty() {
        replay.runtimes.clone_from(&args.runtimes);
    }
    scenario.check().map_err(not_replayed)?;
    Ok(scenario)
}

/// The scenario was right by itself.
pub(super) fn not_replayed(error: ScenarioError) -> Failure {
    Failure::usage(format!("with what the options say {error}")).with_hint("see --help")
}

fn table(results: &Results) -> Table {
    let mut table = Table::new([
        column("POLICY"),
        column("LOAD").named("offered_load"),
        in_csv("load"),
        column("RUN TIMES").named("runtimes").goes(4),
        column("GPUS").goes(3),
        column("JCT H").named("jct_mean_s"),
        in_csv("jct_p50_s"),
        column("JCT P95").named("jct_p95_s"),
        column("JCT P99").named("jct_p99_s").goes(2),
        column("WAIT H").named("wait_mean_s"),
        column("WAIT P95").named("wait_p95_s"),
        column("WIDEST").named("widest_jct_mean_s").goes(4),
        column("USED").named("utilization"),
        column("STRANDED").named("stranded_gpu_h").goes(1),
        column("ATTACHES").named("attaches").goes(1),
        column("MWH").named("energy_kwh").goes(5),
        column("US").named("decision_mean_us").goes(1),
    ]);
    for outcome in &results.policies {
        let metrics = &outcome.metrics;
        let hours = |seconds: f64| Cell::both(format!("{:.2}", seconds / 3600.0), seconds);
        table.row([
            Cell::text(outcome.policy),
            Cell::both(format!("{:.2}", outcome.offered_load), outcome.offered_load),
            Cell::text(outcome.load),
            Cell::text(outcome.runtimes),
            Cell::text(outcome.gpus),
            hours(metrics.jct_mean_s),
            hours(metrics.jct_p50_s),
            hours(metrics.jct_p95_s),
            hours(metrics.jct_p99_s),
            hours(metrics.wait_mean_s),
            hours(metrics.wait_p95_s),
            hours(metrics.by_width.last().map_or(0.0, |width| width.jct_mean_s)),
            Cell::both(
                format!("{:.1}%", 100.0 * metrics.utilization),
                metrics.utilization,
            ),
            Cell::both(format!("{:.0}", metrics.stranded_gpu_h), metrics.stranded_gpu_h),
            Cell::both(format!("{:.0}", metrics.attaches), metrics.attaches),
            Cell::both(format!("{:.1}", metrics.energy_kwh / 1000.0), metrics.energy_kwh),
            Cell::both(
                format!("{:.1}", outcome.decision.mean_us),
                outcome.decision.mean_us,
            ),
        ]);
    }
    table
}

fn text(simulated: &Simulated, width: Option<u16>) -> String {
    let mut text = table(&simulated.results).render(width);
    for outcome in &simulated.results.policies {
        if let Some(windows) = &outcome.metrics.windows {
            text.push_str(&format!(
                "\n{}, load {}, run times {}: {} of {} windows served in time, the latest {} s late; refused: {}",
                outcome.policy,
                outcome.load,
                outcome.runtimes,
                windows.served,
                windows.admitted,
                windows.latest_s,
                windows.refused
            ));
        }
    }
    if !simulated.decomposition.is_empty() {
        let mut parts = Table::new([
            column("BROUGHT BY"),
            column("FROM").key(),
            column("TO").key(),
            column("LOAD").goes(3),
            column("RUN TIMES").goes(2),
            column("JCT"),
            column("JCT P95").goes(3),
            column("WAIT"),
            column("WIDEST").goes(1),
            column("MWH").goes(1),
        ]);
        for step in &simulated.decomposition {
            let change = |share: f64| Cell::text(format!("{:+.1}%", 100.0 * share));
            parts.row([
                Cell::text(step.what),
                Cell::text(step.from),
                Cell::text(step.to),
                Cell::text(step.load),
                Cell::text(step.runtimes),
                change(step.jct_mean),
                change(step.jct_p95),
                change(step.wait_mean),
                change(step.widest_jct_mean),
                change(step.energy),
            ]);
        }
        text.push_str(&format!("\n{}", parts.render(width)));
    }
    for equal in &simulated.equivalence {
        let gpus = match equal.gpus {
            Some(gpus) => format!("{gpus} GPUs"),
            None => "more than twice the GPUs".to_owned(),
        };
        text.push_str(&format!(
            "\n{} needs {gpus} to be as fast as {} with {}, at load {}, run times {}",
            equal.policy, equal.reference, equal.reference_gpus, equal.load, equal.runtimes
        ));
    }
    text.push_str("\nassumed or synthetic:\n");
    for label in &simulated.synthetic {
        text.push_str(&format!("  {label}\n"));
    }
    text
}
