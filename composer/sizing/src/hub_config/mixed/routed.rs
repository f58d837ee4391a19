//! Mixtures of experts whose attention has a gate, or is divided into experts itself.

use super::super::ConfigError;
use super::super::fields::Fields;
use super::decoders::biases;
use super::{Draft, layers, wide};
use crate::model::{Experts, Window};
use crate::parameters;

/// JetMoE: queries and the matrix behind attention are those of experts too, chosen apart from those of the MLP; as many
/// heads as key and value heads for each that a token passes.
pub(super) fn jetmoe(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let mut draft = Draft::of_layers(fields, number, true)?;
    let experts = Experts {
        count: fields.size(&["num_local_experts"], Some(8))?,
        per_token: fields.size(&["num_experts_per_tok"], Some(2))?,
        ffn: fields.size(&["intermediate_size"], None)?,
        shared: 0,
        first_dense_layers: 0,
        every: 1,
    };
    draft.kv_heads = fields.size(&["num_key_value_heads"], Some(16))?;
    draft.head_dim = fields.size(&["kv_channels"], Some(128))?;
    draft.heads = draft.kv_heads.saturating_mul(experts.per_token);
    if draft.heads > 10_000 || draft.head_dim > 10_000 {
        return Err(fields.bad("kv_channels", "at most 10000 heads of a width of at most 10000"));
    }
    let (h, kv) = (draft.h(), wide(draft.kv_heads * draft.head_dim));
    draft.part("keys and values", 2 * h * kv, number)?;
    // A router and a bias each, of attention and of the MLP.
    draft.part("routers", 2 * (h * wide(experts.count) + h), number)?;
    draft.part("norms", 2 * h, number)?;
    draft.attends(number);
    draft.ffn = experts.ffn;
    let each = draft.gated(experts.ffn) + 2 * h * kv;
    draft.routed_experts(experts, each, number)?;
    Ok(draft)
}

/// Laguna: norms on query and key, a gate on attention, more heads in some layers than in others.
pub(super) fn laguna(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let mut draft = Draft::with_attention(fields, number, false)?;
    let heads = layers::widths(fields, "num_attention_heads_per_layer", number, draft.heads)?;
    let wrong = |of: &u64| *of > 10_000 || !of.is_multiple_of(draft.kv_heads);
    if heads.iter().any(wrong) {
        let allowed = format!("multiples of num_key_value_heads, {}", draft.kv_heads);
        return Err(fields.bad("num_attention_heads_per_layer", &allowed));
    }
    let by_head = match fields.get("gating") {
        None => true,
        Some(gating) => gating.as_bool() == Some(true) || gating.as_str() == Some("per-head"),
    };
    if !by_head && fields.text("gating").as_deref() != Some("per-element") {
        return Err(fields.bad("gating", "true, \"per-head\" or \"per-element\""));
    }
    let h = draft.h();
    for heads in heads {
        let of = Draft {
            heads,
            anatomy: crate::anatomy::Anatomy::default(),
            ..draft
        };
        let gate = h * wide(if by_head { heads } else { heads * draft.head_dim });
        let biases = biases(fields, &of)?;
        draft.part(
            "attention",
            of.attention() + biases + gate + 2 * wide(draft.head_dim),
            1,
        )?;
    }
    draft.part("norms", 2 * h, number)?;
    let kinds: [&[&str]; 2] = [&["full_attention"], &["sliding_attention"]];
    let full = layers::listed_of(fields, &["layer_types"], &kinds, number)?.map_or(number, |of| of[0]);
    draft.anatomy.attending = number;
    (draft.anatomy.full, draft.anatomy.windowed) = (full, number - full);
    draft.window = Some(Window {
        tokens: fields.whole(&["sliding_window"])?.unwrap_or(512),
        full_every: 1,
    });
    let dense = super::super::listed_dense(fields)?.unwrap_or(1).min(number);
    let ffn = fields.size(&["moe_intermediate_size"], Some(512))?;
    let shared = fields.size(&["shared_expert_intermediate_size"], Some(ffn))?;
    if !shared.is_multiple_of(ffn) {
        let allowed = format!("a multiple of moe_intermediate_size, {ffn}");
        return Err(fields.bad("shared_expert_intermediate_size", &allowed));
    }
    let experts = Experts {
        count: fields.size(&["num_experts"], Some(256))?,
        per_token: fields.whole(&["num_experts_per_tok"])?.unwrap_or(8),
        ffn,
        shared: shared / ffn,
        first_dense_layers: 0,
        every: 1,
    };
    // They balance the experts, and are parameters here.
    draft.part("biases of a router", wide(experts.count), number - dense)?;
    super::experts_after(fields, draft, dense, experts)
}

/// A.X K1: latent attention, and a norm after the experts.
pub(super) fn axk1(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let (mut draft, latent) = super::with_latent(fields, number)?;
    let (h, heads) = (draft.h(), wide(draft.heads));
    let attention = parameters::latent_attention(latent, h, heads);
    draft.part("latent attention", attention, number)?;
    draft.part("norms", 2 * h, number)?;
    draft.attends(number);
    let dense = super::super::first_dense(fields, 1)?;
    draft.part("norm of the experts", h, number.saturating_sub(dense))?;
    let experts = Experts {
        count: fields.size(&["n_routed_experts"], Some(192))?,
        per_token: fields.whole(&["num_experts_per_tok"])?.unwrap_or(8),
        ffn: fields.size(&["moe_intermediate_size"], None)?,
        shared: fields.whole(&["n_shared_experts"])?.unwrap_or(1),
        first_dense_layers: 0,
        every: 1,
    };
    super::experts_after(fields, draft, dense, experts)
}
