//! All that is asked of a trace and a scenario at once: what each policy does, what sharing, ordering and composing bring,
//! and with how many GPUs the others were as fast. What `poolwright simulate` prints, and the API answers.

use crate::compare::{Equivalence, Step, decompose, equivalent, synthetic};
use crate::experiment::{Experiment, ExperimentError, Results};
use crate::policies::Policy;
use crate::replay::Clock;
use crate::scenario::Scenario;
use crate::trace::Trace;
use serde::Serialize;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Simulation<'a> {
    pub experiment: Experiment<'a>,
    /// Where the jobs are from.
    pub file: &'a str,
    /// One of the policies: with how many GPUs is each of the others as fast?
    pub as_fast_as: Option<Policy>,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Simulation"))]
pub struct Simulated {
    #[serde(flatten)]
    pub results: Results,
    pub decomposition: Vec<Step>,
    pub equivalence: Vec<Equivalence>,
    /// What of it rests on figures that nobody measured.
    pub synthetic: Vec<String>,
    pub trace: ReplayedTrace,
    pub scenario: Scenario,
}

/// The jobs in a few figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplayedTrace {
    pub file: String,
    pub jobs: usize,
    pub tenants: usize,
    pub window_s: f64,
    pub gpu_hours: f64,
    pub rows_without_gpus: usize,
    pub rows_without_run_time: usize,
    /// Jobs that ask for a fraction of a GPU, and are replayed on whole GPUs.
    pub rows_rounded_up: usize,
}

impl ReplayedTrace {
    fn of(file: &str, trace: &Trace) -> Self {
        Self {
            file: file.to_owned(),
            jobs: trace.jobs.len(),
            tenants: trace.tenants.len(),
            window_s: trace.window_s(),
            gpu_hours: trace.gpu_seconds() / 3600.0,
            rows_without_gpus: trace.without_gpus,
            rows_without_run_time: trace.without_run_time,
            rows_rounded_up: trace.rounded_up,
        }
    }
}

impl Simulation<'_> {
    /// Runs everything. `progress` hears of each part before it begins.
    ///
    /// # Errors
    ///
    /// Why the trace can't be replayed on this hardware; or the clock has stopped it.
    pub fn answer(
        &self,
        clock: &mut Clock<'_>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Simulated, ExperimentError> {
        let Experiment { trace, scenario, .. } = self.experiment;
        let results = self.experiment.run(clock, progress)?;
        Ok(Simulated {
            decomposition: decompose(&results.policies),
            equivalence: self.equivalence(&results, clock, progress)?,
            synthetic: synthetic(scenario, &results.policies),
            trace: ReplayedTrace::of(self.file, trace),
            scenario: scenario.clone(),
            results,
        })
    }

    fn equivalence(
        &self,
        results: &Results,
        clock: &mut Clock<'_>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Vec<Equivalence>, ExperimentError> {
        let Experiment {
            trace,
            scenario,
            policies,
        } = self.experiment;
        let mut found = Vec::new();
        let is_reference = |name: &str| self.as_fast_as.is_some_and(|as_fast| as_fast.name == name);
        for reference in results.policies.iter().filter(|one| is_reference(one.policy)) {
            for policy in policies.iter().filter(|policy| policy.name != reference.policy) {
                progress(&format!(
                    "{}: how many GPUs are as fast as {}",
                    policy.name, reference.policy
                ));
                found.push(equivalent(trace, scenario, policy, reference, clock)?);
            }
        }
        Ok(found)
    }
}
