//! How fast a set of GPUs runs a job: compute, memory and links, each at a share of its nominal rate.
//!
//! The parts of a step add up: matrix products, elementwise kernels, what of the communication is not hidden
//! behind them, and waiting for other pipeline stages. The shares that are reached are data with their
//! evidence: `hw-profiles/sizing/speed.toml`. What comes out is an estimate for comparing sets and for planning
//! time; it knows nothing of stragglers, input pipelines, checkpoints and failures.

mod launches;
mod rates;
mod serving;
mod training;

pub use launches::Launches;
pub(crate) use rates::Links;
pub use rates::Rates;

use crate::error::{builtin, data};
use crate::estimate::WARNING;
use crate::inference::Layout;
use crate::job::{Inference, Training};
use crate::model::Model;
use crate::parallel::Parallel;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Above this share of a step, communication is warned of.
pub const MUCH_COMMUNICATION: f64 = 0.2;

/// How fast a set runs a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Speed {
    /// Trained tokens; of serving, generated ones, their prompts' time included (prompt tokens where none are
    /// generated).
    pub tokens_per_s_per_gpu: f64,
    /// An optimizer step; of serving, one more token for each request.
    pub step_s: f64,
    /// Matrix products. This and the next three add up to the step.
    pub compute_s: f64,
    /// Elementwise kernels in training; in serving, what reading weights and cache takes beyond computing.
    pub memory_s: f64,
    /// What is not hidden behind the two.
    pub communication_s: f64,
    /// Waiting for other pipeline stages.
    pub idle_s: f64,
    /// Waiting for the host, which starts operations one by one.
    #[serde(default)]
    pub launch_s: f64,
    /// The same tokens on slow and on fast hosts, where it waits for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 2]>,
    /// Of the step.
    pub communication_share: f64,
    /// The largest part.
    pub bound_by: Bound,
}

/// What a step mostly waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    Compute,
    Memory,
    Links,
    Pipeline,
    Launches,
}

/// The parts of a step, in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Parts {
    compute: f64,
    memory: f64,
    communication: f64,
    idle: f64,
    launch: f64,
}

impl Parts {
    fn sum(self) -> f64 {
        self.compute + self.memory + self.communication + self.idle + self.launch
    }

    fn speed(self, tokens_per_s_per_gpu: f64) -> Speed {
        let step_s = self.sum();
        let named = [
            (Bound::Compute, self.compute),
            (Bound::Memory, self.memory),
            (Bound::Links, self.communication),
            (Bound::Pipeline, self.idle),
            (Bound::Launches, self.launch),
        ];
        let largest = named.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        Speed {
            tokens_per_s_per_gpu,
            step_s,
            compute_s: self.compute,
            memory_s: self.memory,
            communication_s: self.communication,
            idle_s: self.idle,
            launch_s: self.launch,
            range: None,
            communication_share: self.communication / step_s,
            bound_by: largest.map_or(Bound::Compute, |(bound, _)| bound),
        }
    }
}

impl Speed {
    /// A hint where the GPUs spend much of their time on communication.
    pub fn warning(&self) -> Option<String> {
        (self.communication_share > MUCH_COMMUNICATION).then(|| {
            format!(
                "{WARNING} communication takes {:.1} % of a step, more than {:.0} %: fewer GPUs to a layer, larger \
                 micro-batches or a faster link would help",
                self.communication_share * 100.0,
                MUCH_COMMUNICATION * 100.0
            )
        })
    }
}

impl Speed {
    /// The range of a small batch, as a note.
    pub fn range_note(&self) -> Option<String> {
        let Shares {
            launch_s,
            server_step_s,
            ..
        } = Shares::builtin();
        self.range.map(|[slow, fast]| {
            format!(
                "estimate: {slow:.0} to {fast:.0} tokens/s of a GPU: a small batch waits for the host, which starts an operation \
                 of eager PyTorch in {:.0} to {:.0} microseconds and a server's step in {} to {} ms",
                launch_s.fast * 1e6,
                launch_s.slow * 1e6,
                server_step_s.fast * 1e3,
                server_step_s.slow * 1e3
            )
        })
    }
}

/// Serving so spread on GPUs of these rates; None where the rates give no finite speed.
pub fn serving(
    model: &Model,
    job: &Inference,
    layout: Layout,
    rates: &Rates,
    host_gpus: u32,
    launches: Option<Launches>,
) -> Option<Speed> {
    ranged(launches, |launches| {
        serving::speed(model, job, layout, (rates, host_gpus), launches)
    })
}

/// Training so spread on GPUs of these rates; None where the rates give no finite speed.
pub fn training(
    model: &Model,
    job: &Training,
    parallel: &Parallel,
    rates: &Rates,
    host_gpus: u32,
    launches: Option<Launches>,
) -> Option<Speed> {
    ranged(launches, |launches| {
        training::speed(model, job, parallel, (rates, host_gpus), launches)
    })
}

/// With the range where it waits for the host.
fn ranged(launches: Option<Launches>, speed: impl Fn(Launches) -> Speed) -> Option<Speed> {
    let launches = launches.unwrap_or_default();
    let found = finite(speed(launches))?;
    let on = |factor: f64| speed(launches.times(factor)).tokens_per_s_per_gpu;
    let range = (found.launch_s > 0.0).then(|| launches.range.map(on));
    Some(Speed { range, ..found })
}

fn finite(speed: Speed) -> Option<Speed> {
    let sound = speed.tokens_per_s_per_gpu.is_finite() && speed.tokens_per_s_per_gpu > 0.0;
    (sound && speed.step_s.is_finite()).then_some(speed)
}

/// Floating point operations of one token in one pass through the model.
struct Work {
    /// In the matrices that every token passes.
    linear: f64,
    /// Between queries and keys, and of the scores with the values.
    attention: f64,
}

impl Work {
    /// `attended`: how many tokens a token looks back at, on average, in layers with full attention.
    fn of(model: &Model, attended: f64) -> Work {
        // Looking a row up in the embedding is no product; of tied embeddings the one matrix is the head.
        let lookup = if model.tied { 0 } else { model.vocab * model.hidden };
        let active = model.active().saturating_sub(lookup + model.looked_up());
        let (full, windowed) = (model.anatomy.full, model.anatomy.windowed);
        let kept = model
            .window
            .map_or(attended, |tokens| attended.min(tokens as f64));
        let pairs = full as f64 * attended + windowed as f64 * kept;
        // A head's matrix is multiplied with a key, changed, and multiplied with a query.
        let states = model
            .linear
            .map_or(0, |linear| model.anatomy.with_state * linear.state());
        Work {
            linear: 2.0 * active as f64,
            attention: 4.0 * model.query() as f64 * pairs + 6.0 * states as f64,
        }
    }
}

/// A number and why it is that.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Share {
    value: f64,
    #[expect(
        dead_code,
        reason = "for readers of the file; required so that none is without it"
    )]
    evidence: String,
}

/// What of nominal rates is reached.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shares {
    compute: BTreeMap<String, Share>,
    memory: Share,
    link: Share,
    latency_s: Share,
    network_gb_s: Share,
    overlap: Share,
    launch_s: LaunchTimes,
    server_step_s: LaunchTimes,
}

/// Seconds of a host for an operation or a step: the middle, and on fast and slow hosts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LaunchTimes {
    value: f64,
    fast: f64,
    slow: f64,
    #[expect(
        dead_code,
        reason = "for readers of the file; required so that none is without it"
    )]
    evidence: String,
}

impl LaunchTimes {
    /// How many times as long as the middle slow and fast hosts take.
    fn range(&self) -> [f64; 2] {
        [self.slow / self.value, self.fast / self.value]
    }
}

impl Shares {
    fn builtin() -> &'static Shares {
        static SHARES: LazyLock<Shares> = LazyLock::new(|| builtin(data!("sizing/speed.toml")));
        &SHARES
    }

    fn compute(&self, architecture: &str) -> f64 {
        let share = self
            .compute
            .get(architecture)
            .or_else(|| self.compute.get("default"));
        share.map_or(1.0, |share| share.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_shares() {
        let shares = Shares::builtin();
        assert!(shares.compute.contains_key("default"));
        assert!(shares.compute("Ampere") > shares.compute("none of this name"));
        let all = shares
            .compute
            .values()
            .chain([&shares.memory, &shares.link, &shares.overlap]);
        assert!(all.into_iter().all(|s| s.value > 0.0 && s.value <= 1.0));
        for host in [&shares.launch_s, &shares.server_step_s] {
            assert!(host.fast < host.value && host.value < host.slow);
        }
        assert!(shares.latency_s.value < 1e-3 && shares.network_gb_s.value > 1.0);
    }

    #[test]
    fn much_communication_is_warned_of() {
        let parts = |communication| Parts {
            compute: 1.0,
            communication,
            ..Parts::default()
        };
        assert_eq!(parts(0.25).speed(1.0).warning(), None);
        let warning = parts(0.5).speed(1.0).warning().unwrap();
        assert!(
            warning.starts_with("warning: communication takes 33.3 % of a step"),
            "{warning}"
        );
        assert_eq!(parts(0.5).speed(1.0).bound_by, Bound::Compute);
        assert_eq!(parts(2.0).speed(1.0).bound_by, Bound::Links);
    }
}
