//! What is made of several policies together: what sharing, ordering and composing each bring, and how many GPUs give
//! the same.

use crate::experiment::{ExperimentError, Outcome};
use crate::metrics::Metrics;
use crate::policies::Policy;
use crate::replay::{Clock, ReplayError, replay};
use crate::runtimes::Runtimes;
use crate::scenario::Scenario;
use crate::trace::Trace;
use crate::workload::Workload;
use serde::Serialize;

/// From one policy to the next, one thing changes.
const STEPS: [(&str, &str, &str); 4] = [
    ("sharing", "static-partition", "static-shared-easy"),
    ("ordering", "static-shared-easy", "static-shared-ordered"),
    ("composing", "static-shared-ordered", "poolwright"),
    ("composing, order unchanged", "static-shared-easy", "pool-easy"),
];

/// What one change brings: figures as shares of those before it (-0.1: a tenth less).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "SimulatedStep"))]
pub struct Step {
    pub what: &'static str,
    pub from: &'static str,
    pub to: &'static str,
    pub load: f64,
    pub runtimes: Runtimes,
    pub jct_mean: f64,
    pub jct_p95: f64,
    pub wait_mean: f64,
    pub widest_jct_mean: f64,
    pub energy: f64,
}

/// The steps of which both policies were run, at each load.
#[must_use]
pub fn decompose(outcomes: &[Outcome]) -> Vec<Step> {
    let mut steps = Vec::new();
    for (what, from, to) in STEPS {
        for before in outcomes.iter().filter(|outcome| outcome.policy == from) {
            let after = outcomes.iter().find(|after| {
                after.policy == to && after.load == before.load && after.runtimes == before.runtimes
            });
            let Some(after) = after else { continue };
            let change = |figure: fn(&Metrics) -> f64| {
                let before = figure(&before.metrics);
                if before == 0.0 {
                    0.0
                } else {
                    figure(&after.metrics) / before - 1.0
                }
            };
            steps.push(Step {
                what,
                from,
                to,
                load: before.load,
                runtimes: before.runtimes,
                jct_mean: change(|metrics| metrics.jct_mean_s),
                jct_p95: change(|metrics| metrics.jct_p95_s),
                wait_mean: change(|metrics| metrics.wait_mean_s),
                widest_jct_mean: change(|metrics| {
                    metrics.by_width.last().map_or(0.0, |width| width.jct_mean_s)
                }),
                energy: change(|metrics| metrics.energy_kwh),
            });
        }
    }
    steps
}

/// How many GPUs a policy needs for the mean completion time that another has with the scenario's.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "SimulatedEquivalence"))]
pub struct Equivalence {
    pub policy: &'static str,
    pub reference: &'static str,
    pub load: f64,
    pub runtimes: Runtimes,
    pub reference_gpus: u32,
    /// None where even twice as many do not suffice.
    pub gpus: Option<u32>,
    pub jct_mean_s: f64,
}

/// Looks for the fewest GPUs with which a policy's mean completion time is no longer than the reference's, by halving:
/// a dozen runs with the scenario's first seed.
///
/// # Errors
///
/// Why the trace can't be replayed on this hardware; or the clock has stopped it.
pub fn equivalent(
    trace: &Trace,
    scenario: &Scenario,
    policy: &Policy,
    reference: &Outcome,
    clock: &mut Clock<'_>,
) -> Result<Equivalence, ExperimentError> {
    let seed = scenario.replay.seeds.first().copied().unwrap_or(1);
    let wanted = reference.metrics.jct_mean_s;
    let each = scenario.server.gpus;
    let base = Workload::new(trace, scenario, reference.load, seed)?;
    let mut mean_with = |servers: u32| -> Result<Option<f64>, ExperimentError> {
        let Some(workload) = base.with_servers(scenario, servers) else {
            return Ok(None);
        };
        match replay(policy, scenario, &workload, reference.runtimes, clock) {
            Ok(run) => Ok(Some(Metrics::of(&run).jct_mean_s)),
            Err(ReplayError::TooFewGpus(_)) => Ok(None),
            Err(ReplayError::Stopped(stopped)) => Err(stopped.into()),
        }
    };
    // Too few below, enough above.
    let (mut below, mut above) = (0, 2 * reference.gpus / each);
    let mut found = mean_with(above)?
        .filter(|mean| *mean <= wanted)
        .map(|mean| (above, mean));
    while found.is_some() && above - below > 1 {
        let middle = below.midpoint(above);
        match mean_with(middle)?.filter(|mean| *mean <= wanted) {
            Some(mean) => {
                found = Some((middle, mean));
                above = middle;
            }
            None => below = middle,
        }
    }
    Ok(Equivalence {
        policy: policy.name,
        reference: reference.policy,
        load: reference.load,
        runtimes: reference.runtimes,
        reference_gpus: reference.gpus,
        gpus: found.map(|(servers, _)| servers * each),
        jct_mean_s: found.map_or(0.0, |(_, mean)| mean),
    })
}

/// Parts of a report's answer that rest on figures nobody measured.
#[must_use]
pub fn synthetic(scenario: &Scenario, outcomes: &[Outcome]) -> Vec<String> {
    let mut labels = vec![
        "watts, attach and detach seconds: as the scenario's [source] says".to_owned(),
        "sizes of static partitions: by hindsight, in proportion to each tenant's GPU-hours".to_owned(),
    ];
    if !scenario.classes.is_empty() {
        labels.push("memory classes of jobs: drawn by seed where the trace does not say".to_owned());
    }
    if outcomes.iter().any(|outcome| outcome.runtimes == Runtimes::Loose) {
        labels.push("loose estimates: run times × 1.2 to 10, drawn by seed".to_owned());
    }
    if outcomes
        .iter()
        .any(|outcome| outcome.runtimes == Runtimes::Predicted)
    {
        labels.push(
            "predicted run times: means of the last 200 that finished, of the same tenant and width"
                .to_owned(),
        );
    }
    labels
}
