//! `plan --ahead --problem`: a manager's calendar as a problem over time in a file, and what the manager will do by itself
//! as a solution of it.

use super::instance;
use crate::api_client::Api;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::output::human::counted;
use crate::output::say;
use poolwright_planner::horizon::{Assignment, UNIT, check};
use poolwright_service::ProblemAhead;
use poolwright_terminal::some_time;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub struct ProblemArgs {
    /// With --ahead: write the pool and its calendar in this file, as a problem over time for --instance
    #[arg(long, value_name = "FILE", requires = "ahead")]
    problem: Option<PathBuf>,
    /// With --problem: write what the manager will do by itself in this file, as a solution for --previous
    #[arg(long, value_name = "FILE", requires = "problem")]
    solution: Option<PathBuf>,
    /// With --problem: how long a slot is; left out: so long that there are 200 of them at most
    #[arg(long, value_name = "TIME", requires = "problem", value_parser = seconds)]
    slot: Option<u32>,
    /// With --problem: prices (TOML) in place of the usual ones
    #[arg(long, value_name = "FILE", requires = "problem")]
    costs: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<u32, String> {
    let time: Duration = some_time(text)?;
    let whole = u32::try_from(time.as_secs())
        .ok()
        .filter(|_| time.subsec_nanos() == 0);
    whole.filter(|seconds| *seconds > 0).ok_or_else(|| {
        format!("{text:?} is no length of a slot: write whole seconds, 1m to 24h, such as 15m")
    })
}

/// Prices from a file; a missing one keeps its default.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct Prices {
    #[serde(skip_serializing_if = "Option::is_none")]
    unmet_per_gpu_slot: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attach: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detach: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_fire_up: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hop_per_gpu_slot: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    energy_per_kwh: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    split_per_slot: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unfair_per_gpu_slot: Option<f64>,
    /// Stopping a job.
    #[serde(skip_serializing)]
    stop: Option<f64>,
}

impl Prices {
    fn read(file: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(file).map_err(|error| Failure::file(file, "read", &error))?;
        toml::from_str(&text).map_err(|error| {
            let message = format!("{}: {}", file.display(), error.to_string().trim_end());
            Failure::usage(message).with_hint("write lines such as: attach = 60")
        })
    }

    /// Puts them in a problem.
    fn into(self, problem: &mut Value) {
        let prices = json!(self);
        for (name, price) in prices.as_object().into_iter().flatten() {
            problem["costs"][name] = price.clone();
        }
        let demands = problem["demands"].as_array_mut().into_iter().flatten();
        let stoppable = demands.filter_map(|demand| demand.get_mut("preemptible"));
        if let Some(stop) = self.stop {
            stoppable.for_each(|preemptible| preemptible["stop"] = json!(stop));
        }
    }
}

/// The part of the manager's answer that has its own plan.
#[derive(Deserialize)]
struct Own {
    assignment: Assignment,
}

/// Writes the requested files, and reports the data that they lack.
pub async fn write(api: &Api, hours: u32, args: &ProblemArgs) -> Result<(), Failure> {
    let Some(file) = &args.problem else {
        return Ok(());
    };
    let prices = args.costs.as_deref().map(Prices::read).transpose()?;
    let (hours, slot) = (hours.to_string(), args.slot.map(|slot| slot.to_string()));
    let mut query = vec![("hours", hours.as_str())];
    query.extend(slot.as_deref().map(|slot| ("slot_s", slot)));
    let mut posed: ProblemAhead = api.get_where(&["plan-ahead", "problem"], &query).await?;
    if let Some(prices) = prices {
        prices.into(&mut posed.problem);
    }
    let text = pretty(&posed.problem)?;
    let (_, problem) = instance::problem_of(file, &text)?;
    save(file, &text)?;
    say(&format!(
        "written in {}: {} in {} of {} s; solve it with: poolwright plan --instance {0}",
        file.display(),
        counted(problem.wanted(), "demand"),
        counted(problem.slots, "slot"),
        posed.slot_s
    ));
    if let Some(solution) = &args.solution {
        save(solution, &pretty(&posed.solution)?)?;
        let own: Own = serde_json::from_value(posed.solution).map_err(|error| {
            let message = format!("the manager's own plan can't be read: {error}");
            Failure::new(ExitCode::Generic, message)
                .with_hint("is the manager of this version? poolwright status")
        })?;
        let costs = match check(&problem, &own.assignment) {
            Ok(cost) => format!(", at a cost of {:.1}", cost as f64 / UNIT),
            Err(_) => String::new(),
        };
        say(&format!(
            "what the manager will do by itself is in {}{costs}; begin with it: poolwright plan --instance {} --previous {0}",
            solution.display(),
            file.display()
        ));
    }
    posed
        .not_said
        .iter()
        .for_each(|line| say(&format!("not said there: {line}")));
    Ok(())
}

fn pretty(value: &Value) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec_pretty(value).map_err(|error| Failure::new(ExitCode::Generic, error.to_string()))
}

fn save(file: &Path, text: &[u8]) -> Result<(), Failure> {
    fs::write(file, text).map_err(|error| Failure::file(file, "written", &error))
}
