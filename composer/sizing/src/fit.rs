//! Which sets of GPUs can run a job: for each kind on offer the smallest that fits, ranked, and for each
//! kind that cannot, why.
//!
//! Serving is spread by tensor parallelism inside a group and pipeline stages over groups; training by
//! sharding over data-parallel GPUs. A set fits when the safe estimate of its fullest GPU is within the
//! memory that the GPU's driver reports. Rank: fewest GPUs, then least memory left unused, then cost.
//! Further layouts of a kind (narrower groups, for smaller hosts) follow after the best of every kind.

use crate::error::SizingError;
use crate::estimate::Estimate;
use crate::inference::{self, Layout};
use crate::job::{Job, Precision, WeightFormat};
use crate::model::Model;
use crate::need::{GpuSet, Need, Task};
use crate::parallel::Parallel;
use crate::training;
use poolwright_model::profile::{GpuKind, NumberFormat};
use poolwright_model::units::Bytes;
use serde::{Deserialize, Serialize};
use std::cmp::{Ordering, Reverse};
use std::fmt;

/// The widest group where the hosts are not known: what common servers take.
const USUAL_HOST: u32 = 8;

/// A kind of GPU that may be used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// Name of its profile. None: GPUs without one, of which only the memory is known.
    pub kind: Option<String>,
    pub vendor: String,
    /// As the driver reports it.
    pub memory: Bytes,
    /// What it computes natively, where that is known.
    #[serde(default)]
    pub computes: Option<Vec<NumberFormat>>,
    pub price_usd: Option<f64>,
    pub tdp_w: Option<f64>,
    /// How many there are; None: as many as wanted.
    pub available: Option<u32>,
}

impl Offer {
    pub fn of(kind: &GpuKind, available: Option<u32>) -> Self {
        Offer {
            kind: Some(kind.name.clone()),
            vendor: kind.vendor.clone(),
            memory: kind.memory(),
            computes: kind.computes.clone(),
            price_usd: kind.price_usd,
            tdp_w: kind.tdp_w,
            available,
        }
    }

    fn name(&self) -> String {
        self.kind
            .clone()
            .unwrap_or_else(|| format!("GPU with {}", self.memory))
    }
}

/// What a set must stay within.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// GPUs that one host takes, if known.
    pub host_slots: Option<u32>,
    /// May a set be spread over several hosts?
    pub spannable: bool,
    /// The largest set worth considering.
    pub max_gpus: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            host_slots: None,
            spannable: true,
            max_gpus: 1024,
        }
    }
}

/// How a set divides the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Division {
    Inference(Layout),
    /// Data-parallel GPUs, states sharded over them.
    Training {
        shards: u64,
    },
}

/// A set of GPUs of one kind that fits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    pub set: GpuSet,
    pub division: Division,
    /// Fewest hosts that can hold it, where the slots of a host are known.
    pub hosts: Option<u32>,
    /// Memory of one of its GPUs.
    pub memory: Bytes,
    /// What the fullest GPU holds; its `safe` is what the set was chosen by.
    pub estimate: Estimate,
    /// Left on each GPU beyond the safe estimate.
    pub free: Bytes,
    /// What of the job its GPUs don't compute natively, and what becomes of it.
    #[serde(default)]
    pub note: Option<String>,
    /// List price of the set, where known.
    pub price_usd: Option<f64>,
    /// Thermal design power of the set, where known.
    pub power_w: Option<f64>,
}

impl Candidate {
    /// Memory that the set has and does not need.
    pub fn stranded(&self) -> Bytes {
        self.free.saturating_mul(u64::from(self.set.count))
    }
}

/// A kind that cannot run the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejection {
    pub kind: String,
    /// The shortfall in words.
    pub reason: String,
    pub shortfall: Shortfall,
}

/// What a kind lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "lacks", rename_all = "kebab-case")]
pub enum Shortfall {
    /// There is none of it.
    Kind,
    /// No host takes a GPU.
    Slots,
    /// So many would do, and there are fewer; or more than one set may have; or more than its one host takes.
    Gpus { needed: u32, limit: CountLimit },
    /// Even divided over so many, each would have to hold more than it has.
    Memory {
        over: u64,
        needed: Bytes,
        has: Bytes,
        /// The largest part of what is needed, and how large it is.
        mostly: Option<(String, Bytes)>,
    },
}

/// What keeps a set from being larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CountLimit {
    Available(u32),
    OneHost(u32),
    Allowed(u32),
}

impl Shortfall {
    /// How far from fitting: a kind that lacks numbers comes before one that lacks memory, and of two the one that
    /// lacks less before the other.
    fn distance(&self) -> (u8, f64) {
        match self {
            Shortfall::Gpus { needed, limit } => {
                let (CountLimit::Available(has) | CountLimit::OneHost(has) | CountLimit::Allowed(has)) =
                    limit;
                (0, f64::from(*needed) / f64::from((*has).max(1)))
            }
            Shortfall::Memory { needed, has, .. } => (1, needed.gib() / has.gib().max(f64::MIN_POSITIVE)),
            Shortfall::Slots => (2, 0.0),
            Shortfall::Kind => (3, 0.0),
        }
    }
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shortfall::Kind => f.write_str("none is available"),
            Shortfall::Slots => f.write_str("no host takes a GPU"),
            Shortfall::Gpus { needed, limit } => match limit {
                CountLimit::Available(available) => write!(f, "needs {needed}, {available} available"),
                CountLimit::OneHost(slots) => write!(
                    f,
                    "needs {needed}, one host takes {slots}, and the set may not be spread over hosts"
                ),
                CountLimit::Allowed(most) => write!(f, "needs {needed}, at most {most} are allowed"),
            },
            Shortfall::Memory {
                over,
                needed,
                has,
                mostly,
            } => {
                write!(f, "over {over} GPUs each still needs {needed}")?;
                if let Some((term, bytes)) = mostly {
                    write!(f, ", of which {bytes} for {term}")?;
                }
                write!(f, "; it has {has}")
            }
        }
    }
}

/// The answer: what fits, best first, and what does not, with the reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    pub label: String,
    pub task: Task,
    pub spannable: bool,
    pub candidates: Vec<Candidate>,
    pub rejections: Vec<Rejection>,
}

impl Fit {
    /// Of the kinds that can't run the job the one that comes nearest.
    pub fn nearest_miss(&self) -> Option<&Rejection> {
        self.rejections.iter().min_by(|a, b| {
            let ((a, a_lacks), (b, b_lacks)) = (a.shortfall.distance(), b.shortfall.distance());
            a.cmp(&b).then(a_lacks.total_cmp(&b_lacks))
        })
    }

    /// For the planner; None when nothing fits.
    pub fn need(&self) -> Option<Need> {
        let best = self.candidates.first()?;
        let mut explanation = vec![format!("{}: {}", best.set, self.label)];
        explanation.extend(best.estimate.explain());
        // The planner may take any of them, so each kind's is told.
        let noted = self.candidates.iter().filter_map(|candidate| {
            let kind = candidate.set.kind.as_deref()?;
            Some(format!("{kind}: {}", candidate.note.as_deref()?))
        });
        for note in noted {
            if !explanation.contains(&note) {
                explanation.push(note);
            }
        }
        Some(Need {
            label: self.label.clone(),
            task: Some(self.task),
            alternatives: self.candidates.iter().map(|c| c.set.clone()).collect(),
            spannable: self.spannable,
            explanation,
        })
    }
}

/// Sizes the model for the job on every kind on offer.
pub fn fit(model: &Model, job: &Job, offers: &[Offer], limits: Limits) -> Result<Fit, SizingError> {
    model.check()?;
    job.check()?;
    let mut best = Vec::new();
    let mut further = Vec::new();
    let mut rejections = Vec::new();
    for offer in offers {
        let mut found = match job {
            Job::Inference(_) => serving_sets(model, job, offer, limits)?,
            Job::Training(_) => training_sets(model, job, offer, limits)?,
        }
        .into_iter();
        match found.next() {
            Some(first) => {
                best.push(first);
                further.extend(found);
            }
            None => {
                let shortfall = why_not(model, job, offer, limits)?;
                rejections.push(Rejection {
                    kind: offer.name(),
                    reason: shortfall.to_string(),
                    shortfall,
                });
            }
        }
    }
    best.sort_by(rank);
    // At the same count the wider group first: it is closer, so faster.
    further.sort_by(|a, b| {
        a.set
            .count
            .cmp(&b.set.count)
            .then(b.set.group.cmp(&a.set.group))
            .then_with(|| rank(a, b))
    });
    best.extend(further);
    Ok(Fit {
        label: format!("{} {}", model.name, job.summary()),
        task: job.task(),
        spannable: limits.spannable,
        candidates: best,
        rejections,
    })
}

fn rank(a: &Candidate, b: &Candidate) -> Ordering {
    let cost = |c: &Candidate| c.price_usd.unwrap_or(f64::INFINITY);
    a.set
        .count
        .cmp(&b.set.count)
        .then(a.stranded().cmp(&b.stranded()))
        .then(cost(a).total_cmp(&cost(b)))
        .then(a.set.kind.cmp(&b.set.kind))
}

/// The most GPUs of the kind that one set may have.
fn most_gpus(offer: &Offer, limits: Limits) -> u32 {
    let host = if limits.spannable {
        u32::MAX
    } else {
        limits.host_slots.unwrap_or(u32::MAX)
    };
    limits.max_gpus.min(offer.available.unwrap_or(u32::MAX)).min(host)
}

/// Widths at which every layer divides evenly, the widest first.
fn group_widths(model: &Model, limits: Limits, most: u32) -> Vec<u32> {
    let widest = limits.host_slots.unwrap_or(USUAL_HOST).min(most);
    (1..=widest)
        .rev()
        .filter(|t| model.heads.is_multiple_of(u64::from(*t)))
        .collect()
}

/// For each group width the fewest stages that fit. First the fewest GPUs with no more stages than the group
/// is wide (every token passes the stages one after another, so a deep pipeline is slow), the wider group
/// before the narrower; after it, only narrower groups, for hosts too small for the ones before.
fn serving_sets(
    model: &Model,
    job: &Job,
    offer: &Offer,
    limits: Limits,
) -> Result<Vec<Candidate>, SizingError> {
    let most = most_gpus(offer, limits);
    let mut found = Vec::new();
    for tensor in group_widths(model, limits, most) {
        let stages = u64::from(most / tensor).min(model.layers);
        for pipeline in 1..=stages {
            let layout = Layout {
                tensor: u64::from(tensor),
                pipeline,
            };
            let division = Division::Inference(layout);
            if let Some(candidate) = candidate(model, job, offer, limits, division)? {
                found.push(candidate);
                break;
            }
        }
    }
    found.sort_by_key(|c| {
        let deep = u64::from(c.set.count) > u64::from(c.set.group).pow(2);
        (deep, c.set.count, Reverse(c.set.group))
    });
    let mut narrowest = u32::MAX;
    found.retain(|c| {
        let helps = c.set.group < narrowest;
        narrowest = narrowest.min(c.set.group);
        helps
    });
    Ok(found)
}

/// The fewest data-parallel GPUs that fit.
fn training_sets(
    model: &Model,
    job: &Job,
    offer: &Offer,
    limits: Limits,
) -> Result<Vec<Candidate>, SizingError> {
    for shards in 1..=u64::from(most_gpus(offer, limits)) {
        if let Some(found) = candidate(model, job, offer, limits, Division::Training { shards })? {
            return Ok(vec![found]);
        }
    }
    Ok(Vec::new())
}

fn estimate(model: &Model, job: &Job, division: Division, vendor: &str) -> Result<Estimate, SizingError> {
    match (job, division) {
        (Job::Inference(i), Division::Inference(layout)) => inference::estimate(model, i, layout, vendor),
        (Job::Training(t), Division::Training { shards }) => {
            training::estimate(model, t, &Parallel::data(shards), vendor)
        }
        (Job::Inference(_) | Job::Training(_), _) => Err(SizingError::refused(
            "the job",
            "it is divided as another kind of job",
        )),
    }
}

/// The set, if it fits on the kind and its hosts can hold it.
fn candidate(
    model: &Model,
    job: &Job,
    offer: &Offer,
    limits: Limits,
    division: Division,
) -> Result<Option<Candidate>, SizingError> {
    let mut estimate = estimate(model, job, division, &offer.vendor)?;
    if estimate.safe > offer.memory {
        return Ok(None);
    }
    if let Job::Inference(inference) = job {
        estimate
            .notes
            .extend(inference::share_note(inference, estimate.safe, offer.memory));
    }
    let (count, group) = match division {
        Division::Inference(layout) => (layout.gpus(), layout.tensor),
        Division::Training { shards } => (shards, 1),
    };
    // Both are at most `most_gpus`, a u32.
    let (count, group) = (
        u32::try_from(count).unwrap_or(u32::MAX),
        u32::try_from(group).unwrap_or(u32::MAX),
    );
    let set = GpuSet {
        kind: offer.kind.clone(),
        count,
        min_memory_per_gpu: estimate.safe,
        group,
    };
    let hosts = match limits.host_slots {
        Some(slots) => match set.hosts_needed(slots) {
            Some(hosts) => Some(hosts),
            None => return Ok(None),
        },
        None => None,
    };
    Ok(Some(Candidate {
        set,
        division,
        hosts,
        memory: offer.memory,
        note: not_native(job, offer),
        free: offer.memory.saturating_sub(estimate.safe),
        price_usd: offer.price_usd.map(|p| p * f64::from(count)),
        power_w: offer.tdp_w.map(|w| w * f64::from(count)),
        estimate,
    }))
}

/// The sizes hold all the same: they are those of what is stored.
fn not_native(job: &Job, offer: &Offer) -> Option<String> {
    let computes = offer.computes.as_ref()?;
    let has = |format| computes.contains(&format);
    let wanted = match job {
        Job::Inference(inference) => match inference.weights {
            WeightFormat::Bf16 => NumberFormat::Bf16,
            WeightFormat::Fp8 => NumberFormat::Fp8,
            // Computed in 16 bit or in whole numbers, whatever the GPU.
            _ => return None,
        },
        Job::Training(training) if training.precision == Precision::Fp32 => return None,
        Job::Training(_) => NumberFormat::Bf16,
    };
    if has(wanted) {
        return None;
    }
    Some(match (wanted, job) {
        (NumberFormat::Fp8, _) => {
            "computes no fp8: weights are converted as they are used, if the engine can".into()
        }
        (_, Job::Training(_)) => "computes no bf16: train in fp16 with loss scaling".into(),
        _ => "computes no bf16: serve it in fp16".into(),
    })
}

/// Why no set of the kind was found.
fn why_not(model: &Model, job: &Job, offer: &Offer, limits: Limits) -> Result<Shortfall, SizingError> {
    let most = most_gpus(offer, limits);
    if most == 0 {
        return Ok(Shortfall::Kind);
    }
    if limits.host_slots == Some(0) {
        return Ok(Shortfall::Slots);
    }
    // With more of them, or over several hosts, would it do?
    let wider = Limits {
        spannable: true,
        max_gpus: Limits::default().max_gpus.max(limits.max_gpus),
        ..limits
    };
    let plenty = Offer {
        available: None,
        ..offer.clone()
    };
    let enough = match job {
        Job::Inference(_) => serving_sets(model, job, &plenty, wider)?,
        Job::Training(_) => training_sets(model, job, &plenty, wider)?,
    };
    if let Some(needed) = enough.iter().map(|c| c.set.count).min() {
        let limit = match (offer.available, limits.host_slots) {
            (Some(available), _) if available < needed => CountLimit::Available(available),
            (_, Some(slots)) if !limits.spannable && slots < needed => CountLimit::OneHost(slots),
            _ => CountLimit::Allowed(limits.max_gpus),
        };
        return Ok(Shortfall::Gpus { needed, limit });
    }
    let division = match job {
        Job::Inference(_) => {
            let tensor = u64::from(group_widths(model, limits, most).first().copied().unwrap_or(1));
            let pipeline = u64::from(most).div_ceil(tensor).min(model.layers).max(1);
            Division::Inference(Layout { tensor, pipeline })
        }
        Job::Training(_) => Division::Training {
            shards: u64::from(most),
        },
    };
    let least = estimate(model, job, division, &offer.vendor)?;
    let largest = least.terms.iter().max_by_key(|t| t.safe);
    Ok(Shortfall::Memory {
        over: match division {
            Division::Inference(layout) => layout.gpus(),
            Division::Training { shards } => shards,
        },
        needed: least.safe,
        has: offer.memory,
        mostly: largest.map(|term| (term.name.to_string(), term.safe)),
    })
}
