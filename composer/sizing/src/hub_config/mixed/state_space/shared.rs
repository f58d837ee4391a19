//! Zamba: a state space in each layer; in some, attention and an MLP before it, which layers share and, in Zamba 2, adapt
//! to themselves.

use super::super::super::ConfigError;
use super::super::super::fields::Fields;
use super::super::{Draft, layers, wide};
use super::{Mamba, Mamba2, PREFIXED, state_bytes};

const PLAIN: &[&str] = &["linear_attention", "mamba", "mamba2"];
const HYBRID: &[&str] = &["hybrid"];

/// In how many layers the list has the shared block; None without a list.
fn listed(fields: &Fields, number: u64) -> Result<Option<u64>, ConfigError> {
    let keys = ["layers_block_type", "layer_types"];
    let numbers = layers::listed_of(fields, &keys, &[HYBRID, PLAIN], number)?;
    Ok(numbers.map(|of| of[0]))
}

pub(in super::super) fn zamba2(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let hybrids = match listed(fields, number)? {
        Some(hybrids) => hybrids,
        None => layers::indexed(fields, "hybrid_layer_ids", number)?.unwrap_or(0),
    };
    let mut draft = Draft::of_layers(fields, number, true)?;
    draft.heads = fields.size(&super::super::super::HEADS, None)?;
    draft.kv_heads = fields.size(&["num_key_value_heads"], Some(draft.heads))?;
    // Attention works on the layer's input beside the model's.
    let double = 2 * draft.hidden;
    if draft.heads > 10_000 || !double.is_multiple_of(draft.heads) {
        return Err(fields.bad(
            "num_attention_heads",
            &format!("a divisor of twice the width, {double}"),
        ));
    }
    draft.head_dim = double / draft.heads;
    let mixer = mixer(fields, &draft)?;
    let linear = mixer.linear(hybrids, state_bytes(fields)?);
    let h = draft.h();
    draft.part("state space", mixer.params(h), number)?;
    draft.part("norms", h, number)?;
    draft.attends(hybrids);
    draft.anatomy.with_state = number;
    draft.linear = Some(linear);

    draft.ffn = fields.size(&["intermediate_size"], Some(4 * draft.hidden))?;
    let (f, wide_h) = (wide(draft.ffn), wide(double));
    let blocks = fields.size(&["num_mem_blocks"], Some(1))?.min(hybrids);
    let attention = 3 * wide_h * wide_h + wide_h * h;
    draft.part("shared block", attention + 3 * h * f + wide_h + h, blocks)?;
    draft.part("way back from a shared block", h * h, hybrids)?;
    let rank = wide(fields.size(&["adapter_rank"], Some(128))?);
    draft.part("adapter of an MLP", rank * h + 2 * f * rank, hybrids)?;
    if fields.flag("use_shared_attention_adapter")? == Some(true) {
        draft.part("adapters of attention", 3 * 2 * rank * wide_h, hybrids)?;
    }
    draft.anatomy.plain = hybrids;
    Ok(draft)
}

fn mixer(fields: &Fields, draft: &Draft) -> Result<Mamba2, ConfigError> {
    let heads = fields.size(&["n_mamba_heads"], Some(8))?;
    let inner = draft.hidden * fields.size(&["mamba_expand"], Some(2))?;
    if !inner.is_multiple_of(heads) {
        return Err(fields.bad(
            "n_mamba_heads",
            &format!("a divisor of the state space's width, {inner}"),
        ));
    }
    let biased = fields.flag("add_bias_linear")?.unwrap_or(false);
    Ok(Mamba2 {
        heads,
        width: inner / heads,
        groups: fields.size(&["mamba_ngroups"], Some(1))?,
        state: fields.size(&["mamba_d_state"], Some(64))?,
        kernel: fields.size(&["mamba_d_conv"], Some(4))?,
        convolution_biased: fields.flag("use_conv_bias")?.unwrap_or(true),
        biased: (biased, biased),
        normed: true,
    })
}

/// The first Zamba: Mamba in each layer; in some, attention and an MLP before it, one of each for all of them.
pub(in super::super) fn zamba(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let hybrids = match listed(fields, number)? {
        Some(hybrids) => hybrids,
        // The third layer, and every so many of those after it.
        None => {
            let (period, offset) = (("attn_layer_period", 6), ("attn_layer_offset", 4));
            let after = layers::periodic(fields, period, offset, number.saturating_sub(3))?;
            after + u64::from(number > 2)
        }
    };
    let mut draft = Draft::of_layers(fields, number, true)?;
    draft.heads = fields.size(&super::super::super::HEADS, None)?;
    draft.kv_heads = fields.size(&["num_key_value_heads"], Some(draft.heads))?;
    let double = fields.size(&["attention_hidden_size"], Some(2 * draft.hidden))?;
    draft.head_dim = fields.size(&["attention_head_dim"], Some((double / draft.heads).max(1)))?;
    if draft.heads > 10_000 || draft.kv_heads > 10_000 || draft.head_dim > 10_000 {
        let allowed = "at most 10000 heads of a width of at most 10000";
        return Err(fields.bad("num_attention_heads", allowed));
    }
    let mamba = Mamba::read(fields, draft.hidden, &PREFIXED)?;
    let heads = fields.size(&["n_mamba_heads"], Some(2))?;
    if !mamba.inner.is_multiple_of(heads) {
        let allowed = format!("a divisor of the state space's width, {}", mamba.inner);
        return Err(fields.bad("n_mamba_heads", &allowed));
    }
    let h = draft.h();
    draft.part("state space", mamba.params(h), number)?;
    draft.part("norms", h, number)?;
    draft.attends(hybrids);
    draft.anatomy.with_state = number;
    draft.linear = Some(mamba.linear(hybrids, state_bytes(fields)?));

    draft.ffn = fields.size(&["intermediate_size"], Some(4 * draft.hidden))?;
    let [q, kv, wide_h] = [
        draft.heads * draft.head_dim,
        draft.kv_heads * draft.head_dim,
        double,
    ]
    .map(wide);
    let attention = wide_h * (q + 2 * kv) + q * h;
    let block = attention + draft.gated(draft.ffn) + wide_h + h;
    draft.part("shared block", block, hybrids.min(1))?;
    draft.part("way back from a shared block", h * h, hybrids)?;
    draft.anatomy.plain = hybrids;
    Ok(draft)
}
