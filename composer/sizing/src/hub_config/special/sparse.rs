//! Sparse attention over all tokens: compressed caches and windows (DeepSeek V4), and blocks of a plain cache that an
//! indexer chooses (MiniMax M3).

use crate::anatomy::CacheHeads;
use crate::hub_config::decoder::{Reader, wide};
use crate::hub_config::fields::Fields;
use crate::hub_config::{ConfigError, layers};

/// Tokens that become one entry of the cache.
const SPARSE_RATE: u64 = 4;
const HEAVY_RATE: u64 = 128;

/// Dimensions of DeepSeek V4's attention.
struct Compressed {
    heavy: u64,
    sparse: u64,
    query_rank: u64,
    index_heads: u64,
    index_width: u64,
    sparse_rate: u64,
    heavy_rate: u64,
}

/// One entry of the cache for all heads; in most layers it is compressed, and each keeps a window beside that. Every
/// layer has several streams, mixed before and after its parts, and experts.
pub(super) fn deepseek_v4(of: &mut Reader<'_>) -> Result<(), ConfigError> {
    let (fields, number) = (of.fields, of.model.layers);
    of.model.heads = fields.size(crate::hub_config::HEADS, None)?;
    of.model.head_dim = fields.size("head_dim", Some(512))?;
    of.within_heads("head_dim")?;
    let compressed = compressed(fields, number)?;
    attention(of, &compressed)?;
    caches(of, &compressed)?;
    let h = of.h();
    let streams = wide(fields.size("hc_mult", Some(4))?);
    let mixes = streams * (2 + streams);
    of.part("mixing of streams", mixes * streams * h + mixes + 3, 2 * number)?;
    of.part("streams of the head", streams * streams * h + streams + 1, 1)?;
    of.part("norms", 2 * h, number)?;
    of.feed()
}

fn compressed(fields: &Fields, number: u64) -> Result<Compressed, ConfigError> {
    let (heavy, sparse) = compressed_layers(fields, number)?;
    let rates = fields.inner("compress_rates")?;
    let rate = |key: &'static str, usual: u64| match &rates {
        Some(rates) => rates.size(key, Some(usual)),
        None => Ok(usual),
    };
    Ok(Compressed {
        heavy,
        sparse,
        query_rank: fields.size("q_lora_rank", Some(1024))?,
        index_heads: fields.size("index_n_heads", Some(64))?,
        index_width: fields.size("index_head_dim", Some(128))?,
        sparse_rate: rate("compressed_sparse_attention", SPARSE_RATE)?,
        heavy_rate: rate("heavily_compressed_attention", HEAVY_RATE)?,
    })
}

/// By the list, or by the rates of each layer; rates after the last layer belong to layers for speculative decoding.
fn compressed_layers(fields: &Fields, number: u64) -> Result<(u64, u64), ConfigError> {
    let kinds: [&[&str]; 3] = [
        &["heavily_compressed_attention"],
        &["compressed_sparse_attention"],
        layers::WINDOWED,
    ];
    if let Some(found) = layers::listed_of(fields, layers::LISTS, &kinds, number)? {
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

fn attention(of: &mut Reader<'_>, parts: &Compressed) -> Result<(), ConfigError> {
    let groups = wide(of.fields.size("o_groups", Some(8))?);
    let out_rank = wide(of.fields.size("o_lora_rank", Some(1024))?);
    let [d, rank, index_heads, index, sparse_rate, heavy_rate] = [
        of.model.head_dim,
        parts.query_rank,
        parts.index_heads,
        parts.index_width,
        parts.sparse_rate,
        parts.heavy_rate,
    ]
    .map(wide);
    let (h, heads) = (of.h(), wide(of.model.heads));
    let queries = h * rank + rank + rank * heads * d;
    let output = heads * d * out_rank + groups * out_rank * h;
    of.part("attention", queries + h * d + d + output + heads, of.model.layers)?;
    // Entries and their gates, biases by position, a norm.
    let compressor = |rate: u128, made: u128, width: u128| rate * made + 2 * h * made + width;
    of.part("heavy compressor", compressor(heavy_rate, d, d), parts.heavy)?;
    let indexer = compressor(sparse_rate, 2 * index, index) + rank * index_heads * index + h * index_heads;
    let sparse = compressor(sparse_rate, 2 * d, d) + indexer;
    of.part("sparse compressor and indexer", sparse, parts.sparse)
}

/// The cache: a window in each layer, and the mean of the compressed entries a token.
fn caches(of: &mut Reader<'_>, parts: &Compressed) -> Result<(), ConfigError> {
    let (full, width) = (parts.heavy + parts.sparse, of.model.head_dim);
    let entry = |width: u64, rate: u64| width as f64 / rate as f64;
    let sparse = entry(width + parts.index_width, parts.sparse_rate) * parts.sparse as f64;
    let heavy = entry(width, parts.heavy_rate) * parts.heavy as f64;
    let mean = ((sparse + heavy) / full.max(1) as f64).ceil() as u64;
    let one = |width| Some(CacheHeads { count: 1, width });
    let number = of.model.layers;
    let anatomy = &mut of.model.anatomy;
    (anatomy.attending, anatomy.full, anatomy.windowed) = (number, full, number);
    (anatomy.full_cache, anatomy.window_cache) = (one(mean.max(1)), one(width));
    anatomy.partial = partial(parts);
    of.model.window = Some(of.fields.whole(layers::WINDOW)?.unwrap_or(128));
    Ok(())
}

/// vLLM's pages are of one size, that of 256 tokens of all compressed caches: entries of 584 bytes, and 132 of the index. A
/// page holds the partial entries of 4 tokens of the layers with an index, of 8 tokens of the others, or the windows of 64
/// tokens in half of the layers.
fn partial(parts: &Compressed) -> u64 {
    let entries = |rate: u64| 256 / rate.clamp(1, 256);
    let page = parts.sparse * entries(parts.sparse_rate) * (584 + 132)
        + parts.heavy * entries(parts.heavy_rate) * 584;
    page / 4 + page / 8 + 2 * page / 64
}

/// Norms on query and key; in some layers an indexer with a cache of its own; experts after layers with a plain MLP.
pub(super) fn minimax_m3(of: &mut Reader<'_>) -> Result<(), ConfigError> {
    let (fields, number) = (of.fields, of.model.layers);
    of.heads()?;
    let own = fields.inner("sparse_attention_config")?;
    let kinds: [&[&str]; 2] = [&["minimax_m3_sparse"], layers::FULL];
    let listed = layers::listed_of(fields, layers::LISTS, &kinds, number)?.map(|of| of[0]);
    let sparse = match (listed, &own) {
        (Some(sparse), _) => Some(sparse),
        (None, Some(own)) => layers::numbered(own, "sparse_attention_freq", number)?,
        (None, None) => None,
    };
    let sparse = sparse.unwrap_or(0);
    let index = |key: &'static str, legacy: &'static str, usual: u64| match &own {
        Some(own) if own.get(legacy).is_some() => own.size(legacy, None),
        _ => fields.size(key, Some(usual)),
    };
    let heads = wide(index("index_n_heads", "sparse_num_index_heads", 4)?);
    let width = index("index_head_dim", "sparse_index_dim", 128)?;
    if width > 10_000 {
        return Err(fields.bad("index_head_dim", "at most 10000"));
    }
    of.attention(number)?;
    let (h, wide_width) = (of.h(), wide(width));
    let indexer = h * heads * wide_width + h * wide_width + 2 * wide_width;
    of.part("indexer", indexer, sparse)?;
    of.part("norms", 2 * h, number)?;
    // The index is kept beside keys and values, in 16 bits: its mean over all layers.
    let count = of.model.kv_heads;
    of.model.anatomy.full_cache = Some(CacheHeads {
        count,
        width: 2 * of.model.head_dim + (width * sparse).div_ceil(number * count),
    });
    of.feed()
}
