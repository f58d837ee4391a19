//! Plain decoders with one thing that no family has: a norm more, a gate, heads that are compared with each other.

use super::super::ConfigError;
use super::super::fields::Fields;
use super::{Draft, layers, wide};
use crate::model::{Mlp, Window};

const FULL: &[&str] = &["full_attention"];
const WINDOWED: &[&str] = &["sliding_attention"];

/// Biases of all four matrices, where the file says that there are.
pub(super) fn biases(fields: &Fields, draft: &Draft) -> Result<u128, ConfigError> {
    let biased = fields.flag("attention_bias")? == Some(true);
    Ok(if biased { draft.attention_biases() } else { 0 })
}

/// A gated MLP in each layer, of the stated width.
fn gated(fields: &Fields, draft: &mut Draft, beside: impl Fn(u64) -> u128) -> Result<(), ConfigError> {
    if fields.flag("mlp_bias")? == Some(true) {
        return Err(fields.bad("mlp_bias", "false, where parameters are counted"));
    }
    draft.ffn = fields.size(&["intermediate_size"], None)?;
    draft.anatomy.plain = draft.layers;
    draft.part("MLP", draft.gated(draft.ffn) + beside(draft.ffn), draft.layers)
}

/// BitNet: norms before the matrices behind attention and in the MLP.
pub(super) fn bitnet(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let mut draft = Draft::with_attention(fields, number, false)?;
    let h = draft.h();
    let attention = draft.attention() + biases(fields, &draft)? + h;
    draft.part("attention", attention, number)?;
    draft.part("norms", 2 * h, number)?;
    draft.attends(number);
    gated(fields, &mut draft, wide)?;
    Ok(draft)
}

/// Differential Llama: four vectors a layer weigh one half of the heads against the other.
pub(super) fn diffllama(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let mut draft = Draft::with_attention(fields, number, false)?;
    let attention = draft.attention() + biases(fields, &draft)? + 4 * wide(draft.head_dim);
    draft.part("attention", attention, number)?;
    draft.part("norms", 2 * draft.h(), number)?;
    draft.attends(number);
    gated(fields, &mut draft, |_| 0)?;
    Ok(draft)
}

/// Doge: norms on query and key, a mask made of the values, and weights on what passes by each part.
pub(super) fn doge(fields: &Fields) -> Result<Draft, ConfigError> {
    if fields.flag("is_moe")? == Some(true) {
        return Err(fields.bad("is_moe", "false, where parameters are counted"));
    }
    let number = layers::number(fields)?;
    let mut draft = Draft::with_attention(fields, number, false)?;
    let kv_heads = wide(draft.kv_heads);
    let mask = kv_heads * kv_heads * wide(draft.head_dim) + kv_heads;
    let biases = match biases(fields, &draft)? {
        0 => 0,
        biases => biases + kv_heads,
    };
    let attention = draft.attention() + biases + mask + 2 * wide(draft.head_dim);
    draft.part("attention", attention, number)?;
    draft.part("norms and weights of what passes by", 4 * draft.h(), number)?;
    draft.attends(number);
    gated(fields, &mut draft, |_| 0)?;
    Ok(draft)
}

/// Granite with windows and a sink for each head.
pub(super) fn granite_windowed(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let mut draft = Draft::with_attention(fields, number, false)?;
    let attention = draft.attention() + biases(fields, &draft)? + wide(draft.heads);
    draft.part("attention", attention, number)?;
    draft.part("norms", 2 * draft.h(), number)?;
    let full = match layers::listed_of(fields, &["layer_types"], &[FULL, WINDOWED], number)? {
        Some(numbers) => numbers[0],
        None => number.div_ceil(4),
    };
    draft.anatomy.attending = number;
    (draft.anatomy.full, draft.anatomy.windowed) = (full, number - full);
    draft.window = Some(Window {
        tokens: fields.whole(&["sliding_window"])?.unwrap_or(128),
        full_every: 1,
    });
    gated(fields, &mut draft, |_| 0)?;
    Ok(draft)
}

/// The text part of Llama 3.2 Vision: in some layers attention looks at the image alone, whose cache is not counted;
/// the embedding has eight entries more than the head.
pub(super) fn mllama(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let mut draft = Draft::with_attention(fields, number, false)?;
    let crossing = layers::indexed(fields, "cross_attention_layers", number)?.unwrap_or(0);
    let own = number.saturating_sub(crossing);
    let h = draft.h();
    draft.part("entries for images", 8 * h, 1)?;
    draft.part("attention", draft.attention(), own)?;
    // Norms on query and key, and two gates.
    let across = draft.attention() + 2 * wide(draft.head_dim) + 2;
    draft.part("attention to the image", across, number - own)?;
    draft.part("norms", 2 * h, number)?;
    draft.attends(number);
    draft.anatomy.full = own;
    gated(fields, &mut draft, |_| 0)?;
    Ok(draft)
}

/// The first Qwen: biases on query, key and value; gate and up projection share the stated width.
pub(super) fn qwen(fields: &Fields) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let mut draft = Draft::with_attention(fields, number, false)?;
    let h = draft.h();
    let attention = draft.attention() + draft.attention_biases() - h;
    draft.part("attention", attention, number)?;
    draft.part("norms", 2 * h, number)?;
    draft.attends(number);
    let stated = fields.size(&["intermediate_size"], None)?;
    if !stated.is_multiple_of(2) {
        return Err(fields.bad(
            "intermediate_size",
            "an even number, of which each matrix has half",
        ));
    }
    draft.ffn = stated / 2;
    draft.anatomy.plain = number;
    draft.part("MLP", draft.gated(draft.ffn), number)?;
    Ok(draft)
}

/// Layer norms and biases everywhere, an MLP of two matrices: GPT, CTRL, Persimmon.
fn classic(fields: &Fields, tied: bool, width: &'static str) -> Result<Draft, ConfigError> {
    let number = layers::number(fields)?;
    let mut draft = Draft::with_attention(fields, number, tied)?;
    let h = draft.h();
    draft.part("attention", draft.attention() + draft.attention_biases(), number)?;
    draft.part("norms", 4 * h, number)?;
    draft.attends(number);
    draft.mlp = Mlp::Gelu;
    draft.ffn = fields.size(&[width], Some(4 * draft.hidden))?;
    draft.anatomy.plain = number;
    let f = wide(draft.ffn);
    draft.part("MLP", 2 * h * f + f + h, number)?;
    Ok(draft)
}

/// Its last norm has a bias, and its head too.
pub(super) fn ctrl(fields: &Fields) -> Result<Draft, ConfigError> {
    let mut draft = classic(fields, true, "dff")?;
    draft.part("bias of the last norm", draft.h(), 1)?;
    draft.part("bias of the head", wide(draft.vocab), 1)?;
    Ok(draft)
}

/// Learned positions, and no norm after the last layer.
pub(super) fn first_gpt(fields: &Fields) -> Result<Draft, ConfigError> {
    let mut draft = classic(fields, true, "n_inner")?;
    draft.anatomy.parts.retain(|part| part.name != "last norm");
    let positions = fields.size(&["n_positions"], Some(512))?;
    draft.part("positions", wide(positions) * draft.h(), 1)?;
    Ok(draft)
}

/// Norms on query and key where the file says so.
pub(super) fn persimmon(fields: &Fields) -> Result<Draft, ConfigError> {
    let mut draft = classic(fields, false, "intermediate_size")?;
    draft.part("bias of the last norm", draft.h(), 1)?;
    if fields.flag("qk_layernorm")? != Some(false) {
        draft.part("norms of heads", 4 * wide(draft.head_dim), draft.layers)?;
    }
    Ok(draft)
}
