//! A library's requests run through PyTorch's allocator: what it reserves beside the tensors.
//!
//! A cache that grows by the token is copied with each: the new one is larger than the one that is given back, so it needs
//! another segment, and what lies between stays reserved.

use super::Layout;
use super::prompt;
use crate::constants::Engine;
use crate::eager::allocator::Block;
use crate::eager::replay::{Graph, Process};
use crate::job::{AllocatorMode, Inference};
use crate::layer::Kind;
use crate::model::Model;

/// Tokens after which what a growing cache needs has been reserved.
const STEPS: u64 = 32;

/// What is reserved beside tensors, in bytes, on one GPU.
pub(super) fn beside(model: &Model, job: &Inference, engine: &Engine) -> f64 {
    let layers = prompt::layers(model, job, Layout::SINGLE, engine);
    let tokens = job.prompt_tokens.max(1) as f64 * job.concurrency as f64;
    let graph = |kind: &Kind| (*kind, layers.graph(tokens, kind.0, kind.1));
    let graphs: Vec<(Kind, Graph)> = model.kinds().iter().map(graph).collect();
    let of = |kind: Kind| {
        graphs
            .iter()
            .find(|(known, _)| *known == kind)
            .map(|(_, graph)| graph)
    };
    let order: Vec<&Graph> = model.order().filter_map(of).collect();

    let mut process = Process::new(job.allocator == AllocatorMode::Expandable);
    let matrix = layers.beside * (model.vocab * model.hidden) as f64;
    for _ in 0..if model.tied { 1 } else { 2 } {
        process.memory.take(matrix);
    }
    for weights in order.iter().flat_map(|graph| graph.weights()) {
        process.memory.take(weights.elements * weights.stored);
    }
    let embedded = process.memory.take(layers.element * model.hidden as f64 * tokens);
    if layers.masked {
        process.memory.take(layers.seq_len * tokens);
    }
    let mut x = embedded;
    // Block, bytes of the prompt, and the most tokens of it.
    let mut caches: Vec<(Block, f64, u64)> = Vec::new();
    let (full, windowed) = model.full_and_windowed_layers();
    let window = |at: usize| {
        let passed = |at: u64| at * windowed / (full + windowed).max(1);
        let is_windowed = passed(at as u64 + 1) > passed(at as u64);
        model
            .window
            .filter(|_| is_windowed)
            .map_or(u64::MAX, |window| window.tokens)
    };
    for (at, graph) in order.into_iter().enumerate() {
        let (next, saved) = process.forward(graph, x, false);
        if x != embedded {
            process.memory.give(x);
        }
        let cached = saved.cached.into_iter().zip(graph.cached());
        caches.extend(cached.map(|(block, bytes)| (block, bytes, window(at))));
        x = next;
    }
    process.memory.give(embedded);
    process.memory.give(x);
    // The last token's logits, and a copy in fp32.
    let logits = job.concurrency as f64 * model.vocab as f64;
    for bytes in [layers.element * logits, 4.0 * logits] {
        let block = process.memory.take(bytes);
        process.memory.give(block);
    }
    for step in 1..=STEPS.min(job.generated_tokens.saturating_sub(1)) {
        for (block, bytes, most) in &mut caches {
            let tokens = (job.prompt_tokens + step).min(*most) as f64;
            let longer = *bytes * tokens / job.prompt_tokens.max(1) as f64;
            let new = process.memory.take(longer);
            process.memory.give(std::mem::replace(block, new));
        }
    }
    (process.memory.reserved() - process.memory.most_live()) as f64
}
