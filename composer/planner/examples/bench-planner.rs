//! How quick planning over time is. `tests/bench/planner` runs it; it prints one line of JSON. Times are those that the
//! one thread was on a core, as Linux counts them, so that other work on the machine changes them little.
//!
//!     bench-planner INSTANCE --seconds 5 [--seed 1] [--previous SOLUTION] [--save SOLUTION]

use poolwright_planner::horizon::{self, Assignment, Budget, Request, UNIT, cps1};
use serde_json::{Value, json};
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    match measured() {
        Ok(report) => {
            // Whoever reads may have gone.
            let _ = writeln!(std::io::stdout(), "{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "bench-planner: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What is asked for at the command line.
struct Asked {
    instance: String,
    limit: Duration,
    seed: u64,
    previous: Option<String>,
    save: Option<String>,
}

fn asked() -> Result<Asked, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut asked = Asked {
        instance: arguments.next().ok_or("give an instance")?,
        limit: Duration::from_secs(5),
        seed: 1,
        previous: None,
        save: None,
    };
    while let Some(option) = arguments.next() {
        let value = arguments.next().ok_or(format!("{option} wants a value"))?;
        match option.as_str() {
            "--seconds" => asked.limit = Duration::try_from_secs_f64(value.parse()?)?,
            "--seed" => asked.seed = value.parse()?,
            "--previous" => asked.previous = Some(value),
            "--save" => asked.save = Some(value),
            _ => return Err(format!("{option} is no option").into()),
        }
    }
    Ok(asked)
}

/// How long this thread was on a core.
fn on_core() -> Duration {
    let counted = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = counted.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(u64::MAX))
}

fn measured() -> Result<Value, Box<dyn Error>> {
    let asked = asked()?;
    let start = on_core();
    let instance: cps1::Instance = serde_json::from_slice(&std::fs::read(&asked.instance)?)?;
    let problem = cps1::read(&instance)?;
    let previous = asked.previous.as_ref().map(solution).transpose()?;
    let read = on_core() - start;

    let start = on_core();
    let mut elapsed = || on_core() - start;
    let mut better: Vec<(f64, f64)> = Vec::new();
    let plan = horizon::solve(
        &problem,
        Request {
            seed: asked.seed,
            budget: Budget::Time {
                limit: asked.limit,
                elapsed: &mut elapsed,
            },
            previous: previous.as_ref(),
            news: &mut |cost, after| better.push((after.as_secs_f64(), cost as f64 / UNIT)),
        },
    );
    let solved = on_core() - start;

    let start = on_core();
    let judged = horizon::check(&problem, &plan.assignment)?;
    if judged != plan.cost {
        return Err(format!("the plan says {} and costs {judged}", plan.cost).into());
    }
    let checked = on_core() - start;

    let start = on_core();
    let unserved = horizon::reasons(&problem, &plan.assignment).len();
    let explained = on_core() - start;
    if let Some(file) = asked.save {
        std::fs::write(file, json!({ "assignment": plan.assignment }).to_string())?;
    }
    Ok(json!({
        "gpus": instance.gpus.len(),
        "groups": problem.groups.len(),
        "hosts": problem.hosts.len(),
        "demands": problem.demands.len(),
        "served": plan.assignment.demands.iter().filter(|served| served.host.is_some()).count(),
        "read_s": read.as_secs_f64(),
        "solve_s": solved.as_secs_f64(),
        "check_s": checked.as_secs_f64(),
        "unserved": unserved,
        "explain_s": explained.as_secs_f64(),
        "better": better,
        "cost": plan.cost as f64 / UNIT,
        "bound": plan.bound as f64 / UNIT,
        "gap": plan.gap(),
        "rounds": plan.rounds,
    }))
}

fn solution(file: &String) -> Result<Assignment, Box<dyn Error>> {
    let mut value: Value = serde_json::from_slice(&std::fs::read(file)?)?;
    Ok(serde_json::from_value(value["assignment"].take())?)
}
