//! How quick sizing is, in this process and on one core: the whole fit search of a model over many kinds of GPU,
//! and a table of cases. `tests/bench/sizing` runs it; it prints one line of JSON.
//!
//!     bench-sizing CASES.csv

use poolwright_model::profile::Profiles;
use poolwright_sizing::{Catalogue, Job, Limits, Offer, Task, batch, fit};
use serde_json::{Value, json};
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

/// Kinds of GPU in a search.
const KINDS: usize = 50;
/// Searches of each kind; the median counts.
const SEARCHES: usize = 31;
/// Cases in the table, at least.
const CASES: usize = 20_000;

const MODELS: [&str; 5] = [
    "Llama-3.1-8B",
    "Llama-3.1-70B",
    "Llama-3.1-405B",
    "Mixtral-8x7B",
    "Qwen3-235B-A22B",
];
const TASKS: [Task; 3] = [Task::Infer, Task::Full, Task::Lora];

fn main() -> ExitCode {
    match measured() {
        Ok(report) => {
            // Whoever reads may have gone.
            let _ = writeln!(std::io::stdout(), "{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "bench-sizing: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measured() -> Result<Value, Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("give the table of cases")?;
    let cases = std::fs::read_to_string(&file)?;
    let mut searches = Vec::new();
    for model in MODELS {
        for task in TASKS {
            searches.push(search(model, task, 1)?);
        }
    }
    // With micro-batches for pipelines, the most layouts are looked at.
    searches.push(search("Llama-3.1-405B", Task::Full, 16)?);
    Ok(json!({ "searches": searches, "batch": table(&cases)? }))
}

fn search(name: &str, task: Task, accumulation: u64) -> Result<Value, Box<dyn Error>> {
    let model = Catalogue::builtin().resolve(name)?;
    let mut job = Job::of(task);
    if let Job::Training(training) = &mut job {
        training.accumulation = accumulation;
    }
    let kinds = Profiles::builtin().all().iter().take(KINDS);
    let offers: Vec<Offer> = kinds.map(|kind| Offer::of(kind, None)).collect();
    let limits = Limits {
        host_slots: Some(8),
        ..Limits::default()
    };
    let mut times = Vec::new();
    let mut sets = 0;
    let busy = cpu_s();
    for _ in 0..SEARCHES {
        let start = Instant::now();
        let found = fit::fit(&model, &job, &offers, limits)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
        sets = found.candidates.len();
    }
    let cpu_ms = busy
        .zip(cpu_s())
        .map(|(before, after)| (after - before) * 1e3 / SEARCHES as f64);
    times.sort_by(f64::total_cmp);
    Ok(json!({
        "model": name, "task": task, "accumulation": accumulation, "kinds": offers.len(), "sets": sets,
        "median_ms": times[times.len() / 2], "worst_ms": times[times.len() - 1], "cpu_ms": cpu_ms,
    }))
}

/// Seconds that this process has had a core, as Linux counts them, to a few milliseconds. Others on the machine make
/// them no more; None where they are not told.
fn cpu_s() -> Option<f64> {
    let told = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    let nanoseconds: f64 = told.split(' ').next()?.parse().ok()?;
    Some(nanoseconds / 1e9)
}

/// The table as often as it takes, read and sized as one.
fn table(cases: &str) -> Result<Value, Box<dyn Error>> {
    let (header, rows) = cases.split_once('\n').ok_or("the table has no row")?;
    let rows = rows.trim_end();
    let count = rows.lines().count().max(1);
    let text = format!("{header}\n{}", format!("{rows}\n").repeat(CASES.div_ceil(count)));
    let (start, busy) = (Instant::now(), cpu_s());
    let outcomes = batch::size(&text)?;
    let out = batch::to_csv(&outcomes);
    let seconds = start.elapsed().as_secs_f64();
    let cpu = busy.zip(cpu_s()).map(|(before, after)| after - before);
    let refused = outcomes.iter().filter(|outcome| outcome.result.is_err()).count();
    let point = |outcome: &batch::Outcome| outcome.result.as_ref().ok().map(|found| found.point.gib());
    let predicted: Vec<Option<f64>> = outcomes.iter().take(count).map(point).collect();
    Ok(json!({
        "predicted_gib": predicted, "cases": outcomes.len(), "refused": refused, "seconds": seconds, "bytes": out.len(),
        "cases_per_s": outcomes.len() as f64 / seconds,
        "cases_per_cpu_s": cpu.map(|cpu| outcomes.len() as f64 / cpu),
    }))
}
