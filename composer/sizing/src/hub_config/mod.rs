//! A model from the `config.json` that Hugging Face models carry.
//!
//! Only architectures whose parameters can be counted exactly are read; others, and what is no language model,
//! are refused with the field, what it holds and what is allowed. Parameters are counted, never taken from the
//! file. Of a model that sees or hears too, the language part (`text_config`) is read.

mod fields;
mod kinds;

use crate::model::{Experts, Family, Implausible, Latent, Mlp, Model, Window};
use fields::Fields;
use kinds::{Kind, Mixture};

/// Why a config.json was refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("config.json is not what it should be: {0}")]
    Json(#[from] serde_json::Error),
    #[error("config.json: {key} is {found}; allowed: {allowed}")]
    BadValue {
        key: String,
        found: String,
        allowed: String,
    },
    #[error("config.json of a {model_type} model lacks {key}; allowed: {allowed}")]
    Missing {
        model_type: String,
        key: String,
        allowed: &'static str,
    },
    #[error("config.json: {0}")]
    Implausible(#[from] Implausible),
}

/// Reads the text of a config.json; `name` is what to call the model.
pub fn parse(name: &str, text: &str) -> Result<Model, ConfigError> {
    let whole = Fields::parse(text)?;
    // A model of several kinds of input says which of them is text.
    let inner = whole.inner("text_config")?;
    let (fields, part) = match &inner {
        Some(inner) if kinds::of(&whole).is_err() || whole.get("hidden_size").is_none() => {
            (inner, ", of its text part")
        }
        _ => (&whole, ""),
    };
    let kind = kinds::of(fields)?;
    kind.refuse_unsupported(fields)?;
    let mut model = shape(name, fields, kind)?;
    model.source = format!("its config.json{part}; parameters counted from it");
    // Bounds the dimensions, so that the count means something.
    model.check()?;
    model.params = model.counted().ok_or_else(|| ConfigError::BadValue {
        key: "model_type".into(),
        found: format!("{:?} of a size that has no count", fields.model_type()),
        allowed: "a model of at most 100,000,000,000,000 parameters".into(),
    })?;
    model.check()?;
    Ok(model)
}

/// The dimensions, parameters still to be counted.
fn shape(name: &str, fields: &Fields, kind: Kind) -> Result<Model, ConfigError> {
    let hidden = fields.need(&["hidden_size", "n_embd", "n_embed"])?;
    let heads = fields.need(&["num_attention_heads", "n_head"])?;
    let layers = fields.need(&["num_hidden_layers", "n_layer"])?;
    let experts = experts(fields, kind, layers)?;
    let dense = fields.whole(&[
        "intermediate_size_mlp",
        "intermediate_size",
        "n_inner",
        "ffn_dim",
        "ffn_hidden_size",
    ])?;
    let context_keys = ["max_position_embeddings", "n_positions", "seq_length"];
    let context = if kind.positions {
        Some(fields.need(&context_keys)?)
    } else {
        fields.whole(&context_keys)?
    };
    let latent = match kind.family {
        Family::Deepseek => Some(latent(fields)?),
        _ => None,
    };
    Ok(Model {
        name: name.to_owned(),
        aliases: Vec::new(),
        family: kind.family(fields)?,
        // Counted by the caller; until then more than any embedding.
        params: 100_000_000_000_000,
        params_active: None,
        layers,
        hidden,
        heads,
        kv_heads: kind.kv_heads(fields, heads)?,
        head_dim: match latent {
            Some(latent) => latent.value_dim,
            None => fields.whole(&["head_dim"])?.unwrap_or(hidden / heads.max(1)),
        },
        ffn: match dense {
            Some(width) => width,
            None if kind.four_times => hidden.saturating_mul(4),
            None => fields.need(&["intermediate_size"])?,
        },
        vocab: fields.need(&["vocab_size"])?,
        tied: fields.flag("tie_word_embeddings")?.unwrap_or(kind.tied),
        mlp: match fields
            .text("activation_function")
            .or(fields.text("hidden_act"))
            .as_deref()
        {
            _ if kind.mlp == Mlp::Gated => Mlp::Gated,
            Some("gelu_new") => Mlp::GeluNew,
            None if matches!(kind.family, Family::Gpt2 | Family::Phi) => Mlp::GeluNew,
            _ => Mlp::Gelu,
        },
        context,
        latent,
        window: window(fields, kind, layers)?,
        experts,
        source: String::new(),
    })
}

fn latent(fields: &Fields) -> Result<Latent, ConfigError> {
    Ok(Latent {
        kv_lora_rank: fields.need(&["kv_lora_rank"])?,
        rope_dim: fields.need(&["qk_rope_head_dim"])?,
        q_lora_rank: fields.whole(&["q_lora_rank"])?.unwrap_or(0),
        nope_dim: fields.need(&["qk_nope_head_dim"])?,
        value_dim: fields.need(&["v_head_dim"])?,
    })
}

/// Layers with a window, where the kind has them.
fn window(fields: &Fields, kind: Kind, layers: u64) -> Result<Option<Window>, ConfigError> {
    let Some(usual) = kind.full_every else {
        return Ok(None);
    };
    let full_every = match fields.whole(&["sliding_window_pattern"])? {
        Some(every) => every,
        // No layer is full.
        None if usual == 0 => layers.saturating_add(1),
        None => usual,
    };
    if fields.flag("use_sliding_window")? == Some(false) {
        return Ok(None);
    }
    let tokens = fields.whole(&["sliding_window", "attention_chunk_size"])?;
    Ok(tokens.map(|tokens| Window { tokens, full_every }))
}

fn experts(fields: &Fields, kind: Kind, layers: u64) -> Result<Option<Experts>, ConfigError> {
    let Some(mixture) = kind.mixture else {
        return Ok(None);
    };
    let Mixture { count, ffn } = mixture;
    let per_token = fields.need(&["num_experts_per_tok"])?;
    let width = fields.need(&[ffn])?;
    let shared = match kind.family {
        Family::Llama4 => 1,
        Family::Qwen2Moe => {
            let shared = fields.need(&["shared_expert_intermediate_size"])?;
            if width == 0 || !shared.is_multiple_of(width) {
                let allowed = format!("a multiple of {ffn}, {width}");
                return Err(fields.bad("shared_expert_intermediate_size", &allowed));
            }
            shared / width
        }
        _ => fields.whole(&["n_shared_experts"])?.unwrap_or(0),
    };
    Ok(Some(Experts {
        count: fields.need(&[count])?,
        per_token,
        ffn: width,
        shared,
        first_dense_layers: fields.whole(&["first_k_dense_replace"])?.unwrap_or(0).min(layers),
        every: fields.whole(&["interleave_moe_layer_step"])?.unwrap_or(1),
    }))
}

#[cfg(test)]
mod tests;
