//! What is answered when a job is sized: the same at the command line (`size -o json`) and over the API.

use poolwright_model::units::Bytes;
use poolwright_sizing::fit::{Candidate, Division, Merit, Rejection};
use poolwright_sizing::roofline::Speed;
use poolwright_sizing::{Fit, Model, Task, Term};
use serde::Serialize;

/// How much memory a job takes, and which sets of GPUs hold it. All memory is in bytes; prices are list prices.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SizeAnswer {
    pub model: String,
    pub params: u64,
    pub task: Task,
    pub label: String,
    /// Of the best set's fullest GPU: the middle estimate; `null` where nothing fits.
    pub bytes_per_gpu: Option<Bytes>,
    /// What to count on when deciding whether it fits.
    pub safe_bytes_per_gpu: Option<Bytes>,
    pub terms: Vec<Term>,
    pub notes: Vec<String>,
    /// Those that hold it, the best first.
    pub sets: Vec<SizedSet>,
    /// The kinds that can't.
    pub rejected: Vec<Rejection>,
}

/// A set of GPUs that holds the job.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SizedSet {
    pub rank: usize,
    pub kind: Option<String>,
    pub count: u32,
    /// GPUs that must share a host.
    pub group: u32,
    /// Fewest hosts, where it is known how many GPUs one takes.
    pub hosts: Option<u32>,
    pub division: Division,
    /// Of one GPU.
    pub memory_bytes: Bytes,
    pub bytes_per_gpu: Bytes,
    pub safe_bytes_per_gpu: Bytes,
    pub free_bytes_per_gpu: Bytes,
    /// In the host's memory, where the job is offloaded.
    pub host_bytes_per_gpu: Option<Bytes>,
    pub stranded_bytes: Bytes,
    /// What of the job these GPUs don't compute natively.
    pub note: Option<String>,
    /// What to know when the job is started on them.
    pub advice: Option<String>,
    pub price_usd: Option<f64>,
    pub power_w: Option<f64>,
    /// Estimated from the GPUs' rates; `null` where they are not known.
    pub speed: Option<Speed>,
    /// Of the tokens asked for.
    pub run_time_s: Option<f64>,
    /// No other set is as good in GPUs, cost, power and headroom, and better in one of them.
    pub on_front: bool,
    pub best_at: Vec<Merit>,
    pub terms: Vec<Term>,
}

impl SizeAnswer {
    /// Of what was found, with how long so many tokens take.
    pub fn of(model: &Model, fit: &Fit, tokens: Option<f64>) -> Self {
        let best = fit.candidates.first().map(|best| best.estimate.clone());
        let ranked = fit.candidates.iter().zip(1..);
        Self {
            model: model.name.clone(),
            params: model.params,
            task: fit.task,
            label: fit.label.clone(),
            bytes_per_gpu: best.as_ref().map(|best| best.point),
            safe_bytes_per_gpu: best.as_ref().map(|best| best.safe),
            sets: ranked
                .map(|(candidate, rank)| SizedSet::of(rank, candidate, tokens))
                .collect(),
            rejected: fit.rejections.clone(),
            terms: best.as_ref().map_or_else(Vec::new, |best| best.terms.clone()),
            notes: best.map_or_else(Vec::new, |best| best.notes),
        }
    }
}

impl SizedSet {
    fn of(rank: usize, candidate: &Candidate, tokens: Option<f64>) -> Self {
        let estimate = &candidate.estimate;
        Self {
            rank,
            kind: candidate.set.kind.clone(),
            count: candidate.set.count,
            group: candidate.set.group,
            hosts: candidate.hosts,
            division: candidate.division,
            memory_bytes: candidate.memory,
            bytes_per_gpu: estimate.point,
            safe_bytes_per_gpu: estimate.safe,
            free_bytes_per_gpu: candidate.free,
            host_bytes_per_gpu: estimate.on_host,
            stranded_bytes: candidate.stranded(),
            note: candidate.note.clone(),
            advice: candidate.advice.clone(),
            price_usd: candidate.price_usd,
            power_w: candidate.power_w,
            speed: candidate.speed.clone(),
            run_time_s: tokens.and_then(|tokens| candidate.run_time_s(tokens)),
            on_front: candidate.on_front,
            best_at: candidate.best_at.clone(),
            terms: estimate.terms.clone(),
        }
    }
}
