//! A set of GPUs that holds the job, with what it costs and how fast it is.

use super::layouts::{Found, USUAL_HOST};
use super::memo::Memo;
use super::rank::Merit;
use super::{Division, Limits, Offer};
use crate::error::SizingError;
use crate::estimate::Estimate;
use crate::inference;
use crate::job::{Job, Precision, WeightFormat};
use crate::need::{Advice, GpuSet};
use crate::roofline::{self, Speed};
use crate::training;
use poolwright_model::profile::NumberFormat;
use poolwright_model::units::Bytes;

/// A set of GPUs of one kind that fits.
#[derive(Clone, Debug, PartialEq)]
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
    pub note: Option<String>,
    /// What to know when the job is started on it: the share of a GPU's memory that the engine is to be given.
    pub advice: Option<String>,
    /// List price of the set, where known.
    pub price_usd: Option<f64>,
    /// Thermal design power of the set, where known.
    pub power_w: Option<f64>,
    /// None where the rates of its GPUs are not known.
    pub speed: Option<Speed>,
    /// No other set is as good in numbers, cost, power and headroom, and better in one of them.
    pub on_front: bool,
    /// What no other set is better in.
    pub best_at: Vec<Merit>,
}

impl Candidate {
    /// Memory that the set has and does not need.
    pub fn stranded(&self) -> Bytes {
        self.free.saturating_mul(u64::from(self.set.count))
    }

    pub(super) fn advice_of_set(&self) -> Option<Advice> {
        Some(Advice {
            kind: self.set.kind.clone(),
            count: self.set.count,
            text: self.advice.clone()?,
        })
    }

    pub fn tokens_per_s(&self) -> Option<f64> {
        let speed = self.speed.as_ref()?;
        Some(speed.tokens_per_s_per_gpu * f64::from(self.set.count))
    }

    pub fn run_time_s(&self, tokens: f64) -> Option<f64> {
        Some(tokens / self.tokens_per_s()?)
    }
}

/// Counts and speed of what was found; the estimate in words is made of what is kept of it.
pub(super) struct Sketch {
    pub found: Found,
    pub count: u32,
    pub group: u32,
    pub hosts: Option<u32>,
    pub speed: Option<Speed>,
}

impl Sketch {
    /// None where no host holds a group of it.
    pub(super) fn of(found: Found, memo: &Memo<'_>, offer: &Offer, limits: Limits) -> Option<Sketch> {
        let whole = |gpus: u64| u32::try_from(gpus).unwrap_or(u32::MAX);
        let host = limits.host_slots.unwrap_or(USUAL_HOST);
        let mut sketch = Sketch {
            count: whole(found.division.gpus()),
            group: whole(found.division.group(host)),
            found,
            hosts: None,
            speed: None,
        };
        if let Some(slots) = limits.host_slots {
            sketch.hosts = Some(sketch.set(offer).hosts_needed(slots)?);
        }
        sketch.speed = offer
            .rates
            .as_ref()
            .and_then(|rates| match (memo.job, found.division) {
                (Job::Inference(job), Division::Inference(layout)) => {
                    roofline::serving(memo.model, job, layout, rates, host, memo.launches)
                }
                (Job::Training(job), Division::Training(parallel)) => {
                    roofline::training(memo.model, job, &parallel, rates, host, memo.launches)
                }
                (Job::Inference(_) | Job::Training(_), _) => None,
            });
        Some(sketch)
    }

    /// Whether a host has the memory for what its GPUs of the set keep there, where that is known.
    pub(super) fn fits_its_hosts(&self, memo: &Memo<'_>, limits: Limits) -> bool {
        limits
            .host_memory
            .is_none_or(|has| self.on_its_host(memo, limits) <= has)
    }

    /// What the GPUs of the set on one host, as many as it takes, keep in its memory.
    pub(super) fn on_its_host(&self, memo: &Memo<'_>, limits: Limits) -> Bytes {
        let (Job::Training(job), Division::Training(parallel)) = (memo.job, self.found.division) else {
            return Bytes(0);
        };
        let each = training::on_host(memo.model, job, &parallel).unwrap_or_default();
        let together = self.count.min(limits.host_slots.unwrap_or(USUAL_HOST));
        Bytes((each * f64::from(together)).ceil() as u64)
    }

    fn set(&self, offer: &Offer) -> GpuSet {
        GpuSet {
            kind: offer.kind.clone(),
            count: self.count,
            min_memory_per_gpu: self.found.safe,
            group: self.group,
        }
    }

    pub(super) fn candidate(self, memo: &mut Memo<'_>, offer: &Offer) -> Result<Candidate, SizingError> {
        let mut estimate = memo.estimate(self.found.division, offer.card())?;
        let mut advice = None;
        if let (Job::Inference(job), Division::Inference(layout)) = (memo.job, self.found.division) {
            advice = inference::share_advice(memo.model, job, layout, &estimate, offer.memory);
            let requests = inference::requests_note(job, &estimate, offer.memory);
            estimate.notes.extend(advice.clone().into_iter().chain(requests));
        }
        if offer.estimated {
            estimate.notes.push(format!(
                "estimate: {} of memory, a share of what its name says: no figure was found",
                offer.memory
            ));
        }
        estimate
            .notes
            .extend(self.speed.as_ref().and_then(Speed::warning));
        estimate
            .notes
            .extend(self.speed.as_ref().and_then(Speed::range_note));
        let all = |each: Option<f64>| each.map(|each| each * f64::from(self.count));
        Ok(Candidate {
            set: GpuSet {
                min_memory_per_gpu: estimate.safe,
                ..self.set(offer)
            },
            division: self.found.division,
            hosts: self.hosts,
            memory: offer.memory,
            note: not_native(memo.job, offer),
            advice,
            free: offer.memory.saturating_sub(estimate.safe),
            price_usd: all(offer.price_usd),
            power_w: all(offer.tdp_w),
            estimate,
            speed: self.speed,
            on_front: false,
            best_at: Vec::new(),
        })
    }
}

/// The sizes hold all the same: they are those of what is stored.
fn not_native(job: &Job, offer: &Offer) -> Option<String> {
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
    if offer.computes(wanted) {
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
