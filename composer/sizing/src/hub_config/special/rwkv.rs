//! RWKV: each layer mixes the last token in and keeps sums over all tokens, in place of a cache.

use crate::hub_config::decoder::{Reader, wide};
use crate::hub_config::{ConfigError, layers, states};
use crate::linear::{Linear, Mixer};

fn channel_mixing(of: &mut Reader<'_>, params: u128) -> Result<(), ConfigError> {
    let number = of.model.layers;
    of.part("norms", of.model.norms_params(), number)?;
    of.part("channel mixing", params, number)?;
    of.model.anatomy.plain = number;
    of.model.anatomy.with_state = number;
    Ok(())
}

/// The fourth RWKV: for each channel two sums and the greatest exponent so far, and the last token of each part.
pub(super) fn fourth(of: &mut Reader<'_>) -> Result<(), ConfigError> {
    let (fields, number, hidden) = (of.fields, of.model.layers, of.model.hidden);
    let inner = fields.size("attention_hidden_size", Some(hidden))?;
    if inner > 100_000 {
        return Err(fields.bad("attention_hidden_size", "at most 100000"));
    }
    let (h, a) = (of.h(), wide(inner));
    // Decay and bonus of each channel, and how the last token is mixed in.
    of.part("time mixing", 4 * h * a + 2 * a + 3 * h, number)?;
    of.model.ffn = fields.size("intermediate_size", Some(4 * hidden))?;
    let f = wide(of.model.ffn);
    (of.model.heads, of.model.kv_heads) = (inner.min(10_000), inner.min(10_000));
    of.model.context = fields.whole("context_length max_position_embeddings")?;
    of.model.linear = Some(Linear {
        key_dim: 3,
        ..states::channels(Mixer::Rwkv, inner, 2, 4)
    });
    channel_mixing(of, 2 * h * f + h * h + 2 * h)
}

/// Heads of a later RWKV, and the widths of its queries and keys, and of its values.
fn later(of: &mut Reader<'_>, parts: [f64; 2], ratio: f64) -> Result<[u64; 3], ConfigError> {
    let (fields, hidden) = (of.fields, of.model.hidden);
    let [key, value] = parts.map(|part| (part * hidden as f64) as u64);
    let heads = match fields.named("head_dim") {
        // It counts more than their number.
        Some(_) => key / fields.size("head_dim", None)?,
        None => fields.size("num_heads", None)?,
    };
    let divides = |width: u64| heads > 0 && width > 0 && width.is_multiple_of(heads);
    if !divides(key) || !divides(value) || heads > 10_000 || key.max(value) > 1_000_000 {
        let name = fields.named("head_dim num_heads").unwrap_or("num_heads");
        let allowed = format!("a number or a width that divides {key} and {value}");
        return Err(fields.bad(name, &allowed));
    }
    let usual = (fields.factor("hidden_ratio", ratio)? * hidden as f64) as u64;
    of.model.ffn = fields.size("intermediate_size", Some(usual.div_ceil(32) * 32))?;
    (of.model.heads, of.model.kv_heads, of.model.head_dim) = (heads, heads, value / heads);
    of.model.linear = Some(Linear {
        mixer: Mixer::Rwkv,
        key_heads: heads,
        value_heads: heads,
        key_dim: key / heads,
        value_dim: value / heads,
        kernel: 2,
        state_bytes: 4,
    });
    Ok([heads, key, value])
}

/// The sixth, as flash-linear-attention has it: how the last token is mixed in, and how fast is forgotten, come out of
/// narrow matrices.
pub(super) fn sixth(of: &mut Reader<'_>) -> Result<(), ConfigError> {
    let fields = of.fields;
    let parts = [fields.factor("expand_k", 0.5)?, fields.factor("expand_v", 1.0)?];
    let [_, key, value] = later(of, parts, 3.5)?;
    let mixed = wide(fields.size("proj_low_rank_dim", Some(32))?);
    let gate = wide(fields.size("gate_low_rank_dim", Some(64))?);
    let (h, k, v, f) = (of.h(), wide(key), wide(value), wide(of.model.ffn));
    // Five ways of mixing, from and to narrow matrices.
    let mixing = 6 * h + 2 * 5 * mixed * h;
    let decay = h * gate + gate * k + k;
    let matrices = 2 * h * k + 2 * h * v + v * h;
    of.part(
        "time mixing",
        mixing + decay + matrices + k + 2 * v,
        of.model.layers,
    )?;
    channel_mixing(of, 2 * h + 2 * h * f + h * h)
}

/// The seventh: decay, rate of learning, gate and, but for the first layer, how much of the first layer's values is taken,
/// each out of a narrow matrix.
pub(super) fn seventh(of: &mut Reader<'_>) -> Result<(), ConfigError> {
    let (fields, number) = (of.fields, of.model.layers);
    let [heads, key, value] = later(of, [1.0, 1.0], 4.0)?;
    let stated = layers::widths(fields, "value_dim", number, value)?;
    if stated.iter().any(|width| *width != value) {
        return Err(fields.bad("value_dim", "the hidden_size, where parameters are counted"));
    }
    let root = (of.model.hidden as f64).sqrt();
    let factor = key as f64 / heads as f64 / 64.0;
    let narrow = |name: &'static str, usual: f64| -> Result<u128, ConfigError> {
        let usual = ((usual * root / 32.0).round() as u64 * 32).max(32);
        fields.size(name, Some(usual)).map(wide)
    };
    let decay = narrow("decay_low_rank_dim", 2.5 * factor)?;
    let rate = narrow("a_low_rank_dim", 2.5 * factor)?;
    let first = narrow("v_low_rank_dim", 1.7 * factor)?;
    let gate = narrow("gate_low_rank_dim", 5.0)?;
    let (h, k, v, f) = (of.h(), wide(key), wide(value), wide(of.model.ffn));
    let through = |rank: u128, out: u128| h * rank + rank * out;
    let matrices = 2 * h * k + 2 * h * v;
    let gates = through(decay, k) + k + through(rate, k) + k + through(gate, v);
    let mixing = 6 * h + 3 * k + matrices + gates + 2 * v;
    of.part("time mixing", mixing, number)?;
    of.part("values of the first layer", through(first, v) + v, number - 1)?;
    channel_mixing(of, h + 2 * h * f)
}
