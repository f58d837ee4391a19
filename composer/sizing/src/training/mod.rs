//! Memory of a training step on the fullest GPU of a layout: full, LoRA, QLoRA and other adapters.
//!
//! The peak is the greatest of a few [`moments`], not a sum: gradients do not exist while the activations are
//! at their maximum (unless they accumulate over micro-batches), and the logits are gone when the last layer's
//! gradients come. Each moment is a list of parts with their formulas: of the model's [`states`], what is
//! [`gathered`] of them, the [`activations`] and the [`loss`]. Under pipeline parallelism the first and the last stage are computed,
//! and the greater counts.
//!
//! The bytes per token of a layer follow from the tensors that PyTorch saves for the backward pass, read off
//! and confirmed with PyTorch's memory tracker (`tests/sizing/track.py`).

mod activations;
mod gathered;
mod loss;
mod moments;
mod part;
mod rank;
mod replay;
mod states;

use crate::constants::{Constants, Factor, Figure, Framework};
use crate::error::SizingError;
use crate::estimate::{Estimate, Level, OFFLOADED, Term, whole};
use crate::job::within;
use crate::job::{
    AllocatorMode, Job, Method, Offload, Optimizer, Precision, Sharding, Training, WeightFormat,
};
use crate::layer::is_replayable;
use crate::model::Model;
use crate::overhead::{self, Card};
use crate::parallel::Parallel;
use activations::Known;
use part::Part;
use rank::Rank;
use std::cell::OnceCell;

/// Live tensors at the greatest of the moments.
#[derive(Clone, Debug, PartialEq)]
pub struct Peak {
    /// Which moment, such as "start of backward".
    pub moment: &'static str,
    pub terms: Vec<Term>,
    pub bytes: f64,
    /// A bound of `bytes`.
    pub safe_bytes: f64,
    /// Live tensors at the other moments.
    pub others: Vec<(&'static str, f64)>,
}

/// What the fullest GPU of the layout must hold, allocator and what is outside tensors on such a GPU included.
pub fn estimate(
    model: &Model,
    job: &Training,
    parallel: &Parallel,
    card: impl Into<Card>,
) -> Result<Estimate, SizingError> {
    estimate_once(model, job, parallel, card.into(), &Once::default())
}

pub(crate) fn estimate_once(
    model: &Model,
    job: &Training,
    parallel: &Parallel,
    card: Card,
    once: &Once,
) -> Result<Estimate, SizingError> {
    let peak = peak(model, job, parallel)?;
    let reserved = reserved(model, &peak, job, parallel, once)?;
    let (middle, safe) = (reserved.middle / peak.bytes, reserved.safe / peak.bytes);
    let mut notes = notes(model, job, parallel, &peak);
    let mut terms = peak.terms;
    let formula = format!(
        "({middle:.3} - 1) x {:.2} GiB of live tensors, at most ({safe:.3} - 1) x: what {} reserves over them",
        gib(peak.bytes),
        job.framework
    );
    terms.push(Term::new(
        "allocator",
        reserved.middle - peak.bytes,
        (safe - 1.0) / (middle - 1.0),
        formula,
    ));
    terms.extend(overhead::terms(card, &job.software(), parallel));
    let held = held_on_host(model, job, parallel, framework(job)?, true);
    notes.extend(model.assumptions());
    notes.extend(offloaded(&held));
    notes.extend(unconfirmed(model, job, parallel));
    if model.vision.is_some() {
        notes.push("estimate: of the language part alone, without its vision tower".into());
    }
    let bytes: f64 = held.iter().map(|part| part.bytes).sum();
    Ok(Estimate {
        on_host: (bytes > 0.0).then(|| whole(bytes)),
        ..Estimate::of(terms, notes)
    })
}

/// Live tensors only: no allocator, no runtime.
pub fn peak(model: &Model, job: &Training, parallel: &Parallel) -> Result<Peak, SizingError> {
    fullest(model, job, parallel, true)
}

/// The same without words: terms have no formulas.
pub(crate) fn bare_peak(model: &Model, job: &Training, parallel: &Parallel) -> Result<Peak, SizingError> {
    fullest(model, job, parallel, false)
}

fn fullest(model: &Model, job: &Training, parallel: &Parallel, words: bool) -> Result<Peak, SizingError> {
    let framework = checked(model, job, parallel)?;
    let mut peak: Option<Peak> = None;
    let known = Known::default();
    for stage in rank::stages(model, job, parallel) {
        let of = (model, job, parallel, framework);
        let found = moments::peak(&Rank::new(of, stage, &known, words));
        if peak.as_ref().is_none_or(|greatest| found.bytes > greatest.bytes) {
            peak = Some(found);
        }
    }
    peak.ok_or_else(|| SizingError::bad("pipeline", parallel.pipeline, "at least one stage"))
}

/// Bytes of weights, gradients and optimizer states on the GPU that holds most of them.
pub fn states(model: &Model, job: &Training, parallel: &Parallel) -> Result<f64, SizingError> {
    let framework = checked(model, job, parallel)?;
    let of = |stage| {
        let known = Known::default();
        let states = Rank::new((model, job, parallel, framework), stage, &known, false).states();
        states.weights.bytes + states.gradients.bytes + states.optimizer.bytes
    };
    let stages = rank::stages(model, job, parallel).into_iter();
    Ok(stages.map(of).fold(0.0, f64::max))
}

/// The framework of a job that makes sense for the model and the layout.
fn checked(model: &Model, job: &Training, parallel: &Parallel) -> Result<&'static Framework, SizingError> {
    model.check()?;
    Job::Training(job.clone()).check()?;
    parallel.check(model)?;
    within("context", parallel.context, 1, job.seq_len)?;
    framework(job)
}

fn framework(job: &Training) -> Result<&'static Framework, SizingError> {
    let frameworks = &Constants::builtin().frameworks;
    frameworks
        .named(&job.framework)
        .ok_or_else(|| SizingError::bad("framework", &job.framework, &frameworks.names().join(", ")))
}

/// Memory reserved by steps on one GPU, found once for all cards of a search.
#[derive(Debug, Default)]
pub(crate) struct Once(OnceCell<Option<f64>>);

/// Bytes reserved by PyTorch's caching allocator for the peak: on one GPU by the operations of a step, elsewhere by the
/// framework's measured factor.
pub(crate) fn reserved(
    model: &Model,
    peak: &Peak,
    job: &Training,
    parallel: &Parallel,
    once: &Once,
) -> Result<Level, SizingError> {
    let framework = framework(job)?;
    let factor = |middle: f64, safe: f64| Level {
        middle: peak.bytes * middle,
        safe: (peak.bytes * safe.max(middle)).max(peak.safe_bytes),
    };
    let of = |range: &Factor| factor(range.value, range.safe);
    let usual = |figure: &Figure| factor(figure.value, framework.reserved_safe.value);
    if let Some(reserved) = replayed(model, peak, job, parallel, framework, once) {
        return Ok(reserved);
    }
    let training = &Constants::builtin().training;
    let mixed = framework.reserved_mixed.as_ref();
    let mixed = mixed.filter(|_| parallel.tensor > 1 || parallel.pipeline > 1);
    Ok(match (job.allocator, mixed) {
        (AllocatorMode::Varying, _) => of(&training.reserved_varying),
        (AllocatorMode::Expandable, _) => of(&training.reserved_expandable),
        (AllocatorMode::Fixed, Some(mixed)) => of(mixed),
        (AllocatorMode::Fixed, None) if parallel.gpus() > 1 => usual(&framework.reserved_sharded),
        (AllocatorMode::Fixed, None) => usual(&framework.reserved_alone),
    })
}

/// The same from the operations of a step, where they are known.
fn replayed(
    model: &Model,
    peak: &Peak,
    job: &Training,
    parallel: &Parallel,
    framework: &Framework,
    once: &Once,
) -> Option<Level> {
    let replayed = framework.replayed.as_ref()?;
    let plain = job.allocator != AllocatorMode::Varying && *parallel == Parallel::SINGLE;
    if !plain || !is_replayable(peak.bytes) {
        return None;
    }
    let stage = *rank::stages(model, job, parallel).first()?;
    let known = Known::default();
    let rank = Rank::new((model, job, parallel, framework), stage, &known, false);
    let workspace = replayed.workspace_gib * f64::from(1 << 30);
    let found = (*once.0.get_or_init(|| rank.replayed()))?;
    let middle = found.max(peak.bytes) + workspace;
    Some(Level {
        middle,
        safe: (middle * replayed.safe).max(peak.safe_bytes),
    })
}

fn gib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 30)
}

/// Bytes that a GPU's process holds in the host's memory: 0 where nothing is offloaded.
pub fn on_host(model: &Model, job: &Training, parallel: &Parallel) -> Result<f64, SizingError> {
    if job.offload == Offload::None {
        return Ok(0.0);
    }
    let framework = checked(model, job, parallel)?;
    Ok(held_on_host(model, job, parallel, framework, false)
        .iter()
        .map(|part| part.bytes)
        .sum())
}

/// The parts of it, of the stage that has the most there.
fn held_on_host(
    model: &Model,
    job: &Training,
    parallel: &Parallel,
    framework: &Framework,
    words: bool,
) -> Vec<Part> {
    let held = rank::stages(model, job, parallel).into_iter().map(|stage| {
        let known = Known::default();
        Rank::new((model, job, parallel, framework), stage, &known, words)
            .states()
            .on_host
    });
    let bytes = |parts: &[Part]| parts.iter().map(|part| part.bytes).sum::<f64>();
    held.max_by(|a, b| bytes(a).total_cmp(&bytes(b)))
        .unwrap_or_default()
}

fn offloaded(held: &[Part]) -> Option<String> {
    let parts = held
        .iter()
        .map(|part| format!("{} {:.2}", part.name, gib(part.bytes)));
    let sum = held.iter().map(|part| part.bytes).sum();
    (!held.is_empty()).then(|| {
        format!(
            "{OFFLOADED} {:.2} GiB of the host's memory for each GPU: {}",
            gib(sum),
            parts.collect::<Vec<_>>().join(", ")
        )
    })
}

fn notes(model: &Model, job: &Training, parallel: &Parallel, peak: &Peak) -> Vec<String> {
    let others: Vec<String> = peak
        .others
        .iter()
        .map(|(moment, bytes)| format!("{:.2} at the {moment}", gib(*bytes)))
        .collect();
    let mut notes = vec![format!(
        "the peak is at the {}: {:.2} GiB of live tensors; {}",
        peak.moment,
        gib(peak.bytes),
        others.join(", ")
    )];
    if job.allocator == AllocatorMode::Fixed {
        let varying = Constants::builtin().training.reserved_varying.value;
        notes.push(format!(
            "for batches of one length; of varying length, PyTorch reserves about {:.2} GiB in all \
             (allocator=varying_shapes)",
            gib(varying * peak.bytes)
        ));
    }
    notes.extend(model.notes_of_use(job.seq_len, parallel.tensor));
    notes
}

/// What no measurement or tracked step confirms.
fn unconfirmed(model: &Model, job: &Training, parallel: &Parallel) -> Vec<String> {
    let mut what = Vec::new();
    let mut say = |holds: bool, text: &'static str| {
        if holds {
            what.push(text);
        }
    };
    say(
        parallel.pipeline > 1 || parallel.context > 1 || parallel.expert * parallel.tensor > 8,
        "buffers for what stages, rings of contexts and experts on other hosts send, as NCCL's source has them",
    );
    say(
        parallel.expert > 1,
        "how evenly tokens go to the GPUs that share experts",
    );
    say(
        parallel.pipeline > 1
            && !model
                .layers
                .is_multiple_of(parallel.pipeline * parallel.interleave),
        "stages of different lengths, the first and the last counted as the shorter ones",
    );
    say(
        job.precision == Precision::Fp8,
        "FP8, counted as bf16 computation on fp32 shards",
    );
    say(
        job.method != Method::Full && job.precision != Precision::Bf16,
        "adapters on a model that is not in bf16",
    );
    say(
        job.method == Method::Peft,
        "other adapters, counted as low-rank ones",
    );
    say(
        job.method == Method::Qlora && job.frozen == WeightFormat::Int8,
        "frozen weights in int8, as bitsandbytes' source has them",
    );
    say(
        job.method == Method::Qlora && job.frozen.is_unpacked_in_graph() && model.experts.is_some(),
        "frozen experts in GPTQ's format",
    );
    say(
        job.method != Method::Full && model.experts.is_some(),
        "activations of adapters on a mixture of experts",
    );
    say(
        model.linear.is_some() && (parallel.tensor > 1 || parallel.context > 1),
        "linear attention whose heads or tokens are divided over GPUs",
    );
    say(
        model.anatomy.unmeasured,
        "activations of layers of this kind, counted from the shapes of their parts",
    );
    say(
        parallel.gpus() > 8,
        "buffers of the communication library over several hosts, taken to have 8 GPUs each",
    );
    say(job.offload == Offload::Parameters, "buffers of offloaded weights");
    say(
        matches!(
            job.optimizer,
            Optimizer::Adafactor | Optimizer::AdafactorMomentum | Optimizer::AdafactorTorch
        ),
        "states and temporaries of Adafactor",
    );
    say(
        matches!(job.optimizer, Optimizer::PagedAdamW | Optimizer::PagedAdamW8bit),
        "paged states, counted as being in the host's memory",
    );
    say(
        match job.sharding {
            Sharding::None => parallel.replicas() > 1,
            Sharding::Optimizer | Sharding::Gradients => true,
            Sharding::Weights => false,
        },
        "buckets of DDP, ZeRO 1 and ZeRO 2, by their frameworks' defaults",
    );
    what.into_iter()
        .map(|text| format!("estimate, not confirmed by a measurement: {text}"))
        .collect()
}
