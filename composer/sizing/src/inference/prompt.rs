//! What plain PyTorch holds while it reads a prompt, and gives back before it generates; and what it keeps to compute
//! with, beside the weights.
//!
//! A server reads prompts in parts of a set size, whose memory its log tells. A library computes all of the prompt at
//! once, so its peak is at the greatest of these moments:
//!
//! ```text
//! loading      the head once more, in formats that load it apart
//! reading      cache of the prompt + one layer's activations, or the logits where all of them are computed
//! generating   cache of prompt and answer
//! ```
//!
//! The cache has a term of its own with all tokens; here is what reading takes beyond that: the layer whose operations
//! ([`crate::layer`]) hold the most at once.

use super::Layout;
use crate::constants::{Constants, Engine, Scope};
use crate::estimate::{Term, grouped, whole};
use crate::features::Features;
use crate::job::{Attention, Inference, WeightFormat};
use crate::layer::Layers;
use crate::model::Model;
use poolwright_model::units::Bytes;

/// Names of the terms that grow with every request.
pub(super) const LOGITS: &str = "prompt logits";
pub(super) const ACTIVATIONS: &str = "prompt activations";

/// A cache in bytes: middle and bound.
#[derive(Clone, Copy, Default)]
pub(super) struct Held {
    pub point: u64,
    pub safe: u64,
}

/// The cache of a request's prompt, and of all its tokens.
#[derive(Clone, Copy, Default)]
pub(super) struct Cache {
    pub prompt: Held,
    pub all: Held,
}

/// What reading takes beyond the cache that generating needs.
pub(super) fn reading(
    model: &Model,
    job: &Inference,
    layout: Layout,
    engine: &Engine,
    cache: Cache,
) -> Option<Term> {
    let tokens = job.prompt_tokens as f64 * job.concurrency as f64;
    let all_logits = job.prompt_logits || engine.prompt_logits;
    let Some(counted) = &engine.prompt_activations else {
        // The cache of a server is there from the start.
        let bytes = all_logits.then(|| logits(model) * tokens)?;
        let formula = format!(
            "6 B x {} x {} prompt tokens",
            grouped(model.vocab),
            whole_number(tokens)
        );
        return Some(Term::new(LOGITS, bytes, engine.cache_safe.value, formula));
    };
    let layer = layer(model, job, layout, engine) / tokens.max(1.0);
    let head = if all_logits {
        logits(model) + element(job) * model.hidden as f64
    } else {
        0.0
    };
    let (name, each) = if head > layer {
        (LOGITS, head)
    } else {
        (ACTIVATIONS, layer)
    };
    let beyond = |factor: f64, prompt: u64, all: u64| {
        let reading = whole(each * tokens * factor).0.saturating_add(prompt);
        Bytes(reading.saturating_sub(all))
    };
    let formula = format!(
        "{} B x {} prompt tokens - {:.2} GiB of cache to come",
        whole_number(each),
        whole_number(tokens),
        Bytes(cache.all.point.saturating_sub(cache.prompt.point)).gib()
    );
    let point = beyond(1.0, cache.prompt.point, cache.all.point);
    Some(Term {
        point: whole(point.0 as f64 * counted.value),
        safe: beyond(engine.cache_safe.value, cache.prompt.safe, cache.all.safe).max(point),
        ..Term::new(name, 0.0, 1.0, formula)
    })
}

/// A head that is loaded apart, though it is the embedding: what it takes beyond all that comes after it is given back.
pub(super) fn loading(
    model: &Model,
    job: &Inference,
    engine: &Engine,
    cache: Cache,
    reading: Bytes,
) -> Option<Term> {
    let formats = engine.loads_head.as_ref()?;
    if !model.tied || !formats.value.contains(&job.weights) {
        return None;
    }
    let matrix = model.vocab * model.hidden;
    let beyond = (2 * matrix).saturating_sub(cache.all.point.saturating_add(reading.0));
    let formula = format!("2 B x {} of the head, before there is a cache", grouped(matrix));
    (beyond > 0).then(|| Term::new("loading", beyond as f64, 1.0, formula))
}

fn whole_number(count: f64) -> String {
    grouped(count.round() as u64)
}

/// Bytes per token of logits in 16 bits and their copy in fp32.
fn logits(model: &Model) -> f64 {
    6.0 * model.vocab as f64
}

fn element(job: &Inference) -> f64 {
    if job.weights == WeightFormat::Fp32 {
        4.0
    } else {
        2.0
    }
}

/// How a library computes layers on a prompt.
pub(super) fn layers<'a>(model: &'a Model, job: &Inference, layout: Layout, engine: &Engine) -> Layers<'a> {
    let e = element(job);
    let format = Constants::builtin().format(job.weights);
    let quantised = matches!(job.weights, WeightFormat::Nf4 | WeightFormat::Nf4Dq);
    Layers {
        model,
        element: e,
        stream: e,
        autocast: false,
        attention: job.attention,
        seq_len: job.prompt_tokens as f64,
        tensor: layout.tensor as f64,
        sequence: 1.0,
        inputs: 1.0,
        stored: match format.scope {
            Scope::All | Scope::Linears => format.bytes(),
            Scope::Experts => 2.0,
        },
        beside: e,
        gradient: 0.0,
        adapters: None,
        caches: true,
        repeats_keys: false,
        masked: engine.keeps_windows.is_some() && beyond_window(model, job),
        loops_experts: engine.groups_experts.is_none(),
        unpacks: quantised,
        keeps_inputs: false,
    }
}

/// The prompt is longer than the window of some layers.
fn beyond_window(model: &Model, job: &Inference) -> bool {
    model.window.is_some_and(|tokens| job.prompt_tokens > tokens)
}

/// Bytes of all tokens of the prompts in the layer that takes the most, of what is held beside it: what came out of the
/// embedding, the layer's input, cosines and sines, and a mask.
fn layer(model: &Model, job: &Inference, layout: Layout, engine: &Engine) -> f64 {
    let layers = layers(model, job, layout, engine);
    let tokens = job.prompt_tokens as f64 * job.concurrency as f64;
    let stream = layers.element * model.hidden as f64;
    let mask = match (job.attention, layers.masked) {
        (Attention::Eager, _) => layers.element * layers.seq_len,
        (Attention::Flash, true) => layers.seq_len,
        (Attention::Flash, false) => 0.0,
    };
    let held = 2.0 * stream + 2.0 * layers.element * model.head_dim as f64 + mask;
    let graph = |(mixing, feeding)| layers.graph(tokens, mixing, feeding).most_live();
    let most = model.kinds().into_iter().map(graph).fold(0.0, f64::max);
    held * tokens + most
}

/// Cosines and sines that every layer keeps for itself, of all places that the model was made for. Of the Llama family
/// some classes keep them and some don't: the bound has them.
pub(super) fn rotary_tables(model: &Model, job: &Inference, layout: Layout, engine: &Engine) -> Option<Term> {
    let usual = engine.rotary_tables.as_ref()?;
    if model.features.unrotated {
        return None;
    }
    let made_for = model.context.unwrap_or(usual.value as u64);
    let places = made_for.max(job.prompt_tokens + job.generated_tokens);
    let layers = model.layers.div_ceil(layout.pipeline);
    let width = model.latent.map_or(model.head_dim, |latent| latent.rope_dim);
    let bytes = 2.0 * element(job) * width as f64 * places as f64 * layers as f64;
    let formula = format!(
        "2 x {} B x {width} x {} places x {layers} layers",
        element(job),
        grouped(places)
    );
    let term = Term::new("rotary tables", bytes, 1.0, formula);
    let like_llama = model.features == Features::default()
        && model.experts.is_none()
        && model.latent.is_none()
        && model.linear.is_none();
    Some(if like_llama {
        Term {
            point: whole(0.0),
            ..term
        }
    } else {
        term
    })
}

/// Where the kernel takes 16-bit weights, the largest matrix is expanded into a buffer that stays.
pub(super) fn expanded(model: &Model, job: &Inference, layout: Layout, engine: &Engine) -> Option<Term> {
    let formats = engine.expands.as_ref()?;
    if !formats.value.contains(&job.weights) {
        return None;
    }
    let widest = model
        .experts
        .map_or(model.ffn, |experts| experts.ffn)
        .max(model.query());
    let matrix = model.hidden * widest / layout.tensor;
    let formula = format!("2 B x {} of the largest matrix", grouped(matrix));
    Some(Term::new("expanded weights", 2.0 * matrix as f64, 1.0, formula))
}
