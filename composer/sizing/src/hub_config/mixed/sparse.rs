//! Sparse attention over all tokens: compressed caches and windows (DeepSeek V4), and blocks of a plain cache that an
//! indexer chooses (MiniMax M3).

use super::super::ConfigError;
use super::super::fields::Fields;
use super::{Draft, layers, wide};
use crate::anatomy::CacheHeads;
use crate::model::{Experts, Window};

/// Tokens that become one entry of the cache.
const SPARSE_RATE: u64 = 4;
const HEAVY_RATE: u64 = 128;

const HEAVY: &[&str] = &["heavily_compressed_attention"];
const SPARSE: &[&str] = &["compressed_sparse_attention"];
const WINDOW_ALONE: &[&str] = &["sliding_attention"];

/// What the parts of DeepSeek V4's attention are made of.
struct Compressed {
    heavy: u64,
    sparse: u64,
    width: u64,
    query_rank: u64,
    index_heads: u64,
    index_width: u64,
    sparse_rate: u64,
    heavy_rate: u64,
}

/// One entry of the cache for all heads; in most layers it is compressed, and each keeps a window beside that. Every
/// layer has several streams, mixed before and after its parts, and experts.
pub(super) fn deepseek_v4(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let mut draft = Draft::of_layers(fields, number, false)?;
    draft.heads = fields.size(&super::super::HEADS, None)?;
    draft.head_dim = fields.size(&["head_dim"], Some(512))?;
    let compressed = compressed(fields, &draft)?;
    attention(fields, &mut draft, &compressed)?;
    caches(fields, &mut draft, &compressed)?;

    let h = draft.h();
    let streams = wide(fields.size(&["hc_mult"], Some(4))?);
    let mixes = streams * (2 + streams);
    draft.part("mixing of streams", mixes * streams * h + mixes + 3, 2 * number)?;
    draft.part("streams of the head", streams * streams * h + streams + 1, 1)?;
    draft.part("norms", 2 * h, number)?;
    draft.ffn = fields.size(&["moe_intermediate_size"], None)?;
    let experts = Experts {
        count: fields.size(&["n_routed_experts"], None)?,
        per_token: fields.whole(&["num_experts_per_tok"])?.unwrap_or(6),
        ffn: draft.ffn,
        shared: fields.whole(&["n_shared_experts"])?.unwrap_or(1),
        first_dense_layers: 0,
        every: 1,
    };
    super::with_experts(draft, 0, experts)
}

fn compressed(fields: &Fields, draft: &Draft) -> Result<Compressed, ConfigError> {
    let (heavy, sparse) = compressed_layers(fields, draft.layers)?;
    let rates = fields.inner("compress_rates")?;
    let rate = |key: &'static str, usual: u64| match &rates {
        Some(rates) => rates.size(&[key], Some(usual)),
        None => Ok(usual),
    };
    Ok(Compressed {
        heavy,
        sparse,
        width: draft.head_dim,
        query_rank: fields.size(&["q_lora_rank"], Some(1024))?,
        index_heads: fields.size(&["index_n_heads"], Some(64))?,
        index_width: fields.size(&["index_head_dim"], Some(128))?,
        sparse_rate: rate("compressed_sparse_attention", SPARSE_RATE)?,
        heavy_rate: rate("heavily_compressed_attention", HEAVY_RATE)?,
    })
}

/// By the list, or by the rates of each layer, of which those after the last layer are of what guesses ahead.
fn compressed_layers(fields: &Fields, number: u64) -> Result<(u64, u64), ConfigError> {
    let kinds = [HEAVY, SPARSE, WINDOW_ALONE];
    if let Some(found) = layers::listed_of(fields, &["layer_types"], &kinds, number)? {
        return Ok((found[0], found[1]));
    }
    let Some(rates) = fields.get("compress_ratios") else {
        let sparse = number.saturating_sub(2) / 2;
        return Ok((number - sparse, sparse));
    };
    let rates: Option<Vec<u64>> = rates
        .as_array()
        .and_then(|list| list.iter().map(|rate| rate.as_u64()).collect());
    let rates = rates.unwrap_or_default();
    let known = |rate: &u64| [0, SPARSE_RATE, HEAVY_RATE].contains(rate);
    if (rates.len() as u64) < number || !rates.iter().all(known) {
        return Err(fields.bad("compress_ratios", "a list of 0, 4 and 128, one for each layer"));
    }
    let whole = usize::try_from(number).unwrap_or(rates.len());
    let of = |wanted: u64| rates.iter().take(whole).filter(|rate| **rate == wanted).count() as u64;
    Ok((of(HEAVY_RATE), of(SPARSE_RATE)))
}

fn attention(fields: &Fields, draft: &mut Draft, of: &Compressed) -> Result<(), ConfigError> {
    let groups = wide(fields.size(&["o_groups"], Some(8))?);
    let out_rank = wide(fields.size(&["o_lora_rank"], Some(1024))?);
    let [d, rank, index_heads, index, sparse_rate, heavy_rate] = [
        of.width,
        of.query_rank,
        of.index_heads,
        of.index_width,
        of.sparse_rate,
        of.heavy_rate,
    ]
    .map(wide);
    let (h, heads) = (draft.h(), wide(draft.heads));
    let queries = h * rank + rank + rank * heads * d;
    let output = heads * d * out_rank + groups * out_rank * h;
    draft.part("attention", queries + h * d + d + output + heads, draft.layers)?;
    // Entries and their gates, biases by position, a norm.
    let compressor = |rate: u128, made: u128, width: u128| rate * made + 2 * h * made + width;
    draft.part("heavy compressor", compressor(heavy_rate, d, d), of.heavy)?;
    let indexer = compressor(sparse_rate, 2 * index, index) + rank * index_heads * index + h * index_heads;
    let sparse = compressor(sparse_rate, 2 * d, d) + indexer;
    draft.part("sparse compressor and indexer", sparse, of.sparse)
}

/// Each layer keeps a window; of the rest an entry for so many tokens, as the mean of the layers that have it.
fn caches(fields: &Fields, draft: &mut Draft, of: &Compressed) -> Result<(), ConfigError> {
    let full = of.heavy + of.sparse;
    let entry = |width: u64, rate: u64| width as f64 / rate as f64;
    let sparse = entry(of.width + of.index_width, of.sparse_rate) * of.sparse as f64;
    let heavy = entry(of.width, of.heavy_rate) * of.heavy as f64;
    let mean = ((sparse + heavy) / full.max(1) as f64).ceil() as u64;
    let one = |width| Some(CacheHeads { count: 1, width });
    let anatomy = &mut draft.anatomy;
    (anatomy.attending, anatomy.full, anatomy.windowed) = (draft.layers, full, draft.layers);
    (anatomy.full_cache, anatomy.window_cache) = (one(mean.max(1)), one(of.width));
    draft.window = Some(Window {
        tokens: fields.whole(&["sliding_window"])?.unwrap_or(128),
        full_every: 1,
    });
    Ok(())
}

/// Norms on query and key; in some layers an indexer with a cache of its own; experts after layers with a plain MLP.
pub(super) fn minimax_m3(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let mut draft = Draft::with_attention(fields, number, false)?;
    let own = fields.inner("sparse_attention_config")?;
    let kinds: [&[&str]; 2] = [&["minimax_m3_sparse"], &["full_attention"]];
    let listed = layers::listed_of(fields, &["layer_types"], &kinds, number)?.map(|of| of[0]);
    let sparse = match (listed, &own) {
        (Some(sparse), _) => Some(sparse),
        (None, Some(own)) => layers::numbered(own, "sparse_attention_freq", number)?,
        (None, None) => None,
    };
    let sparse = sparse.unwrap_or(0);
    let index = |key: &'static str, legacy: &'static str, usual: u64| match &own {
        Some(own) if own.get(legacy).is_some() => own.size(&[legacy], None),
        _ => fields.size(&[key], Some(usual)),
    };
    let heads = wide(index("index_n_heads", "sparse_num_index_heads", 4)?);
    let width = index("index_head_dim", "sparse_index_dim", 128)?;
    if width > 10_000 {
        return Err(fields.bad("index_head_dim", "at most 10000"));
    }
    let h = draft.h();
    draft.part("attention", draft.attention() + 2 * wide(draft.head_dim), number)?;
    draft.part(
        "indexer",
        h * heads * wide(width) + h * wide(width) + 2 * wide(width),
        sparse,
    )?;
    draft.part("norms", 2 * h, number)?;
    draft.attends(number);
    // The index is kept beside keys and values, in 16 bits: its mean over all layers.
    let each = 2 * draft.head_dim + (width * sparse).div_ceil(number * draft.kv_heads);
    draft.anatomy.full_cache = Some(CacheHeads {
        count: draft.kv_heads,
        width: each,
    });

    let dense = match super::super::listed_dense(fields)? {
        Some(dense) => dense,
        None => layers::numbered(fields, "moe_layer_freq", number)?.map_or(0, |sparse| number - sparse),
    };
    draft.ffn = fields.size(&["dense_intermediate_size"], Some(12_288))?;
    let ffn = fields.size(&["intermediate_size"], None)?;
    let shared = fields.size(&["shared_intermediate_size"], Some(ffn))?;
    if !shared.is_multiple_of(ffn) {
        return Err(fields.bad(
            "shared_intermediate_size",
            &format!("a multiple of intermediate_size, {ffn}"),
        ));
    }
    let experts = Experts {
        count: fields.size(&["num_local_experts"], None)?,
        per_token: fields.whole(&["num_experts_per_tok"])?.unwrap_or(4),
        ffn,
        shared: shared / ffn,
        first_dense_layers: 0,
        every: 1,
    };
    super::with_experts(draft, dense.min(number), experts)
}
