//! Mixtures of experts whose layers, heads or shared parts no family has.

use super::super::ConfigError;
use super::super::fields::Fields;
use super::{Draft, layers, wide};
use crate::anatomy::CacheHeads;
use crate::model::{Experts, Window};
use crate::parameters;

/// Ernie 4.5: experts in a range of layers, every so many, each router with a bias for each expert.
pub(super) fn ernie(fields: &Fields) -> Result<Draft, ConfigError> {
    if fields.flag("use_bias")? == Some(true) {
        return Err(fields.bad("use_bias", "false, where parameters are counted"));
    }
    let number = layers::number(fields)?;
    let mut draft = Draft::with_attention(fields, number, true)?;
    let h = draft.h();
    draft.part("attention", draft.attention(), number)?;
    draft.part("norms", 2 * h, number)?;
    draft.attends(number);
    let first = fields.whole(&["moe_layer_start_index"])?.unwrap_or(1);
    let last = match fields.get("moe_layer_end_index") {
        Some(end) if end.as_i64() == Some(-1) => number - 1,
        _ => fields.whole(&["moe_layer_end_index"])?.unwrap_or(number - 1),
    };
    let every = fields.size(&["moe_layer_interval"], Some(1))?;
    let sparse =
        (0..number).filter(|layer| (layer + 1).is_multiple_of(every) && (first..=last).contains(layer));
    let sparse = sparse.count() as u64;
    draft.ffn = fields.size(&["intermediate_size"], None)?;
    let experts = Experts {
        count: fields.size(&["moe_num_experts"], Some(64))?,
        per_token: fields.whole(&["moe_k"])?.unwrap_or(6),
        ffn: fields.size(&["moe_intermediate_size"], None)?,
        shared: fields.whole(&["moe_num_shared_experts"])?.unwrap_or(2),
        first_dense_layers: 0,
        every: 1,
    };
    draft.part("biases of a router", wide(experts.count), sparse)?;
    super::with_experts(draft, number - sparse, experts)
}

/// Hunyuan: norms on query and key, a shared MLP as wide as an expert in each layer.
pub(super) fn hunyuan(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let mut draft = Draft::with_attention(fields, number, false)?;
    let h = draft.h();
    let biases = if fields.flag("attention_bias")? == Some(true) {
        draft.attention_biases()
    } else {
        0
    };
    draft.part(
        "attention",
        draft.attention() + biases + 2 * wide(draft.head_dim),
        number,
    )?;
    draft.part("norms", 2 * h, number)?;
    draft.attends(number);
    draft.ffn = fields.size(&["intermediate_size"], None)?;
    let one = |key: &'static str, usual: u64| -> Result<u64, ConfigError> {
        let each = layers::widths(fields, key, number, usual)?;
        match each.first() {
            Some(first) if each.iter().all(|other| other == first) => Ok(*first),
            _ => Err(fields.bad(
                key,
                "the same number for each layer, where parameters are counted",
            )),
        }
    };
    let experts = Experts {
        count: one("num_experts", 1)?,
        per_token: one("moe_topk", 1)?,
        ffn: draft.ffn,
        shared: one("num_shared_expert", 1)?,
        first_dense_layers: 0,
        every: 1,
    };
    if one("moe_intermediate_size", draft.ffn)? != draft.ffn {
        return Err(fields.bad(
            "moe_intermediate_size",
            "the intermediate_size, where parameters are counted",
        ));
    }
    super::with_experts(draft, 0, experts)
}

/// Granite with a shared MLP of a width of its own.
pub(super) fn granite_shared(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let mut draft = Draft::with_attention(fields, number, false)?;
    let h = draft.h();
    let biases = if fields.flag("attention_bias")? == Some(true) {
        draft.attention_biases()
    } else {
        0
    };
    draft.part("attention", draft.attention() + biases, number)?;
    draft.part("norms", 2 * h, number)?;
    draft.attends(number);
    draft.ffn = fields.size(&["intermediate_size"], None)?;
    let shared = fields.whole(&["shared_intermediate_size"])?.unwrap_or(0);
    if shared > 0 {
        let shared = fields.size(&["shared_intermediate_size"], None)?;
        draft.part("shared MLP", draft.gated(shared), number)?;
    }
    let count = fields.size(&["num_local_experts"], Some(8))?;
    draft.part("router", h * wide(count), number)?;
    let experts = Experts {
        count,
        per_token: fields.whole(&["num_experts_per_tok"])?.unwrap_or(2),
        ffn: draft.ffn,
        shared: shared.div_ceil(draft.ffn),
        first_dense_layers: 0,
        every: 1,
    };
    draft.experts_of(experts, number)?;
    Ok(draft)
}

/// GLM-4.5V: biases on query, key and value, experts after a few plain layers.
pub(super) fn glm4v(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let mut draft = Draft::with_attention(fields, number, false)?;
    let h = draft.h();
    let biases = match fields.flag("attention_bias")? {
        Some(false) => 0,
        // All but that of the output.
        _ => draft.attention_biases() - h,
    };
    draft.part("attention", draft.attention() + biases, number)?;
    draft.part("norms", 2 * h, number)?;
    draft.attends(number);
    let dense = fields.whole(&["first_k_dense_replace"])?.unwrap_or(1);
    let experts = Experts {
        count: fields.size(&["n_routed_experts"], None)?,
        per_token: fields.whole(&["num_experts_per_tok"])?.unwrap_or(8),
        ffn: fields.size(&["moe_intermediate_size"], None)?,
        shared: fields.whole(&["n_shared_experts"])?.unwrap_or(1),
        first_dense_layers: 0,
        every: 1,
    };
    super::experts_after(fields, draft, dense, experts)
}

/// Trinity: a gate on attention, four norms a layer, a window in most.
pub(super) fn afmoe(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let mut draft = Draft::with_attention(fields, number, false)?;
    let (h, q) = (draft.h(), wide(draft.heads * draft.head_dim));
    draft.part(
        "attention",
        draft.attention() + h * q + 2 * wide(draft.head_dim),
        number,
    )?;
    draft.part("norms", 4 * h, number)?;
    windowed(fields, &mut draft, ("global_attn_every_n_layers", 4), 1024)?;
    let dense = fields.whole(&["num_dense_layers"])?.unwrap_or(1).min(number);
    draft.ffn = fields.size(&["intermediate_size"], None)?;
    let experts = Experts {
        count: fields.size(&["num_experts"], Some(64))?,
        per_token: fields.whole(&["num_experts_per_tok"])?.unwrap_or(6),
        ffn: fields.size(&["moe_intermediate_size"], None)?,
        shared: fields.whole(&["num_shared_experts"])?.unwrap_or(2),
        first_dense_layers: 0,
        every: 1,
    };
    draft.part("biases of a router", wide(experts.count), number - dense)?;
    super::with_experts(draft, dense, experts)
}

/// Which layers have a window, by the list or every so many.
fn windowed(
    fields: &Fields,
    draft: &mut Draft,
    (key, usual): (&'static str, u64),
    tokens: u64,
) -> Result<(), ConfigError> {
    let kinds: [&[&str]; 2] = [&["full_attention"], &["sliding_attention"]];
    let every = fields.size(&[key], Some(usual))?;
    let full = match layers::listed_of(fields, &["layer_types"], &kinds, draft.layers)? {
        Some(numbers) => numbers[0],
        None => draft.layers / every,
    };
    draft.anatomy.attending = draft.layers;
    (draft.anatomy.full, draft.anatomy.windowed) = (full, draft.layers - full);
    draft.window = Some(Window {
        tokens: fields.whole(&["sliding_window"])?.unwrap_or(tokens),
        full_every: 1,
    });
    Ok(())
}

/// Command A's mixture: one norm a layer, attention and experts side by side, a window in most.
pub(super) fn cohere(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let mut draft = Draft::with_attention(fields, number, true)?;
    let h = draft.h();
    let biases = if fields.flag("attention_bias")? == Some(true) {
        draft.attention_biases()
    } else {
        0
    };
    draft.part("attention", draft.attention() + biases, number)?;
    draft.part("norm", h, number)?;
    windowed(fields, &mut draft, ("sliding_window_pattern", 4), 4096)?;
    if super::super::first_dense(fields, 0)?.min(number) > 0 {
        return Err(fields.bad(
            "mlp_layer_types",
            "sparse for each layer, where parameters are counted",
        ));
    }
    draft.ffn = fields.size(&["intermediate_size"], None)?;
    let experts = Experts {
        count: fields.size(&["num_experts"], Some(8))?,
        per_token: fields.whole(&["num_experts_per_tok"])?.unwrap_or(2),
        ffn: draft.ffn,
        shared: fields.whole(&["num_shared_experts"])?.unwrap_or(0),
        first_dense_layers: 0,
        every: 1,
    };
    super::with_experts(draft, 0, experts)
}

/// MiMo V2: keys and values of other widths, more heads of them where there is a window, and sinks there.
pub(super) fn mimo(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let mut draft = Draft::with_attention(fields, number, false)?;
    let kinds: [&[&str]; 2] = [&["full_attention"], &["sliding_attention"]];
    let full = match layers::listed_of(fields, &["layer_types"], &kinds, number)? {
        Some(numbers) => numbers[0],
        None => match layers::numbered(fields, "hybrid_layer_pattern", number)? {
            // There, what has a window is numbered 1.
            Some(windowed) => number - windowed,
            None => 1 + number / 6,
        },
    };
    let value = fields.size(&["v_head_dim"], Some(128))?;
    let swa = fields.size(&["swa_num_key_value_heads"], Some(8))?;
    if value > 10_000 || swa > 10_000 {
        return Err(fields.bad("v_head_dim", "at most 10000 heads of a width of at most 10000"));
    }
    for (key, same) in [
        ("swa_num_attention_heads", draft.heads),
        ("swa_head_dim", draft.head_dim),
        ("swa_v_head_dim", value),
    ] {
        if fields.whole(&[key])?.is_some_and(|found| found != same) {
            return Err(fields.bad(key, &format!("{same}, as in layers without a window")));
        }
    }
    let (h, heads, key) = (draft.h(), wide(draft.heads), wide(draft.head_dim));
    let of = |kv: u64| h * (heads * key + heads * wide(value)) + h * wide(kv) * (key + wide(value));
    draft.part("attention", of(draft.kv_heads), full)?;
    draft.part("windowed attention", of(swa) + heads, number - full)?;
    draft.part("norms", 2 * h, number)?;
    let cache = |count| CacheHeads {
        count,
        width: draft.head_dim + value,
    };
    let (of_full, of_windowed) = (cache(draft.kv_heads), cache(swa));
    draft.anatomy.attending = number;
    (draft.anatomy.full, draft.anatomy.windowed) = (full, number - full);
    (draft.anatomy.full_cache, draft.anatomy.window_cache) = (Some(of_full), Some(of_windowed));
    draft.window = Some(Window {
        tokens: fields
            .whole(&["sliding_window_size", "sliding_window"])?
            .unwrap_or(128),
        full_every: 1,
    });
    let dense = match super::super::listed_dense(fields)? {
        Some(dense) => dense,
        None => match layers::numbered(fields, "moe_layer_freq", number)? {
            Some(sparse) => number - sparse,
            None => 1,
        },
    };
    draft.ffn = fields.size(&["intermediate_size"], None)?;
    let experts = Experts {
        count: fields.size(&["n_routed_experts"], None)?,
        per_token: fields.whole(&["num_experts_per_tok"])?.unwrap_or(8),
        ffn: fields.size(&["moe_intermediate_size"], None)?,
        shared: fields.whole(&["n_shared_experts"])?.unwrap_or(0),
        first_dense_layers: 0,
        every: 1,
    };
    super::with_experts(draft, dense.min(number), experts)
}

/// LongCat: each layer has two latent attentions, two MLPs and experts, some of which do nothing.
pub(super) fn longcat(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let (mut draft, latent) = super::with_latent(fields, number)?;
    let (h, heads) = (draft.h(), wide(draft.heads));
    draft.part(
        "latent attention",
        parameters::latent_attention(latent, h, heads),
        2 * number,
    )?;
    draft.part("norms", 4 * h, number)?;
    draft.attends(2 * number);
    draft.ffn = fields.size(&["ffn_hidden_size", "intermediate_size"], None)?;
    draft.part("MLP", draft.gated(draft.ffn), 2 * number)?;
    draft.anatomy.plain = 2 * number;
    let idle = fields.whole(&["zero_expert_num"])?.unwrap_or(0).min(1_000_000);
    let experts = Experts {
        count: fields.size(&["n_routed_experts"], None)?,
        per_token: fields.need(&["moe_topk"])?,
        ffn: fields.size(&["expert_ffn_hidden_size", "moe_intermediate_size"], None)?,
        shared: 0,
        first_dense_layers: 0,
        every: 1,
    };
    let biased = fields.flag("router_bias")? == Some(true);
    let biases = if biased { wide(experts.count + idle) } else { 0 };
    draft.part("router", h * wide(experts.count + idle) + biases, number)?;
    draft.experts_of(experts, number)?;
    Ok(draft)
}
