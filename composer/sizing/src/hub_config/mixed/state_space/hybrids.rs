//! Hybrids of state spaces and attention: Jamba, Bamba, Granite 4, Falcon-H1, Nemotron-H.

use super::super::super::ConfigError;
use super::super::super::fields::Fields;
use super::super::{Draft, layers, wide};
use super::{Mamba, Mamba2, PREFIXED, state_bytes};
use crate::linear::Linear;
use crate::model::{Experts, Mlp};

/// How files name a layer with a state, and one with attention.
const WITH_STATE: &[&str] = &["mamba", "linear_attention", "mamba2"];
const ATTENTION: &[&str] = &["attention", "full_attention"];

/// A mixer in so many layers, attention in so many.
fn mixers(
    draft: &mut Draft,
    (params, with_state, linear): (u128, u64, Linear),
    (attention, full): (u128, u64),
) -> Result<(), ConfigError> {
    draft.part("state space", params, with_state)?;
    draft.part("attention", attention, full)?;
    draft.attends(full);
    draft.anatomy.with_state = with_state;
    draft.linear = (with_state > 0).then_some(linear);
    Ok(())
}

/// Mamba-2 under the names that hybrids have for it.
fn mamba2(fields: &Fields, draft: &Draft, inner: Option<u64>) -> Result<Mamba2, ConfigError> {
    let heads = fields.size(&["mamba_n_heads"], Some(128))?;
    let expanded = draft.hidden * fields.size(&["mamba_expand"], Some(2))?;
    let inner = inner.unwrap_or(expanded);
    if !inner.is_multiple_of(heads) {
        return Err(fields.bad(
            "mamba_n_heads",
            &format!("a divisor of the state space's width, {inner}"),
        ));
    }
    let biased = fields.flag("mamba_proj_bias")?.unwrap_or(false);
    Ok(Mamba2 {
        heads,
        width: inner / heads,
        groups: fields.size(&["mamba_n_groups"], Some(1))?,
        state: fields.size(&["mamba_d_state"], Some(256))?,
        kernel: fields.size(&["mamba_d_conv"], Some(4))?,
        convolution_biased: fields.flag("mamba_conv_bias")?.unwrap_or(true),
        biased: (biased, biased),
        normed: true,
    })
}

fn biased(fields: &Fields, key: &str, biases: u128) -> Result<u128, ConfigError> {
    Ok(if fields.flag(key)? == Some(true) {
        biases
    } else {
        0
    })
}

/// Mamba with norms inside; every so many layers attention, every so many experts.
pub(in super::super) fn jamba(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let mut draft = Draft::with_attention(fields, number, false)?;
    let attention = ("attn_layer_period", 8);
    let full = layers::periodic(fields, attention, ("attn_layer_offset", 4), number)?;
    let mamba = Mamba {
        normed: true,
        ..Mamba::read(fields, draft.hidden, &PREFIXED)?
    };
    let linear = mamba.linear(full, state_bytes(fields)?);
    let (h, of_attention) = (draft.h(), draft.attention());
    mixers(
        &mut draft,
        (mamba.params(h), number - full, linear),
        (of_attention, full),
    )?;
    draft.part("norms", 2 * h, number)?;

    let count = fields.size(&["num_experts"], Some(16))?;
    let sparse = match count {
        1 => 0,
        _ => {
            let every = ("expert_layer_period", 2);
            layers::periodic(fields, every, ("expert_layer_offset", 1), number)?
        }
    };
    draft.ffn = fields.size(&["intermediate_size"], None)?;
    draft.part("MLP", draft.gated(draft.ffn), number - sparse)?;
    draft.anatomy.plain = number - sparse;
    if sparse > 0 {
        draft.part("router", h * wide(count), sparse)?;
        let experts = Experts {
            count,
            per_token: fields.whole(&["num_experts_per_tok"])?.unwrap_or(2),
            ffn: draft.ffn,
            shared: 0,
            first_dense_layers: 0,
            every: 1,
        };
        draft.experts_of(experts, sparse)?;
    }
    Ok(draft)
}

/// Mamba-2 but for layers with attention; an MLP in each.
pub(in super::super) fn bamba(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let mut draft = Draft::with_attention(fields, number, false)?;
    let full = match layers::listed_of(
        fields,
        &["layer_types", "layers_block_type"],
        &[ATTENTION, WITH_STATE],
        number,
    )? {
        Some(numbers) => numbers[0],
        None => layers::indexed(fields, "attn_layer_indices", number)?.unwrap_or(0),
    };
    let mixer = mamba2(fields, &draft, None)?;
    let linear = mixer.linear(full, state_bytes(fields)?);
    let attention = draft.attention() + biased(fields, "attention_bias", draft.attention_biases())?;
    let of_mixer = mixer.params(draft.h());
    mixers(&mut draft, (of_mixer, number - full, linear), (attention, full))?;
    mlp_in_each(fields, draft)
}

/// A gated MLP and two norms in each layer.
fn mlp_in_each(fields: &Fields, mut draft: Draft) -> Result<Draft, ConfigError> {
    draft.ffn = fields.size(&["intermediate_size"], None)?;
    let biases = biased(fields, "mlp_bias", 2 * wide(draft.ffn) + draft.h())?;
    draft.part("MLP", draft.gated(draft.ffn) + biases, draft.layers)?;
    draft.part("norms", 2 * draft.h(), draft.layers)?;
    draft.anatomy.plain = draft.layers;
    Ok(draft)
}

/// Mamba-2 and attention side by side in each layer.
pub(in super::super) fn falcon_h1(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let mut draft = Draft::with_attention(fields, number, false)?;
    let inner = match fields.whole(&["mamba_d_ssm"])? {
        Some(_) => Some(fields.size(&["mamba_d_ssm"], None)?),
        None => None,
    };
    let mixer = mamba2(fields, &draft, inner)?;
    let mixer = Mamba2 {
        biased: (mixer.biased.0, fields.flag("projectors_bias")?.unwrap_or(false)),
        normed: fields.flag("mamba_rms_norm")?.unwrap_or(false),
        ..mixer
    };
    let linear = mixer.linear(number, state_bytes(fields)?);
    let attention = draft.attention() + biased(fields, "attention_bias", draft.attention_biases())?;
    let of_mixer = mixer.params(draft.h());
    mixers(&mut draft, (of_mixer, number, linear), (attention, number))?;
    mlp_in_each(fields, draft)
}

/// Granite 4: Mamba-2 but for layers with attention; in each experts, a shared one beside them, or that alone.
pub(in super::super) fn granite(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let mut draft = Draft::with_attention(fields, number, false)?;
    let names = ["layer_types", "layers_block_type"];
    let full = layers::listed_of(fields, &names, &[ATTENTION, WITH_STATE], number)?.map_or(0, |of| of[0]);
    let mixer = mamba2(fields, &draft, None)?;
    let linear = mixer.linear(full, state_bytes(fields)?);
    let attention = draft.attention() + biased(fields, "attention_bias", draft.attention_biases())?;
    let (h, of_mixer) = (draft.h(), mixer.params(draft.h()));
    mixers(&mut draft, (of_mixer, number - full, linear), (attention, full))?;
    draft.part("norms", 2 * h, number)?;

    let shared = fields.size(&["shared_intermediate_size"], Some(1024))?;
    draft.part("shared MLP", draft.gated(shared), number)?;
    let count = fields.whole(&["num_local_experts"])?.unwrap_or(8);
    if count == 0 {
        draft.ffn = shared;
        draft.anatomy.plain = number;
        return Ok(draft);
    }
    draft.ffn = fields.size(&["intermediate_size"], None)?;
    draft.part("router", h * wide(count), number)?;
    let experts = Experts {
        count,
        per_token: fields.whole(&["num_experts_per_tok"])?.unwrap_or(2),
        ffn: draft.ffn,
        // As many of the width of one as it has.
        shared: shared.div_ceil(draft.ffn),
        first_dense_layers: 0,
        every: 1,
    };
    draft.experts_of(experts, number)?;
    Ok(draft)
}

/// Each layer is one thing: a state space, attention, an MLP of two matrices, or experts of two.
pub(in super::super) fn nemotron_h(fields: &Fields) -> Result<Draft, ConfigError> {
    let [with_state, full, plain, sparse] = nemotron_layers(fields)?;
    let number = with_state + full + plain + sparse;
    let mut draft = Draft::with_attention(fields, number, false)?;
    let both = fields.flag("use_bias")?.unwrap_or(false);
    let mixer = Mamba2 {
        heads: fields.size(&["mamba_num_heads"], Some(128))?,
        width: fields.size(&["mamba_head_dim"], Some(64))?,
        groups: fields.size(&["n_groups"], Some(8))?,
        state: fields.size(&["ssm_state_size"], Some(128))?,
        kernel: fields.size(&["conv_kernel", "mamba_d_conv"], Some(4))?,
        convolution_biased: fields.flag("use_conv_bias")?.unwrap_or(true),
        biased: (both, both),
        normed: true,
    };
    let linear = mixer.linear(full, state_bytes(fields)?);
    let (h, attention, of_mixer) = (draft.h(), draft.attention(), mixer.params(draft.h()));
    mixers(&mut draft, (of_mixer, with_state, linear), (attention, full))?;
    draft.part("norms", h, number)?;

    draft.mlp = Mlp::Gelu;
    draft.ffn = fields.size(&["intermediate_size"], Some(21_504))?;
    let biases = biased(fields, "mlp_bias", wide(draft.ffn) + h)?;
    draft.part("MLP", 2 * h * wide(draft.ffn) + biases, plain)?;
    draft.anatomy.plain = plain;
    if sparse > 0 {
        nemotron_experts(fields, &mut draft, sparse)?;
    }
    Ok(draft)
}

/// By the list, or by the pattern of letters.
fn nemotron_layers(fields: &Fields) -> Result<[u64; 4], ConfigError> {
    let kinds: [&[&str]; 4] = [WITH_STATE, ATTENTION, &["mlp"], &["moe"]];
    if let Some(found) = layers::listed(fields, &["layers_block_type", "layer_types"], &kinds)? {
        let numbers = layers::tally(&found, 4);
        return Ok([numbers[0], numbers[1], numbers[2], numbers[3]]);
    }
    let key = "hybrid_override_pattern";
    let pattern = fields.text(key).unwrap_or_default();
    let letters = ['M', '*', '-', 'E'];
    let numbers = letters.map(|letter| pattern.chars().filter(|found| *found == letter).count() as u64);
    let all: u64 = numbers.iter().sum();
    if all == 0 || all > 10_000 || all != pattern.chars().count() as u64 {
        return Err(fields.bad(key, "M, *, - and E, one for each layer; or layers_block_type"));
    }
    Ok(numbers)
}

/// Routed experts may work at a width of their own, between two matrices.
fn nemotron_experts(fields: &Fields, draft: &mut Draft, sparse: u64) -> Result<(), ConfigError> {
    let h = draft.h();
    let shared_width = fields.size(&["moe_shared_expert_intermediate_size"], Some(7688))?;
    let experts = Experts {
        count: fields.size(&["n_routed_experts"], Some(8))?,
        per_token: fields.whole(&["num_experts_per_tok"])?.unwrap_or(2),
        ffn: fields.size(&["moe_intermediate_size"], Some(7688))?,
        shared: 0,
        first_dense_layers: 0,
        every: 1,
    };
    let experts = Experts {
        shared: shared_width.div_ceil(experts.ffn),
        ..experts
    };
    let (inside, around) = match fields.whole(&["moe_latent_size"])? {
        None => (h, 0),
        Some(_) => {
            let narrow = wide(fields.size(&["moe_latent_size"], None)?);
            (narrow, 2 * h * narrow + biased(fields, "mlp_bias", narrow + h)?)
        }
    };
    let biases = biased(fields, "mlp_bias", wide(shared_width) + h)?;
    draft.part("router", h * wide(experts.count), sparse)?;
    draft.part("shared expert", 2 * h * wide(shared_width) + biases, sparse)?;
    draft.part("to the experts' width and back", around, sparse)?;
    draft.routed_experts(experts, 2 * inside * wide(experts.ffn), sparse)
}
