//! A simulation as programs ask for it. What it takes is bounded: so many jobs, GPUs, runs and seconds, and no more.

use crate::error::{ErrorCode, ServiceError};
use poolwright_simulator::experiment::ExperimentError;
use poolwright_simulator::replay::Stopped;
use poolwright_simulator::trace::TraceError;
use poolwright_simulator::{Experiment, Policy, Runtimes, Scenario, Simulated, Simulation, Trace, policies};
use serde::Deserialize;
use std::time::{Duration, Instant};

/// Jobs of a trace.
const MOST_JOBS: usize = 50_000;
/// Tenants of a trace: with static partitions each has servers of its own.
const MOST_TENANTS: usize = 4_096;
/// Memory classes of a scenario.
const MOST_CLASSES: usize = 16;
/// GPUs that are simulated.
const MOST_GPUS: f64 = 65_536.0;
/// Policies × loads × run times × seeds.
const MOST_RUNS: usize = 400;
/// Seeds of one load: the figures of each are kept until all are there.
const MOST_SEEDS: usize = 20;
/// Seconds over which jobs are submitted: 300 years.
const LONGEST_WINDOW_S: f64 = 1e10;
/// How long it may take, where nothing is said, and at most.
const USUAL_S: u64 = 30;
const LONGEST_S: u64 = 60;

/// Recorded jobs, a scenario, and the policies to compare; everything left out is as said.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SimulationRequest {
    /// By their names.
    pub policies: Vec<String>,
    /// Recorded jobs, as CSV; without it, what the manager recorded.
    #[serde(default)]
    pub trace: Option<String>,
    /// The hardware, its watts and seconds, loads and seeds; without it, what is assumed of hardware that nobody has
    /// measured: `pool-k16`.
    #[serde(default)]
    pub scenario: Option<Scenario>,
    /// In place of the scenario's.
    #[serde(default)]
    pub loads: Vec<f64>,
    /// In place of the scenario's.
    #[serde(default)]
    pub seeds: Vec<u64>,
    /// In place of the scenario's.
    #[serde(default)]
    pub runtimes: Vec<Runtimes>,
    /// One of the policies: with how many GPUs is each of the others as fast, in the mean?
    #[serde(default)]
    pub as_fast_as: Option<String>,
    /// Seconds after which it is stopped: 30 without it, 60 at most.
    #[serde(default)]
    pub deadline_s: Option<u64>,
}

impl SimulationRequest {
    /// Its answer. `recorded` is the manager's own trace, for those that bring none; it is stopped at its deadline, and once
    /// nobody waits for it.
    ///
    /// # Errors
    ///
    /// What it asks for can't be, or is more than is worked out; nothing was recorded yet; or it was stopped.
    pub(crate) fn answer(
        &self,
        recorded: Option<&str>,
        nobody_waits: impl Fn() -> bool,
    ) -> Result<Simulated, ServiceError> {
        let (began, limit) = (Instant::now(), self.limit()?);
        let policies = self.policies()?;
        let scenario = self.scenario()?;
        let trace = self.trace(recorded)?;
        bounded(&trace, &scenario, policies.len())?;
        let simulation = Simulation {
            experiment: Experiment {
                trace: &trace,
                scenario: &scenario,
                policies: &policies,
            },
            file: match self.trace {
                Some(_) => "the trace of the request",
                None => "what the manager recorded",
            },
            as_fast_as: self.as_fast_as(&policies)?,
        };
        let mut clock = || match began.elapsed() {
            elapsed if elapsed >= limit || nobody_waits() => Err(Stopped),
            elapsed => Ok(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)),
        };
        let answer = simulation.answer(&mut clock, &mut |_| {});
        answer.map_err(|error| match error {
            ExperimentError::Stopped(_) => took_too_long(limit),
            ExperimentError::Workload(error) => {
                ServiceError::bad_request(format!("{} on the scenario: {error}", simulation.file))
                    .with_hint("change the scenario, or replay another trace on it")
            }
        })
    }

    fn limit(&self) -> Result<Duration, ServiceError> {
        match self.deadline_s.unwrap_or(USUAL_S) {
            seconds @ 1..=LONGEST_S => Ok(Duration::from_secs(seconds)),
            seconds => Err(ServiceError::bad_request(format!(
                "deadline_s is {seconds}; allowed: 1 to {LONGEST_S}"
            ))
            .with_hint(format!(
                "say a number within these bounds, or leave it out: {USUAL_S}"
            ))),
        }
    }

    /// Those that are named, each once.
    fn policies(&self) -> Result<Vec<Policy>, ServiceError> {
        let mut once: Vec<Policy> = Vec::new();
        for name in &self.policies {
            let policy = named(name)?;
            if !once.iter().any(|known| known.name == policy.name) {
                once.push(policy);
            }
        }
        match once.is_empty() {
            true => Err(ServiceError::bad_request("policies names none").with_hint(known_policies())),
            false => Ok(once),
        }
    }

    fn as_fast_as(&self, policies: &[Policy]) -> Result<Option<Policy>, ServiceError> {
        let Some(name) = &self.as_fast_as else {
            return Ok(None);
        };
        let policy = named(name)?;
        match policies.iter().any(|one| one.name == policy.name) {
            true => Ok(Some(policy)),
            false => Err(ServiceError::bad_request(format!(
                "as_fast_as is {name:?}, which is not among the policies"
            ))
            .with_hint("name it in policies too")),
        }
    }

    fn scenario(&self) -> Result<Scenario, ServiceError> {
        let given = self.scenario.clone().map_or_else(Scenario::assumed, Ok);
        let checked = given.and_then(|mut scenario| {
            let replay = &mut scenario.replay;
            replaced(&mut replay.loads, &self.loads);
            replaced(&mut replay.seeds, &self.seeds);
            replaced(&mut replay.runtimes, &self.runtimes);
            scenario.check().map(|()| scenario)
        });
        checked.map_err(|error| {
            ServiceError::bad_request(format!("scenario: {error}"))
                .with_hint("mend it, or begin with the scenario of an answer to a request that brings none")
        })
    }

    fn trace(&self, recorded: Option<&str>) -> Result<Trace, ServiceError> {
        let text = self.trace.as_deref().or(recorded).unwrap_or_default();
        Trace::parse(text).map_err(|error| match (&self.trace, error) {
            (None, TraceError::Empty { .. } | TraceError::Column { .. }) => ServiceError::new(
                ErrorCode::NotFound,
                "nothing is recorded yet that ran on GPUs, so there is nothing to replay",
            )
            .with_hint("ask again once something was asked of the pool, or give a trace"),
            (_, error) => ServiceError::bad_request(format!("trace: {error}")).with_hint(
                "a trace is CSV, with a job a line below the names of its columns: job_id,tenant,submit_s,duration_s,gpus",
            ),
        })
    }
}

fn replaced<T: Clone>(of_scenario: &mut Vec<T>, given: &[T]) {
    if !given.is_empty() {
        *of_scenario = given.to_vec();
    }
}

fn named(name: &str) -> Result<Policy, ServiceError> {
    policies::named(name).ok_or_else(|| {
        let name: String = name.chars().take(100).collect();
        ServiceError::bad_request(format!("there is no policy {name:?}")).with_hint(known_policies())
    })
}

fn known_policies() -> String {
    let known: Vec<&str> = policies::ALL.iter().map(|policy| policy.name).collect();
    format!("known are {}", known.join(", "))
}

/// Refuses what would take more memory than a manager spares for it.
fn bounded(trace: &Trace, scenario: &Scenario, policies: usize) -> Result<(), ServiceError> {
    let replay = &scenario.replay;
    let runs = policies * replay.loads.len() * replay.seeds.len() * replay.runtimes.len();
    let least_load = replay.loads.iter().copied().fold(f64::INFINITY, f64::min);
    let window = trace.window_s();
    // Each class has servers enough for its widest job, and each job is at most in one.
    let widest = f64::from(trace.widest()) * scenario.classes.len().max(1) as f64;
    let (gpus, window) = match replay.gpus {
        Some(gpus) => (
            f64::from(gpus),
            trace.gpu_seconds() / f64::from(gpus) / least_load,
        ),
        None if window > 0.0 => (trace.gpu_seconds() / window / least_load, window),
        None => (0.0, window),
    };
    let gpus = gpus.max(widest);
    for (what, number, most) in [
        ("jobs in the trace", trace.jobs.len() as f64, MOST_JOBS as f64),
        (
            "tenants in the trace",
            trace.tenants.len() as f64,
            MOST_TENANTS as f64,
        ),
        (
            "classes in the scenario",
            scenario.classes.len() as f64,
            MOST_CLASSES as f64,
        ),
        ("GPUs that the trace asks for at the least load", gpus, MOST_GPUS),
        ("seconds over which jobs come", window, LONGEST_WINDOW_S),
        ("seeds", replay.seeds.len() as f64, MOST_SEEDS as f64),
        (
            "runs (policies × loads × run times × seeds)",
            runs as f64,
            MOST_RUNS as f64,
        ),
    ] {
        if number > most {
            return Err(ServiceError::bad_request(format!(
                "{number:.0} {what}; at most {most:.0} are simulated"
            ))
            .with_hint("ask for less at once; `poolwright simulate` has no such bounds"));
        }
    }
    Ok(())
}

fn took_too_long(limit: Duration) -> ServiceError {
    let message = format!("the simulation was not over within {limit:?}, and was stopped");
    ServiceError::new(ErrorCode::Timeout, message).with_hint(format!(
        "ask for fewer policies, loads, seeds or jobs at once, or for a longer deadline_s ({LONGEST_S} at most); \
         `poolwright simulate` has no deadline"
    ))
}
