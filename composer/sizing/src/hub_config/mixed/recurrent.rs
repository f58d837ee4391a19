//! Recurrent models beside RWKV: xLSTM, and RecurrentGemma with attention with a window.

use super::super::ConfigError;
use super::super::fields::Fields;
use super::{Draft, layers, wide};
use crate::linear::{Linear, Mixer};
use crate::model::Window;

/// A part of a width.
pub(super) fn share(fields: &Fields, key: &'static str, usual: f64, of: u64) -> Result<f64, ConfigError> {
    let part = match fields.get(key) {
        None => usual,
        Some(value) => value
            .as_f64()
            .filter(|part| (0.001..=1000.0).contains(part))
            .ok_or_else(|| fields.bad(key, "0.001 to 1000"))?,
    };
    Ok(part * of as f64)
}

/// xLSTM: a matrix for each head, with gates of input, forgetting and output.
pub(super) fn xlstm(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = match fields.named(&["num_hidden_layers"]) {
        None => layers::number(&fields.or(&[("num_hidden_layers", fields.need(&["num_blocks"])?)]))?,
        Some(_) => layers::number(fields)?,
    };
    let mut draft = Draft::of_layers(fields, number, false)?;
    if fields.flag("add_out_norm")? == Some(false) || fields.flag("use_bias")? == Some(true) {
        let key = fields.named(&["use_bias", "add_out_norm"]).unwrap_or("use_bias");
        return Err(fields.bad(
            key,
            "a norm behind the layers and no biases, where parameters are counted",
        ));
    }
    let heads = fields.size(&["num_heads"], Some(8))?;
    let key = share(fields, "qk_dim_factor", 0.5, draft.hidden)? as u64;
    let value = share(fields, "v_dim_factor", 1.0, draft.hidden)? as u64;
    if heads > 10_000 || key < heads || value < heads || key.max(value) > 1_000_000 {
        return Err(fields.bad(
            "num_heads",
            "at most 10000, and no more than queries and values are wide",
        ));
    }
    let (h, wide_heads) = (draft.h(), wide(heads));
    let matrices = h * (2 * wide(key) + 2 * wide(value)) + wide(value) * h;
    let gates = 2 * (h * wide_heads + wide_heads);
    draft.part("matrix memory", matrices + gates + wide(value), number)?;
    draft.part("norms", 2 * h, number)?;
    let block = fields.size(&["ffn_round_up_to_multiple_of"], Some(64))?;
    let stated = share(fields, "ffn_proj_factor", 2.667, draft.hidden)?;
    draft.ffn = ((stated + (block - 1) as f64) / block as f64).floor() as u64 * block;
    draft.part("MLP", draft.gated(draft.ffn), number)?;
    draft.anatomy.plain = number;
    draft.anatomy.with_state = number;
    (draft.heads, draft.kv_heads) = (heads, heads);
    draft.head_dim = value / heads;
    draft.linear = Some(Linear {
        mixer: Mixer::Lightning,
        full_layers: 0,
        key_heads: heads,
        value_heads: heads,
        key_dim: key / heads,
        value_dim: value / heads,
        // There is no convolution.
        kernel: 1,
        state_bytes: 4,
    });
    Ok(draft)
}

/// RecurrentGemma: a gated linear recurrence of one element a channel, and attention with a window, in turn.
pub(super) fn gemma(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let mut draft = Draft::with_attention(fields, number, true)?;
    let kinds: [&[&str]; 2] = [&["attention"], &["recurrent"]];
    let turn = layers::listed(fields, &["block_types"], &kinds)?.unwrap_or(vec![1, 1, 0]);
    let attending = (0..number)
        .zip(turn.iter().cycle())
        .filter(|(_, kind)| **kind == 0);
    let attending = attending.count() as u64;
    let inner = fields.size(&["lru_width"], Some(draft.hidden))?;
    let kernel = fields.size(&["conv1d_width"], Some(4))?;
    if inner > 100_000 || !inner.is_multiple_of(draft.heads) {
        let allowed = format!("a multiple of the heads, {}, of at most 100000", draft.heads);
        return Err(fields.bad("lru_width", &allowed));
    }
    let (h, w) = (draft.h(), wide(inner));
    let biases = match fields.flag("attention_bias")? {
        Some(true) => draft.attention_biases(),
        // That of the output is always there.
        _ => h,
    };
    draft.part("attention", draft.attention() + biases, attending)?;
    let convolution = w * wide(kernel) + w;
    // Two gates, each a matrix a head with its biases; and how fast each channel forgets.
    let gates = 2 * (w * (w / wide(draft.heads)) + w) + w;
    let recurrence = 3 * h * w + 2 * w + h + convolution + gates;
    draft.part("recurrence", recurrence, number - attending)?;
    draft.part("norms", 2 * h, number)?;
    // Each matrix has half of what is stated.
    draft.ffn = fields.size(&["intermediate_size"], None)? / 2;
    let f = wide(draft.ffn);
    draft.part("MLP", 3 * h * f + 2 * f + h, number)?;
    draft.anatomy.plain = number;
    (draft.anatomy.attending, draft.anatomy.windowed) = (attending, attending);
    draft.anatomy.with_state = number - attending;
    draft.window = Some(Window {
        tokens: fields.whole(&["attention_window_size"])?.unwrap_or(2048),
        full_every: 1,
    });
    draft.linear = (number > attending).then_some(Linear {
        mixer: Mixer::Mamba,
        full_layers: attending,
        key_heads: 1,
        value_heads: 1,
        key_dim: 1,
        value_dim: inner,
        kernel,
        state_bytes: 4,
    });
    Ok(draft)
}
