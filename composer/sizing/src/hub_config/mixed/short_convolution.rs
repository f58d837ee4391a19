//! Hybrids of attention and gated short convolutions: LFM 2.

use super::super::ConfigError;
use super::super::fields::Fields;
use super::{Draft, layers, wide};
use crate::linear::{Linear, Mixer};
use crate::model::Experts;

/// Attention and convolutions; returned with the number of layers.
fn mixers(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let kinds: [&[&str]; 2] = [&["full_attention"], &["conv"]];
    let full = match layers::listed_of(fields, &["layer_types"], &kinds, number)? {
        Some(numbers) => numbers[0],
        None => layers::indexed(fields, "full_attn_idxs", number)?.unwrap_or(number),
    };
    let mut draft = Draft::with_attention(fields, number, true)?;
    let kernel = fields.size(&["conv_L_cache"], Some(3))?;
    let biased = fields.flag("conv_bias")?.unwrap_or(false);
    let h = draft.h();
    let biases = if biased { 5 * h } else { 0 };
    draft.part("attention", draft.attention() + 2 * wide(draft.head_dim), full)?;
    draft.part(
        "short convolution",
        4 * h * h + h * wide(kernel) + biases,
        number - full,
    )?;
    draft.part("norms", 2 * h, number)?;
    draft.attends(full);
    draft.anatomy.with_state = number - full;
    draft.linear = (number > full).then_some(Linear {
        mixer: Mixer::Convolution,
        full_layers: full,
        key_heads: 1,
        value_heads: 1,
        key_dim: 1,
        value_dim: draft.hidden,
        kernel,
        state_bytes: 2,
    });
    Ok(draft)
}

pub(super) fn lfm2(fields: &Fields) -> Result<Draft, ConfigError> {
    let mut draft = mixers(fields)?;
    draft.ffn = adjusted(fields)?;
    draft.part("MLP", draft.gated(draft.ffn), draft.layers)?;
    draft.anatomy.plain = draft.layers;
    Ok(draft)
}

/// The width of the MLP: two thirds of what is stated, times a factor, in whole blocks.
fn adjusted(fields: &Fields) -> Result<u64, ConfigError> {
    let stated = fields.size(&["block_ff_dim", "intermediate_size"], None)?;
    if fields.flag("block_auto_adjust_ff_dim")? == Some(false) {
        return Ok(stated);
    }
    let factor = match fields.get("block_ffn_dim_multiplier") {
        None => 1.0,
        Some(value) => value
            .as_f64()
            .filter(|factor| (0.001..=1000.0).contains(factor))
            .ok_or_else(|| fields.bad("block_ffn_dim_multiplier", "0.001 to 1000"))?,
    };
    let block = fields.size(&["block_multiple_of"], Some(256))?;
    let width = (factor * (2 * stated / 3) as f64) as u64;
    Ok(width.div_ceil(block).max(1) * block)
}

pub(super) fn lfm2_moe(fields: &Fields) -> Result<Draft, ConfigError> {
    let mut draft = mixers(fields)?;
    let dense = fields
        .whole(&["num_dense_layers"])?
        .unwrap_or(2)
        .min(draft.layers);
    let sparse = draft.layers - dense;
    draft.ffn = fields.size(&["intermediate_size"], None)?;
    let experts = Experts {
        count: fields.size(&["num_experts"], None)?,
        per_token: fields.need(&["num_experts_per_tok"])?,
        ffn: fields.size(&["moe_intermediate_size"], None)?,
        shared: 0,
        first_dense_layers: dense,
        every: 1,
    };
    draft.part("MLP", draft.gated(draft.ffn), dense)?;
    draft.part("router", draft.h() * wide(experts.count), sparse)?;
    draft.anatomy.plain = dense;
    draft.experts_of(experts, sparse)?;
    Ok(draft)
}
