//! `plan --instance`: a problem over time from a file, planned without a manager.

use super::keys;
use super::picture::Picture;
use super::runs;
use crate::commands::Outcome;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::human::{counted, hung, wrapped};
use crate::output::{Cell, Format, Output, Table, column, is_on_terminal, say, write};
use crate::progress::Progress;
use crate::stop::Stop;
use poolwright_planner::horizon::{
    self, Assignment, Budget, Problem, Request, UNIT, Unserved, cps1, extended,
};
use poolwright_terminal::duration;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest that is searched.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, clap::Args)]
pub struct InstanceArgs {
    /// Plan the problem over time in this file (schema cps-1 or poolwright-horizon-1), without a manager
    #[arg(long, value_name = "FILE")]
    pub instance: Option<PathBuf>,
    /// How long to look for better plans
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = limit, requires = "instance")]
    time_limit: Duration,
    /// Look for so many rounds, however long that takes: the same plan for the same seed on every machine
    #[arg(
        long,
        value_name = "COUNT",
        requires = "instance",
        conflicts_with = "time_limit"
    )]
    rounds: Option<u64>,
    /// Decides what is left to chance
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "instance")]
    seed: u64,
    /// Begin with this solution, and move nothing in it for no gain
    #[arg(long, value_name = "FILE", requires = "instance")]
    previous: Option<PathBuf>,
}

fn limit(text: &str) -> Result<Duration, String> {
    let limit = duration(text)?;
    match limit <= LONGEST {
        true => Ok(limit),
        false => Err(format!("{text} is too long: at most 24h")),
    }
}

/// What is printed: a solution of the schema, and how good it is.
#[derive(Serialize)]
struct Solution<'a> {
    assignment: &'a Assignment,
    objective: f64,
    /// No plan costs less.
    bound: f64,
    /// (objective - bound) / objective
    gap: f64,
    elapsed_ms: f64,
    seed: u64,
    rounds: u64,
    unserved: Vec<Unserved>,
    /// What the plan costs that it began with.
    #[serde(skip_serializing_if = "Option::is_none")]
    previous_objective: Option<f64>,
}

/// The part of a solution that another plan begins with.
#[derive(Deserialize)]
struct Previous {
    assignment: Assignment,
}

/// What the plan costs that is begun with. Another problem's solution has no cost in this one, is no help, and is easily named
/// by mistake.
fn cost_of(problem: &Problem, previous: &Assignment) -> Option<f64> {
    let known: BTreeSet<&str> = problem.demands.iter().map(|demand| demand.id.as_str()).collect();
    let all = previous.demands.len();
    let unknown = previous
        .demands
        .iter()
        .filter(|placed| !known.contains(placed.demand.as_str()))
        .count();
    if unknown > 0 {
        say(&format!(
            "of the {all} demands in --previous {unknown} are not in this problem, and are left out"
        ));
        return None;
    }
    match horizon::check(problem, previous) {
        Ok(cost) => Some(cost as f64 / UNIT),
        Err(broken) => {
            say(&format!(
                "the plan in --previous is none of this problem, and is begun with as far as it is: {broken}"
            ));
            None
        }
    }
}

/// Ends at the second time, with nothing printed.
async fn at_once(stop: Stop) {
    stop.at_once().await;
    std::process::exit(ExitCode::Generic as i32);
}

pub fn run(file: &Path, args: &InstanceArgs, output: Output) -> Outcome {
    let start = Instant::now();
    let (instance, problem) = problem(file)?;
    let previous = args
        .previous
        .as_deref()
        .map(|file| read::<Previous>(file, &bytes(file)?, SOLUTION))
        .transpose()?;
    let before = previous
        .as_ref()
        .and_then(|previous| cost_of(&problem, &previous.assignment));

    let progress = Progress::spinner(format!("planning {}", counted(problem.wanted(), "demand")));
    // An interrupt returns the best plan so far.
    let stop = args.rounds.is_none().then(Stop::heard);
    let stop = stop.inspect(|stop| drop(tokio::spawn(at_once(stop.clone()))));
    let mut elapsed = || match stop.as_ref().is_some_and(Stop::is_asked) {
        true => args.time_limit.max(start.elapsed()),
        false => start.elapsed(),
    };
    let budget = match args.rounds {
        Some(rounds) => Budget::Rounds(rounds),
        None => Budget::Time {
            limit: args.time_limit,
            elapsed: &mut elapsed,
        },
    };
    let plan = horizon::solve(
        &problem,
        Request {
            seed: args.seed,
            budget,
            previous: previous.as_ref().map(|previous| &previous.assignment),
            news: &mut |cost, _| progress.doing(format!("best so far: {}", units(cost))),
        },
    );
    drop(progress);
    let judged = horizon::check(&problem, &plan.assignment);
    if judged != Ok(plan.cost) {
        let found = judged.map_or_else(
            |broken| broken.to_string(),
            |cost| format!("it costs {}", units(cost)),
        );
        let message = format!(
            "the plan of cost {} was found wrong by its check: {found}",
            units(plan.cost)
        );
        return Err(Failure::new(ExitCode::Generic, message)
            .with_hint("this is a mistake of the program: report it with the file and the seed"));
    }
    let solution = Solution {
        assignment: &plan.assignment,
        objective: plan.cost as f64 / UNIT,
        bound: plan.bound as f64 / UNIT,
        gap: plan.gap(),
        elapsed_ms: start.elapsed().as_secs_f64() * 1e3,
        seed: args.seed,
        rounds: plan.rounds,
        unserved: horizon::reasons(&problem, &plan.assignment),
        previous_objective: before,
    };
    if output.format.is_picture() {
        let picture = Picture {
            name: &file.file_stem().unwrap_or_default().to_string_lossy(),
            instance: &instance,
            problem: &problem,
            assignment: solution.assignment,
            unserved: &solution.unserved,
            summary: &summary(&problem, &solution),
            slot_names: &[],
        };
        write(&match output.format {
            Format::Html => picture.html(),
            _ => picture.svg(),
        })?;
        return Ok(ExitCode::Ok);
    }
    let table = served(&problem, &solution);
    output.show_as(&solution, &table, |width| text(&problem, &solution, file, width))?;
    Ok(ExitCode::Ok)
}

const PROBLEM: &str = "a problem in the schema cps-1 or poolwright-horizon-1";
const SOLUTION: &str = "a solution";

/// What a file is taken for that is not what it should be.
#[derive(Deserialize)]
struct Taken {
    /// Solutions have it.
    assignment: Option<IgnoredAny>,
    /// Problems have it.
    horizon_slots: Option<IgnoredAny>,
}

/// The problem in a file, and what the file says of it.
fn problem(file: &Path) -> Result<(cps1::Instance, Problem), Failure> {
    problem_of(file, &bytes(file)?)
}

/// Parses a problem from the text of a file.
pub fn problem_of(file: &Path, text: &[u8]) -> Result<(cps1::Instance, Problem), Failure> {
    keys::judge(file, &read(file, text, PROBLEM)?)?;
    let instance: cps1::Instance = read(file, text, PROBLEM)?;
    let problem = match instance.schema.as_str() {
        extended::SCHEMA => {
            let extension = read(file, text, PROBLEM)?;
            keys::tell_leads(&instance, &extension);
            extended::read(&instance, &extension)
        }
        _ => cps1::read(&instance),
    };
    let problem = problem.map_err(|invalid| {
        Failure::usage(format!("{}: {invalid}", file.display())).with_hint("mend that field, and try again")
    })?;
    Ok((instance, problem))
}

fn bytes(file: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(file).map_err(|error| Failure::file(file, "read", &error))
}

fn read<T: DeserializeOwned>(file: &Path, text: &[u8], what: &str) -> Result<T, Failure> {
    serde_json::from_slice(text).map_err(|error| {
        let is = |what: &str| Failure::usage(format!("{} is {what}", file.display()));
        match serde_json::from_slice::<Taken>(text) {
            Ok(Taken { assignment: Some(_), .. }) if what == PROBLEM => {
                is("a solution, and not the problem that it solves").with_hint(
                    "give the problem to --instance; the solution goes to --previous, to begin with it",
                )
            }
            Ok(Taken { horizon_slots: Some(_), .. }) if what == SOLUTION => {
                is("a problem, and not a solution of one").with_hint(
                    "give the problem to --instance; --previous wants what `plan --instance FILE > SOLUTION` wrote",
                )
            }
            _ => Failure::usage(format!("{} is not {what}: {error}", file.display()))
                .with_hint("mend the file at that line and column"),
        }
    })
}

fn units(cost: i64) -> String {
    format!("{:.3}", cost as f64 / UNIT)
}

fn served(problem: &Problem, solution: &Solution<'_>) -> Table {
    let mut table = Table::new([
        column("DEMAND"),
        column("TENANT"),
        column("FROM").named("start"),
        column("TO").named("end"),
        column("GPUS"),
        column("HOST"),
        column("OF").named("groups"),
    ]);
    for (demand, served) in problem.demands.iter().zip(&solution.assignment.demands) {
        let groups: Vec<String> = served
            .gpus
            .iter()
            .map(|(group, count)| format!("{count} {group}"))
            .collect();
        table.row([
            Cell::text(demand.name()),
            Cell::text(&demand.tenant),
            Cell::text(demand.window.start),
            Cell::text(demand.window.end),
            Cell::text(served.got().unwrap_or(u32::from(demand.gpus()))),
            Cell::maybe(served.host.as_ref()),
            Cell::text(groups.join(", ")),
        ]);
    }
    table
}

fn summary(problem: &Problem, solution: &Solution<'_>) -> String {
    format!(
        "cost {:.1}, at least {:.1} is needed (gap {:.1} %); {} of {} demands served",
        solution.objective,
        solution.bound,
        100.0 * solution.gap,
        problem.wanted()
            - solution
                .unserved
                .iter()
                .filter(|unserved| !unserved.partly)
                .count(),
        problem.wanted()
    )
}

fn text(problem: &Problem, solution: &Solution<'_>, file: &Path, width: Option<u16>) -> String {
    let mut lines = vec![wrapped(&summary(problem, solution), width)];
    let before = solution.previous_objective;
    lines.extend(before.map(|cost| format!("the plan that it began with costs {cost:.1}")));
    lines.push(String::new());
    let assignment = solution.assignment;
    lines.extend(gantt(problem, assignment, usize::from(width.unwrap_or(110))));
    // A pager or a file shows all rows.
    let most = match is_on_terminal() {
        true => runs::MOST,
        false => usize::MAX,
    };
    for (what, (table, more)) in [
        ("Placements over time:", runs::who_runs(problem, assignment, most)),
        (
            "Attachments over time:",
            runs::attached(problem, assignment, most),
        ),
    ] {
        lines.push(what.to_owned());
        let mut text = table.render(width);
        if more > 0 {
            let all = format!(
                "… and {more} more; all of them: poolwright plan --instance {} -o table | less",
                file.display()
            );
            text.push_str(&wrapped(&all, width));
            text.push('\n');
        }
        lines.push(text);
    }
    for unserved in &solution.unserved {
        let is = if unserved.partly {
            "served in part"
        } else {
            "not served"
        };
        let line = format!("{} is {is}: {}", unserved.demand, unserved.reason);
        lines.push(wrapped(&line, width));
        let help = unserved.help.iter().map(|help| format!("would help: {help}"));
        lines.extend(help.map(|help| hung(&help, width)));
    }
    lines.join("\n")
}

/// Most hosts that are drawn.
const DRAWN: usize = 40;

/// GPUs in use by host and slot; a column is one slot, or several where there are more than fit.
fn gantt(problem: &Problem, assignment: &Assignment, width: usize) -> Vec<String> {
    let names = problem
        .hosts
        .iter()
        .map(|host| host.id.chars().count())
        .max()
        .unwrap_or(0)
        .max(4);
    let a_column = problem
        .slots
        .div_ceil(width.saturating_sub(names + 2).max(10))
        .max(1);
    let mut lines = vec![match a_column {
        1 => "GPUs in use by host and slot (+: 10 or more)".to_owned(),
        several => format!("most GPUs in use by host, a column is {several} slots (+: 10 or more)"),
    }];
    for host in problem.hosts.iter().take(DRAWN) {
        let mut used = vec![0_u32; problem.slots];
        for (demand, served) in problem.demands.iter().zip(&assignment.demands) {
            if served.host.as_ref() == Some(&host.id) {
                used[demand.window.clone()]
                    .iter_mut()
                    .for_each(|used| *used += served.got().unwrap_or(0));
            }
        }
        let drawn = |slots: &[u32]| match slots.iter().copied().max().unwrap_or(0) {
            0 => '·',
            many => char::from_digit(many, 10).unwrap_or('+'),
        };
        lines.push(format!(
            "{:names$}  {}",
            host.id,
            used.chunks(a_column).map(drawn).collect::<String>()
        ));
    }
    if problem.hosts.len() > DRAWN {
        lines.push(format!(
            "… and {} more",
            counted(problem.hosts.len() - DRAWN, "host")
        ));
    }
    lines.push(String::new());
    lines
}
