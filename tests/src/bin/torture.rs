//! Deterministic simulation of a manager, its store and a rack; see `poolwright_tests::torture`.

use clap::Parser;
use poolwright_tests::torture::plants::Plant;
use poolwright_tests::torture::{Campaign, Report, run};
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Kills the manager, breaks requests and commits, and meddles with the rack, at random; and checks what must
/// hold. The same seed gives the same trace.
///
/// The last line is JSON. The exit status is 1 if anything was violated; with --plant, if the invariant that the
/// bug breaks was not.
#[derive(Parser)]
#[command(
    name = "torture",
    after_help = "Examples:\n  torture --operations 100000 --seed 7\n  torture --seeds 1000\n  torture --plant leaks\n  torture --seed 4711 --loud        one seed again, step by step"
)]
struct Arguments {
    /// Runs until so many operations were acknowledged.
    #[arg(long, default_value_t = 0)]
    operations: u64,
    /// Runs at least so many seeds, one after the other from --seed.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seeds at the same time; as many as there are cores, where it is left out. The result is the same.
    #[arg(long)]
    jobs: Option<usize>,
    /// Plants a bug, which must be found; ends with the first seed that does.
    #[arg(long)]
    plant: Option<Plant>,
    /// Ends with the first seed that shows a violation.
    #[arg(long)]
    first: bool,
    /// Tells what happens while it does.
    #[arg(long)]
    loud: bool,
    /// File for each seed and the hash of its trace: of two runs that differ, what differs.
    #[arg(long, value_name = "FILE")]
    hashes: Option<std::path::PathBuf>,
}

/// Seeds that may be needed to find a planted bug.
const SEEDS_A_PLANT: u64 = 40;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let plant = arguments.plant;
    let campaign = Campaign {
        seed: arguments.seed,
        operations: arguments.operations,
        seeds: match plant {
            Some(_) => arguments.seeds.max(SEEDS_A_PLANT),
            None => arguments.seeds,
        },
        jobs: if arguments.loud {
            1
        } else {
            arguments.jobs.unwrap_or(cores)
        },
        plant,
        first: arguments.first || plant.is_some(),
        loud: arguments.loud,
    };
    let mut told = Instant::now();
    let report = run(&campaign, |report| {
        if told.elapsed() > Duration::from_secs(5) {
            told = Instant::now();
            tell(report);
        }
    });
    for failure in &report.failures {
        eprintln!("seed {} shows:", failure.seed);
        for line in failure
            .violations
            .iter()
            .chain(["its last steps:".to_owned()].iter())
        {
            eprintln!("  {line}");
        }
        for line in &failure.trace {
            eprintln!("    {line}");
        }
        eprintln!("  again: {}", failure.replay);
    }
    if let Some(file) = &arguments.hashes
        && let Err(error) = std::fs::write(file, listed(&report))
    {
        eprintln!("torture: {}: {error}", file.display());
        return ExitCode::FAILURE;
    }
    // Whoever reads may have gone.
    let _ = writeln!(
        std::io::stdout(),
        "{}",
        serde_json::to_string(&report).unwrap_or_default()
    );
    let good = match plant {
        Some(plant) => report.violated.contains_key(&plant.breaks()),
        None => report.violations == 0,
    };
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn listed(report: &Report) -> String {
    let hashes = report.hashes.iter();
    hashes.map(|(seed, hash)| format!("{seed} {hash}\n")).collect()
}

fn tell(report: &Report) {
    eprintln!(
        "{} seeds, {} operations, {} crashes, {} violations",
        report.seeds, report.operations, report.crashes, report.violations
    );
}
