//! `capacity`: recorded jobs replayed on a pool as it is, and as it would be with more of something. Both come from the
//! manager, or from files.

use super::Outcome;
use crate::api_client::{Api, ManagerArgs};
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::{Cell, Output, Table, column, in_csv, say};
use crate::progress::Progress;
use jiff::Timestamp;
use poolwright_model::profile::Profiles;
use poolwright_service::{Asked, Snapshot, Status, pool_kinds};
use poolwright_simulator::capacity::{Choice, Judged, Prices, Question, report};
use poolwright_simulator::record::{self, Wish};
use poolwright_simulator::site::{Hosts, Kind, SiteError};
use poolwright_simulator::{Policy, Runtimes, Scenario, Site, Trace};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct CapacityArgs {
    /// Recorded jobs, as CSV, plain or gzipped, in place of what the manager recorded; needs --scenario
    #[arg(long, value_name = "FILE", requires = "scenario")]
    trace: Option<PathBuf>,
    /// Watts, seconds, seeds and what uplinks carry; with --trace also the pool ([[kind]] and [[hosts]], else as large as its load asks). A file, or one that comes with Poolwright, such as described
    #[arg(long, value_name = "FILE.toml|NAME")]
    scenario: Option<PathBuf>,
    /// Also write what the manager recorded, as a trace
    #[arg(long, value_name = "FILE.csv", conflicts_with = "trace")]
    record: Option<PathBuf>,
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
    /// US dollars of a host, a slot, a link, an uplink for each GPU that it carries, a kwh, or a GPU of a kind; may be repeated
    #[arg(long = "price", value_name = "WHAT=USD", value_parser = parse_price)]
    prices: Vec<(String, f64)>,
    /// Also write a report with plots
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
    #[command(flatten)]
    manager: ManagerArgs,
}

const EXAMPLES: &str = "\
Examples:
  poolwright capacity --record asked.csv
  poolwright capacity --option \"8 x h100-sxm5-80gb\" --price h100-sxm5-80gb=30000 --patience 4
  poolwright capacity --trace jobs.csv.gz --scenario pool.toml --html report.html
  poolwright capacity --trace jobs.csv --scenario pool.toml --option \"8 x h100-sxm5-80gb\" --option \"2 hosts\" \\
    --option \"16 slots a host\" --option \"2 links a host + 4 x l4\" --price host=24000 -o json

Options: N x KIND; N hosts, or N hosts of S slots; S slots a host (no host has fewer); L links a host (a link brings the \
slots that a host's other links have); U GPUs an uplink (so many at a time between each switch and the others); several with + between them. To buy nothing is always the first.

Columns: WAIT is from submission until the job computes, in hours; LATE are jobs that waited for longer than --patience, \
NEVER those that the pool could never hold; STRANDED are GPU-hours that were free while somebody waited for as many; \
USD what the option costs, from hw-profiles and --price; KWH USD what the energy costs, with --price kwh. Of a pool that \
could hold none of the jobs nothing is said of waits.";

/// What is replayed, and on what.
struct Ground {
    trace: Trace,
    scenario: Scenario,
    site: Site,
    /// Of the manager's record.
    recorded: Option<Recorded>,
}

/// The manager's record in a few figures.
#[derive(Serialize)]
struct Recorded {
    since: Timestamp,
    ended: usize,
    running: usize,
    waiting: usize,
    refused: usize,
    /// Taken back by their owners before they were served.
    withdrawn: usize,
    /// Wishes of which nobody could say how many GPUs they need; they are not replayed.
    unsized_wishes: usize,
}

/// Everything, as JSON.
#[derive(Serialize)]
struct Answer<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded: &'a Option<Recorded>,
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

pub async fn run(args: CapacityArgs, output: Output) -> Outcome {
    let ground = match (&args.trace, &args.scenario) {
        (Some(trace), Some(scenario)) => from_files(trace, scenario, &args.seeds)?,
        _ => match from_manager(&args).await? {
            Some(ground) => ground,
            None => return nothing_recorded(output),
        },
    };
    let Ground {
        trace,
        scenario,
        site,
        recorded,
    } = &ground;
    let prices = prices_of(&args.prices);
    may_be_bought(&prices, site)?;
    let question = Question {
        trace,
        scenario,
        site,
        policy: args.policy,
        runtimes: args.runtimes,
        patience_s: 3600.0 * args.patience,
        prices: &prices,
    };
    let progress = Progress::spinner("replaying");
    let judged = question
        .answer(&args.options, &mut |what| progress.doing(what))
        .map_err(|error| {
            Failure::usage(error.to_string()).with_hint("poolwright capacity --help says what may be given")
        })?;
    drop(progress);
    let assumed = assumed(scenario, site, &judged);
    if let Some(file) = &args.html {
        let jobs = args.trace.as_ref().map_or_else(
            || "what the manager recorded".to_owned(),
            |trace| trace.display().to_string(),
        );
        fs::write(file, report(&jobs, &question, &judged, &assumed))
            .map_err(|error| Failure::file(file, "written", &error))?;
    }
    let answer = Answer {
        recorded,
        options: &judged,
        pool: site,
        policy: args.policy.name,
        runtimes: args.runtimes,
        patience_s: question.patience_s,
        prices: &prices,
        jobs: trace.jobs.len(),
        assumed: &assumed,
    };
    output.show_as(&answer, &table(&judged), |width| {
        let mut text = recorded.as_ref().map_or_else(String::new, told);
        text.push_str(&table(&judged).render(width));
        text.push_str("assumed:\n");
        for line in &assumed {
            text.push_str(&format!("  {line}\n"));
        }
        text
    })?;
    Ok(ExitCode::Ok)
}

fn from_files(trace: &Path, scenario: &Path, seeds: &[u64]) -> Result<Ground, Failure> {
    let unfit = |error| {
        Failure::usage(format!("{} on {}: {error}", trace.display(), scenario.display()))
            .with_hint("change the scenario, or replay another trace on it")
    };
    let (trace, scenario) = (
        super::simulate::read_trace(trace)?,
        read_scenario(Some(scenario), seeds)?,
    );
    let site = Site::of(&scenario, &trace).map_err(unfit)?;
    Ok(Ground {
        trace,
        scenario,
        site,
        recorded: None,
    })
}

/// Of a manager that is new nothing is wrong, and nothing can be said.
fn nothing_recorded(output: Output) -> Outcome {
    say(
        "nothing is recorded yet: the manager records what is asked of it, so ask again once something was; \
or replay a trace of your own: --trace FILE --scenario FILE.toml",
    );
    output.show(&serde_json::json!({"options": [], "jobs": 0}), &table(&[]))?;
    Ok(ExitCode::Ok)
}

/// What was asked of the manager, on the pool that it sees; `None`: nothing was yet.
async fn from_manager(args: &CapacityArgs) -> Result<Option<Ground>, Failure> {
    let api = Api::new(&args.manager)?;
    let now = api.get::<Status>(&["status"]).await?.now;
    let asked: Vec<Asked> = api.get(&["record"]).await?;
    let snapshot: Snapshot = api.get(&["snapshot"]).await?;
    let wishes: Vec<Wish> = asked.iter().map(Asked::wish).collect();
    let text = record::csv(&wishes, seconds(now));
    if let Some(file) = &args.record {
        fs::write(file, &text).map_err(|error| Failure::file(file, "written", &error))?;
    }
    if asked.is_empty() {
        return Ok(None);
    }
    let unfit = |what: &str, error: &dyn std::fmt::Display| {
        Failure::new(ExitCode::Generic, format!("{what}: {error}"))
            .with_hint("or replay a trace of your own: --trace FILE --scenario FILE.toml")
    };
    let trace = Trace::parse(&text)
        .map_err(|error| unfit("nothing can be replayed of what the manager recorded", &error))?;
    let scenario = read_scenario(args.scenario.as_deref(), &args.seeds)?;
    let site = site_of(&snapshot, &scenario)
        .map_err(|error| unfit("nothing can be replayed on the pool as it is seen", &error))?;
    Ok(Some(Ground {
        trace,
        scenario,
        site,
        recorded: Some(Recorded::of(&asked, now)),
    }))
}

/// Movable GPUs by kind, and the hosts that have slots; uplinks limit them only as a scenario says.
fn site_of(snapshot: &Snapshot, scenario: &Scenario) -> Result<Site, SiteError> {
    let kinds = pool_kinds(snapshot);
    let kinds = kinds.iter().map(|kind| Kind::new(&kind.kind, kind.count));
    let mut alike: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    for host in &snapshot.topology.hosts {
        let slots = host.ports.iter().map(|port| port.slots).sum();
        let links = host.ports.iter().filter(|port| port.slots > 0).count();
        if slots > 0 {
            *alike
                .entry((slots, u32::try_from(links).unwrap_or(u32::MAX)))
                .or_default() += 1;
        }
    }
    let hosts = alike
        .into_iter()
        .map(|((slots, links), count)| Hosts { count, slots, links });
    // The manager gives any GPU to any host that reaches it, however many work across an uplink already.
    Site::new(kinds.collect(), hosts.collect())?.behind(scenario.switches)
}

fn seconds(at: Timestamp) -> f64 {
    at.as_duration().as_secs_f64()
}

impl Recorded {
    fn of(asked: &[Asked], now: Timestamp) -> Self {
        let count = |is: fn(&Asked) -> bool| asked.iter().filter(|one| is(one)).count();
        Self {
            since: asked.iter().map(|one| one.asked).min().unwrap_or(now),
            ended: count(|one| one.served.is_some() && one.ended.is_some()),
            running: count(|one| one.served.is_some() && one.ended.is_none()),
            waiting: count(|one| one.served.is_none() && one.refused.is_none() && !one.withdrawn),
            refused: count(|one| one.refused.is_some()),
            withdrawn: count(|one| one.withdrawn),
            unsized_wishes: count(|one| one.gpus == 0),
        }
    }
}

fn told(recorded: &Recorded) -> String {
    let Recorded {
        since,
        ended,
        running,
        waiting,
        refused,
        withdrawn,
        unsized_wishes,
    } = recorded;
    let mut text = format!(
        "asked of the pool since {since}: {ended} ended, {running} running, {waiting} waiting, {refused} refused, {withdrawn} withdrawn\n"
    );
    if *unsized_wishes > 0 {
        text.push_str(&format!(
            "{unsized_wishes} of them not replayed: nobody could say how many GPUs they need\n"
        ));
    }
    text
}

/// Of a file, else what is assumed of hardware that nobody has measured.
fn read_scenario(file: Option<&Path>, seeds: &[u64]) -> Result<Scenario, Failure> {
    let mut scenario = super::simulate::named_scenario(file.unwrap_or(Path::new("pool-k16")))?;
    if !seeds.is_empty() {
        scenario.replay.seeds = seeds.to_vec();
    }
    scenario.check().map_err(super::simulate::not_replayed)?;
    Ok(scenario)
}

fn prices_of(given: &[(String, f64)]) -> Prices {
    let mut prices = Prices::default();
    for (what, usd) in given {
        match what.as_str() {
            "host" => prices.host = Some(*usd),
            "slot" => prices.slot = Some(*usd),
            "link" => prices.link = Some(*usd),
            "uplink" => prices.uplink = Some(*usd),
            "kwh" => prices.kwh = Some(*usd),
            kind => drop(prices.kinds.insert(kind.to_owned(), *usd)),
        }
    }
    prices
}

/// Refuses a price of what is neither in the pool nor anything that could be bought.
fn may_be_bought(prices: &Prices, site: &Site) -> Result<(), Failure> {
    let profiles = Profiles::builtin();
    let known =
        |kind: &str| site.kinds.iter().any(|known| known.name == kind) || profiles.by_name(kind).is_some();
    match prices.kinds.keys().find(|kind| !known(kind)) {
        None => Ok(()),
        Some(kind) => Err(Failure::usage(format!(
            "--price {kind}=USD: that is no host, slot, link, uplink, kwh or kind of GPU"
        ))
        .with_hint("see all kinds: poolwright size --list kinds")),
    }
}

/// What the answer rests on that nobody measured.
fn assumed(scenario: &Scenario, site: &Site, judged: &[Judged]) -> Vec<String> {
    let reach = match site.switches {
        Some(switches) => format!(
            "hosts and GPUs are spread evenly over {} switches, and {} GPUs at a time work across the uplink of each",
            switches.count, switches.uplink_gpus
        ),
        None => "any GPU reaches any host, and uplinks between switches carry all".to_owned(),
    };
    let mut lines = vec![
        format!("{reach}; a job that no host holds may use several"),
        "jobs come as they came, whatever is bought".to_owned(),
    ];
    for table in ["attach", "detach", "pool"] {
        let source = scenario
            .source
            .get(table)
            .or_else(|| scenario.source.get("default"));
        lines.extend(source.map(|source| format!("{table}: {source}")));
    }
    if judged
        .iter()
        .any(|one| one.metrics.refused != judged[0].metrics.refused)
    {
        lines.push(
            "who never gets GPUs counts in no wait: an option with fewer under NEVER than others serves jobs that they \
             turn away, and may let the rest wait longer for them"
                .to_owned(),
        );
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
        column("KWH USD").named("energy_usd").if_any(),
        column("STRANDED").named("stranded_gpu_h").if_room(),
        column("JCT").named("jct_mean_s").if_room(),
        in_csv("gpus"),
        in_csv("hosts"),
        in_csv("slots"),
    ]);
    for one in judged {
        let metrics = &one.metrics;
        let hours = |seconds: f64| match metrics.jobs > 0 {
            true => Cell::both(format!("{:.2}", seconds / 3600.0), seconds),
            false => Cell::nothing(),
        };
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
            one.energy_usd
                .map_or_else(Cell::nothing, |usd| Cell::both(format!("{usd:.2}"), usd)),
            Cell::both(format!("{:.0}", metrics.stranded_gpu_h), metrics.stranded_gpu_h),
            hours(metrics.jct_mean_s),
            Cell::text(one.gpus),
            Cell::text(one.hosts),
            Cell::text(one.slots),
        ]);
    }
    table
}
