//! Which sets of GPUs can run a job: for each kind on offer the smallest that fits, ranked, and for each
//! kind that cannot, why.
//!
//! Serving is spread by tensor parallelism inside a group and pipeline stages over groups; training by sharding
//! over data-parallel GPUs, and by tensor, pipeline, context and expert parallelism where that makes sense
//! ([`layouts`]). Tensor parallelism stays inside a host, and of a pool inside one of its switches or NVLink islands. A set fits when the safe estimate of its fullest GPU is within the memory that the GPU's driver
//! reports. Rank: fewest GPUs, then least memory left unused, then cost; further layouts of a kind (narrower
//! groups, for smaller hosts; faster or roomier ones) follow after the best of every kind. Sets that no other
//! beats in numbers, cost, power and headroom together are on the front, and each says what it is best at.

mod candidate;
mod layouts;
mod memo;
mod offer;
mod rank;
mod shortfall;
mod widths;

pub use candidate::Candidate;
pub use offer::Offer;
pub use rank::Merit;
pub use shortfall::{CountLimit, Rejection, Shortfall};
pub use widths::Widths;

use crate::calibration::{CALIBRATED, Calibration};
use crate::error::SizingError;
use crate::inference::Layout;
use crate::job::{Job, WeightFormat};
use crate::model::Model;
use crate::need::{Need, Task};
use crate::parallel::Parallel;
use candidate::Sketch;
use layouts::Room;
use memo::Memo;
use poolwright_model::units::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a set must stay within.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// GPUs that one host takes, if known.
    pub host_slots: Option<u32>,
    /// May a set be spread over several hosts?
    pub spannable: bool,
    /// The largest set worth considering.
    pub max_gpus: u32,
    /// What a host has of memory for what its GPUs offload, if known.
    pub host_memory: Option<Bytes>,
    /// Just so many; None: the fewest that do.
    pub gpus: Option<u32>,
    /// Divided in just this way; what is left open is searched.
    pub widths: Widths,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            host_slots: None,
            spannable: true,
            max_gpus: 1024,
            host_memory: None,
            gpus: None,
            widths: Widths::default(),
        }
    }
}

impl Limits {
    fn most_gpus(self, offer: &Offer) -> u32 {
        let host = if self.spannable {
            u32::MAX
        } else {
            self.host_slots.unwrap_or(u32::MAX)
        };
        self.max_gpus.min(offer.available.unwrap_or(u32::MAX)).min(host)
    }
}

/// How a set divides the work.
///
/// Shown as `tensor 4, pipeline 2`, and `1 GPU`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Division {
    Inference(Layout),
    Training(Parallel),
}

impl Division {
    pub fn gpus(self) -> u64 {
        match self {
            Division::Inference(layout) => layout.gpus(),
            Division::Training(parallel) => parallel.gpus(),
        }
    }

    /// GPUs that must share a host of so many: they exchange data in every layer. The parts of a sequence do so too,
    /// but less, and go over hosts where one has no room for them.
    pub fn group(self, host: u32) -> u64 {
        match self {
            Division::Inference(layout) => layout.tensor,
            Division::Training(parallel) => {
                let together = parallel.tensor * parallel.context;
                if together <= u64::from(host) {
                    together
                } else {
                    parallel.tensor
                }
            }
        }
    }
}

impl fmt::Display for Division {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Division::Training(parallel) => parallel.fmt(f),
            Division::Inference(Layout { tensor, pipeline }) => Parallel {
                tensor: *tensor,
                pipeline: *pipeline,
                ..Parallel::SINGLE
            }
            .fmt(f),
        }
    }
}

/// The answer: what fits, best first, and what does not, with the reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    pub label: String,
    pub task: Task,
    /// The format of served weights.
    pub weights: Option<WeightFormat>,
    pub spannable: bool,
    pub candidates: Vec<Candidate>,
    pub rejections: Vec<Rejection>,
}

impl Fit {
    /// Of the kinds that can't run the job the one that comes nearest.
    pub fn nearest_miss(&self) -> Option<&Rejection> {
        self.rejections
            .iter()
            .min_by(|a, b| a.shortfall.nearer(&b.shortfall))
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
        let all = self
            .candidates
            .iter()
            .flat_map(|candidate| &candidate.estimate.notes);
        let calibrated = all.filter(|note| note.starts_with(CALIBRATED)).cloned();
        for note in noted.chain(calibrated) {
            if !explanation.contains(&note) {
                explanation.push(note);
            }
        }
        Some(Need {
            label: self.label.clone(),
            task: Some(self.task),
            alternatives: self.candidates.iter().map(|c| c.set.clone()).collect(),
            spannable: self.spannable,
            elastic: false,
            explanation,
            advice: self
                .candidates
                .iter()
                .filter_map(Candidate::advice_of_set)
                .collect(),
        })
    }
}

/// Sizes the model for the job on every kind on offer.
pub fn fit(model: &Model, job: &Job, offers: &[Offer], limits: Limits) -> Result<Fit, SizingError> {
    fit_calibrated(model, job, offers, limits, &Calibration::default())
}

/// The same with constants as measured peaks corrected them; every estimate that it touches says so.
pub fn fit_calibrated(
    model: &Model,
    job: &Job,
    offers: &[Offer],
    limits: Limits,
    calibration: &Calibration,
) -> Result<Fit, SizingError> {
    model.check()?;
    job.check()?;
    job.refuse_nothing()?;
    limits.widths.check(model, job)?;
    let mut memo = Memo::new(model, job, calibration);
    let mut best = Vec::new();
    let mut further = Vec::new();
    let mut rejections = Vec::new();
    for offer in offers {
        let mut sets = sets(&mut memo, offer, limits)?.into_iter();
        match sets.next() {
            Some(first) => {
                best.push(first.candidate(&mut memo, offer)?);
                for sketch in sets {
                    further.push(sketch.candidate(&mut memo, offer)?);
                }
            }
            None => {
                let shortfall = why_not(&mut memo, offer, limits)?;
                rejections.push(Rejection {
                    kind: offer.name(),
                    reason: shortfall.to_string(),
                    shortfall,
                });
            }
        }
    }
    best.sort_by(rank::rank);
    further.sort_by(rank::rank_further);
    best.extend(further);
    rank::judge(&mut best);
    Ok(Fit {
        label: format!("{} {}", model.name, job.summary()),
        task: job.task(),
        weights: match job {
            Job::Inference(job) => Some(job.weights),
            Job::Training(_) => None,
        },
        spannable: limits.spannable,
        candidates: best,
        rejections,
    })
}

fn sets(memo: &mut Memo<'_>, offer: &Offer, limits: Limits) -> Result<Vec<Sketch>, SizingError> {
    let room = Room::of(offer, limits);
    let found = layouts::found(memo, room, limits)?;
    let mut sketches: Vec<Sketch> = found
        .into_iter()
        .filter_map(|found| Sketch::of(found, memo, offer, limits))
        .collect();
    match memo.job {
        Job::Inference(_) => rank::order_serving(&mut sketches),
        Job::Training(_) => {
            sketches.retain(|sketch| sketch.fits_its_hosts(memo, limits));
            rank::order_training(&mut sketches);
        }
    }
    Ok(sketches)
}

fn why_not(memo: &mut Memo<'_>, offer: &Offer, limits: Limits) -> Result<Shortfall, SizingError> {
    let most = limits.most_gpus(offer);
    if most == 0 {
        return Ok(Shortfall::Kind);
    }
    if limits.host_slots == Some(0) {
        return Ok(Shortfall::Slots);
    }
    if let Some(wanted) = limits
        .widths
        .tensor
        .filter(|wanted| *wanted > u64::from(Room::of(offer, limits).widest))
    {
        let widest = Room::of(offer, limits).widest;
        return Ok(Shortfall::Group { wanted, widest });
    }
    if let Some(has) = limits.host_memory {
        let anywhere = Limits {
            host_memory: None,
            ..limits
        };
        let needed = sets(memo, offer, anywhere)?
            .iter()
            .map(|sketch| sketch.on_its_host(memo, limits))
            .min();
        if let Some(needed) = needed {
            return Ok(Shortfall::HostMemory { needed, has });
        }
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
    let enough = sets(memo, &plenty, wider)?;
    if let Some(needed) = enough.iter().map(|sketch| sketch.count).min() {
        let limit = match (offer.available, limits.host_slots) {
            (Some(available), _) if available < needed => CountLimit::Available(available),
            (_, Some(slots)) if !limits.spannable && slots < needed => CountLimit::OneHost(slots),
            _ => CountLimit::Allowed(limits.max_gpus),
        };
        return Ok(Shortfall::Gpus { needed, limit });
    }
    let Some(division) = layouts::least(memo, Room::of(offer, limits), limits)? else {
        return Ok(Shortfall::Layout {
            gpus: limits.gpus.unwrap_or(most),
            asked: limits.widths.any(),
        });
    };
    let least = memo.estimate(division, offer.card())?;
    let largest = least.terms.iter().max_by_key(|t| t.safe);
    Ok(Shortfall::Memory {
        over: division.gpus(),
        needed: least.safe,
        has: offer.memory,
        mostly: largest.map(|term| (term.name.to_string(), term.safe)),
    })
}
