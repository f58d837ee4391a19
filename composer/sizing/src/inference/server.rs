//! Memory of a server beside weights and cache.
//!
//! It computes one batch at its start, the largest that its settings allow, and counts the peak as its activations. Two
//! moments compete: the widest part of a layer with all tokens of the batch, and the choice of the next token of each
//! request, whose logits are as many as the vocabulary has entries.

use super::{CACHE, Layout, cached_layers, engine};
use crate::constants::{Batch, Engine, Profiled};
use crate::estimate::{Estimate, Term, WARNING, grouped, whole};
use crate::job::Inference;
use crate::model::Model;
use crate::overhead::Card;
use poolwright_model::units::Bytes;

/// The largest batch by default. A card that is not known is taken to be large.
fn usual(profiled: &Profiled, card: Card) -> Batch {
    match card.large {
        Some(false) => profiled.small,
        _ => profiled.large,
    }
}

/// The largest batch.
fn batch(job: &Inference, profiled: &Profiled, card: Card) -> Batch {
    let usual = usual(profiled, card);
    Batch {
        // More requests at once need a setting that allows them.
        requests: job.max_num_seqs.unwrap_or(usual.requests.max(job.concurrency)),
        tokens: job.max_num_batched_tokens.unwrap_or(usual.tokens),
    }
}

/// Elements of a token in the widest part of a layer, on each GPU of a group.
fn widest(model: &Model, tensor: f64) -> f64 {
    let hidden = model.hidden as f64;
    // Gate and up side by side, and their product.
    let mlp = match model.anatomy.plain {
        0 => 0.0,
        _ => 3.0 * model.ffn as f64 / tensor,
    };
    let experts = model.experts.map_or(0.0, |experts| {
        let [width, chosen, shared] =
            [experts.ffn, experts.per_token, experts.shared_ffn].map(|count| count as f64);
        let (width, shared) = (width / tensor, shared / tensor);
        // What goes in and what comes out share a buffer.
        chosen * ((2.0 * width).max(hidden) + width) + 3.0 * shared
    });
    let attention = (2 * model.query() + 2 * model.key()) as f64 / tensor;
    let linear = model
        .linear
        .map_or(0.0, |linear| linear.projected() as f64 / tensor);
    mlp.max(experts).max(attention).max(linear)
}

/// The peak of the largest batch, or a constant where an engine's batch is not known.
pub(super) fn activations(
    model: &Model,
    job: &Inference,
    layout: Layout,
    engine: &Engine,
    card: Card,
) -> Option<Term> {
    let name = "activations";
    let Some(profiled) = &engine.profiled else {
        let range = match model.experts {
            Some(_) => &engine.activations_experts,
            None => &engine.activations_dense,
        };
        return range.as_ref().map(|range| Term::constant(name, range));
    };
    let Batch { requests, tokens } = batch(job, profiled, card);
    let [per_logit, stream] = [&profiled.sampler, &profiled.stream];
    let logits = requests as f64 * model.vocab as f64;
    let token = 2.0 * (stream.value * model.hidden as f64 + widest(model, layout.tensor as f64));
    let (sampled, computed) = (per_logit.value * logits, token * tokens as f64);
    let bound = (sampled * per_logit.safe).max(computed * stream.safe);
    let (bytes, formula) = if sampled > computed {
        let words = grouped(model.vocab);
        let formula = format!(
            "{} B x {words} logits x {} requests",
            per_logit.value,
            grouped(requests)
        );
        (sampled, formula)
    } else {
        let each = grouped(token.round() as u64);
        (
            computed,
            format!("{each} B x {} tokens of a batch", grouped(tokens)),
        )
    };
    Some(Term::new(name, bytes, bound / bytes, formula))
}

pub(super) const PARTIAL: &str = "partial entries of the cache";

/// Tokens of a compressed cache before they are an entry: for each request a server reserves the memory of a batch.
pub(super) fn partial_states(model: &Model, job: &Inference, engine: &Engine, card: Card) -> Option<Term> {
    let profiled = engine.profiled.as_ref().filter(|_| model.anatomy.partial > 0)?;
    let tokens = batch(job, profiled, card).tokens + model.window.unwrap_or(0);
    let tokens = tokens.min(job.prompt_tokens + job.generated_tokens);
    let each = model.anatomy.partial;
    let bytes = each as f64 * tokens as f64 * job.concurrency as f64;
    let formula = format!(
        "{} B x {} tokens of a batch x {} requests",
        grouped(each),
        grouped(tokens),
        job.concurrency
    );
    Some(Term::new(PARTIAL, bytes, 1.0, formula))
}

/// Graphs that are captured for decoding.
pub(super) fn graphs(job: &Inference, engine: &Engine) -> Option<Term> {
    let range = engine.graphs.as_ref().filter(|_| !job.enforce_eager)?;
    Some(Term::constant("graphs", range))
}

/// Memory outside a server's share: the context, older than its count, and graphs, later than it unless it counts them.
fn is_outside(engine: &Engine, term: &Term) -> bool {
    match term.name.as_str() {
        "context" | LEFT_FREE => true,
        "graphs" => engine.shares_graphs.is_none(),
        _ => false,
    }
}

/// Memory of a GPU beyond a server's share.
pub(super) const LEFT_FREE: &str = "left free";

/// With the memory that a server leaves free, so that its share holds everything inside.
pub(crate) fn within_share(mut estimate: Estimate, job: &Inference) -> Estimate {
    let (Some(share), Ok(engine)) = (job.gpu_memory_utilization, engine(job)) else {
        return estimate;
    };
    let outside = estimate.terms.iter().filter(|term| is_outside(engine, term));
    let outside: Bytes = outside.map(|term| term.safe).sum();
    let inside = estimate.safe.saturating_sub(outside).0 as f64;
    let free = whole(inside / share - estimate.safe.0 as f64);
    if free > Bytes(0) {
        estimate.safe += free;
        estimate.terms.push(Term {
            name: LEFT_FREE.to_owned(),
            point: Bytes(0),
            safe: free,
            estimate: false,
            formula: format!("{} takes {share} of a GPU at most", engine.name),
        });
    }
    estimate
}

/// The size of a server's cache in tokens, in its share of a GPU of this memory: the middle estimate of the number in its
/// log. None: no server with such a share; states, or caches of two widths, without a common number; no room.
pub fn cache_tokens(
    model: &Model,
    job: &Inference,
    layout: Layout,
    estimate: &Estimate,
    (memory, share): (Bytes, f64),
) -> Option<u64> {
    let engine = engine(job).ok().filter(|engine| engine.profiled.is_some())?;
    if model.anatomy.with_state > 0 || model.window_width(1) != model.cache_width(1) {
        return None;
    }
    let beside_cache = |term: &&Term| !is_outside(engine, term) && term.name != CACHE;
    let held = estimate.terms.iter().filter(beside_cache);
    let held: f64 = held.map(|term| term.point.0 as f64).sum();
    let token = (model.cache_width(layout.tensor) * job.cache_bytes + model.index_bytes()) as f64;
    // Its log counts layers with a window as if they kept all tokens.
    let [full, windowed, _] = cached_layers(model, layout, |[full, windowed, _]| (full + windowed) as f64);
    let layers = full + windowed;
    let room = memory.0 as f64 * share - held;
    let block = engine.block_tokens.value.max(1.0);
    let blocks = (room / (token * layers as f64 * block)).floor();
    (blocks > 0.0 && blocks.is_finite()).then_some((blocks * block) as u64)
}

/// The least share of a GPU of this memory for a server, and the size of its cache in tokens.
pub fn share_advice(
    model: &Model,
    job: &Inference,
    layout: Layout,
    estimate: &Estimate,
    memory: Bytes,
) -> Option<String> {
    let engine = engine(job).ok()?;
    let (usual, option) = (engine.utilization.as_ref()?.value, engine.share_option.as_ref()?);
    let outside = estimate.terms.iter().filter(|term| is_outside(engine, term));
    let outside: Bytes = outside.map(|term| term.safe).sum();
    let inside = estimate.safe.saturating_sub(outside);
    // Rounded up to a hundredth.
    let share = (inside.gib() / memory.gib() * 100.0).ceil() / 100.0;
    let room = |share: f64| {
        let tokens = cache_tokens(model, job, layout, estimate, (memory, share));
        tokens.map_or(String::new(), |tokens| {
            format!(" (about {} tokens of cache)", grouped(tokens))
        })
    };
    let name = &engine.name;
    if let Some(asked) = job.gpu_memory_utilization.filter(|asked| *asked != usual) {
        let room = room(asked);
        return Some(format!(
            "start {name} with {option} {asked}{room}; {share:.2} is enough"
        ));
    }
    Some(match share > usual {
        true => format!(
            "start {name} with {option} {share:.2} or more{}: by default it takes {usual} of a GPU",
            room(share)
        ),
        false => format!(
            "{name} takes {usual} of a GPU by default{}; {option} {share:.2} is enough",
            room(usual)
        ),
    })
}

/// A warning of more requests at once than the default.
pub(super) fn queue_note(job: &Inference, engine: &Engine, card: Card) -> Option<String> {
    let profiled = engine.profiled.as_ref().filter(|_| job.max_num_seqs.is_none())?;
    let usual = usual(profiled, card).requests;
    (job.concurrency > usual).then(|| {
        format!(
            "{WARNING} by default {} takes {usual} requests at once: start it with --max-num-seqs {}",
            engine.name, job.concurrency
        )
    })
}
