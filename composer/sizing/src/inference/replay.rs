//! Memory reserved beside tensors for a library's requests, by their operations in PyTorch's allocator.
//!
//! A cache that grows by the token is copied with each: the new copy is larger than the old one, needs another segment, and
//! leaves the old one's reserved.

use super::Layout;
use super::prompt;
use crate::constants::Engine;
use crate::eager::allocator::{Allocator, Block};
use crate::eager::replay::Graph;
use crate::job::{AllocatorMode, Inference};
use crate::layer::{Layers, extrapolated};
use crate::model::Model;

/// Generated tokens after which a growing cache takes no further segments.
const STEPS: u64 = 32;

/// Reserved bytes beside tensors on one GPU.
pub(super) fn beside(model: &Model, job: &Inference, engine: &Engine) -> f64 {
    let layers = prompt::layers(model, job, Layout::SINGLE, engine);
    let tokens = job.prompt_tokens.max(1) as f64 * job.concurrency as f64;
    let graphs = layers.graphs(tokens);
    let order = model.in_order(&graphs);
    extrapolated(&order, |order| with_layers(model, job, &layers, order))
}

/// The same with these of its layers alone.
fn with_layers(model: &Model, job: &Inference, layers: &Layers<'_>, order: &[&Graph]) -> f64 {
    let tokens = job.prompt_tokens.max(1) as f64 * job.concurrency as f64;
    let mut memory = Allocator::new(job.allocator == AllocatorMode::Expandable);
    let matrix = layers.beside * (model.vocab * model.hidden) as f64;
    for _ in 0..if model.tied { 1 } else { 2 } {
        memory.take(matrix);
    }
    for weights in order.iter().flat_map(|graph| graph.weights()) {
        memory.take(weights.elements * weights.stored);
    }
    let embedded = memory.take(layers.element * model.hidden as f64 * tokens);
    if layers.masked {
        memory.take(layers.seq_len * tokens);
    }
    let mut x = embedded;
    // Block, bytes of the prompt, and the most tokens of it.
    let mut caches: Vec<(Block, f64, u64)> = Vec::new();
    let (full, windowed) = (model.anatomy.full, model.anatomy.windowed);
    let window = |at: usize| {
        let passed = |at: u64| at * windowed / (full + windowed).max(1);
        let is_windowed = passed(at as u64 + 1) > passed(at as u64);
        model.window.filter(|_| is_windowed).unwrap_or(u64::MAX)
    };
    for (at, graph) in order.iter().enumerate() {
        let (next, saved) = memory.forward(graph, x, false);
        if x != embedded {
            memory.give(x);
        }
        let cached = saved.cached.into_iter().zip(graph.cached());
        caches.extend(cached.map(|(block, bytes)| (block, bytes, window(at))));
        x = next;
    }
    memory.give(embedded);
    if x != embedded {
        memory.give(x);
    }
    // The last token's logits, and a copy in fp32.
    let logits = job.concurrency as f64 * model.vocab as f64;
    for bytes in [layers.element * logits, 4.0 * logits] {
        let block = memory.take(bytes);
        memory.give(block);
    }
    for step in 1..=STEPS.min(job.generated_tokens.saturating_sub(1)) {
        for (block, bytes, most) in &mut caches {
            let tokens = (job.prompt_tokens + step).min(*most) as f64;
            let longer = *bytes * tokens / job.prompt_tokens.max(1) as f64;
            let new = memory.take(longer);
            memory.give(std::mem::replace(block, new));
        }
    }
    (memory.reserved() - memory.most_live()) as f64
}
