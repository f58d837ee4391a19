//! `capacity`: recorded jobs replayed on a pool as it is, and as it would be with more of something.

use super::Outcome;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::{Cell, Output, Table, column, in_csv};
use crate::progress::Progress;
use poolwright_simulator::capacity::{Choice, Judged, Prices, Question};
use poolwright_simulator::{Policy, Runtimes, Scenario, Site};
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct CapacityArgs {
    /// Recorded jobs, as CSV, plain or gzipped: our columns, AcmeTrace's or those of Alibaba's spot trace
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// The pool ([[kind]] and [[hosts]], else as large as its load asks), its watts and seconds, and seeds
    #[arg(long, value_name = "FILE.toml")]
    scenario: PathBuf,
    /// What could be bought; may be repeated. Without it, some that are worth a look
    #[arg(long = "option", value_name = "WHAT", value_parser = parse_choice)]
    options: Vec<Choice>,
    /// By which policy jobs get their GPUs
    #[arg(long, value_name = "NAME", default_value = "poolwright", value_parser = super::simulate::parse_policy)]
    policy: Policy,
    /// What is known of run times: known, loose or predicted
    #[arg(long, value_name = "HOW", default_value = "predicted")]
    runtimes: Runtimes,
    /// Seeds, with commas between them, in place of the scenario's
    #[arg(long, value_name = "SEED", value_delimiter = ',')]
    seeds: Vec<u64>,
    /// Hours after which whoever waits counts as turned away
    #[arg(long, value_name = "HOURS", default_value = "24", value_parser = parse_patience)]
    patience: f64,
    /// US dollars of a host, a slot, a link, a kwh, or a GPU of a kind; may be repeated
    #[arg(long = "price", value_name = "WHAT=USD", value_parser = parse_price)]
    prices: Vec<(String, f64)>,
}

const EXAMPLES: &str = "\
Examples:
  poolwright capacity --trace jobs.csv.gz --scenario pool.toml
  poolwright capacity --trace jobs.csv --scenario pool.toml --option \"8 x h100-sxm5-80gb\" --option \"2 hosts\" \\
    --option \"16 slots a host\" --option \"2 links a host + 4 x l4\" --price host=24000 -o json

Options: N x KIND; N hosts, or N hosts of S slots; S slots a host (no host has fewer); L links a host (a link brings the \
slots that a host's other links have); several with + between them. To buy nothing is always the first.

Columns: WAIT is from submission until the job computes, in hours; LATE are jobs that waited for longer than --patience, \
NEVER those that the pool could never hold; STRANDED are GPU-hours that were free while somebody waited for as many; \
USD what the option costs, from hw-profiles and --price.";

/// Everything, as JSON.
#[derive(Serialize)]
struct Answer<'a> {
    options: &'a [Judged],
    pool: &'a Site,
    policy: &'static str,
    runtimes: Runtimes,
    patience_s: f64,
    prices: &'a Prices,
    jobs: usize,
    assumed: &'a [String],
}

fn parse_choice(text: &str) -> Result<Choice, String> {
    text.parse().map_err(|error| format!("{error}"))
}

fn parse_patience(text: &str) -> Result<f64, String> {
    let hours = text
        .parse::<f64>()
        .ok()
        .filter(|hours| (0.0..=1e6).contains(hours));
    hours.ok_or_else(|| format!("{text:?}: allowed are 0 to a million hours"))
}

fn parse_price(text: &str) -> Result<(String, f64), String> {
    let usd = |usd: &str| usd.parse::<f64>().ok().filter(|usd| (0.0..=1e9).contains(usd));
    let parts = text
        .split_once('=')
        .and_then(|(what, price)| Some((what.trim(), usd(price)?)));
    match parts {
        Some((what, usd)) if !what.is_empty() => Ok((what.to_owned(), usd)),
        _ => Err(format!("{text:?}: give WHAT=USD, such as host=24000 or kwh=0.15")),
    }
}

pub fn run(args: &CapacityArgs, output: Output) -> Outcome {
    let trace = super::simulate::read_trace(&args.trace)?;
    let scenario = read_scenario(&args.scenario, &args.seeds)?;
    let prices = prices_of(&args.prices);
    let unfit = |error: &dyn std::fmt::Display| {
        Failure::usage(format!(
            "{} on {}: {error}",
            args.trace.display(),
            args.scenario.display()
        ))
    };
    let site = Site::of(&scenario, &trace).map_err(|error| unfit(&error))?;
    let question = Question {
        trace: &trace,
        scenario: &scenario,
        site: &site,
        policy: args.policy,
        runtimes: args.runtimes,
        patience_s: 3600.0 * args.patience,
        prices: &prices,
    };
    let progress = Progress::spinner("replaying");
    let judged = question
        .answer(&args.options, &mut |what| progress.doing(what))
        .map_err(|error| Failure::usage(error.to_string()))?;
    drop(progress);
    let assumed = assumed(&scenario, &judged);
    let answer = Answer {
        options: &judged,
        pool: &site,
        policy: args.policy.name,
        runtimes: args.runtimes,
        patience_s: question.patience_s,
        prices: &prices,
        jobs: trace.jobs.len(),
        assumed: &assumed,
    };
    output.show_as(&answer, &table(&judged), |width| {
        let mut text = table(&judged).render(width);
        text.push_str("assumed:\n");
        for line in &assumed {
            text.push_str(&format!("  {line}\n"));
        }
        text
    })?;
    Ok(ExitCode::Ok)
}

fn read_scenario(file: &Path, seeds: &[u64]) -> Result<Scenario, Failure> {
    let text = fs::read_to_string(file).map_err(|error| Failure::file(file, "read", &error))?;
    let refuse = |error| Failure::usage(format!("{}: {error}", file.display()));
    let mut scenario = Scenario::parse(&text).map_err(refuse)?;
    if !seeds.is_empty() {
        scenario.replay.seeds = seeds.to_vec();
    }
    scenario.check().map_err(refuse)?;
    Ok(scenario)
}

fn prices_of(given: &[(String, f64)]) -> Prices {
    let mut prices = Prices::default();
    for (what, usd) in given {
        match what.as_str() {
            "host" => prices.host = Some(*usd),
            "slot" => prices.slot = Some(*usd),
            "link" => prices.link = Some(*usd),
            "kwh" => prices.kwh = Some(*usd),
            kind => drop(prices.kinds.insert(kind.to_owned(), *usd)),
        }
    }
    prices
}

/// What the answer rests on that nobody measured.
fn assumed(scenario: &Scenario, judged: &[Judged]) -> Vec<String> {
    let mut lines = vec![
        "any GPU reaches any host; a job that no host holds may use several".to_owned(),
        "jobs come as they came, whatever is bought".to_owned(),
    ];
    for table in ["attach", "detach", "pool"] {
        let source = scenario
            .source
            .get(table)
            .or_else(|| scenario.source.get("default"));
        lines.extend(source.map(|source| format!("{table}: {source}")));
    }
    let mut without: Vec<&str> = judged
        .iter()
        .flat_map(|one| &one.without_price)
        .map(String::as_str)
        .collect();
    without.sort_unstable();
    without.dedup();
    if !without.is_empty() {
        let example = without[0];
        lines.push(format!(
            "no price of {} is known: give --price {example}=USD",
            without.join(", ")
        ));
    }
    lines
}

fn table(judged: &[Judged]) -> Table {
    let mut table = Table::new([
        column("OPTION"),
        column("USD").named("cost_usd"),
        column("WAIT").named("wait_mean_s"),
        column("P95").named("wait_p95_s"),
        column("LATE").named("waited_too_long"),
        column("NEVER").named("refused"),
        column("USED").named("utilization"),
        column("KWH").named("energy_kwh"),
        column("STRANDED").named("stranded_gpu_h").if_room(),
        column("JCT").named("jct_mean_s").if_room(),
        in_csv("gpus"),
        in_csv("hosts"),
        in_csv("slots"),
    ]);
    for one in judged {
        let metrics = &one.metrics;
        let hours = |seconds: f64| Cell::both(format!("{:.2}", seconds / 3600.0), seconds);
        table.row([
            Cell::text(&one.option),
            match one.cost_usd {
                Some(usd) => Cell::both(format!("{usd:.0}"), usd),
                None => Cell::text("?"),
            },
            hours(metrics.wait_mean_s),
            hours(metrics.wait_p95_s),
            Cell::both(format!("{:.0}", one.waited_too_long), one.waited_too_long),
            Cell::text(metrics.refused),
            Cell::both(
                format!("{:.1}%", 100.0 * metrics.utilization),
                metrics.utilization,
            ),
            Cell::both(format!("{:.1}", metrics.energy_kwh), metrics.energy_kwh),
            Cell::both(format!("{:.0}", metrics.stranded_gpu_h), metrics.stranded_gpu_h),
            hours(metrics.jct_mean_s),
            Cell::text(one.gpus),
            Cell::text(one.hosts),
            Cell::text(one.slots),
        ]);
    }
    table
}
