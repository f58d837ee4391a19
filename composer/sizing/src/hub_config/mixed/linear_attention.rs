//! Hybrids of attention and linear attention in other forms than Gated DeltaNet's: Kimi Linear, Ling 3, MiniMax.

use super::super::ConfigError;
use super::super::fields::Fields;
use super::{Draft, layers, wide};
use crate::linear::{Linear, Mixer};
use crate::model::Experts;
use crate::parameters;

const FULL: &[&str] = &["full_attention"];
const LINEAR: &[&str] = &["linear_attention"];

/// Kimi delta attention but for layers with latent attention; experts after a few plain layers.
pub(super) fn kimi(fields: &Fields) -> Result<Draft, ConfigError> {
    // Later models of this kind have parts that are not counted.
    for key in [
        "routed_expert_hidden_size",
        "attn_res_block_size",
        "mla_use_output_gate",
    ] {
        if fields
            .get(key)
            .is_some_and(|value| value.as_bool() != Some(false))
        {
            return Err(fields.bad(key, "not stated, where parameters are counted"));
        }
    }
    let number = layers::number(fields)?;
    let inner = fields.inner("linear_attn_config")?;
    let full = match &inner {
        Some(inner) => layers::indexed(inner, "full_attn_layers", number)?,
        None => layers::listed_of(fields, &["layer_types"], &[FULL, LINEAR], number)?.map(|of| of[0]),
    };
    let full = full.unwrap_or(number.saturating_sub(1) / 4);
    let linear = match &inner {
        Some(inner) => Linear {
            full_layers: full,
            ..delta(inner, ["num_heads", "head_dim", "short_conv_kernel_size"])?
        },
        None => Linear {
            full_layers: full,
            ..delta(
                fields,
                ["linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim"],
            )?
        },
    };

    let (mut draft, latent) = super::with_latent(fields, number)?;
    let (h, heads) = (draft.h(), wide(draft.heads));
    draft.part(
        "latent attention",
        parameters::latent_attention(latent, h, heads),
        full,
    )?;
    draft.part("linear attention", of_delta(h, linear), number - full)?;
    draft.part("norms", 2 * h, number)?;
    draft.attends(full);
    draft.anatomy.with_state = number - full;
    draft.linear = (number > full).then_some(linear);

    let dense = super::super::first_dense(fields, 1)?;
    super::experts_after(
        fields,
        draft,
        dense,
        Experts {
            count: fields.size(&["num_experts", "num_local_experts"], Some(256))?,
            per_token: fields
                .whole(&["num_experts_per_token", "num_experts_per_tok"])?
                .unwrap_or(8),
            ffn: fields.size(&["moe_intermediate_size"], None)?,
            shared: fields.whole(&["num_shared_experts"])?.unwrap_or(1),
            first_dense_layers: 0,
            every: 1,
        },
    )
}

fn delta(fields: &Fields, [heads, width, kernel]: [&'static str; 3]) -> Result<Linear, ConfigError> {
    let heads = fields.size(&[heads], Some(32))?;
    let width = fields.size(&[width], Some(128))?;
    Ok(Linear {
        mixer: Mixer::Kimi,
        full_layers: 0,
        key_heads: heads,
        value_heads: heads,
        key_dim: width,
        value_dim: width,
        kernel: fields.size(&[kernel], Some(4))?,
        state_bytes: 4,
    })
}

/// Queries, keys and values with a convolution each, a gate and a decay through a narrow matrix each, a rate of learning
/// a head, and the norm and the matrix behind.
fn of_delta(h: u128, linear: Linear) -> u128 {
    let [heads, width, kernel] = [linear.value_heads, linear.value_dim, linear.kernel].map(wide);
    let d = heads * width;
    let through = h * width + width * d;
    3 * h * d + 3 * d * kernel + 2 * through + h * heads + (heads + d) + width + d * h
}

/// Lightning attention but for layers with attention; experts in each.
pub(super) fn minimax(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let full = match layers::numbered(fields, "attn_type_list", number)? {
        Some(kinds) => kinds,
        None => match layers::listed_of(fields, &["layer_types"], &[FULL, LINEAR], number)? {
            Some(numbers) => numbers[0],
            None => number.div_ceil(2),
        },
    };
    if let Some(shared) = fields.get("shared_intermediate_size") {
        let none = |value: &serde_json::Value| value.as_u64() == Some(0);
        let all = shared
            .as_array()
            .map_or(none(shared), |list| list.iter().all(none));
        if !all {
            return Err(fields.bad("shared_intermediate_size", "0, where parameters are counted"));
        }
    }
    let mut draft = Draft::with_attention(fields, number, false)?;
    let d = wide(draft.heads) * wide(draft.head_dim);
    let h = draft.h();
    draft.part("attention", draft.attention(), full)?;
    draft.part("linear attention", 3 * h * d + h * d + d * h + d, number - full)?;
    draft.part("norms", 2 * h, number)?;
    draft.attends(full);
    draft.anatomy.with_state = number - full;
    draft.linear = (number > full).then_some(Linear {
        mixer: Mixer::Lightning,
        full_layers: full,
        key_heads: draft.heads,
        value_heads: draft.heads,
        key_dim: draft.head_dim,
        value_dim: draft.head_dim,
        // There is no convolution.
        kernel: 1,
        state_bytes: 4,
    });
    draft.ffn = fields.size(&["intermediate_size"], None)?;
    let experts = Experts {
        count: fields.size(&["num_local_experts"], None)?,
        per_token: fields.whole(&["num_experts_per_tok"])?.unwrap_or(2),
        ffn: draft.ffn,
        shared: 0,
        first_dense_layers: 0,
        every: 1,
    };
    super::experts_after(fields, draft, 0, experts)
}

/// OLMo Hybrid: Gated DeltaNet but for layers with attention, which has norms over all of query and key.
pub(super) fn olmo(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let full = layers::listed_of(fields, &["layer_types"], &[FULL, LINEAR], number)?;
    let full = full.map_or(number / 4, |numbers| numbers[0]);
    let mut draft = Draft::with_attention(fields, number, false)?;
    let size = |key: &'static str, usual: u64| fields.size(&[key], Some(usual));
    let linear = Linear {
        mixer: Mixer::Delta,
        full_layers: full,
        key_heads: size("linear_num_key_heads", 30)?,
        value_heads: size("linear_num_value_heads", 30)?,
        key_dim: size("linear_key_head_dim", 96)?,
        value_dim: size("linear_value_head_dim", 192)?,
        kernel: size("linear_conv_kernel_dim", 4)?,
        state_bytes: 4,
    };
    if linear.key_heads.max(linear.value_heads) > 10_000 || linear.key_dim.max(linear.value_dim) > 10_000 {
        return Err(fields.bad(
            "linear_num_value_heads",
            "at most 10000 heads of a width of at most 10000",
        ));
    }
    let norms = wide((draft.heads + draft.kv_heads) * draft.head_dim);
    draft.part("attention", draft.attention() + norms, full)?;
    draft.part("linear attention", linear.params(draft.hidden), number - full)?;
    draft.part("norms", 2 * draft.h(), number)?;
    draft.attends(full);
    draft.anatomy.with_state = number - full;
    draft.linear = (number > full).then_some(linear);
    draft.ffn = fields.size(&["intermediate_size"], None)?;
    draft.part("MLP", draft.gated(draft.ffn), number)?;
    draft.anatomy.plain = number;
    Ok(draft)
}

/// Ling 3: Kimi delta attention with whole gates in most layers of a group, latent attention with a gate a head in the last.
pub(super) fn bailing(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let every = fields.size(&["layer_group_size"], Some(6))?;
    let full = match layers::listed_of(fields, &["layer_types"], &[FULL, LINEAR], number)? {
        Some(numbers) => numbers[0],
        None => number / every,
    };
    let (mut draft, latent) = super::with_latent(fields, number)?;
    if latent.q_lora_rank > 0 || fields.flag("attention_bias")? == Some(true) {
        let key = fields
            .named(&["q_lora_rank", "attention_bias"])
            .unwrap_or("q_lora_rank");
        return Err(fields.bad(key, "none, where parameters are counted"));
    }
    let (h, heads) = (draft.h(), wide(draft.heads));
    let of_latent = parameters::latent_attention(latent, h, heads) + h * heads;
    draft.part("latent attention", of_latent, full)?;
    let linear = Linear {
        mixer: Mixer::Kimi,
        full_layers: full,
        key_heads: draft.heads,
        value_heads: draft.heads,
        key_dim: fields.size(&["head_dim"], Some(128))?,
        value_dim: fields.size(&["head_dim"], Some(128))?,
        kernel: fields.size(&["short_conv_kernel_size"], Some(4))?,
        state_bytes: 4,
    };
    let [width, kernel] = [linear.value_dim, linear.kernel].map(wide);
    let d = heads * width;
    // Queries, keys, values, gate and decay whole; convolutions; rate of learning and decay a head; the norm.
    let delta = 5 * h * d + d * h + 3 * d * kernel + h * heads + heads + d + width;
    draft.part("linear attention", delta, number - full)?;
    draft.part("norms", 2 * h, number)?;
    draft.attends(full);
    draft.anatomy.with_state = number - full;
    draft.linear = (number > full).then_some(linear);
    let dense = super::super::first_dense(fields, 2)?;
    let experts = Experts {
        count: fields.size(&["num_experts", "num_local_experts"], Some(512))?,
        per_token: fields
            .whole(&["num_experts_per_token", "num_experts_per_tok"])?
            .unwrap_or(8),
        ffn: fields.size(&["moe_intermediate_size"], None)?,
        shared: fields
            .whole(&["num_shared_experts", "n_shared_experts"])?
            .unwrap_or(1),
        first_dense_layers: 0,
        every: 1,
    };
    super::experts_after(fields, draft, dense, experts)
}
