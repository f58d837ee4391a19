//! The matrices of a model that a quantisation may cover, by the names that checkpoints give them.

use crate::anatomy::Counted;
use crate::features::{Gate, Mlp};
use crate::model::{Model, StoredParts};

/// A matrix of several layers, with its names in checkpoints.
struct Matrix {
    names: &'static str,
    params: f64,
    times: u64,
    routed: bool,
}

const QUERY: &str = "self_attn.q_proj self_attn.qkv_proj mixer.q_proj self_attention.query_key_value \
    attention.query_key_value";
const KEY: &str = "self_attn.k_proj self_attn.qkv_proj mixer.k_proj self_attention.query_key_value \
    attention.query_key_value";
const VALUE: &str = "self_attn.v_proj self_attn.qkv_proj mixer.v_proj self_attention.query_key_value \
    attention.query_key_value";
const OUT: &str = "self_attn.o_proj self_attn.out_proj self_attn.dense mixer.o_proj self_attention.dense \
    attention.dense";
const GATE: &str = "mlp.gate_proj mlp.gate_up_proj feed_forward.gate_proj feed_forward.w1";
const UP: &str = "mlp.up_proj mlp.gate_up_proj feed_forward.up_proj feed_forward.w3 mixer.up_proj mlp.fc1 \
    mlp.dense_h_to_4h";
const DOWN: &str =
    "mlp.down_proj feed_forward.down_proj feed_forward.w2 mixer.down_proj mlp.fc2 mlp.dense_4h_to_h";
const SHARED: &str = "mlp.shared_experts.up_proj mlp.shared_expert.up_proj mlp.shared_mlp.up_proj \
    feed_forward.shared_expert.up_proj mixer.shared_experts.up_proj ffn.shared_experts.w1 \
    shared_mlp.input_linear";
const ROUTED: &str = "mlp.experts.0.up_proj mlp.experts.gate_up_proj feed_forward.experts.0.up_proj \
    feed_forward.experts.gate_up_proj block_sparse_moe.experts.0.w1 mixer.experts.0.up_proj \
    ffn.experts.0.w1";
const STATE_IN: &str =
    "linear_attn.in_proj_qkvz linear_attn.in_proj_qkv mixer.in_proj mamba.in_proj conv.in_proj";
const STATE_OUT: &str = "linear_attn.out_proj mixer.out_proj mamba.out_proj conv.out_proj";

/// Parts that are no matrices, or never quantised.
const OTHERS: [&str; 8] = [
    "norm",
    "bias",
    "router",
    "embedding",
    "head",
    "streams",
    "positions",
    "entries",
];

/// How a matrix of a layer is stored.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub bytes: f64,
    /// By its name, not by a rule for all matrices.
    pub named: bool,
}

/// Mean bytes of a parameter, from each matrix of each layer; norms and routers, among others, stay in 16 bits. None
/// without parameters beside the embeddings.
pub(super) fn parts(model: &Model, stored: impl Fn(u64, &str, bool) -> Found) -> Option<StoredParts> {
    let routed = model.routed();
    let embeddings = model.embedding() + model.looked_up();
    let beside = model.params.checked_sub(embeddings)?.checked_sub(routed)?;
    let mut less = [0.0, 0.0];
    for matrix in matrices(model) {
        let found = (0..model.layers).map(|layer| stored(layer, matrix.names, matrix.routed));
        let found: Vec<Found> = found.collect();
        // The layers of a part are not known: those with a name in the file come first.
        let named = found.iter().filter(|found| found.named);
        let named: Vec<f64> = named
            .map(|found| 2.0 - found.bytes)
            .take(count(matrix.times))
            .collect();
        let rest = matrix.times - named.len() as u64;
        let other = found.iter().find(|found| !found.named);
        let other = other.or(found.first()).map_or(0.0, |found| 2.0 - found.bytes);
        let saved = named.iter().sum::<f64>() + rest as f64 * other;
        less[usize::from(matrix.routed)] += matrix.params * saved;
    }
    let each = |less: f64, params: u64| 2.0 - less / params.max(1) as f64;
    Some(StoredParts {
        routed: each(less[1], routed),
        beside: each(less[0], beside),
    })
}

fn count(times: u64) -> usize {
    usize::try_from(times).unwrap_or(usize::MAX)
}

fn matrices(model: &Model) -> Vec<Matrix> {
    let mut all = Vec::new();
    let mut add = |names: &'static str, params: f64, times: u64, routed: bool| {
        if params > 0.0 && times > 0 {
            all.push(Matrix {
                names,
                params,
                times,
                routed,
            });
        }
    };
    for Counted { name, params, times } in &model.anatomy.parts {
        let (whole, times) = (*params as f64, *times);
        match name.as_str() {
            "expert" => add(
                ROUTED,
                whole * times as f64 / model.anatomy.with_experts.max(1) as f64,
                model.anatomy.with_experts,
                true,
            ),
            "indexer" if model.latent.is_some() => indexer(model, whole, times, &mut add),
            name if OTHERS.iter().any(|other| name.contains(other)) => {}
            "shared expert" | "shared experts" | "shared MLP" => add(SHARED, whole, times, false),
            name if name.contains("latent attention") => latent(model, whole, times, &mut add),
            name if name.contains("linear") || name.contains("space") || name.contains("convolution") => {
                // The input matrix is two to six times the size of the output matrix.
                add(STATE_IN, 0.75 * whole, times, false);
                add(STATE_OUT, 0.25 * whole, times, false);
            }
            name if name.contains("attention") => {
                let [q, k] = [model.query(), model.key()].map(|width| width as f64);
                let gate = if model.features.gate == Gate::Element {
                    q
                } else {
                    0.0
                };
                let of = |width: f64| whole * width / (2.0 * q + gate + 2.0 * k);
                add(QUERY, of(q + gate), times, false);
                add(KEY, of(k), times, false);
                add(VALUE, of(k), times, false);
                add(OUT, of(q), times, false);
            }
            name if name.contains("MLP") => {
                let matrices: &[&str] = match model.features.mlp {
                    Mlp::Gated => &[GATE, UP, DOWN],
                    _ => &[UP, DOWN],
                };
                for names in matrices {
                    add(names, whole / matrices.len() as f64, times, false);
                }
            }
            // Matrices without known names.
            _ => add("", whole, times, false),
        }
    }
    all
}

/// The matrices of an indexer, but for the weights of its heads.
fn indexer(model: &Model, whole: f64, times: u64, add: &mut impl FnMut(&'static str, f64, u64, bool)) {
    let Some(latent) = model.latent else { return };
    let [h, heads, width, rank] = [
        model.hidden,
        latent.index_heads,
        latent.index_dim,
        latent.q_lora_rank,
    ]
    .map(|width| width as f64);
    add(
        "self_attn.indexer.wq_b",
        (heads * width * rank).min(whole),
        times,
        false,
    );
    add("self_attn.indexer.wk", (h * width).min(whole), times, false);
}

fn latent(model: &Model, whole: f64, times: u64, add: &mut impl FnMut(&'static str, f64, u64, bool)) {
    let Some(latent) = model.latent else { return };
    let [h, heads, kv, q, rope, nope, value] = [
        model.hidden,
        model.heads,
        latent.kv_lora_rank,
        latent.q_lora_rank,
        latent.rope_dim,
        latent.nope_dim,
        latent.value_dim,
    ]
    .map(|width| width as f64);
    let made = if q > 0.0 { q } else { h };
    let parts: [(&'static str, f64); 5] = [
        ("self_attn.q_a_proj", h * q),
        (
            "self_attn.q_b_proj self_attn.q_proj",
            made * heads * (nope + rope),
        ),
        ("self_attn.kv_a_proj_with_mqa", h * (kv + rope)),
        ("self_attn.kv_b_proj", kv * heads * (nope + value)),
        (OUT, heads * value * h),
    ];
    let sum: f64 = parts.iter().map(|(_, params)| params).sum();
    for (names, params) in parts {
        add(names, params * (whole / sum).min(1.0), times, false);
    }
}
