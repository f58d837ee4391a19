//! RWKV: each layer mixes the last token in and keeps sums over all tokens, in place of a cache.

use super::super::ConfigError;
use super::super::fields::Fields;
use super::{Draft, layers, recurrent, wide};
use crate::linear::{Linear, Mixer};
use crate::model::Mlp;

/// The fourth RWKV: for each channel two sums and the greatest exponent so far, and the last token of each part.
pub(super) fn fourth(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let mut draft = Draft::of_layers(fields, number, false)?;
    let inner = fields.size(&["attention_hidden_size"], Some(draft.hidden))?;
    if inner > 100_000 {
        return Err(fields.bad("attention_hidden_size", "at most 100000"));
    }
    let (h, a) = (draft.h(), wide(inner));
    draft.part("biases of the norms", h, 1)?;
    draft.part("norm of the embedding", 2 * h, 1)?;
    // Decay and bonus of each channel, and how the last token is mixed in.
    draft.part("time mixing", 4 * h * a + 2 * a + 3 * h, number)?;
    draft.part("norms", 4 * h, number)?;
    draft.ffn = fields.size(&["intermediate_size"], Some(4 * draft.hidden))?;
    let f = wide(draft.ffn);
    draft.part("channel mixing", 2 * h * f + h * h + 2 * h, number)?;
    draft.mlp = Mlp::Gelu;
    draft.anatomy.plain = number;
    draft.anatomy.with_state = number;
    (draft.heads, draft.kv_heads) = (inner.min(10_000), inner.min(10_000));
    draft.context = fields.whole(&["context_length", "max_position_embeddings"])?;
    draft.linear = Some(Linear {
        mixer: Mixer::Rwkv,
        full_layers: 0,
        key_heads: 1,
        value_heads: 1,
        key_dim: 3,
        value_dim: inner,
        kernel: 2,
        state_bytes: 4,
    });
    Ok(draft)
}

/// What a later RWKV has of norms, and of the MLP that mixes channels; the widths of its queries and keys, and of its values.
struct Later {
    draft: Draft,
    heads: u64,
    key: u64,
    value: u64,
}

impl Later {
    fn read(fields: &Fields, parts: [f64; 2], ratio: f64) -> Result<Later, ConfigError> {
        for key in ["norm_bias", "norm_first"] {
            if fields.flag(key)? == Some(false) {
                return Err(fields.bad(key, "true, where parameters are counted"));
            }
        }
        if fields.get("attn").is_some() {
            return Err(fields.bad("attn", "null, where parameters are counted"));
        }
        let number = layers::number(fields)?;
        let mut draft = Draft::of_layers(fields, number, false)?;
        let h = draft.hidden;
        let [key, value] = parts.map(|part| (part * h as f64) as u64);
        let heads = match fields.named(&["head_dim"]) {
            // It counts more than their number.
            Some(_) => key / fields.size(&["head_dim"], None)?,
            None => fields.size(&["num_heads"], None)?,
        };
        let divides = |width: u64| heads > 0 && width > 0 && width.is_multiple_of(heads);
        if !divides(key) || !divides(value) || heads > 10_000 || key.max(value) > 1_000_000 {
            let name = fields.named(&["head_dim", "num_heads"]).unwrap_or("num_heads");
            let allowed = format!("so many or so wide that they divide {key} and {value}");
            return Err(fields.bad(name, &allowed));
        }
        draft.part("biases of the norms", wide(h), 1)?;
        draft.part("norm of the embedding", 2 * wide(h), 1)?;
        draft.part("norms", 4 * wide(h), number)?;
        let usual = recurrent::share(fields, "hidden_ratio", ratio, h)? as u64;
        draft.ffn = fields.size(&["intermediate_size"], Some(usual.div_ceil(32) * 32))?;
        draft.mlp = Mlp::Gelu;
        draft.anatomy.plain = number;
        draft.anatomy.with_state = number;
        (draft.heads, draft.kv_heads, draft.head_dim) = (heads, heads, value / heads);
        draft.linear = Some(Linear {
            mixer: Mixer::Rwkv,
            full_layers: 0,
            key_heads: heads,
            value_heads: heads,
            key_dim: key / heads,
            value_dim: value / heads,
            kernel: 2,
            state_bytes: 4,
        });
        Ok(Later {
            draft,
            heads,
            key,
            value,
        })
    }
}

/// The sixth, as flash-linear-attention has it: how the last token is mixed in, and how fast is forgotten, come out of
/// narrow matrices.
pub(super) fn sixth(fields: &Fields) -> Result<Draft, ConfigError> {
    if fields.get("head_size").is_some() {
        return Err(fields.bad(
            "head_size",
            "not stated: files of flash-linear-attention are read, with num_heads",
        ));
    }
    let one = |key: &'static str, usual: f64| recurrent::share(fields, key, usual, 1);
    let parts = [one("expand_k", 0.5)?, one("expand_v", 1.0)?];
    let Later {
        mut draft,
        key,
        value,
        ..
    } = Later::read(fields, parts, 3.5)?;
    let mixed = wide(fields.size(&["proj_low_rank_dim"], Some(32))?);
    let gate = wide(fields.size(&["gate_low_rank_dim"], Some(64))?);
    let (h, k, v, f) = (draft.h(), wide(key), wide(value), wide(draft.ffn));
    // Five ways of mixing, from and to narrow matrices.
    let mixing = 6 * h + 2 * 5 * mixed * h;
    let decay = h * gate + gate * k + k;
    let matrices = 2 * h * k + 2 * h * v + v * h;
    draft.part("time mixing", mixing + decay + matrices + k + 2 * v, draft.layers)?;
    draft.part("channel mixing", 2 * h + 2 * h * f + h * h, draft.layers)?;
    Ok(draft)
}

/// The seventh: decay, rate of learning, gate and, but for the first layer, how much of the first layer's values is taken,
/// each out of a narrow matrix.
pub(super) fn seventh(fields: &Fields) -> Result<Draft, ConfigError> {
    let Later {
        mut draft,
        heads,
        key,
        value,
    } = Later::read(fields, [1.0, 1.0], 4.0)?;
    let stated = layers::widths(fields, "value_dim", draft.layers, value)?;
    if stated.iter().any(|width| *width != value) {
        return Err(fields.bad("value_dim", "the hidden_size, where parameters are counted"));
    }
    let root = (draft.hidden as f64).sqrt();
    let factor = key as f64 / heads as f64 / 64.0;
    let narrow = |name: &'static str, usual: f64| -> Result<u128, ConfigError> {
        let usual = ((usual * root / 32.0).round() as u64 * 32).max(32);
        fields.size(&[name], Some(usual)).map(wide)
    };
    let decay = narrow("decay_low_rank_dim", 2.5 * factor)?;
    let rate = narrow("a_low_rank_dim", 2.5 * factor)?;
    let first = narrow("v_low_rank_dim", 1.7 * factor)?;
    let gate = narrow("gate_low_rank_dim", 5.0)?;
    let (h, k, v, f) = (draft.h(), wide(key), wide(value), wide(draft.ffn));
    let through = |rank: u128, out: u128| h * rank + rank * out;
    let matrices = 2 * h * k + 2 * h * v;
    let gates = through(decay, k) + k + through(rate, k) + k + through(gate, v);
    let mixing = 6 * h + 3 * k + matrices + gates + 2 * v;
    draft.part("time mixing", mixing, draft.layers)?;
    let values = through(first, v) + v;
    draft.part("values of the first layer", values, draft.layers - 1)?;
    draft.part("channel mixing", h + 2 * h * f, draft.layers)?;
    Ok(draft)
}
