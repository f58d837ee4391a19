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
use crate::job::Job;
use crate::model::Model;
use crate::need::{GpuSet, Need, Task};
use crate::training;
use poolwright_model::profile::GpuKind;
use poolwright_model::units::Bytes;
use serde::{Deserialize, Serialize};
use std::cmp::{Ordering, Reverse};

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
    pub reason: String,
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
    /// For the planner; None when nothing fits.
    pub fn need(&self) -> Option<Need> {
        let best = self.candidates.first()?;
        let mut explanation = vec![format!("{}: {}", best.set, self.label)];
        explanation.extend(best.estimate.explain());
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
            None => rejections.push(Rejection {
                kind: offer.name(),
                reason: why_not(model, job, offer, limits)?,
            }),
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
        (Job::Training(t), Division::Training { shards }) => training::estimate(model, t, shards, vendor),
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
        free: offer.memory.saturating_sub(estimate.safe),
        price_usd: offer.price_usd.map(|p| p * f64::from(count)),
        power_w: offer.tdp_w.map(|w| w * f64::from(count)),
        estimate,
    }))
}

/// Why no set of the kind was found.
fn why_not(model: &Model, job: &Job, offer: &Offer, limits: Limits) -> Result<String, SizingError> {
    let most = most_gpus(offer, limits);
    if most == 0 {
        return Ok("none is available".into());
    }
    if limits.host_slots == Some(0) {
        return Ok("no host takes a GPU".into());
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
        let stop = match (offer.available, limits.host_slots) {
            (Some(available), _) if available < needed => format!("{available} available"),
            (_, Some(slots)) if !limits.spannable && slots < needed => {
                format!("one host takes {slots}, and the set may not be spread over hosts")
            }
            _ => format!("at most {} are allowed", limits.max_gpus),
        };
        return Ok(format!("needs {needed}, {stop}"));
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
    let of_which = largest.map_or(String::new(), |t| format!(", of which {} for {}", t.safe, t.name));
    let gpus = match division {
        Division::Inference(layout) => layout.gpus(),
        Division::Training { shards } => shards,
    };
    Ok(format!(
        "over {gpus} GPUs each still needs {}{of_which}; it has {}",
        least.safe, offer.memory
    ))
}
