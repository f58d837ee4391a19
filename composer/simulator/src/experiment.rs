//! Policies × loads × what is known of run times × seeds, on one trace and scenario.

use crate::metrics::{Metrics, quantile};
use crate::policies::{Ground, Policy};
use crate::replay::{Clock, ReplayError, Stopped, replay};
use crate::runtimes::Runtimes;
use crate::scenario::Scenario;
use crate::trace::Trace;
use crate::workload::{Workload, WorkloadError};
use serde::Serialize;

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Experiment<'a> {
    pub trace: &'a Trace,
    /// With the loads, seeds and run times to go through.
    pub scenario: &'a Scenario,
    pub policies: &'a [Policy],
}

/// What came of all runs.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "SimulationResults"))]
pub struct Results {
    pub policies: Vec<Outcome>,
    pub left_out: Vec<LeftOut>,
}

/// What came of a policy at one load: means over the seeds.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "SimulatedPolicy"))]
pub struct Outcome {
    pub policy: &'static str,
    pub load: f64,
    pub runtimes: Runtimes,
    pub gpus: u32,
    /// What the load became with whole servers.
    pub offered_load: f64,
    #[serde(flatten)]
    pub metrics: Metrics,
    pub decision: DecisionTime,
    pub seeds: Vec<Seed>,
}

/// One seed's figures.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "SimulatedSeed"))]
pub struct Seed {
    pub seed: u64,
    #[serde(flatten)]
    pub metrics: Metrics,
}

/// How long the queue took to decide, in microseconds of this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DecisionTime {
    pub count: usize,
    pub mean_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
}

/// A policy that could not be run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "LeftOutPolicy"))]
pub struct LeftOut {
    pub policy: &'static str,
    pub why: String,
}

/// Why nothing came of an experiment.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ExperimentError {
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl Experiment<'_> {
    /// Runs everything. `progress` hears of each run before it begins.
    ///
    /// # Errors
    ///
    /// Why the trace can't be replayed on this hardware; or the clock has stopped it.
    pub fn run(
        &self,
        clock: &mut Clock<'_>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Results, ExperimentError> {
        let mut results = Results {
            policies: Vec::new(),
            left_out: Vec::new(),
        };
        let replay = &self.scenario.replay;
        for runtimes in &replay.runtimes {
            for load in &replay.loads {
                for policy in self.policies {
                    match self.cell(policy, *load, *runtimes, clock, progress)? {
                        Ok(outcome) => results.policies.push(outcome),
                        Err(left_out) if results.left_out.contains(&left_out) => {}
                        Err(left_out) => results.left_out.push(left_out),
                    }
                }
            }
        }
        Ok(results)
    }

    /// One policy at one load.
    fn cell(
        &self,
        policy: &Policy,
        load: f64,
        runtimes: Runtimes,
        clock: &mut Clock<'_>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Result<Outcome, LeftOut>, ExperimentError> {
        let mut seeds: Vec<Seed> = Vec::new();
        let mut decisions_ns = Vec::new();
        let (mut gpus, mut offered_load) = (0, load);
        for seed in &self.scenario.replay.seeds {
            if let Some(first) = seeds
                .first()
                .filter(|_| self.is_the_same_for_all_seeds(policy, runtimes))
            {
                let metrics = first.metrics.clone();
                seeds.push(Seed { seed: *seed, metrics });
                continue;
            }
            progress(&format!(
                "{}, load {load}, run times {runtimes}, seed {seed}",
                policy.name
            ));
            let workload = Workload::new(self.trace, self.scenario, load, *seed)?;
            (gpus, offered_load) = (workload.gpus(), workload.offered_load);
            let run = match replay(policy, self.scenario, &workload, runtimes, clock) {
                Ok(run) => run,
                Err(ReplayError::Stopped(stopped)) => return Err(stopped.into()),
                Err(ReplayError::TooFewGpus(why)) => {
                    let why = format!("at load {load}: {why}");
                    return Ok(Err(LeftOut {
                        policy: policy.name,
                        why,
                    }));
                }
            };
            seeds.push(Seed {
                seed: *seed,
                metrics: Metrics::of(&run),
            });
            decisions_ns.extend(run.decisions_ns);
        }
        let metrics: Vec<Metrics> = seeds.iter().map(|seed| seed.metrics.clone()).collect();
        Ok(Ok(Outcome {
            policy: policy.name,
            load,
            runtimes,
            gpus,
            offered_load,
            metrics: Metrics::mean(&metrics),
            decision: DecisionTime::of(&decisions_ns),
            seeds,
        }))
    }

    /// Nothing is drawn where nothing attaches, estimates are not loose and all GPUs are alike.
    fn is_the_same_for_all_seeds(&self, policy: &Policy, runtimes: Runtimes) -> bool {
        policy.ground != Ground::Pool && runtimes != Runtimes::Loose && self.scenario.classes.is_empty()
    }
}

impl DecisionTime {
    fn of(nanoseconds: &[u64]) -> Self {
        let mut us: Vec<f64> = nanoseconds.iter().map(|ns| *ns as f64 / 1000.0).collect();
        us.sort_by(f64::total_cmp);
        Self {
            count: us.len(),
            mean_us: crate::metrics::mean(&us),
            p99_us: quantile(&us, 0.99),
            max_us: us.last().copied().unwrap_or(0.0),
        }
    }
}
