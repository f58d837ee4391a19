//! Zamba: a state space in each layer; in some, attention and an MLP before it, which layers share and, in Zamba 2, adapt
//! to themselves.

use crate::hub_config::decoder::{Reader, wide};
use crate::hub_config::fields::Fields;
use crate::hub_config::states::{self, PREFIXED};
use crate::hub_config::{ConfigError, HEADS, layers};
use crate::linear::Linear;

/// In how many layers the list has the shared block; None without a list.
fn listed(fields: &Fields, number: u64) -> Result<Option<u64>, ConfigError> {
    let kinds: [&[&str]; 2] = [&["hybrid"], layers::STATE];
    let numbers = layers::listed_of(fields, layers::LISTS, &kinds, number)?;
    Ok(numbers.map(|of| of[0]))
}

/// A state space in all layers, attention and an MLP in some.
fn mixed(of: &mut Reader<'_>, params: u128, linear: Linear, hybrids: u64) -> Result<(), ConfigError> {
    let (h, number) = (of.h(), of.model.layers);
    of.part("state space", params, number)?;
    of.part("norms", h, number)?;
    of.part("way back from a shared block", h * h, hybrids)?;
    let anatomy = &mut of.model.anatomy;
    (anatomy.attending, anatomy.full, anatomy.plain) = (hybrids, hybrids, hybrids);
    anatomy.with_state = number;
    of.model.linear = Some(linear);
    of.model.ffn = of.fields.size("intermediate_size", Some(4 * of.model.hidden))?;
    Ok(())
}

pub(super) fn zamba2(of: &mut Reader<'_>) -> Result<(), ConfigError> {
    let (fields, number) = (of.fields, of.model.layers);
    let hybrids = match listed(fields, number)? {
        Some(hybrids) => hybrids,
        None => layers::indexed(fields, "hybrid_layer_ids", number)?.unwrap_or(0),
    };
    // Attention works on the layer's input beside the model's.
    let double = 2 * of.model.hidden;
    of.model.heads = fields.size(HEADS, None)?;
    of.model.kv_heads = fields.size("num_key_value_heads", Some(of.model.heads))?;
    if !double.is_multiple_of(of.model.heads) {
        let allowed = format!("a divisor of twice the width, {double}");
        return Err(fields.bad("num_attention_heads", &allowed));
    }
    of.model.head_dim = double / of.model.heads;
    of.within_heads("num_attention_heads")?;
    let (linear, params) = states::bamba(of)?;
    mixed(of, params, linear, hybrids)?;

    let (h, f, wide_h) = (of.h(), wide(of.model.ffn), wide(double));
    let blocks = fields.size("num_mem_blocks", Some(1))?.min(hybrids);
    let attention = 3 * wide_h * wide_h + wide_h * h;
    of.part("shared block", attention + 3 * h * f + wide_h + h, blocks)?;
    let rank = wide(fields.size("adapter_rank", Some(128))?);
    of.part("adapter of an MLP", rank * h + 2 * f * rank, hybrids)?;
    if fields.flag("use_shared_attention_adapter")? == Some(true) {
        of.part("adapters of attention", 3 * 2 * rank * wide_h, hybrids)?;
    }
    Ok(())
}

/// The first Zamba: one block for all layers that have it.
pub(super) fn zamba(of: &mut Reader<'_>) -> Result<(), ConfigError> {
    let (fields, number) = (of.fields, of.model.layers);
    let hybrids = match listed(fields, number)? {
        Some(hybrids) => hybrids,
        // The third layer, and every so many of those after it.
        None => {
            let (period, offset) = (("attn_layer_period", 6), ("attn_layer_offset", 4));
            let after = layers::periodic(fields, period, offset, number.saturating_sub(3))?;
            after + u64::from(number > 2)
        }
    };
    let double = fields.size("attention_hidden_size", Some(2 * of.model.hidden))?;
    of.model.heads = fields.size(HEADS, None)?;
    of.model.kv_heads = fields.size("num_key_value_heads", Some(of.model.heads))?;
    let usual = (double / of.model.heads).max(1);
    of.model.head_dim = fields.size("attention_head_dim", Some(usual))?;
    of.within_heads("num_attention_heads")?;
    let (linear, params) = states::mamba(of, &PREFIXED, false)?;
    let heads = fields.size("n_mamba_heads", Some(2))?;
    if !linear.value_dim.is_multiple_of(heads) {
        let allowed = format!("a divisor of the state space's width, {}", linear.value_dim);
        return Err(fields.bad("n_mamba_heads", &allowed));
    }
    mixed(of, params, linear, hybrids)?;

    let (h, wide_h) = (of.h(), wide(double));
    let [q, kv] = [of.model.query(), of.model.key()].map(wide);
    let attention = wide_h * (q + 2 * kv) + q * h;
    let block = attention + of.model.mlp_params(of.model.ffn) + wide_h + h;
    of.part("shared block", block, hybrids.min(1))
}
